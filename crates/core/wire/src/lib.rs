//! IPv4, IPv6, TCP, and every TCP and Multipath TCP option: parse, emit, checksum.
//!
//! Inside Polypath a [`Packet`] is headers plus a rope of reference-counted slices ([`Payload`]); bytes are
//! made only at a driver's edge (`Packet::emit`) and read only there (`Packet::parse`).
//!
//! # Contract
//! - Parsing never panics, whatever the bytes; what cannot be understood is a typed [`ParseError`].
//! - `parse(emit(packet)) == packet` for every packet in normal form: not an aggregate, an acknowledgment
//!   number only with the ACK flag, options in the normal form of [`Options::emit`].
//! - Emitting never panics. Options beyond [`MAX_OPTIONS_BYTES`] are left out.
#![no_std]

extern crate alloc;

mod checksum;
mod display;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod mptcp;
mod options;
mod packet;
mod payload;
mod reader;
mod seq;

pub use checksum::{Checksums, DssChecksum, IncrementalSum, dss_checksum};
pub use error::ParseError;
pub use mptcp::{
    AddAddr, Dss, DssMapping, MpCapable, MpCapableKeys, MpJoin, MptcpOption, MptcpVersion, RemoveAddr,
    ResetReason, WireDataSeq,
};
pub use options::{FastOpenCookie, MAX_OPTIONS_BYTES, Options, SackBlock, SackBlocks, TcpOption, Timestamps};
pub use packet::{
    Checksum, Datagram, Ecn, Endpoint, FourTuple, IcmpMessage, IpHeader, Packet, Segment, Segments, TcpFlags,
    Transport,
};
pub use payload::Payload;
pub use seq::{DataSeq, SeqNumber};
