//! ADD_ADDR, REMOVE_ADDR and MP_PRIO, both ways (RFC 8684 §3.3.8, §3.4).

use core::net::IpAddr;

use arrayvec::ArrayVec;
use polypath_wire::{AddAddr, Endpoint, MptcpOption, MptcpVersion, RemoveAddr, ResetReason};

use super::{Connection, Context};
use crate::event::{Event, SubflowError};
use crate::identifiers::{AddressId, SubflowId};
use crate::misbehaviour::Misbehaviour;
use crate::path_manager::{PathEvent, RemoteAddress};

impl Connection {
    /// Asks the peer to use a subflow only when no other works, or the reverse (MP_PRIO).
    pub(crate) fn set_backup(&mut self, cx: &mut Context<'_>, id: SubflowId, backup: bool) {
        let Some(position) = self.subflows.position(id) else { return };
        cx.counters.mp_prio_tx += 1;
        if let Some(subflow) = self.subflows.get_mut(position) {
            subflow.state.role.set_backup(backup);
            subflow.state.owed.signal(MptcpOption::Prio { backup, address_id: None });
            subflow.tcp.request_ack();
        }
        self.scheduling.request();
    }

    /// Where signals go: an established subflow that works.
    fn signal_position(&self) -> Option<usize> {
        let established = |at: &usize| self.subflows.get(*at).is_some_and(|subflow| subflow.is_in_use());
        (0..self.subflows.len())
            .filter(established)
            .min_by_key(|at| self.subflows.get(*at).map(|subflow| subflow.tcp.consecutive_timeouts()))
    }

    pub(super) fn signal(&mut self, option: MptcpOption) -> bool {
        let Some(position) = self.signal_position() else { return false };
        let Some(subflow) = self.subflows.get_mut(position) else { return false };
        subflow.state.owed.signal(option);
        subflow.tcp.request_ack();
        true
    }

    /// Sends the ADD_ADDR at the front of the queue; the next follows its echo.
    pub(super) fn announce_next(&mut self, cx: &mut Context<'_>) {
        let (version, timeout) = (self.stream.negotiation.version(), self.stream.config.add_addr_timeout);
        let Some(next) = self.addresses.poll_announcement(cx.now, version, timeout) else { return };
        if let Some(add) = self.stream.negotiation.add_addr(next.id, next.addr, next.port)
            && self.signal(MptcpOption::AddAddr(add))
        {
            cx.counters.add_addr_tx += 1;
        }
    }

    /// Tells the peer that an address is gone, on a subflow that does not use it, and closes those that do.
    pub(super) fn withdraw(&mut self, cx: &mut Context<'_>, id: AddressId) {
        cx.counters.rm_addr_tx += 1;
        for position in 0..self.subflows.len() {
            if self.subflows.get(position).is_some_and(|subflow| subflow.state.role.local_id() == id) {
                self.reset_subflow(position, SubflowError::Local, ResetReason::UNSPECIFIED);
            }
        }
        let was_next = self.addresses.withdraw(id);
        // One that has yet to leave may have to wait for room, and would bring the address back.
        self.subflows.iter_mut().for_each(|subflow| subflow.state.owed.forget_announcement(id.0));
        let mut address_ids = ArrayVec::new();
        address_ids.push(id.0);
        self.signal(MptcpOption::RemoveAddr(RemoveAddr { address_ids }));
        if was_next {
            self.announce_next(cx);
        }
    }

    /// Somebody else may answer at an announced address: it is not one of ours, nor one that no single other host can have.
    fn can_be_reached(&self, cx: &Context<'_>, add: &AddAddr) -> bool {
        let addr = add.addr.to_canonical();
        let is_ours = cx.endpoints.iter().any(|endpoint| endpoint.addr == addr)
            || self.subflows.any(|subflow| subflow.tcp.tuple().local.addr == addr);
        let is_of_nobody = match addr {
            IpAddr::V4(addr) => addr.octets()[0] == 0 || addr.is_broadcast() || addr.is_multicast(),
            IpAddr::V6(addr) => addr.is_unspecified() || addr.is_multicast(),
        };
        // Over the loopback interface, both ends are on one machine.
        let is_elsewhere = addr.is_loopback() && !self.addresses.initial().remote.addr.is_loopback();
        !is_ours && !is_of_nobody && !is_elsewhere && add.port != Some(0)
    }

    pub(super) fn handle_add_addr(&mut self, cx: &mut Context<'_>, position: usize, add: &AddAddr) {
        let id = AddressId(add.address_id);
        if add.echo {
            cx.counters.echo_add += 1;
            if self.addresses.handle_echo(id) {
                self.announce_next(cx);
            }
            return;
        }
        cx.counters.add_addr += 1;
        let is_genuine = self.stream.negotiation.is_genuine(add);
        if !is_genuine || !self.addresses.has_room_for(id, cx.max_announced_addresses) {
            return self.answer(cx, position, Misbehaviour::AddressNotTaken);
        }
        if self.stream.negotiation.version() == MptcpVersion::V1
            && let Some(subflow) = self.subflows.get_mut(position)
        {
            subflow.state.owed.signal(MptcpOption::AddAddr(AddAddr { echo: true, hmac: None, ..*add }));
            subflow.tcp.request_ack();
        }
        if !self.can_be_reached(cx, add) {
            return self.answer(cx, position, Misbehaviour::AddressOfNobody);
        }
        let address = RemoteAddress { id, addr: add.addr, port: add.port };
        if !self.addresses.handle_announced(address) {
            return;
        }
        let port = add.port.unwrap_or(self.addresses.initial().remote.port);
        self.outbox.emit(Event::Announced { id, remote: Endpoint::new(add.addr, port) });
        self.notify_path_manager(cx, PathEvent::Announced(address));
    }

    pub(super) fn handle_remove_addr(&mut self, cx: &mut Context<'_>, remove: &RemoveAddr) {
        cx.counters.rm_addr += 1;
        for id in remove.address_ids.iter().copied().map(AddressId) {
            self.addresses.handle_withdrawn(id);
            self.outbox.emit(Event::Removed { id });
            self.notify_path_manager(cx, PathEvent::Withdrawn { id });
            self.probe_withdrawn(cx.now, id);
        }
    }

    pub(super) fn handle_prio(
        &mut self,
        cx: &mut Context<'_>,
        position: usize,
        backup: bool,
        id: Option<AddressId>,
    ) {
        if id.is_some() && self.stream.negotiation.version() == MptcpVersion::V1 {
            // Only version 0 has an option of that length.
            return self.answer(cx, position, Misbehaviour::PrioForAddress);
        }
        cx.counters.mp_prio_rx += 1;
        for (at, subflow) in self.subflows.iter_mut().enumerate() {
            let meant = id.map_or(at == position, |id| subflow.state.role.remote_id() == id);
            if meant {
                subflow.state.role.handle_prio(backup);
            }
        }
        self.scheduling.request();
    }
}
