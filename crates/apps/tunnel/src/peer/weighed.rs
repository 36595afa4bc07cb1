//! For fuzz targets: what a peer makes us hold, and a peer that sends what it likes.

use polypath_units::Instant;

use super::state::Peer;
use crate::noise::PathId;

impl Peer {
    /// Packets and datagrams that are held for it or from it, and how many may be at most without data on their way.
    pub(crate) fn held_items(&self) -> usize {
        let of_links: usize = self.links.iter().flatten().map(|link| link.held_items()).sum();
        self.plain.len() + self.urgent.len() + self.ready.len() + self.again.len() + of_links
    }

    /// Bytes that wait, either way.
    pub(crate) fn held_bytes(&self) -> usize {
        self.waiting_bytes() + self.resequencer.held_bytes()
    }

    /// Sends a frame of these contents over a path, as an authentic peer can.
    pub(crate) fn send_frame(&mut self, now: Instant, path: PathId, contents: &[u8]) {
        if let Some(ends) = self.link(path).map(|link| link.ends())
            && !contents.is_empty()
        {
            self.send_control(now, path, ends, contents, 0);
        }
    }

    /// Sends these contents as WireGuard sends a packet.
    pub(crate) fn send_plain(&mut self, contents: &[u8]) {
        let mut frame = vec![0; crate::frame::DATA_HEADER_BYTES];
        frame.extend_from_slice(contents);
        self.plain.push_back(frame.into());
    }
}
