//! A connection's part in judging paths: see [`crate::reception`].

use alloc::boxed::Box;

use polypath_units::{Duration, Instant};
use polypath_wire::{MptcpOption, RemoveAddr, ResetReason, Segment};

use super::state::Mode;
use super::{Connection, Context};
use crate::event::{Event, SubflowError};
use crate::reception::{Arrival, JoinsAs, JudgePaths, Reception, Verdict};
use crate::subflow::Stage;

/// Whether paths are judged, and how they were.
#[derive(Debug, Default)]
pub(super) struct Judging {
    /// From the second subflow on.
    reception: Option<Box<Reception>>,
    sender: Sender,
}

/// What the peer shows to be when it sends data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sender {
    /// It has sent none.
    #[default]
    Unknown,
    Ours,
    Foreign,
}

impl Judging {
    pub(super) fn next_timeout(&self) -> Instant {
        self.reception.as_ref().map_or(Instant::FAR_FUTURE, |reception| reception.next_timeout())
    }
}

impl Connection {
    fn judges(&self) -> bool {
        match self.shared.config.judge_paths {
            JudgePaths::Never => false,
            JudgePaths::Foreign => self.judging.sender != Sender::Ours,
            JudgePaths::Always => true,
        }
    }

    /// Whether a subflow that is about to be opened is set aside until it is tried. From then on it is measured what the others bring.
    pub(super) fn joins_aside(&mut self, now: Instant) -> bool {
        let judges = self.judges() && self.shared.mode == Mode::Mptcp;
        if judges {
            self.start_judging(now);
        }
        judges
    }

    fn start_judging(&mut self, now: Instant) {
        if self.judging.reception.is_some() {
            return;
        }
        self.judging.reception = Some(Box::new(Reception::new(now, self.shared.receive_next)));
        for position in 0..self.subflows.len() {
            if self.subflows.get(position).is_some_and(|subflow| subflow.meta.stage.carries_data()) {
                self.add_to_reception(now, position);
            }
        }
    }

    /// The peer's first mapping shows what it is.
    pub(super) fn note_sender(&mut self, cx: &mut Context<'_>, is_long: bool) {
        if self.judging.sender != Sender::Unknown {
            return;
        }
        self.judging.sender = if is_long { Sender::Foreign } else { Sender::Ours };
        if !self.judges() {
            self.judging.reception = None;
            for position in 0..self.subflows.len() {
                if self.subflows.get(position).is_some_and(|subflow| subflow.meta.is_aside) {
                    self.ask_priority(cx, position, false);
                }
            }
        }
    }

    /// A subflow is ready for data.
    pub(super) fn judge_subflow(&mut self, cx: &mut Context<'_>, position: usize) {
        let now = cx.now;
        if !self.judges() || self.shared.mode != Mode::Mptcp {
            return;
        }
        self.start_judging(now);
        self.add_to_reception(now, position);
        self.follow_verdicts(cx);
    }

    fn add_to_reception(&mut self, now: Instant, position: usize) {
        let (Some(subflow), Some(reception)) = (self.subflows.get(position), &mut self.judging.reception)
        else {
            return;
        };
        let joins_as = match &subflow.meta {
            meta if meta.backup() => JoinsAs::Backup,
            meta if meta.is_aside => JoinsAs::Aside,
            _ => JoinsAs::Regular,
        };
        let tuple = subflow.tcp.tuple();
        reception.add(now, subflow.meta.id, (tuple.local.addr, tuple.remote), subflow.tcp.srtt(), joins_as);
    }

    /// What a subflow held up so far: for how long, and in byte seconds.
    pub(super) fn held_up(&self, id: u8) -> (Duration, f64) {
        self.judging.reception.as_ref().map_or((Duration::ZERO, 0.0), |reception| reception.held_up(id))
    }

    /// A subflow ended.
    pub(super) fn judge_loss(&mut self, cx: &mut Context<'_>, id: u8) {
        if let Some(reception) = &mut self.judging.reception {
            reception.remove(cx.now, id);
            self.follow_verdicts(cx);
        }
    }

