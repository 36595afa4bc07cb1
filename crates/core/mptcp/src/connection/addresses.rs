//! Addresses of both ends, and who decides about them (RFC 8684 §3.4).

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;

use polypath_units::{Duration, Instant};
use polypath_wire::{FourTuple, MptcpVersion};

use super::asked_subflows::{Asked, AskedSubflows};
use crate::identifiers::{AddressId, SubflowId};
use crate::path_manager::{PathAction, PathEvent, PathManager, PathView, RemoteAddress};

/// How often an ADD_ADDR is sent while no echo comes: over four minutes, each time after twice as long. Version 0 has no echo.
const ANNOUNCEMENTS: u8 = 8;
const ANNOUNCEMENTS_IN_V0: u8 = 3;

/// The path manager, what it goes by, and what it has begun.
#[derive(Debug)]
pub(super) struct Addresses {
    manager: Box<dyn PathManager>,
    initial: FourTuple,
    /// What the peer announced.
    announced: Vec<RemoteAddress>,
    /// ADD_ADDRs to send; none once each is known.
    outgoing: Option<Box<Outgoing>>,
    wake_at: Instant,
    asked: AskedSubflows,
}

/// Addresses of ours that the peer is to know: the front one is on its way until it is echoed, or has its turn again after the
/// others.
#[derive(Debug)]
struct Outgoing {
    queue: VecDeque<Announcement>,
    retry_at: Instant,
}

/// An address of ours that the peer is to know.
#[derive(Clone, Copy, Debug)]
pub(super) struct Announcement {
    pub(super) id: AddressId,
    pub(super) addr: IpAddr,
    pub(super) port: Option<u16>,
    sent: u8,
}

impl Addresses {
    pub(super) fn new(manager: Box<dyn PathManager>, initial: FourTuple) -> Self {
        Self {
            manager,
            initial,
            announced: Vec::new(),
            outgoing: None,
            wake_at: Instant::FAR_FUTURE,
            asked: AskedSubflows::default(),
        }
    }

    // ---- the path manager

    /// What the path manager makes of an event; of `view`, what it knows of addresses is added here.
    pub(super) fn decide(&mut self, event: &PathEvent, view: PathView<'_>) -> Vec<PathAction> {
        let view = PathView {
            initial_local: self.initial.local.addr,
            initial_remote: self.initial.remote,
            announced: &self.announced,
            ..view
        };
        let mut actions = Vec::new();
        self.manager.handle_event(event, &view, &mut actions);
        actions
    }

    /// See [`PathManager::breaks_first`].
    pub(super) fn breaks_first(&self) -> bool {
        self.manager.breaks_first()
    }

    /// It wants to be woken then, or before.
    pub(super) fn wake_at(&mut self, at: Instant) {
        self.wake_at = self.wake_at.min(at);
    }

    /// It is to be woken; once.
    pub(super) fn take_wake(&mut self, now: Instant) -> bool {
        let is_due = self.wake_at <= now;
        if is_due {
            self.wake_at = Instant::FAR_FUTURE;
        }
        is_due
    }

    // ---- the first pair

    /// Both ends of the initial subflow.
    pub(super) const fn initial(&self) -> FourTuple {
        self.initial
    }

    /// Another handshake than the first was answered.
    pub(super) fn set_initial(&mut self, initial: FourTuple) {
        self.initial = initial;
    }

    // ---- ours

    /// The peer is to know an address; true if that leaves at once.
    pub(super) fn announce(&mut self, id: AddressId, addr: IpAddr, port: Option<u16>) -> bool {
        let new = Announcement { id, addr, port, sent: 0 };
        let outgoing = self.outgoing.get_or_insert_with(|| {
            Box::new(Outgoing { queue: VecDeque::new(), retry_at: Instant::FAR_FUTURE })
        });
        // One that has been repeated may go unanswered for long.
        let is_next = outgoing.queue.front().is_none_or(|front| front.sent > 1);
        if is_next {
            outgoing.queue.push_front(new);
        } else {
            outgoing.queue.push_back(new);
        }
        is_next
    }

