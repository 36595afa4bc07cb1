//! Two production hosts, the network between them, and their applications, in virtual time.

use std::collections::BTreeMap;

use polypath_mptcp::{ConnectionId, Event, Host};
use polypath_units::{Duration, Instant};
use polypath_wire::{Endpoint, FourTuple, Packet};

use super::application::Application;
use super::failure::{Finding, FindingKind};
use super::invariants;
use super::network::Network;
use super::op::Pace;
use super::setup::{PORT, Setup, Side, Strength, client_addr, server_addr};
use super::sniffer::Sniffer;

/// Deadlines that a host may have in a row without that time passes.
const MOST_TIMEOUTS_AT_ONCE: u32 = 64;
/// Packets that the hosts may exchange without that an application reads, opens or ends anything.
const MOST_PACKETS_WITHOUT_PROGRESS: u64 = 30_000;

/// How often the state of a host's connections is looked at, besides after each operation.
const STEPS_BETWEEN_LOOKS: u64 = 8;

/// All of a run.
#[derive(Debug)]
pub(super) struct World {
    pub(super) now: Instant,
    pub(super) setup: Setup,
    pub(super) hosts: [Host; 2],
    pub(super) network: Network,
    pub(super) applications: Vec<Application>,
    by_id: [BTreeMap<ConnectionId, usize>; 2],
    /// Of the flows between the hosts.
    pub(super) sniffer: Sniffer,
    /// Of those between a host and anybody else.
    pub(super) strangers: Sniffer,
    connections: u64,
    pub(super) packets: u64,
    packets_at_progress: u64,
    pub(super) finished_connections: u64,
    pub(super) established_subflows: u64,
    timeouts_at_once: [u32; 2],
    /// Applications let go of what they get, and of what they have.
    lets_go: bool,
    steps: u64,
    /// One line a packet, if wanted.
    pub(super) log: Option<Vec<String>>,
}

impl World {
    pub(super) fn new(setup: Setup) -> Self {
        let [client, server] = &setup.hosts;
        let mut hosts =
            [Host::new(client.clone(), 2 * setup.seed), Host::new(server.clone(), 2 * setup.seed + 1)];
        for number in 0..setup.server_addrs {
            // Nothing else listens there.
            let _listener = hosts[1].listen(Endpoint::new(server_addr(number), PORT));
        }
        Self {
            now: Instant::from_secs(1),
            hosts,
            network: Network::new(&setup),
            applications: Vec::new(),
            by_id: [BTreeMap::new(), BTreeMap::new()],
            sniffer: Sniffer::default(),
            strangers: Sniffer::default(),
            connections: 0,
            packets: 0,
            packets_at_progress: 0,
            finished_connections: 0,
            established_subflows: 0,
            timeouts_at_once: [0; 2],
            lets_go: false,
            steps: 0,
            log: None,
            setup,
        }
    }

    pub(super) fn checks_bytes(&self) -> bool {
        self.setup.strength != Strength::OnPath
    }

    pub(super) fn host(&mut self, side: Side) -> &mut Host {
        &mut self.hosts[side.index()]
    }

    /// Both ends of this flow are the hosts'.
    pub(super) fn is_own(tuple: &FourTuple) -> bool {
        let is_host = |endpoint: Endpoint| match endpoint.addr {
            std::net::IpAddr::V4(addr) => addr.octets()[..2] == [10, 0],
            std::net::IpAddr::V6(_) => false,
        };
        is_host(tuple.local) && is_host(tuple.remote)
    }

    pub(super) fn connect(&mut self, link: u8, number: u8) -> Result<(), Finding> {
        let link = usize::from(link) % self.setup.links.len();
        let remote = Endpoint::new(server_addr(usize::from(number) % self.setup.server_addrs), PORT);
        let local = Endpoint::new(client_addr(link), 0);
        let now = self.now;
        let Ok(id) = self.host(Side::Client).connect(now, local, remote, None) else { return Ok(()) };
        self.connections += 1;
        self.adopt(Application::new(Side::Client, id, self.connections, self.checks_bytes()));
        self.flush(Side::Client)
    }

    fn adopt(&mut self, application: Application) {
        self.by_id[application.side.index()].insert(application.id, self.applications.len());
        self.applications.push(application);
    }

