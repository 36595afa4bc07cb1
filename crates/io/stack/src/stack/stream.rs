use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use polypath_mptcp::{CloseReason, ConnectionId, ConnectionInfo, ConnectionOption, SubflowId};
use polypath_wire::{FourTuple, Payload};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::handle::Stack;
use super::state::{State, StreamState};

/// Most that one write copies: others want the lock.
const MOST_WRITTEN_BYTES: usize = 512 * 1024;

/// A connection of the stack: a stream of bytes both ways.
///
/// Dropping it closes the connection in order, or resets it when received data is still unread.
/// [`AsyncWriteExt::shutdown`](tokio::io::AsyncWriteExt::shutdown) ends only this side's half.
///
/// A write returns once the stack has the data, and so does a shutdown; neither waits for the peer. What was written is
/// delivered after that, also when the stream is dropped, but only as long as the tokio runtime lives: the stack is a task of
/// it. A program that ends calls [`Stack::drain`] first. Otherwise the rest is lost, and the peer sees a reset.
#[derive(Debug)]
pub struct StackStream {
    stack: Stack,
    id: ConnectionId,
    first: Option<FourTuple>,
}

impl StackStream {
    pub(super) fn new(stack: Stack, id: ConnectionId) -> Self {
        let first = stack.shared.peek(|state| {
            let info = state.host.info(id)?;
            info.subflows.first().map(|subflow| subflow.tuple)
        });
        Self { stack, id, first }
    }

    /// Waits until the connection is open.
    pub(super) async fn connected(&self) -> io::Result<()> {
        poll_fn(|cx| {
            self.stack.shared.peek(|state| {
                state.check()?;
                let stream = stream(state, self.id)?;
                if stream.is_connected {
                    return Poll::Ready(Ok(()));
                }
                if let Some(reason) = stream.closed {
                    return Poll::Ready(Err(close_error(reason)));
                }
                stream.wait_to_write(cx.waker());
                Poll::Pending
            })
        })
        .await
    }

    /// The addresses of the first subflow, as the stack knows them.
    #[must_use]
    pub fn first_subflow(&self) -> Option<FourTuple> {
        self.first
    }

