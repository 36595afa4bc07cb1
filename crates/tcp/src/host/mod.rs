//! A plain TCP host.

mod reset;
mod secrets;
mod time_wait;

pub use reset::reset_in_reply;
pub use secrets::HostSecrets;
pub use time_wait::{TimeWait, TimeWaitNumbers, TimeWaitReaction};
