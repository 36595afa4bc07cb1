//! One workload over one set of parallel paths.

use std::fmt;
use std::sync::Arc;

use polypath_link::{Change, LinkConfig, Loss, QueueLimit};
use polypath_mptcp::HostConfig;
use polypath_sim::app::{ExchangePlan, SendPlan, TrafficPlan};
use polypath_sim::conversation::{Conversation, Ends};
use polypath_sim::network::{LinkId, Network};
use polypath_sim::topologies::{ParallelPaths, PathConfig, parallel_paths};
use polypath_units::{BitRate, Duration, Instant};
use polypath_wire::Endpoint;
use serde::{Deserialize, Serialize};

use super::observe::{Observation, Observer};
use super::timeline::Series;
use super::variant::Variant;

/// A path between two hosts, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathSpec {
    /// Rate of the transmitter, IP headers included.
    pub rate: BitRate,
    /// Round-trip time of an empty path: twice the propagation delay.
    pub rtt: Duration,
    /// How long a full queue takes to empty. At least [`PathSpec::LEAST_QUEUE_PACKETS`] fit.
    pub queue: Duration,
    /// Probability that a packet is lost on the line, 0 to 1.
    pub loss: f64,
    /// It becomes another on the way.
    pub change: Option<RateChange>,
}

/// A path that goes on at another rate, as those of radio do. Its queue keeps its length in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateChange {
    /// From the opening of the connection on.
    pub after: Duration,
    /// The new rate.
    pub rate: BitRate,
}

/// Paths between two hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct PathSet {
    /// The paths.
    pub paths: Vec<PathSpec>,
}

/// What is sent, from the host that opens the connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Workload {
    /// As much as possible for so long.
    Bulk {
        /// From the opening of the connection on.
        duration: Duration,
    },
    /// So many bytes.
    Transfer {
        /// How many.
        bytes: u64,
        /// When to give up.
        timeout: Duration,
    },
    /// Blocks, each of which is timed from its making to its arrival.
    Blocks {
        /// Size of a block in bytes.
        block_bytes: u64,
        /// Rate at which blocks are made; if none, each is made when the send buffer has taken the one before.
        rate: Option<BitRate>,
        /// How long blocks are made.
        duration: Duration,
    },
    /// Requests and responses in turn; the response comes from the host that accepted the connection.
    Requests {
        /// Size of a request in bytes.
        request_bytes: u64,
        /// Size of a response in bytes.
        response_bytes: u64,
        /// How many.
        count: u64,
        /// When to give up.
        timeout: Duration,
    },
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |bytes: u64| if bytes >= 1 << 20 { (bytes >> 20, "MB") } else { (bytes >> 10, "KB") };
        match *self {
            Self::Bulk { duration } => write!(f, "bulk {duration}"),
            Self::Transfer { bytes, .. } => {
                let (count, unit) = size(bytes);
                write!(f, "{count} {unit}")
            }
            Self::Blocks { block_bytes, rate: Some(rate), .. } => {
                write!(f, "blocks of {block_bytes} bytes at {rate}")
            }
            Self::Blocks { block_bytes, rate: None, .. } => write!(f, "blocks of {block_bytes} bytes"),
            Self::Requests { response_bytes, count, .. } => {
                write!(f, "{count} responses of {response_bytes} bytes")
            }
        }
    }
}

/// What a run gave.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Bytes that arrived in order at the receiving application.
    pub received_bytes: u64,
    /// Those bytes over the time from the first SYN to the last byte, or to the end of a bulk transfer, in bits per
    /// second.
    pub goodput_bps: f64,
    /// From the first SYN to the last planned byte, in seconds, if it arrived in time. Of bulk transfers: never.
    pub completion_s: Option<f64>,
    /// The path that the connection was opened over.
    pub initial_path: usize,
    /// Each path.
    pub paths: Vec<PathOutcome>,
    /// Goodput of each connection in bits per second, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows_bps: Vec<f64>,
    /// Goodput of the variant's connections over that of plain TCP beside them, where there are both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness: Option<f64>,
    /// Rates over time, where the experiment has a timeline.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Series>,
    /// Delays of blocks, if blocks were sent.
    pub blocks: Option<BlockDelays>,
    /// Largest receive buffer that was promised to the sender, in bytes, if that was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_buffer_bytes: Option<u64>,
    /// When the congestion window of the fastest path was first as large as slow start made it, or as the receive buffer, in
    /// seconds from the first SYN, if that was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_start_s: Option<f64>,
    /// Events that the simulator processed.
    pub events: u64,
}

