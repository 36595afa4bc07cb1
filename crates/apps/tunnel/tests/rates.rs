//! What an end believes of its paths' rates, and that a flow inside has both.

mod network;

use network::{Network, PathConfig, numbers, packet};
use polypath_units::{BitRate, Duration, Instant};

const BEGIN: Instant = Instant::from_secs(2);
const PACKET_BYTES: usize = 1_400;
/// How often the flow looks at what came.
const STEP: Duration = Duration::from_micros(200);

/// A flow like TCP's: a window that grows with what arrives and is halved by a loss. What arrived is known at once.
struct Bulk {
    window: f64,
    threshold: f64,
    sent: u32,
    next: u32,
    seen: usize,
    recovered_at: u32,
    halved: u32,
}

impl Bulk {
    fn new() -> Self {
        Self { window: 10.0, threshold: f64::MAX, sent: 0, next: 0, seen: 0, recovered_at: 0, halved: 0 }
    }

    fn run(&mut self, network: &mut Network, until: Instant) {
        while network.now < until {
            let came = numbers(&network.delivered[1][self.seen..]);
            self.seen += came.len();
            for number in came {
                self.window += if self.window < self.threshold { 1.0 } else { 1.0 / self.window };
                if number > self.next && number >= self.recovered_at {
                    self.window = (self.window / 2.0).max(4.0);
                    self.threshold = self.window;
                    self.recovered_at = self.sent;
                    self.halved += 1;
                }
                self.next = self.next.max(number + 1);
            }
            while f64::from(self.sent - self.next) < self.window {
                network.send_at(network.now, 0, packet(1, 2, 4_000, self.sent, PACKET_BYTES));
                self.sent += 1;
            }
            network.run_until(network.now + STEP);
        }
    }
}

fn bucket(mbps: u64, burst_bytes: u64) -> PathConfig {
    let delay = Duration::from_micros(50);
    PathConfig { delay, burst_bytes, ..PathConfig::new(mbps, 0) }
}

/// The rates at which packets leave, in bits a second: the median of half a second, as now and then a controller tries more.
fn believed(network: &mut Network, bulk: &mut Bulk) -> Vec<u64> {
    let mut rates = vec![Vec::new(); 2];
    for _ in 0..25 {
        bulk.run(network, network.now + Duration::from_millis(20));
        let status = network.ends[0].peer_status(network.now, network.peers[0]).unwrap();
        rates.iter_mut().zip(status.paths).for_each(|(rates, path)| rates.push(path.rate.as_bps()));
    }
    let median = |rates: &mut Vec<u64>| {
        rates.sort_unstable();
        rates[rates.len() / 2]
    };
    rates.iter_mut().map(median).collect()
}

/// What of the sum of rates arrived from one time to another, datagrams counted whole.
fn share(network: &Network, paths: &[PathConfig], from: Instant, to: Instant) -> f64 {
    let came = network.delivered[1].iter().filter(|one| one.at >= from && one.at < to).count();
    // Tunnel, UDP and IP around each packet.
    let bits = came as f64 * 8.0 * (PACKET_BYTES + 57) as f64;
    let sum: u64 = paths.iter().map(|path| path.rate.as_bps()).sum();
    bits / to.since(from).as_secs_f64() / sum as f64
}

#[test]
fn a_burst_that_a_bucket_lets_pass_is_not_taken_for_a_rate() {
    for burst_bytes in [4_000, 15_000, 32_000, 100_000] {
        let paths = [bucket(20, burst_bytes), bucket(10, burst_bytes)];
        let mut network = Network::new(&paths);
        network.run_until(BEGIN);
        let mut bulk = Bulk::new();
        for seconds in [2, 4, 6] {
            let from = network.now;
            bulk.run(&mut network, BEGIN + Duration::from_millis(1_000 * seconds - 500));
            let rates = believed(&mut network, &mut bulk);
            for (path, rate) in paths.iter().zip(&rates) {
                let of_line = *rate as f64 / path.rate.as_bps() as f64;
                assert!((0.7..=1.3).contains(&of_line), "{burst_bytes} after {seconds} s: {rates:?}");
            }
            let share = share(&network, &paths, from, network.now);
            assert!(share >= if seconds == 2 { 0.9 } else { 0.99 }, "{burst_bytes}: {share}");
        }
    }
}

#[test]
fn a_fast_path_is_known_soon() {
    for (mbps, delay_us, first_ms) in [(1_000, 50, 50), (200, 50, 30), (1_000, 5_000, 150)] {
        let delay = Duration::from_micros(delay_us);
        let path = PathConfig { delay, queue_bytes: 400_000, ..PathConfig::new(mbps, 0) };
        let mut network = Network::new(&[path]);
        network.run_until(BEGIN);
        let mut bulk = Bulk::new();
        let from = BEGIN + Duration::from_millis(first_ms);
        bulk.run(&mut network, from);
        bulk.run(&mut network, from + Duration::from_millis(100));
        let share = share(&network, &[path], from, network.now);
        assert!(share >= 0.9, "{mbps} Mbit/s, {delay}: {share}");
    }
}

