mod emit;
mod parse;

use core::net::IpAddr;

use arrayvec::ArrayVec;

use crate::DataSeq;

pub(crate) use emit::{emit, emit_dss};
pub(crate) use parse::parse;

/// Option subtypes (RFC 8684 §8.3).
mod subtype {
    pub(super) const CAPABLE: u8 = 0;
    pub(super) const JOIN: u8 = 1;
    pub(super) const DSS: u8 = 2;
    pub(super) const ADD_ADDR: u8 = 3;
    pub(super) const REMOVE_ADDR: u8 = 4;
    pub(super) const PRIO: u8 = 5;
    pub(super) const FAIL: u8 = 6;
    pub(super) const FASTCLOSE: u8 = 7;
    pub(super) const RESET: u8 = 8;
}

/// Flag bits of a DSS (RFC 8684 §3.3).
mod dss_flags {
    /// DATA_ACK is there.
    pub(super) const ACK: u8 = 0x01;
    /// DATA_ACK has 8 bytes.
    pub(super) const ACK_FULL: u8 = 0x02;
    /// A mapping is there.
    pub(super) const MAPPING: u8 = 0x04;
    /// The mapping's data sequence number has 8 bytes.
    pub(super) const SEQ_FULL: u8 = 0x08;
    /// DATA_FIN.
    pub(super) const DATA_FIN: u8 = 0x10;
    /// S: the last reserved bit, which marks the control stream.
    pub(super) const CONTROL_STREAM: u8 = 0x20;
}

/// Which protocol version a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum MptcpVersion {
    /// RFC 6824: HMAC-SHA1, the client's key in the SYN.
    V0,
    /// RFC 8684: HMAC-SHA256, no key in the SYN.
    #[default]
    V1,
}

/// A Multipath TCP option (kind 30). DSS travels in [`crate::Options::dss`]; a second DSS in one segment is
/// [`MptcpOption::Dss`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MptcpOption {
    /// RFC 8684 §3.1, RFC 6824 §3.1.
    Capable(MpCapable),
    /// RFC 8684 §3.2.
    Join(MpJoin),
    /// RFC 8684 §3.3.
    Dss(Dss),
    /// RFC 8684 §3.4.1.
    AddAddr(AddAddr),
    /// RFC 8684 §3.4.2.
    RemoveAddr(RemoveAddr),
    /// RFC 8684 §3.3.8: change of priority.
    Prio {
        /// The subflow becomes a backup.
        backup: bool,
        /// RFC 6824 only: the address whose subflows change; this subflow if absent.
        address_id: Option<u8>,
    },
    /// RFC 8684 §3.7: a checksum failed.
    Fail {
        /// Data sequence number at which the failed mapping starts.
        data_seq: DataSeq,
    },
    /// RFC 8684 §3.5: abrupt close of the whole connection.
    Fastclose {
        /// The key of the host that receives this option.
        receiver_key: u64,
    },
    /// RFC 8684 §3.6: why a subflow is reset.
    Reset {
        /// U, V, W and T bits, low nibble; T ([transient](ResetReason::is_transient)) is bit 0.
        flags: u8,
        /// Reason code.
        reason: ResetReason,
    },
    /// A subtype that is not known, or a known one whose length or content is malformed; kept as it came.
    Unknown {
        /// Subtype, 0–15.
        subtype: u8,
        /// The low nibble of the byte that holds the subtype.
        flags: u8,
        /// Data after that byte.
        data: ArrayVec<u8, 37>,
    },
}

/// MP_CAPABLE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MpCapable {
    /// Version nibble as on the wire: 0, 1, or what a newer peer asks for.
    pub version: u8,
    /// Flag byte as on the wire: bit A 0x80, B 0x40, C 0x20, … H 0x01.
    pub flags: u8,
    /// Keys, by the length of the option.
    pub keys: MpCapableKeys,
}

impl MpCapable {
    /// A: the DSS checksum is required.
    pub const CHECKSUM: u8 = 0x80;
    /// B: extensibility, zero in RFC 8684; "application-supplied key" in the handshake variants.
    pub const EXTENSIBILITY: u8 = 0x40;
    /// C: the sender accepts no further subflow to this address and port (RFC 8684 §3.1).
    pub const NO_JOIN_INITIAL_ADDRESS: u8 = 0x20;
    /// H: HMAC-SHA256 (version 1) or HMAC-SHA1 (version 0).
    pub const HMAC: u8 = 0x01;

