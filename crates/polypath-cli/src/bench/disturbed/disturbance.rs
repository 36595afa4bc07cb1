//! What happens to a download.

use std::fmt;

use super::liar::Lie;

/// A disturbance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disturbance {
    /// Nothing.
    None,
    /// An interface is down from a moment on.
    LinkDown,
    /// Packets of one interface are lost from a moment on, and nobody is told.
    LinkSilent,
    /// Packets of both are lost for 20 seconds.
    BothAway,
    /// The server ends, and is there again after a second.
    ServerRestarts,
    /// The file becomes another one of the same length.
    FileChanges,
    /// The disk has room for half of the file.
    FullDisk,
    /// The person presses Ctrl-C.
    Interrupted,
    /// kill -9.
    Killed,
    /// The server says what is not so.
    Lied(Lie),
}

impl Disturbance {
    /// Those of the network, the server, the disk and the person; lies come beside them.
    pub(crate) const OF_NATURE: [Self; 9] = [
        Self::None,
        Self::LinkDown,
        Self::LinkSilent,
        Self::BothAway,
        Self::ServerRestarts,
        Self::FileChanges,
        Self::FullDisk,
        Self::Interrupted,
        Self::Killed,
    ];

    /// All of them.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Self::OF_NATURE.into_iter().chain(Lie::ALL.map(Self::Lied))
    }

    /// The file is there at the end, without anybody doing anything for it.
    pub(crate) fn is_survived(self) -> bool {
        matches!(self, Self::None | Self::LinkDown | Self::LinkSilent | Self::BothAway | Self::ServerRestarts)
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::None => "nothing",
            Self::LinkDown => "one interface down",
            Self::LinkSilent => "one interface silent",
            Self::BothAway => "both silent for 20 s",
            Self::ServerRestarts => "the server restarts",
            Self::FileChanges => "the file changes",
            Self::FullDisk => "the disk is full",
            Self::Interrupted => "Ctrl-C",
            Self::Killed => "kill -9",
            Self::Lied(lie) => return write!(f, "lie: {lie}"),
        };
        f.write_str(text)
    }
}
