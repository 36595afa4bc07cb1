//! TCP flows that end at the tunnel's near end, and go on by Multipath TCP to the far one, which opens them again.
//!
//! TCP over several paths as if they were one sees delays that change and rates that it finds slowly. Multipath TCP has a window for
//! each path. A SYN from inside is held while the other end asks the destination: what is refused there is refused here.
//!
//! Nothing here knows of paths but by their numbers: [`TcpSplit::poll_across`] says which one a segment takes.

mod addresses;
mod call;
mod carried;
mod memory;
mod pair;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use polypath_mptcp as mptcp;
use polypath_mptcp::path_manager::LocalEndpoint;
use polypath_tcp::{
    self as tcp, ConnectionId, ConnectionOption, HostEvent, ListenConfig, ListenerId, reset_in_reply,
};
use polypath_units::{Duration, Instant};
use polypath_wire::{Checksums, FourTuple, IcmpMessage, Packet, Segment, TcpFlags, Transport};

use addresses::{SERVICE, caller};
use call::{Answer, Read};
use carried::SAVED_BYTES;
pub(crate) use carried::{Carried, only_acknowledges};
pub(crate) use memory::SplitMemory;
pub use memory::TcpSplitConfig;
use memory::{Queue, Share};
use pair::{Pair, Room, Side, Stage, pass};

/// What a flow may hold in each direction towards its host here, and towards the peer.
const INSIDE_BYTES: u64 = 4 << 20;
const ACROSS_BYTES: u64 = 16 << 20;
/// SYNs that wait for a path; others come again.
const MOST_EARLY: usize = 64;
/// A counterpart that says nothing for so long is asked whether it still has the flow. That it began anew is told sooner.
const ASK_AFTER: Duration = Duration::from_secs(7_200);
/// A host that is asked whether it still lives is asked so often, with so much time between.
const HOST_PROBES: u8 = 4;
const HOST_PROBE_INTERVAL: Duration = Duration::from_secs(30);
/// Data that a host does not acknowledge is sent so often: for seven minutes or so.
const HOST_RETRIES: u8 = 11;
/// Gaps in what a host sends.
const MOST_GAPS: usize = 256;
/// What waits for memory is tried again after so long.
const TRY_AGAIN: Duration = Duration::from_millis(10);
/// Without flows for so long, there is nothing to keep.
const KEPT_IDLE: Duration = Duration::from_secs(60);

/// Number of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FlowId(u64);

/// What a connection's end means for the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    InOrder,
    Refused,
    Unreachable,
    Broken,
}

/// A path that Multipath TCP may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SplitPath {
    pub(crate) number: usize,
    /// For when no other works.
    pub(crate) is_backup: bool,
}

/// The flows with one peer.
pub(crate) struct TcpSplit {
    /// What hosts inside speak with.
    inside: tcp::Host,
    /// What the peer's counterpart speaks with.
    across: mptcp::Host,
    across_config: Arc<mptcp::ConnectionConfig>,
    across_listener: Option<ListenerId>,
    paths: Vec<SplitPath>,
    /// Of what goes to the peer's counterpart, as packets.
    mtu_bytes: u16,
    flows: BTreeMap<FlowId, Pair>,
    next: u64,
    by_tuple: BTreeMap<FourTuple, FlowId>,
    by_inside: BTreeMap<ConnectionId, FlowId>,
    by_across: BTreeMap<ConnectionId, FlowId>,
    /// SYNs that wait for a path.
    early: Vec<(FourTuple, Packet)>,
    /// Flows whose calls are read.
    called: Vec<FlowId>,
    /// When flows have to be open, in order.
    limits: VecDeque<(Instant, FlowId)>,
    /// Refusals for inside.
    answers: VecDeque<Packet>,
    /// The host inside may have something to say.
    speaks_inside: bool,
    memory: Arc<SplitMemory>,
    /// Flows that have data which waits for memory, and when to look again.
    held: (Option<Instant>, Vec<FlowId>),
    /// When it will have been without flows for long.
    over_at: Option<Instant>,
}

