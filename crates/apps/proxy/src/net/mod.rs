//! The proxy on real machines: listeners and connections of an [`Engine`](polypath_stack::Engine), by tokio.

#![expect(clippy::disallowed_methods, reason = "this is where the time comes from")]

mod at_once;
mod budgets;
mod clock;
mod connect;
mod counts;
mod distrust;
mod entrance;
mod entrance_tls;
mod flow;
mod full;
mod fullness;
mod gate;
mod handshake;
mod http;
mod intercepted;
mod known;
mod lasting;
mod leg;
mod negotiate;
mod own_places;
mod owners;
mod path_limits;
mod pump;
mod runtimes;
mod secured;
mod session;
mod sessions;
mod settings;
mod shaped;
mod stopped;
#[cfg(test)]
mod tests;
mod udp;
mod upstream;
mod watched;
mod within;

pub use budgets::UsedBudget;
pub use connect::{Connector, ServerSide};
pub use counts::{Counts, Outcome};
pub use entrance::Proxy;
pub use entrance_tls::{EntranceTls, InvalidTls};
pub use flow::{Carried, Flow};
pub use leg::Leg;
pub use path_limits::LimitRefused;
pub use secured::Secured;
pub use session::{Ending, SessionEnd};
pub use sessions::{SessionState, Sessions};
pub use settings::{Entrance, EntranceKind, InterceptedBy, Settings, Surroundings, Timeouts};
pub use upstream::{InvalidUpstream, Upstream, UpstreamTls};
