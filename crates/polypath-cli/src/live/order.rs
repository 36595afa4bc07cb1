//! In which order rows stand.

/// In which order connections stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Order {
    /// The fastest first.
    #[default]
    Rate,
    Process,
    Peer,
}

impl Order {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Process => "process",
            Self::Peer => "peer",
        }
    }

    pub(super) const fn next(self) -> Self {
        match self {
            Self::Rate => Self::Process,
            Self::Process => Self::Peer,
            Self::Peer => Self::Rate,
        }
    }
}
