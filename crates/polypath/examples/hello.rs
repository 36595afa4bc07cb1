//! A client and a server over the UDP engine. `cargo run -p polypath --example hello`

use std::time::Duration;

use polypath::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let here = Namespace::current()?;
    let engine = Stack::udp(&here, &UdpOptions::server())?;
    let listener = engine.listen(([0, 0, 0, 0], 80).into())?;
    let server = tokio::spawn(async move {
        let (mut stream, peer) = listener.accept().await?;
        stream.write_all(format!("Hello, {peer}!").as_bytes()).await?;
        stream.shutdown().await?;
        drop(stream);
        // The engine ends with the program: what was written is to arrive before.
        engine.drain(Duration::from_secs(5)).await;
        Ok(())
    });

    let client = Stack::udp(&here, &UdpOptions::default())?;
    let mut stream = client.connect(([127, 0, 0, 1], 80).into(), &ConnectOptions::default()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    println!("{text}");
    drop(stream);
    client.drain(Duration::from_secs(5)).await;
    server.await?
}
