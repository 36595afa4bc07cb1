//! A connection's part in judging paths: see [`crate::reception`].

use polypath_units::{Duration, Instant};
use polypath_wire::{MptcpOption, RemoveAddr, ResetReason, Segment};

use super::{Connection, Context};
use crate::event::{Event, SubflowError};
use crate::identifiers::SubflowId;
use crate::reception::{JoinsAs, PathArrival, Verdict};
use crate::subflow::Stage;

impl Connection {
    fn judges(&self) -> bool {
        self.path_judge.judges(self.stream.config.judge_paths)
    }

    /// Whether a subflow that is about to be opened is set aside until it is tried. From then on it is measured what the others bring.
    pub(super) fn joins_aside(&mut self, now: Instant) -> bool {
        let judges = self.judges() && self.stream.lifecycle.is_mptcp();
        if judges {
            self.start_judging(now);
        }
        judges
    }

    fn start_judging(&mut self, now: Instant) {
        if !self.path_judge.start(now, self.stream.receive.next()) {
            return;
        }
        for position in 0..self.subflows.len() {
            if self.subflows.get(position).is_some_and(|subflow| subflow.state.stage().carries_data()) {
                self.add_to_reception(now, position);
            }
        }
    }

    /// The peer's first mapping shows what it is.
    pub(super) fn note_sender(&mut self, cx: &mut Context<'_>, is_long: bool) {
        if self.path_judge.handle_number_len(self.stream.config.judge_paths, is_long) {
            for position in 0..self.subflows.len() {
                if self.subflows.get(position).is_some_and(|subflow| subflow.state.role.is_aside()) {
                    self.ask_priority(cx, position, false);
                }
            }
        }
    }

    /// A subflow is ready for data.
    pub(super) fn judge_subflow(&mut self, cx: &mut Context<'_>, position: usize) {
        let now = cx.now;
        if !self.judges() || !self.stream.lifecycle.is_mptcp() {
            return;
        }
        self.start_judging(now);
        self.add_to_reception(now, position);
        self.follow_verdicts(cx);
    }

    fn add_to_reception(&mut self, now: Instant, position: usize) {
        let Some(subflow) = self.subflows.get(position) else { return };
        let joins_as = match &subflow.state {
            state if state.role.is_backup() => JoinsAs::Backup,
            state if state.role.is_aside() => JoinsAs::Aside,
            _ => JoinsAs::Regular,
        };
        let tuple = subflow.tcp.tuple();
        let key = (tuple.local.addr, tuple.remote);
        self.path_judge.add(now, subflow.state.id, key, subflow.tcp.srtt(), joins_as);
    }

    /// A subflow ended.
    pub(super) fn judge_loss(&mut self, cx: &mut Context<'_>, id: SubflowId) {
        self.path_judge.remove(cx.now, id);
        self.follow_verdicts(cx);
    }

    /// Data came over a subflow.
    pub(super) fn judge_arrival(
        &mut self,
        cx: &mut Context<'_>,
        position: usize,
        segment: &Segment,
        bytes: u64,
    ) {
        if !self.path_judge.is_measuring() {
            return;
        }
        let Some(subflow) = self.subflows.get(position) else { return };
        let next = self.stream.receive.next();
        self.path_judge.handle_arrival(PathArrival {
            now: cx.now,
            subflow: subflow.state.id,
            rtt: subflow.tcp.receiver_rtt(cx.now, segment).filter(|rtt| *rtt > COARSE),
            bytes,
            next,
            newest: subflow.rx.newest().max(next),
            waiting_bytes: self.stream.receive.waiting_bytes(),
        });
        self.follow_verdicts(cx);
    }

    pub(super) fn judge_timeout(&mut self, cx: &mut Context<'_>) {
        if self.path_judge.handle_timeout(cx.now) {
            self.follow_verdicts(cx);
        }
    }

    pub(super) fn follow_verdicts(&mut self, cx: &mut Context<'_>) {
        while let Some(verdict) = self.path_judge.poll() {
            let (Verdict::Use(id) | Verdict::SetAside(id) | Verdict::Close(id)) = verdict;
            let Some(position) = self.subflows.position(id) else { continue };
            match verdict {
                Verdict::Use(_) => {
                    cx.counters.paths_tried += 1;
                    self.ask_priority(cx, position, false);
                }
                Verdict::SetAside(_) => self.ask_priority(cx, position, true),
                // Who accepted the connection does not open subflows: what it closed would be gone.
                Verdict::Close(_) if !self.stream.negotiation.is_client() => {
                    self.ask_priority(cx, position, true)
                }
                Verdict::Close(_) => self.close_aside(cx, position),
            }
        }
    }

    /// Asks the peer to use a subflow, or not while another works, for what it brings to us: our own data may go over it all the same.
    fn ask_priority(&mut self, cx: &mut Context<'_>, position: usize, is_aside: bool) {
        let Some(subflow) = self.subflows.get_mut(position) else { return };
        subflow.state.role.set_aside(is_aside);
        let (id, tuple) = (subflow.state.id, subflow.tcp.tuple());
        // While it joins, its third ACK says so; that may have been lost, or left before.
        cx.counters.mp_prio_tx += 1;
        let backup = is_aside || subflow.state.role.is_backup_here();
        subflow.state.owed.signal(MptcpOption::Prio { backup, address_id: None });
        if subflow.state.stage() == Stage::Established {
            subflow.tcp.request_ack();
        }
        cx.counters.paths_set_aside += u64::from(is_aside);
        self.outbox.emit(if is_aside {
            Event::SubflowSetAside { subflow: id, tuple }
        } else {
            Event::SubflowTried { subflow: id, tuple }
        });
    }

    /// Closes a subflow, so that what it holds comes over the others at once; its path is set aside when it joins again.
    fn close_aside(&mut self, cx: &mut Context<'_>, position: usize) {
        let Some(subflow) = self.subflows.get_mut(position) else { return };
        subflow.state.role.set_aside(true);
        let (id, tuple, local_id) = (subflow.state.id, subflow.tcp.tuple(), subflow.state.role.local_id());
        cx.counters.paths_set_aside += 1;
        self.outbox.emit(Event::SubflowSetAside { subflow: id, tuple });
        self.reset_subflow(position, SubflowError::Local, ResetReason::BAD_PERFORMANCE);
        let is_alone = self.subflows.count(|subflow| subflow.state.role.local_id() == local_id) == 1;
        if is_alone {
            // Over another path it arrives sooner than the reset does over the slow one.
            let address_ids = core::iter::once(local_id.0).collect();
            self.signal(MptcpOption::RemoveAddr(RemoveAddr { address_ids }));
        }
    }
}

/// Timestamps tick in milliseconds: below, they say less than the handshake did.
const COARSE: Duration = Duration::from_millis(3);
