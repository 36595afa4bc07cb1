use super::*;
use crate::testing::{Connection, MSS, Random, ack, assert_close, round_of_samples};

const BASE_MS: u64 = 40;

fn connection(rtts_ms: &[u64]) -> Connection {
    let mut connection = Connection::new(crate::Policy::by_name("wvegas").expect("in the table"), rtts_ms);
    // The base round-trip time becomes known.
    for (flow, rtt_ms) in rtts_ms.iter().enumerate() {
        connection.avoid_congestion_from(flow, 20.0);
        let first = ack(connection.now, 1, Duration::from_millis(*rtt_ms));
        connection.ack_as(flow, &first);
    }
    connection
}

fn round(connection: &mut Connection, flow: usize, rtt: Duration) {
    round_of_samples(connection, flow, 1, rtt);
}

/// The round-trip time at which a window of so many segments has this backlog.
fn rtt_for(window_packets: f64, backlog_packets: f64) -> Duration {
    Duration::from_millis(BASE_MS).mul_f64(window_packets / (window_packets - backlog_packets))
}

/// Ends the first round, which has a sample from before, at the base round-trip time.
fn settle(connection: &mut Connection, flow: usize, packets: f64) {
    round(connection, flow, Duration::from_millis(BASE_MS));
    connection.avoid_congestion_from(flow, packets);
}

#[test]
fn below_the_target_a_round_adds_a_segment_and_above_it_takes_one() {
    let mut connection = connection(&[BASE_MS]);
    settle(&mut connection, 0, 50.0);
    for (backlog, change) in [(0.0, 1.0), (1.9, 1.0), (30.0, -1.0)] {
        let before = connection.packets(0);
        round(&mut connection, 0, rtt_for(before, backlog));
        assert_close(connection.packets(0) - before, change, 0.001, "change");
    }
}

#[test]
fn alone_it_wants_ten_segments_queued() {
    let mut connection = connection(&[BASE_MS]);
    settle(&mut connection, 0, 100.0);
    // The first full backlog of two makes the whole of the rate known: the target becomes ten.
    for (backlog, change) in [(2.1, 1.0), (3.5, 1.0)] {
        let before = connection.packets(0);
        round(&mut connection, 0, rtt_for(before, backlog));
        assert_close(connection.packets(0) - before, change, 0.001, "below ten");
    }
    let before = connection.packets(0);
    round(&mut connection, 0, rtt_for(before, 10.5));
    assert_close(connection.packets(0) - before, -1.0, 0.001, "above ten");
}

#[test]
fn the_target_is_shared_by_rate() {
    // Rates of 3 to 1: targets of 7.5 and 2.5 segments.
    for (flow, packets, target) in [(0, 90.0, 7.5), (1, 30.0, 2.5)] {
        for (backlog, change) in [(target - 0.2, 1.0), (target + 0.2, -1.0)] {
            let mut connection = connection(&[BASE_MS, BASE_MS]);
            settle(&mut connection, 0, 90.0);
            settle(&mut connection, 1, 30.0);
            let rtt = rtt_for(packets, backlog);
            // The other is as far from its base, so that windows alone make the shares.
            connection.views[1 - flow].srtt = rtt;
            round(&mut connection, flow, rtt);
            assert_close(connection.packets(flow) - packets, change, 0.001, "change");
        }
    }
}

#[test]
fn a_small_share_still_wants_two() {
    let mut connection = connection(&[BASE_MS, BASE_MS]);
    settle(&mut connection, 0, 900.0);
    settle(&mut connection, 1, 30.0);
    round(&mut connection, 1, rtt_for(30.0, 1.9));
    assert_close(connection.packets(1), 31.0, 0.001, "below two");
    round(&mut connection, 1, rtt_for(31.0, 2.1));
    assert_close(connection.packets(1), 30.0, 0.001, "above two");
}

#[test]
fn slow_start_ends_with_a_backlog_of_one() {
    let mut connection = connection(&[BASE_MS]);
    round(&mut connection, 0, Duration::from_millis(BASE_MS));
    connection.controllers[0].set_window(64 * u64::from(MSS), Some(u64::MAX));
    assert!(connection.controllers[0].in_slow_start());
    round(&mut connection, 0, rtt_for(64.0, 0.5));
    assert!(connection.controllers[0].in_slow_start());
    let before = connection.packets(0);
    assert_close(before, 69.0, 0.001, "five segments acknowledged");
    round(&mut connection, 0, rtt_for(74.0, 14.0));
    assert!(!connection.controllers[0].in_slow_start());
    // 60 of 74 fit the pipe, and one more.
    assert_close(connection.packets(0), 61.0, 0.01, "what was queued is taken off");
}

