//! Several connections over shared paths, with a beginning each, and paths that change.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use polypath_congestion as congestion;
use polypath_link::{Change, LinkConfig};
use polypath_mptcp::path_manager::LocalEndpoint;
use polypath_mptcp::{ConnectionConfig, HostConfig};
use polypath_sim::app::SendPlan;
use polypath_sim::background::{DatagramSink, DatagramSource, HEADER_BYTES, OnOff};
use polypath_sim::conversation::{Conversation, Ends};
use polypath_sim::network::{BoxPosition, LinkId, LinkSpec, Network, NetworkBuilder, NodeId};
use polypath_sim::scenario::Recorded;
use polypath_units::{BitRate, Duration, Instant};
use polypath_wire::Endpoint;

use super::outcome::{Outcome, PathOutcome};
use super::path_set::{PathSet, PathSpec};
use super::series::{Quantity, Series};
use super::variant::Variant;
use super::watch::{self, MaybeWatched};
use super::workload::Workload;

/// Connections and changes of paths over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// The connections, each between hosts of its own.
    pub(crate) flows: Vec<Flow>,
    /// What happens to paths.
    pub events: Vec<PathEvent>,
    /// How long it lasts.
    pub duration: Duration,
}

/// One connection of a timeline.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Flow {
    /// What it is called in results.
    pub name: String,
    /// The path of each of its addresses; a path may come twice.
    pub paths: Vec<usize>,
    /// Plain TCP with this congestion control; as the variant says if none.
    pub(crate) tcp: Option<congestion::Policy>,
    /// No connection at all, but datagrams over the first path.
    pub(crate) datagrams: Option<OnOff>,
    /// Sends at this rate; as fast as possible if none.
    pub rate: Option<BitRate>,
    /// When it begins.
    pub(crate) start: Duration,
    /// When it ends; with the timeline if none.
    pub(crate) stop: Option<Duration>,
}

/// A path changes, in both directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathEvent {
    /// When.
    pub(crate) at: Duration,
    /// Which path, by number.
    pub(crate) path: usize,
    /// True cuts it, false brings it back.
    pub(crate) down: Option<bool>,
    /// With `down`, the interfaces of those that open connections over it go, or come, so that they know; otherwise it is
    /// elsewhere that the path is cut.
    pub(crate) interface: bool,
    /// A new rate.
    pub rate: Option<BitRate>,
    /// A new probability of loss.
    pub loss: Option<f64>,
}

impl Timeline {
    /// When paths begin to carry another amount.
    pub(crate) fn capacity_changes(&self) -> impl Iterator<Item = Duration> {
        let changes = self.events.iter().filter(|event| event.down.is_some() || event.rate.is_some());
        changes.map(|event| event.at).collect::<BTreeSet<_>>().into_iter()
    }

    /// The most goodput that a connection over these paths of the set can have at a time, in bits per second.
    fn capacity_bps(&self, set: &PathSet, paths: &[usize], at: Duration) -> f64 {
        let of_path = |(number, path): (usize, &PathSpec)| {
            let events = || self.events.iter().filter(|event| event.path == number && event.at <= at);
            let rate = events().filter_map(|event| event.rate.map(|rate| (event.at, rate)));
            let rate = rate.max_by_key(|(at, _)| *at).map_or(path.rate, |(_, rate)| rate);
            let down = events().filter_map(|event| event.down.map(|down| (event.at, down)));
            let is_down = down.max_by_key(|(at, _)| *at).is_some_and(|(_, down)| down);
            if is_down { 0.0 } else { PathSpec { rate, ..*path }.capacity_bps() }
        };
        let used = set.paths.iter().enumerate().filter(|(number, _)| paths.contains(number));
        used.map(of_path).sum()
    }

