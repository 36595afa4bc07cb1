use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use polypath_tcp::ListenerId;

use super::handle::Stack;
use super::stream::StackStream;

/// Where connections to the stack arrive.
#[derive(Debug)]
pub struct StackListener {
    stack: Stack,
    id: ListenerId,
    local: SocketAddr,
}

impl StackListener {
    pub(super) fn new(stack: Stack, id: ListenerId, local: SocketAddr) -> Self {
        Self { stack, id, local }
    }

    /// The next connection, and the peer's address.
    ///
    /// Errors: [`io::ErrorKind::NotConnected`] once the listener is closed, and that the stack [has ended](super::StackEnded).
    pub async fn accept(&self) -> io::Result<(StackStream, SocketAddr)> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// As [`StackListener::accept`], for one task at a time.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(StackStream, SocketAddr)>> {
        loop {
            let Some(id) = self.stack.shared.peek(|state| state.accepted(self.id, cx.waker()))? else {
                return Poll::Pending;
            };
            let stream = StackStream::new(self.stack.clone(), id);
            // Without an address, the peer has aborted while the connection waited here. That is not the listener's failure:
            // who is told of one waits, or stops listening.
            if let Ok(peer) = stream.peer_addr() {
                return Poll::Ready(Ok((stream, peer)));
            }
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Stops listening at once, which dropping it does, too: the address is free. Nothing is accepted any more, and
    /// whoever waits for that is told.
    pub fn close(&self) {
        self.stack.shared.tell(|state, now| state.close_listener(now, self.id));
    }

    pub(crate) fn stack(&self) -> &Stack {
        &self.stack
    }
}

impl Drop for StackListener {
    fn drop(&mut self) {
        self.close();
    }
}