    /// The flags ask for nothing but what RFC 8684 §3.1 defines, and offer an algorithm that it does. An option for which that is
    /// false is to be ignored, as if it were not there.
    #[must_use]
    pub const fn is_understood(&self) -> bool {
        self.flags & Self::EXTENSIBILITY == 0 && self.flags & Self::HMAC != 0
    }
}

/// What an MP_CAPABLE carries besides version and flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MpCapableKeys {
    /// Length 4: a version 1 SYN.
    None,
    /// Length 12: SYN (version 0) or SYN/ACK (both).
    Sender(u64),
    /// Length 20: third ACK.
    Both {
        /// Key of the sender of this option.
        sender: u64,
        /// Key of the receiver of this option.
        receiver: u64,
    },
    /// Length 22 or 24: version 1, third ACK with data, or the first data segment. The mapping starts at the
    /// initial data sequence number plus one and at subflow offset one.
    BothWithData {
        /// Key of the sender of this option.
        sender: u64,
        /// Key of the receiver of this option.
        receiver: u64,
        /// Data-level length in bytes.
        data_len: u16,
        /// DSS checksum, if in use.
        checksum: Option<u16>,
    },
    /// Length 8: a token in place of a key (low-overhead handshake: SYN and SYN/ACK).
    Token(u32),
    /// Length 16: both tokens and 4 bytes of zeros, without which the length would be that of
    /// [`MpCapableKeys::Sender`] (low-overhead handshake: third ACK).
    Tokens {
        /// Token of the sender of this option.
        sender: u32,
        /// Token of the receiver of this option.
        receiver: u32,
    },
}

/// MP_JOIN, by its place in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MpJoin {
    /// SYN, length 12.
    Syn {
        /// B: this subflow is a backup.
        backup: bool,
        /// Address identifier of the sender.
        address_id: u8,
        /// Token of the receiver.
        token: u32,
        /// Sender's nonce.
        nonce: u32,
    },
    /// SYN/ACK, length 16.
    SynAck {
        /// B: this subflow is a backup.
        backup: bool,
        /// Address identifier of the sender.
        address_id: u8,
        /// Leftmost 64 bits of the sender's HMAC.
        truncated_hmac: u64,
        /// Sender's nonce.
        nonce: u32,
    },
    /// Third ACK, length 24.
    Ack {
        /// Leftmost 160 bits of the sender's HMAC.
        hmac: [u8; 20],
    },
    /// Third ACK with application-supplied keys, length 28: it repeats all that a listener needs that kept no
    /// state for the SYN.
    AckWithToken {
        /// B: this subflow is a backup.
        backup: bool,
        /// Address identifier of the sender.
        address_id: u8,
        /// Leftmost 128 bits of the sender's HMAC.
        truncated_hmac: [u8; 16],
        /// Sender's nonce.
        nonce: u32,
        /// Token of the receiver.
        token: u32,
    },
    /// Low-overhead handshake, without nonce and HMAC: length 8 with the receiver's token (SYN, third ACK),
    /// length 4 without it (SYN/ACK).
    LowOverhead {
        /// B: this subflow is a backup.
        backup: bool,
        /// Address identifier of the sender.
        address_id: u8,
        /// Token of the receiver.
        token: Option<u32>,
    },
}

/// A data sequence number as on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireDataSeq {
    /// 4 bytes: the low half.
    Low(u32),
    /// 8 bytes.
    Full(DataSeq),
}

impl WireDataSeq {
    /// The whole number, given one that is near.
    #[must_use]
    pub const fn expand(self, near: DataSeq) -> DataSeq {
        match self {
            Self::Low(low) => near.nearest(low),
            Self::Full(seq) => seq,
        }
    }

    /// Length on the wire: 4 or 8 bytes.
    #[must_use]
    pub const fn len_bytes(self) -> usize {
        match self {
            Self::Low(_) => 4,
            Self::Full(_) => 8,
        }
    }
}

/// The data sequence signal (RFC 8684 §3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Dss {
    /// DATA_ACK: next data sequence number expected.
    pub data_ack: Option<WireDataSeq>,
    /// Which data the payload is.
    pub mapping: Option<DssMapping>,
    /// DATA_FIN: the last byte of the mapping is the end of the stream. Needs a mapping.
    pub data_fin: bool,
    /// S: sequence numbers and acknowledgment are those of the control stream, not of the data. Zero in RFC
    /// 8684.
    pub control_stream: bool,
}

