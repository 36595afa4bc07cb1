//! Between two sockets of the kernel: few bytes are read and written, many go through a pipe.

use std::cell::RefCell;
use std::future::{pending, poll_fn};
use std::io::{self, Read};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use polypath_stack::engine::KernelStream;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use socket2::{Protocol, SockRef};
use tokio::io::Interest;
use tokio::task::coop::consume_budget;

use super::pipe::Pipe;
use super::{Ahead, Broken, Carried, Going, hears_no_more};

/// Where bytes are read to before they are written.
pub(super) const BUFFER_BYTES: usize = 64 << 10;
/// As much is read at once until it is known that many come.
pub(super) const FEW_BYTES: usize = 16 << 10;

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; BUFFER_BYTES].into());
}

/// What is read there has to be taken before anything is waited for.
pub(super) fn with_buffer<T>(read: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| read(buffer))
}

/// What became of bytes that were read.
enum Passed {
    /// There are none yet.
    Nothing,
    /// The end.
    End,
    /// So many were read.
    Some(usize),
}

/// What can be read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Next {
    /// Nothing yet, which is looked for again once there is something.
    Nothing,
    Something,
    End,
}

/// What is known of a way on which bytes are many.
struct Many {
    may_splice: bool,
    ahead: Ahead,
}

impl Many {
    fn begin(from: &KernelStream, to: &KernelStream) -> Self {
        Self { may_splice: gives_pages(from), ahead: Ahead::begin(from, to) }
    }
}

/// Until the end of `from`. No async fn, which would have room for its arguments twice; and each connection has two of these.
#[expect(clippy::manual_async_fn, reason = "for its size")]
pub(super) fn carry(
    from: &KernelStream,
    to: &KernelStream,
    going: &mut Going<'_>,
) -> impl Future<Output = Carried> {
    async move {
        // Once bytes are many.
        let mut many: Option<Many> = None;
        loop {
            // Others have a turn: this counts.
            readable(from).await.map_err(Broken::From)?;
            let most =
                if many.as_ref().is_some_and(|many| !many.may_splice) { BUFFER_BYTES } else { FEW_BYTES };
            if going.gate.is_limited() {
                match look(from).map_err(Broken::From)? {
                    Next::Nothing => continue,
                    Next::End => {
                        from.measure_before_end();
                        return Ok(());
                    }
                    Next::Something => {}
                }
            }
            let granted = going.pass(most, || broken_source(from), || broken(to)).await?;
            let (count, is_filled) = {
                let (passed, mut left) = pass(from, to, going, granted)?;
                let count = match passed {
                    Passed::Nothing => {
                        going.gate.give_back(granted);
                        continue;
                    }
                    Passed::End => {
                        going.gate.give_back(granted);
                        from.measure_before_end();
                        return Ok(());
                    }
                    Passed::Some(count) => count,
                };
                let is_filled = count == most;
                if !left.is_empty() {
                    poll_fn(|cx| poll_write(to, &mut left, cx)).await.map_err(Broken::To)?;
                }
                (count, is_filled)
            };
            going.moved(count, granted);
            from.measure_if_due();
            to.measure_if_due();
            if let Some(many) = &mut many {
                many.ahead.moved(count, from, to);
            }
            if is_filled {
                let many = many.get_or_insert_with(|| Many::begin(from, to));
                // Boxed: only many bytes need it.
                if many.may_splice && Box::pin(splice(from, to, going, &mut many.ahead)).await? {
                    return Ok(());
                }
            }
        }
    }
}

/// What comes next, for who has to ask a limit before it is read: an end has no octets that could be held back, and who waits for a limit does not notice
/// one that comes later. An error is told once: who reads after this would find an end.
pub(super) fn look(from: &KernelStream) -> io::Result<Next> {
    let from = from.as_tokio();
    let looked = from.try_io(Interest::READABLE, || {
        Ok(recv(from, &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT)?.0)
    });
    match looked {
        Ok(0) => Ok(Next::End),
        Ok(_) => Ok(Next::Something),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Next::Nothing),
        // Multipath TCP of older kernels.
        Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => Ok(Next::Something),
        Err(error) => Err(error),
    }
}

/// Whether a pipe takes what comes without a copy. From a socket of Multipath TCP it gets one, in pages made for it: a buffer that is there costs
/// less.
fn gives_pages(from: &KernelStream) -> bool {
    SockRef::from(from.as_tokio()).protocol().is_ok_and(|protocol| protocol == Some(Protocol::TCP))
}

/// Reads what is there, no more than so much, and writes what there is room for. What is left is yet to be written.
fn pass(
    from: &KernelStream,
    to: &KernelStream,
    going: &mut Going<'_>,
    most: usize,
) -> Result<(Passed, Bytes), Broken> {
    BUFFER.with_borrow_mut(|buffer| {
        let most = most.min(buffer.len());
        let count = match try_read(from, &mut buffer[..most]) {
            Ok(0) => return Ok((Passed::End, Bytes::new())),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok((Passed::Nothing, Bytes::new()));
            }
            Err(error) => return Err(Broken::From(error)),
        };
        if going.writes_again() {
            send_at_once(to);
        }
        let written = match to.as_tokio().try_write(&buffer[..count]) {
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(Broken::To(error)),
        };
        Ok((Passed::Some(count), Bytes::copy_from_slice(&buffer[written..count])))
    })
}