    /// The interfaces that an event is about, and the hosts that have them.
    fn interfaces(&self, event: PathEvent, hosts: &[Hosts]) -> Vec<(NodeId, LocalEndpoint)> {
        let connections = self.flows.iter().zip(hosts).filter(|(flow, _)| flow.datagrams.is_none());
        let interfaces = connections.flat_map(|(flow, hosts)| {
            let on_path = endpoints(&hosts.addrs).zip(&flow.paths).filter(|(_, path)| **path == event.path);
            on_path.map(|(endpoint, _)| (hosts.client, endpoint))
        });
        interfaces.filter(|_| event.interface).collect()
    }
}

/// Runs connections over shared paths, each a bottleneck between two routers.
///
/// The goodput of the outcome is that of the variant's connections together, from the start of the first.
#[must_use]
pub(crate) fn run_timeline(
    set: &PathSet,
    variant: &Variant,
    timeline: &Timeline,
    seed: u64,
    mut watch: MaybeWatched<'_>,
) -> Outcome {
    let config = Arc::new(variant.connection(set));
    let mut builder = NetworkBuilder::new(seed);
    let mut routers = Vec::new();
    let mut bottlenecks = Vec::new();
    for (number, path) in set.paths.iter().enumerate() {
        let ends = ["near", "far"].map(|end| builder.router(format!("{end} {}", number + 1)));
        let link = set.link(path);
        let mut spec =
            LinkSpec::new(format!("path {}", number + 1), ends, [None, None]).with(link.clone(), link);
        spec.boxes = set.line.chain(seed, number).map(|chain| (BoxPosition::First, chain));
        bottlenecks.push(builder.link(spec));
        routers.push(ends);
    }
    let hosts: Vec<Hosts> = (0..)
        .zip(&timeline.flows)
        .map(|(number, flow)| match flow.datagrams {
            None => add_hosts(&mut builder, &routers, number, flow, &config),
            Some(plan) => add_datagrams(&mut builder, &routers, number, (flow, plan), (timeline, seed)),
        })
        .collect();
    let mut network = watch::build(builder, &mut watch);
    for event in &timeline.events {
        schedule(&mut network, &bottlenecks, timeline.interfaces(*event, &hosts), *event);
    }
    let ends: Vec<FlowEnds> = (0..)
        .zip(timeline.flows.iter().zip(&hosts))
        .map(|(index, (flow, hosts))| {
            if let Some(link) = hosts.sink {
                return FlowEnds::Datagrams(link);
            }
            let (mut opener, mut acceptor) = Workload::Bulk { duration: timeline.duration }.plans_of(index);
            (opener.verify, acceptor.verify) = (watch.is_some(), watch.is_some());
            if let Some(rate) = flow.rate {
                let rate = Some(rate);
                opener.send = SendPlan::Blocks { block_bytes: BLOCK_BYTES, rate, total_bytes: u64::MAX };
            }
            opener.stop_at = flow.stop.map(|stop| Instant::ZERO + stop);
            let tcp = flow.tcp.clone().map(|congestion| {
                Arc::new(ConnectionConfig { mptcp: false, congestion, ..(*config).clone() })
            });
            let start = Instant::ZERO + flow.start;
            let ends = network.converse(Conversation {
                from: hosts.client,
                local: hosts.addrs[0],
                to: hosts.server,
                remote: Endpoint::new(hosts.server_addr, 80),
                start,
                config: tcp.clone(),
                opener,
                acceptor,
            });
            watch::add(&mut watch, || Recorded {
                name: flow.name.clone(),
                ends,
                config: tcp.unwrap_or_else(|| config.clone()),
                start,
                planned_bytes: None,
                upload: true,
                download: false,
            });
            FlowEnds::Connection(ends)
        })
        .collect();
    let mut recorder = Recorder::new(timeline);
    let steps = timeline.duration.as_nanos() / Series::INTERVAL.as_nanos();
    for step in 1..=steps {
        watch::run_until(&mut network, Instant::ZERO + Series::INTERVAL * step, &mut watch);
        recorder.sample(&network, timeline, &hosts, &ends);
    }
    watch::run_until(&mut network, Instant::ZERO + timeline.duration, &mut watch);
    watch::finish(&mut network, seed, &mut watch);
    outcome(&network, (set, timeline), &ends, &bottlenecks, recorder.series)
}

