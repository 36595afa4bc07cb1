//! What the tests of several algorithms need.

use alloc::boxed::Box;

use polypath_units::{Duration, Instant};

use crate::{Ack, Config, Controller, FlowView, Flows, Policy};

pub(crate) const MSS: u32 = 1460;

/// SplitMix64: a seeded sequence for tests.
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// True once in `n` times.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }
}

pub(crate) fn assert_close(actual: f64, expected: f64, tolerance: f64, what: &str) {
    assert!((actual - expected).abs() <= tolerance, "{what}: {actual} is not {expected} ± {tolerance}");
}

/// An acknowledgment of whole segments to a sender whose window limits it.
pub(crate) fn ack(now: Instant, packets: u64, rtt: Duration) -> Ack {
    Ack {
        now,
        acked_bytes: packets * u64::from(MSS),
        in_flight_bytes: 0,
        rtt: Some(rtt),
        srtt: rtt,
        min_rtt: rtt,
        window_limited: true,
        round_ended: false,
        rate: None,
    }
}

/// Subflows of one connection, each with a constant round-trip time, and their controllers.
pub(crate) struct Connection {
    pub(crate) controllers: alloc::vec::Vec<Box<dyn Controller>>,
    pub(crate) views: alloc::vec::Vec<FlowView>,
    pub(crate) now: Instant,
}

impl Connection {
    pub(crate) fn new(algorithm: Policy, rtts_ms: &[u64]) -> Self {
        Self::with(algorithm, rtts_ms, &Config::default())
    }

    pub(crate) fn with(algorithm: Policy, rtts_ms: &[u64], config: &Config) -> Self {
        let view = |&rtt_ms| {
            let rtt = Duration::from_millis(rtt_ms);
            FlowView { mss_bytes: MSS, srtt: rtt, min_rtt: rtt, ..FlowView::default() }
        };
        Self {
            controllers: rtts_ms.iter().map(|_| algorithm.build_for(config)).collect(),
            views: rtts_ms.iter().map(view).collect(),
            now: Instant::ZERO,
        }
    }

    /// Sets a subflow's window in congestion avoidance.
    pub(crate) fn avoid_congestion_from(&mut self, flow: usize, packets: f64) {
        let window_bytes = (packets * f64::from(MSS)) as u64;
        self.controllers[flow].set_window(window_bytes, Some(window_bytes));
    }

    pub(crate) fn packets(&self, flow: usize) -> f64 {
        self.controllers[flow].window_bytes() as f64 / f64::from(MSS)
    }

    pub(crate) fn total_packets(&self) -> f64 {
        (0..self.controllers.len()).map(|flow| self.packets(flow)).sum()
    }

    fn call<T>(&mut self, flow: usize, f: impl FnOnce(&mut dyn Controller, &Flows<'_>) -> T) -> T {
        for (view, controller) in self.views.iter_mut().zip(&self.controllers) {
            view.window_bytes = controller.window_bytes();
            view.in_slow_start = controller.in_slow_start();
        }
        f(&mut *self.controllers[flow], &Flows { all: &self.views, own: flow })
    }

    pub(crate) fn ack(&mut self, flow: usize, packets: u64) {
        let ack = ack(self.now, packets, self.views[flow].srtt);
        self.ack_as(flow, &ack);
    }

    pub(crate) fn ack_as(&mut self, flow: usize, ack: &Ack) {
        self.call(flow, |controller, flows| controller.on_ack(ack, flows));
    }

    /// One round trip of a subflow: the segments of a whole window, acknowledged one by one, evenly spread.
    pub(crate) fn round(&mut self, flow: usize) {
        let packets = self.packets(flow) as u64;
        let start = self.now;
        let rtt = self.views[flow].srtt;
        for i in 1..=packets {
            self.now = start + rtt * i / packets;
            self.ack(flow, 1);
        }
    }

    pub(crate) fn lose(&mut self, flow: usize) {
        let now = self.now;
        self.call(flow, |controller, flows| controller.on_congestion(now, 0, flows));
    }

    pub(crate) fn time_out(&mut self, flow: usize) {
        let now = self.now;
        self.call(flow, |controller, flows| controller.on_timeout(now, 0, flows));
    }
}

/// A round of five acknowledgments of so many segments each, all samples of which are `rtt`. The one at its end begins the next
/// and has none.
pub(crate) fn round_of_samples(connection: &mut Connection, flow: usize, packets: u64, rtt: Duration) {
    for _ in 0..4 {
        let ack = ack(connection.now, packets, rtt);
        connection.ack_as(flow, &ack);
    }
    let ack = Ack { round_ended: true, rtt: None, ..ack(connection.now, packets, rtt) };
    connection.ack_as(flow, &ack);
}
