//! In virtual time, with what a sender of Linux's kind does to two paths.

use super::*;
use crate::identifiers::SubflowId;
use polypath_wire::Endpoint;

const MS: u64 = 1_000_000;

fn key(number: u8) -> PathKey {
    ([10, 0, number, 1].into(), Endpoint::new([10, 9, 9, 9].into(), 80))
}

/// A receiver whose first path is 0.
struct Bench {
    reception: Reception,
    now: Instant,
    next: u64,
    verdicts: Vec<(u64, Verdict)>,
}

impl Bench {
    fn new(rtt_ms: u64) -> Self {
        let mut reception = Reception::new(Instant::ZERO, DataSeq(0));
        reception.add(Instant::ZERO, SubflowId(0), key(0), Duration::from_millis(rtt_ms), JoinsAs::Regular);
        Self { reception, now: Instant::ZERO, next: 0, verdicts: Vec::new() }
    }

    fn join(&mut self, id: u8, rtt_ms: u64, joins_as: JoinsAs) {
        self.reception.add(self.now, SubflowId(id), key(id), Duration::from_millis(rtt_ms), joins_as);
        self.collect();
    }

    fn collect(&mut self) {
        while let Some(verdict) = self.reception.poll() {
            self.verdicts.push((self.now.since(Instant::ZERO).as_nanos() / MS, verdict));
        }
    }

    /// One millisecond in which each path brings so many bytes in order.
    fn in_order(&mut self, brought: &[(u8, u64)]) {
        self.now += Duration::from_millis(1);
        for &(subflow, bytes) in brought {
            self.next += bytes;
            let next = DataSeq(self.next);
            let (now, rtt) = (self.now, None);
            self.reception.on_arrival(PathArrival {
                now,
                subflow: SubflowId(subflow),
                rtt,
                bytes,
                next,
                newest: next,
                waiting_bytes: 0,
            });
        }
        self.collect();
    }

    /// Time in which nothing comes.
    fn silence(&mut self, millis: u64) {
        for _ in 0..millis {
            self.now += Duration::from_millis(1);
            if self.reception.next_timeout() <= self.now {
                self.reception.handle_timeout(self.now);
            }
            self.collect();
        }
    }

    /// A path brings data that waits for that of others.
    fn ahead(&mut self, subflow: u8, bytes: u64, newest: u64, waiting_bytes: u64) {
        let (now, next) = (self.now, DataSeq(self.next));
        let arrival = PathArrival {
            now,
            subflow: SubflowId(subflow),
            rtt: None,
            bytes,
            next,
            newest: DataSeq(newest),
            waiting_bytes,
        };
        self.reception.on_arrival(arrival);
        self.collect();
    }

    /// `seconds` of a path that brings `bytes_per_ms`.
    fn alone(&mut self, subflow: u8, bytes_per_ms: u64, millis: u64) {
        for _ in 0..millis {
            self.in_order(&[(subflow, bytes_per_ms)]);
        }
    }

    /// A sender that gives a path a piece which comes after `late_ms`; the other brings `bytes_per_ms` until the sender's buffer is full.
    fn stall(&mut self, thin: u8, fast: u8, bytes_per_ms: u64, room_bytes: u64, late_ms: u64) {
        let (mut waiting, piece) = (0, 1400);
        for _ in 0..late_ms {
            self.now += Duration::from_millis(1);
            if waiting < room_bytes {
                waiting += bytes_per_ms;
                self.ahead(fast, bytes_per_ms, self.next + piece + waiting, waiting);
            } else if self.reception.next_timeout() <= self.now {
                self.reception.handle_timeout(self.now);
                self.collect();
            }
        }
        self.next += piece + waiting;
        let (now, next) = (self.now, DataSeq(self.next));
        let arrival = PathArrival {
            now,
            subflow: SubflowId(thin),
            rtt: None,
            bytes: piece,
            next,
            newest: next,
            waiting_bytes: 0,
        };
        self.reception.on_arrival(arrival);
        self.collect();
    }

    fn tried(&self) -> usize {
        self.verdicts.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Use(_))).count()
    }

    fn set_aside(&self) -> Option<u64> {
        self.verdicts.iter().find(|(_, verdict)| !matches!(verdict, Verdict::Use(_))).map(|(at, _)| *at)
    }
}

#[test]
fn a_path_that_is_no_slower_is_tried_at_once() {
    let mut bench = Bench::new(60);
    bench.alone(0, 100, 200);
    bench.join(1, 40, JoinsAs::Aside);
    assert_eq!(bench.verdicts, [(200, Verdict::Use(SubflowId(1)))]);
}

