use std::net::IpAddr;

use polypath_tcp::{ConnectionId, Host, HostConfig, HostEvent, ListenConfig};
use polypath_wire::{Checksums, Endpoint, Packet};

use super::*;

const CLIENT: Endpoint = Endpoint::new(IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 0, 2)), 40_000);
const SERVER: Endpoint = Endpoint::new(IpAddr::V4(std::net::Ipv4Addr::new(10, 2, 0, 2)), 80);
/// From one end to the other.
const DELAYS: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(20)];

/// A host on either side, and between them the two ends with two paths.
struct World {
    now: Instant,
    hosts: [Host; 2],
    ends: [TcpSplit; 2],
    /// What is under way: when it comes, to which end, over which path.
    flying: Vec<(Instant, usize, usize, Bytes)>,
    /// Segments that went over each path.
    carried: [u32; 2],
    cut: [bool; 2],
    owned: bool,
    /// Of 256 segments between the ends, so many are lost.
    lost: u8,
    random: u32,
    /// Hosts that neither hear nor say anything.
    are_gone: [bool; 2],
}

/// An end with bounds of its own.
fn end(seed: u8, config: TcpSplitConfig) -> TcpSplit {
    TcpSplit::new(1_400, [seed; 32], SplitMemory::new(config))
}

impl World {
    fn new() -> Self {
        Self::bounded(TcpSplitConfig::default())
    }

    fn bounded(split: TcpSplitConfig) -> Self {
        // Ports are free again at once.
        let config = || HostConfig { max_time_wait: 0, ..HostConfig::default() };
        let mut server = Host::new(config(), 2);
        server.listen(SERVER, ListenConfig::default()).unwrap();
        let mut world = Self {
            now: Instant::from_secs(1),
            hosts: [Host::new(config(), 1), server],
            ends: [3, 4].map(|seed| end(seed, split)),
            flying: Vec::new(),
            carried: [0; 2],
            cut: [false; 2],
            owned: true,
            lost: 0,
            random: 1,
            are_gone: [false; 2],
        };
        for end in &mut world.ends {
            end.set_paths(world.now, &paths(&[0, 1]), 1_400);
        }
        world
    }

    fn connect(&mut self) -> ConnectionId {
        self.hosts[0].connect(self.now, CLIENT, SERVER).unwrap()
    }

    fn step(&mut self) {
        let now = self.now;
        for at in 0..2 {
            self.hosts[at].handle_timeout(now);
            if self.ends[at].next_timeout().is_some_and(|due| due <= now) {
                self.ends[at].handle_timeout(now);
            }
            while let Some(packet) = self.hosts[at].poll_transmit(now) {
                // Aggregates are for drivers that cut them.
                for packet in packet.segments().filter(|_| !self.are_gone[at]) {
                    let mut bytes = Vec::new();
                    packet.emit(&mut bytes);
                    let packet = Packet::parse_with(bytes.clone().into(), Checksums::Verify).unwrap();
                    let flow = packet.receiver_tuple().unwrap();
                    // Others go as packets do that nobody splits.
                    if self.ends[at].has_flow(&flow) || at == 0 && self.ends[at].has_room() {
                        self.ends[at].handle_inside(now, bytes.into());
                    }
                }
            }
            while let Some(carried) = self.ends[at].poll_across(now) {
                let path = carried.path.index();
                self.carried[path] += 1;
                self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                if !self.cut[path] && (self.random >> 24) as u8 >= self.lost {
                    let segment = Bytes::from(carried.frame).slice(crate::frame::DATA_HEADER_BYTES..);
                    self.flying.push((now + DELAYS[path], 1 - at, path, segment));
                }
            }
            while let Some(bytes) = self.ends[at].poll_inside(now) {
                let packet = Packet::parse_with(bytes.into(), Checksums::Verify).unwrap();
                if !self.are_gone[at] {
                    self.hosts[at].handle_packet(now, packet);
                }
            }
        }
        let owned = self.owned;
        for (_, to, _, segment) in self.flying.extract_if(.., |(at, ..)| *at <= now) {
            self.ends[to].handle_across(now, segment, &|_| owned);
        }
        self.now += Duration::from_millis(1);
    }

    fn run(&mut self, millis: u32) {
        (0..millis).for_each(|_| self.step());
    }

    /// What a host was told since.
    fn told(&mut self, at: usize) -> Vec<HostEvent> {
        std::iter::from_fn(|| self.hosts[at].poll()).map(|(_, event)| event).collect()
    }

    fn accepted(&mut self) -> ConnectionId {
        let accepted = std::iter::from_fn(|| self.hosts[1].poll())
            .find(|(_, event)| matches!(event, HostEvent::Accepted { .. }));
        accepted.expect("the server has it").0
    }

