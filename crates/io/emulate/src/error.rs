use std::io;

/// Why links can't be emulated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmulateError {
    /// Raw sockets need a privilege.
    #[error("frames can't be read and written: this needs the capability CAP_NET_RAW; run as root")]
    Permission,
    /// There is no such interface.
    #[error("{name}: no such interface; expected one that `ip link` lists")]
    Missing {
        /// The interface.
        name: String,
    },
    /// The interface is not up.
    #[error("{name}: the interface is down; bring it up with `ip link set {name} up`")]
    Down {
        /// The interface.
        name: String,
    },
    /// Frames of other networks have other headers.
    #[error("{name}: no Ethernet interface; expected one such as eth0 or a veth")]
    NotEthernet {
        /// The interface.
        name: String,
    },
    /// An interface can be the end of one link.
    #[error("{name}: the end of two links; expected interfaces of their own for each")]
    Twice {
        /// The interface.
        name: String,
    },
    /// Another emulation would carry each frame a second time.
    #[error("{name}: another emulation uses the interface; end that one first")]
    Busy {
        /// The interface.
        name: String,
    },
    /// The last link has lost an interface.
    #[error("{name}: the interface is gone, and with it the last link")]
    Gone {
        /// The interface.
        name: String,
    },
    /// Only drop-tail queues hold frames.
    #[error("queue discipline {name}: not for real interfaces; expected drop-tail")]
    Discipline {
        /// The discipline.
        name: &'static str,
    },
    /// The system refused something about an interface.
    #[error("{name}: {what}: {error}")]
    Interface {
        /// The interface.
        name: String,
        /// What was refused.
        what: &'static str,
        /// Why.
        error: io::Error,
    },
    /// The system refused something else.
    #[error("links can't be emulated: {0}")]
    Io(#[from] io::Error),
}

impl From<EmulateError> for io::Error {
    fn from(error: EmulateError) -> Self {
        match error {
            EmulateError::Io(error) => error,
            EmulateError::Permission => Self::new(io::ErrorKind::PermissionDenied, error),
            EmulateError::Missing { .. } => Self::new(io::ErrorKind::NotFound, error),
            other => Self::other(other),
        }
    }
}
