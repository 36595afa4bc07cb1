//! Who may do what, and how much of it.

mod network;
mod rules;
mod users;

pub use network::{Network, NetworkError};
pub use rules::{
    Client, Denied, HostPattern, HostPatternError, PortRange, PortRangeError, Rule, Rules, Verdict,
};
pub use users::{UserList, UserListError, UserListProblem};