/// Blocks that make a rate: small enough to be even, large enough to fill packets.
const BLOCK_BYTES: u64 = 1448;

struct Hosts {
    client: NodeId,
    server: NodeId,
    addrs: Vec<IpAddr>,
    server_addr: IpAddr,
    /// The link to a host that takes datagrams.
    sink: Option<LinkId>,
}

fn endpoints(addrs: &[IpAddr]) -> impl Iterator<Item = LocalEndpoint> {
    (1..).zip(addrs).map(|(id, addr)| LocalEndpoint::subflow(*addr, id))
}

/// How to see what a flow has delivered.
#[derive(Clone, Copy)]
enum FlowEnds {
    Connection(Ends),
    Datagrams(LinkId),
}

impl FlowEnds {
    fn received_bytes(self, network: &Network) -> u64 {
        match self {
            Self::Connection(ends) => network.report(ends.acceptor).received_bytes,
            Self::Datagrams(link) => {
                let stats = network.channel_stats(link.forward());
                stats.delivered_bytes.saturating_sub(stats.delivered_packets * HEADER_BYTES)
            }
        }
    }
}

impl Flow {
    /// It goes as the variant says.
    fn is_compared(&self) -> bool {
        self.tcp.is_none() && self.datagrams.is_none()
    }
}

fn add_hosts(
    builder: &mut NetworkBuilder,
    routers: &[[NodeId; 2]],
    number: u8,
    flow: &Flow,
    config: &Arc<ConnectionConfig>,
) -> Hosts {
    let addr = |host: u8| IpAddr::V4(Ipv4Addr::new(10, 1, number, host));
    let addrs: Vec<IpAddr> = (2..).take(flow.paths.len()).map(addr).collect();
    let endpoints = endpoints(&addrs).collect();
    let host = HostConfig { connection: config.clone(), ..HostConfig::default() };
    let client = builder.host(format!("{} client", flow.name), HostConfig { endpoints, ..host.clone() });
    let server = builder.host(format!("{} server", flow.name), host);
    let server_addr = addr(1);
    for (path, addr) in flow.paths.iter().zip(&addrs) {
        let [near, _] = routers[*path];
        builder.link(LinkSpec::new("access", [client, near], [Some(*addr), None]));
    }
    let mut paths = flow.paths.clone();
    paths.sort_unstable();
    paths.dedup();
    for path in paths {
        let [_, far] = routers[path];
        builder.link(LinkSpec::new("access", [far, server], [None, Some(server_addr)]));
    }
    Hosts { client, server, addrs, server_addr, sink: None }
}

/// A source and a sink of datagrams at both ends of a flow's first path.
fn add_datagrams(
    builder: &mut NetworkBuilder,
    routers: &[[NodeId; 2]],
    number: u8,
    (flow, plan): (&Flow, OnOff),
    (timeline, seed): (&Timeline, u64),
) -> Hosts {
    let [addr, server_addr] = [2, 1].map(|host| IpAddr::V4(Ipv4Addr::new(10, 1, number, host)));
    let ends = [addr, server_addr].map(|addr| Endpoint::new(addr, 9));
    let times = [flow.start, flow.stop.unwrap_or(timeline.duration)].map(|at| Instant::ZERO + at);
    let seed = seed ^ u64::from(number) << 32 ^ 0x6461_7461;
    let source = Box::new(DatagramSource::new(plan, ends, times, seed));
    let client = builder.custom(format!("{} source", flow.name), source);
    let server = builder.custom(format!("{} sink", flow.name), Box::new(DatagramSink));
    let [near, far] = flow.paths.first().map_or(routers[0], |path| routers[*path]);
    builder.link(LinkSpec::new("access", [client, near], [Some(addr), None]));
    let mut spec = LinkSpec::new("access", [far, server], [None, Some(server_addr)]);
    // As fast as the others, but it counts.
    spec.forward = Some(LinkConfig::default());
    let sink = builder.link(spec);
    Hosts { client, server, addrs: vec![addr], server_addr, sink: Some(sink) }
}

