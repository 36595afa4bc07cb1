//! Comparisons of our stack with the kernel's Multipath TCP and TCP, in network namespaces of their own (Linux, root).
//!
//! Every run builds fresh namespaces, so that no run inherits routes, metrics or endpoints from another. Sender and
//! receiver are processes of their own: the calling program starts itself again ([`peer::run`]), so that processor time
//! can be told apart. Engines take turns in rounds, and ratios are formed within a round: what else the machine does
//! then weighs on all of them.

pub(crate) mod attacks;
pub(crate) mod backends;
pub(crate) mod beside_kernel;
pub(crate) mod disturbed;
pub(crate) mod emulate;
pub(crate) mod fetch;
pub(crate) mod fetch_beside_curl;
pub(crate) mod handover;
mod host;
pub(crate) mod netns;
mod nginx;
mod outcome;
pub(crate) mod peer;
mod program;
pub(crate) mod proxy;
pub(crate) mod rate;
mod statistics;
pub(crate) mod throughput;
mod timed;
pub(crate) mod tunnel;

use std::fmt;

use serde::{Deserialize, Serialize};

pub(crate) use host::CpuPerGb;
pub(crate) use statistics::Spread;

/// What carries the connections of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub(crate) enum Contender {
    /// Our stack behind a TUN device.
    OursTun,
    /// Our stack over UDP.
    OursUdp,
    /// The kernel's Multipath TCP.
    KernelMptcp,
    /// The kernel's TCP, over the first path.
    KernelTcp,
    /// iperf3 made to use the kernel's Multipath TCP by mptcpize: shows that our loop treats the kernel well.
    Iperf3Mptcp,
}

impl Contender {
    /// All, in the order of tables.
    pub(crate) const ALL: [Self; 5] =
        [Self::OursTun, Self::OursUdp, Self::KernelMptcp, Self::Iperf3Mptcp, Self::KernelTcp];

    /// As in JSON and on the command line.
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::OursTun => "ours-tun",
            Self::OursUdp => "ours-udp",
            Self::KernelMptcp => "kernel-mptcp",
            Self::KernelTcp => "kernel-tcp",
            Self::Iperf3Mptcp => "iperf3-mptcp",
        }
    }

    /// Our own stack, whatever the driver.
    #[must_use]
    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Self::OursTun | Self::OursUdp)
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// Why a comparison can't be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum BenchError {
    /// Namespaces and interfaces need privileges.
    #[error("network namespaces can't be made ({0}); run as root")]
    Namespaces(std::io::Error),
    /// A program is missing.
    #[error("{program} is not installed; it is needed {purpose}: install the package {package}")]
    Missing {
        /// The program.
        program: &'static str,
        /// What it does here.
        purpose: &'static str,
        /// Debian's name of what holds it.
        package: &'static str,
    },
    /// A program refused.
    #[error("{command}: {message}")]
    Refused {
        /// What was asked.
        command: String,
        /// What it said.
        message: String,
    },
    /// A sender or receiver failed.
    #[error("{contender}, {role}: {message}")]
    Peer {
        /// What carried the connection.
        contender: Contender,
        /// Which process.
        role: &'static str,
        /// What it said.
        message: String,
    },
    /// Anything else that the system refused.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}
