//! What is looked at while a bulk transfer goes on.

use std::net::IpAddr;

use polypath_sim::conversation::Ends;
use polypath_sim::network::Network;
use polypath_sim::topologies::ParallelPaths;
use polypath_units::{Duration, Instant};

use super::path_set::PathSet;
use super::series::{Quantity, Series};

/// What to look at besides the receive buffer and slow start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Observation {
    /// Record the congestion window of each path over time.
    pub(crate) windows: bool,
}

/// A window that grew to this share of its first maximum is there: the last segments come one by one.
const NEARLY: f64 = 0.95;

/// Looks at both ends in equal intervals.
#[derive(Debug)]
pub(super) struct Observer {
    start: Instant,
    /// The sender's address on each path.
    addrs: Vec<IpAddr>,
    fastest: usize,
    receive_buffer_bytes: u64,
    /// How the window of the fastest path grows while slow start lasts.
    climb: Vec<(Duration, u64)>,
    slow_start_is_over: bool,
    looks: u64,
    series: Vec<Series>,
}

impl Observer {
    /// Between two looks.
    pub(super) const INTERVAL: Duration = Duration::from_millis(10);

    pub(super) fn new(what: Observation, set: &PathSet, net: &ParallelPaths, start: Instant) -> Self {
        let rates = set.paths.iter().map(|path| path.rate.as_bps()).enumerate();
        let fastest = rates.max_by_key(|(number, bps)| (*bps, std::cmp::Reverse(*number)));
        let recorded = if what.windows { set.paths.len() } else { 0 };
        Self {
            start,
            addrs: net.client_addrs.clone(),
            fastest: fastest.map_or(0, |(number, _)| number),
            receive_buffer_bytes: 0,
            climb: Vec::new(),
            slow_start_is_over: false,
            looks: 0,
            series: (0..recorded).map(|path| Series::new(0, Some(path), Quantity::Window)).collect(),
        }
    }

    pub(super) fn look(&mut self, network: &Network, ends: Ends) {
        let receiver = network.connection_info(ends.acceptor).unwrap_or_default();
        self.receive_buffer_bytes = self.receive_buffer_bytes.max(receiver.receive_buffer_bytes);
        self.looks += 1;
        let steps = Quantity::Window.interval().as_nanos() / Self::INTERVAL.as_nanos();
        let is_recorded = !self.series.is_empty() && self.looks.is_multiple_of(steps);
        if self.slow_start_is_over && !is_recorded {
            return;
        }
        let sender = network.connection_info(ends.opener).unwrap_or_default();
        let subflow =
            |addr: IpAddr| sender.subflows.iter().find(move |subflow| subflow.tuple.local.addr == addr);
        if is_recorded {
            for (series, addr) in self.series.iter_mut().zip(&self.addrs) {
                series.values.push(subflow(*addr).map_or(0.0, |subflow| subflow.tcp.cwnd_bytes as f64));
            }
        }
        let Some(fastest) = self.addrs.get(self.fastest).and_then(|addr| subflow(*addr)) else { return };
        let fastest = &fastest.tcp;
        if self.slow_start_is_over {
            return;
        }
        let last_bytes = self.climb.last().map_or(0, |(_, bytes)| *bytes);
        if fastest.cwnd_bytes > last_bytes {
            self.climb.push((network.now().since(self.start), fastest.cwnd_bytes));
        }
        self.slow_start_is_over =
            fastest.cwnd_bytes < last_bytes || fastest.ssthresh_bytes <= fastest.cwnd_bytes;
    }

    pub(super) fn receive_buffer_bytes(&self) -> u64 {
        self.receive_buffer_bytes
    }

    /// When the window was nearly as large as slow start made it, or as the receive buffer, beyond which it is of no use.
    pub(super) fn slow_start_s(&self) -> Option<f64> {
        let (_, most) = self.climb.last()?;
        let enough = (*most).min(self.receive_buffer_bytes) as f64 * NEARLY;
        let (at, _) = self.climb.iter().find(|(_, bytes)| *bytes as f64 >= enough)?;
        Some(at.as_secs_f64())
    }

    pub(super) fn into_series(self) -> Vec<Series> {
        self.series
    }
}

#[cfg(test)]
mod tests {
    use polypath_mptcp::scheduler::Policy;
    use polypath_units::BitRate;

    use super::super::{Buffer, PathSpec, Variant, Workload, observe_set, run_set};
    use super::*;

    #[test]
    fn slow_start_and_the_buffer_are_seen_and_looking_changes_nothing() {
        let path = |mbps, rtt_ms| PathSpec {
            rate: BitRate::from_mbps(mbps),
            rtt: Duration::from_millis(rtt_ms),
            queue: Duration::from_millis(100),
            loss: 0.0,
            change: None,
        };
        let set = PathSet::from(vec![path(1, 50), path(20, 100)]);
        let variant =
            Variant::multipath("m", Policy::by_name("lowest-rtt").unwrap(), polypath_congestion::LIA);
        let variant = Variant { autotuning: false, buffer: Buffer::Bytes(3_000_000), ..variant };
        let workload = Workload::Bulk { duration: Duration::from_secs(10) };
        let seen = observe_set(&set, &variant, &workload, 3, Some(Observation { windows: true }), None);
        let blind = run_set(&set, &variant, &workload, 3);
        assert_eq!(seen.received_bytes, blind.received_bytes);
        assert_eq!((blind.receive_buffer_bytes, blind.slow_start_s), (None, None));
        // A fixed buffer is promised as it is.
        assert_eq!(seen.receive_buffer_bytes, Some(3_000_000));
        // From 14 KB to the 250 KB that the path holds, doubled in every 100 ms or a little more: some 4 rounds.
        let slow_start_s = seen.slow_start_s.unwrap();
        assert!((0.4..1.5).contains(&slow_start_s), "{slow_start_s}");
        assert_eq!(seen.series.len(), 2);
        let windows = &seen.series[1].values;
        assert_eq!(windows.len(), 200);
        let largest = windows.iter().copied().fold(0.0, f64::max);
        assert!((250e3..3e6).contains(&largest), "{largest}");
        assert!(windows[2] < 60e3, "{:?}", &windows[..5]);
    }
}
