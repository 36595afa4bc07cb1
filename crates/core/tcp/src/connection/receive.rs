//! What comes from the peer: its data, its FIN, and the window that it is promised (RFC 9293 §3.8.6.2.2).

use polypath_wire::{Payload, SeqNumber};

use crate::reassembly::{Insertion, ReceiveQueue};

/// An offset that nothing reaches.
const NOWHERE: u64 = u64::MAX;

/// The receive half. Offsets are of the peer's stream: 0 is its first byte, −1 its SYN.
#[derive(Debug)]
pub(super) struct ReceiveHalf {
    queue: ReceiveQueue,
    /// Largest right edge advertised, as a stream offset.
    edge: u64,
    /// Stream offset of the peer's FIN, if it arrived early or in order, else [`NOWHERE`].
    fin: u64,
    isn: SeqNumber,
    fin_received: bool,
    /// What the window is scaled by in the header (RFC 7323 §2.2).
    shift: u8,
}

/// What became of the payload of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text {
    /// `None` if nothing of it lies before the right edge.
    pub(super) arrival: Option<Insertion>,
    /// Some of it lies beyond the right edge, or behind the FIN.
    pub(super) is_cut: bool,
    /// Stream offsets of what lies before.
    pub(super) range: (u64, u64),
}

impl ReceiveHalf {
    pub(super) fn new(shift: u8) -> Self {
        Self {
            queue: ReceiveQueue::default(),
            edge: 0,
            fin: NOWHERE,
            isn: SeqNumber(0),
            fin_received: false,
            shift,
        }
    }

    // ---- what happened

    /// The peer's SYN came.
    pub(super) fn handle_syn(&mut self, isn: SeqNumber, is_scaling: bool) {
        self.isn = isn;
        if !is_scaling {
            self.shift = 0;
        }
    }

    /// Payload came that begins at `offset`.
    #[inline]
    pub(super) fn handle_text(&mut self, offset: i64, mut data: Payload, max_gaps: usize) -> Text {
        let mut start = offset;
        if start < 0 {
            data.advance(start.unsigned_abs() as usize);
            start = 0;
        }
        let start = start as u64;
        let limit = self.edge.min(self.fin);
        let beyond = (start + data.len() as u64).saturating_sub(limit);
        let is_cut = beyond > 0;
        if is_cut {
            let keep = (data.len() as u64).saturating_sub(beyond);
            data.truncate(keep as usize);
            if data.is_empty() {
                return Text { arrival: None, is_cut, range: (start, start) };
            }
        }
        let range = (start, start + data.len() as u64);
        Text { arrival: Some(self.queue.insert(start, data, max_gaps)), is_cut, range }
    }

    /// A FIN came that lies at `offset`. Believed neither before data that is there nor beyond the window.
    pub(super) fn handle_fin(&mut self, offset: i64) {
        let end = offset.max(0) as u64;
        let known = self.queue.highest();
        if self.fin == NOWHERE && end >= known && end <= self.edge.max(known) {
            self.fin = end;
        }
    }

    /// True once, when the FIN and everything before it has come.
    pub(super) fn poll_fin(&mut self) -> bool {
        let is_new = !self.fin_received && self.fin == self.queue.next();
        self.fin_received |= is_new;
        is_new
    }

    /// A window left in a header, scaled by `shift`: what it promises stays promised.
    #[inline]
    pub(super) fn handle_advertised(&mut self, field: u16, shift: u8) {
        self.edge = self.edge.max(self.queue.next() + (u64::from(field) << shift));
    }

    /// A SYN/ACK with this window left before there was a connection.
    pub(super) fn resume(&mut self, window: u16) {
        self.edge = u64::from(window);
    }

    /// The next data in order.
    #[inline]
    pub(super) fn read(&mut self) -> Option<Payload> {
        self.queue.read()
    }

    // ---- positions and sequence numbers

    /// The peer's initial sequence number; zero before its SYN.
    #[inline]
    pub(super) const fn isn(&self) -> SeqNumber {
        self.isn
    }

    /// Next offset expected.
    #[inline]
    pub(super) fn next(&self) -> u64 {
        self.queue.next()
    }

    /// The same, and one more for a FIN: what an acknowledgment covers.
    #[inline]
    pub(super) fn covered(&self) -> u64 {
        self.queue.next() + u64::from(self.fin_received)
    }

    /// Where the window ends, as far as the peer may know.
    #[inline]
    pub(super) fn window_end(&self) -> u64 {
        self.edge.max(self.queue.next()) + u64::from(self.fin_received)
    }

