//! Where the controllers come to rest, if each loss happens as often as it is probable: the fixed points of their fluid
//! models, which are solved here from the documents' equations.

use alloc::vec::Vec;

use crate::Policy;
use crate::testing::{Connection, MSS};

#[derive(Clone, Copy)]
struct Path {
    rtt_ms: u64,
    loss: f64,
}

/// The mean change of each window in a second, in segments: what the controllers do with acknowledgments and losses in
/// their proportion.
fn drift(algorithm: &Policy, paths: &[Path], windows: &[f64]) -> Vec<f64> {
    let rtts_ms: Vec<u64> = paths.iter().map(|path| path.rtt_ms).collect();
    let fresh = || {
        let mut connection = Connection::new(algorithm.clone(), &rtts_ms);
        for (r, path) in paths.iter().enumerate() {
            connection.avoid_congestion_from(r, windows[r]);
            connection.views[r].acked_between_losses_bytes = (f64::from(MSS) / path.loss) as u64;
        }
        connection
    };
    let step = |r: usize, change: &dyn Fn(&mut Connection)| {
        let mut connection = fresh();
        let before = connection.packets(r);
        change(&mut connection);
        connection.packets(r) - before
    };
    (0..paths.len())
        .map(|r| {
            // A window at once, as it is in whole bytes.
            let packets = windows[r] as u64;
            let up = step(r, &|connection| connection.ack(r, packets)) / packets as f64;
            let down = step(r, &|connection| connection.lose(r));
            let rate = windows[r] * 1e3 / paths[r].rtt_ms as f64;
            rate * ((1.0 - paths[r].loss) * up + paths[r].loss * down)
        })
        .collect()
}

fn resting_windows(algorithm: &Policy, paths: &[Path]) -> Vec<f64> {
    let mut windows = Vec::from_iter(paths.iter().map(|_| 30.0));
    for step in 0..40_000 {
        let pace = if step < 20_000 { 0.02 } else { 0.002 };
        let changes = drift(algorithm, paths, &windows);
        for (w, change) in windows.iter_mut().zip(changes) {
            *w = (*w + pace * change).max(1.0);
        }
    }
    windows
}

/// Throughput in segments per second of one TCP: `√(2(1-p)/p)/rtt`.
fn one_tcp(path: Path) -> f64 {
    libm::sqrt(2.0 * (1.0 - path.loss) / path.loss) * 1e3 / path.rtt_ms as f64
}

fn root(mut low: f64, mut high: f64, f: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if f(middle) > 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}

/// Rates of two paths at equal round-trip times, from the condition that growth and decrease balance on both.
///
/// - LIA: growth is the same per acknowledgment on both, hence so is `p·w`, and windows are as `1/p`;
/// - OLIA: everything is on the better path, at the rate of one TCP there;
/// - BALIA: with `α = x₁/x₂`, `p₁/p₂ = x₂/x₁ · decrease/growth` in terms of `α` alone.
fn predicted(name: &str, paths: [Path; 2]) -> [f64; 2] {
    let rtt_s = paths[0].rtt_ms as f64 / 1e3;
    let odds = paths.map(|path| path.loss / (1.0 - path.loss));
    match name {
        "lia" => {
            // w₁/(w₁+w₂)² = odds₁·w₁/2
            let total = libm::sqrt(2.0 / odds[0]);
            let share = odds[1] / (odds[0] + odds[1]);
            [total * share / rtt_s, total * (1.0 - share) / rtt_s]
        }
        "olia" => [one_tcp(paths[0]), 1.0 / rtt_s],
        _ => {
            // Growth is w/(Σw)²·g(α) and decrease w/2·min(α, 1.5), so that g(α)/min(α, 1.5) is as the odds.
            let g = |alpha: f64| (1.0 + alpha) / 2.0 * (4.0 + alpha) / 5.0;
            let alpha = root(1.0, 1e4, |alpha| odds[1] / odds[0] - g(alpha) / alpha.min(1.5));
            let total = libm::sqrt(2.0 / odds[0]);
            [total * alpha / (1.0 + alpha) / rtt_s, total / (1.0 + alpha) / rtt_s]
        }
    }
}

#[test]
fn two_paths_rest_where_the_equations_balance() {
    for losses in [[0.001, 0.0011], [0.001, 0.002], [0.0005, 0.004], [0.002, 0.01]] {
        let paths = losses.map(|loss| Path { rtt_ms: 50, loss });
        for name in ["lia", "olia", "balia"] {
            let windows = resting_windows(&crate::Policy::by_name(name).expect(name), &paths);
            let expected = predicted(name, paths);
            for r in 0..2 {
                let rate = windows[r] / 0.05;
                if name == "olia" && r == 1 {
                    // It dies away by the difference of the losses, which may be slow.
                    assert!(rate < 0.05 * expected[0], "{losses:?}: {rate} beside {}", expected[0]);
                    continue;
                }
                let ratio = rate / expected[r];
                std::println!("{name} {losses:?} path {r}: {rate:.1} of {:.1}", expected[r]);
                assert!((0.9..1.1).contains(&ratio), "{name} {losses:?} path {r}: {rate} of {}", expected[r]);
            }
        }
    }
}

#[test]
fn a_connection_has_at_least_what_one_tcp_has_on_its_best_path() {
    for (rtts_ms, losses) in
        [([20, 100], [0.002, 0.0005]), ([30, 90], [0.0005, 0.002]), ([40, 40], [0.001, 0.001])]
    {
        let paths = [0, 1].map(|r| Path { rtt_ms: rtts_ms[r], loss: losses[r] });
        let best = paths.map(one_tcp).into_iter().fold(0.0, f64::max);
        for name in ["lia", "olia", "balia"] {
            let windows = resting_windows(&crate::Policy::by_name(name).expect(name), &paths);
            let total: f64 = (0..2).map(|r| windows[r] * 1e3 / paths[r].rtt_ms as f64).sum();
            std::println!("{name} {rtts_ms:?} {losses:?}: {:.3} of one TCP on the best path", total / best);
            assert!((0.9..1.1).contains(&(total / best)), "{name} {rtts_ms:?} {losses:?}: {total} of {best}");
        }
    }
}