impl fmt::Debug for TcpSplit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpSplit").field("flows", &self.flows.len()).finish_non_exhaustive()
    }
}

impl TcpSplit {
    /// `mtu_bytes` is the longest packet inside; `seed` is secret.
    pub(crate) fn new(mtu_bytes: usize, seed: [u8; 32], memory: Arc<SplitMemory>) -> Self {
        let limits = *memory.config();
        // Those of flows that end count, too.
        let most_connections = 2 * limits.max_flows_of_peer;
        let mtu_bytes = mtu_bytes.min(usize::from(u16::MAX)) as u16;
        let connection = tcp::Config {
            mtu_bytes,
            max_aggregate_bytes: 0,
            receive_buffer_bytes: INSIDE_BYTES,
            send_buffer_bytes: INSIDE_BYTES,
            keepalive_idle: Some(limits.idle_timeout),
            keepalive_interval: HOST_PROBE_INTERVAL,
            keepalive_probes: HOST_PROBES,
            retries: HOST_RETRIES,
            max_reassembly_gaps: MOST_GAPS,
            ..tcp::Config::default()
        };
        let config = tcp::HostConfig {
            connection: Arc::new(connection),
            max_connections: most_connections,
            // The hosts at both ends of the flow keep it.
            max_time_wait: 0,
            ..tcp::HostConfig::default()
        };
        let [a, b, c, d, e, f, g, h, ..] = seed;
        let mut inside = tcp::Host::new(config, u64::from_le_bytes([a, b, c, d, e, f, g, h]));
        let backlog =
            ListenConfig { backlog: limits.max_flows_of_peer, backlog_per_source: limits.max_flows_of_peer };
        let _ = inside.listen_everywhere(backlog);
        let across_mtu_bytes = across_mtu(usize::from(mtu_bytes));
        let across_config = across_config(across_mtu_bytes);
        let config = mptcp::HostConfig {
            connection: Arc::clone(&across_config),
            max_connections: most_connections,
            backlog: limits.max_flows_of_peer,
            backlog_per_source: limits.max_flows_of_peer,
            max_time_wait: 0,
            receive_memory_bytes: limits.max_bytes / 4,
            ..mptcp::HostConfig::default()
        };
        let mut across = mptcp::Host::with_seed(config, seed);
        let across_listener = across.listen(SERVICE).ok();
        Self {
            inside,
            across,
            across_config,
            across_listener,
            paths: Vec::new(),
            mtu_bytes: across_mtu_bytes,
            flows: BTreeMap::new(),
            next: 0,
            by_tuple: BTreeMap::new(),
            by_inside: BTreeMap::new(),
            by_across: BTreeMap::new(),
            early: Vec::new(),
            called: Vec::new(),
            limits: VecDeque::new(),
            answers: VecDeque::new(),
            speaks_inside: false,
            memory,
            held: (None, Vec::new()),
            over_at: None,
        }
    }

    /// Flows that are here now.
    pub(crate) fn flow_count(&self) -> usize {
        self.flows.len()
    }

    /// Whether another flow may begin here.
    pub(crate) fn has_room(&mut self) -> bool {
        let most = self.memory.config().max_flows_of_peer;
        let most_half_open = (most / 4).max(1);
        if self.limits.len() >= most_half_open {
            // Those that have ended, or opened, are still among them.
            let flows = &self.flows;
            self.limits.retain(|(_, id)| flows.get(id).is_some_and(is_waiting));
        }
        self.limits.len() < most_half_open && self.flows.len() < most && self.memory.has_room()
    }

    /// Whether a packet from inside belongs to a flow that is here.
    pub(crate) fn has_flow(&self, flow: &FourTuple) -> bool {
        self.by_tuple.contains_key(flow)
    }