/// What went over a path, from the host that opened the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathOutcome {
    /// Bytes that arrived, IP headers included.
    pub delivered_bytes: u64,
    /// Packets that arrived.
    pub delivered_packets: u64,
    /// Packets that the queue dropped.
    pub queue_drops: u64,
    /// Packets lost on the line.
    pub lost_packets: u64,
}

/// How long blocks took from their making to their arrival, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BlockDelays {
    /// Blocks that were made.
    pub made: u64,
    /// Blocks that arrived.
    pub arrived: u64,
    /// The least delay.
    pub min_s: f64,
    /// Median.
    pub median_s: f64,
    /// 95th percentile.
    pub p95_s: f64,
    /// 99th percentile.
    pub p99_s: f64,
    /// The longest delay.
    pub max_s: f64,
}

impl fmt::Display for PathSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} Mbit/s", self.rate.as_mbps_f64())?;
        if let Some(RateChange { after, rate }) = self.change {
            write!(f, " (after {after} {:.2})", rate.as_mbps_f64())?;
        }
        write!(f, " {:.0} ms, queue {:.0} ms", self.rtt.as_secs_f64() * 1e3, self.queue.as_secs_f64() * 1e3)
    }
}

impl PathSpec {
    /// Fewer places in a queue than this would drop parts of every pair of segments.
    pub const LEAST_QUEUE_PACKETS: u64 = 3;

    const PACKET_BYTES: u64 = 1500;
    /// A full segment's payload with timestamps, over IPv4.
    const PAYLOAD_BYTES: u64 = 1448;

    /// The most goodput that plain TCP can have here: the payload's share of full-sized packets.
    #[must_use]
    pub fn capacity_bps(&self) -> f64 {
        self.rate.as_bps() as f64 * Self::PAYLOAD_BYTES as f64 / Self::PACKET_BYTES as f64
    }

    /// Each direction of it.
    #[must_use]
    pub fn link(&self) -> LinkConfig {
        self.one_way_link(Duration::from_nanos(self.rtt.as_nanos() / 2))
    }

    /// One direction, with this propagation delay.
    pub(super) fn one_way_link(&self, delay: Duration) -> LinkConfig {
        let queue_bytes = self.rate.bytes_in(self.queue).max(Self::LEAST_QUEUE_PACKETS * Self::PACKET_BYTES);
        LinkConfig {
            loss: if self.loss > 0.0 { Loss::Random(self.loss) } else { Loss::None },
            ..LinkConfig::new(self.rate, delay, QueueLimit::Bytes(queue_bytes))
        }
    }

    /// What plain TCP is expected to need for a transfer, in seconds: handshake, slow start, then the path's rate or
    /// what random loss leaves of it (Mathis et al. 1997).
    pub(crate) fn expected_time_s(&self, bytes: u64) -> f64 {
        let rtt_s = self.rtt.as_secs_f64().max(1e-4);
        let payload_bytes = Self::PAYLOAD_BYTES as f64;
        let by_loss = if self.loss > 0.0 {
            payload_bytes / (rtt_s + self.queue.as_secs_f64() / 2.0) * (1.5 / self.loss).sqrt()
        } else {
            f64::INFINITY
        };
        let bytes_per_s = (self.capacity_bps() / 8.0).min(by_loss);
        let bytes = bytes as f64;
        // Rounds until the transfer is over or the path is full.
        let first_round_bytes = 10.0 * payload_bytes;
        let full = (bytes.min(bytes_per_s * rtt_s) / first_round_bytes + 1.0).log2();
        rtt_s * (1.5 + full) + bytes / bytes_per_s
    }
}