#[test]
fn a_slow_path_beside_a_fast_one_waits_until_a_trial_costs_a_small_part() {
    let mut bench = Bench::new(10);
    // 100 Mbit/s; the other path joins after two of its round trips.
    bench.alone(0, 12_500, 600);
    bench.join(1, 300, JoinsAs::Aside);
    bench.alone(0, 12_500, 1400);
    assert_eq!(bench.verdicts, []);
    bench.alone(0, 12_500, 20_000);
    assert_eq!(bench.tried(), 1);
    let (at_ms, _) = bench.verdicts[0];
    // One and a half of its round trips are 450 ms, and nine in ten unknown paths are thinner; a 32nd of what came covers that after 13 s.
    assert!((10_000..=16_000).contains(&at_ms), "{at_ms}");
}

#[test]
fn what_holds_up_the_rest_is_set_aside_before_much_is_lost() {
    let mut bench = Bench::new(10);
    bench.join(1, 300, JoinsAs::Regular);
    bench.alone(0, 1250, 1000);
    let from_ms = 1000;
    // Of each 300 ms, the fast path is idle for most, and the thin one brings a packet.
    for _ in 0..10 {
        bench.stall(1, 0, 1250, 50_000, 300);
    }
    let at_ms = bench.set_aside().expect("it held up the rest");
    assert!(at_ms - from_ms < 400, "{at_ms}");
    let (time, byte_seconds) = bench.reception.held_up(SubflowId(1));
    assert!(time >= Duration::from_millis(2_500), "{time}");
    assert!(byte_seconds > 50_000.0 * 2.0, "{byte_seconds}");
    assert_eq!(bench.reception.held_up(SubflowId(0)).0, Duration::ZERO);
}

/// Of three, the one that was never used can't be what the others wait for.
#[test]
fn a_path_that_was_never_used_holds_nobody_up() {
    let mut bench = Bench::new(10);
    bench.join(1, 300, JoinsAs::Regular);
    bench.alone(0, 12_500, 1000);
    bench.join(2, 2000, JoinsAs::Aside);
    for _ in 0..3 {
        bench.stall(1, 0, 12_500, 50_000, 300);
    }
    assert!(
        !bench.verdicts.iter().any(|(_, verdict)| matches!(verdict, Verdict::Use(SubflowId(2)))),
        "{:?}",
        bench.verdicts
    );
    assert_eq!(bench.reception.held_up(SubflowId(2)).0, Duration::ZERO);
    assert!(bench.reception.held_up(SubflowId(1)).0 >= Duration::from_millis(700));
    assert!(bench.verdicts.iter().any(|(_, verdict)| matches!(
        verdict,
        Verdict::SetAside(SubflowId(1)) | Verdict::Close(SubflowId(1))
    )));
}

/// Verdicts on one path come in the order in which they were reached.
#[test]
fn what_fails_beside_a_thin_path_is_not_tried_at_once_again() {
    let mut bench = Bench::new(10);
    bench.alone(0, 500, 10_000);
    bench.join(1, 300, JoinsAs::Aside);
    bench.alone(0, 500, 1000);
    for _ in 0..20 {
        bench.stall(1, 0, 500, 50_000, 300);
    }
    let failed = bench.verdicts.iter().position(|(_, verdict)| !matches!(verdict, Verdict::Use(_)));
    let failed_ms = bench.verdicts[failed.expect("it holds up the rest")].0;
    let again = bench
        .verdicts
        .iter()
        .find(|(at, verdict)| *at >= failed_ms && matches!(verdict, Verdict::Use(SubflowId(1))));
    assert!(again.is_none_or(|(at, _)| *at > failed_ms + 2000), "{:?}", bench.verdicts);
}

#[test]
fn a_path_that_brings_its_part_stays_in_use_though_data_waits_for_it() {
    let mut bench = Bench::new(10);
    bench.join(1, 40, JoinsAs::Regular);
    bench.alone(0, 1250, 1000);
    for _ in 0..5_000 {
        // Both bring what they can; the second's is always needed first.
        bench.now += Duration::from_millis(1);
        bench.ahead(0, 1250, bench.next + 40_000, 40_000);
        bench.next += 1875;
        let (now, next) = (bench.now, DataSeq(bench.next));
        let arrival = PathArrival {
            now,
            subflow: SubflowId(1),
            rtt: None,
            bytes: 625,
            next,
            newest: next,
            waiting_bytes: 38_750,
        };
        bench.reception.on_arrival(arrival);
        bench.collect();
    }
    assert_eq!(bench.verdicts, []);
}

#[test]
fn each_failure_makes_the_next_trial_rarer() {
    let mut bench = Bench::new(10);
    bench.alone(0, 1250, 500);
    bench.join(1, 60, JoinsAs::Aside);
    for _ in 0..200 {
        let is_tried =
            bench.verdicts.last().is_some_and(|(_, verdict)| *verdict == Verdict::Use(SubflowId(1)));
        if is_tried {
            bench.stall(1, 0, 1250, 50_000, 300);
        } else {
            bench.alone(0, 1250, 300);
        }
    }
    let trials: Vec<u64> = bench
        .verdicts
        .iter()
        .filter(|(_, verdict)| *verdict == Verdict::Use(SubflowId(1)))
        .map(|(at, _)| *at)
        .collect();
    assert!((3..=6).contains(&trials.len()), "{trials:?}");
    let gaps: Vec<u64> = trials.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(gaps[gaps.len() - 1] > 2 * gaps[0], "{trials:?}");
    // In a minute of 10 Mbit/s, all of them cost no more than a 32nd, and the first.
    assert!(bench.reception.spent_bytes < 75e6 / 32.0 + LEAST_TRIAL_BYTES, "{}", bench.reception.spent_bytes);
}

