//! What comes out of TLS.

use std::future::poll_fn;
use std::io;
use std::task::ready;

use bytes::Bytes;
use tokio::io::ReadBuf;
use tokio::task::coop::consume_budget;

use super::super::leg::{Leg, is_broken, until_broken};
use super::super::secured::Secured;
use super::{Ahead, Broken, Carried, Going, broken, kernel};

/// Until the end, of which the peer has to tell: without that it has broken, and bytes may be missing (RFC 8446 §6.1).
pub(super) async fn carry(from: &Secured, to: &Leg, going: &mut Going<'_>) -> Carried {
    let mut ahead = Ahead::default();
    loop {
        let mut bytes = read(from).await.map_err(Broken::From)?;
        if bytes.is_empty() {
            return Ok(());
        }
        while !bytes.is_empty() {
            let gone = || until_broken(|| from.with(is_broken));
            let granted = going.pass(bytes.len(), gone, || broken(to)).await?;
            let passing = bytes.split_to(granted.min(bytes.len()));
            let count = passing.len();
            going.write(to, passing).await?;
            going.moved(count, granted);
            ahead.moved(count, from, to);
        }
        // Others have a turn.
        consume_budget().await;
    }
}

/// The next bytes; none at the end.
pub(super) async fn read(from: &Secured) -> io::Result<Bytes> {
    poll_fn(|cx| {
        kernel::with_buffer(|buffer| {
            let mut buffer = ReadBuf::new(buffer);
            ready!(from.poll_read(cx, &mut buffer))?;
            Ok(Bytes::copy_from_slice(buffer.filled())).into()
        })
    })
    .await
}
