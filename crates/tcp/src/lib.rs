//! A sans-IO TCP engine (RFC 9293): one connection, or one subflow of a Multipath TCP connection.
#![no_std]

extern crate alloc;

mod config;
mod extension;

pub use config::Config;
pub use extension::{Extension, OptionSpace, Outgoing, OutgoingKind};