    /// These paths carry something now, and packets so long.
    pub(crate) fn set_paths(&mut self, now: Instant, paths: &[SplitPath], mtu_bytes: usize) {
        let mtu_bytes = across_mtu(mtu_bytes);
        if mtu_bytes != self.mtu_bytes {
            self.mtu_bytes = mtu_bytes;
            self.across_config = across_config(mtu_bytes);
            if let Some(listener) = self.across_listener {
                self.across.configure_listener(listener, Arc::clone(&self.across_config));
            }
        }
        if self.paths == paths {
            return;
        }
        for &path in paths.iter().filter(|path| !self.paths.contains(path)) {
            let endpoint = LocalEndpoint::subflow(caller(path.number), path.number as u8 + 1);
            self.across.add_endpoint(now, LocalEndpoint { backup: path.is_backup, ..endpoint });
        }
        let is_gone = |path: &&SplitPath| !paths.iter().any(|other| other.number == path.number);
        for path in self.paths.iter().filter(is_gone) {
            self.across.remove_endpoint(now, caller(path.number));
        }
        self.paths = paths.to_vec();
        if !paths.is_empty() {
            for (flow, syn) in std::mem::take(&mut self.early) {
                self.call(now, flow, syn);
            }
        }
    }

    /// A packet of TCP from inside, or what ICMP says of one of ours.
    pub(crate) fn handle_inside(&mut self, now: Instant, packet: Bytes) {
        let Ok(packet) = Packet::parse_with(packet, Checksums::Verify) else { return };
        self.speaks_inside = true;
        let (Some(tuple), Transport::Tcp(segment)) = (packet.receiver_tuple(), &packet.transport) else {
            // Of ICMP.
            self.inside.handle_packet(now, packet);
            self.settle(now);
            return;
        };
        let is_syn = segment.flags.syn() && !segment.flags.ack() && !segment.flags.rst();
        match self.by_tuple.get(&tuple).and_then(|id| self.flows.get(id)) {
            // It is asked again while the other end is, unless it has been given up.
            Some(Pair { stage: Stage::Calling(_), .. }) => {
                if segment.flags.rst()
                    && let Some(&flow) = self.by_tuple.get(&tuple)
                {
                    self.remove(now, flow);
                }
            }
            // What is left of the flow before has nothing to do with this one.
            Some(pair) if is_syn && pair.inside.is_gone() => self.call(now, tuple, packet),
            None if is_syn => self.call(now, tuple, packet),
            _ => self.inside.handle_packet(now, packet),
        }
        self.settle(now);
    }

    fn call(&mut self, now: Instant, flow: FourTuple, syn: Packet) {
        // Several may have waited for a path.
        if !self.has_room() {
            return;
        }
        let Some(path) = self.paths.iter().min_by_key(|path| path.is_backup) else {
            if self.early.len() < MOST_EARLY && !self.early.iter().any(|(known, _)| *known == flow) {
                self.early.push((flow, syn));
            }
            return;
        };
        let local = polypath_wire::Endpoint::new(caller(path.number), 0);
        let config = Some(Arc::clone(&self.across_config));
        let Ok(id) = self.across.connect(now, local, SERVICE, config) else { return };
        let _ = self.across.send(id, call::write(&flow).into());
        self.by_tuple.insert(flow, FlowId(self.next));
        self.insert(now, id, flow, Stage::Calling(Box::new(syn)));
    }

    fn insert(&mut self, now: Instant, across: ConnectionId, flow: FourTuple, stage: Stage) {
        let id = FlowId(self.next);
        self.next += 1;
        self.by_across.insert(across, id);
        self.limits.push_back((now + self.memory.config().open_timeout, id));
        self.over_at = None;
        let share = Share::new(&self.memory);
        self.flows
            .insert(id, Pair { flow, stage, inside: Side::default(), across: Side::new(across), share });
    }

    /// A segment from the peer's counterpart. `owns` says whether the peer may speak for an address.
    pub(crate) fn handle_across(&mut self, now: Instant, segment: Bytes, owns: &dyn Fn(IpAddr) -> bool) {
        let Some(packet) = carried::parse(segment) else { return };
        self.across.handle_packet(now, packet);
        self.settle(now);
        self.answer_calls(now, owns);
    }

    /// Opens flows whose calls are read.
    fn answer_calls(&mut self, now: Instant, owns: &dyn Fn(IpAddr) -> bool) {
        while let Some(id) = self.called.pop() {
            self.answer_call(now, id, owns);
        }
        self.settle(now);
    }

