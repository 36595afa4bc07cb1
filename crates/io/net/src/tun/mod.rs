//! A TUN device with checksum and segmentation offload: packets of up to 64 KB cross between the stack and the kernel.

mod device;
mod driver;
mod vnet;

pub use device::{Tun, TunConfig, TunError};
pub(crate) use driver::split;
pub use driver::{TunReceive, TunTransmit};
pub(crate) use vnet::{VNET_HEADER_BYTES, parse};