impl PathOutcome {
    pub(super) fn of(network: &Network, link: LinkId) -> Self {
        let stats = network.channel_stats(link.forward());
        Self {
            delivered_bytes: stats.delivered_bytes,
            delivered_packets: stats.delivered_packets,
            queue_drops: stats.queue_drops,
            lost_packets: stats.lost_packets,
        }
    }
}

impl PathSet {
    /// The buffer that never limits: 2 · Σ rate · longest round trip, with full queues.
    #[must_use]
    pub fn recommended_buffer_bytes(&self) -> u64 {
        let longest = self.paths.iter().map(|path| path.rtt + path.queue).max().unwrap_or_default();
        self.paths.iter().map(|path| path.rate.bytes_in(longest)).sum::<u64>().saturating_mul(2)
    }
}

impl Workload {
    /// How many bytes the choice of a best path should think of.
    pub(super) fn expected_bytes(&self) -> u64 {
        match *self {
            // Long enough for the rate alone to matter.
            Self::Bulk { .. } => 1 << 30,
            Self::Transfer { bytes, .. } => bytes,
            Self::Blocks { block_bytes, .. } => block_bytes,
            Self::Requests { request_bytes, response_bytes, .. } => request_bytes.max(response_bytes),
        }
    }

    /// When a run ends at the latest.
    fn end(&self) -> Instant {
        let span = match *self {
            Self::Bulk { duration } => duration,
            Self::Transfer { timeout, .. } | Self::Requests { timeout, .. } => timeout,
            // What is under way at the end still arrives.
            Self::Blocks { duration, .. } => duration + Duration::from_secs(60),
        };
        Instant::ZERO + span
    }

    /// Nothing happens any more that a result would show: the last byte has arrived.
    fn is_complete(&self, network: &Network, ends: Ends) -> bool {
        match *self {
            Self::Bulk { .. } => false,
            Self::Transfer { bytes, .. } => network.report(ends.acceptor).received_bytes >= bytes,
            Self::Blocks { .. } => network.report(ends.acceptor).peer_finished_at.is_some(),
            Self::Requests { count, .. } => network.report(ends.opener).exchanges >= count,
        }
    }

    /// What the ends of connection number `index` do.
    pub(super) fn plans_of(&self, index: u64) -> (TrafficPlan, TrafficPlan) {
        let (mut opener, mut acceptor) = Conversation::plans(index, None, None);
        match *self {
            Self::Bulk { .. } => opener.send = SendPlan::Bytes(u64::MAX),
            Self::Transfer { bytes, .. } => opener.send = SendPlan::Bytes(bytes),
            Self::Blocks { block_bytes, rate, duration } => {
                // What was made in time is sent, however late. Without a rate, nothing is made that can't be sent at once.
                let total_bytes = rate.map_or(u64::MAX, |rate| {
                    let interval = rate.time_to_send(block_bytes).as_nanos().max(1);
                    (duration.as_nanos() / interval + 1).saturating_mul(block_bytes)
                });
                opener.send = SendPlan::Blocks { block_bytes, rate, total_bytes };
                opener.stop_at = rate.is_none().then(|| Instant::ZERO + duration);
            }
            Self::Requests { request_bytes, response_bytes, count, .. } => {
                let plan = |initiates| {
                    SendPlan::Exchange(ExchangePlan { initiates, request_bytes, response_bytes, count })
                };
                (opener.send, acceptor.send) = (plan(true), plan(false));
            }
        }
        // Thousands of runs: what arrives is compared in the tests of the stack.
        opener.verify = false;
        acceptor.verify = false;
        (opener, acceptor)
    }
}

