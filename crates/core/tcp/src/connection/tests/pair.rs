//! Two connections, a wire between them, a virtual clock.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Debug;
use core::net::Ipv4Addr;

use polypath_units::{Duration, Instant};
use polypath_wire::{Endpoint, FourTuple, Packet, Payload, Segment, SeqNumber, Transport};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::super::{Connection, Event, Setup, State};
use crate::Config;

/// Which end sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum From {
    Client,
    Server,
}

/// Sees each segment before it travels; what it returns arrives, each after an extra delay.
pub(super) type Meddle = Box<dyn FnMut(From, Segment) -> Vec<(Duration, Segment)>>;

pub(super) type ClockedMeddle = Box<dyn FnMut(Instant, From, Segment) -> Vec<(Duration, Segment)>>;

pub(super) fn pass(segment: Segment) -> Vec<(Duration, Segment)> {
    std::vec![(Duration::ZERO, segment)]
}

pub(super) struct Pair {
    pub(super) now: Instant,
    pub(super) client: Connection,
    pub(super) server: Option<Connection>,
    server_config: Config,
    pub(super) delay: Duration,
    pub(super) loss_percent: u32,
    pub(super) jitter: Duration,
    pub(super) meddle: Meddle,
    /// As `meddle`, but told the time; takes its place.
    pub(super) clocked: Option<ClockedMeddle>,
    random: ChaCha8Rng,
    travelling: BTreeMap<(Instant, u64), (From, Segment)>,
    count: u64,
    pub(super) log: Vec<(Instant, From, Segment)>,
    pub(super) client_events: Vec<Event>,
    pub(super) server_events: Vec<Event>,
    pub(super) at_client: Vec<u8>,
    pub(super) at_server: Vec<u8>,
    /// The server leaves data unread.
    pub(super) server_sleeps: bool,
}

pub(super) fn setup(config: &Config, client: bool, isn: u32) -> Setup {
    let (one, other) = (
        Endpoint::new(Ipv4Addr::new(10, 0, 0, 1).into(), 40_000),
        Endpoint::new(Ipv4Addr::new(10, 0, 0, 2).into(), 80),
    );
    let tuple = FourTuple { local: one, remote: other };
    Setup {
        tuple: if client { tuple } else { tuple.reversed() },
        isn: SeqNumber(isn),
        timestamp_offset: isn,
        config: Arc::new(config.clone()),
        congestion: polypath_congestion::RENO,
    }
}