    fn answer_call(&mut self, now: Instant, id: FlowId, owns: &dyn Fn(IpAddr) -> bool) {
        let Some(pair) = self.flows.get_mut(&id) else { return };
        let Stage::Called(bytes) = &mut pair.stage else { return };
        let (flow, len) = match call::read(bytes) {
            Read::Whole(flow, len) => (flow, len),
            Read::TooShort => return,
            Read::Malformed => return self.remove(now, id),
        };
        pair.across.pending_mut().push(Bytes::from(bytes.split_off(len)));
        pair.stage = Stage::Asking;
        if !owns(flow.local.addr) {
            return self.answer(now, id, Answer::Refused);
        }
        // The source begins anew: it knows nothing of a flow with these ends.
        if let Some(&before) = self.by_tuple.get(&flow) {
            self.remove(now, before);
            // Its ends are free once the reset has left.
            while let Some(packet) = self.inside.poll_transmit(now) {
                self.answers.push_back(packet);
            }
        }
        // The caller's SYN comes again.
        let Ok(inside) = self.inside.connect(now, flow.local, flow.remote) else {
            return self.remove(now, id);
        };
        self.speaks_inside = true;
        self.by_tuple.insert(flow, id);
        self.by_inside.insert(inside, id);
        if let Some(pair) = self.flows.get_mut(&id) {
            pair.flow = flow;
            pair.inside.set_id(inside);
            let window = ConnectionOption::ReceiveBufferBytes(pair.share.window_bytes());
            self.inside.set_option(now, inside, window);
        }
    }

    /// Tells the caller.
    fn answer(&mut self, now: Instant, id: FlowId, answer: Answer) {
        let Some(pair) = self.flows.get_mut(&id) else { return };
        if let Some(across) = pair.across.id() {
            let _ = self.across.send(across, vec![answer.to_byte()].into());
        }
        if answer == Answer::Connected {
            pair.stage = Stage::Open;
            return self.pass(now, id);
        }
        pair.stage = Stage::Refused;
        pair.across.shut(now, &mut self.across);
    }