    /// Sends bytes from one host to the other, and takes them.
    fn send(&mut self, from: (usize, ConnectionId), to: ConnectionId, len: usize) {
        let data: Bytes = (0..len).map(|at| (at * 31 % 251) as u8).collect();
        let (mut rest, mut came) = (data.clone(), Vec::new());
        for _ in 0..20_000 {
            let taken = self.hosts[from.0].send(from.1, rest.clone()).unwrap();
            rest = rest.slice(taken..);
            self.step();
            while let Some(payload) = self.hosts[1 - from.0].recv(to) {
                came.extend(payload.to_vec());
            }
            if came.len() == len {
                break;
            }
        }
        assert!(came == data, "{} of {len} bytes came", came.len());
    }
}

#[test]
fn bytes_go_both_ways_over_both_paths_and_the_end_is_told() {
    let mut world = World::new();
    let client = world.connect();
    world.run(100);
    assert_eq!(world.told(0), [HostEvent::Connected]);
    let server = world.accepted();
    assert_eq!(world.hosts[1].tuple(server).unwrap().remote, CLIENT, "the source is what it was");
    world.send((0, client), server, 3_000_000);
    world.send((1, server), client, 3_000_000);
    assert!(world.carried.iter().all(|&segments| segments > 500), "{:?}", world.carried);

    world.told(1);
    world.hosts[0].shutdown(client);
    world.run(200);
    assert!(world.told(1).contains(&HostEvent::PeerFinished));
    world.send((1, server), client, 50_000);
    world.hosts[1].shutdown(server);
    world.run(1_000);
    assert!(world.told(0).contains(&HostEvent::Closed(tcp::CloseReason::Finished)));
    for end in &world.ends {
        assert_eq!((end.flow_count(), end.by_tuple.len()), (0, 0));
        assert_eq!((end.by_inside.len(), end.by_across.len()), (0, 0));
    }
}

#[test]
fn many_flows_at_once_are_whole() {
    let mut world = World::new();
    let connect = |world: &mut World, port| {
        world.hosts[0].connect(world.now, Endpoint::new(CLIENT.addr, port), SERVER).unwrap()
    };
    let clients: Vec<_> = (0..100).map(|port| connect(&mut world, 30_000 + port)).collect();
    let data: Bytes = (0..20_000).map(|at| (at * 31 % 251) as u8).collect();
    world.run(100);
    for &client in &clients {
        assert_eq!(world.hosts[0].send(client, data.clone()).unwrap(), data.len());
        world.hosts[0].shutdown(client);
    }
    let mut came: BTreeMap<ConnectionId, Vec<u8>> = BTreeMap::new();
    let mut ended = 0;
    for _ in 0..3_000 {
        world.step();
        while let Some((id, event)) = world.hosts[1].poll() {
            let came = came.entry(id).or_default();
            while let Some(payload) = world.hosts[1].recv(id) {
                came.extend(payload.to_vec());
            }
            ended += usize::from(event == HostEvent::PeerFinished);
        }
    }
    assert_eq!((came.len(), ended), (100, 100));
    assert!(came.values().all(|came| *came == data));
}

#[test]
fn a_syn_waits_for_a_path() {
    let mut world = World::new();
    world.ends[0].set_paths(world.now, &[], 1_400);
    world.connect();
    world.run(50);
    assert_eq!((world.told(0), world.ends[0].flow_count()), (vec![], 0));
    world.ends[0].set_paths(world.now, &paths(&[0]), 1_400);
    // Sooner than it would have been sent again.
    world.run(100);
    assert_eq!(world.told(0), [HostEvent::Connected]);
}

#[test]
fn a_port_that_is_used_again_begins_a_flow_of_its_own() {
    let mut world = World::new();
    for (round, wait) in [0, 1, 6, 13, 30, 45].into_iter().enumerate() {
        let client = world.connect();
        let mut server = None;
        for _ in 0..3_000 {
            world.step();
            server = std::iter::from_fn(|| world.hosts[1].poll())
                .find(|(_, event)| matches!(event, HostEvent::Accepted { .. }))
                .map(|(id, _)| id);
            if server.is_some() {
                break;
            }
        }
        let server = server.expect("the server has it");
        world.send((0, client), server, 20_000 + round);
        for (at, id) in [(0, client), (1, server)] {
            world.hosts[at].shutdown(id);
            world.hosts[at].release(id);
        }
        world.run(60);
        world.run(wait);
    }
}

#[test]
fn a_refusal_is_a_refusal() {
    let mut world = World::new();
    let nobody = Endpoint::new(SERVER.addr, 81);
    world.hosts[0].connect(world.now, CLIENT, nobody).unwrap();
    world.run(200);
    assert_eq!(world.told(0), [HostEvent::Closed(tcp::CloseReason::Refused)]);
    world.run(1_000);
    for end in &world.ends {
        assert_eq!([end.flow_count(), end.by_tuple.len(), end.by_inside.len(), end.by_across.len()], [0; 4]);
    }
}

