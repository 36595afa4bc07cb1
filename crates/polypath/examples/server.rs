//! Sends 8 MB to whoever connects, over all paths that the client has.
//!
//! ```text
//! cargo run -p polypath --example server -- 8000 [UDP-PORT]
//! ```

use polypath::prelude::*;
use tokio::io::AsyncWriteExt;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let mut words = std::env::args().skip(1).map(|word| word.parse::<u16>());
    let (Some(Ok(port)), Ok(udp_port)) =
        (words.next(), words.next().unwrap_or(Ok(UdpOptions::server().port)))
    else {
        eprintln!("usage: server PORT [UDP-PORT]");
        std::process::exit(2);
    };
    // Our stack in UDP datagrams: no privileges. `KernelEngine` and `uplinks::open` are the others.
    let options = UdpOptions { port: udp_port, ..UdpOptions::server() };
    let stack = Stack::udp(&Namespace::current()?, &options)?;
    let listener = stack.listen(([0, 0, 0, 0], port).into())?;
    println!("listening on port {port}");
    loop {
        let (mut stream, peer) = listener.accept().await?;
        tokio::spawn(async move {
            let content = vec![b'x'; 8_000_000];
            let sent = async {
                stream.write_all(&content).await?;
                stream.shutdown().await
            };
            match sent.await {
                Ok(()) => println!("sent 8 MB to {peer}"),
                // The next client has better luck.
                Err(error) => eprintln!("{peer}: {error}"),
            }
        });
    }
}