#[test]
fn a_queue_twice_the_least_is_drained() {
    let mut connection = connection(&[BASE_MS]);
    settle(&mut connection, 0, 400.0);
    let millis = |ms| Duration::from_millis(ms);
    // 400 segments and 2 ms of queue: 19 segments of backlog, too much, and the least delay so far.
    round(&mut connection, 0, millis(42));
    assert_close(connection.packets(0), 399.0, 0.001, "one less");
    round(&mut connection, 0, millis(44));
    assert_close(connection.packets(0), 398.0, 0.001, "not more than twice");
    round(&mut connection, 0, millis(45));
    assert_close(connection.packets(0), 397.0 * 0.5 * 40.0 / 45.0, 0.01, "half of what the pipe holds");
    let drained = connection.packets(0);
    round(&mut connection, 0, millis(44));
    assert_close(connection.packets(0), drained - 1.0, 0.001, "the memory begins anew");
}

#[test]
fn a_round_of_few_samples_is_renos() {
    let mut connection = connection(&[BASE_MS]);
    settle(&mut connection, 0, 50.0);
    for rtt_ms in [BASE_MS, 900] {
        let before = connection.packets(0);
        for round_ended in [false, true] {
            let ack = Ack { round_ended, ..ack(connection.now, 1, Duration::from_millis(rtt_ms)) };
            connection.ack_as(0, &ack);
        }
        assert_close(connection.packets(0) - before, 1.0, 0.001, "one a round");
    }
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    let mut connection = connection(&[BASE_MS]);
    settle(&mut connection, 0, 50.0);
    for _ in 0..5 {
        for round_ended in [false, false, false, false, true] {
            let ack = Ack {
                round_ended,
                window_limited: false,
                ..ack(connection.now, 1, Duration::from_millis(BASE_MS))
            };
            connection.ack_as(0, &ack);
        }
    }
    assert_eq!(connection.packets(0), 50.0);
}

#[test]
fn loss_halves_down_to_one_segment_with_several_subflows() {
    for (rtts_ms, floor) in [(&[BASE_MS][..], 2.0), (&[BASE_MS, BASE_MS], 1.0)] {
        let mut connection = connection(rtts_ms);
        settle(&mut connection, 0, 40.0);
        connection.ack(0, 1);
        connection.lose(0);
        assert_eq!(connection.packets(0), 20.0);
        for _ in 0..10 {
            connection.lose(0);
        }
        assert_eq!(connection.packets(0), floor);
    }
}

/// One subflow beside another of constant rate, in segments and milliseconds, straight from the algorithm.
struct Reference {
    cwnd: f64,
    alpha: f64,
    least_delay: f64,
}

impl Reference {
    fn round(&mut self, rtt: f64, other_rate: f64) {
        let base = BASE_MS as f64;
        let diff = self.cwnd * (rtt - base) / rtt;
        if diff >= self.alpha {
            let rate = self.cwnd / rtt;
            self.alpha = (10.0 * rate / (rate + other_rate)).max(2.0);
        }
        if diff > self.alpha {
            self.cwnd -= 1.0;
        } else if diff < self.alpha {
            self.cwnd += 1.0;
        }
        if diff >= self.alpha {
            let delay = rtt - base;
            self.least_delay = self.least_delay.min(delay);
            if delay > 2.0 * self.least_delay {
                self.cwnd *= 0.5 * base / rtt;
                self.least_delay = f64::INFINITY;
            }
        }
    }
}

#[test]
fn rounds_go_by_the_equations_whatever_the_delays() {
    let mut random = Random(3);
    let (mut drained, mut grown, mut shrunk) = (0, 0, 0);
    for _ in 0..200 {
        let mut connection = connection(&[BASE_MS, BASE_MS]);
        let (own, other) = (40.0 + (random.next() % 400) as f64, 10.0 + (random.next() % 400) as f64);
        settle(&mut connection, 0, own);
        settle(&mut connection, 1, other);
        let mut reference = Reference { cwnd: own, alpha: 2.0, least_delay: f64::INFINITY };
        for _ in 0..40 {
            let nanos = BASE_MS * 1_000_000 + random.next() % 8_000_000;
            let other_rate = connection.packets(1) / BASE_MS as f64;
            let before = reference.cwnd;
            round(&mut connection, 0, Duration::from_nanos(nanos));
            reference.round(nanos as f64 / 1e6, other_rate);
            assert_close(connection.packets(0), reference.cwnd, 0.01, "window");
            let change = reference.cwnd - before;
            drained += i32::from(change < -1.5);
            grown += i32::from(change > 0.0);
            shrunk += i32::from(change == -1.0);
            if reference.cwnd < 20.0 {
                break;
            }
        }
    }
    assert!(drained > 100 && grown > 500 && shrunk > 500, "{drained} {grown} {shrunk}");
}
