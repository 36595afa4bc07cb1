//! One path between two peers: what is under way on it, what came over it, how long it takes.

mod delay;
mod least_rtt;
mod loss;
mod mtu;
mod overtaken;
mod pacer;
mod rate;
mod receiver;
mod sender;
mod settings;
mod standing_queue;

pub(crate) use delay::OneWayDelay;
pub(crate) use loss::LossRate;
pub(crate) use mtu::{BASE_BYTES, PathMtu};
pub(crate) use receiver::PathReceiver;
pub(crate) use sender::{PathSender, Tracking};
pub use settings::PathSettings;
