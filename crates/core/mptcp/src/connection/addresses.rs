//! ADD_ADDR, REMOVE_ADDR, MP_PRIO, and the path manager's place in a connection (RFC 8684 §3.3.8, §3.4).

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;

use arrayvec::ArrayVec;
use polypath_units::{Duration, Instant};
use polypath_wire::{AddAddr, Endpoint, FourTuple, MptcpOption, MptcpVersion, RemoveAddr, ResetReason};

use super::removal::Removals;
use super::state::Mode;
use super::{Connection, Context, Request};
use crate::crypto::{add_addr_hmac, verify_add_addr_hmac};
use crate::event::{Event, SubflowError};
use crate::path_manager::{PathAction, PathEvent, PathManager, PathView, RemoteAddress, SubflowSummary};
use crate::subflow::Stage;

/// How often an ADD_ADDR is sent while no echo comes: over four minutes, each time after twice as long. Version 0 has no echo.
const ANNOUNCEMENTS: u8 = 8;
const ANNOUNCEMENTS_IN_V0: u8 = 3;

/// Addresses of both ends, and who decides about them.
#[derive(Debug)]
pub(super) struct Addresses {
    manager: Box<dyn PathManager>,
    pub(super) initial: FourTuple,
    announced: Vec<RemoteAddress>,
    /// ADD_ADDRs to send; the front one is on its way until it is echoed, or has its turn again after the others.
    outgoing: VecDeque<Announcement>,
    retry_at: Instant,
    wake_at: Instant,
    pub(super) removals: Removals,
}

#[derive(Clone, Copy, Debug)]
struct Announcement {
    id: u8,
    addr: IpAddr,
    port: Option<u16>,
    sent: u8,
}

impl Addresses {
    pub(super) fn new(manager: Box<dyn PathManager>, initial: FourTuple) -> Self {
        Self {
            manager,
            initial,
            announced: Vec::new(),
            outgoing: VecDeque::new(),
            retry_at: Instant::FAR_FUTURE,
            wake_at: Instant::FAR_FUTURE,
            removals: Removals::default(),
        }
    }

    /// See [`PathManager::breaks_first`].
    pub(super) fn breaks_first(&self) -> bool {
        self.manager.breaks_first()
    }

    pub(super) fn next_timeout(&self) -> Instant {
        self.retry_at.min(self.wake_at).min(self.removals.next_timeout())
    }

    pub(super) fn stop(&mut self) {
        self.retry_at = Instant::FAR_FUTURE;
        self.wake_at = Instant::FAR_FUTURE;
        self.outgoing.clear();
        self.removals = Removals::default();
    }
}

/// Tells the path manager of `event` and does what it says.
pub(super) fn notify(connection: &mut Connection, cx: &mut Context<'_>, event: PathEvent) {
    if connection.closed.is_some() || connection.shared.mode == Mode::Plain {
        return;
    }
    let subflows: Vec<SubflowSummary> = connection.subflows.iter().map(|subflow| summary(subflow)).collect();
    let view = PathView {
        now: cx.now,
        is_client: connection.shared.is_client,
        may_join: connection.may_open(),
        initial_local: connection.addresses.initial.local.addr,
        initial_remote: connection.addresses.initial.remote,
        no_join_initial: connection.shared.no_join_initial,
        endpoints: cx.endpoints,
        limits: cx.limits,
        subflows: &subflows,
        announced: &connection.addresses.announced,
    };
    let mut actions = Vec::new();
    connection.addresses.manager.handle_event(&event, &view, &mut actions);
    let known_requests = connection.requests.len();
    for action in actions {
        connection.act(cx, action, known_requests);
    }
}

fn summary(subflow: &crate::subflow::Subflow) -> SubflowSummary {
    let tuple = subflow.tcp.tuple();
    SubflowSummary {
        id: subflow.meta.id,
        local: tuple.local.addr,
        local_id: subflow.meta.local_id,
        remote: tuple.remote,
        remote_id: subflow.meta.remote_id,
        established: subflow.meta.stage == Stage::Established && !subflow.meta.finishing,
        closing: subflow.meta.finishing,
        backup: subflow.meta.backup(),
        backup_local: subflow.meta.backup_local,
        stale: subflow.meta.is_stale,
    }
}

