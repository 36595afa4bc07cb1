//! Packets of up to 64 KB between a TUN device and a path: cut into packets that fit, and joined again.
//!
//! A device with `IFF_VNET_HDR` and offloads hands over what a sender wrote in one go: one header, and the payload of many packets.
//! A [`Segmenter`] writes the packets one by one, where the caller encrypts them. At the other end a [`Coalescer`] joins what it can of a
//! batch, so that the kernel walks its stack once for many packets. Nothing is allocated for a packet, and the payload is copied once at the
//! sender and not at all at the receiver.
//!
//! Every byte is taken as hostile. A frame that makes no sense is refused ([`FrameError`]); a packet that makes none passes as it came.

mod coalesce;
mod fields;
mod flow;
mod segment;
mod super_packet;
mod vnet_header;

pub use coalesce::{Coalescer, MAX_PACKETS};
pub use segment::{FrameError, Segmenter};
pub use vnet_header::{Gso, VNET_HEADER_BYTES, VnetHeader};
