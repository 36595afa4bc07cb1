//! What a connection weighs: bytes that it holds at rest, and allocations for a packet. Counted, so that every machine gives the same.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use allocation_counter::measure;
use bytes::Bytes;
use polypath_mptcp::path_manager::LocalEndpoint;
use polypath_mptcp::{ConnectionConfig, ConnectionId, Event, Host, HostConfig};
use polypath_tcp::Config as TcpConfig;
use polypath_units::{Duration, Instant};
use polypath_wire::{Endpoint, Packet};

const DELAY: Duration = Duration::from_millis(10);
const PATHS: u8 = 2;
const PORT: u16 = 80;

fn addr(host: u8, path: u8) -> IpAddr {
    [10, host, path, 1].into()
}

/// Two hosts with two paths between them, on which every packet takes as long.
struct Pair {
    client: Host,
    server: Host,
    now: Instant,
    wire: VecDeque<(Instant, bool, Packet)>,
    data_packets: u64,
    accepted: Option<ConnectionId>,
    is_writable: bool,
}

impl Pair {
    fn new(tcp: TcpConfig) -> Self {
        // Strangers are met over one path: half-open connections of a race would be counted as well.
        let connection =
            Arc::new(ConnectionConfig { tcp: Arc::new(tcp), race: false, ..ConnectionConfig::default() });
        let config = |host: u8| HostConfig {
            connection: connection.clone(),
            endpoints: (0..PATHS).map(|path| LocalEndpoint::subflow(addr(host, path), path + 1)).collect(),
            ..HostConfig::default()
        };
        let mut server = Host::new(config(2), 1);
        server.listen(Endpoint::new([0, 0, 0, 0].into(), PORT)).expect("a listener");
        Self {
            client: Host::new(config(1), 2),
            server,
            now: Instant::from_secs(1),
            wire: VecDeque::with_capacity(1 << 14),
            data_packets: 0,
            accepted: None,
            is_writable: true,
        }
    }

    fn connect(&mut self) -> ConnectionId {
        let (local, remote) = (Endpoint::new(addr(1, 0), 0), Endpoint::new(addr(2, 0), PORT));
        let id = self.client.connect(self.now, local, remote, None).expect("a connection");
        self.settle();
        id
    }

    /// Runs until nothing is on the wire.
    fn settle(&mut self) {
        self.exchange();
        while let Some((at, _, _)) = self.wire.front() {
            self.now = *at;
            self.deliver();
            self.exchange();
        }
    }

    fn exchange(&mut self) {
        while let Some(packet) = self.client.poll_transmit(self.now) {
            self.wire.push_back((self.now + DELAY, true, packet));
        }
        while let Some(packet) = self.server.poll_transmit(self.now) {
            self.wire.push_back((self.now + DELAY, false, packet));
        }
        while let Some((_, event)) = self.client.poll() {
            self.is_writable |= event == Event::Writable;
        }
        while let Some((id, event)) = self.server.poll() {
            if matches!(event, Event::Accepted { .. }) {
                self.accepted = Some(id);
            }
        }
    }

    fn deliver(&mut self) {
        while self.wire.front().is_some_and(|(at, _, _)| *at <= self.now) {
            let Some((_, to_server, packet)) = self.wire.pop_front() else { return };
            if to_server {
                self.data_packets += u64::from(packet.len_bytes() > 200);
                self.server.handle_packet(self.now, packet);
            } else {
                self.client.handle_packet(self.now, packet);
            }
        }
        self.client.handle_timeout(self.now);
        self.server.handle_timeout(self.now);
    }

    /// Sends so many bytes.
    fn transfer(&mut self, from: ConnectionId, to: ConnectionId, bytes: u64, block: &Bytes) {
        let (mut sent, mut received) = (0, 0);
        while received < bytes {
            while self.is_writable && sent < bytes {
                let taken = self.client.send(from, block.clone()).expect("an open connection");
                sent += taken as u64;
                self.is_writable = taken == block.len();
            }
            while let Some(data) = self.server.recv(to) {
                received += data.len() as u64;
            }
            self.exchange();
            let timeouts = [self.client.poll_timeout(), self.server.poll_timeout()];
            let on_wire = self.wire.front().map(|(at, _, _)| *at);
            let next = timeouts.into_iter().flatten().chain(on_wire).min().expect("it goes on");
            self.now = self.now.max(next);
            self.deliver();
        }
    }
}

/// What `polypath bench state` shows as resident memory is some 150 bytes more: what the allocator adds.
const MOST_IDLE_BYTES: u64 = 3_950;

#[test]
fn an_idle_connection_with_two_subflows_is_small() {
    const CONNECTIONS: usize = 1500;
    let mut pair = Pair::new(TcpConfig::default());
    let held = measure(|| {
        for _ in 0..CONNECTIONS {
            pair.connect();
        }
    });
    assert_eq!(pair.client.population().flows, CONNECTIONS * usize::from(PATHS));
    assert_eq!(pair.server.population().flows, CONNECTIONS * usize::from(PATHS));
    let bytes = held.bytes_current as u64 / (2 * CONNECTIONS as u64);
    println!("{bytes} bytes an end");
    assert!(bytes <= MOST_IDLE_BYTES, "{bytes} bytes an end, at most {MOST_IDLE_BYTES} expected");
}

/// Allocations of both ends for a packet with data and what it is answered with.
fn allocations_per_packet(max_aggregate_bytes: u32) -> f64 {
    let mut pair = Pair::new(TcpConfig { max_aggregate_bytes, ..TcpConfig::default() });
    let client = pair.connect();
    let server = pair.accepted.expect("a connection at the server");
    let block = Bytes::from_static(&[7; 64 << 10]);
    pair.transfer(client, server, 10_000_000, &block);
    pair.data_packets = 0;
    let made = measure(|| pair.transfer(client, server, 20_000_000, &block));
    println!("{} allocations, {} packets", made.count_total, pair.data_packets);
    made.count_total as f64 / pair.data_packets as f64
}

#[test]
fn a_packet_needs_few_allocations() {
    let (segments, aggregates) = (allocations_per_packet(0), allocations_per_packet(65_000));
    assert!(segments <= 0.06, "{segments:.3} for a segment");
    // One that spans two of the application's blocks holds a list of its slices at either end.
    assert!(aggregates <= 2.0, "{aggregates:.3} for an aggregate of up to 64 KB");
}