    /// Time passes.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.inside.handle_timeout(now);
        self.across.handle_timeout(now);
        self.speaks_inside = true;
        self.settle(now);
        while let Some(&(at, id)) = self.limits.front() {
            let is_waiting = self.flows.get(&id).is_some_and(is_waiting);
            if is_waiting && at > now {
                break;
            }
            self.limits.pop_front();
            if is_waiting {
                self.remove(now, id);
            }
        }
        if self.held.0.is_some_and(|at| at <= now) {
            self.held.0 = None;
            for id in std::mem::take(&mut self.held.1) {
                self.pass(now, id);
            }
        }
        let is_due = self.over_at.is_none_or(|at| at <= now);
        if is_due && self.flows.is_empty() && !self.is_over(now) {
            self.over_at = Some(now + KEPT_IDLE);
        }
    }

    /// Whether there have been no flows for long, and nothing is left of those that were.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.over_at.is_some_and(|at| at <= now)
            && self.flows.is_empty()
            && self.inside.population().connections + self.across.population().connections == 0
    }

    /// When to call [`TcpSplit::handle_timeout`] at the latest.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let limit = self.limits.front().map(|&(at, _)| at);
        let now = self.speaks_inside.then_some(Instant::ZERO);
        let over = self.flows.is_empty().then(|| self.over_at.unwrap_or(Instant::ZERO));
        let hosts = [self.inside.poll_timeout(), self.across.poll_timeout()];
        hosts.into_iter().chain([limit, now, self.held.0, over]).flatten().min()
    }

    /// The next segment for the peer's counterpart.
    pub(crate) fn poll_across(&mut self, now: Instant) -> Option<Carried> {
        loop {
            let Some(packet) = self.across.poll_transmit(now) else {
                if self.settle(now) {
                    continue;
                }
                return None;
            };
            if let Some(carried) = Carried::new(&packet) {
                return Some(carried);
            }
        }
    }

    /// The next packet for inside.
    pub(crate) fn poll_inside(&mut self, now: Instant) -> Option<Vec<u8>> {
        let packet = match self.answers.pop_front() {
            Some(answer) => Some(answer),
            None => self.inside.poll_transmit(now),
        };
        let Some(packet) = packet else {
            self.speaks_inside = false;
            return None;
        };
        let mut bytes = Vec::with_capacity(packet.len_bytes());
        packet.emit(&mut bytes);
        Some(bytes)
    }

    /// The peer has begun anew: flows that it knew are broken off.
    ///
    /// Returns a packet for each host on the peer's side, which nobody else tells: an acknowledgment that fits nothing. The host asks what
    /// is meant, and who is asked has been reset and answers so (RFC 9293 §3.10.7.4, RFC 5961 §5).
    pub(crate) fn abandon(&mut self, now: Instant) -> Vec<Packet> {
        let mut questions = Vec::new();
        for id in self.flows.keys().copied().collect::<Vec<_>>() {
            if let Some(pair) = self.flows.get(&id).filter(|pair| matches!(pair.stage, Stage::Open)) {
                let FourTuple { local: theirs, remote: ours } = pair.flow;
                let question = Segment { flags: TcpFlags::ACK, ..Segment::default() };
                questions.push(Packet::tcp(FourTuple { local: ours, remote: theirs }, question));
            }
            self.remove(now, id);
        }
        // What is said to the peer would only be answered by resets.
        while self.across.poll_transmit(now).is_some() {}
        self.speaks_inside = true;
        questions
    }

    /// Takes what the hosts tell. True if there was something.
    fn settle(&mut self, now: Instant) -> bool {
        let mut was_told = false;
        loop {
            if let Some((id, event)) = self.across.poll() {
                self.handle_across_event(now, id, event);
            } else if let Some((id, event)) = self.inside.poll() {
                self.handle_inside_event(now, id, event);
            } else {
                return was_told;
            }
            was_told = true;
        }
    }

    fn handle_across_event(&mut self, now: Instant, id: ConnectionId, event: mptcp::Event) {
        if let mptcp::Event::Accepted { .. } = event {
            if !self.has_room() {
                self.across.abort(now, id);
                self.across.release(now, id);
                return;
            }
            let nowhere = FourTuple { local: SERVICE, remote: SERVICE };
            return self.insert(now, id, nowhere, Stage::Called(Vec::new()));
        }
        let Some(&flow) = self.by_across.get(&id) else { return };
        let Some(pair) = self.flows.get_mut(&flow) else { return };
        match event {
            mptcp::Event::Readable => match &mut pair.stage {
                Stage::Calling(_) => self.hear_answer(now, flow),
                Stage::Called(bytes) => {
                    // What follows the call waits in the connection's own buffer.
                    while call::read(bytes) == Read::TooShort
                        && let Some(payload) = self.across.recv(id)
                    {
                        payload.slices().iter().for_each(|slice| bytes.extend_from_slice(slice));
                    }
                    if call::read(bytes) != Read::TooShort {
                        self.called.push(flow);
                    }
                }
                _ => self.pass(now, flow),
            },
            mptcp::Event::Writable => self.pass(now, flow),
            mptcp::Event::PeerFinished => {
                pair.across.mark_finished();
                self.pass(now, flow);
            }
            mptcp::Event::Closed(reason) => {
                let ending = match reason {
                    mptcp::CloseReason::Finished => Ending::InOrder,
                    _ => Ending::Broken,
                };
                self.end_across(now, flow, ending);
            }
            _ => {}
        }
    }

    /// The other end tells how the call went.
    fn hear_answer(&mut self, now: Instant, flow: FlowId) {
        let Some(pair) = self.flows.get_mut(&flow) else { return };
        let Some(mut payload) = pair.across.id().and_then(|id| self.across.recv(id)) else { return };
        let Some(&byte) = payload.slices().first().and_then(|slice| slice.first()) else { return };
        payload.advance(1);
        let Stage::Calling(syn) = std::mem::replace(&mut pair.stage, Stage::Open) else { return };
        pair.across.pending_mut().append(payload);
        self.speaks_inside = true;
        match Answer::from_byte(byte) {
            // The host answers it, and tells when the handshake is over.
            Answer::Connected => self.inside.handle_packet(now, *syn),
            refused => {
                self.answers.extend(refusal(&syn, pair.flow, refused));
                self.remove(now, flow);
            }
        }
    }

    fn handle_inside_event(&mut self, now: Instant, id: ConnectionId, event: HostEvent) {
        self.speaks_inside = true;
        if let HostEvent::Accepted { .. } = event {
            let flow = self.inside.tuple(id).and_then(|tuple| self.by_tuple.get(&tuple)).copied();
            let waits = flow.and_then(|flow| self.flows.get_mut(&flow));
            match (flow, waits.filter(|pair| pair.inside.id().is_none() && !pair.inside.is_gone())) {
                (Some(flow), Some(pair)) => {
                    pair.inside.set_id(id);
                    let window = ConnectionOption::ReceiveBufferBytes(pair.share.window_bytes());
                    self.inside.set_option(now, id, window);
                    self.by_inside.insert(id, flow);
                    self.pass(now, flow);
                }
                _ => {
                    self.inside.abort(id);
                    self.inside.release(id);
                }
            }
            return;
        }
        let Some(&flow) = self.by_inside.get(&id) else { return };
        match event {
            HostEvent::Connected => self.answer(now, flow, Answer::Connected),
            HostEvent::Readable | HostEvent::Writable => self.pass(now, flow),
            HostEvent::PeerFinished => {
                if let Some(pair) = self.flows.get_mut(&flow) {
                    pair.inside.mark_finished();
                }
                self.pass(now, flow);
            }
            HostEvent::Closed(reason) => {
                let ending = match reason {
                    tcp::CloseReason::Finished => Ending::InOrder,
                    tcp::CloseReason::Refused => Ending::Refused,
                    tcp::CloseReason::Unreachable | tcp::CloseReason::TimedOut => Ending::Unreachable,
                    _ => Ending::Broken,
                };
                self.end_inside(now, flow, ending);
            }
            HostEvent::Accepted { .. } => {}
        }
    }

    fn end_inside(&mut self, now: Instant, flow: FlowId, ending: Ending) {
        let Some(pair) = self.flows.get_mut(&flow) else { return };
        let answer = match ending {
            Ending::InOrder => {
                pair.inside.mark_closed();
                return self.pass(now, flow);
            }
            Ending::Refused => Answer::Refused,
            Ending::Unreachable | Ending::Broken => Answer::Unreachable,
        };
        if !matches!(pair.stage, Stage::Asking) {
            return self.remove(now, flow);
        }
        if let Some(id) = pair.inside.id() {
            self.by_inside.remove(&id);
        }
        pair.inside.abort(now, &mut self.inside);
        self.answer(now, flow, answer);
    }

    fn end_across(&mut self, now: Instant, flow: FlowId, ending: Ending) {
        let Some(pair) = self.flows.get_mut(&flow) else { return };
        if ending == Ending::InOrder && matches!(pair.stage, Stage::Open) {
            pair.across.mark_closed();
            return self.pass(now, flow);
        }
        // If it was never answered, its SYN will come again.
        self.remove(now, flow);
    }

    /// Passes on what came on either side, and forgets the flow when both are done.
    fn pass(&mut self, now: Instant, flow: FlowId) {
        let Some(pair) = self.flows.get_mut(&flow) else { return };
        if !matches!(pair.stage, Stage::Open) {
            return;
        }
        self.speaks_inside = true;
        let Pair { inside, across, share, .. } = pair;
        let (inside_id, across_id) = (inside.id(), across.id());
        let queued_bytes = across_id.map_or(0, |id| self.across.queued_bytes(id));
        let room = Room { queued_bytes, room_bytes: share.room_bytes(Queue::Across, queued_bytes) };
        let there = pass(now, (&mut self.inside, &mut *inside), (&mut self.across, &mut *across), room);
        if let Ok(passed) = &there {
            share.note_queued(Queue::Across, queued_bytes + passed.bytes);
            if let (Some(id), Some(window)) = (inside_id, share.grow_window(passed.bytes, INSIDE_BYTES)) {
                self.inside.set_option(now, id, ConnectionOption::ReceiveBufferBytes(window));
            }
        }
        let queued_bytes = match inside_id {
            // It takes no more, whatever there is room for.
            Some(_) if inside.is_shut() => share.queued_bytes(Queue::Inside),
            Some(id) => INSIDE_BYTES.saturating_sub(self.inside.send_room_bytes(id)),
            None => 0,
        };
        let room = Room { queued_bytes, room_bytes: share.room_bytes(Queue::Inside, queued_bytes) };
        let back = pass(now, (&mut self.across, &mut *across), (&mut self.inside, &mut *inside), room);
        if let Ok(passed) = &back {
            share.note_queued(Queue::Inside, queued_bytes + passed.bytes);
        }
        if [&there, &back].into_iter().flatten().any(|passed| passed.is_held) {
            self.held.0.get_or_insert(now + TRY_AGAIN);
            if !self.held.1.contains(&flow) {
                self.held.1.push(flow);
            }
        }
        let (is_inside_gone, is_across_gone) = (inside.id().is_none(), across.id().is_none());
        let is_over = there.is_err() || back.is_err() || (inside.is_gone() && across.is_gone());
        if let Some(id) = inside_id.filter(|_| is_inside_gone) {
            self.by_inside.remove(&id);
        }
        if let Some(id) = across_id.filter(|_| is_across_gone) {
            self.by_across.remove(&id);
        }
        if is_over {
            self.remove(now, flow);
        }
    }

    /// Forgets a flow; what is left of it is broken off.
    fn remove(&mut self, now: Instant, flow: FlowId) {
        let Some(mut pair) = self.flows.remove(&flow) else { return };
        if let Some(id) = pair.inside.id() {
            self.by_inside.remove(&id);
        }
        if let Some(id) = pair.across.id() {
            self.by_across.remove(&id);
        }
        if self.by_tuple.get(&pair.flow) == Some(&flow) {
            self.by_tuple.remove(&pair.flow);
        }
        pair.inside.abort(now, &mut self.inside);
        pair.across.abort(now, &mut self.across);
        self.speaks_inside = true;
    }
}

