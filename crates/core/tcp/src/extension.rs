use core::fmt;

use polypath_congestion::{FlowView, Flows};
use polypath_wire::{Dss, MAX_OPTIONS_BYTES, MptcpOption, Options, SackBlock, TcpOption, Timestamps};

/// What a protocol on top of TCP adds to a connection: options on its segments, a mapping on its data, a window shared
/// with other subflows, a view of them for coupled congestion control.
///
/// Plain TCP is `()`: every method is a default that compiles to nothing.
pub trait Extension {
    /// What each stretch of queued data carries with it: a DSS mapping for Multipath TCP, `()` for TCP. A segment never
    /// holds data of two unequal mappings.
    type Mapping: Copy + PartialEq + fmt::Debug + Default;

    /// Bytes of option space that are kept beside the timestamps, before padding, in a segment with data of this mapping, which
    /// begins it or not. Its size shrinks by as much, and must not depend on when it leaves: what goes out again fits as before.
    /// What leaves at once, to be cut into segments below, has the same options throughout: where those of a beginning and of the
    /// rest differ, the beginning leaves alone.
    fn data_option_bytes(&self, _mapping: &Self::Mapping, _is_start: bool) -> usize {
        0
    }

    /// Adds this protocol's options to a segment that is about to leave. Called once for each segment, retransmissions
    /// included, after the timestamps and before SACK blocks take what is left.
    fn write_options(&mut self, _segment: &Outgoing<Self::Mapping>, _space: &mut OptionSpace<'_>) {}

    /// The receive window to advertise, in bytes above what has been received, given what the connection itself would
    /// advertise.
    fn receive_window_bytes(&self, own_bytes: u64) -> u64 {
        own_bytes
    }

    /// The subflows that congestion control sees, given the own one.
    fn flows<'a>(&'a self, own: &'a FlowView) -> Flows<'a> {
        Flows::single(own)
    }
}

impl Extension for () {
    type Mapping = ();
}

/// A segment that is about to leave, as an [`Extension`] sees it.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<M> {
    /// What the segment is.
    pub kind: OutgoingKind,
    /// Payload length in bytes.
    pub payload_len_bytes: usize,
    /// The mapping of the payload, if there is payload.
    pub mapping: Option<M>,
    /// The payload begins where its mapping does.
    pub is_mapping_start: bool,
    /// It acknowledges what no segment did before.
    pub acknowledges: bool,
    /// The FIN flag is set.
    pub fin: bool,
    /// SACK blocks take what the extension leaves: the peer learns of a loss by them, or waits for a timeout.
    pub sack_follows: bool,
}

/// What a segment is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutgoingKind {
    /// First SYN, or its retransmission; `retransmission` counts from zero.
    Syn {
        /// How often it was sent before.
        retransmission: u8,
    },
    /// SYN/ACK, or its retransmission.
    SynAck {
        /// How often it was sent before.
        retransmission: u8,
    },
    /// New data or a retransmission, with or without FIN.
    Data,
    /// An acknowledgment without data, with or without FIN.
    Ack,
    /// A window or keep-alive probe: it begins before the peer's window, so that it must be answered, and its receiver believes
    /// nothing of it but acknowledgments.
    Probe,
    /// A reset.
    Reset,
}

/// The 40 bytes of option space of one segment, while they are being given away.
///
/// Precedence is that of `Connection::poll_transmit`: MSS, window scale, SACK permitted (SYN only), timestamps,
/// then the extension, then SACK blocks. An extension asks with `try_*`, most important first.
#[derive(Debug)]
pub struct OptionSpace<'a> {
    options: &'a mut Options,
    used_bytes: usize,
    timestamps_may_go: bool,
}

impl<'a> OptionSpace<'a> {
    /// The space left in `options`. With `timestamps_may_go`, [`OptionSpace::try_push_evicting_timestamps`] may remove
    /// the timestamps option.
    pub fn new(options: &'a mut Options, timestamps_may_go: bool) -> Self {
        let used_bytes = options.unpadded_len_bytes();
        Self { options, used_bytes, timestamps_may_go }
    }

    /// Bytes that are still free.
    #[must_use]
    pub fn remaining_bytes(&self) -> usize {
        MAX_OPTIONS_BYTES.saturating_sub(self.used_bytes)
    }

    /// Adds a DSS if it fits and none is there.
    #[must_use]
    pub fn try_dss(&mut self, dss: Dss) -> bool {
        let len = dss.len_bytes();
        if self.options.dss.is_some() || len > self.remaining_bytes() {
            return false;
        }
        self.used_bytes += len;
        self.options.dss = Some(dss);
        true
    }

    /// Adds a Multipath TCP option if it fits.
    #[must_use]
    pub fn try_push(&mut self, option: MptcpOption) -> bool {
        let len = option.len_bytes();
        if len > self.remaining_bytes() {
            return false;
        }
        self.used_bytes += len;
        self.options.rest.push(TcpOption::Mptcp(option));
        true
    }

    /// As [`OptionSpace::try_push`], and takes the place of the timestamps where it must: a 30-byte ADD_ADDR (IPv6, port
    /// and HMAC) does not fit beside them. Only a segment without data may go without (RFC 7323 §3.2).
    #[must_use]
    pub fn try_push_evicting_timestamps(&mut self, option: MptcpOption) -> bool {
        let len = option.len_bytes();
        if len > self.remaining_bytes() && self.timestamps_may_go && self.options.timestamps.is_some() {
            if self.used_bytes - Timestamps::LEN_BYTES + len > MAX_OPTIONS_BYTES {
                return false;
            }
            self.options.timestamps = None;
            self.used_bytes -= Timestamps::LEN_BYTES;
        }
        self.try_push(option)
    }

    /// Adds as many SACK blocks as fit, in the order given; returns how many.
    pub fn push_sack(&mut self, blocks: impl IntoIterator<Item = SackBlock>) -> usize {
        let mut count = 0;
        for block in blocks {
            let needed = if count == 0 { 10 } else { 8 };
            if needed > self.remaining_bytes() || self.options.sack.try_push(block).is_err() {
                break;
            }
            self.used_bytes += needed;
            count += 1;
        }
        count
    }
}
