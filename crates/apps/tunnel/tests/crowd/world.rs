//! A server and many clients, each behind translators of addresses, in virtual time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;

use polypath_tunnel::key::PrivateKey;
use polypath_tunnel::{
    Engine, EngineConfig, LocalId, PACKET_ROOM_BYTES, PathId, PathSettings, PeerConfig, PeerId,
};
use polypath_units::{Duration, Instant};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Uplinks of a client, of which two carry paths.
const UPLINKS: usize = 3;
const SERVER: &str = "203.0.113.1:51820";
/// Timeouts of one engine in a second that are a mistake.
const MOST_TIMEOUTS: u32 = 2_000;

struct Uplink {
    delay: Duration,
    /// Lost of a thousand.
    loss: u32,
    works: bool,
    /// The translator gave it so many addresses.
    mapping: u16,
}

pub(crate) struct Client {
    pub(crate) engine: Engine,
    pub(crate) server: PeerId,
    /// Its number at the server.
    pub(crate) at_server: PeerId,
    pub(crate) paths: [PathId; 2],
    /// The uplink of each path, and whether the driver says that it is up.
    pub(crate) on: [(usize, bool); 2],
    uplinks: [Uplink; UPLINKS],
    /// Since when nothing has changed.
    pub(crate) quiet_since: Instant,
    /// Packets that were sent in quiet times, and those of them that came: to the server, and from it.
    pub(crate) sent: [u32; 2],
    pub(crate) came: [u32; 2],
    /// Sent since the last change, and came.
    pub(crate) lately: [(u32, u32); 2],
}

enum Event {
    ToServer { from: SocketAddr, bytes: Vec<u8> },
    ToClient { client: usize, uplink: usize, bytes: Vec<u8> },
    Timer { end: Option<usize> },
    Traffic { client: usize },
    Change { client: usize },
    Restore { client: usize, uplink: usize },
}

pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) server: Engine,
    pub(crate) clients: Vec<Client>,
    events: BinaryHeap<Reverse<(Instant, u64)>>,
    pending: BTreeMap<u64, Event>,
    number: u64,
    /// When the timer of the server, and of each client, goes off.
    timers: Vec<Option<Instant>>,
    timeouts: Vec<(u64, u32)>,
    random: Pcg64Mcg,
    pub(crate) changes: u64,
}

fn engine(key: PrivateKey, peers: Vec<PeerConfig>, seed: u64) -> Engine {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let config = EngineConfig { peers, ..EngineConfig::new(key) };
    Engine::new(config, Duration::from_secs(1_700_000_000), Box::new(move |bytes| random.fill_bytes(bytes)))
}

fn key(number: usize) -> PrivateKey {
    let mut bytes = [3; 32];
    // The first byte's last bits do not count in a key.
    bytes[8..16].copy_from_slice(&(number as u64).to_le_bytes());
    PrivateKey::from_random(bytes)
}

fn inside(client: usize) -> [u8; 4] {
    [10, 1, (client >> 8) as u8, client as u8]
}

/// Sent between two addresses with the time of the last change.
fn packet(from: [u8; 4], to: [u8; 4], since: Instant) -> Box<[u8]> {
    const LEN: usize = 300;
    let mut packet = vec![0; PACKET_ROOM_BYTES + LEN];
    let inner = &mut packet[PACKET_ROOM_BYTES..];
    inner[0] = 0x45;
    inner[2..4].copy_from_slice(&(LEN as u16).to_be_bytes());
    inner[9] = 17;
    inner[12..16].copy_from_slice(&from);
    inner[16..20].copy_from_slice(&to);
    inner[28..36].copy_from_slice(&since.as_nanos().to_be_bytes());
    packet.into()
}