    /// Data came over a subflow.
    pub(super) fn judge_arrival(
        &mut self,
        cx: &mut Context<'_>,
        position: usize,
        segment: &Segment,
        bytes: u64,
    ) {
        let (Some(reception), Some(subflow)) = (&mut self.judging.reception, self.subflows.get(position))
        else {
            return;
        };
        let next = self.shared.receive_next;
        reception.on_arrival(Arrival {
            now: cx.now,
            subflow: subflow.meta.id,
            rtt: subflow.tcp.receiver_rtt(cx.now, segment).filter(|rtt| *rtt > COARSE),
            bytes,
            next,
            newest: subflow.rx.newest.max(next),
            waiting_bytes: self.shared.reassembly.len_bytes(),
        });
        self.follow_verdicts(cx);
    }

    pub(super) fn judge_timeout(&mut self, cx: &mut Context<'_>) {
        if let Some(reception) = &mut self.judging.reception
            && reception.next_timeout() <= cx.now
        {
            reception.handle_timeout(cx.now);
            self.follow_verdicts(cx);
        }
    }

    pub(super) fn follow_verdicts(&mut self, cx: &mut Context<'_>) {
        while let Some(verdict) = self.judging.reception.as_mut().and_then(|reception| reception.poll()) {
            let (Verdict::Use(id) | Verdict::SetAside(id) | Verdict::Close(id)) = verdict;
            let Some(position) = self.position(id) else { continue };
            match verdict {
                Verdict::Use(_) => {
                    cx.mib.paths_tried += 1;
                    self.ask_priority(cx, position, false);
                }
                Verdict::SetAside(_) => self.ask_priority(cx, position, true),
                // Who accepted the connection does not open subflows: what it closed would be gone.
                Verdict::Close(_) if !self.shared.is_client => self.ask_priority(cx, position, true),
                Verdict::Close(_) => self.close_aside(cx, position),
            }
        }
    }

    /// Asks the peer to use a subflow, or not while another works, for what it brings to us: our own data may go over it all the same.
    fn ask_priority(&mut self, cx: &mut Context<'_>, position: usize, is_aside: bool) {
        let Some(subflow) = self.subflows.get_mut(position) else { return };
        subflow.meta.is_aside = is_aside;
        let (id, tuple) = (subflow.meta.id, subflow.tcp.tuple());
        // While it joins, its third ACK says so; that may have been lost, or left before.
        cx.mib.mp_prio_tx += 1;
        subflow
            .meta
            .signals
            .push(MptcpOption::Prio { backup: is_aside || subflow.meta.backup_local, address_id: None });
        if subflow.meta.stage == Stage::Established {
            subflow.tcp.request_ack();
        }
        cx.mib.paths_set_aside += u64::from(is_aside);
        self.emit(if is_aside {
            Event::SubflowSetAside { subflow: id, tuple }
        } else {
            Event::SubflowTried { subflow: id, tuple }
        });
    }

    /// Closes a subflow, so that what it holds comes over the others at once; its path is set aside when it joins again.
    fn close_aside(&mut self, cx: &mut Context<'_>, position: usize) {
        let Some(subflow) = self.subflows.get_mut(position) else { return };
        subflow.meta.is_aside = true;
        let (id, tuple, local_id) = (subflow.meta.id, subflow.tcp.tuple(), subflow.meta.local_id);
        cx.mib.paths_set_aside += 1;
        self.emit(Event::SubflowSetAside { subflow: id, tuple });
        self.reset_subflow(position, SubflowError::Local, ResetReason::BAD_PERFORMANCE);
        let is_alone = self.subflows.iter().filter(|subflow| subflow.meta.local_id == local_id).count() == 1;
        if is_alone {
            // Over another path it arrives sooner than the reset does over the slow one.
            let address_ids = core::iter::once(local_id).collect();
            self.signal(MptcpOption::RemoveAddr(RemoveAddr { address_ids }));
        }
    }
}

/// Timestamps tick in milliseconds: below, they say less than the handshake did.
const COARSE: Duration = Duration::from_millis(3);