/// A mapping from subflow sequence space to data sequence space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DssMapping {
    /// Data sequence number of the first byte.
    pub data_seq: WireDataSeq,
    /// Subflow sequence number of the first byte, relative to the subflow's initial one.
    pub subflow_offset: u32,
    /// Data-level length in bytes, DATA_FIN included. Zero is the infinite mapping (RFC 8684 §3.3.1).
    pub len: u16,
    /// Checksum over pseudo header and data, if in use.
    pub checksum: Option<u16>,
}

/// ADD_ADDR (RFC 8684 §3.4.1, RFC 6824 §3.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddAddr {
    /// Layout: version 0 has an IP version nibble and no HMAC.
    pub version: MptcpVersion,
    /// E: this echoes the peer's option. Version 1 only.
    pub echo: bool,
    /// Address identifier.
    pub address_id: u8,
    /// The address.
    pub addr: IpAddr,
    /// Port, if not that of the initial subflow.
    pub port: Option<u16>,
    /// Rightmost 64 bits of the HMAC; absent in an echo and in version 0.
    pub hmac: Option<u64>,
}

/// REMOVE_ADDR (RFC 8684 §3.4.2): the identifiers of addresses that are gone; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoveAddr {
    /// Address identifiers.
    pub address_ids: ArrayVec<u8, 37>,
}

/// MP_TCPRST reason codes (RFC 8684 §3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResetReason(pub u8);

impl ResetReason {
    /// Unspecified error.
    pub const UNSPECIFIED: Self = Self(0);
    /// Multipath TCP specific error.
    pub const MPTCP: Self = Self(1);
    /// Lack of resources.
    pub const NO_RESOURCES: Self = Self(2);
    /// Administratively prohibited.
    pub const PROHIBITED: Self = Self(3);
    /// Too much outstanding data.
    pub const TOO_MUCH_OUTSTANDING: Self = Self(4);
    /// Unacceptable performance.
    pub const BAD_PERFORMANCE: Self = Self(5);
    /// Middlebox interference.
    pub const MIDDLEBOX: Self = Self(6);

    /// The cause is expected to pass (the T bit): a subflow may be tried over the same path again.
    #[must_use]
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::NO_RESOURCES | Self::TOO_MUCH_OUTSTANDING | Self::BAD_PERFORMANCE)
    }
}

impl Dss {
    /// Length on the wire in bytes: 4–28.
    #[must_use]
    pub const fn len_bytes(&self) -> usize {
        let mut len = 4;
        if let Some(ack) = self.data_ack {
            len += ack.len_bytes();
        }
        if let Some(mapping) = self.mapping {
            len += mapping.data_seq.len_bytes() + 4 + 2;
            if mapping.checksum.is_some() {
                len += 2;
            }
        }
        len
    }
}

impl MptcpOption {
    /// Length on the wire in bytes, without padding.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        match self {
            Self::Capable(capable) => match capable.keys {
                MpCapableKeys::None => 4,
                MpCapableKeys::Token(_) => 8,
                MpCapableKeys::Sender(_) => 12,
                MpCapableKeys::Tokens { .. } => 16,
                MpCapableKeys::Both { .. } => 20,
                MpCapableKeys::BothWithData { checksum: None, .. } => 22,
                MpCapableKeys::BothWithData { checksum: Some(_), .. } => 24,
            },
            Self::Join(MpJoin::Syn { .. }) => 12,
            Self::Join(MpJoin::SynAck { .. }) => 16,
            Self::Join(MpJoin::Ack { .. }) => 24,
            Self::Join(MpJoin::AckWithToken { .. }) => 28,
            Self::Join(MpJoin::LowOverhead { token: None, .. }) => 4,
            Self::Join(MpJoin::LowOverhead { token: Some(_), .. }) => 8,
            Self::Dss(dss) => dss.len_bytes(),
            Self::AddAddr(add) => {
                let addr = if add.addr.is_ipv4() { 4 } else { 16 };
                4 + addr + if add.port.is_some() { 2 } else { 0 } + if add.hmac.is_some() { 8 } else { 0 }
            }
            Self::RemoveAddr(remove) => 3 + remove.address_ids.len(),
            Self::Prio { address_id: None, .. } => 3,
            Self::Prio { address_id: Some(_), .. } | Self::Reset { .. } => 4,
            Self::Fail { .. } | Self::Fastclose { .. } => 12,
            Self::Unknown { data, .. } => 3 + data.len(),
        }
    }
}
