//! One subflow: a TCP connection, and parts that own what Multipath TCP keeps beside it.
//!
//! | part | owns |
//! |---|---|
//! | [`stage`] | how far its handshake is |
//! | [`join_handshake`] | nonces of MP_JOIN, its third ACK |
//! | [`role`] | its addresses, backup or not |
//! | [`owed`] | what its segments have yet to say |
//! | [`ending`] | why it ends, and what its RST says |
//! | [`path`] | what its path shows to be |
//! | [`receiver`] | which of its bytes are which data |

mod ending;
mod join_handshake;
mod owed;
mod path;
mod receiver;
mod role;
mod stage;

use polypath_tcp::Connection as TcpConnection;
use polypath_units::{Duration, Instant};
use polypath_wire::DataSeq;

use crate::identifiers::SubflowId;
use crate::mapping::Mapping;
use crate::scheduler::SubflowView;

use ending::Ending;
use join_handshake::JoinHandshake;
use owed::Owed;
use path::Path;
pub(crate) use receiver::{Arrived, ReceivedMapping, Receiver};
use role::Role;
pub(crate) use stage::Stage;

/// Slow start has doubled the window so often, at most, when a subflow catches up: four times the initial one, as TCP's
/// third flight.
const MOST_ROUNDS: f64 = 2.0;
/// It takes no more than this share of the buffers at either end: the others' data is to have room beside a path of unknown rate.
const BUFFER_SHARE: u64 = 4;

/// The jitter of a busy machine.
const SILENCE_SLACK: Duration = Duration::from_millis(10);
const WORST_DELAYED_ACK: Duration = Duration::from_millis(200);

/// A subflow of a connection.
#[derive(Debug)]
pub(crate) struct Subflow {
    pub(crate) tcp: TcpConnection<Mapping>,
    pub(crate) state: SubflowState,
    pub(crate) rx: Receiver,
}

/// What Multipath TCP knows of a subflow, and its options depend on.
#[derive(Debug)]
pub(crate) struct SubflowState {
    /// Stable identifier within the connection.
    pub(crate) id: SubflowId,
    stage: Stage,
    pub(crate) join: JoinHandshake,
    pub(crate) role: Role,
    pub(crate) owed: Owed,
    pub(crate) ending: Ending,
    pub(crate) path: Path,
}

impl Subflow {
    /// Something that it was given is not acknowledged yet.
    #[inline]
    pub(crate) fn holds_data(&self) -> bool {
        self.tcp.acked_offset() < self.tcp.enqueued_offset()
    }

    /// The window with which a subflow begins that joins a connection which was opened then, with buffers of so many bytes:
    /// see [`catch_up`](crate::ConnectionConfig::catch_up).
    pub(crate) fn catch_up(&mut self, now: Instant, opened_at: Instant, buffer_bytes: u64) {
        let round_trip_s = self.tcp.srtt().as_secs_f64();
        if round_trip_s <= 0.0 {
            return;
        }
        // TCP's first data leaves after a round trip.
        let rounds = (now.since(opened_at).as_secs_f64() / round_trip_s - 1.0).clamp(0.0, MOST_ROUNDS);
        let initial_bytes = self.tcp.window_bytes();
        let mut window_bytes = (initial_bytes as f64 * libm::exp2(rounds)) as u64;
        window_bytes = window_bytes.min(buffer_bytes / BUFFER_SHARE);
        if let Some(rate) = self.bottleneck_bytes_per_s() {
            window_bytes = window_bytes.min((rate as f64 * round_trip_s) as u64);
        }
        if window_bytes > initial_bytes {
            self.tcp.catch_up_to(window_bytes);
        }
    }

    /// What the path's bottleneck carries, as it shows now or showed before.
    #[inline]
    pub(crate) fn bottleneck_bytes_per_s(&self) -> Option<u64> {
        self.tcp.bottleneck_bytes_per_s().or(self.state.path.remembered_bytes_per_s())
    }

    /// True if its peer begins to be silent for longer than a round trip explains.
    pub(crate) fn notice_silence(&mut self, now: Instant) -> bool {
        let (srtt, variance) = (self.tcp.srtt(), self.tcp.rtt_variance());
        // A single segment may wait for a delayed acknowledgment.
        let is_alone = self.tcp.in_flight_bytes() <= u64::from(self.tcp.mss_bytes());
        let slack = if is_alone { WORST_DELAYED_ACK } else { SILENCE_SLACK };
        let patience = srtt + srtt.max(variance * 4) + slack;
        let is_silent = !srtt.is_zero() && self.tcp.silent_for(now) > patience;
        self.state.path.handle_silence(is_silent)
    }

