//! TCP congestion control: coupled and uncoupled window algorithms behind one trait, one file each.
//!
//! An algorithm sees numbers, never packets: what an acknowledgment acknowledged ([`Ack`]), and a read-only view of all
//! subflows of its connection ([`Flows`]). An uncoupled algorithm is the special case that looks at its own only.
//! Everything an algorithm decides comes out of [`Controller::window_bytes`] and [`Controller::pacing_rate`]; both are
//! obeyed.
//!
//! Users choose a [`Policy`] by its name; a connection builds one [`Controller`] of it per subflow:
//!
//! ```
//! # mod polypath { pub use polypath_congestion as congestion; }
//! use polypath::congestion::{Policy, Config};
//!
//! let algorithm = Policy::by_name("lia").ok_or("no such algorithm")?;
//! let controller = algorithm.build_for(&Config { mss_bytes: 1448, ..Config::default() });
//! assert_eq!(controller.window_bytes(), 10 * 1448);
//! # Ok::<(), &str>(())
//! ```
//!
//! A new algorithm is one file, which implements [`Controller`], and one line in the table of names, [`Policy::ALL`].
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod balia;
mod bbr;
mod bic;
mod controller;
mod cubic;
mod htcp;
mod hybla;
mod hystart;
mod illinois;
mod lia;
mod lp;
mod mock;
mod olia;
mod registry;
mod reno;
mod round_trips;
mod scalable;
mod unlimited;
mod vegas;
mod veno;
mod westwood;
mod window;
mod wvegas;
mod yeah;

#[cfg(test)]
mod fluid;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod testing;

pub use balia::Balia;
pub use bbr::Bbr;
pub use bic::Bic;
pub use controller::{Ack, Config, Controller, FlowView, Flows, MOST_WINDOW_BYTES, RateSample};
pub use cubic::Cubic;
pub use htcp::HTcp;
pub use hybla::Hybla;
pub use illinois::Illinois;
pub use lia::Lia;
pub use lp::Lp;
pub use mock::{Call, Mock};
pub use olia::Olia;
pub use registry::{Algorithms, CUBIC, LIA, Policy, RENO, UnknownPolicy};
pub use reno::Reno;
pub use scalable::Scalable;
pub use unlimited::Unlimited;
pub use vegas::Vegas;
pub use veno::Veno;
pub use westwood::Westwood;
pub use wvegas::WVegas;
pub use yeah::Yeah;