/// Runs `workload` by `variant` over `set`.
///
/// The host that opens the connection has an address on each path and sends; the other has one address. Everything
/// random follows from `seed`.
#[must_use]
pub fn run_set(set: &PathSet, variant: &Variant, workload: &Workload, seed: u64) -> Outcome {
    run(set, variant, workload, seed, None)
}

/// The same, and looks at the ends of a bulk transfer on the way.
#[must_use]
pub fn observe_set(
    set: &PathSet,
    variant: &Variant,
    workload: &Workload,
    seed: u64,
    what: Observation,
) -> Outcome {
    run(set, variant, workload, seed, Some(what))
}

fn run(
    set: &PathSet,
    variant: &Variant,
    workload: &Workload,
    seed: u64,
    observation: Option<Observation>,
) -> Outcome {
    let paths = set
        .paths
        .iter()
        .enumerate()
        .map(|(number, path)| PathConfig::symmetric(format!("path {}", number + 1), path.link()));
    let host = HostConfig { connection: Arc::new(variant.connection(set)), ..HostConfig::default() };
    let (builder, net) = parallel_paths(seed, paths, host.clone(), host);
    let mut network = builder.build();
    let initial_path = variant.initial_path(set, workload, seed);
    let mut start = Instant::ZERO;
    if variant.acquainted {
        start = make_acquainted(&mut network, &net, initial_path);
    }
    schedule_changes(&mut network, set, &net, start);
    let (opener, acceptor) = workload.plans_of(0);
    let ends = network.converse(Conversation {
        from: net.client,
        local: net.client_addrs[initial_path],
        to: net.server,
        remote: Endpoint::new(net.server_addr, 80),
        start,
        config: None,
        opener,
        acceptor,
    });
    let end = start + workload.end().since(Instant::ZERO);
    let observation = observation.filter(|_| matches!(workload, Workload::Bulk { .. }));
    let mut observer = observation.map(|what| Observer::new(what, set, &net, start));
    let step = if observer.is_some() { Observer::INTERVAL } else { step(workload) };
    while network.now() < end && !workload.is_complete(&network, ends) {
        let mut next = network.now() + step;
        match &mut observer {
            Some(observer) => {
                network.run_until(next.min(end));
                observer.look(&network, ends);
            }
            None => {
                next = next.max(network.next_event_at().unwrap_or(end));
                network.run_until(next.min(end));
            }
        }
    }

    let receiving = match workload {
        Workload::Requests { .. } => ends.opener,
        _ => ends.acceptor,
    };
    let report = network.report(receiving);
    let is_complete = workload.is_complete(&network, ends);
    let last = report.last_received_at.unwrap_or(end);
    let span = if is_complete { last.since(start) } else { network.now().since(start) };
    Outcome {
        received_bytes: report.received_bytes,
        goodput_bps: report.received_bytes as f64 * 8.0 / span.as_secs_f64().max(1e-9),
        completion_s: is_complete.then(|| last.since(start).as_secs_f64()),
        initial_path,
        paths: net.links.iter().map(|link| PathOutcome::of(&network, *link)).collect(),
        flows_bps: Vec::new(),
        fairness: None,
        receive_buffer_bytes: observer.as_ref().map(Observer::receive_buffer_bytes),
        slow_start_s: observer.as_ref().and_then(Observer::slow_start_s),
        series: observer.map(Observer::into_series).unwrap_or_default(),
        blocks: matches!(workload, Workload::Blocks { .. }).then(|| {
            let sender = network.report(ends.opener);
            let delays = network.report(ends.acceptor).block_delays(sender).map(Duration::as_secs_f64);
            BlockDelays::new(sender.blocks_made.len() as u64, delays.collect())
        }),
        events: network.events(),
    }
}

/// Lets the paths change while the connection that begins at `start` goes on.
fn schedule_changes(network: &mut Network, set: &PathSet, net: &ParallelPaths, start: Instant) {
    for (path, link) in set.paths.iter().zip(&net.links) {
        let Some(RateChange { after, rate }) = path.change else { continue };
        let channels = [link.forward(), link.backward()];
        network.schedule(start + after, move |network| {
            channels.into_iter().for_each(|channel| network.change(channel, Change::Rate(Some(rate))));
        });
    }
}

