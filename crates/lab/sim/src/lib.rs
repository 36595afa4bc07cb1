//! A deterministic simulator that drives the production stack in virtual time.
//!
//! - [`network`]: hosts, routers and links, and the loop that moves time;
//! - [`topologies`]: networks of the usual shapes;
//! - [`app`]: traffic, and [`conversation`]: a connection with traffic at both ends;
//! - [`background`]: datagrams that take a path's room;
//! - [`trace`]: packets in pcapng and text, and a hash of everything;
//! - [`scenario`]: runs described in a TOML file;
//! - [`soak`]: random scenarios by the thousand;
//! - [`fuzz`]: hosts, a hostile network, attackers, and what must hold whatever happens;
//! - [`attack`]: what floods and forgeries cost their victims;
//! - [`matrix`]: every middlebox, everywhere;
//! - [`bench`](mod@bench): how fast all of this is.
//!
//! The same construction and seeds give the same run, bit for bit: nothing here reads a clock but the
//! benchmark, and nothing depends on the order of a hash map.

pub mod app;
pub mod attack;
pub mod background;
pub mod bench;
mod calendar;
pub mod conversation;
pub mod fuzz;
pub mod matrix;
pub mod network;
mod recorder;
pub mod scenario;
pub mod soak;
pub mod topologies;
pub mod trace;
