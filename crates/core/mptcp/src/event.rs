use polypath_tcp::ListenerId;
use polypath_wire::{Endpoint, FourTuple, ResetReason};

use crate::identifiers::{AddressId, SubflowId};

/// What a connection tells its application. Subflow events read like `ip mptcp monitor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A listener has a new connection (`CREATED`/`ESTABLISHED` on the passive side).
    Accepted {
        /// The local end that listened.
        local: Endpoint,
        /// The listener.
        listener: Option<ListenerId>,
    },
    /// The connection is open (`ESTABLISHED` on the active side).
    Connected,
    /// There is data to read.
    Readable,
    /// There is room in the send buffer again.
    Writable,
    /// The peer will send no more data.
    PeerFinished,
    /// The connection is plain TCP from now on.
    FellBack(FallbackReason),
    /// A subflow is ready for data (`SF_ESTABLISHED`).
    SubflowEstablished {
        /// Identifier within the connection.
        subflow: SubflowId,
        /// Both ends.
        tuple: FourTuple,
        /// As a backup.
        backup: bool,
    },
    /// A subflow ended (`SF_CLOSED`).
    SubflowClosed {
        /// Identifier within the connection.
        subflow: SubflowId,
        /// Both ends.
        tuple: FourTuple,
        /// Why, if it did not end in order.
        error: Option<SubflowError>,
    },
    /// Nothing was acknowledged on a subflow over several retransmission timeouts, or nothing answered on one that only receives. It is
    /// asked from time to time.
    SubflowStale {
        /// Identifier within the connection.
        subflow: SubflowId,
        /// Both ends.
        tuple: FourTuple,
    },
    /// Something was acknowledged, or came, on a subflow that had been stale.
    SubflowRecovered {
        /// Identifier within the connection.
        subflow: SubflowId,
        /// Both ends.
        tuple: FourTuple,
    },
    /// The peer was asked to send over a subflow no more while another works: it held up the rest.
    SubflowSetAside {
        /// Identifier within the connection.
        subflow: SubflowId,
        /// Both ends.
        tuple: FourTuple,
    },
    /// The peer was asked to send over a subflow that had been set aside.
    SubflowTried {
        /// Identifier within the connection.
        subflow: SubflowId,
        /// Both ends.
        tuple: FourTuple,
    },
    /// The peer announced an address (`ANNOUNCED`).
    Announced {
        /// Address identifier.
        id: AddressId,
        /// The address, with the connection's port if the option had none.
        remote: Endpoint,
    },
    /// The peer withdrew an address (`REMOVED`).
    Removed {
        /// Address identifier.
        id: AddressId,
    },
    /// The connection is over (`CLOSED`). Nothing follows.
    Closed(CloseReason),
}

/// Why a connection fell back to TCP (RFC 8684 §3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FallbackReason {
    /// This end does not use Multipath TCP.
    Disabled,
    /// The peer's SYN or SYN/ACK had no MP_CAPABLE.
    PeerLacksMptcp,
    /// SYNs with MP_CAPABLE went unanswered.
    SynDropped,
    /// The SYN/ACK mirrored the client's option.
    Mirrored,
    /// The third ACK had no MP_CAPABLE.
    ThirdAckStripped,
    /// Segments came without a DSS.
    DssMissing,
    /// A DSS checksum failed, or the peer said so.
    ChecksumFailed,
    /// The peer sent an infinite mapping.
    InfiniteMapping,
}

/// Why a subflow ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SubflowError {
    /// The peer reset it, with this reason if it gave one.
    Reset(Option<ResetReason>),
    /// Nothing came back.
    TimedOut,
    /// The SYN was answered without MP_JOIN.
    JoinStripped,
    /// An HMAC did not match.
    WrongHmac,
    /// Segments without mapping, or a failed checksum.
    Middlebox,
    /// This end closed it.
    Local,
}

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// Both ends closed.
    Finished,
    /// This end aborted.
    Aborted,
    /// The peer aborted (MP_FASTCLOSE, or RST after a fallback).
    Reset,
    /// The peer refused (RST to the SYN).
    Refused,
    /// Nothing came back.
    TimedOut,
    /// The network said that the SYN can't be delivered (ICMP unreachable).
    Unreachable,
    /// A middlebox damaged the stream beyond repair.
    Damaged,
}
