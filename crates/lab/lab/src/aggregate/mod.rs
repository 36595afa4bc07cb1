//! A stream of datagrams over several paths that an aggregator at the network layer unites: NAMA and what it is compared with (K ch. 4).
//!
//! Packets of one length leave at a constant rate. One end of an [`Aggregator`] gives them to paths, the other end delivers them. Whatever aggregator there
//! is by name, runs here.

mod arrivals;
mod bucket;
mod line;
mod packet;

use polypath_sim::topologies::{PathConfig, parallel_paths};
use polypath_tunnel::aggregator::Aggregator;
use polypath_tunnel::split::PathView;
use polypath_units::{BitRate, Duration, Instant};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use self::arrivals::Arrivals;
use self::line::OneWay;
pub(crate) use self::packet::LEAST_BYTES;
use self::packet::{OnPath, number, numbered};
use crate::run::watch::{self, MaybeWatched};
use crate::run::{DatagramTraffic, Outcome, PathOutcome, PathSet, Quantity, Series, Variant};

/// What is under way at the end still arrives.
const AFTERWARDS: Duration = Duration::from_secs(30);

/// A stream over these paths, as a variant says. Everything random follows from `seed`.
pub(crate) fn datagrams_over(
    set: &PathSet,
    variant: &Variant,
    traffic: DatagramTraffic,
    seed: u64,
    mut watch: MaybeWatched<'_>,
) -> Outcome {
    // A record of the run has no connection in it, and no packet: the simulated hosts have nothing to do with it.
    if watch.is_some() {
        let paths = set.paths.iter().map(|path| PathConfig::symmetric("path", set.link(path)));
        let (builder, _) = parallel_paths(seed, paths, Default::default(), Default::default());
        let mut network = watch::build(builder, &mut watch);
        watch::finish(&mut network, seed, &mut watch);
    }
    let mut run = Run::new(set, variant, traffic, seed);
    while run.step() {}
    run.finish()
}

/// Two ends, and the paths between them.
#[derive(Debug)]
struct Run {
    traffic: DatagramTraffic,
    ends: [Box<dyn Aggregator>; 2],
    /// By the end that packets go to, and by path.
    lines: [Vec<OneWay>; 2],
    /// Rates that are still to come, the next one last.
    changes: Vec<(Instant, Vec<BitRate>)>,
    changed_at: Vec<Instant>,
    now: Instant,
    sent: u64,
    arrivals: Arrivals,
    series: Vec<Series>,
    events: u64,
}

impl Run {
    fn new(set: &PathSet, variant: &Variant, traffic: DatagramTraffic, seed: u64) -> Self {
        let view = |path: &crate::run::PathSpec| PathView { rate: path.rate, delay: path.rtt / 2 };
        let views: Vec<PathView> = set.paths.iter().map(view).collect();
        let lines = [0, 1].map(|to| {
            let line = |path: usize| {
                let own = seed ^ (to as u64 + 1) << 32 ^ (path as u64) << 48;
                OneWay::new(set, path, traffic.burst_bytes, own)
            };
            (0..set.paths.len()).map(line).collect()
        });
        let paths = (0..set.paths.len()).map(Some);
        Self {
            traffic,
            ends: [0, 1].map(|_| variant.aggregation.build_for(&views)),
            lines,
            changes: redrawn(set, traffic, seed),
            changed_at: Vec::new(),
            now: Instant::ZERO,
            sent: 0,
            arrivals: Arrivals::new(),
            series: std::iter::once(None)
                .chain(paths)
                .map(|path| Series::new(0, path, Quantity::Rate))
                .collect(),
            events: 0,
        }
    }

    /// When the next packet of the stream leaves, if there is one.
    fn next_packet(&self) -> Option<Instant> {
        let bits = u128::from(self.traffic.packet_bytes) * 8 * u128::from(self.sent);
        // Not by adding up intervals, which are no whole nanoseconds.
        let nanos = bits * 1_000_000_000 / u128::from(self.traffic.rate.as_bps().max(1));
        let at = Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        Some(at).filter(|at| *at < Instant::ZERO + self.traffic.duration)
    }