    /// This end of the first subflow, as the stack knows it: over UDP, a client's is an address of the stack's own, which begins with `fd70:`.
    /// [`Stack::seen_at`] and `Stream::local_addr` of an engine have the network's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let local = self.first.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?.local;
        Ok(SocketAddr::new(local.addr.to_canonical(), local.port))
    }

    /// The peer's end of the first subflow, with the address by which the network knows the peer now.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let peer = self.first.map(|tuple| tuple.remote.into());
        let peer: SocketAddr = peer.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?;
        Ok(self.stack.shared.underlay(|underlay| underlay.peer_at(peer)).unwrap_or(peer))
    }

    /// The stack.
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    /// Names the connection within its stack.
    #[must_use]
    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// State of the connection and its subflows, in the words of `MPTCP_INFO` and `TCP_INFO`; none once it is over.
    #[must_use]
    pub fn connection_info(&self) -> Option<ConnectionInfo> {
        self.stack.shared.peek(|state| state.host.info(self.id))
    }

    /// Asks the peer to use a subflow as a backup, or as a regular one again.
    pub fn set_backup(&self, subflow: SubflowId, backup: bool) {
        self.stack.shared.tell(|state, now| state.host.set_backup(now, self.id, subflow, backup));
    }

    /// Changes a setting of the connection, as `setsockopt` does.
    pub fn set_option(&self, option: ConnectionOption) {
        self.stack.shared.tell(|state, now| state.host.set_option(now, self.id, option));
    }

    /// Ends the connection at once, by MP_FASTCLOSE or RST.
    pub fn abort(self) {
        self.stack.shared.tell(|state, now| state.host.abort(now, self.id));
    }

    /// Writes data without copying it; returns how much was taken.
    pub async fn write_bytes(&self, data: &Bytes) -> io::Result<usize> {
        poll_fn(|cx| self.poll_write_bytes(cx, data)).await
    }

    /// As [`StackStream::write_bytes`].
    pub fn poll_write_bytes(&self, cx: &mut Context<'_>, data: &Bytes) -> Poll<io::Result<usize>> {
        self.poll_send(cx, |sent, room| {
            (sent < data.len()).then(|| data.slice(sent..data.len().min(sent + room)))
        })
    }

    /// The next data, without copying it; empty at the end of the peer's stream.
    pub async fn read_payload(&self) -> io::Result<Payload> {
        poll_fn(|cx| self.poll_read_payload(cx)).await
    }

    /// As [`StackStream::read_payload`].
    pub fn poll_read_payload(&self, cx: &mut Context<'_>) -> Poll<io::Result<Payload>> {
        self.stack.shared.with(|state, _| {
            let kept = std::mem::take(&mut stream(state, self.id)?.unread);
            if !kept.is_empty() {
                return Poll::Ready(Ok(kept));
            }
            match state.host.recv(self.id) {
                Some(payload) => Poll::Ready(Ok(payload)),
                None => poll_end(state, self.id, cx).map_ok(|()| Payload::EMPTY),
            }
        })?
    }

    /// Puts data back that was read and is not wanted yet. It is what is read next.
    pub fn put_back(&self, mut payload: Payload) {
        self.stack.shared.peek(|state| {
            if let Some(stream) = state.stream(self.id) {
                payload.append(std::mem::take(&mut stream.unread));
                stream.unread = payload;
            }
        });
    }

    fn poll_copy(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // Data that was taken before is copied without disturbing the host, and outside of its lock.
        let kept = self
            .stack
            .shared
            .peek(|state| Ok::<_, io::Error>(std::mem::take(&mut stream(state, self.id)?.unread)))?;
        let mut payload = kept;
        if payload.is_empty() {
            payload = match self.poll_read_payload(cx)? {
                Poll::Ready(payload) => payload,
                Poll::Pending => return Poll::Pending,
            };
        }
        let head = payload.split_to(buf.remaining());
        head.slices().iter().for_each(|slice| buf.put_slice(slice));
        if !payload.is_empty() {
            self.put_back(payload);
        }
        Poll::Ready(Ok(()))
    }

    /// Sends what `next` gives, which it is asked with what was sent so far and what room there is.
    fn poll_send(
        &self,
        cx: &mut Context<'_>,
        mut next: impl FnMut(usize, usize) -> Option<Bytes>,
    ) -> Poll<io::Result<usize>> {
        self.stack.shared.with(|state, _| {
            state.check()?;
            let mut room = usize::try_from(state.host.send_room_bytes(self.id)).unwrap_or(usize::MAX);
            let stream = stream(state, self.id)?;
            if let Some(reason) = stream.closed {
                return Poll::Ready(Err(write_error(reason)));
            }
            if room == 0 {
                stream.wait_to_write(cx.waker());
                state.host.request_writable(self.id);
                return Poll::Pending;
            }
            let mut sent = 0;
            while room > 0
                && let Some(data) = next(sent, room)
            {
                let taken = state.host.send(self.id, data).map_err(|_| io::ErrorKind::BrokenPipe)?;
                sent += taken;
                room -= taken;
            }
            Poll::Ready(Ok(sent))
        })?
    }

    fn poll_copy_and_send(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        // All of it, up to a bound, before any leaves: the host makes as few segments of it as it can.
        let buf = &buf[..buf.len().min(MOST_WRITTEN_BYTES)];
        self.poll_send(cx, |sent, room| {
            let left = &buf[sent..];
            (!left.is_empty()).then(|| self.stack.shared.copy_written(&left[..left.len().min(room)]))
        })
    }

    /// Ends this side's stream, and still receives.
    ///
    /// Errors: the stack has ended before the connection, so the peer will not hear of this end.
    pub fn finish_writing(&self) -> io::Result<()> {
        self.stack.shared.with(|state, now| {
            state.host.shutdown(now, self.id);
            let closed = state.stream(self.id).and_then(|stream| stream.closed);
            if closed == Some(CloseReason::Finished) { Ok(()) } else { state.check() }
        })?
    }

    /// Two halves that can be used by different tasks. Dropping the writing half ends this side's stream.
    #[must_use]
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        let shared = Arc::new(self);
        (OwnedReadHalf { stream: shared.clone() }, OwnedWriteHalf { stream: shared })
    }
}

