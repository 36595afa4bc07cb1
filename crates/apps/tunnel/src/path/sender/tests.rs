use super::*;
use crate::frame::Range;

const SESSION: [u8; 3] = [1, 0, 0];

fn sender() -> PathSender {
    PathSender::new(Instant::ZERO, &"reno".parse().unwrap(), 1_400)
}

fn send(sender: &mut PathSender, now: Instant, numbers: core::ops::Range<u32>) {
    for number in numbers {
        sender.handle_sent(now, SESSION, number, 1_000, Tracking::Counted, Some(Box::new([number as u8])));
    }
}

fn ack(session: [u8; 3], largest: u32, ranges: &[(u16, u16)]) -> AckFrame {
    let ranges = ranges.iter().map(|&(len, gap)| Range { len, gap }).collect();
    AckFrame { session, largest, delay_micros: 0, ranges }
}

#[test]
fn what_is_acknowledged_makes_room_and_measures() {
    let mut sender = sender();
    send(&mut sender, Instant::ZERO, 0..4);
    assert_eq!(sender.in_flight_bytes(), 4_000);
    let outcome = sender.handle_ack(Instant::from_millis(50), &ack(SESSION, 1, &[(2, 0)]));
    assert_eq!((outcome.acked_bytes, outcome.lost_packets), (2_000, 0));
    assert_eq!(sender.srtt(), Duration::from_millis(50));
    assert_eq!(sender.in_flight_bytes(), 2_000);
    // Again, of another session, and of numbers never sent: nothing.
    for ack in [ack(SESSION, 1, &[(2, 0)]), ack([2, 0, 0], 1, &[(2, 0)]), ack(SESSION, 77, &[(60, 0)])] {
        assert_eq!(sender.handle_ack(Instant::from_millis(60), &ack), AckOutcome::default());
    }
}

#[test]
fn overtaken_packets_are_lost() {
    let mut sender = sender();
    send(&mut sender, Instant::ZERO, 0..6);
    let window = sender.window_left_bytes() + sender.in_flight_bytes();
    let outcome = sender.handle_ack(Instant::from_millis(50), &ack(SESSION, 5, &[(2, 0)]));
    assert_eq!(outcome.lost_packets, 3);
    assert!(sender.window_left_bytes() + sender.in_flight_bytes() < window);
    // The other one by time.
    send(&mut sender, Instant::from_millis(60), 6..7);
    let outcome = sender.handle_ack(Instant::from_millis(110), &ack(SESSION, 6, &[(1, 0)]));
    assert_eq!(outcome.lost_packets, 1);
    assert_eq!(sender.in_flight_bytes(), 0);
}

#[test]
fn what_others_control_takes_no_room_and_its_loss_is_counted() {
    let mut sender = sender();
    let window = sender.window_left_bytes();
    for number in 0..20 {
        sender.handle_sent(Instant::ZERO, SESSION, number, 1_400, Tracking::Watched, None);
    }
    assert_eq!((sender.window_left_bytes(), sender.silent_at()), (window, None));
    // The last two came.
    let outcome = sender.handle_ack(Instant::from_millis(50), &ack(SESSION, 19, &[(2, 0)]));
    assert_eq!((outcome.lost_packets, sender.counts().2), (0, 17));
    // A long one behind them came: it is not their length.
    assert_eq!((sender.window_left_bytes(), sender.long_lost()), (window, 0));
    // One of them was late.
    let outcome = sender.handle_ack(Instant::from_millis(51), &ack(SESSION, 19, &[(2, 15), (1, 0)]));
    assert_eq!((outcome.late_packets, sender.counts().2), (0, 16));
    // Short ones come, and long ones don't.
    for number in 20..60 {
        let bytes = if number % 2 == 0 { 1_400 } else { 200 };
        sender.handle_sent(Instant::from_millis(60), SESSION, number, bytes, Tracking::Watched, None);
    }
    for number in (21..60).step_by(2) {
        sender.handle_ack(Instant::from_millis(600), &ack(SESSION, number, &[(1, 0)]));
    }
    assert_eq!(sender.long_lost(), 20);
    sender.give_up(Instant::from_secs(2));
    assert_eq!(sender.held_packets(), 0);
}

#[test]
fn a_peer_that_acknowledges_nothing_makes_us_hold_a_bounded_number() {
    let mut sender = sender();
    for number in 0..200_000 {
        sender.handle_sent(Instant::ZERO, SESSION, number, 1_000, Tracking::Watched, None);
    }
    assert!(sender.held_packets() <= MOST_SENT);
    assert_eq!(sender.counts().2, 200_000 - MOST_SENT as u64);
}

#[test]
fn a_silent_path_gives_its_contents_back() {
    let mut sender = sender();
    send(&mut sender, Instant::ZERO, 0..3);
    sender.handle_ack(Instant::from_millis(20), &ack(SESSION, 0, &[(1, 0)]));
    let silent_at = sender.silent_at().unwrap();
    assert!(silent_at < Instant::from_millis(120), "{silent_at}");
    let contents = sender.give_up(silent_at);
    assert_eq!(contents, [Box::from([1]), Box::from([2])] as [Box<[u8]>; 2]);
    assert_eq!((sender.in_flight_bytes(), sender.silences()), (0, 1));
    assert_eq!(sender.silent_at(), None);
}

#[test]
fn numbers_begin_anew_with_a_session() {
    let mut sender = sender();
    send(&mut sender, Instant::ZERO, 0..3);
    let next = [2, 0, 0];
    for number in 0..2 {
        sender.handle_sent(Instant::ZERO, next, number, 1_000, Tracking::Counted, None);
    }
    let outcome = sender.handle_ack(Instant::from_millis(5), &ack(next, 1, &[(2, 0)]));
    assert_eq!(outcome.acked_bytes, 2_000);
    let outcome = sender.handle_ack(Instant::from_millis(6), &ack(SESSION, 2, &[(1, 0)]));
    assert_eq!(outcome.acked_bytes, 1_000, "the others were overtaken");
}
