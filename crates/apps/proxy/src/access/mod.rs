//! Who may do what, and how much of it.

mod client_key;
mod clients;
mod network;
mod rules;
mod users;

pub(crate) use client_key::ClientKey;
pub use clients::{Admission, Allowance, ClientLimits, Clients, Memory, Overload, Waiting, Whose};
pub use network::{Network, NetworkError};
pub use rules::{
    Client, Denied, HostPattern, HostPatternError, PortRange, PortRangeError, Rule, Rules, Verdict,
};
pub use users::{UserList, UserListError, UserListProblem};
