use std::ffi::OsString;
use std::path::PathBuf;

/// What the user wants.
#[derive(Clone, Debug, Default)]
pub struct SetupOptions {
    /// The uplinks, by the names of their interfaces. If none is named: all interfaces with an address and a default route,
    /// and the hosts on the networks of the others are reached too; or, where no interface has a default route, all that
    /// have an address.
    pub uplinks: Vec<String>,
    /// Interfaces that are used only when no other works.
    pub backups: Vec<String>,
    /// TCP ports at which the stack listens, reached at every uplink's address.
    pub exposed_ports: Vec<u16>,
    /// How to start the process that takes down what was set up if this one is killed. Without one, the next start in the same
    /// network does, or [`super::clear`].
    pub guardian: Option<GuardianCommand>,
}

/// The command that becomes a guardian: a program that calls [`guard`](super::guard) with the two arguments that follow these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardianCommand {
    /// The program.
    pub program: PathBuf,
    /// Its first arguments.
    pub arguments: Vec<OsString>,
}

/// How a library starts the process that takes down what was set up if the program that it is part of is killed: as nobody's
/// child, with no descriptor of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetachedGuardian {
    /// A program that calls [`guard_detached`](super::guard_detached) with the argument that follows these.
    pub program: PathBuf,
    /// Its first arguments.
    pub arguments: Vec<OsString>,
    /// The shared library that does so in its place.
    pub library: Option<PathBuf>,
}
