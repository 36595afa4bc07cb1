//! What the application does with a connection: it writes, reads, and lets go.

use bytes::Bytes;
use polypath_tcp::State;
use polypath_units::Instant;
use polypath_wire::Payload;

use super::option_writer::SubflowExtension;
use super::{Connection, Context};
use crate::receive_window::most_under_way_bytes;
use crate::subflow::Subflow;

/// A window that opens beyond this is told of at once: 64 KB, a large segment.
const LEAST_WINDOW_BYTES: u64 = 64 << 10;

/// What a send buffer has room for behind what is under way, however small the windows.
const LEAST_SEND_BYTES: u64 = 1 << 20;

impl Connection {
    /// Queues data; returns how many bytes the send buffer took.
    pub(crate) fn send(&mut self, mut data: Bytes) -> usize {
        if self.shared.write_closed || self.closed.is_some() {
            return 0;
        }
        let room = self.send_room_bytes();
        if (room as usize) < data.len() {
            self.writable_wanted = true;
            data.truncate(room as usize);
        }
        let taken = data.len();
        self.shared.send.push(data);
        self.was_written |= taken > 0;
        taken
    }

    pub(crate) fn request_writable(&mut self) {
        self.writable_wanted = true;
    }

    pub(crate) fn send_room_bytes(&self) -> u64 {
        self.send_limit_bytes().saturating_sub(self.shared.send.len_bytes())
    }

    /// How much the send buffer may hold: what is under way, and behind it what two round trips will take, or half of what the
    /// peer lets come at once, and no more than the path could hold. More would only wait here instead of in the application.
    pub(super) fn send_limit_bytes(&self) -> u64 {
        let longest_min_rtt =
            self.subflows.iter().map(|subflow| subflow.tcp.min_rtt()).max().unwrap_or_default();
        // Before the first sample nothing says how long the path is.
        let by_path =
            if longest_min_rtt.is_zero() { u64::MAX } else { most_under_way_bytes(longest_min_rtt) };
        let most = self.shared.config.tcp.send_buffer_bytes.min(by_path);
        let windows: u64 = self.subflows.iter().map(|subflow| subflow.tcp.window_bytes()).sum();
        let start = self.shared.send.start();
        let under_way = self.shared.send.next().diff(start) as u64;
        let peer_takes = self.shared.window_end.diff(start).max(0) as u64;
        most.min(under_way + (2 * windows).min(peer_takes / 2).max(LEAST_SEND_BYTES))
    }

    pub(crate) fn is_write_closed(&self) -> bool {
        self.shared.write_closed || self.closed.is_some()
    }

    /// The next data in order.
    pub(crate) fn recv(&mut self, now: Instant) -> Option<Payload> {
        let payload = self.shared.in_order.pop_front();
        match &payload {
            Some(data) => {
                let before = self.shared.receive_window_bytes();
                self.shared.unread_bytes -= data.len() as u64;
                let buffer = self.shared.receive_buffer();
                self.shared.receive_window.on_read(buffer);
                // What subflows know of the window is their own last word of it, which others have used up since.
                let after = self.shared.receive_window_bytes();
                if before < LEAST_WINDOW_BYTES && after >= LEAST_WINDOW_BYTES {
                    self.acknowledge_everywhere();
                }
                self.announce_window(now);
            }
            None => self.readable_notified = false,
        }
        payload
    }

    /// Lets every subflow tell the peer of a larger window, where it is worth a segment.
    fn announce_window(&mut self, now: Instant) {
        for (position, subflow) in self.subflows.iter_mut().enumerate() {
            let Subflow { tcp, meta, .. } = &mut **subflow;
            let extension = SubflowExtension { shared: &mut self.shared, meta, position };
            tcp.window_may_have_opened(now, &extension);
        }
    }

    /// No more writes; what is queued still goes out.
    pub(crate) fn shutdown(&mut self, cx: &mut Context<'_>) {
        self.shared.write_closed = true;
        self.needs_schedule = true;
        self.update_close(cx);
    }

    /// The application lets go. Unread data makes it an abort, as with TCP (RFC 1122 §4.2.2.13).
    pub(crate) fn release(&mut self, cx: &mut Context<'_>) {
        self.released = true;
        if self.closed.is_some() {
            return;
        }
        // Nobody waits for what is not open yet, unless it is to deliver something (RFC 9293 §3.10.4).
        let is_opening = self.subflows.iter().all(|subflow| subflow.tcp.state() == State::SynSent);
        if self.shared.unread_bytes > 0 || is_opening && self.shared.send.len_bytes() == 0 {
            self.abort();
            return;
        }
        self.shared.discard = true;
        self.timers.stalled_at = None;
        self.shutdown(cx);
    }
}
