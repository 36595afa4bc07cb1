use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use polypath_tcp::ListenerId;

use super::accepting::Turn;
use super::handle::Stack;
use super::stream::StackStream;

/// Where connections to the stack arrive.
#[derive(Debug)]
pub struct StackListener {
    stack: Stack,
    id: ListenerId,
    local: SocketAddr,
    turns: AtomicU64,
}

impl StackListener {
    pub(super) fn new(stack: Stack, id: ListenerId, local: SocketAddr) -> Self {
        Self { stack, id, local, turns: AtomicU64::new(Turn::UNOWNED.0) }
    }

    /// The next connection, and the peer's address. Any number of tasks may wait for one: each connection wakes one of them.
    ///
    /// Errors: [`io::ErrorKind::NotConnected`] once the listener is closed, and that the stack [has ended](super::StackEnded).
    pub async fn accept(&self) -> io::Result<(StackStream, SocketAddr)> {
        let turn = Turn(self.turns.fetch_add(1, Ordering::Relaxed) + 1);
        let mut waiting = Waiting { listener: self, turn, is_pending: false };
        poll_fn(|cx| waiting.poll(cx)).await
    }

    /// As [`StackListener::accept`], for one task at a time, which may wait beside those there.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(StackStream, SocketAddr)>> {
        self.poll_in_turn(cx, Turn::UNOWNED)
    }

    fn poll_in_turn(&self, cx: &mut Context<'_>, turn: Turn) -> Poll<io::Result<(StackStream, SocketAddr)>> {
        loop {
            let accepted = self.stack.shared.peek(|state| state.accepted(self.id, turn, cx.waker()));
            let Some(id) = accepted? else {
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

/// One that waits for a connection.
struct Waiting<'a> {
    listener: &'a StackListener,
    turn: Turn,
    is_pending: bool,
}

impl Waiting<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(StackStream, SocketAddr)>> {
        let result = self.listener.poll_in_turn(cx, self.turn);
        self.is_pending = result.is_pending();
        result
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.is_pending {
            let StackListener { stack, id, .. } = self.listener;
            stack.shared.tell(|state, _| state.give_up_accepting(*id, self.turn));
        }
    }
}

impl Drop for StackListener {
    fn drop(&mut self) {
        self.close();
    }
}