impl Connection {
    /// A local address came or went.
    pub(crate) fn handle_path_event(&mut self, cx: &mut Context<'_>, event: PathEvent) {
        if let PathEvent::LocalAdded(addr) = event {
            self.probe_from(cx.now, addr);
        }
        notify(self, cx, event);
        if let PathEvent::LocalRemoved(addr) = event {
            // The last subflow stays: a reset would end the connection at the peer, and the address may come back.
            let is_other = |subflow: &crate::subflow::Subflow| {
                subflow.meta.stage == Stage::Established && subflow.tcp.tuple().local.addr != addr
            };
            if !self.subflows.iter().any(|subflow| is_other(subflow)) {
                return;
            }
            for position in 0..self.subflows.len() {
                if self.subflows.get(position).is_some_and(|subflow| subflow.tcp.tuple().local.addr == addr) {
                    self.reset_subflow(position, SubflowError::Local, ResetReason::UNSPECIFIED);
                    if let Some(id) = self.subflows.get(position).map(|subflow| subflow.meta.id) {
                        self.reinject_from(id);
                    }
                }
            }
        }
    }

    /// The subflow `id` received a packet of this length.
    pub(crate) fn count_received(&mut self, cx: &mut Context<'_>, id: u8, len_bytes: u64) {
        if let Some(position) = self.position(id) {
            self.count(cx, position, len_bytes);
        }
    }

    /// [`Connection::poll_transmit`] just returned a packet of this length.
    pub(crate) fn count_transmitted(&mut self, cx: &mut Context<'_>, len_bytes: u64) {
        self.count(cx, self.transmit_position, len_bytes);
    }

    fn count(&mut self, cx: &mut Context<'_>, position: usize, len_bytes: u64) {
        let Some(subflow) = self.subflows.get_mut(position) else { return };
        let generation = cx.budgets.generation();
        if subflow.meta.account_generation != generation {
            subflow.meta.account_generation = generation;
            subflow.meta.account = cx.budgets.account_of(subflow.tcp.tuple().local.addr);
        }
        if let Some(account) = subflow.meta.account {
            cx.budgets.count(account, len_bytes);
        }
    }

    /// Closes what goes over a local address, the last subflow too.
    pub(crate) fn close_from(&mut self, addr: IpAddr) {
        for position in 0..self.subflows.len() {
            if self.subflows.get(position).is_some_and(|subflow| subflow.tcp.tuple().local.addr == addr) {
                self.reset_subflow(position, SubflowError::Local, ResetReason::PROHIBITED);
            }
        }
    }

    /// Does what the path manager wants; it did not see what the first `known_requests` of the requests ask for.
    fn act(&mut self, cx: &mut Context<'_>, action: PathAction, known_requests: usize) {
        match action {
            PathAction::Open { local, local_id, remote, backup } => {
                // Two events of one segment may both miss the same pair.
                let is_asked = |request: &Request| matches!(request, Request::OpenSubflow { local: from, remote: to, .. } if (*from, *to) == (local, remote));
                if !self.requests.iter().take(known_requests).any(is_asked) {
                    self.requests.push(Request::OpenSubflow { local, local_id, remote, backup });
                }
            }
            PathAction::Announce { id, addr, port } => {
                let new = Announcement { id, addr, port, sent: 0 };
                // One that has been repeated may go unanswered for long.
                if self.addresses.outgoing.front().is_none_or(|front| front.sent > 1) {
                    self.addresses.outgoing.push_front(new);
                    self.announce_next(cx);
                } else {
                    self.addresses.outgoing.push_back(new);
                }
            }
            PathAction::Withdraw { id } => self.withdraw(cx, id),
            PathAction::Close { subflow } => {
                if let Some(position) = self.position(subflow) {
                    self.reset_subflow(position, SubflowError::Local, ResetReason::UNSPECIFIED);
                }
            }
            PathAction::SetBackup { subflow, backup } => self.set_backup(cx, subflow, backup),
            PathAction::WakeAt(at) => self.addresses.wake_at = self.addresses.wake_at.min(at),
        }
    }