impl World {
    pub(crate) fn new(count: usize, seed: u64) -> Self {
        let now = Instant::from_secs(1);
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let server_ip = [10, 1, 255, 1];
        let allowed = |address: [u8; 4]| format!("{}/32", std::net::Ipv4Addr::from(address)).parse().unwrap();
        let of_server = |number| {
            let mut peer = PeerConfig::new(key(number).public_key());
            peer.allowed_ips.push(if number == 0 { allowed(server_ip) } else { allowed(inside(number - 1)) });
            peer
        };
        let server = engine(key(0), (1..=count).map(of_server).collect(), seed);
        let clients = (0..count)
            .map(|at| {
                let own = key(at + 1);
                let at_server = server.peer_by_key(&own.public_key()).unwrap();
                let mut engine = engine(own, vec![of_server(0)], seed + 1 + at as u64);
                let peer = engine.peer_ids().next().unwrap();
                let paths = [0, 1].map(|path| {
                    let (local, to) = (LocalId(path), SERVER.parse().unwrap());
                    engine.add_path(now, peer, local, to, PathSettings::default()).unwrap()
                });
                let uplinks = [(); UPLINKS].map(|()| Uplink {
                    delay: Duration::from_millis(5 + u64::from(random.next_u32() % 80)),
                    loss: random.next_u32() % 30,
                    works: true,
                    mapping: 0,
                });
                let (on, quiet_since) = ([(0, true), (1, true)], now);
                let (sent, came, lately) = ([0; 2], [0; 2], [(0, 0); 2]);
                Client {
                    engine,
                    server: peer,
                    at_server,
                    paths,
                    on,
                    uplinks,
                    quiet_since,
                    sent,
                    came,
                    lately,
                }
            })
            .collect();
        let mut world = Self {
            now,
            server,
            clients,
            events: BinaryHeap::new(),
            pending: BTreeMap::new(),
            number: 0,
            timers: vec![None; count + 1],
            timeouts: vec![(0, 0); count + 1],
            random,
            changes: 0,
        };
        for client in 0..count {
            world.timers[client + 1] = Some(now + Duration::from_millis(10 * client as u64));
            world.after(Duration::from_millis(10 * client as u64), Event::Timer { end: Some(client) });
            world.after(Duration::from_secs(15), Event::Traffic { client });
            let first = Duration::from_secs(20 + world.below(20));
            world.after(first, Event::Change { client });
        }
        world
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.next_u64() % bound
    }

    fn after(&mut self, span: Duration, event: Event) {
        self.number += 1;
        self.pending.insert(self.number, event);
        self.events.push(Reverse((self.now + span, self.number)));
    }