pub(super) fn pattern(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

impl<M: Copy + PartialEq + Debug + Default> Connection<M> {
    /// What holds whatever the peer does.
    pub(super) fn check_invariants(&self) {
        self.send.check();
        assert!(self.in_flight_bytes() <= 2 * self.send.outstanding_bytes());
        assert!(self.acked_offset() <= self.sent_offset() && self.sent_offset() <= self.enqueued_offset());
        self.receive.check();
        if self.state() == State::Closed {
            assert_eq!(self.poll_timeout(), None);
        }
    }

    /// What holds once everything that may leave has left.
    pub(super) fn check_timers(&self) {
        let waits = self.send.outstanding_bytes() > 0 || self.unsent_bytes() > 0;
        if waits && self.state().may_send() {
            assert_ne!(self.poll_timeout(), None, "data waits without a timer: {self:?}");
        }
    }
}

impl Pair {
    pub(super) fn new(client: Config, server: Config, seed: u64) -> Self {
        let now = Instant::from_secs(1);
        // Sequence numbers wrap soon after the start.
        let isn = u32::MAX - 5_000;
        Self {
            now,
            client: Connection::connect(now, setup(&client, true, isn)),
            server: None,
            server_config: server,
            delay: Duration::from_millis(10),
            loss_percent: 0,
            jitter: Duration::ZERO,
            meddle: Box::new(|_, segment| pass(segment)),
            clocked: None,
            random: ChaCha8Rng::seed_from_u64(seed),
            travelling: BTreeMap::new(),
            count: 0,
            log: Vec::new(),
            client_events: Vec::new(),
            server_events: Vec::new(),
            at_client: Vec::new(),
            at_server: Vec::new(),
            server_sleeps: false,
        }
    }

    /// Both ends established.
    pub(super) fn established(client: Config, server: Config, seed: u64) -> Self {
        let mut pair = Self::new(client, server, seed);
        pair.run_for(Duration::from_millis(100));
        assert_eq!(pair.states(), (State::Established, State::Established));
        pair
    }

    pub(super) fn server(&mut self) -> &mut Connection {
        self.server.as_mut().expect("a SYN arrived")
    }

    pub(super) fn states(&self) -> (State, State) {
        (self.client.state(), self.server.as_ref().map_or(State::Closed, Connection::state))
    }

    pub(super) fn send(&mut self, from: From, bytes: Vec<u8>) {
        let data = Payload::from(bytes);
        match from {
            From::Client => self.client.enqueue(data, ()),
            From::Server => self.server().enqueue(data, ()),
        }
    }

    pub(super) fn flush(&mut self) {
        loop {
            let mut idle = true;
            while let Some(packet) = self.client.poll_transmit(self.now, &mut ()) {
                self.travel(From::Client, packet);
                idle = false;
            }
            while let Some(packet) =
                self.server.as_mut().and_then(|server| server.poll_transmit(self.now, &mut ()))
            {
                self.travel(From::Server, packet);
                idle = false;
            }
            while let Some(event) = self.client.poll() {
                self.client_events.push(event);
            }
            while let Some(data) = self.client.read() {
                self.at_client.extend(data.to_vec());
                self.client.window_may_have_opened(&());
                idle = false;
            }
            if let Some(server) = &mut self.server {
                while let Some(event) = server.poll() {
                    self.server_events.push(event);
                }
                while !self.server_sleeps
                    && let Some(data) = server.read()
                {
                    self.at_server.extend(data.to_vec());
                    server.window_may_have_opened(&());
                    idle = false;
                }
            }
            if idle {
                return;
            }
        }
    }

    fn travel(&mut self, from: From, packet: Packet) {
        let Transport::Tcp(segment) = packet.transport else { return };
        self.log.push((self.now, from, segment.clone()));
        let arriving = match &mut self.clocked {
            Some(clocked) => clocked(self.now, from, segment),
            None => (self.meddle)(from, segment),
        };
        for (extra, segment) in arriving {
            if self.random.next_u32() % 100 < self.loss_percent {
                continue;
            }
            let jitter = match self.jitter.as_nanos() {
                0 => Duration::ZERO,
                most => Duration::from_nanos(self.random.next_u64() % most),
            };
            self.count += 1;
            self.travelling.insert((self.now + self.delay + extra + jitter, self.count), (from, segment));
        }
    }

    fn next_instant(&self) -> Option<Instant> {
        let travelling = self.travelling.first_key_value().map(|((at, _), _)| *at);
        let server = self.server.as_ref().and_then(Connection::poll_timeout);
        [travelling, self.client.poll_timeout(), server].into_iter().flatten().min()
    }

    /// Moves to the next instant at which something is due; false if nothing is.
    pub(super) fn step(&mut self) -> bool {
        self.flush();
        let Some(next) = self.next_instant() else { return false };
        self.now = self.now.max(next);
        while let Some(entry) = self.travelling.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let (from, mut segment) = entry.remove();
            self.deliver(from, &mut segment);
            self.flush();
        }
        self.client.handle_timeout(self.now, &mut ());
        if let Some(server) = &mut self.server {
            server.handle_timeout(self.now, &mut ());
        }
        self.flush();
        self.check();
        true
    }

    pub(super) fn deliver(&mut self, from: From, segment: &mut Segment) {
        match (from, &mut self.server) {
            (From::Server, _) => {
                self.client.handle_segment(self.now, segment, &mut ());
            }
            (From::Client, Some(server)) => {
                server.handle_segment(self.now, segment, &mut ());
            }
            (From::Client, none) if segment.flags.syn() => {
                let setup = setup(&self.server_config, false, 7);
                *none = Some(Connection::accept(self.now, setup, segment));
            }
            _ => {}
        }
    }

    pub(super) fn run_for(&mut self, span: Duration) {
        let end = self.now + span;
        self.flush();
        while self.next_instant().is_some_and(|at| at <= end) {
            self.step();
        }
        self.now = end;
    }

    fn check(&self) {
        self.client.check_invariants();
        self.client.check_timers();
        if let Some(server) = &self.server {
            server.check_invariants();
            server.check_timers();
        }
    }

    /// What one end sent since `start`, as `(flags, payload length)` in tcpdump's letters.
    pub(super) fn sent(&self, by: From, start: usize) -> Vec<(std::string::String, usize)> {
        let of_one = self.log.iter().skip(start).filter(|(_, from, _)| *from == by);
        of_one.map(|(_, _, segment)| (std::format!("{:?}", segment.flags), segment.payload.len())).collect()
    }
}
