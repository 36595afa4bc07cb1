//! What is wanted of a path.

use polypath_units::Duration;

/// Settings of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathSettings {
    /// Carries data only while no other path works.
    pub backup: bool,
    /// Of backups, those with the smallest one come first.
    pub priority: u8,
    /// Carries no data at all, at neither end.
    pub closed: bool,
    /// What goes over it costs: while it carries nothing, it is asked every 2 min, whatever the others carry.
    pub metered: bool,
    /// How often an idle path is asked; by default every 20 s.
    pub keepalive: Option<Duration>,
}

/// The rank of a path that carries nothing.
const CLOSED: u8 = u8::MAX;

impl PathSettings {
    /// Only paths of the smallest rank carry data; 0 is no backup. The peer is told so.
    pub(crate) const fn rank(self) -> u8 {
        match (self.closed, self.backup) {
            (true, _) => CLOSED,
            (false, false) => 0,
            (false, true) if self.priority >= CLOSED - 1 => CLOSED - 1,
            (false, true) => self.priority + 1,
        }
    }

    /// As the one who made the path says.
    pub(crate) const fn set_rank(&mut self, rank: u8) {
        self.closed = rank == CLOSED;
        self.backup = rank > 0;
        self.priority = rank.saturating_sub(1);
    }
}