impl Drop for StackStream {
    fn drop(&mut self) {
        self.stack.shared.tell(|state, now| state.close(now, self.id));
    }
}

fn stream(state: &mut State, id: ConnectionId) -> io::Result<&mut StreamState> {
    state.stream(id).ok_or_else(|| io::ErrorKind::NotConnected.into())
}

/// There is no data now: is it the end, or will more come?
fn poll_end(state: &mut State, id: ConnectionId, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    let ended = state.check();
    let stream = stream(state, id)?;
    match (stream.has_peer_finished, stream.closed) {
        (true, _) | (_, Some(CloseReason::Finished)) => Poll::Ready(Ok(())),
        _ if ended.is_err() => Poll::Ready(ended),
        (_, Some(reason)) => Poll::Ready(Err(close_error(reason))),
        (false, None) => {
            stream.wait_to_read(cx.waker());
            Poll::Pending
        }
    }
}

/// What errors of kind [`io::ErrorKind::TimedOut`] hold that come of a connection whose peer fell silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer no longer answers")]
pub struct Unanswered;

fn close_error(reason: CloseReason) -> io::Error {
    let (kind, message) = match reason {
        CloseReason::Finished => (io::ErrorKind::NotConnected, "the connection is closed"),
        CloseReason::Aborted => (io::ErrorKind::ConnectionAborted, "the connection was aborted on this side"),
        CloseReason::Reset => (io::ErrorKind::ConnectionReset, "the peer reset the connection"),
        CloseReason::Refused => (io::ErrorKind::ConnectionRefused, "the peer refused the connection"),
        CloseReason::TimedOut => return io::Error::new(io::ErrorKind::TimedOut, Unanswered),
        CloseReason::Unreachable => (io::ErrorKind::HostUnreachable, "the network can't reach the peer"),
        CloseReason::Damaged => {
            (io::ErrorKind::InvalidData, "something on the path damaged the connection beyond repair")
        }
    };
    io::Error::new(kind, message)
}

fn write_error(reason: CloseReason) -> io::Error {
    match reason {
        CloseReason::Finished => io::ErrorKind::BrokenPipe.into(),
        reason => close_error(reason),
    }
}

impl AsyncRead for StackStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_copy(cx, buf)
    }
}

impl AsyncWrite for StackStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_copy_and_send(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.finish_writing())
    }
}

/// The reading half of a connection.
#[derive(Debug)]
pub struct OwnedReadHalf {
    stream: Arc<StackStream>,
}

/// The writing half of a connection. Dropping it ends this side's stream.
#[derive(Debug)]
pub struct OwnedWriteHalf {
    stream: Arc<StackStream>,
}

impl OwnedWriteHalf {
    /// Ends the connection at once, by MP_FASTCLOSE or RST.
    pub fn abort(self) {
        self.stream.stack.shared.tell(|state, now| state.host.abort(now, self.stream.id));
    }
}

impl AsRef<StackStream> for OwnedReadHalf {
    fn as_ref(&self) -> &StackStream {
        &self.stream
    }
}

impl AsRef<StackStream> for OwnedWriteHalf {
    fn as_ref(&self) -> &StackStream {
        &self.stream
    }
}

impl AsyncRead for OwnedReadHalf {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_copy(cx, buf)
    }
}

impl AsyncWrite for OwnedWriteHalf {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.stream.poll_copy_and_send(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.stream.finish_writing())
    }
}

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        // The other half tells why.
        let _ = self.stream.finish_writing();
    }
}
