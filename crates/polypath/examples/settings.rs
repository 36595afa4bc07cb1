//! A program for any engine, with settings of its own, that prints what happens. `cargo run -p polypath --example settings [kernel]`

use std::io;
use std::sync::Arc;
use std::time::Duration;

use polypath::mptcp::path_manager::PathManagers;
use polypath::mptcp::scheduler::Schedulers;
use polypath::prelude::*;
use polypath::{ConnectionConfig, Policies};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A scheduler, a path manager, and half a minute for a peer that falls silent.
fn settings() -> io::Result<ConnectionConfig> {
    let policies = Policies::default();
    let mut config = UdpOptions::default().connection;
    config.scheduler = policies.find::<Schedulers>("redundant").map_err(io::Error::other)?;
    config.path_manager = policies.find::<PathManagers>("fullmesh").map_err(io::Error::other)?;
    Arc::make_mut(&mut config.tcp).user_timeout = Some(polypath::units::Duration::from_secs(30));
    Ok(config)
}

fn start(name: &str, options: UdpOptions) -> io::Result<Engine> {
    match name {
        "udp" => Ok(Stack::udp(&Namespace::current()?, &options)?.into()),
        "kernel" => Ok(KernelEngine::new().into()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name}: expected udp or kernel"))),
    }
}

/// The library prints and logs nothing: who wants to know what happens subscribes to it.
fn print_events(stack: &Stack) {
    let mut events = stack.subscribe();
    tokio::spawn(async move {
        while let Ok((at, connection, event)) = events.recv().await {
            println!("{at} {connection:?}: {event:?}");
        }
    });
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "udp".into());
    // Ports of its own, so that it gets in nobody's way.
    let server = start(&name, UdpOptions { port: 6825, ..UdpOptions::server() })?;
    let client = start(&name, UdpOptions { port: 6825, connection: settings()?, ..UdpOptions::default() })?;
    if let Engine::Stack(stack) = &client {
        print_events(stack);
    }
    let listener = server.listen(([127, 0, 0, 1], 6825).into()).await?;
    let options = ConnectOptions { timeout: Some(Duration::from_secs(5)), ..ConnectOptions::default() };
    let (connected, accepted) =
        tokio::join!(client.connect(([127, 0, 0, 1], 6825).into(), &options), listener.accept());
    let (mut near, (mut far, _)) = (connected?, accepted?);
    near.write_all(b"hello").await?;
    near.shutdown().await?;
    let mut text = String::new();
    far.read_to_string(&mut text).await?;
    println!("{text} over {} subflow", near.info()?.subflows.len());
    drop((near, far));
    client.drain(Duration::from_secs(5)).await;
    server.drain(Duration::from_secs(5)).await;
    Ok(())
}