#[test]
fn without_anything_else_a_path_is_used_at_once() {
    let mut bench = Bench::new(10);
    bench.alone(0, 12_500, 500);
    bench.join(1, 300, JoinsAs::Aside);
    assert_eq!(bench.verdicts, []);
    bench.reception.remove(bench.now, SubflowId(0));
    bench.collect();
    assert_eq!(bench.verdicts, [(500, Verdict::Use(SubflowId(1)))]);
}

#[test]
fn where_the_sender_falls_back_to_a_path_that_is_set_aside_it_is_used() {
    let mut bench = Bench::new(10);
    bench.alone(0, 12_500, 500);
    bench.join(1, 300, JoinsAs::Aside);
    bench.silence(1_200);
    assert_eq!(bench.verdicts, [], "nobody knows what the sender waits for");
    bench.alone(1, 100, 200);
    assert_eq!(bench.tried(), 1);
}

#[test]
fn a_backup_of_the_user_stays_one() {
    let mut bench = Bench::new(60);
    bench.join(1, 10, JoinsAs::Backup);
    bench.alone(0, 100, 5_000);
    assert_eq!(bench.verdicts, []);
}

#[test]
fn a_first_flight_tells_the_rate_of_the_bottleneck() {
    let mut bench = Bench::new(10);
    bench.join(1, 100, JoinsAs::Regular);
    // Ten packets, 12 ms apart: 1 Mbit/s.
    for _ in 0..10 {
        bench.silence(12);
        bench.in_order(&[(1, 1460)]);
    }
    let rate = bench.reception.paths[1].first_flight_rate().expect("it is over");
    assert!((105e3..=120e3).contains(&rate), "{rate}");
}

/// Ten packets of a first flight, `gap_us` apart, all in order.
fn flight(bench: &mut Bench, subflow: u8, gap_us: u64) {
    for _ in 0..10 {
        bench.now += Duration::from_micros(gap_us);
        bench.next += 1460;
        let (now, next) = (bench.now, DataSeq(bench.next));
        bench.reception.on_arrival(PathArrival {
            now,
            subflow: SubflowId(subflow),
            rtt: None,
            bytes: 1460,
            next,
            newest: next,
            waiting_bytes: 0,
        });
    }
    bench.collect();
}

#[test]
fn a_thin_first_path_is_closed_as_soon_as_a_broad_one_shows() {
    let mut bench = Bench::new(10);
    // 1.3 Mbit/s, and 29 Mbit/s.
    flight(&mut bench, 0, 9_000);
    bench.join(1, 40, JoinsAs::Aside);
    assert_eq!(bench.tried(), 1, "what is thin is hardly the best");
    flight(&mut bench, 1, 400);
    assert_eq!(bench.verdicts.last().map(|(_, verdict)| *verdict), Some(Verdict::Close(SubflowId(0))));
}

#[test]
fn paths_of_like_rates_are_left_alone() {
    let mut bench = Bench::new(10);
    flight(&mut bench, 0, 2_000);
    bench.join(1, 40, JoinsAs::Aside);
    flight(&mut bench, 1, 1_000);
    assert_eq!(
        bench.verdicts.iter().map(|(_, verdict)| *verdict).collect::<Vec<_>>(),
        [Verdict::Use(SubflowId(1))]
    );
}

#[test]
fn a_broad_path_that_has_died_is_not_the_measure_of_a_thin_one() {
    let mut bench = Bench::new(10);
    bench.alone(0, 12_500, 500);
    bench.join(1, 30, JoinsAs::Regular);
    bench.silence(1_200);
    flight(&mut bench, 1, 9_000);
    assert_eq!(bench.verdicts, []);
}

#[test]
fn what_a_path_showed_is_forgotten_so_that_one_that_grew_is_found() {
    let mut bench = Bench::new(10);
    bench.alone(0, 3_000, 2_000);
    bench.join(1, 20, JoinsAs::Regular);
    // A tenth of a Mbit/s.
    flight(&mut bench, 1, 100_000);
    assert_eq!(bench.set_aside().map(|_| bench.tried()), Some(0));
    bench.alone(0, 3_000, 28_000);
    assert_eq!(bench.tried(), 0, "{:?}", bench.verdicts);
    bench.reception.remove(bench.now, SubflowId(1));
    bench.join(1, 20, JoinsAs::Aside);
    bench.alone(0, 3_000, 4_000);
    assert_eq!(bench.tried(), 1, "{:?}", bench.verdicts);
}