fn schedule(
    network: &mut Network,
    bottlenecks: &[LinkId],
    interfaces: Vec<(NodeId, LocalEndpoint)>,
    event: PathEvent,
) {
    let Some(link) = bottlenecks.get(event.path).copied() else { return };
    network.schedule(Instant::ZERO + event.at, move |network| {
        let down = event.down.map(|down| if down { Change::Down } else { Change::Up });
        let rate = event.rate.map(|rate| Change::Rate(Some(rate)));
        let loss = event.loss.map(|loss| Change::Loss(polypath_link::Loss::Random(loss)));
        for change in [down, rate, loss].into_iter().flatten() {
            network.change(link.forward(), change.clone());
            network.change(link.backward(), change);
        }
        for (client, endpoint) in interfaces {
            network.with_host(client, |now, host| match event.down {
                Some(true) => host.stack.remove_endpoint(now, endpoint.addr),
                Some(false) => host.stack.add_endpoint(now, endpoint),
                None => {}
            });
        }
    });
}

/// Bytes so far, by connection and by path of it, and their rates.
struct Recorder {
    series: Vec<Series>,
    last_bytes: Vec<u64>,
}

impl Recorder {
    fn new(timeline: &Timeline) -> Self {
        let mut series = Vec::new();
        for (number, flow) in timeline.flows.iter().enumerate() {
            series.push(Series::new(number, None, Quantity::Rate));
            // The parts of a connection over one path tell nothing new.
            if flow.is_compared() && flow.paths.len() > 1 {
                for path in 0..flow.paths.len() {
                    series.push(Series::new(number, Some(path), Quantity::Rate));
                }
            }
        }
        Self { last_bytes: vec![0; series.len()], series }
    }

    fn sample(&mut self, network: &Network, timeline: &Timeline, hosts: &[Hosts], ends: &[FlowEnds]) {
        for (series, last_bytes) in self.series.iter_mut().zip(&mut self.last_bytes) {
            let ends = ends[series.flow];
            let bytes = match (series.path, ends) {
                (None, _) | (_, FlowEnds::Datagrams(_)) => ends.received_bytes(network),
                (Some(path), FlowEnds::Connection(ends)) => {
                    let addr = hosts[series.flow].addrs[path];
                    let info = network.connection_info(ends.opener).unwrap_or_default();
                    let subflows = info.subflows.iter().filter(|subflow| subflow.tuple.local.addr == addr);
                    subflows.map(|subflow| subflow.tcp.bytes_acked).sum()
                }
            };
            // A subflow that is opened anew counts from zero.
            let new_bytes = bytes.checked_sub(*last_bytes).unwrap_or(bytes);
            *last_bytes = bytes;
            series.values.push(new_bytes as f64 * 8.0 / Series::INTERVAL.as_secs_f64());
        }
        debug_assert_eq!(timeline.flows.len(), ends.len());
    }
}

fn outcome(
    network: &Network,
    (set, timeline): (&PathSet, &Timeline),
    ends: &[FlowEnds],
    bottlenecks: &[LinkId],
    series: Vec<Series>,
) -> Outcome {
    let bytes: Vec<u64> = ends.iter().map(|ends| ends.received_bytes(network)).collect();
    let rate = |bytes: u64, since: Duration, until: Duration| {
        bytes as f64 * 8.0 / until.saturating_sub(since).as_secs_f64().max(1e-9)
    };
    let flows_bps = timeline
        .flows
        .iter()
        .zip(&bytes)
        .map(|(flow, bytes)| rate(*bytes, flow.start, flow.stop.unwrap_or(timeline.duration)));
    let own = || timeline.flows.iter().zip(&bytes).filter(|(flow, _)| flow.is_compared());
    let received_bytes = own().map(|(_, bytes)| bytes).sum();
    let start = own().map(|(flow, _)| flow.start).min().unwrap_or_default();
    Outcome {
        received_bytes,
        goodput_bps: rate(received_bytes, start, timeline.duration),
        flows_bps: flows_bps.collect(),
        paths: bottlenecks.iter().map(|link| PathOutcome::of(network, *link)).collect(),
        fairness: fairness(timeline, &series),
        adaptation_s: adaptation_s(set, timeline, &series),
        series,
        events: network.events(),
        ..Outcome::default()
    }
}