/// As `tc netem delay 20ms 10ms` makes it.
#[test]
fn packets_that_overtake_each_other_are_not_taken_for_lost() {
    let jitter = Duration::from_millis(10);
    let paths =
        [(20, 10), (10, 30)].map(|(mbps, delay)| PathConfig { jitter, ..PathConfig::new(mbps, delay) });
    let mut network = Network::new(&paths);
    network.run_until(BEGIN);
    // 80 % of the sum for twenty seconds.
    let (count, spacing) = (41_000, Duration::from_micros(485));
    for number in 0..count {
        network.send_at(BEGIN + spacing * u64::from(number), 0, packet(1, 2, 4_000, number, PACKET_BYTES));
    }
    network.run_until(BEGIN + Duration::from_secs(21));
    let came = numbers(&network.delivered[1]);
    assert!(came.len() as f64 >= f64::from(count) * 0.99, "{} of {count}", came.len());
    let status = network.ends[0].peer_status(network.now, network.peers[0]).unwrap();
    let again = status.counts.sent_again;
    assert!(again <= u64::from(count) / 50, "{again} sent again: {:?}", status.paths);

    // And a flow that fills what there is.
    let mut network = Network::new(&paths);
    network.run_until(BEGIN);
    let mut bulk = Bulk::new();
    let from = BEGIN + Duration::from_secs(4);
    bulk.run(&mut network, from + Duration::from_secs(6));
    let share = share(&network, &paths, from, network.now);
    assert!(share >= 0.8, "{share}");
}

/// Round trips of 20 and 100 ms with queues of 10 and 30 packets, as in K Table 4.2: so much of 6.3 Mbit/s on the first path.
fn shared_out(first_kbps: u64) -> [PathConfig; 2] {
    [(first_kbps, 10, 10), (6_300 - first_kbps, 50, 30)].map(|(kbps, delay_ms, packets)| PathConfig {
        rate: BitRate::from_kbps(kbps),
        queue_bytes: packets * 1_460,
        jitter: Duration::from_millis(delay_ms / 2),
        ..PathConfig::new(1, delay_ms)
    })
}

/// What a path carries that is left out, and its few probes, is not taken for its rate.
#[test]
fn a_path_that_was_nearly_gone_is_found_again() {
    const SPACING: Duration = Duration::from_micros(1_867);
    let mut network = Network::new(&shared_out(3_150));
    network.run_until(BEGIN);
    let (mut number, mut worst) = (0, f64::MAX);
    for first_kbps in [6_200, 3_600, 150, 1_200, 6_270, 3_500, 4_000, 40, 5_000] {
        network.set_config(0, shared_out(first_kbps)[0]);
        network.set_config(1, shared_out(first_kbps)[1]);
        let (from, seen) = (network.now, network.delivered[1].len());
        let until = from + Duration::from_secs(30);
        let mut at = from;
        while at < until {
            network.send_at(at, 0, packet(1, 2, 4_000, number, PACKET_BYTES));
            (number, at) = (number + 1, at + SPACING);
        }
        network.run_until(until);
        let came = (network.delivered[1].len() - seen) as f64 * SPACING.as_secs_f64() / 30.0;
        assert!(came >= 0.9, "{came} of the stream with {first_kbps} kbit/s on the first path");
        worst = came.min(worst);
    }
    let all = network.delivered[1].len() as f64 / f64::from(number);
    assert!(all >= 0.96, "{all} of the stream, {worst} at worst");
}

/// What an end could not send in time, as others had the processor, says nothing of the path.
#[test]
fn a_process_that_waits_for_the_processor_keeps_the_rates() {
    let paths = [(20, 10), (10, 30)].map(|(mbps, delay)| PathConfig::new(mbps, delay));
    let mut network = Network::new(&paths);
    network.run_until(BEGIN);
    let mut bulk = Bulk::new();
    bulk.run(&mut network, BEGIN + Duration::from_secs(4));
    for (nap_ms, least) in [(7, 0.85), (13, 0.75), (25, 0.65)] {
        network.nap = Duration::from_millis(nap_ms);
        let from = network.now + Duration::from_secs(4);
        bulk.run(&mut network, from);
        bulk.run(&mut network, from + Duration::from_secs(16));
        let share = share(&network, &paths, from, network.now);
        assert!(share >= least, "{share} of the sum with naps of {nap_ms} ms");
        for (path, rate) in paths.iter().zip(believed(&mut network, &mut bulk)) {
            let of_line = rate as f64 / path.rate.as_bps() as f64;
            assert!((0.7..=1.6).contains(&of_line), "{of_line} of {} with naps of {nap_ms} ms", path.rate);
        }
    }
}