/// A first connection, after which the hosts remember the paths. Returns when it is over.
fn make_acquainted(network: &mut Network, net: &ParallelPaths, initial_path: usize) -> Instant {
    const BYTES: u64 = 1 << 20;
    let (mut opener, mut acceptor) = Conversation::plans(1, None, None);
    opener.send = SendPlan::Bytes(BYTES);
    (opener.verify, acceptor.verify) = (false, false);
    let ends = network.converse(Conversation {
        from: net.client,
        local: net.client_addrs[initial_path],
        to: net.server,
        remote: Endpoint::new(net.server_addr, 79),
        start: Instant::ZERO,
        config: None,
        opener,
        acceptor,
    });
    let last = Instant::from_secs(3600);
    while network.report(ends.acceptor).received_bytes < BYTES && network.now() < last {
        network.run_until(network.now() + Duration::from_millis(50));
    }
    // What is left in queues leaves, and the subflows close.
    network.run_until(network.now() + Duration::from_secs(10));
    // The first losses to come are those of a run without acquaintance, and of TCP alone: less noise in the comparison.
    for link in &net.links {
        for channel in [link.forward(), link.backward()] {
            network.change(channel, Change::Anew);
        }
    }
    network.now()
}

/// How often a run is looked at: transfers end when they end, and nothing is gained by running on.
fn step(workload: &Workload) -> Duration {
    match workload {
        Workload::Bulk { duration } => *duration,
        _ => Duration::from_millis(50),
    }
}

