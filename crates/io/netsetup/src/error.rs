use std::io;

use super::places::SLOTS;

/// Why the network could not be set up. What was done until then has been undone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The user named an interface that isn't there.
    #[error("there is no interface {name}; present are: {}", present.join(", "))]
    NoSuchInterface {
        /// The name.
        name: String,
        /// The interfaces that are there.
        present: Vec<String>,
    },
    /// The user named the loopback interface.
    #[error("{name} is the loopback interface, which leads to no other host; expected an uplink: {}", present.join(", "))]
    Loopback {
        /// Its name.
        name: String,
        /// The interfaces that are there.
        present: Vec<String>,
    },
    /// No interface leads anywhere.
    #[error("no uplink: no interface that is up has a global address and a route")]
    NoUplink,
    /// Nothing says whose connections are to be intercepted.
    #[error(
        "no interface without a default route, behind which clients could be: expected the interfaces or networks of clients"
    )]
    NoLan,
    /// Too many instances.
    #[error(
        "all {} places for instances are taken: end one of them, or remove the conflicting rules and tables",
        SLOTS
    )]
    NoSlot,
    /// Somebody else listens there, the kernel's sockets or another instance.
    #[error(
        "can't listen at port {port}: it is in use, by another program (`ss -ltnp 'sport = :{port}'` shows which) or another Polypath (`polypath ss -l`); choose another port, or end that program"
    )]
    PortInUse {
        /// The TCP port.
        port: u16,
    },
    /// The process may not change the network.
    #[error(
        "changing routes and address translation needs the capability CAP_NET_ADMIN: run as root, or choose engine udp or kernel"
    )]
    Permission,
    /// A step failed.
    #[error("can't set up the network: {0}")]
    Io(#[source] io::Error),
}

impl From<io::Error> for SetupError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::Permission,
            _ => Self::Io(error),
        }
    }
}
