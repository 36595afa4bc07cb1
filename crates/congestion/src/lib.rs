//! TCP congestion control: coupled and uncoupled window algorithms behind one trait, one file each.
//!
//! An algorithm sees numbers, never packets: what an acknowledgment acknowledged ([`Ack`]), and a read-only view of all
//! subflows of its connection ([`Flows`]). An uncoupled algorithm is the special case that looks at its own only.
//! Everything an algorithm decides comes out of [`Controller::window_bytes`] and [`Controller::pacing_rate`]; both are
//! obeyed.
#![no_std]

extern crate alloc;

mod controller;

pub use controller::{Ack, Config, Controller, FlowView, Flows, RateSample};