impl BlockDelays {
    fn new(made: u64, mut delays_s: Vec<f64>) -> Self {
        delays_s.sort_by(f64::total_cmp);
        let at = |share: f64| crate::metrics::percentile(&delays_s, share);
        Self {
            made,
            arrived: delays_s.len() as u64,
            min_s: at(0.0),
            median_s: at(0.5),
            p95_s: at(0.95),
            p99_s: at(0.99),
            max_s: at(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::aggregation_benefit;
    use crate::run::{InitialPath, Variant};
    use polypath_mptcp::scheduler::Policy;

    fn wifi_and_3g() -> PathSet {
        let path = |mbps, rtt_ms, queue_ms| PathSpec {
            rate: BitRate::from_mbps(mbps),
            rtt: Duration::from_millis(rtt_ms),
            queue: Duration::from_millis(queue_ms),
            loss: 0.0,
            change: None,
        };
        PathSet { paths: vec![path(8, 20, 80), path(2, 150, 2000)] }
    }

    const BULK: Workload = Workload::Bulk { duration: Duration::from_secs(60) };

    #[test]
    fn plain_tcp_has_its_path_and_multipath_tcp_has_both() {
        let set = wifi_and_3g();
        let capacities: Vec<f64> = set.paths.iter().map(PathSpec::capacity_bps).collect();
        for (path, capacity) in capacities.iter().enumerate() {
            let alone = run_set(&set, &Variant::single_path(path, polypath_congestion::CUBIC), &BULK, 1);
            let share = alone.goodput_bps / capacity;
            assert!((0.9..=1.0).contains(&share), "path {path}: {share}");
            assert_eq!(alone.initial_path, path);
            assert_eq!(alone.paths[1 - path].delivered_packets, 0);
        }
        let both =
            run_set(&set, &Variant::multipath("lia", Policy::default(), polypath_congestion::LIA), &BULK, 1);
        let benefit = aggregation_benefit(both.goodput_bps, &capacities);
        assert!((0.7..=1.0).contains(&benefit), "{benefit}, {both:?}");
    }

    #[test]
    fn transfers_end_with_their_last_byte_and_equal_seeds_give_equal_runs() {
        let set = wifi_and_3g();
        let workload = Workload::Transfer { bytes: 512 * 1024, timeout: Duration::from_secs(60) };
        let variant = Variant::multipath("m", Policy::default(), polypath_congestion::CUBIC);
        let [best, worst] = [InitialPath::Best, InitialPath::Worst].map(|initial| {
            let variant = variant.clone().opened_over(initial);
            let outcome = run_set(&set, &variant, &workload, 7);
            assert_eq!(outcome, run_set(&set, &variant, &workload, 7));
            assert_eq!(outcome.received_bytes, 512 * 1024);
            outcome
        });
        assert_eq!((best.initial_path, worst.initial_path), (0, 1));
        let (best_s, worst_s) = (best.completion_s.unwrap(), worst.completion_s.unwrap());
        // 512 KB at 10 Mbit/s are 0.43 s. A stack that tries all paths at once may not care where it begins.
        assert!(0.43 < best_s && best_s <= worst_s && worst_s < 4.0, "{best:?} {worst:?}");
    }

    #[test]
    fn a_transfer_that_does_not_fit_its_time_is_not_complete() {
        let workload = Workload::Transfer { bytes: 100 << 20, timeout: Duration::from_secs(2) };
        let outcome =
            run_set(&wifi_and_3g(), &Variant::single_path(0, polypath_congestion::CUBIC), &workload, 1);
        assert_eq!(outcome.completion_s, None);
        assert!((1e6..8e6).contains(&outcome.goodput_bps), "{outcome:?}");
    }

    #[test]
    fn blocks_below_capacity_all_arrive_and_take_a_propagation_delay_at_least() {
        let workload = Workload::Blocks {
            block_bytes: 8000,
            rate: Some(BitRate::from_mbps(2)),
            duration: Duration::from_secs(10),
        };
        let variant = Variant::multipath("m", Policy::default(), polypath_congestion::LIA);
        let delays = run_set(&wifi_and_3g(), &variant, &workload, 1).blocks.unwrap();
        // A block every 32 ms.
        assert!((310..=313).contains(&delays.made), "{delays:?}");
        assert_eq!(delays.arrived, delays.made);
        assert!(delays.min_s >= 0.010 && delays.min_s <= delays.median_s && delays.p99_s <= delays.max_s);
    }

    #[test]
    fn requests_are_answered_in_turn() {
        let workload = Workload::Requests {
            request_bytes: 200,
            response_bytes: 20_000,
            count: 10,
            timeout: Duration::from_secs(60),
        };
        let variant = Variant::multipath("m", Policy::default(), polypath_congestion::LIA);
        let outcome = run_set(&wifi_and_3g(), &variant, &workload, 1);
        assert_eq!(outcome.received_bytes, 200_000);
        // Ten round trips of 20 ms, and the handshake's, at least.
        assert!(outcome.completion_s.is_some_and(|time_s| (0.22..5.0).contains(&time_s)), "{outcome:?}");
    }

    #[test]
    fn the_best_path_depends_on_what_is_sent() {
        let path = |mbps, rtt_ms, loss| PathSpec {
            rate: BitRate::from_mbps(mbps),
            rtt: Duration::from_millis(rtt_ms),
            queue: Duration::from_millis(50),
            loss,
            change: None,
        };
        let fast_and_far = PathSet { paths: vec![path(50, 300, 0.0), path(10, 10, 0.0)] };
        let number = |set: &PathSet, workload| {
            let variant = Variant::single_path(0, polypath_congestion::CUBIC).opened_over(InitialPath::Best);
            variant.initial_path(set, workload, 1)
        };
        let short = Workload::Transfer { bytes: 64 * 1024, timeout: Duration::from_secs(60) };
        assert_eq!(number(&fast_and_far, &BULK), 0);
        assert_eq!(number(&fast_and_far, &short), 1);
        let fast_and_lossy = PathSet { paths: vec![path(100, 40, 0.02), path(10, 40, 0.0)] };
        assert_eq!(number(&fast_and_lossy, &BULK), 1);
    }
}