/// How long connections may take to settle before their shares count.
const SETTLE: Duration = Duration::from_secs(5);

/// The goodput of the variant's connections over that of the others, connection by connection, while all of them send.
fn fairness(timeline: &Timeline, series: &[Series]) -> Option<f64> {
    let from = timeline.flows.iter().map(|flow| flow.start).max()? + SETTLE;
    let until = timeline.flows.iter().map(|flow| flow.stop.unwrap_or(timeline.duration)).min()?;
    let place = |at: Duration| (at.as_nanos() / Series::INTERVAL.as_nanos()) as usize;
    let mean = |is_tcp: bool| {
        let flows = series.iter().filter(|series| {
            let flow = &timeline.flows[series.flow];
            let counts = if is_tcp { flow.tcp.is_some() } else { flow.is_compared() };
            series.path.is_none() && counts
        });
        let rates: Vec<f64> = flows
            .map(|series| series.values.iter().take(place(until)).skip(place(from)).sum::<f64>())
            .collect();
        (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / rates.len() as f64)
    };
    let (own, others) = (mean(false)?, mean(true)?);
    (others > 0.0).then(|| own / others)
}

/// This share of what the paths carry is all of it: headers of Multipath TCP are not counted, and windows swing.
const WHOLE: f64 = 0.9;
/// What waited behind a gap comes at once, so that one interval tells little.
const WHOLE_INTERVALS: usize = 2;

