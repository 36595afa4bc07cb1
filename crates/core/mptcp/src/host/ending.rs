//! The end of a host: what was written arrives first, and peers are told.

use polypath_units::Instant;

use super::Host;

impl Host {
    /// Connections whose peers do not have everything yet: data, or its end.
    #[must_use]
    pub fn undelivered_count(&self) -> usize {
        self.core.iter().filter(|(_, connection)| connection.is_delivering()).count()
    }

    /// Connections that somebody still waits for: data, its end, or the peer's.
    #[must_use]
    pub fn unsettled_count(&self) -> usize {
        self.core.iter().filter(|(_, connection)| !connection.is_settled()).count()
    }

    /// Connections since the start that ended before their peers had everything, whether an application still holds them or not. It
    /// only grows. O(connections).
    #[must_use]
    pub fn cut_short_count(&self) -> u64 {
        let held = self.core.iter().filter(|(_, connection)| connection.is_cut_short()).count();
        self.cut_short + held as u64
    }

    /// What peers have acknowledged since the start, on each subflow, of all connections: those that were let go, and those that have
    /// ended. It only grows. O(subflows).
    #[must_use]
    pub fn acknowledged_bytes(&self) -> u64 {
        let live = self.core.iter().flat_map(|(_, connection)| connection.carried());
        self.ended.acknowledged_bytes() + live.map(|(_, carried)| carried.acknowledged_bytes).sum::<u64>()
    }

    /// Aborts the connections that are undelivered: nothing more will be sent on them, and their peers are not to wait for it.
    pub fn abort_undelivered(&mut self, now: Instant) {
        self.each_connection(now, |connection, _| {
            if connection.is_delivering() {
                connection.abort();
            }
        });
    }

    /// Ends every connection at once, as [`Host::abort`] ends one.
    pub fn abort_all(&mut self, now: Instant) {
        self.each_connection(now, |connection, _| connection.abort());
    }
}
