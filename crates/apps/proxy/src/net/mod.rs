//! The proxy on real machines: listeners and connections of an [`Engine`](polypath_stack::Engine), by tokio.

#![expect(clippy::disallowed_methods, reason = "this is where the time comes from")]

mod connect;
mod entrance;
mod flow;
mod http;
mod negotiate;
mod pump;
mod session;
mod settings;
#[cfg(test)]
mod tests;
mod udp;
mod within;

pub use connect::{Connector, ServerSide};
pub use entrance::Proxy;
pub use flow::Flow;
pub use session::{Ending, SessionEnd, Sessions};
pub use settings::{Entrance, EntranceKind, Settings, Timeouts};
