//! A client and a server over the UDP engine. `cargo run -p polypath --example hello`

use polypath::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let here = Namespace::current()?;
    let listener = Stack::udp(&here, &UdpOptions::server())?.listen(([0, 0, 0, 0], 80).into())?;
    let server = tokio::spawn(async move {
        let (mut stream, peer) = listener.accept().await?;
        stream.write_all(format!("Hello, {peer}!").as_bytes()).await?;
        stream.shutdown().await
    });

    let client = Stack::udp(&here, &UdpOptions::default())?;
    let mut stream = client.connect(([127, 0, 0, 1], 80).into(), &ConnectOptions::default()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    println!("{text}");
    server.await?
}
