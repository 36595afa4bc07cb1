//! Where our own stack is at one end, or at both: buffers are handed on, not copied.

use std::io;

use bytes::Bytes;
use polypath_stack::engine::Stream;
use polypath_stack::stack::StackStream;

use super::super::flow::{Flow, Way};
use super::{Broken, Carried, kernel};

pub(super) async fn carry(from: &Stream, to: &Stream, flow: &Flow, way: Way) -> Carried {
    loop {
        let count = match from {
            Stream::Stack(from) => {
                let payload = from.read_payload().await.map_err(Broken::From)?;
                for slice in payload.slices() {
                    super::write(to, slice.clone()).await.map_err(Broken::To)?;
                }
                payload.len()
            }
            _ => {
                let Stream::Kernel(from) = from else {
                    return Err(Broken::From(io::ErrorKind::Unsupported.into()));
                };
                let bytes = kernel::read(from).await.map_err(Broken::From)?;
                let count = bytes.len();
                super::write(to, bytes).await.map_err(Broken::To)?;
                count
            }
        };
        if count == 0 {
            return Ok(());
        }
        flow.moved(way, count);
    }
}

pub(super) async fn write_all(to: &StackStream, mut bytes: Bytes) -> io::Result<()> {
    while !bytes.is_empty() {
        let taken = to.write_bytes(&bytes).await?;
        drop(bytes.split_to(taken));
    }
    Ok(())
}