    /// Asks the peer to use a subflow only when no other works, or the reverse (MP_PRIO).
    pub(crate) fn set_backup(&mut self, cx: &mut Context<'_>, id: u8, backup: bool) {
        let Some(position) = self.position(id) else { return };
        cx.mib.mp_prio_tx += 1;
        if let Some(subflow) = self.subflows.get_mut(position) {
            subflow.meta.backup_local = backup;
            subflow.meta.signals.push(MptcpOption::Prio { backup, address_id: None });
            subflow.tcp.request_ack();
        }
        self.needs_schedule = true;
    }

    /// Where signals go: an established subflow that works.
    fn signal_position(&self) -> Option<usize> {
        let established = |at: &usize| {
            self.subflows
                .get(*at)
                .is_some_and(|subflow| subflow.meta.stage == Stage::Established && !subflow.meta.finishing)
        };
        (0..self.subflows.len())
            .filter(established)
            .min_by_key(|at| self.subflows.get(*at).map(|subflow| subflow.tcp.consecutive_timeouts()))
    }

    pub(super) fn signal(&mut self, option: MptcpOption) -> bool {
        let Some(position) = self.signal_position() else { return false };
        let Some(subflow) = self.subflows.get_mut(position) else { return false };
        subflow.meta.signals.push(option);
        subflow.tcp.request_ack();
        true
    }

    /// Sends the ADD_ADDR at the front of the queue; the next follows its echo.
    fn announce_next(&mut self, cx: &mut Context<'_>) {
        self.addresses.retry_at = Instant::FAR_FUTURE;
        let version = self.shared.version;
        let most = if version == MptcpVersion::V1 { ANNOUNCEMENTS } else { ANNOUNCEMENTS_IN_V0 };
        self.addresses.outgoing.retain(|waiting| waiting.sent < most);
        let Some(front) = self.addresses.outgoing.front_mut() else { return };
        let doublings = if version == MptcpVersion::V1 { front.sent } else { 0 };
        let wait = Duration::from_nanos(self.shared.config.add_addr_timeout.as_nanos() << doublings);
        front.sent += 1;
        let Announcement { id, addr, port, .. } = *front;
        let (local, Some(remote)) = (self.shared.local_key, self.shared.remote_key) else { return };
        let hmac = (version == MptcpVersion::V1).then(|| add_addr_hmac(local, remote, id, addr, port));
        let option = AddAddr { version, echo: false, address_id: id, addr, port, hmac };
        if self.signal(MptcpOption::AddAddr(option)) {
            cx.mib.add_addr_tx += 1;
        }
        self.addresses.retry_at = cx.now + wait;
    }

    /// No echo came in time.
    fn announce_again(&mut self, cx: &mut Context<'_>) {
        if self.addresses.outgoing.len() > 1 {
            self.addresses.outgoing.rotate_left(1);
        }
        self.announce_next(cx);
    }

    /// Tells the peer that an address is gone, on a subflow that does not use it, and closes those that do.
    fn withdraw(&mut self, cx: &mut Context<'_>, id: u8) {
        cx.mib.rm_addr_tx += 1;
        for position in 0..self.subflows.len() {
            if self.subflows.get(position).is_some_and(|subflow| subflow.meta.local_id == id) {
                self.reset_subflow(position, SubflowError::Local, ResetReason::UNSPECIFIED);
            }
        }
        let mut address_ids = ArrayVec::new();
        address_ids.push(id);
        self.signal(MptcpOption::RemoveAddr(RemoveAddr { address_ids }));
    }

    /// The HMAC of an ADD_ADDR is the peer's; version 0 has none.
    pub(super) fn is_genuine(&self, add: &AddAddr) -> bool {
        let (local, Some(remote)) = (self.shared.local_key, self.shared.remote_key) else { return false };
        let AddAddr { address_id, addr, port, hmac, .. } = *add;
        self.shared.version == MptcpVersion::V0
            || hmac.is_some_and(|hmac| verify_add_addr_hmac(remote, local, address_id, addr, port, hmac))
    }