    /// As a scheduler sees it; `is_alone` without any other, and with full segments of so many bytes.
    #[inline]
    pub(crate) fn view(&self, now: Instant, is_alone: bool, segment_bytes: u32) -> SubflowView {
        let tcp = &self.tcp;
        let falls_to = tcp.bottleneck_falls_to(now);
        SubflowView {
            id: self.state.id,
            srtt: tcp.srtt(),
            min_rtt: tcp.min_rtt(),
            rtt_variance: tcp.rtt_variance(),
            window_bytes: tcp.window_bytes(),
            ssthresh_bytes: tcp.ssthresh_bytes(),
            in_flight_bytes: tcp.in_flight_bytes(),
            unsent_bytes: tcp.unsent_bytes(),
            room_bytes: if is_alone { tcp.window_or_probe_room_bytes() } else { tcp.window_room_bytes() },
            segment_bytes,
            backup: self.state.role.is_backup(),
            timeouts: tcp.consecutive_timeouts(),
            is_probing: tcp.is_probing() || self.state.path.is_silent(),
            in_recovery: tcp.in_recovery(),
            acked_offset: tcp.acked_offset(),
            bottleneck_bytes_per_s: falls_to.or_else(|| self.bottleneck_bytes_per_s()),
            bottleneck_has_fallen: falls_to.is_some() || tcp.bottleneck_has_fallen(),
            bottleneck_busy: self.state.path.busy_until().since(now),
        }
    }

    /// It is given data as one mapping, while `next` is expected from the peer; returns the offset of its stream after it.
    #[inline]
    pub(crate) fn enqueue(
        &mut self,
        now: Instant,
        data: polypath_wire::Payload,
        mapping: Mapping,
        next: DataSeq,
    ) -> u64 {
        let len_bytes = data.len() as u64;
        if let Some(rate) = self.bottleneck_bytes_per_s() {
            self.state.path.handle_load(now, rate, len_bytes);
        }
        let end = self.tcp.enqueued_offset() + len_bytes;
        self.state.owed.handle_mapped(next, end, self.state.stage == Stage::Established);
        self.tcp.enqueue(data, mapping);
        self.tcp.enqueued_offset()
    }

    /// It is established, and this end has not finished it.
    #[inline]
    pub(crate) fn is_in_use(&self) -> bool {
        self.state.stage == Stage::Established && !self.state.ending.is_ending()
    }

    /// It carries data, and this end has not finished it.
    #[inline]
    pub(crate) fn is_usable(&self) -> bool {
        self.state.stage.carries_data() && !self.state.ending.is_ending()
    }

    /// Has its FIN follow everything queued.
    pub(crate) fn finish(&mut self) {
        if self.state.ending.finish() {
            self.tcp.finish();
        }
    }

    /// Ends it at once, because of this end.
    pub(crate) fn give_up(&mut self) {
        self.state.ending.give_up();
        self.tcp.abort();
    }
}

impl SubflowState {
    pub(crate) const fn new(id: SubflowId, stage: Stage) -> Self {
        Self {
            id,
            stage,
            join: JoinHandshake::new(),
            role: Role::new(),
            owed: Owed::new(),
            ending: Ending::new(),
            path: Path::new(),
        }
    }

    // ---- transitions: see [`stage`]

    /// The peer's key came with MP_CAPABLE.
    pub(crate) fn handle_capable(&mut self) {
        self.stage.handle_capable();
    }

    /// Something came that only a server sends which has both keys.
    pub(crate) fn handle_confirmation(&mut self) {
        self.stage.handle_confirmation();
    }

    /// The SYN/ACK of our MP_JOIN came: the third ACK leaves.
    pub(crate) fn handle_join_syn_ack(&mut self, now: Instant) {
        self.stage.handle_join_syn_ack();
        self.join.await_fourth_ack(now);
    }

    /// The third or the fourth ACK of an MP_JOIN came.
    pub(crate) fn handle_join_ack(&mut self) {
        self.stage.handle_join_ack();
        self.join.stop();
    }

    /// The connection falls back, on this subflow.
    pub(crate) fn handle_fallback(&mut self) {
        self.stage.handle_fallback();
    }

    // ---- what holds

    /// How far its handshake is.
    #[inline]
    pub(crate) const fn stage(&self) -> Stage {
        self.stage
    }

    /// An acknowledgment is due for what Multipath TCP has to say. Before the handshake is complete, one has no room for signals, and
    /// would be followed by others without end; and data that waits, unless `is_all_sent`, leaves none that DATA_FIN could go with.
    #[inline]
    pub(crate) fn owes_acknowledgment(&self, is_all_sent: bool) -> bool {
        let owes_fin = self.owed.owes_data_fin() && is_all_sent;
        match self.stage {
            Stage::Established => self.owed.has_signals() || self.owed.owes_data_ack() || owes_fin,
            Stage::CapableAck => owes_fin,
            _ => false,
        }
    }

    /// DATA_FIN is to leave, for the first time or again.
    pub(crate) fn owe_data_fin(&mut self, is_first: bool) {
        let may = matches!(self.stage, Stage::Established | Stage::CapableAck);
        self.owed.owe_data_fin(may, is_first);
    }
}
