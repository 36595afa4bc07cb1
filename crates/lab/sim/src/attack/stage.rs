//! Two production hosts a fixed delay apart, and somebody who sees or says what it likes.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use polypath_mptcp::path_manager::LocalEndpoint;
use polypath_mptcp::{ConnectionConfig, ConnectionId, Event, Host, HostConfig};
use polypath_units::{Duration, Instant};
use polypath_wire::{Endpoint, FourTuple, MptcpVersion, Packet};

use crate::fuzz::{PORT, Side, Sniffer, client_addr, server_addr};

/// One way.
pub(super) const DELAY: Duration = Duration::from_millis(25);
/// There and back.
pub(super) const ROUND_TRIP: Duration = Duration::from_millis(50);

/// Addresses of each host.
const ADDRESSES: usize = 2;

/// What packets that nobody of the two gets amount to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

pub(super) struct Stage {
    pub(super) now: Instant,
    pub(super) hosts: [Host; 2],
    /// What is under way, in the order of arrival: all of it takes as long.
    travelling: VecDeque<(Instant, Side, Packet)>,
    /// What somebody knows who sees every packet between the hosts.
    pub(super) sniffer: Sniffer,
    /// Packets between the hosts.
    pub(super) exchanged: u64,
    /// To addresses that neither of them has.
    pub(super) to_strangers: Sent,
    pub(super) events: Vec<(Instant, Side, ConnectionId, Event)>,
    received: Vec<u8>,
}

/// What a sender writes, by position.
pub(super) fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

impl Stage {
    pub(super) fn new(seed: u64) -> Self {
        Self::with(ConnectionConfig::default(), MptcpVersion::V1, seed)
    }

    pub(super) fn with(config: ConnectionConfig, version: MptcpVersion, seed: u64) -> Self {
        let host = |addr: fn(usize) -> IpAddr, seed| {
            let endpoint = |number: usize| LocalEndpoint::subflow(addr(number), number as u8 + 1);
            let config = HostConfig {
                connection: Arc::new(ConnectionConfig { version, ..config.clone() }),
                endpoints: (0..ADDRESSES).map(endpoint).collect(),
                ..HostConfig::default()
            };
            Host::new(config, seed)
        };
        let mut hosts = [host(client_addr, 2 * seed), host(server_addr, 2 * seed + 1)];
        for number in 0..ADDRESSES {
            // Nothing else listens there.
            let _listener = hosts[1].listen(Endpoint::new(server_addr(number), PORT));
        }
        Self {
            now: Instant::from_secs(1),
            hosts,
            travelling: VecDeque::new(),
            sniffer: Sniffer::default(),
            exchanged: 0,
            to_strangers: Sent::default(),
            events: Vec::new(),
            received: Vec::new(),
        }
    }

    pub(super) fn client(&mut self) -> &mut Host {
        &mut self.hosts[Side::Client as usize]
    }

    pub(super) fn server(&mut self) -> &mut Host {
        &mut self.hosts[Side::Server as usize]
    }

    /// The client opens a connection.
    pub(super) fn connect(&mut self) -> Option<ConnectionId> {
        let (local, remote) = (Endpoint::new(client_addr(0), 0), Endpoint::new(server_addr(0), PORT));
        let now = self.now;
        let id = self.client().connect(now, local, remote, None).ok();
        self.flush();
        id
    }

    /// The server's end of the first connection that it accepted.
    pub(super) fn accepted(&self) -> Option<ConnectionId> {
        let accepted = |(_, side, id, event): &(Instant, Side, ConnectionId, Event)| {
            (*side == Side::Server && matches!(event, Event::Accepted { .. })).then_some(*id)
        };
        self.events.iter().find_map(accepted)
    }

    /// A client that is connected with all its addresses, and at rest.
    pub(super) fn connected(&mut self) -> Option<(ConnectionId, ConnectionId)> {
        let client = self.connect()?;
        self.run_for(Duration::from_secs(1));
        Some((client, self.accepted()?))
    }

    pub(super) fn write(&mut self, side: Side, id: ConnectionId, data: Bytes) -> usize {
        let taken = self.hosts[side as usize].send(id, data).unwrap_or(0);
        self.flush();
        taken
    }

    /// What the server's applications have read.
    pub(super) fn received(&self) -> &[u8] {
        &self.received
    }

    /// Somebody gives a host a packet.
    pub(super) fn inject(&mut self, to: Side, packet: Packet) {
        let now = self.now;
        self.hosts[to as usize].handle_packet(now, packet);
    }

    pub(super) fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        self.flush();
        loop {
            let arrival = self.travelling.front().map(|(at, ..)| *at);
            let timeouts = self.hosts.iter().filter_map(Host::poll_timeout);
            let Some(next) = timeouts.chain(arrival).min().filter(|at| *at <= end) else { break };
            self.now = self.now.max(next);
            while let Some((_, to, packet)) = self.travelling.pop_front_if(|(at, ..)| *at <= self.now) {
                self.inject(to, packet);
                self.flush();
            }
            for host in &mut self.hosts {
                host.handle_timeout(self.now);
            }
            self.flush();
        }
        self.now = end;
    }

    /// Takes what the hosts have to send and to say.
    pub(super) fn flush(&mut self) {
        for side in [Side::Client, Side::Server] {
            while let Some(packet) = self.hosts[side as usize].poll_transmit(self.now) {
                self.travel(side.other(), packet);
            }
            while let Some((id, event)) = self.hosts[side as usize].poll() {
                if event == Event::Readable {
                    self.read(side, id);
                } else {
                    self.events.push((self.now, side, id, event));
                }
            }
        }
    }

    fn read(&mut self, side: Side, id: ConnectionId) {
        while let Some(data) = self.hosts[side as usize].recv(id) {
            if side == Side::Server {
                self.received.extend(data.to_vec());
            }
        }
    }

    fn travel(&mut self, to: Side, packet: Packet) {
        if is_of_hosts(packet.ip.dst) {
            self.exchanged += 1;
            self.sniffer.observe(&packet);
            self.travelling.push_back((self.now + DELAY, to, packet));
        } else {
            self.to_strangers.packets += 1;
            self.to_strangers.bytes += packet.len_bytes() as u64;
        }
    }
}

fn is_of_hosts(addr: IpAddr) -> bool {
    (0..ADDRESSES).any(|number| addr == client_addr(number) || addr == server_addr(number))
}

/// Both ends are the hosts'.
pub(super) fn is_own(tuple: &FourTuple) -> bool {
    is_of_hosts(tuple.local.addr) && is_of_hosts(tuple.remote.addr)
}
