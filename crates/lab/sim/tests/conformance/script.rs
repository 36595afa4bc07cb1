//! What a case says, line by line.

use std::net::IpAddr;

use polypath_mptcp::path_manager::LocalEndpoint;
use polypath_units::Duration;
use polypath_wire::{Endpoint, TcpFlags};

/// A case as it was read.
pub(crate) struct Script {
    /// The sections that its head names, such as `RFC 9293 §3.5`.
    pub(crate) sections: Vec<String>,
    /// Its lines, those of `given` scripts included.
    pub(crate) lines: Vec<Line>,
}

/// One line.
#[derive(Debug)]
pub(crate) struct Line {
    /// File and number.
    pub(crate) place: String,
    pub(crate) text: String,
    pub(crate) when: When,
    pub(crate) action: Action,
}

/// When something happens, or is expected to: counted from the line before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct When {
    pub(crate) from: Duration,
    pub(crate) to: Duration,
}

#[derive(Debug)]
pub(crate) enum Action {
    Set {
        name: String,
        value: String,
    },
    Endpoint(LocalEndpoint),
    RemoveEndpoint(IpAddr),
    Subflow(SubflowSpec),
    Listen,
    Connect,
    Write(u64),
    /// Read so many bytes; they may differ from what was sent if `changed`.
    Read {
        bytes: u64,
        changed: bool,
    },
    Shutdown,
    Close,
    Abort,
    Priority {
        subflow: String,
        backup: bool,
    },
    Event {
        name: String,
        absent: bool,
    },
    Nothing,
    /// Packets that have left so far do not matter.
    Any,
    Send(PacketSpec),
    Expect {
        packet: PacketSpec,
        optional: bool,
    },
    Icmp(IcmpSpec),
}

/// Names a flow by the ends of it that are known.
#[derive(Debug)]
pub(crate) struct SubflowSpec {
    pub(crate) name: String,
    /// End of the host under test; port 0 is any.
    pub(crate) host: Endpoint,
    pub(crate) peer: Endpoint,
}

#[derive(Debug)]
pub(crate) enum IcmpSpec {
    Unreachable { code: u8, seq: i64 },
    TooBig { mtu: u16, seq: i64 },
}

/// A segment. Sequence numbers are relative: 0 is the SYN, 1 the first byte.
#[derive(Debug, Default)]
pub(crate) struct PacketSpec {
    /// The name of a flow; empty for the first.
    pub(crate) subflow: String,
    pub(crate) flags: TcpFlags,
    /// First sequence number.
    pub(crate) seq: Option<i64>,
    pub(crate) payload_bytes: u32,
    pub(crate) ack: Option<i64>,
    pub(crate) window: Option<(Comparison, u32)>,
    pub(crate) urgent: Option<u16>,
    /// A SYN begins another connection: its initial sequence number is a new one.
    pub(crate) new: bool,
    /// The first byte is not what it should be.
    pub(crate) corrupt: bool,
    /// The payload is the stream from this byte on, whatever mappings say.
    pub(crate) stream_from: Option<u64>,
    pub(crate) options: Vec<OptionSpec>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    AtLeast,
    AtMost,
}

#[derive(Debug)]
pub(crate) enum OptionSpec {
    Mss(u16),
    WindowScale(u8),
    SackPermitted,
    Sack(Vec<(i64, i64)>),
    /// Values in milliseconds: the peer's own, the host's relative to its first.
    Timestamps {
        value: Option<i64>,
        echo: Option<i64>,
    },
    /// No such option is in the segment.
    Without(String),
    /// An option by kind and data.
    Raw {
        kind: u8,
        data: Vec<u8>,
    },
    Mptcp(MptcpSpec),
}

/// Whose key: that of the host under test, the peer's, or one that is neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyName {
    Host,
    Peer,
    Wrong,
}

/// What is said of a value that the runner computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Computed {
    #[default]
    Absent,
    Right,
    Wrong,
}

#[derive(Debug)]
pub(crate) enum MptcpSpec {
    Capable { version: u8, flags: u8, keys: Vec<KeyName>, len: Option<u16>, checksum: Computed },
    Join(JoinSpec),
    Dss(DssSpec),
    AddAddr(AddAddrSpec),
    RemoveAddr(Vec<u8>),
    Prio { backup: bool, id: Option<u8> },
    Fail(i64),
    Fastclose(KeyName),
    Reset { reason: u8, transient: bool },
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct JoinSpec {
    pub(crate) backup: bool,
    pub(crate) id: Option<u8>,
    pub(crate) token: Computed,
    pub(crate) nonce: bool,
    pub(crate) hmac: Computed,
}

/// Numbers are relative to the initial data sequence number: 1 is the first byte.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DssSpec {
    /// Length on the wire if that matters, and number.
    pub(crate) ack: Option<(Option<u8>, i64)>,
    pub(crate) map: Option<MapSpec>,
    pub(crate) fin: bool,
    pub(crate) checksum: Computed,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct MapSpec {
    pub(crate) size: Option<u8>,
    pub(crate) start: i64,
    /// Length as on the wire: 0 for an infinite mapping, a DATA_FIN counts.
    pub(crate) len: u16,
    /// Subflow sequence number of the first byte.
    pub(crate) at: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct AddAddrSpec {
    pub(crate) id: u8,
    pub(crate) addr: IpAddr,
    pub(crate) port: Option<u16>,
    pub(crate) echo: bool,
    pub(crate) hmac: Computed,
}
