//! For tests of drivers: what the peer hears of a stack whose runtime ends.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use super::Stack;
use crate::engine::ConnectOptions;

/// Uploads to a listener through a stack of its own, until the stack is dropped with its runtime.
pub async fn upload_to_the_end(start: impl FnOnce() -> Stack + Send + 'static, at: SocketAddr) {
    let uploading = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let client = start();
            let mut near = client.connect(at, &ConnectOptions::default()).await.expect("connects");
            near.write_all(&[1; 100_000]).await.expect("writes");
            // Its stream and its stack are dropped with the runtime.
            tokio::spawn(async move { near.write_all(&vec![1; 100 << 20]).await });
            tokio::task::yield_now().await;
        });
    });
    uploading.await.expect("a thread");
}

/// The other end has to hear of it soon, and not as of an end in order.
pub async fn is_told(mut far: impl AsyncRead + Unpin) {
    let reading = async {
        while far.read(&mut [0; 65_536]).await? > 0 {}
        Ok::<_, io::Error>(())
    };
    let told = tokio::time::timeout(Duration::from_secs(20), reading).await.expect("the peer is told");
    assert_eq!(told.expect_err("no end in order").kind(), io::ErrorKind::ConnectionReset);
}
