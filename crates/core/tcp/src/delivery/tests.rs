use super::*;

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// A piece of `len` bytes that leaves now.
fn send(delivery: &Delivery, start: u64, len: u64, now: Instant, in_flight: u64) -> Sent {
    let flags = if delivery.is_app_limited() { Flags::APP_LIMITED } else { Flags::NONE };
    Sent::new(start, start + len, now, delivery.start(now, in_flight), flags)
}

fn acknowledge(delivery: &mut Delivery, now: Instant, pieces: &[Sent], min_rtt: Duration) -> RateSample {
    let newly = Newly {
        bytes: pieces.iter().map(Sent::len).sum(),
        latest: pieces.iter().max_by_key(|piece| (piece.at, piece.end())).copied(),
        ..Newly::default()
    };
    delivery.count_delivered(now, &newly, 0, min_rtt);
    delivery.sample(&newly.latest.expect("something was acknowledged"), min_rtt, 0)
}

const RTT: Duration = Duration::from_millis(40);

#[test]
fn a_steady_flow_measures_its_rate() {
    // A segment of 1250 bytes every millisecond, 10 Mbit/s, acknowledged 40 ms later one by one.
    let mut delivery = Delivery::new(at(0));
    let mut sent = alloc::collections::VecDeque::new();
    for millis in 0..200 {
        if millis >= 40 {
            let piece: Sent = sent.pop_front().expect("sent 40 ms ago");
            let sample = acknowledge(&mut delivery, at(millis), &[piece], RTT);
            assert_eq!(sample.delivered_bytes, 1250 * (millis - 39));
            assert_eq!(sample.tx_in_flight_bytes, 1250 * (millis - 39).min(40));
            // The first flight begins with silence; what left after its first acknowledgment sees a steady state.
            if millis >= 81 {
                assert_eq!(sample.delivery_rate, BitRate::from_mbps(10));
                assert_eq!(sample.prior_delivered_bytes, sample.delivered_bytes - 40 * 1250);
            }
        }
        sent.push_back(send(&delivery, millis * 1250, 1250, at(millis), 1250 * (sent.len() as u64 + 1)));
    }
}

#[test]
fn neither_a_burst_of_acknowledgments_nor_one_of_segments_raises_the_rate() {
    // Ten segments over 90 ms, acknowledged at once: the sending rate counts.
    let mut delivery = Delivery::new(at(0));
    let pieces: alloc::vec::Vec<_> =
        (0..10).map(|i| send(&delivery, i * 1000, 1000, at(10 * i), 1000)).collect();
    let sample = acknowledge(&mut delivery, at(100), &pieces, RTT);
    assert_eq!(sample.delivery_rate, BitRate::from_bytes_over(10_000, Duration::from_millis(100)));

    // Ten segments at once, acknowledged over 90 ms: the acknowledging rate counts.
    let mut delivery = Delivery::new(at(0));
    let pieces: alloc::vec::Vec<_> = (0..10).map(|i| send(&delivery, i * 1000, 1000, at(0), 1000)).collect();
    let mut sample = None;
    for (i, piece) in pieces.iter().enumerate() {
        sample = Some(acknowledge(&mut delivery, at(40 + 10 * i as u64), &[*piece], RTT));
    }
    let rate = sample.map(|sample| sample.delivery_rate);
    assert_eq!(rate, Some(BitRate::from_bytes_over(10_000, Duration::from_millis(130))));
}

#[test]
fn what_took_less_than_the_least_round_trip_is_no_sample() {
    let mut delivery = Delivery::new(at(0));
    let piece = send(&delivery, 0, 1000, at(0), 1000);
    assert!(acknowledge(&mut delivery, at(50), &[piece], RTT).delivery_rate > BitRate::ZERO);
    delivery.restart(at(55));
    let piece = send(&delivery, 1000, 1000, at(55), 1000);
    let sample = acknowledge(&mut delivery, at(60), &[piece], RTT);
    assert_eq!(sample.delivery_rate, BitRate::ZERO);
    assert!(delivery.rate() > BitRate::ZERO, "what is shown is the last good one");
}

#[test]
fn silence_does_not_count() {
    let mut delivery = Delivery::new(at(0));
    let piece = send(&delivery, 0, 1000, at(0), 1000);
    acknowledge(&mut delivery, at(40), &[piece], RTT);
    delivery.restart(at(5000));
    let piece = send(&delivery, 1000, 1000, at(5000), 1000);
    let sample = acknowledge(&mut delivery, at(5040), &[piece], RTT);
    assert_eq!(sample.delivery_rate, BitRate::from_bytes_over(1000, RTT));
}

#[test]
fn what_leaves_in_the_bubble_of_an_idle_application_is_marked() {
    let mut delivery = Delivery::new(at(0));
    let first = send(&delivery, 0, 1000, at(0), 1000);
    delivery.mark_app_limited(1000);
    let second = send(&delivery, 1000, 1000, at(10), 2000);
    assert!(!acknowledge(&mut delivery, at(40), &[first], RTT).app_limited, "it left before");
    assert!(acknowledge(&mut delivery, at(50), &[second], RTT).app_limited);
    let third = send(&delivery, 2000, 1000, at(51), 1000);
    assert!(!acknowledge(&mut delivery, at(91), &[third], RTT).app_limited, "the bubble is over");
}

#[test]
fn losses_count_from_when_the_acknowledged_piece_left() {
    let mut delivery = Delivery::new(at(0));
    // The counter of a piece is 32 bits wide.
    delivery.count_lost(u64::from(u32::MAX) - 500);
    let piece = send(&delivery, 0, 1000, at(0), 9000);
    delivery.count_lost(3000);
    let sample = acknowledge(&mut delivery, at(40), &[piece], RTT);
    assert_eq!((sample.lost_bytes, sample.tx_in_flight_bytes), (3000, 9000));
    assert_eq!(sample.total_lost_bytes, u64::from(u32::MAX) + 2500);
}

#[test]
fn intervals_between_losses_are_kept_for_olia() {
    let mut delivery = Delivery::new(at(0));
    for (start, expected) in [(0, 0), (1000, 1000)] {
        let piece = send(&delivery, start, 1000, at(0), 1000);
        acknowledge(&mut delivery, at(40), &[piece], RTT);
        assert_eq!((delivery.acked_since_loss(), delivery.acked_between_losses()), (1000, expected));
        delivery.end_loss_interval();
    }
}
