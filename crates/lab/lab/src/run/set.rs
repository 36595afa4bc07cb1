//! One workload over one set of parallel paths.

use std::sync::Arc;

use polypath_link::Change;
use polypath_mptcp::HostConfig;
use polypath_sim::app::SendPlan;
use polypath_sim::conversation::Conversation;
use polypath_sim::network::{BoxPosition, Network};
use polypath_sim::scenario::Recorded;
use polypath_sim::topologies::{ParallelPaths, PathConfig, parallel_paths};
use polypath_tunnel::split::PathView;
use polypath_units::{Duration, Instant};
use polypath_wire::Endpoint;

use super::carried::carried_over;
use super::observe::{Observation, Observer};
use super::outcome::{BlockDelays, Outcome, PathOutcome};
use super::path_set::{PathSet, PathSpec, RateChange};
use super::split::split_paths;
use super::variant::{Variant, VariantKind};
use super::watch::{self, MaybeWatched};
use super::workload::Workload;
use crate::aggregate::datagrams_over;
use crate::download::{Download, download_over, stream_over};

/// Runs `workload` by `variant` over `set`.
///
/// The host that opens the connection has an address on each path and sends; the other has one address. Everything
/// random follows from `seed`.
#[must_use]
pub fn run_set(set: &PathSet, variant: &Variant, workload: &Workload, seed: u64) -> Outcome {
    run(set, variant, workload, seed, None, None)
}

/// The same, and looks at the ends of a bulk transfer on the way, or at everything.
#[must_use]
pub(crate) fn observe_set(
    set: &PathSet,
    variant: &Variant,
    workload: &Workload,
    seed: u64,
    what: Option<Observation>,
    watch: MaybeWatched<'_>,
) -> Outcome {
    run(set, variant, workload, seed, what, watch)
}

fn run(
    set: &PathSet,
    variant: &Variant,
    workload: &Workload,
    seed: u64,
    observation: Option<Observation>,
    mut watch: MaybeWatched<'_>,
) -> Outcome {
    if let Workload::Download { bytes, timeout, player } = *workload {
        let download = Download { total_bytes: bytes, sizing: variant.sizing.clone(), timeout };
        return download_over(set, variant, &download, player, seed, watch);
    }
    if let Workload::Stream(traffic) = *workload {
        return stream_over(set, variant, traffic, seed, watch);
    }
    if let Workload::Datagrams(traffic) = *workload {
        return datagrams_over(set, variant, traffic, seed, watch);
    }
    let paths = set.paths.iter().enumerate().map(|(number, path)| PathConfig {
        boxes: set.line.chain(seed, number).map(|chain| (BoxPosition::First, chain)),
        ..PathConfig::symmetric(format!("path {}", number + 1), set.link(path))
    });
    let host = HostConfig { connection: Arc::new(variant.connection(set)), ..HostConfig::default() };
    let initial_path = variant.initial_path(set, workload, seed);
    let views = set.paths.iter().map(|path: &PathSpec| PathView { rate: path.rate, delay: path.rtt / 2 });
    let (builder, net) = match variant.kind {
        kind if let Some(carrier) = &variant.carrier => {
            let used = match kind {
                VariantKind::SinglePath => vec![initial_path],
                VariantKind::Multipath | VariantKind::SplitPackets => (0..set.paths.len()).collect(),
            };
            let views: Vec<PathView> = views.collect();
            let views: Vec<PathView> = used.iter().map(|&path| views[path]).collect();
            let ends = [0, 1].map(|_| carrier.build_for(&views));
            carried_over(seed, paths.collect(), &used, ends, host)
        }
        VariantKind::Multipath | VariantKind::SinglePath => parallel_paths(seed, paths, host.clone(), host),
        VariantKind::SplitPackets => {
            split_paths(seed, paths.collect(), views.collect(), variant.splitter.build(), initial_path, host)
        }
    };
    let mut network = watch::build(builder, &mut watch);
    let mut start = Instant::ZERO;
    if variant.acquainted {
        start = make_acquainted(&mut network, &net, initial_path);
    }
    schedule_changes(&mut network, set, &net, start);
    let (mut opener, mut acceptor) = workload.plans_of(0);
    // That every byte is the right one is worth its time in one run.
    (opener.verify, acceptor.verify) = (watch.is_some(), watch.is_some());
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
    watch::add(&mut watch, || Recorded {
        name: "client to server".into(),
        ends,
        config: Arc::new(variant.connection(set)),
        start,
        planned_bytes: workload.planned_bytes(),
        upload: true,
        download: matches!(workload, Workload::Requests { .. }),
    });
    let end = start + workload.end().since(Instant::ZERO);
    let observation = observation.filter(|_| matches!(workload, Workload::Bulk { .. }));
    let mut observer = observation.map(|what| Observer::new(what, set, &net, start));
    let step = if observer.is_some() { Observer::INTERVAL } else { step(workload) };
    while network.now() < end && !workload.is_complete(&network, ends) {
        let mut next = network.now() + step;
        match &mut observer {
            Some(observer) => {
                watch::run_until(&mut network, next.min(end), &mut watch);
                observer.look(&network, ends);
            }
            None => {
                next = next.max(network.next_event_at().unwrap_or(end));
                watch::run_until(&mut network, next.min(end), &mut watch);
            }
        }
    }
    watch::finish(&mut network, seed, &mut watch);

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
        adaptation_s: None,
        receive_buffer_bytes: observer.as_ref().map(Observer::receive_buffer_bytes),
        slow_start_s: observer.as_ref().and_then(Observer::slow_start_s),
        series: observer.map(Observer::into_series).unwrap_or_default(),
        playback: None,
        stream: None,
        datagrams: None,
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
            network.change(channel, Change::RestartRandom);
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

#[cfg(test)]
mod tests {
    use polypath_mptcp::scheduler::Policy;
    use polypath_units::BitRate;

    use super::*;
    use crate::metrics::aggregation_benefit;
    use crate::run::{InitialPath, Variant};

    fn wifi_and_3g() -> PathSet {
        let path = |mbps, rtt_ms, queue_ms| PathSpec {
            rate: BitRate::from_mbps(mbps),
            rtt: Duration::from_millis(rtt_ms),
            queue: Duration::from_millis(queue_ms),
            loss: 0.0,
            change: None,
        };
        PathSet::from(vec![path(8, 20, 80), path(2, 150, 2000)])
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
        let fast_and_far = PathSet::from(vec![path(50, 300, 0.0), path(10, 10, 0.0)]);
        let number = |set: &PathSet, workload| {
            let variant = Variant::single_path(0, polypath_congestion::CUBIC).opened_over(InitialPath::Best);
            variant.initial_path(set, workload, 1)
        };
        let short = Workload::Transfer { bytes: 64 * 1024, timeout: Duration::from_secs(60) };
        assert_eq!(number(&fast_and_far, &BULK), 0);
        assert_eq!(number(&fast_and_far, &short), 1);
        let fast_and_lossy = PathSet::from(vec![path(100, 40, 0.02), path(10, 40, 0.0)]);
        assert_eq!(number(&fast_and_lossy, &BULK), 1);
    }
}