    /// The acknowledgment number to send (RCV.NXT).
    #[inline]
    pub(super) fn wire_ack(&self) -> SeqNumber {
        self.wire(self.queue.next()).add(u32::from(self.fin_received))
    }

    /// The peer's sequence number of a stream offset.
    #[inline]
    pub(super) fn wire(&self, offset: u64) -> SeqNumber {
        self.isn.add(1).add(offset as u32)
    }

    /// The stream offset of a peer's sequence number near the next expected: −1 is its SYN.
    #[inline]
    pub(super) fn offset_of(&self, seq: SeqNumber) -> i64 {
        let next = self.queue.next();
        next as i64 + i64::from(seq.diff(self.wire(next)))
    }

    // ---- the window

    /// What a buffer of this size has room for.
    #[inline]
    pub(super) fn room_bytes(&self, buffer_bytes: u64) -> u64 {
        // Data behind gaps lies inside of the window, so only what waits to be read takes room from it.
        buffer_bytes.saturating_sub(self.queue.ready_bytes())
    }

    /// A window as the header carries it.
    pub(super) fn field_of(&self, window_bytes: u64) -> u16 {
        u16::try_from(window_bytes >> self.shift).unwrap_or(u16::MAX)
    }

    /// The window for the header, where `own_bytes` is what there is room for and `window_bytes` what may be promised of it. The
    /// edge stays until it can move by a segment or half the buffer (RFC 9293 §3.8.6.2.2), lest the sender fills it by slivers.
    /// It does not move back by the rounding of the scale either, while there is room: with none left, it would move ahead by so
    /// much with each short segment (RFC 7323 §2.4). It does move back where an extension shares the window with others.
    #[inline]
    pub(super) fn field_to_advertise(
        &self,
        shift: u8,
        own_bytes: u64,
        window_bytes: u64,
        step_bytes: u64,
    ) -> u16 {
        let kept = self.edge.saturating_sub(self.queue.next());
        let keep = kept > 0
            && window_bytes < kept + step_bytes
            && (window_bytes > kept || window_bytes >= own_bytes);
        let rounded_up = kept.div_ceil(1 << shift);
        let units = match keep {
            true if rounded_up << shift <= window_bytes.max(kept) => rounded_up,
            true => kept >> shift,
            false => window_bytes >> shift,
        };
        u16::try_from(units).unwrap_or(u16::MAX)
    }

    /// The window has room for `window_bytes` now: the peer should hear of it (RFC 9293 §3.8.6.2.2).
    pub(super) fn should_update(&self, window_bytes: u64, peer_mss: u16, buffer_bytes: u64) -> bool {
        // What the header can't say is no news.
        let most = u64::from(u16::MAX) << self.shift;
        let next = self.queue.next();
        let edge = next + window_bytes.min(most);
        let step = (2 * u64::from(peer_mss)).min(buffer_bytes / 2).max(1);
        // As the peer knows it.
        let known = self.edge.saturating_sub(next) >> self.shift << self.shift;
        let closed = known <= u64::from(peer_mss);
        // Small steps go with the next acknowledgment; a window that was nearly closed, or opened by a half, cannot wait.
        let far = edge.saturating_sub(self.edge) >= (buffer_bytes / 2).max(1);
        far || closed && edge >= self.edge + step
    }

    /// What the window is scaled by in the header.
    #[inline]
    pub(super) const fn shift(&self) -> u8 {
        self.shift
    }

    // ---- getters

    /// The peer's FIN came, perhaps early.
    #[inline]
    pub(super) const fn knows_fin(&self) -> bool {
        self.fin != NOWHERE
    }

    /// The peer's FIN arrived, and everything before it.
    pub(super) const fn is_finished(&self) -> bool {
        self.fin_received
    }

    /// Bytes that can be read.
    #[inline]
    pub(super) fn readable_bytes(&self) -> u64 {
        self.queue.ready_bytes()
    }

    /// Something behind is there, and something before is not.
    #[inline]
    pub(super) fn has_gap(&self) -> bool {
        self.queue.has_gap()
    }

    /// Stretches behind gaps, that of the latest arrival first.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (u64, u64)> {
        self.queue.blocks()
    }

    /// What holds whatever the peer does.
    #[cfg(test)]
    pub(super) fn check(&self) {
        assert!(self.queue.highest() <= self.edge.max(self.queue.next()), "beyond the window");
        assert!(self.queue.ready_bytes() <= self.queue.next());
    }
}