/// Reads what is there. Less than there was room for is all of it: whatever comes later wakes who waits for it, so that no read has to find nothing.
fn try_read(from: &KernelStream, buffer: &mut [u8]) -> io::Result<usize> {
    let (from, room) = (from.as_tokio(), buffer.len());
    let mut all = None;
    let read = from.try_io(Interest::READABLE, || match (&*SockRef::from(from)).read(buffer)? {
        count if 0 < count && count < room => {
            all = Some(count);
            // To be told when there is more.
            Err(io::ErrorKind::WouldBlock.into())
        }
        count => Ok(count),
    });
    all.map_or(read, Ok)
}

/// Moves bytes through a pipe until `from` has none for a moment, or a limit lets none pass; returns whether it has ended.
async fn splice(
    from: &KernelStream,
    to: &KernelStream,
    going: &mut Going<'_>,
    ahead: &mut Ahead,
) -> Result<bool, Broken> {
    // Without descriptors for it, bytes are read and written.
    let Ok(mut pipe) = Pipe::take() else { return Ok(false) };
    loop {
        // One that waits has no pipe.
        let Some(granted) = going.gate.pass_now(ahead.most_at_once()) else {
            pipe.give_back();
            return Ok(false);
        };
        let source = from.as_tokio();
        let filled = match source.try_io(Interest::READABLE, || pipe.fill(source, granted)) {
            Ok(0) => {
                going.gate.give_back(granted);
                pipe.give_back();
                return Ok(true);
            }
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                going.gate.give_back(granted);
                pipe.give_back();
                return Ok(false);
            }
            Err(error) => return Err(Broken::From(error)),
        };
        while !pipe.is_empty() {
            let drained = poll_fn(|cx| poll_drain(&mut pipe, to, cx)).await.map_err(Broken::To)?;
            going.flow.moved(going.way, drained);
            ahead.moved(drained, from, to);
        }
        going.took(filled, granted);
        from.measure_if_due();
        to.measure_if_due();
        consume_budget().await;
    }
}

/// Gives the other side what it has room for, once it has any.
fn poll_drain(pipe: &mut Pipe, to: &KernelStream, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
    let to = to.as_tokio();
    loop {
        ready!(to.poll_write_ready(cx))?;
        match to.try_io(Interest::WRITABLE, || pipe.drain(to)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            drained => return Poll::Ready(drained),
        }
    }
}

/// What is written waits for no acknowledgment of what was written before.
pub(super) fn send_at_once(to: &KernelStream) {
    // What has ended has no options.
    let _ = to.as_tokio().set_nodelay(true);
}

/// Waits until the connection is broken, and says how.
pub(super) async fn broken(stream: &KernelStream) -> io::Error {
    let stream = stream.as_tokio();
    match stream.ready(Interest::ERROR).await {
        Ok(_) => stream.take_error().ok().flatten().unwrap_or(io::ErrorKind::ConnectionReset.into()),
        Err(error) => error,
    }
}

/// The same of where bytes come from. Who only hears no more may have said things that are yet to be read; and an error that somebody else was
/// given, who writes there, is that one's to tell of.
pub(super) async fn broken_source(stream: &KernelStream) -> io::Error {
    let stream = stream.as_tokio();
    match stream.ready(Interest::ERROR).await.map(|_| stream.take_error()) {
        Ok(Ok(Some(error))) if !hears_no_more(&error) => error,
        Ok(_) => pending().await,
        Err(error) => error,
    }
}

/// Until there is something, or the end. Who waits for one direction of a socket is one task, for which tokio has a place there: no list is locked, and
/// no future has an entry of it.
pub(super) fn readable(from: &KernelStream) -> impl Future<Output = io::Result<()>> {
    poll_fn(|cx| from.as_tokio().poll_read_ready(cx))
}

/// The next bytes, no more than so many; none at the end.
pub(super) fn read(from: &KernelStream, most: usize) -> impl Future<Output = io::Result<Bytes>> {
    poll_fn(move |cx| {
        loop {
            ready!(from.as_tokio().poll_read_ready(cx))?;
            let read = BUFFER.with_borrow_mut(|buffer| {
                let most = most.min(buffer.len());
                let count = try_read(from, &mut buffer[..most])?;
                Ok(Bytes::copy_from_slice(&buffer[..count]))
            });
            match read {
                Err(error) if io::Error::kind(&error) == io::ErrorKind::WouldBlock => {}
                read => {
                    from.measure_if_due();
                    return Poll::Ready(read);
                }
            }
        }
    })
}

/// All of them.
pub(super) fn write_all(to: &KernelStream, mut bytes: Bytes) -> impl Future<Output = io::Result<()>> {
    poll_fn(move |cx| poll_write(to, &mut bytes, cx))
}

/// Writes what there is room for, until nothing is left.
fn poll_write(to: &KernelStream, left: &mut Bytes, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    while !left.is_empty() {
        ready!(to.as_tokio().poll_write_ready(cx))?;
        match to.as_tokio().try_write(left) {
            Ok(written) => left.advance(written),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
    to.measure_if_due();
    Poll::Ready(Ok(()))
}
