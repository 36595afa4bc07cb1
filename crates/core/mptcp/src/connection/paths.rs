//! The path manager's place in a connection: it hears of events, and what it wants is done.

use alloc::vec::Vec;
use core::net::IpAddr;

use polypath_wire::ResetReason;

use super::{Connection, Context};
use crate::event::SubflowError;
use crate::identifiers::SubflowId;
use crate::path_manager::{PathAction, PathEvent, PathView, SubflowSummary};
use crate::subflow::Subflow;

fn summary(subflow: &Subflow) -> SubflowSummary {
    let tuple = subflow.tcp.tuple();
    SubflowSummary {
        id: subflow.state.id,
        local: tuple.local.addr,
        local_id: subflow.state.role.local_id(),
        remote: tuple.remote,
        remote_id: subflow.state.role.remote_id(),
        established: subflow.is_in_use(),
        closing: subflow.state.ending.is_ending(),
        backup: subflow.state.role.is_backup(),
        backup_local: subflow.state.role.is_backup_here(),
        stale: subflow.state.path.is_stale(),
    }
}

impl Connection {
    /// Tells the path manager of `event` and does what it says.
    pub(super) fn notify_path_manager(&mut self, cx: &mut Context<'_>, event: PathEvent) {
        if self.stream.lifecycle.is_closed() || self.stream.lifecycle.is_plain() {
            return;
        }
        let subflows: Vec<SubflowSummary> = self.subflows.iter().map(summary).collect();
        let initial = self.addresses.initial();
        let view = PathView {
            now: cx.now,
            is_client: self.stream.negotiation.is_client(),
            may_join: self.may_open(),
            initial_local: initial.local.addr,
            initial_remote: initial.remote,
            no_join_initial: self.stream.negotiation.no_join_initial(),
            endpoints: cx.endpoints,
            limits: cx.limits,
            subflows: &subflows,
            announced: &[],
        };
        let actions = self.addresses.decide(&event, view);
        let known_requests = self.outbox.requests_len();
        for action in actions {
            self.act(cx, action, known_requests);
        }
    }

    /// Does what the path manager wants; it did not see what the first `known_requests` of the requests ask for.
    fn act(&mut self, cx: &mut Context<'_>, action: PathAction, known_requests: usize) {
        match action {
            PathAction::Open { local, local_id, remote, backup } => {
                self.outbox.ask_for_subflow(known_requests, (local, local_id), remote, backup);
            }
            PathAction::Announce { id, addr, port } => {
                if self.addresses.announce(id, addr, port) {
                    self.announce_next(cx);
                }
            }
            PathAction::Withdraw { id } => self.withdraw(cx, id),
            PathAction::Close { subflow } => {
                if let Some(position) = self.subflows.position(subflow) {
                    self.reset_subflow(position, SubflowError::Local, ResetReason::UNSPECIFIED);
                }
            }
            PathAction::SetBackup { subflow, backup } => self.set_backup(cx, subflow, backup),
            PathAction::WakeAt(at) => self.addresses.wake_at(at),
        }
    }

    pub(super) fn addresses_timeout(&mut self, cx: &mut Context<'_>) {
        if self.addresses.is_echo_overdue(cx.now) {
            self.announce_next(cx);
        }
        self.withdrawn_timeout(cx.now);
        if self.addresses.take_wake(cx.now) {
            self.notify_path_manager(cx, PathEvent::Wake);
        }
    }

    /// A local address came or went.
    pub(crate) fn handle_path_event(&mut self, cx: &mut Context<'_>, event: PathEvent) {
        let mut stays = false;
        if let PathEvent::LocalAdded(addr) = event {
            self.probe_from(cx.now, addr);
            stays = self.mark_removed(addr, false);
        }
        self.notify_path_manager(cx, event);
        match event {
            // The subflow that is still there may be wanted as another than it was.
            PathEvent::LocalAdded(addr) if stays => {
                self.notify_path_manager(cx, PathEvent::LocalChanged(addr));
            }
            PathEvent::LocalRemoved(addr) => {
                self.mark_removed(addr, true);
                self.end_from(addr);
            }
            _ => {}
        }
    }

    /// Notes of the subflows from a local address that it was removed, or came back; true if that is news for one.
    fn mark_removed(&mut self, addr: IpAddr, is_removed: bool) -> bool {
        let mut is_news = false;
        for subflow in self.subflows.iter_mut().filter(|subflow| subflow.tcp.tuple().local.addr == addr) {
            is_news |= subflow.state.path.mark_removed(is_removed);
        }
        is_news
    }

    /// Ends the subflows from a local address that was removed, unless nothing else is there: a reset of the last would end the
    /// connection at the peer, and the address may come back.
    fn end_from(&mut self, addr: IpAddr) {
        let is_other = |subflow: &Subflow| subflow.is_in_use() && subflow.tcp.tuple().local.addr != addr;
        if !self.subflows.any(is_other) {
            return;
        }
        for position in 0..self.subflows.len() {
            if self.subflows.get(position).is_some_and(|subflow| subflow.tcp.tuple().local.addr == addr) {
                self.reset_subflow(position, SubflowError::Local, ResetReason::UNSPECIFIED);
                if let Some(id) = self.subflows.get(position).map(|subflow| subflow.state.id) {
                    self.reinject_from(id);
                }
            }
        }
    }

    /// A subflow was established: those need stay no more whose address was removed while nothing else was there.
    pub(super) fn end_removed(&mut self, cx: &mut Context<'_>) {
        while let Some(addr) = self.left_over() {
            // Now there is something to tell the peer on.
            self.handle_path_event(cx, PathEvent::LocalRemoved(addr));
            if self.left_over() == Some(addr) {
                return;
            }
        }
    }

    /// A removed address that a subflow still uses.
    fn left_over(&self) -> Option<IpAddr> {
        let mut left = self.subflows.iter().filter(|subflow| subflow.state.path.is_removed());
        left.find(|subflow| subflow.is_in_use()).map(|subflow| subflow.tcp.tuple().local.addr)
    }

    /// Closes what goes over a local address, the last subflow too.
    pub(crate) fn close_from(&mut self, addr: IpAddr) {
        for position in 0..self.subflows.len() {
            if self.subflows.get(position).is_some_and(|subflow| subflow.tcp.tuple().local.addr == addr) {
                self.reset_subflow(position, SubflowError::Local, ResetReason::PROHIBITED);
            }
        }
    }

    /// The subflow `id` received a packet of this length.
    pub(crate) fn count_received(&mut self, cx: &mut Context<'_>, id: SubflowId, len_bytes: u64) {
        if let Some(position) = self.subflows.position(id) {
            self.count(cx, position, len_bytes);
        }
    }

    /// [`Connection::poll_transmit`] just returned a packet of this length.
    pub(crate) fn count_transmitted(&mut self, cx: &mut Context<'_>, len_bytes: u64) {
        let position = self.subflows.turn();
        self.count(cx, position, len_bytes);
    }

    fn count(&mut self, cx: &mut Context<'_>, position: usize, len_bytes: u64) {
        let Some(subflow) = self.subflows.get_mut(position) else { return };
        let generation = cx.budgets.generation();
        let local = subflow.tcp.tuple().local.addr;
        if let Some(account) = subflow.state.path.account(generation, || cx.budgets.account_of(local)) {
            cx.budgets.count(account, len_bytes);
        }
    }
}
