//! Network-layer adaptive multipath aggregation, NAMA (Kaspar 2011, 4.2).
//!
//! Its packet scheduler is the [send vector](crate::split::SendVector), which follows what arrives over each path. Its [`DelayEqualizer`] holds packets of the
//! faster paths, so that all arrive in order. A path monitor measures rates and delays. [`Nama`] is all of it, at either end.

mod delay_equalizer;
mod endpoint;
mod message;
mod path_monitor;
mod reception;
mod rounding;

pub use delay_equalizer::DelayEqualizer;
pub use endpoint::{Equalizing, Nama, NamaSettings};
pub use path_monitor::MonitorSettings;
