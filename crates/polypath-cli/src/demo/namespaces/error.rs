use std::io;

use polypath_emulate::EmulateError;
use polypath_units::Duration;

use crate::web;

/// Most paths: the kernel has as many subflows of a connection beside the first.
pub(crate) const MAX_PATHS: usize = 8;

/// Why the demo can't be shown between namespaces.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum NamespaceError {
    /// Namespaces and interfaces need privileges.
    #[error("network namespaces can't be made ({0}); run as root, or without --netns")]
    Namespaces(io::Error),
    /// A program is not there.
    #[error(
        "{program} is not installed, which {purpose}; install the package {package}, or run without --netns"
    )]
    Missing {
        /// The program.
        program: &'static str,
        /// What it does here.
        purpose: &'static str,
        /// Debian's name of what holds it.
        package: &'static str,
    },
    /// The kernel has no Multipath TCP.
    #[error(
        "this kernel's Multipath TCP, on which nginx sends, is absent or switched off; set net.mptcp.enabled=1 with sysctl, or run without --netns"
    )]
    NoKernelMptcp,
    /// More paths than a connection of the kernel has subflows.
    #[error("{0} paths are too many for the kernel's Multipath TCP; expected at most {MAX_PATHS}")]
    TooManyPaths(usize),
    /// nginx does not serve.
    #[error("nginx does not serve the file: {0}")]
    Server(String),
    /// The kernel's path manager refused.
    #[error("ip {command}: {message}")]
    Refused {
        /// What was asked.
        command: String,
        /// What it said.
        message: String,
    },
    /// Links can't be emulated.
    #[error(transparent)]
    Emulate(#[from] EmulateError),
    /// The file did not come.
    #[error(transparent)]
    Fetch(#[from] web::Error),
    /// A transfer took longer than it may.
    #[error("the file did not arrive within {0}")]
    Timeout(Duration),
    /// Anything else that the system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
}