    /// A connection was accepted: whose is it?
    fn accept(&mut self, id: ConnectionId) {
        let accepted = flows(&self.hosts[1], id);
        let is_one = |flow: &FourTuple| accepted.contains(&flow.reversed());
        let clients = self.applications.iter();
        let is_other_end = |client: &Application| {
            client.side == Side::Client
                && !client.released
                && flows(&self.hosts[0], client.id).iter().any(is_one)
        };
        // A client that lost its subflow before the server knew of it goes on by MP_JOIN, if its third ACK comes late.
        let waits = |client: &Application| {
            client.peer.is_none() && !client.is_over() && client.flows.iter().any(is_one)
        };
        let peer = clients.clone().position(is_other_end).or_else(|| clients.clone().position(waits));
        // A SYN cookie is good until it is too old (RFC 4987 §3.6): after a reset that was lost, what the client sent may open a
        // second connection, which knows nothing of the first, and has its keys. A client that lost its subflows may join that.
        let had = |client: &Application| client.peer.is_some() && client.flows.iter().any(is_one);
        let joining = if peer.is_none() { clients.clone().position(had) } else { None };
        if let Some(client) = joining {
            self.applications[client].checks_bytes = false;
        }
        let mut application = Application::new(Side::Server, id, 0, false);
        let own = self.applications.len();
        if let Some((number, client)) = peer.map(|peer| (peer, &mut self.applications[peer])) {
            client.checks_bytes &= client.peer.is_none();
            application = client.other_end(id);
            (application.peer, client.peer) = (Some(number), Some(own));
        }
        self.adopt(application);
    }

    // ---- time

