//! The engine on a real machine: a TUN device inside, UDP sockets outside, one thread between.

mod carrier;
mod command;
mod device;
mod losses;
mod sockets;

pub use carrier::{Driver, has_fast_aes, system_random, zero_since_1970};
pub use command::{Handle, Stopped};
pub use losses::{Losses, OwnLosses};
pub use sockets::SocketId;