    /// Does what is next. False if nothing is.
    fn step(&mut self) -> bool {
        let lines = self.lines.iter().flatten().filter_map(OneWay::poll_timeout);
        let ends = self.ends.iter().filter_map(|end| end.poll_timeout());
        let change = self.changes.last().map(|(at, _)| *at);
        let next = lines.chain(ends).chain(self.next_packet()).chain(change).min();
        let end = Instant::ZERO + self.traffic.duration + AFTERWARDS;
        let Some(next) = next.filter(|at| *at <= end) else { return false };
        self.now = self.now.max(next);
        self.events += 1;
        let now = self.now;
        while let Some((_, rates)) = self.changes.pop_if(|(at, _)| *at <= now) {
            self.changed_at.push(now);
            for lines in &mut self.lines {
                lines.iter_mut().zip(&rates).for_each(|(line, rate)| line.set_rate(now, *rate));
            }
        }
        if self.next_packet().is_some_and(|at| at <= now) {
            self.ends[0].handle_packet(now, numbered(self.sent, self.traffic.packet_bytes as usize));
            self.sent += 1;
        }
        for to in [0, 1] {
            for path in 0..self.lines[to].len() {
                while let Some(arrived) = self.lines[to][path].poll_transmit(now) {
                    if to == 1 && number(&arrived.datagram).is_some() {
                        self.note(Some(path), arrived.datagram.len() as u64);
                    }
                    self.ends[to].handle_datagram(now, path, arrived.datagram);
                }
            }
            self.deliver(to);
            self.leave(to);
        }
        true
    }

    /// What an end has received for its host.
    fn deliver(&mut self, end: usize) {
        while let Some(packet) = self.ends[end].poll_packet(self.now) {
            let (bytes, sequence) = (packet.len() as u64, number(&packet));
            if let Some(sequence) = sequence.filter(|_| end == 1) {
                self.arrivals.handle(self.now, sequence, bytes);
                self.note(None, bytes);
            }
        }
    }

    /// What an end has for the other one.
    fn leave(&mut self, end: usize) {
        while let Some(leaving) = self.ends[end].poll_transmit(self.now) {
            let packet = OnPath { datagram: leaving.datagram, header_bytes: leaving.header_bytes };
            if let Some(line) = self.lines[1 - end].get_mut(leaving.path) {
                line.handle_packet(self.now, packet);
            }
        }
    }

    /// Rates over time.
    fn note(&mut self, path: Option<usize>, bytes: u64) {
        let Some(series) = self.series.iter_mut().find(|series| series.path == path) else { return };
        let interval = Quantity::Rate.interval();
        let place = (self.now.as_nanos() / interval.as_nanos()) as usize;
        if series.values.len() <= place {
            series.values.resize(place + 1, 0.0);
        }
        series.values[place] += bytes as f64 * 8.0 / interval.as_secs_f64();
    }

    fn finish(self) -> Outcome {
        let step_bytes = self.traffic.rate.as_bps() as f64 / 8.0 * 0.1;
        let adaptation_s = self.arrivals.longest_adaptation_s(&self.changed_at, step_bytes);
        let received_bytes = self.arrivals.received_bytes();
        let paths: Vec<PathOutcome> = self.lines[1].iter().map(OneWay::outcome).collect();
        let mut datagrams = self.arrivals.finish(self.sent);
        datagrams.adaptation_s = adaptation_s;
        Outcome {
            received_bytes,
            goodput_bps: received_bytes as f64 * 8.0 / self.traffic.duration.as_secs_f64(),
            paths,
            series: self.series,
            datagrams: Some(datagrams),
            events: self.events,
            ..Outcome::default()
        }
    }
}

/// The rates that paths get on the way: parts of their sum that are equally likely, the next one last.
fn redrawn(set: &PathSet, traffic: DatagramTraffic, seed: u64) -> Vec<(Instant, Vec<BitRate>)> {
    let Some(interval) = traffic.redrawn else { return Vec::new() };
    let mut random = ChaCha8Rng::seed_from_u64(seed ^ 0x7265_6472_6177_6e00);
    let sum: u64 = set.paths.iter().map(|path| path.rate.as_bps()).sum();
    let count = traffic.duration.as_nanos().saturating_sub(1) / interval.as_nanos().max(1);
    let mut changes: Vec<_> = (0..=count)
        .map(|number| {
            // Cuts of the sum at places that are equally likely.
            let mut cuts: Vec<u64> = (1..set.paths.len()).map(|_| random.next_u64() % (sum + 1)).collect();
            cuts.sort_unstable();
            let ends = cuts.iter().copied().chain([sum]);
            let starts = [0].into_iter().chain(cuts.iter().copied());
            let rates = ends.zip(starts).map(|(end, start)| BitRate::from_bps(end - start)).collect();
            (Instant::ZERO + interval * number, rates)
        })
        .collect();
    changes.reverse();
    changes
}

#[cfg(test)]
mod tests;
