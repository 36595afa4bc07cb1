//! A TUN device with checksum and segmentation offload: packets of up to 64 KB cross between the stack and the kernel.

mod device;
mod vnet;

pub use device::{Tun, TunConfig, TunError};
pub use vnet::{VNET_HEADER_BYTES, emit, parse};
