//! Parts of network-layer adaptive multipath aggregation, NAMA (Kaspar 2011, 4.2).
//!
//! Its packet scheduler is the [send vector](crate::split::SendVector). Its [`DelayEqualizer`] holds packets of the faster paths, so that all arrive in order.

mod delay_equalizer;

pub use delay_equalizer::DelayEqualizer;
