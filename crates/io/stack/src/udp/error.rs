//! What a stack over UDP can't do.

use std::io;

/// Why a stack over UDP can't do what another choice would allow. Each front door has its own name for that choice, so it is found
/// inside of the [`io::Error`] by [`UdpError::of`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UdpError {
    /// Another program has the UDP port.
    #[error("can't use UDP port {port}: {source}; expected another one, the same at both ends")]
    PortInUse {
        /// The port.
        port: u16,
        /// What the system said.
        source: io::Error,
    },
    /// It was asked to listen.
    #[error("nobody can reach this stack, which only connects; expected one that is reachable")]
    OnlyConnects,
    /// [`UdpOptions::mtu_bytes`](super::UdpOptions::mtu_bytes) is too small.
    #[error("packets of {mtu_bytes} bytes are too small; expected mtu_bytes of {LEAST_MTU_BYTES} or more")]
    MtuTooSmall {
        /// What was asked for.
        mtu_bytes: u16,
    },
    /// An interface of a path has an empty name.
    #[error("the interface of a path has an empty name; expected that of an interface, or none")]
    NamelessInterface,
    /// [`UdpOptions::port`](super::UdpOptions::port) is 0 where connections are opened.
    #[error("no peer is reached at UDP port 0; expected port of 1 or more, as the peers have it")]
    PortZero,
}

/// What IPv6 asks of every link (RFC 8200 §5).
pub(super) const LEAST_MTU_BYTES: u16 = 1280;

impl UdpError {
    /// The one inside of an error.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl From<UdpError> for io::Error {
    fn from(error: UdpError) -> Self {
        let kind = match error {
            UdpError::PortInUse { .. } => io::ErrorKind::AddrInUse,
            UdpError::OnlyConnects => io::ErrorKind::Unsupported,
            UdpError::MtuTooSmall { .. } | UdpError::NamelessInterface | UdpError::PortZero => {
                io::ErrorKind::InvalidInput
            }
        };
        Self::new(kind, error)
    }
}
