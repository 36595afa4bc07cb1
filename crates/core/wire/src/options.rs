mod emit;
mod parse;

use alloc::vec::Vec;

use arrayvec::ArrayVec;

use crate::{Dss, MptcpOption, SeqNumber};

/// Option kinds (the registry of RFC 9293 §3.2).
mod kind {
    pub(super) const END: u8 = 0;
    pub(super) const NOP: u8 = 1;
    pub(super) const MSS: u8 = 2;
    pub(super) const WINDOW_SCALE: u8 = 3;
    pub(super) const SACK_PERMITTED: u8 = 4;
    pub(super) const SACK: u8 = 5;
    pub(super) const TIMESTAMPS: u8 = 8;
    pub(super) const MPTCP: u8 = 30;
    pub(super) const FAST_OPEN: u8 = 34;
}

/// Option space of a TCP header in bytes (RFC 9293 §3.1: data offset is at most 15 words).
pub const MAX_OPTIONS_BYTES: usize = 40;

/// TCP timestamps (RFC 7323 §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Timestamps {
    /// TSval: the sender's clock, in milliseconds plus an offset in Polypath.
    pub value: u32,
    /// TSecr: the value being echoed, or zero when ACK is not set.
    pub echo: u32,
}

impl Timestamps {
    /// Length of the option on the wire.
    pub const LEN_BYTES: usize = 10;
}

/// One block of received data above the cumulative acknowledgment (RFC 2018 §3), `start` included, `end` not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SackBlock {
    /// First sequence number of the block.
    pub start: SeqNumber,
    /// Sequence number after the block.
    pub end: SeqNumber,
}

/// At most four blocks: what fits a header.
pub type SackBlocks = ArrayVec<SackBlock, 4>;

/// A fast-open cookie (RFC 7413 §4.1.1): empty to request one, else 4–16 bytes, an even number.
pub type FastOpenCookie = ArrayVec<u8, 16>;

/// The options of a segment.
///
/// The three that data segments and acknowledgments carry have a field each, so that the packet path neither
/// searches nor allocates; everything else, and every repetition, is in `rest` in the order of arrival.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Options {
    /// RFC 7323 timestamps.
    pub timestamps: Option<Timestamps>,
    /// RFC 2018 selective acknowledgments; empty if there are none.
    pub sack: SackBlocks,
    /// The Multipath TCP data sequence signal.
    pub dss: Option<Dss>,
    /// All others, and second and later copies of the above.
    pub rest: Vec<TcpOption>,
}

/// An option outside the packet path, or a repetition.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TcpOption {
    /// Maximum segment size (RFC 9293 §3.7.1), SYN only.
    Mss(u16),
    /// Window scale shift (RFC 7323 §2), SYN only.
    WindowScale(u8),
    /// SACK permitted (RFC 2018 §2), SYN only.
    SackPermitted,
    /// A repeated SACK option, not empty.
    Sack(SackBlocks),
    /// A repeated timestamps option.
    Timestamps(Timestamps),
    /// TCP fast open (RFC 7413).
    FastOpen(FastOpenCookie),
    /// Any Multipath TCP option but the first DSS.
    Mptcp(MptcpOption),
    /// Anything else, and a known kind with a length that it can't have; kept as it came.
    Unknown {
        /// Option kind.
        kind: u8,
        /// Data after kind and length.
        data: ArrayVec<u8, 38>,
    },
}

impl Options {
    /// Length on the wire in bytes, padded to a multiple of four.
    pub fn len_bytes(&self) -> usize {
        self.unpadded_len_bytes().next_multiple_of(4)
    }

    /// Length of the options alone, without the padding at their end.
    pub fn unpadded_len_bytes(&self) -> usize {
        let mut len = 0;
        if self.timestamps.is_some() {
            len += Timestamps::LEN_BYTES;
        }
        if !self.sack.is_empty() {
            len += 2 + 8 * self.sack.len();
        }
        if let Some(dss) = &self.dss {
            len += dss.len_bytes();
        }
        for option in &self.rest {
            len += option.len_bytes();
        }
        len
    }

    /// The first MSS option.
    pub fn mss(&self) -> Option<u16> {
        self.rest.iter().find_map(|option| if let TcpOption::Mss(mss) = option { Some(*mss) } else { None })
    }

    /// The first window scale option.
    pub fn window_scale(&self) -> Option<u8> {
        self.rest
            .iter()
            .find_map(|option| if let TcpOption::WindowScale(shift) = option { Some(*shift) } else { None })
    }

    /// SACK is permitted.
    pub fn sack_permitted(&self) -> bool {
        self.rest.contains(&TcpOption::SackPermitted)
    }

    /// The Multipath TCP options other than the first DSS, in order.
    pub fn mptcp(&self) -> impl Iterator<Item = &MptcpOption> {
        self.rest
            .iter()
            .filter_map(|option| if let TcpOption::Mptcp(option) = option { Some(option) } else { None })
    }
}

impl TcpOption {
    /// Length on the wire in bytes, without padding.
    pub fn len_bytes(&self) -> usize {
        match self {
            Self::Mss(_) => 4,
            Self::WindowScale(_) => 3,
            Self::SackPermitted => 2,
            Self::Sack(blocks) => 2 + 8 * blocks.len(),
            Self::Timestamps(_) => Timestamps::LEN_BYTES,
            Self::FastOpen(cookie) => 2 + cookie.len(),
            Self::Mptcp(option) => option.len_bytes(),
            Self::Unknown { data, .. } => 2 + data.len(),
        }
    }
}
