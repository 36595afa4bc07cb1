//! Where our own stack is at one end, or at both: buffers are handed on, not copied. Also what goes into TLS.

use std::future::pending;
use std::io;

use bytes::Bytes;
use polypath_stack::engine::Stream;
use polypath_stack::stack::StackStream;

use super::super::leg::Leg;
use super::{Ahead, Broken, Carried, Going, broken, kernel};

/// What a limit is asked for at once.
const AT_ONCE_BYTES: usize = 64 << 10;

pub(super) async fn carry(from: &Stream, to: &Leg, going: &mut Going<'_>) -> Carried {
    let mut ahead = Ahead::default();
    loop {
        let (count, granted) = match from {
            Stream::Stack(from) => {
                let mut payload = from.read_payload().await.map_err(Broken::From)?;
                let mut granted = payload.len();
                if !payload.is_empty() && going.gate.is_limited() {
                    // Whatever has to wait does so in the stack.
                    from.put_back(payload);
                    // A stack tells who reads that there is nobody any more, and nobody else.
                    granted = going.pass(AT_ONCE_BYTES, pending, || broken(to)).await?;
                    let mut rest = from.read_payload().await.map_err(Broken::From)?;
                    payload = rest.split_to(granted);
                    if !rest.is_empty() {
                        from.put_back(rest);
                    }
                }
                for slice in payload.slices() {
                    going.write(to, slice.clone()).await?;
                }
                (payload.len(), granted)
            }
            _ => {
                let Stream::Kernel(from) = from else {
                    return Err(Broken::From(io::ErrorKind::Unsupported.into()));
                };
                kernel::readable(from).await.map_err(Broken::From)?;
                if going.gate.is_limited() {
                    match kernel::look(from).map_err(Broken::From)? {
                        kernel::Next::Nothing => continue,
                        kernel::Next::End => {
                            from.measure_before_end();
                            return Ok(());
                        }
                        kernel::Next::Something => {}
                    }
                }
                let granted =
                    going.pass(kernel::BUFFER_BYTES, || kernel::broken_source(from), || broken(to)).await?;
                let bytes = kernel::read(from, granted).await.map_err(Broken::From)?;
                let count = bytes.len();
                going.write(to, bytes).await?;
                ahead.moved(count, from, to);
                (count, granted)
            }
        };
        going.moved(count, granted);
        if count == 0 {
            return Ok(());
        }
    }
}

pub(super) async fn write_all(to: &StackStream, mut bytes: Bytes) -> io::Result<()> {
    while !bytes.is_empty() {
        let taken = to.write_bytes(&bytes).await?;
        drop(bytes.split_to(taken));
    }
    Ok(())
}
