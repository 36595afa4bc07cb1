//! What is random about the hosts and the paths of a run.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use polypath_mptcp::path_manager::{self, Limits, LocalEndpoint};
use polypath_mptcp::{ConnectionConfig, HostConfig, LiaOnSharedAccess, scheduler};
use polypath_tcp::Config;
use polypath_units::{BitRate, Duration};
use polypath_wire::MptcpVersion;

use super::reader::Reader;

/// What an attacker can do besides sending what it likes from addresses of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strength {
    /// There is none.
    None,
    /// It knows the flows and what they say, but not the sequence numbers: its segments are never acceptable, and so must change
    /// nothing.
    OffPath,
    /// It sees every packet, sends what it likes, and flips bits: it may end connections and change bytes, and no more than that.
    OnPath,
}

/// One of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    /// It opens connections.
    Client,
    /// It listens.
    Server,
}

impl Side {
    /// The other one.
    #[must_use]
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    pub(super) const fn index(self) -> usize {
        self as usize
    }
}

/// Probabilities of what happens to a packet, of 256.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    /// It is lost.
    pub drop: u8,
    /// It arrives twice.
    pub duplicate: u8,
    /// It arrives late.
    pub delay: u8,
}

/// One access link of the client; the server's is never the narrower one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkPlan {
    /// One way.
    pub delay: Duration,
    /// None: any.
    pub rate: Option<BitRate>,
}

/// Hosts and paths of a run.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// Of hosts and network.
    pub seed: u64,
    /// What the attacker can do.
    pub strength: Strength,
    /// The client's access links.
    pub links: Vec<LinkPlan>,
    /// Addresses of the server.
    pub server_addrs: usize,
    /// At the start.
    pub faults: Faults,
    /// Aggregates travel as their segments.
    pub split: bool,
    /// The network loses no more than two packets of a flow in a row, and the run is so short that no timer ends a connection:
    /// everything must arrive.
    pub fair: bool,
    /// Settings of both hosts.
    pub hosts: [HostConfig; 2],
}

/// Port that the server listens at.
pub(crate) const PORT: u16 = 80;

/// Address of the client's access link `link`.
#[must_use]
pub(crate) fn client_addr(link: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, link as u8, 1).into()
}

/// The server's address number `number`.
#[must_use]
pub(crate) fn server_addr(number: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, number as u8, 2).into()
}

const RATES: [Option<u64>; 6] =
    [None, Some(1_000_000_000), Some(100_000_000), Some(10_000_000), Some(2_000_000), Some(400_000)];
const BUFFERS: [u64; 8] = [1 << 20, 4096, 6000, 16 << 10, 64 << 10, 256 << 10, 4 << 20, 64 << 20];
const MTUS: [u16; 4] = [1500, 9000, 1280, 576];

impl Setup {
    pub(super) fn read(bytes: &[u8]) -> Self {
        let mut reader = Reader::new(bytes);
        let strength = reader.pick(&[Strength::None, Strength::OffPath, Strength::OnPath, Strength::OffPath]);
        let fair = !reader.chance(64);
        let seed = u64::from(reader.u32());
        let split = reader.chance(128);
        let links = (0..reader.pick(&[1, 2, 3])).map(|_| LinkPlan::read(&mut reader)).collect::<Vec<_>>();
        let server_addrs = reader.pick(&[1, 2]);
        let most = if fair { 48 } else { 160 };
        let faults = if reader.chance(128) { Faults::read(&mut reader, most) } else { Faults::default() };
        let client: Vec<IpAddr> = (0..links.len()).map(client_addr).collect();
        let server: Vec<IpAddr> = (0..server_addrs).map(server_addr).collect();
        let hosts = [host(&mut reader, &client, false), host(&mut reader, &server, true)];
        Self { seed, strength, links, server_addrs, faults, split, fair, hosts }
    }
}

/// Gaps that are enough to hear of new data beyond what a queue drops at once.
const MANY_GAPS: usize = 64;

