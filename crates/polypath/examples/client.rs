//! Reads what a server sends, and tells how much came over which path.
//!
//! ```text
//! cargo run -p polypath --example client -- 192.0.2.1:8000 [UDP-PORT]
//! ```

use std::net::SocketAddr;
use std::time::Duration;

use polypath::prelude::*;
use tokio::io::AsyncReadExt;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let mut words = std::env::args().skip(1);
    let server = words.next().and_then(|word| word.parse::<SocketAddr>().ok());
    let udp_port = words.next().map_or(Ok(UdpOptions::default().port), |word| word.parse());
    let (Some(server), Ok(udp_port)) = (server, udp_port) else {
        eprintln!("usage: client ADDRESS:PORT [UDP-PORT]");
        std::process::exit(2);
    };
    let here = Namespace::current()?;
    let mut options = UdpOptions { port: udp_port, ..UdpOptions::default() };
    // Without this there is one path: wherever the system's routes lead.
    options.use_uplinks(&here)?;
    let stack = Stack::udp(&here, &options)?;
    let mut stream = stack.connect(server, &ConnectOptions::default()).await?;
    let mut buffer = vec![0; 64 * 1024];
    let mut total = 0;
    // Asked for while there is a connection to ask about.
    let mut info = stream.connection_info();
    loop {
        let length = stream.read(&mut buffer).await?;
        if length == 0 {
            break;
        }
        total += length;
        // At the end of the connection its subflows go: the last figures are those from before.
        info = stream.connection_info().filter(|info| !info.subflows.is_empty()).or(info);
    }
    println!("{total} bytes");
    for subflow in info.iter().flat_map(|info| &info.subflows) {
        let local = subflow.tuple.local.addr;
        let name = stack.path_name(local).unwrap_or_else(|| local.to_string());
        println!("  {name}: {:.1} MB", subflow.tcp.bytes_received as f64 / 1e6);
    }
    // The server is to hear of the end before the engine goes.
    drop(stream);
    stack.drain(Duration::from_secs(5)).await;
    Ok(())
}