#[test]
fn a_peer_speaks_for_its_own_addresses_only() {
    let mut world = World::new();
    world.owned = false;
    world.connect();
    world.run(200);
    assert_eq!(world.told(0), [HostEvent::Closed(tcp::CloseReason::Refused)]);
    assert_eq!(world.told(1), []);
}

#[test]
fn a_reset_comes_through_and_no_end_looks_clean() {
    for from in [0, 1] {
        let mut world = World::new();
        let client = world.connect();
        world.run(100);
        let server = world.accepted();
        world.send((0, client), server, 10_000);
        world.told(0);
        let ids = [client, server];
        world.hosts[from].abort(ids[from]);
        world.run(200);
        assert!(world.told(1 - from).contains(&HostEvent::Closed(tcp::CloseReason::Reset)), "from {from}");
        assert_eq!([0, 1].map(|at| world.ends[at].flow_count()), [0, 0]);
    }
}

#[test]
fn a_path_that_dies_is_left_and_taken_up_again() {
    let mut world = World::new();
    let client = world.connect();
    world.run(100);
    let server = world.accepted();
    world.send((0, client), server, 500_000);
    world.cut[0] = true;
    for end in &mut world.ends {
        end.set_paths(world.now, &paths(&[1]), 1_400);
    }
    world.send((0, client), server, 500_000);
    world.cut = [false, true];
    for end in &mut world.ends {
        end.set_paths(world.now, &paths(&[0]), 1_400);
    }
    world.send((1, server), client, 500_000);
}

#[test]
fn an_end_that_begins_anew_breaks_off_what_was() {
    let mut world = World::new();
    let client = world.connect();
    world.run(100);
    let server = world.accepted();
    world.send((0, client), server, 10_000);
    world.ends[1] = end(9, TcpSplitConfig::default());
    world.ends[1].set_paths(world.now, &paths(&[0, 1]), 1_400);
    let _ = world.ends[0].abandon(world.now);
    world.told(0);
    world.run(100);
    assert!(world.told(0).contains(&HostEvent::Closed(tcp::CloseReason::Reset)));
    assert_eq!(world.ends[0].flow_count(), 0);
}

#[test]
fn a_host_that_only_reads_learns_that_its_end_began_anew() {
    let mut world = World::new();
    let client = world.connect();
    world.run(100);
    let server = world.accepted();
    world.send((1, server), client, 10_000);
    world.run(500);
    world.told(0);
    // The client's end knows nothing any more, and the client says nothing.
    world.ends[0] = end(9, TcpSplitConfig::default());
    let questions = world.ends[1].abandon(world.now);
    world.run(10);
    // A host that is asked acknowledges what it has. So do those that have a kernel's TCP.
    let [question] = &questions[..] else { panic!("{questions:?}") };
    let tuple = question.receiver_tuple().unwrap();
    assert_eq!((tuple.local, tuple.remote), (CLIENT, SERVER));
    let Transport::Tcp(segment) = &question.transport else { panic!("{question:?}") };
    let asked = Segment { ack: polypath_wire::SeqNumber(77), ..segment.clone() };
    world.hosts[1].handle_packet(world.now, Packet::tcp(tuple, asked));
    let reset = world.hosts[1].poll_transmit(world.now).expect("a reset");
    let Transport::Tcp(reset) = reset.transport else { panic!("{reset:?}") };
    assert!(reset.flags.rst());
}

#[test]
fn what_the_peer_can_make_us_hold_is_bounded() {
    let mut world = World::new();
    // Calls that are never finished.
    let mut caller = mptcp::Host::new(mptcp::HostConfig::default(), 7);
    for _ in 0..200 {
        let local = Endpoint::new(caller_address(), 0);
        let id = caller.connect(world.now, local, SERVICE, None).unwrap();
        let _ = caller.send(id, Bytes::from_static(&[4]));
    }
    for _ in 0..3 {
        while let Some(packet) = caller.poll_transmit(world.now) {
            let carried = Carried::new(&packet).unwrap();
            let segment = Bytes::from(carried.frame).slice(crate::frame::DATA_HEADER_BYTES..);
            world.ends[1].handle_across(world.now, segment, &|_| true);
        }
        while let Some(carried) = world.ends[1].poll_across(world.now) {
            let segment = Bytes::from(carried.frame).slice(crate::frame::DATA_HEADER_BYTES..);
            caller.handle_packet(world.now, carried::parse(segment).unwrap());
        }
    }
    assert_eq!(world.ends[1].flow_count(), 200);
    world.ends[1].handle_timeout(world.now + Duration::from_secs(60));
    assert_eq!(world.ends[1].flow_count(), 0);
}