/// The longest time from a change of the paths until a connection has what they then carry, or as much as it sends, for a whole
/// second. Infinite if that is not before the next change. None if others share the paths, or these stay as they are.
fn adaptation_s(set: &PathSet, timeline: &Timeline, series: &[Series]) -> Option<f64> {
    let [flow] = timeline.flows.as_slice() else { return None };
    let rates = &series.iter().find(|series| series.path.is_none() && flow.is_compared())?.values;
    let place = |at: Duration| (at.as_nanos() / Series::INTERVAL.as_nanos()) as usize;
    let changes: Vec<Duration> = timeline.capacity_changes().collect();
    let ends = changes.iter().skip(1).copied().chain([timeline.duration]);
    let times = changes.iter().zip(ends).map(|(at, end)| {
        let carried_bps = timeline.capacity_bps(set, &flow.paths, *at);
        let wanted_bps = flow.rate.map_or(carried_bps, |rate| carried_bps.min(rate.as_bps() as f64)) * WHOLE;
        // A change in the middle of an interval counts from its begin.
        let span = place(*at).min(rates.len())..place(end).min(rates.len());
        let is_whole = |rates: &[f64]| rates.iter().sum::<f64>() >= wanted_bps * WHOLE_INTERVALS as f64;
        let intervals = rates[span].windows(WHOLE_INTERVALS).position(is_whole);
        intervals.map_or(f64::INFINITY, |count| (Series::INTERVAL * count as u64).as_secs_f64())
    });
    times.max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::PathSpec;
    use polypath_mptcp::scheduler::Policy;

    fn paths(mbps: &[u64]) -> PathSet {
        let path = |mbps: &u64| PathSpec {
            rate: BitRate::from_mbps(*mbps),
            rtt: Duration::from_millis(20),
            queue: Duration::from_millis(50),
            loss: 0.0,
            change: None,
        };
        PathSet::from(mbps.iter().map(path).collect::<Vec<_>>())
    }

    fn flow(name: &str, paths: &[usize], tcp: Option<congestion::Policy>, start_s: u64) -> Flow {
        let start = Duration::from_secs(start_s);
        Flow { name: name.into(), paths: paths.to_vec(), tcp, datagrams: None, rate: None, start, stop: None }
    }

    /// The second path goes or comes, with its interface or not.
    fn second_path(at_s: u64, down: bool, interface: bool) -> PathEvent {
        let at = Duration::from_secs(at_s);
        PathEvent { at, path: 1, down: Some(down), interface, rate: None, loss: None }
    }

    fn lia() -> Variant {
        Variant::multipath("LIA", Policy::default(), polypath_congestion::LIA)
    }

    /// Mean of a series between two times in seconds, in Mbit/s.
    fn mean_mbps(outcome: &Outcome, flow: usize, path: Option<usize>, from_s: usize, to_s: usize) -> f64 {
        let series = outcome.series.iter().find(|series| series.flow == flow && series.path == path).unwrap();
        let part = &series.values[2 * from_s..2 * to_s];
        part.iter().sum::<f64>() / part.len() as f64 / 1e6
    }

    #[test]
    fn a_path_that_goes_and_comes_back_is_left_and_used_again() {
        let event = |at_s, down| second_path(at_s, down, false);
        let timeline = Timeline {
            flows: vec![flow("MPTCP", &[0, 1], None, 0)],
            events: vec![event(15, true), event(17, false)],
            duration: Duration::from_secs(60),
        };
        let outcome = run_timeline(&paths(&[4, 4]), &lia(), &timeline, 1, None);
        assert!(mean_mbps(&outcome, 0, None, 5, 15) > 6.5);
        let alone = mean_mbps(&outcome, 0, None, 15, 17);
        assert!((3.0..4.0).contains(&alone), "{alone}");
        assert!(mean_mbps(&outcome, 0, Some(1), 16, 17) < 0.01);
        assert!(mean_mbps(&outcome, 0, Some(1), 50, 60) > 2.0, "{outcome:?}");
    }

    fn limit(at_s: u64, mbps: u64) -> PathEvent {
        PathEvent {
            at: Duration::from_secs(at_s),
            path: 0,
            down: None,
            interface: false,
            rate: Some(BitRate::from_mbps(mbps)),
            loss: None,
        }
    }

    #[test]
    fn the_longest_time_until_a_connection_has_what_paths_carry_is_found() {
        let event = |at_s, down| second_path(at_s, down, false);
        let timeline = Timeline {
            flows: vec![flow("MPTCP", &[0, 1], None, 0)],
            events: vec![event(1, true), event(3, false), limit(6, 2), limit(6, 4)],
            duration: Duration::from_secs(8),
        };
        let set = paths(&[10, 20]);
        let capacity = |at_s: u64| {
            let bps = timeline.capacity_bps(&set, &[0, 1], Duration::from_secs(at_s));
            (bps / 1e6 * 1500.0 / 1448.0).round() as u64
        };
        // Of two events at a time, the later one holds.
        assert_eq!([0, 1, 2, 3, 6].map(capacity), [30, 10, 10, 30, 24]);
        let found = |mbps: [f64; 16]| {
            let values = mbps.map(|mbps| mbps * 1e6).to_vec();
            let series = Series { flow: 0, path: None, quantity: Quantity::Rate, values };
            adaptation_s(&set, &timeline, &[series]).unwrap()
        };
        let quick = [0., 0., 9., 9., 9., 9., 28., 28., 28., 28., 28., 28., 24., 24., 24., 24.];
        assert_eq!(found(quick), 0.0);
        // Half a second at which all comes that waited is none of them.
        let slow = [0., 0., 0., 9., 9., 9., 50., 1., 5., 5., 28., 28., 24., 24., 24., 24.];
        assert_eq!(found(slow), 2.0);
        let never = [0., 0., 0., 9., 9., 9., 28., 28., 28., 28., 28., 28., 1., 1., 1., 1.];
        assert_eq!(found(never), f64::INFINITY);
        let others = Timeline { flows: vec![flow("a", &[0], None, 0), flow("b", &[0], None, 0)], ..timeline };
        assert_eq!(adaptation_s(&set, &others, &[]), None);
    }

    #[test]
    fn a_path_that_is_limited_and_freed_is_left_and_used_again_within_two_seconds() {
        let timeline = Timeline {
            flows: vec![flow("MPTCP", &[0, 1], None, 0)],
            events: vec![limit(5, 1), limit(10, 10)],
            duration: Duration::from_secs(15),
        };
        let variant = Variant::multipath("both", Policy::default(), polypath_congestion::CUBIC);
        let outcome = run_timeline(&paths(&[10, 5]), &variant, &timeline, 1, None);
        assert!(outcome.adaptation_s.is_some_and(|time_s| time_s <= 2.0), "{:?}", outcome.adaptation_s);
    }

    #[test]
    fn a_path_whose_interface_comes_up_is_used_at_once() {
        let event = |at_s, down| second_path(at_s, down, true);
        let timeline = Timeline {
            flows: vec![flow("MPTCP", &[0, 1], None, 0)],
            events: vec![event(0, true), event(20, false)],
            duration: Duration::from_secs(40),
        };
        let outcome = run_timeline(&paths(&[4, 4]), &lia(), &timeline, 1, None);
        let alone = mean_mbps(&outcome, 0, None, 5, 20);
        assert!((3.0..4.0).contains(&alone), "{alone}");
        let together = mean_mbps(&outcome, 0, None, 22, 40);
        assert!(together > 6.5, "{together}");
    }

    #[test]
    fn two_equal_connections_share_and_a_late_one_counts_from_its_start() {
        let tcp = Some(polypath_congestion::CUBIC);
        let timeline = Timeline {
            flows: vec![flow("one", &[0], tcp, 0), flow("other", &[0], None, 20)],
            events: Vec::new(),
            duration: Duration::from_secs(120),
        };
        let variant = Variant::single_path(0, polypath_congestion::CUBIC);
        let outcome = run_timeline(&paths(&[10]), &variant, &timeline, 1, None);
        assert!(mean_mbps(&outcome, 0, None, 5, 20) > 9.0);
        assert!(mean_mbps(&outcome, 1, None, 0, 20) < 0.01);
        let fairness = outcome.fairness.unwrap();
        assert!((0.7..1.4).contains(&fairness), "{fairness}");
        assert!((3e6..6e6).contains(&outcome.goodput_bps));
    }

    #[test]
    fn a_limited_connection_has_its_rate() {
        let limited = Flow { rate: Some(BitRate::from_mbps(2)), ..flow("limited", &[0], None, 0) };
        let timeline =
            Timeline { flows: vec![limited], events: Vec::new(), duration: Duration::from_secs(20) };
        let outcome = run_timeline(&paths(&[10]), &lia(), &timeline, 1, None);
        assert!((outcome.goodput_bps / 2e6 - 1.0).abs() < 0.02, "{outcome:?}");
        assert_eq!(outcome.fairness, None);
    }

    #[test]
    fn datagrams_take_their_rate_and_count_as_nobody() {
        let on_off = OnOff {
            rate: BitRate::from_mbps(6),
            packet_bytes: 1000,
            on: Duration::from_millis(500),
            off: Duration::from_millis(500),
            shape: 1.9,
        };
        let datagrams = Flow { datagrams: Some(on_off), ..flow("UDP", &[0], None, 10) };
        let timeline = Timeline {
            flows: vec![flow("MPTCP", &[0], None, 0), datagrams],
            events: Vec::new(),
            duration: Duration::from_secs(130),
        };
        let outcome = run_timeline(&paths(&[10]), &lia(), &timeline, 1, None);
        assert!(mean_mbps(&outcome, 0, None, 5, 10) > 9.0);
        assert!(mean_mbps(&outcome, 1, None, 0, 10) < 0.01);
        // Half of the time, and some are lost to a full queue.
        let others = mean_mbps(&outcome, 1, None, 10, 130);
        assert!((2.0..3.6).contains(&others), "{others}");
        let own = mean_mbps(&outcome, 0, None, 15, 130);
        assert!((4.5..8.0).contains(&own), "{own}");
        assert_eq!(outcome.fairness, None);
        assert!((outcome.flows_bps[1] / 1e6 - others).abs() < 0.2, "{:?}", outcome.flows_bps);
    }
}