    /// An address of ours is gone (RFC 8684 §3.4.2): it is announced no more. True if the next announcement may follow.
    pub(super) fn withdraw(&mut self, id: AddressId) -> bool {
        let Some(outgoing) = &mut self.outgoing else { return false };
        let is_front = outgoing.queue.front().is_some_and(|front| front.id == id);
        outgoing.queue.retain(|waiting| waiting.id != id);
        is_front
    }

    /// The announcement that leaves now; the next follows its echo, or `timeout`.
    pub(super) fn poll_announcement(
        &mut self,
        now: Instant,
        version: MptcpVersion,
        timeout: Duration,
    ) -> Option<Announcement> {
        let most = if version == MptcpVersion::V1 { ANNOUNCEMENTS } else { ANNOUNCEMENTS_IN_V0 };
        let outgoing = self.outgoing.as_mut()?;
        outgoing.queue.retain(|waiting| waiting.sent < most);
        let Some(front) = outgoing.queue.front_mut() else {
            self.outgoing = None;
            return None;
        };
        let doublings = if version == MptcpVersion::V1 { front.sent } else { 0 };
        front.sent += 1;
        outgoing.retry_at = now + Duration::from_nanos(timeout.as_nanos() << doublings);
        Some(*front)
    }

    /// No echo came in time: the next announcement has its turn.
    pub(super) fn is_echo_overdue(&mut self, now: Instant) -> bool {
        let Some(outgoing) = self.outgoing.as_mut().filter(|outgoing| outgoing.retry_at <= now) else {
            return false;
        };
        if outgoing.queue.len() > 1 {
            outgoing.queue.rotate_left(1);
        }
        true
    }

    /// The peer has heard of an address; true if the next announcement may follow.
    pub(super) fn handle_echo(&mut self, id: AddressId) -> bool {
        let Some(outgoing) = &mut self.outgoing else { return false };
        let is_front = outgoing.queue.front().is_some_and(|front| front.id == id);
        outgoing.queue.retain(|waiting| waiting.sent == 0 || waiting.id != id);
        is_front
    }

    // ---- the peer's

    /// One more address is remembered, if no more than so many are.
    pub(super) fn has_room_for(&self, id: AddressId, most: usize) -> bool {
        self.announced.len() < most || self.announced.iter().any(|known| known.id == id)
    }

    /// The peer announced an address; false if that is no news.
    pub(super) fn handle_announced(&mut self, address: RemoteAddress) -> bool {
        match self.announced.iter_mut().find(|known| known.id == address.id) {
            Some(known) if *known == address => return false,
            Some(known) => *known = address,
            None => self.announced.push(address),
        }
        true
    }

    /// The peer withdrew an address.
    pub(super) fn handle_withdrawn(&mut self, id: AddressId) {
        self.announced.retain(|address| address.id != id);
    }

    // ---- subflows that are asked whether they still work

    /// A subflow is asked already.
    pub(super) fn is_asked(&self, id: SubflowId) -> bool {
        self.asked.is_asked(id)
    }

    /// See [`AskedSubflows::ask`].
    pub(super) fn ask(&mut self, id: SubflowId, now: Instant, due_at: Instant) {
        self.asked.ask(id, now, due_at);
    }

    /// See [`AskedSubflows::unanswered`].
    pub(super) fn unanswered(&self, now: Instant) -> Option<Asked> {
        self.asked.unanswered(now)
    }

    /// See [`AskedSubflows::ask_again`].
    pub(super) fn ask_again(&mut self, id: SubflowId, due_at: Instant) {
        self.asked.ask_again(id, due_at);
    }

    /// See [`AskedSubflows::stop_asking`].
    pub(super) fn stop_asking(&mut self, id: SubflowId) {
        self.asked.stop_asking(id);
    }

    // ---- timers

    #[inline]
    pub(super) fn next_timeout(&self) -> Instant {
        let retry_at = self.outgoing.as_ref().map_or(Instant::FAR_FUTURE, |outgoing| outgoing.retry_at);
        retry_at.min(self.wake_at).min(self.asked.next_timeout())
    }

    /// The connection is over.
    pub(super) fn stop(&mut self) {
        self.outgoing = None;
        self.wake_at = Instant::FAR_FUTURE;
        self.asked = AskedSubflows::default();
    }
}
