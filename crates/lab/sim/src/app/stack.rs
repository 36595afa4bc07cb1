use polypath_mptcp::{FallbackReason, SubflowInfo};
use polypath_tcp::{HostEvent, StreamHost};
use polypath_wire::{Endpoint, FourTuple};

/// A host stack that applications and the simulator work with: any [`StreamHost`] that tells what they need to know.
pub trait Stack: StreamHost<Event: Into<StreamEvent>, Info: Into<StackInfo>> {}

impl<H: StreamHost<Event: Into<StreamEvent>, Info: Into<StackInfo>>> Stack for H {}

/// A connection in numbers, as its sending side sees it.
#[derive(Clone, Debug, Default)]
pub struct StackInfo {
    /// Its subflows that are ready for data; plain TCP has one.
    pub subflows: Vec<SubflowInfo>,
    /// Size of the receive buffer as promised to the peer; zero if the stack does not say.
    pub receive_buffer_bytes: u64,
}

/// What a stack tells an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEvent {
    /// A listener has a new connection.
    Accepted {
        /// The local end that listened.
        local: Endpoint,
    },
    /// The connection is open.
    Connected,
    /// There is data to read.
    Readable,
    /// There is room in the send buffer again.
    Writable,
    /// The peer will send no more data.
    PeerFinished,
    /// The connection is over; nothing follows.
    Closed {
        /// Both ends closed in order.
        in_order: bool,
        /// Why, in words.
        reason: &'static str,
    },
    /// The connection is plain TCP from now on.
    FellBack {
        /// Why, in words.
        reason: &'static str,
    },
    /// A subflow is ready for data.
    SubflowEstablished,
    /// A subflow ended.
    SubflowClosed,
    /// Something that applications have no use for.
    Other,
}

impl From<(FourTuple, polypath_tcp::Info)> for StackInfo {
    fn from((tuple, info): (FourTuple, polypath_tcp::Info)) -> Self {
        Self { subflows: vec![SubflowInfo::plain(tuple, info)], receive_buffer_bytes: 0 }
    }
}

impl From<polypath_mptcp::ConnectionInfo> for StackInfo {
    fn from(info: polypath_mptcp::ConnectionInfo) -> Self {
        let subflows = info.subflows.into_iter().filter(|subflow| subflow.established);
        Self { subflows: subflows.collect(), receive_buffer_bytes: info.receive_buffer_bytes }
    }
}

impl From<HostEvent> for StreamEvent {
    #[inline]
    fn from(event: HostEvent) -> Self {
        use polypath_tcp::CloseReason;
        match event {
            HostEvent::Readable => Self::Readable,
            HostEvent::Writable => Self::Writable,
            HostEvent::Accepted { local, .. } => Self::Accepted { local },
            HostEvent::Connected => Self::Connected,
            HostEvent::PeerFinished => Self::PeerFinished,
            HostEvent::Closed(reason) => Self::Closed {
                in_order: reason == CloseReason::Finished,
                reason: match reason {
                    CloseReason::Finished => "finished",
                    CloseReason::Aborted => "aborted",
                    CloseReason::Reset => "reset by the peer",
                    CloseReason::Refused => "refused",
                    _ => "timed out",
                },
            },
        }
    }
}

impl From<polypath_mptcp::Event> for StreamEvent {
    #[inline]
    fn from(event: polypath_mptcp::Event) -> Self {
        use polypath_mptcp::{CloseReason, Event};
        match event {
            Event::Readable => Self::Readable,
            Event::Writable => Self::Writable,
            Event::Accepted { local, .. } => Self::Accepted { local },
            Event::Connected => Self::Connected,
            Event::PeerFinished => Self::PeerFinished,
            Event::Closed(reason) => Self::Closed {
                in_order: reason == CloseReason::Finished,
                reason: match reason {
                    CloseReason::Finished => "finished",
                    CloseReason::Aborted => "aborted",
                    CloseReason::Reset => "reset by the peer",
                    CloseReason::Refused => "refused",
                    CloseReason::TimedOut => "timed out",
                    CloseReason::Unreachable => "unreachable",
                    CloseReason::Damaged => "damaged by a middlebox",
                },
            },
            Event::FellBack(reason) => Self::FellBack { reason: fallback_words(reason) },
            Event::SubflowEstablished { .. } => Self::SubflowEstablished,
            Event::SubflowClosed { .. } => Self::SubflowClosed,
            _ => Self::Other,
        }
    }
}

fn fallback_words(reason: FallbackReason) -> &'static str {
    match reason {
        FallbackReason::Disabled => "disabled",
        FallbackReason::PeerLacksMptcp => "the peer lacks Multipath TCP",
        FallbackReason::SynDropped => "SYNs with the option were dropped",
        FallbackReason::Mirrored => "the SYN/ACK mirrored the option",
        FallbackReason::ThirdAckStripped => "the third ACK came without the option",
        FallbackReason::DssMissing => "segments came without the option",
        FallbackReason::ChecksumFailed => "a checksum failed",
        FallbackReason::InfiniteMapping => "the peer fell back",
    }
}
