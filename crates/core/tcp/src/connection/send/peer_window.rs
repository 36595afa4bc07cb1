//! The window that the peer gives (RFC 9293 §3.10.7.4, fifth: SND.WND, SND.WL1, SND.WL2).

/// The send window, in positions of this end.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerWindow {
    /// Its right edge.
    end: u64,
    bytes: u64,
    /// The largest that the peer has shown, or the most that its SYN can: the measure of a silly one (RFC 9293 §3.8.6.2.1).
    largest_bytes: u64,
    /// The segment that last updated it: where it began, and what it acknowledged.
    seq: u64,
    ack: u64,
    /// What the peer scales it by (RFC 7323 §2.2).
    shift: u8,
}

impl PeerWindow {
    pub(super) fn new() -> Self {
        Self { end: 1, bytes: 0, largest_bytes: u64::from(u16::MAX), seq: 0, ack: 0, shift: 0 }
    }

    /// The peer's SYN came. Its window is never scaled (RFC 7323 §2.2).
    pub(super) fn handle_syn(&mut self, field: u16, shift: Option<u8>) {
        self.shift = shift.unwrap_or(0);
        self.bytes = u64::from(field);
        self.largest_bytes = self.bytes;
    }

    /// Our SYN was acknowledged, and so many bytes may follow it.
    pub(super) fn open(&mut self, bytes: u64) {
        self.end = 1 + bytes;
    }

    /// A segment with a window came. Taken if it is not older than the last that gave one; then, whether the window is another.
    #[inline]
    pub(super) fn handle_segment(&mut self, seq: u64, ack: u64, field: u16) -> Option<bool> {
        let newer = seq > self.seq || seq == self.seq && ack >= self.ack || ack > self.ack;
        if !newer {
            return None;
        }
        let window = u64::from(field) << self.shift;
        let changed = window != self.bytes;
        self.seq = seq;
        self.ack = ack;
        self.bytes = window;
        self.end = ack + window;
        self.largest_bytes = self.largest_bytes.max(window);
        Some(changed)
    }

    /// Its right edge, as a position.
    #[inline]
    pub(super) const fn end(&self) -> u64 {
        self.end
    }

    /// The last window, scaled.
    #[inline]
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The largest that the peer has shown.
    #[inline]
    pub(super) const fn largest_bytes(&self) -> u64 {
        self.largest_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_segment_does_not_change_the_window() {
        let mut window = PeerWindow::new();
        window.handle_syn(1000, Some(3));
        window.open(window.bytes());
        assert_eq!((window.bytes(), window.end()), (1000, 1001), "never scaled on a SYN");
        assert_eq!(window.handle_segment(100, 50, 200), Some(true));
        assert_eq!((window.bytes(), window.end(), window.largest_bytes()), (1600, 1650, 1600));
        for (seq, ack, expected) in [
            (99, 50, None),
            (100, 49, None),
            (100, 50, Some(false)),
            (99, 51, Some(false)),
            (100, 50, Some(false)),
        ] {
            assert_eq!(window.handle_segment(seq, ack, 200), expected, "{seq} {ack}");
        }
        assert_eq!(window.handle_segment(101, 51, 0), Some(true));
        assert_eq!((window.end(), window.largest_bytes()), (51, 1600));
    }
}