impl Setup {
    /// Where neither timestamps nor selective acknowledgments are in use, all of a window goes again after a timeout. Nothing of it
    /// measures the round trip (RFC 6298 §3), so that the timeout stays backed off (§5.5): a window a minute is all that can be asked.
    /// It is the same where a receiver keeps few gaps, as it takes nothing new while there are more.
    pub(super) fn measures_after_losses(&self) -> bool {
        let [client, server] = self.tcp();
        let gaps = client.max_reassembly_gaps.min(server.max_reassembly_gaps);
        self.have_timestamps() || client.sack && server.sack && gaps >= MANY_GAPS
    }

    /// Segments carry timestamps.
    pub(super) fn have_timestamps(&self) -> bool {
        self.tcp().iter().all(|tcp| tcp.timestamps)
    }

    fn tcp(&self) -> [&Config; 2] {
        [0, 1].map(|host| &*self.hosts[host].connection.tcp)
    }
}

impl Faults {
    pub(super) fn read(reader: &mut Reader<'_>, most: u8) -> Self {
        let mut some = || reader.byte() % most;
        Self { drop: some(), duplicate: some(), delay: some() }
    }
}

impl LinkPlan {
    fn read(reader: &mut Reader<'_>) -> Self {
        let delay = Duration::from_micros(reader.log(17));
        Self { delay, rate: reader.pick(&RATES).map(BitRate::from_bps) }
    }
}

fn host(reader: &mut Reader<'_>, addrs: &[IpAddr], is_server: bool) -> HostConfig {
    let endpoints = (1..).zip(addrs).map(|(id, addr)| endpoint(reader, *addr, id, is_server)).collect();
    HostConfig {
        connection: Arc::new(connection(reader)),
        endpoints,
        limits: Limits {
            subflows: reader.pick(&[8, 1, 2, 0]),
            add_addr_accepted: reader.pick(&[8, 0, 1, 2]),
        },
        backlog: reader.pick(&[4096, 64, 8]),
        max_half_open_joins: reader.pick(&[8, 1]),
        receive_memory_bytes: reader.pick(&[1 << 30, 1 << 20, 0]),
        ..HostConfig::default()
    }
}

fn endpoint(reader: &mut Reader<'_>, addr: IpAddr, id: u8, is_server: bool) -> LocalEndpoint {
    let mut endpoint =
        if is_server { LocalEndpoint::signal(addr, id) } else { LocalEndpoint::subflow(addr, id) };
    endpoint.backup = reader.chance(32);
    endpoint.fullmesh &= !reader.chance(32);
    endpoint.signal ^= reader.chance(32);
    endpoint.subflow ^= reader.chance(16);
    endpoint
}

fn connection(reader: &mut Reader<'_>) -> ConnectionConfig {
    let mut config = ConnectionConfig {
        mptcp: !reader.chance(24),
        version: reader.pick(&[MptcpVersion::V1, MptcpVersion::V0]),
        checksum: reader.chance(80),
        no_join_initial: reader.chance(16),
        lia_on_shared_access: match reader.chance(16) {
            true => LiaOnSharedAccess::Never,
            false => LiaOnSharedAccess::Always,
        },
        race: !reader.chance(64),
        receive_autotuning: !reader.chance(64),
        max_mapping_bytes: reader.pick(&[u16::MAX, 200, 1000, 1460, 5000]),
        ..ConnectionConfig::default()
    };
    config.scheduler = reader.pick(scheduler::Policy::ALL);
    config.path_manager = reader.pick(path_manager::Policy::ALL);
    config.congestion = reader.pick(polypath_congestion::Policy::ALL);
    config.tcp = Arc::new(tcp(reader));
    config
}

fn tcp(reader: &mut Reader<'_>) -> Config {
    Config {
        receive_buffer_bytes: reader.pick(&BUFFERS),
        send_buffer_bytes: reader.pick(&BUFFERS),
        mtu_bytes: reader.pick(&MTUS),
        max_aggregate_bytes: reader.pick(&[65_000, 0, 4000]),
        timestamps: !reader.chance(64),
        sack: !reader.chance(64),
        window_scaling: !reader.chance(48),
        initial_window_packets: reader.pick(&[10, 1, 3]),
        quick_ack_packets: reader.pick(&[16, 0]),
        no_delay: !reader.chance(96),
        pacing: !reader.chance(96),
        mtu_probing: !reader.chance(64),
        max_reassembly_gaps: reader.pick(&[4096, 4, 64]),
        max_rto: Duration::from_secs(60),
        ..Config::default()
    }
}
