use polypath_wire::{Endpoint, FourTuple};

/// Why a connection could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Local and remote addresses are of different families.
    #[error("local and remote address are of different families")]
    FamilyMismatch,
    /// The flow exists already.
    #[error("the connection {0:?} exists already")]
    InUse(FourTuple),
    /// All ephemeral ports to this destination are taken.
    #[error("no free local port to {0}")]
    NoPort(Endpoint),
    /// [`crate::HostConfig::max_connections`] is reached.
    #[error("the limit of {0} connections is reached")]
    TooMany(usize),
}