    /// Lets time pass.
    pub(crate) fn run_until(&mut self, until: Instant) {
        while let Some(&Reverse((at, number))) = self.events.peek() {
            if at > until {
                break;
            }
            self.events.pop();
            self.now = at;
            if let Some(event) = self.pending.remove(&number) {
                self.handle(event);
            }
        }
        self.now = until;
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::ToServer { from, mut bytes } => {
                let mut came = Vec::new();
                self.server.handle_datagram(self.now, LocalId(0), from, &mut bytes, &mut |packet| {
                    came.push((usize::from(packet[14]) << 8 | usize::from(packet[15]), since(packet)));
                });
                came.into_iter().for_each(|(client, since)| self.clients[client].note_came(0, since));
                self.flush(None);
            }
            Event::ToClient { client, uplink, mut bytes } => {
                let (now, local, from) = (self.now, LocalId(uplink as u16), SERVER.parse().unwrap());
                let mut came = Vec::new();
                let one = &mut self.clients[client];
                one.engine
                    .handle_datagram(now, local, from, &mut bytes, &mut |packet| came.push(since(packet)));
                came.into_iter().for_each(|since| one.note_came(1, since));
                self.flush(Some(client));
            }
            Event::Timer { end } => self.handle_timer(end),
            Event::Traffic { client } => self.traffic(client),
            Event::Change { client } => self.change(client),
            Event::Restore { client, uplink } => {
                let one = &mut self.clients[client];
                one.uplinks[uplink].works = true;
                one.note_change(self.now);
                for (path, on) in one.on.iter_mut().enumerate() {
                    if on.0 == uplink && !on.1 {
                        on.1 = true;
                        one.engine.set_path_up(self.now, one.server, one.paths[path], true);
                    }
                }
                self.flush(Some(client));
            }
        }
    }

    fn handle_timer(&mut self, end: Option<usize>) {
        let slot = end.map_or(0, |client| client + 1);
        // Another was set since.
        if self.timers[slot] != Some(self.now) {
            return;
        }
        self.timers[slot] = None;
        let second = self.now.as_millis() / 1_000;
        let (at, count) = &mut self.timeouts[slot];
        (*at, *count) = if *at == second { (second, *count + 1) } else { (second, 1) };
        let most = if end.is_none() { MOST_TIMEOUTS * 5 } else { MOST_TIMEOUTS };
        assert!(*count < most, "{end:?} spins at {}", self.now);
        let now = self.now;
        let mut came = Vec::new();
        match end {
            None => self.server.handle_timeout(now, &mut |packet| {
                came.push((usize::from(packet[14]) << 8 | usize::from(packet[15]), 0, since(packet)));
            }),
            Some(client) => {
                let engine = &mut self.clients[client].engine;
                engine.handle_timeout(now, &mut |packet| came.push((client, 1, since(packet))));
            }
        }
        came.into_iter().for_each(|(client, way, since)| self.clients[client].note_came(way, since));
        self.flush(end);
    }

    fn traffic(&mut self, client: usize) {
        let quiet_since = self.clients[client].quiet_since;
        let is_quiet = self.now >= quiet_since + SETTLES && self.clients[client].is_connected();
        let since = if is_quiet { quiet_since } else { Instant::ZERO };
        let (here, there) = (inside(client), [10, 1, 255, 1]);
        let one = &mut self.clients[client];
        one.engine.handle_packet(self.now, packet(here, there, since));
        self.server.handle_packet(self.now, packet(there, here, since));
        if is_quiet {
            (0..2).for_each(|way| {
                (one.sent[way], one.lately[way].0) = (one.sent[way] + 1, one.lately[way].0 + 1)
            });
        }
        let wait = Duration::from_millis(300 + self.below(700));
        self.after(wait, Event::Traffic { client });
        self.flush(Some(client));
        self.flush(None);
    }

    /// Something happens to a client's uplinks.
    fn change(&mut self, client: usize) {
        self.changes += 1;
        let (kind, path, span) = (self.below(6), self.below(2) as usize, self.below(6_000));
        let span = Duration::from_millis(200 + span);
        let now = self.now;
        let one = &mut self.clients[client];
        if !one.is_served() {
            let here = one.engine.peer_status(now, one.server);
            let there = self.server.peer_status(now, one.at_server);
            panic!(
                "{client} {:?} since {}: {here:#?} {there:#?} {:#?}",
                one.lately,
                one.quiet_since,
                self.server.counts()
            );
        }
        one.note_change(now);
        let uplink = one.on[path].0;
        match kind {
            // It carries nothing for a while, and nobody says so.
            0 => self.break_uplink(client, uplink, span),
            // The driver says so.
            1 => {
                one.on[path].1 = false;
                one.engine.set_path_up(now, one.server, one.paths[path], false);
                self.break_uplink(client, uplink, span);
            }
            // All fail at once, some for longer than a silence of keys.
            2 => (0..UPLINKS).for_each(|uplink| self.break_uplink(client, uplink, span * 3)),
            3 => one.uplinks[uplink].mapping += 1,
            4 => one.uplinks.iter_mut().for_each(|uplink| uplink.mapping += 1),
            // It goes over another uplink from now on.
            _ => {
                let free = (0..UPLINKS).find(|free| one.on.iter().all(|on| on.0 != *free)).unwrap();
                one.on[path].0 = free;
                let (local, to) = (LocalId(free as u16), SERVER.parse().unwrap());
                one.engine.move_path(now, one.server, one.paths[path], local, to);
            }
        }
        let wait = Duration::from_secs(6 + self.below(24));
        self.after(wait, Event::Change { client });
        self.flush(Some(client));
    }

    fn break_uplink(&mut self, client: usize, uplink: usize, span: Duration) {
        self.clients[client].uplinks[uplink].works = false;
        self.after(span, Event::Restore { client, uplink });
    }

    /// What an end has to send leaves.
    fn flush(&mut self, end: Option<usize>) {
        let now = self.now;
        let mut buffer = Vec::new();
        loop {
            buffer.clear();
            let transmit = match end {
                None => self.server.poll_transmit(now, &mut buffer),
                Some(client) => self.clients[client].engine.poll_transmit(now, &mut buffer),
            };
            let Some(transmit) = transmit else { break };
            for bytes in buffer.chunks(transmit.segment_bytes.unwrap_or(buffer.len())) {
                match end {
                    None => self.leave_server(transmit.remote, bytes),
                    Some(client) => self.leave_client(client, usize::from(transmit.local.0), bytes),
                }
            }
        }
        let slot = end.map_or(0, |client| client + 1);
        let timeout = match end {
            None => self.server.poll_timeout(),
            Some(client) => self.clients[client].engine.poll_timeout(),
        };
        if let Some(at) = timeout
            && self.timers[slot].is_none_or(|set| at < set)
        {
            self.timers[slot] = Some(at);
            self.after(at.since(now), Event::Timer { end });
        }
    }

    fn leave_client(&mut self, client: usize, uplink: usize, bytes: &[u8]) {
        let chance = self.random.next_u32() % 1_000;
        let link = &self.clients[client].uplinks[uplink];
        if link.works && chance >= link.loss {
            let from = outside(client, uplink, link.mapping);
            self.after(link.delay, Event::ToServer { from, bytes: bytes.to_vec() });
        }
    }

    fn leave_server(&mut self, to: SocketAddr, bytes: &[u8]) {
        let chance = self.random.next_u32() % 1_000;
        let SocketAddr::V4(to) = to else { return };
        let [_, high, low, uplink] = to.ip().octets();
        let (client, uplink) = (usize::from(high) << 8 | usize::from(low), usize::from(uplink));
        let link = &self.clients[client].uplinks[uplink];
        // A mapping that was replaced leads nowhere.
        if link.works && chance >= link.loss && to.port() == 10_000 + link.mapping {
            self.after(link.delay, Event::ToClient { client, uplink, bytes: bytes.to_vec() });
        }
    }
}

/// So long after a change packets go on.
const SETTLES: Duration = Duration::from_millis(2_500);

fn since(packet: &[u8]) -> Instant {
    Instant::from_nanos(u64::from_be_bytes(packet[28..36].try_into().unwrap()))
}

fn outside(client: usize, uplink: usize, mapping: u16) -> SocketAddr {
    SocketAddr::from(([100, (client >> 8) as u8, client as u8, uplink as u8], 10_000 + mapping))
}

impl Client {
    fn is_connected(&self) -> bool {
        self.on.iter().any(|&(uplink, is_up)| is_up && self.uplinks[uplink].works)
    }

    fn note_change(&mut self, now: Instant) {
        self.quiet_since = now;
        self.lately = [(0, 0); 2];
    }

    fn note_came(&mut self, way: usize, since: Instant) {
        if since > Instant::ZERO {
            self.came[way] += 1;
            self.lately[way].1 += u32::from(since == self.quiet_since);
        }
    }

    /// Packets went on since the last change. The last two may be under way.
    fn is_served(&self) -> bool {
        self.lately.iter().all(|(sent, came)| came * 2 + 6 >= *sent)
    }
}
