//! What is wanted of a path.

use polypath_units::Duration;

/// Settings of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathSettings {
    /// Carries data only while no other path works.
    pub backup: bool,
    /// How often an idle path is asked; by default every 20 s.
    pub keepalive: Option<Duration>,
}
