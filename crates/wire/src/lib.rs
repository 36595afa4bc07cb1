//! IPv4, IPv6, TCP, and every TCP and Multipath TCP option: parse, emit, checksum.
//!
//! Inside Polypath a [`Packet`] is headers plus a rope of reference-counted slices ([`Payload`]); bytes are made only
//! at a driver's edge (`Packet::emit`) and read only there (`Packet::parse`).
//!
//! # Contract
//! - Parsing never panics, whatever the bytes; what cannot be understood is a typed [`ParseError`].
//! - `parse(emit(packet)) == packet` for every packet that [`Packet`] can express within the 40 bytes of option space.
//! - Emitting never panics on a packet that fits ([`Options::len_bytes`] ≤ [`MAX_OPTIONS_BYTES`]).
#![no_std]

extern crate alloc;

mod error;
mod mptcp;
mod options;
mod packet;
mod payload;
mod seq;

pub use error::ParseError;
pub use mptcp::{
    AddAddr, Dss, DssMapping, MpCapable, MpCapableKeys, MpJoin, MptcpOption, MptcpVersion, RemoveAddr,
    ResetReason, WireDataSeq,
};
pub use options::{FastOpenCookie, MAX_OPTIONS_BYTES, Options, SackBlock, SackBlocks, TcpOption, Timestamps};
pub use packet::{
    Datagram, Ecn, Endpoint, FourTuple, IcmpMessage, IpHeader, Packet, Segment, TcpFlags, Transport,
};
pub use payload::Payload;
pub use seq::{DataSeq, SeqNumber};
