//! What the application does with a connection: it writes, reads, and lets go.

use bytes::Bytes;
use polypath_tcp::State;
use polypath_wire::Payload;

use super::{Connection, Context, Stream, SubflowExtension};
use crate::subflow::Subflow;

impl Connection {
    /// Queues data; returns how many bytes the send buffer took.
    pub(crate) fn send(&mut self, data: Bytes) -> usize {
        if self.stream.lifecycle.is_write_closed() {
            return 0;
        }
        let room_bytes = self.send_room_bytes();
        let taken = self.stream.send.write(data, room_bytes);
        if taken > 0 {
            self.scheduling.handle_write();
        }
        taken
    }

    pub(crate) fn request_writable(&mut self) {
        self.stream.send.want_writable();
    }

    pub(crate) fn queued_bytes(&self) -> u64 {
        self.stream.send.len_bytes()
    }

    pub(crate) fn send_room_bytes(&self) -> u64 {
        self.send_limit_bytes().saturating_sub(self.stream.send.len_bytes())
    }

    /// How much the send buffer may hold.
    pub(super) fn send_limit_bytes(&self) -> u64 {
        let windows_bytes = self.subflows.iter().map(|subflow| subflow.tcp.window_bytes()).sum();
        self.stream.send.limit_bytes(
            &self.stream.config,
            self.subflows.longest(|tcp| tcp.min_rtt()),
            windows_bytes,
        )
    }

    pub(crate) fn is_write_closed(&self) -> bool {
        self.stream.lifecycle.is_write_closed()
    }

    /// The next data in order.
    pub(crate) fn recv(&mut self) -> Option<Payload> {
        let Stream { receive, config, .. } = &mut self.stream;
        let was_small = receive.is_window_small(config);
        let Some(payload) = receive.read(config) else {
            self.outbox.handle_read_dry();
            return None;
        };
        // What subflows know of the window is their own last word of it, which others have used up since.
        if was_small && !receive.is_window_small(config) {
            self.acknowledge_everywhere();
        }
        self.announce_window();
        Some(payload)
    }

    /// Lets every subflow tell the peer of a larger window, where it is worth a segment.
    fn announce_window(&mut self) {
        for position in 0..self.subflows.len() {
            let Some((subflow, views)) = self.subflows.with_views(position) else { return };
            let Subflow { tcp, state, .. } = subflow;
            tcp.window_may_have_opened(&SubflowExtension { stream: &self.stream, state, views, position });
        }
    }

    /// No more writes; what is queued still goes out.
    pub(crate) fn shutdown(&mut self, cx: &mut Context<'_>) {
        self.stream.lifecycle.handle_shutdown();
        self.scheduling.request();
        self.update_close(cx);
    }

    /// The application lets go. Unread data makes it an abort, as with TCP (RFC 1122 §4.2.2.13).
    pub(crate) fn release(&mut self, cx: &mut Context<'_>) {
        self.stream.lifecycle.handle_release();
        if self.stream.lifecycle.is_closed() {
            return;
        }
        // Nobody waits for what is not open yet, unless it is to deliver something (RFC 9293 §3.10.4).
        let is_opening = self.subflows.all(|subflow| subflow.tcp.state() == State::SynSent);
        if self.stream.receive.unread_bytes() > 0 || is_opening && self.stream.send.len_bytes() == 0 {
            self.abort();
            return;
        }
        self.stream.receive.discard();
        self.stream.lifecycle.watch_anew();
        self.shutdown(cx);
    }
}