    /// Somebody else may answer at an announced address: it is not one of ours, nor one that no single other host can have.
    fn can_be_reached(&self, cx: &Context<'_>, add: &AddAddr) -> bool {
        let addr = add.addr.to_canonical();
        let is_ours = cx.endpoints.iter().any(|endpoint| endpoint.addr == addr)
            || self.subflows.iter().any(|subflow| subflow.tcp.tuple().local.addr == addr);
        let is_of_nobody = match addr {
            IpAddr::V4(addr) => addr.octets()[0] == 0 || addr.is_broadcast() || addr.is_multicast(),
            IpAddr::V6(addr) => addr.is_unspecified() || addr.is_multicast(),
        };
        // Over the loopback interface, both ends are on one machine.
        let is_elsewhere = addr.is_loopback() && !self.addresses.initial.remote.addr.is_loopback();
        !is_ours && !is_of_nobody && !is_elsewhere && add.port != Some(0)
    }

    pub(super) fn handle_add_addr(&mut self, cx: &mut Context<'_>, position: usize, add: &AddAddr) {
        if add.echo {
            cx.mib.echo_add += 1;
            let is_front = self.addresses.outgoing.front().is_some_and(|front| front.id == add.address_id);
            self.addresses.outgoing.retain(|waiting| waiting.sent == 0 || waiting.id != add.address_id);
            if is_front {
                self.announce_next(cx);
            }
            return;
        }
        cx.mib.add_addr += 1;
        let id = add.address_id;
        let genuine = self.is_genuine(add);
        let known = self.addresses.announced.iter().position(|address| address.id == id);
        if !genuine || known.is_none() && self.addresses.announced.len() >= cx.max_announced_addresses {
            cx.mib.add_addr_drop += 1;
            return;
        }
        if self.shared.version == MptcpVersion::V1
            && let Some(subflow) = self.subflows.get_mut(position)
        {
            subflow.meta.signals.push(MptcpOption::AddAddr(AddAddr { echo: true, hmac: None, ..*add }));
            subflow.tcp.request_ack();
        }
        if !self.can_be_reached(cx, add) {
            cx.mib.add_addr_drop += 1;
            return;
        }
        let address = RemoteAddress { id, addr: add.addr, port: add.port };
        match known {
            Some(at) if self.addresses.announced.get(at) == Some(&address) => return,
            Some(at) => self.addresses.announced[at] = address,
            None => self.addresses.announced.push(address),
        }
        let port = add.port.unwrap_or(self.addresses.initial.remote.port);
        self.emit(Event::Announced { id, remote: Endpoint::new(add.addr, port) });
        notify(self, cx, PathEvent::Announced(address));
    }

    pub(super) fn handle_remove_addr(&mut self, cx: &mut Context<'_>, remove: &RemoveAddr) {
        cx.mib.rm_addr += 1;
        for id in &remove.address_ids {
            self.addresses.announced.retain(|address| address.id != *id);
            self.emit(Event::Removed { id: *id });
            notify(self, cx, PathEvent::Withdrawn { id: *id });
            self.probe_withdrawn(cx.now, *id);
        }
    }

    pub(super) fn handle_prio(
        &mut self,
        cx: &mut Context<'_>,
        position: usize,
        backup: bool,
        id: Option<u8>,
    ) {
        if id.is_some() && self.shared.version == MptcpVersion::V1 {
            // Only version 0 has an option of that length.
            return;
        }
        cx.mib.mp_prio_rx += 1;
        for (at, subflow) in self.subflows.iter_mut().enumerate() {
            let meant = id.map_or(at == position, |id| subflow.meta.remote_id == id);
            if meant {
                subflow.meta.backup_remote = backup;
            }
        }
        self.needs_schedule = true;
    }

    pub(super) fn addresses_timeout(&mut self, cx: &mut Context<'_>) {
        if self.addresses.retry_at <= cx.now {
            self.announce_again(cx);
        }
        self.removals_timeout(cx.now);
        if self.addresses.wake_at <= cx.now {
            self.addresses.wake_at = Instant::FAR_FUTURE;
            notify(self, cx, PathEvent::Wake);
        }
    }
}