/// It is not open yet.
fn is_waiting(pair: &Pair) -> bool {
    !matches!(pair.stage, Stage::Open) || pair.inside.id().is_none() && !pair.inside.is_gone()
}

/// How long a packet may be whose segment takes the place of one that long.
fn across_mtu(mtu_bytes: usize) -> u16 {
    (mtu_bytes + SAVED_BYTES).min(usize::from(u16::MAX)) as u16
}

fn across_config(mtu_bytes: u16) -> Arc<mptcp::ConnectionConfig> {
    let default = mptcp::ConnectionConfig::default();
    let tcp = tcp::Config {
        mtu_bytes,
        max_aggregate_bytes: 0,
        receive_buffer_bytes: ACROSS_BYTES,
        send_buffer_bytes: ACROSS_BYTES,
        keepalive_idle: Some(ASK_AFTER),
        ..(*default.tcp).clone()
    };
    Arc::new(mptcp::ConnectionConfig {
        tcp: Arc::new(tcp),
        // Nobody on the way drops options.
        syn_retries_before_fallback: u8::MAX,
        no_subflow_timeout: ASK_AFTER,
        ..default
    })
}

/// What a host inside is told of a flow that could not be opened.
fn refusal(syn: &Packet, flow: FourTuple, answer: Answer) -> Option<Packet> {
    let Transport::Tcp(segment) = &syn.transport else { return None };
    if answer == Answer::Refused {
        return reset_in_reply(segment).map(|reset| Packet::tcp(flow, reset));
    }
    /// Host unreachable, in both families' words as [`IcmpMessage`] has them.
    const HOST_UNREACHABLE: u8 = 1;
    let message =
        IcmpMessage::Unreachable { code: HOST_UNREACHABLE, flow: flow.reversed(), seq: segment.seq };
    let header = Packet::tcp(flow, Segment::default()).ip;
    Some(Packet { ip: header, transport: Transport::Icmp(message) })
}
