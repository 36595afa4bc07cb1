//! `polypath bench state`: many idle connections in one host.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant as SystemInstant;

use bytes::Bytes;
use clap::Args;
use polypath_mptcp::path_manager::LocalEndpoint;
use polypath_mptcp::{ConnectionConfig, ConnectionId, Event, Host, HostConfig};
use polypath_tcp::Config as TcpConfig;
use polypath_units::{Duration, Instant};
use polypath_wire::{Endpoint, Packet};
use serde::Serialize;

use crate::command::{Failure, print_json, print_line};

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Idle connections, each with two subflows
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// Timed runs of each kind, alternating
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// MB that each timed run carries
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    megabytes: u64,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct StateResult {
    connections: u32,
    subflows: usize,
    /// Resident memory of both ends, divided by their number.
    bytes_per_connection: f64,
    /// Medians, in nanoseconds: both hosts' work for a data packet.
    packet_ns_empty: f64,
    packet_ns_loaded: f64,
    /// Median over pairs of runs.
    ratio: f64,
    runs: u32,
}

/// Two hosts and a wire that delivers after a millisecond.
struct Pair {
    client: Host,
    server: Host,
    now: Instant,
    wire: VecDeque<(Instant, bool, Packet)>,
    data_packets: u64,
    accepted: Option<ConnectionId>,
    writable: bool,
}

const DELAY: Duration = Duration::from_millis(1);
const PATHS: u8 = 2;

fn addr(host: u8, path: u8) -> IpAddr {
    [10, host, path, 1].into()
}

impl Pair {
    fn new(seed: u64) -> Self {
        let tcp = TcpConfig {
            max_aggregate_bytes: 0,
            receive_buffer_bytes: 256 << 10,
            send_buffer_bytes: 1 << 20,
            ..TcpConfig::default()
        };
        let connection = Arc::new(ConnectionConfig { tcp: Arc::new(tcp), ..ConnectionConfig::default() });
        let config = |host: u8| HostConfig {
            connection: connection.clone(),
            endpoints: (0..PATHS).map(|path| LocalEndpoint::subflow(addr(host, path), path + 1)).collect(),
            max_connections: 1 << 21,
            ..HostConfig::default()
        };
        let mut server = Host::new(config(2), seed);
        for port in 80..112 {
            let listening = server.listen(Endpoint::new([0, 0, 0, 0].into(), port));
            debug_assert!(listening.is_ok());
        }
        Self {
            client: Host::new(config(1), seed + 1),
            server,
            now: Instant::from_secs(1),
            wire: VecDeque::new(),
            data_packets: 0,
            accepted: None,
            writable: true,
        }
    }

    fn connect(&mut self, port: u16) -> Result<ConnectionId, Failure> {
        let (local, remote) = (Endpoint::new(addr(1, 0), 0), Endpoint::new(addr(2, 0), port));
        self.client.connect(self.now, local, remote, None).map_err(Failure::run)
    }

    /// Opens so many connections and lets them come to rest.
    fn load(&mut self, connections: u32) -> Result<(), Failure> {
        for number in 0..connections {
            // A 4-tuple has 16 384 ephemeral ports for each of the server's.
            self.connect(80 + (number % 32) as u16)?;
            if number % 1000 == 999 {
                self.rest(number as usize + 1);
            }
        }
        self.rest(connections as usize);
        let subflows = self.client.population().flows;
        let expected = connections as usize * usize::from(PATHS);
        if subflows != expected || self.server.population().flows != expected {
            return Err(Failure::run(format!(
                "only {subflows} subflows of {connections} connections came up"
            )));
        }
        Ok(())
    }

    /// Runs until nothing is on the wire, and the server holds so many connections. The first handshake with a stranger goes out over
    /// both paths; what the client then does not need, it resets no faster than a host resets strangers, and the rest times out.
    fn rest(&mut self, connections: usize) {
        self.settle();
        while self.server.population().connections > connections {
            let timeouts = [self.client.poll_timeout(), self.server.poll_timeout()];
            let Some(next) = timeouts.into_iter().flatten().min() else { return };
            self.now = self.now.max(next);
            self.deliver();
            self.settle();
        }
    }

    /// Runs until nothing is on the wire.
    fn settle(&mut self) {
        loop {
            self.exchange();
            match self.wire.front() {
                Some((at, _, _)) => self.now = *at,
                None => return,
            }
            self.deliver();
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
            self.writable |= event == Event::Writable;
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

    /// Sends `bytes` over a new connection; returns nanoseconds per data packet.
    fn time_transfer(&mut self, bytes: u64, block: &Bytes) -> Result<f64, Failure> {
        let id = self.connect(80)?;
        self.accepted = None;
        self.settle();
        let server_id = self.accepted.ok_or_else(|| Failure::run("the connection was not accepted"))?;
        let (mut sent, mut received) = (0, 0);
        self.data_packets = 0;
        self.writable = true;
        let started = SystemInstant::now();
        while received < bytes {
            while self.writable && sent < bytes {
                let taken = self.client.send(id, block.clone()).map_err(Failure::run)?;
                sent += taken as u64;
                self.writable = taken == block.len();
            }
            while let Some(data) = self.server.recv(server_id) {
                received += data.len() as u64;
            }
            self.exchange();
            let timeouts = [self.client.poll_timeout(), self.server.poll_timeout()];
            let on_wire = self.wire.front().map(|(at, _, _)| *at);
            let next = timeouts.into_iter().flatten().chain(on_wire).min();
            self.now = self.now.max(next.ok_or_else(|| Failure::run("the transfer stalled"))?);
            self.deliver();
        }
        let nanos = started.elapsed().as_nanos() as f64 / self.data_packets.max(1) as f64;
        self.client.abort(self.now, id);
        self.client.release(self.now, id);
        self.server.release(self.now, server_id);
        self.settle();
        Ok(nanos)
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let before = resident_bytes();
    let mut loaded = Pair::new(1);
    loaded.load(arguments.connections)?;
    let used = resident_bytes().saturating_sub(before) as f64;
    let mut empty = Pair::new(1);
    let block = Bytes::from_static(Box::leak(vec![0u8; 64 << 10].into_boxed_slice()));
    let bytes = arguments.megabytes * 1_000_000;
    let (mut empty_ns, mut loaded_ns, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..arguments.runs {
        let (one, other) = (empty.time_transfer(bytes, &block)?, loaded.time_transfer(bytes, &block)?);
        empty_ns.push(one);
        loaded_ns.push(other);
        ratios.push(other / one);
    }
    let result = StateResult {
        connections: arguments.connections,
        subflows: loaded.client.population().flows,
        bytes_per_connection: used / (2.0 * f64::from(arguments.connections)),
        packet_ns_empty: median(empty_ns),
        packet_ns_loaded: median(loaded_ns),
        ratio: median(ratios),
        runs: arguments.runs,
    };
    if arguments.json {
        return print_json(&result);
    }
    print_line(&format!(
        "{:.0} bytes per connection of two subflows ({} connections); {:.0} ns per data packet empty, {:.0} loaded, \
         ratio {:.3} (median of {})",
        result.bytes_per_connection,
        result.connections,
        result.packet_ns_empty,
        result.packet_ns_loaded,
        result.ratio,
        result.runs
    ))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Resident memory of this process, from the system's account.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}