    fn next_read(&self) -> Instant {
        let reads = self.applications.iter().filter(|application| !application.is_over());
        reads.map(|application| application.next_read).min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// When something happens next.
    fn next_at(&self) -> Option<Instant> {
        let timeouts = [self.hosts[0].poll_timeout(), self.hosts[1].poll_timeout()];
        let times = timeouts.into_iter().chain([self.network.next_arrival(), Some(self.next_read())]);
        times.flatten().min().filter(|at| *at != Instant::FAR_FUTURE)
    }

    pub(super) fn next_happens_before(&self, end: Instant) -> bool {
        self.next_at().is_some_and(|at| at <= end)
    }

    /// The next thing happens, if it is due before `until`; false if nothing is.
    pub(super) fn step(&mut self, until: Instant) -> Result<bool, Finding> {
        let Some(next) = self.next_at().filter(|at| *at <= until) else { return Ok(false) };
        if next > self.now {
            self.timeouts_at_once = [0; 2];
            self.now = next;
        }
        if let Some((to, packet)) = self.network.arrive(self.now) {
            self.deliver(to, packet)?;
            return Ok(true);
        }
        if self.next_read() <= self.now {
            self.work_all()?;
        }
        for side in [Side::Client, Side::Server] {
            if self.hosts[side.index()].poll_timeout().is_some_and(|at| at <= self.now) {
                self.handle_timeout(side)?;
            }
        }
        Ok(true)
    }

    fn handle_timeout(&mut self, side: Side) -> Result<(), Finding> {
        let now = self.now;
        self.host(side).handle_timeout(now);
        self.timeouts_at_once[side.index()] += 1;
        if self.timeouts_at_once[side.index()] > MOST_TIMEOUTS_AT_ONCE {
            let details = format!("{side:?}: {MOST_TIMEOUTS_AT_ONCE} timeouts at {now}");
            return Err(Finding::new(FindingKind::BusyLoop, details));
        }
        self.flush(side)
    }

    fn deliver(&mut self, to: Side, packet: Packet) -> Result<(), Finding> {
        if let Some(log) = &mut self.log {
            log.push(format!("{} to {to:?}: {packet}", self.now));
        }
        let now = self.now;
        self.host(to).handle_packet(now, packet);
        self.flush(to)
    }

    /// Runs until `end`.
    pub(super) fn run_until(&mut self, end: Instant) -> Result<(), Finding> {
        while self.step(end)? {}
        self.now = self.now.max(end);
        Ok(())
    }

    // ---- what the hosts say

    /// Sends what a host has to send, tells its applications what happened, and lets them go on.
    pub(super) fn flush(&mut self, side: Side) -> Result<(), Finding> {
        loop {
            while let Some(packet) = self.hosts[side.index()].poll_transmit(self.now) {
                self.transmit(side, packet)?;
            }
            let mut moved = false;
            while let Some((id, event)) = self.hosts[side.index()].poll() {
                moved = true;
                self.notify(side, id, &event)?;
            }
            if !moved {
                break;
            }
        }
        // The state of connections is looked at now and then: to look costs more than a packet does.
        self.steps += 1;
        if self.steps.is_multiple_of(STEPS_BETWEEN_LOOKS) {
            invariants::after_step(&self.hosts, &self.applications, side)
        } else {
            Ok(())
        }
    }

    fn transmit(&mut self, side: Side, packet: Packet) -> Result<(), Finding> {
        self.packets += 1;
        if self.packets - self.packets_at_progress > MOST_PACKETS_WITHOUT_PROGRESS {
            let details = format!("{MOST_PACKETS_WITHOUT_PROGRESS} packets without progress; last {packet}");
            return Err(Finding::new(FindingKind::Storm, details));
        }
        if let Some(log) = &mut self.log {
            log.push(format!("{} from {side:?}: {packet}", self.now));
        }
        let Some(tuple) = packet.receiver_tuple() else { return Ok(()) };
        if Self::is_own(&tuple) {
            self.sniffer.observe(&packet);
            self.network.send(self.now, side, packet);
        } else {
            self.strangers.observe(&packet);
        }
        Ok(())
    }

    pub(super) fn note_progress(&mut self) {
        self.packets_at_progress = self.packets;
    }

    fn notify(&mut self, side: Side, id: ConnectionId, event: &Event) -> Result<(), Finding> {
        if let Some(log) = &mut self.log {
            log.push(format!("{} {side:?} {id:?}: {event:?}", self.now));
        }
        if matches!(event, Event::Accepted { .. }) {
            self.accept(id);
        }
        let Some(number) = self.by_id[side.index()].get(&id).copied() else { return Ok(()) };
        self.applications[number].note(event);
        if matches!(event, Event::Connected | Event::SubflowEstablished { .. }) {
            let flows = flows(&self.hosts[side.index()], id);
            self.applications[number].flows.extend(flows);
        }
        match event {
            Event::Accepted { .. } | Event::Connected | Event::PeerFinished => self.note_progress(),
            Event::SubflowEstablished { .. } => self.established_subflows += 1,
            Event::Closed(_) => {
                self.note_progress();
                self.finished_connections += 1;
            }
            _ => {}
        }
        self.work(number)?;
        invariants::at_end(&self.applications, number)?;
        if self.lets_go { self.release(number) } else { Ok(()) }
    }

    /// An application goes on.
    pub(super) fn work(&mut self, number: usize) -> Result<(), Finding> {
        let application = &mut self.applications[number];
        if application.work(self.now, &mut self.hosts[application.side.index()])? {
            self.note_progress();
        }
        invariants::at_end(&self.applications, number)
    }

    /// All applications go on.
    pub(super) fn work_all(&mut self) -> Result<(), Finding> {
        for number in 0..self.applications.len() {
            self.work(number)?;
        }
        self.flush(Side::Client)?;
        self.flush(Side::Server)
    }

    /// Lets an application go.
    pub(super) fn release(&mut self, number: usize) -> Result<(), Finding> {
        let (now, application) = (self.now, &mut self.applications[number]);
        if application.released {
            return Ok(());
        }
        application.released = true;
        let (side, id) = (application.side, application.id);
        self.host(side).release(now, id);
        self.by_id[side.index()].remove(&id);
        self.flush(side)
    }

    // ---- the end of a run

    /// The network is whole, attackers are silent, applications read and write on and end their streams: everything must come to
    /// its end, and both hosts must be empty.
    pub(super) fn settle(&mut self) -> Result<(), Finding> {
        self.network.mend(self.now);
        self.note_progress();
        for application in &mut self.applications {
            application.pace = Pace::Eager;
            application.next_read = Instant::FAR_FUTURE;
            application.wants_shutdown = true;
        }
        self.work_all()?;
        let most = match self.checks_bytes() {
            false => 70,
            true if self.setup.measures_after_losses() => 600,
            true => 1800,
        };
        let deadline = self.now + Duration::from_secs(most);
        while self.applications.iter().any(|application| !application.is_over()) && self.step(deadline)? {
            // A connection that is accepted only now ends its stream as well.
            let newest = self.applications.len() - 1;
            if !self.applications[newest].wants_shutdown {
                self.applications[newest].wants_shutdown = true;
                self.work(newest)?;
                let side = self.applications[newest].side;
                self.flush(side)?;
            }
        }
        invariants::at_rest(&self.setup, &self.hosts, &self.applications)?;
        self.lets_go = true;
        for number in 0..self.applications.len() {
            self.release(number)?;
        }
        self.run_until(self.now + Duration::from_secs(700))?;
        invariants::empty(&self.hosts)
    }
}

/// Flows that a connection has.
fn flows(host: &Host, id: ConnectionId) -> Vec<FourTuple> {
    host.info(id).map_or(Vec::new(), |info| info.subflows.iter().map(|flow| flow.tuple).collect())
}
