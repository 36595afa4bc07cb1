//! Sends 8 MB to whoever connects, over all paths that the client has, until Ctrl-C.
//!
//! ```text
//! cargo run -p polypath --example server -- 8000 [UDP-PORT]
//! ```

use std::time::Duration;

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
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                break;
            }
        };
        let (mut stream, peer) = accepted?;
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
    // The engine ends with the program: what was written is to arrive before.
    drop(listener);
    stack.drain(Duration::from_secs(10)).await;
    Ok(())
}