/// Bytes on the heap, while a world runs.
fn most_heap_bytes(run: impl FnOnce()) -> u64 {
    allocation_counter::measure(run).bytes_max
}

const SMALL: TcpSplitConfig = TcpSplitConfig {
    max_bytes: 16 << 20,
    max_flows_of_peer: 1_024,
    open_timeout: Duration::from_secs(20),
    idle_timeout: Duration::from_secs(30),
};

/// Clients of other ports each send much, of which the server reads nothing.
fn stall(world: &mut World, data: &Bytes) {
    let config = tcp::Config { receive_buffer_bytes: 32 << 10, ..tcp::Config::default() };
    let host = HostConfig { connection: Arc::new(config), ..HostConfig::default() };
    world.hosts[1] = Host::new(host, 2);
    world.hosts[1].listen(SERVER, ListenConfig::default()).unwrap();
    let clients: Vec<_> = (0..40)
        .map(|port| {
            let from = Endpoint::new(CLIENT.addr, 30_000 + port);
            world.hosts[0].connect(world.now, from, SERVER).unwrap()
        })
        .collect();
    for round in 0..4_000 {
        // Paths that were good and are not any more leave most behind.
        world.lost = if round < 2_000 { 0 } else { 77 };
        for &client in &clients {
            let _ = world.hosts[0].send(client, data.clone());
        }
        world.step();
    }
}

#[test]
fn flows_that_stall_on_bad_paths_hold_no_more_than_the_bound() {
    // The clients send what is theirs, and is here once.
    let data = Bytes::from(vec![7; 1 << 20]);
    let heap = most_heap_bytes(|| {
        let mut world = World::bounded(SMALL);
        stall(&mut world, &data);
        let flows = [0, 1].map(|at| world.ends[at].flow_count());
        assert!(flows.iter().all(|flows| (10..=25).contains(flows)), "{flows:?}");
        assert!(world.ends.iter().all(|end| end.memory.taken_bytes() <= SMALL.max_bytes));
    });
    // Both ends' data, with what surrounds it, and the hosts' own.
    assert!(heap < 48 << 20, "{heap}");
}

#[test]
fn single_bytes_hold_no_more_than_they_are() {
    let data = Bytes::from(vec![7; 1]);
    let heap = most_heap_bytes(|| {
        let mut world = World::bounded(SMALL);
        stall(&mut world, &data);
    });
    assert!(heap < 48 << 20, "{heap}");
}

#[test]
fn flows_whose_hosts_vanish_end() {
    let mut world = World::bounded(SMALL);
    stall(&mut world, &Bytes::from(vec![7; 10_000]));
    let opened = world.ends[0].flow_count();
    assert!(opened >= 10, "{opened}");
    (world.are_gone, world.lost) = ([true; 2], 0);
    // A host that has data to acknowledge is given longer than one that is asked whether it lives.
    for _ in 0..700 {
        world.step();
        world.now += Duration::from_secs(1);
    }
    let left = [0, 1].map(|at| world.ends[at].flow_count());
    assert_eq!(left, [0, 0], "of {opened}");
    assert!(world.ends.iter().all(|end| end.memory.taken_bytes() == 0));
    for end in &world.ends {
        let left = (end.inside.population(), end.across.population());
        assert!(end.is_over(world.now + KEPT_IDLE), "{:?} {left:?}", end.over_at);
    }
}

#[test]
fn syns_to_hosts_that_never_answer_leave_room_for_others() {
    let mut world = World::bounded(TcpSplitConfig { max_bytes: 1 << 30, ..SMALL });
    world.are_gone[1] = true;
    let heap = most_heap_bytes(|| {
        for port in 0..4_000 {
            let from = Endpoint::new(CLIENT.addr, 10_000 + port);
            world.hosts[0].connect(world.now, from, SERVER).unwrap();
        }
        world.run(3_000);
    });
    let flows = [0, 1].map(|at| world.ends[at].flow_count());
    assert!(flows.iter().all(|&flows| (200..=256).contains(&flows)), "{flows:?}");
    // The client's own 4000 connections are among it.
    assert!(heap < 48 << 20, "{heap}");
    world.are_gone = [true; 2];
    world.now += SMALL.open_timeout;
    world.run(100);
    assert_eq!([0, 1].map(|at| world.ends[at].flow_count()), [0, 0]);
    assert!(world.ends[1].has_room());
}

fn paths(numbers: &[usize]) -> Vec<SplitPath> {
    numbers.iter().map(|&number| SplitPath { number, is_backup: false }).collect()
}

fn caller_address() -> IpAddr {
    caller(0)
}
