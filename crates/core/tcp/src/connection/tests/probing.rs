//! Tail loss probes, limited transmit, and what duplicate acknowledgments may not do.

use std::boxed::Box;
use std::vec;

use polypath_units::Duration;

use super::pair::{From, Pair, pass, pattern};
use crate::Config;

fn config() -> Config {
    Config { max_aggregate_bytes: 0, ..Config::default() }
}

/// Nothing of the client arrives.
fn cut(pair: &mut Pair) {
    pair.meddle = Box::new(|from, segment| if from == From::Client { vec![] } else { pass(segment) });
}

/// When the client sent after `start` segments, since the first of them.
fn send_times(pair: &Pair, start: usize) -> std::vec::Vec<Duration> {
    let of_client = pair.log.iter().skip(start).filter(|(_, from, _)| *from == From::Client);
    let times: std::vec::Vec<_> = of_client.map(|(at, _, _)| *at).collect();
    times.iter().map(|at| at.since(times[0])).collect()
}

/// RFC 8985 §7.2: two round trips of 20 ms after the last of several segments, whatever was sent alone before.
#[test]
fn a_second_segment_brings_the_tail_loss_probe_forward() {
    let mut pair = Pair::established(config(), config(), 1);
    cut(&mut pair);
    let start = pair.log.len();
    pair.send(From::Client, pattern(0, 1000));
    pair.flush();
    pair.run_for(Duration::from_millis(5));
    pair.send(From::Client, pattern(1000, 1000));
    pair.run_for(Duration::from_millis(300));
    let times = send_times(&pair, start);
    assert_eq!(times[1], Duration::from_millis(5));
    assert!(times[2] <= Duration::from_millis(5 + 43), "{times:?}");
    // One alone may wait for a delayed acknowledgment.
    let mut pair = Pair::established(config(), config(), 1);
    cut(&mut pair);
    let start = pair.log.len();
    pair.send(From::Client, pattern(0, 1000));
    pair.run_for(Duration::from_millis(500));
    assert!(send_times(&pair, start)[1] >= Duration::from_millis(200));
}

/// However often new data moves the probe, it comes no later than the timeout would have.
#[test]
fn a_trickle_does_not_put_the_probe_off() {
    let mut pair = Pair::established(config(), config(), 1);
    cut(&mut pair);
    let start = pair.log.len();
    for count in 0..60 {
        pair.send(From::Client, pattern(count * 100, 100));
        pair.run_for(Duration::from_millis(10));
    }
    let probed = pair.log[start..].windows(2).any(|two| two[1].2.seq.before(two[0].2.seq_end()));
    assert!(probed, "something went out again: {:?}", pair.sent(From::Client, start));
}

#[test]
fn a_probe_is_new_data_if_there_is_some() {
    let mut pair = Pair::established(config(), config(), 1);
    cut(&mut pair);
    pair.send(From::Client, pattern(0, 10 * 1448));
    pair.run_for(Duration::from_millis(30));
    assert!(pair.client.window_room_bytes() < 1448, "the window is full");
    let (start, una) = (pair.log.len(), pair.client.acked_offset());
    pair.now += Duration::from_millis(60);
    pair.client.handle_timeout(pair.now, &mut ());
    assert!(pair.client.window_or_probe_room_bytes() >= 1448, "beyond the congestion window (RFC 8985 §7.3)");
    pair.send(From::Client, pattern(14_480, 1448));
    pair.flush();
    let probe = &pair.log[start].2;
    assert_eq!((una, probe.payload.len()), (0, 1448));
    assert_eq!(probe.payload.to_vec(), pattern(14_480, 1448));
}

#[test]
fn duplicate_acknowledgments_do_not_grow_the_window() {
    let mut pair = Pair::established(Config { pacing: false, ..config() }, config(), 1);
    let mut seen = 0;
    pair.meddle = Box::new(move |from, segment| {
        seen += u32::from(from == From::Client && !segment.payload.is_empty());
        let is_late = from == From::Client && seen == 9;
        vec![(Duration::from_millis(if is_late { 2 } else { 0 }), segment)]
    });
    let before = pair.client.window_bytes();
    pair.send(From::Client, pattern(0, 100_000));
    pair.run_for(Duration::from_millis(21));
    assert_eq!(pair.client.info().sacked_bytes, 1448, "the tenth is acknowledged selectively");
    assert_eq!(pair.client.window_bytes(), before + 8 * 1448, "RFC 5681 §3.2");
    pair.run_for(Duration::from_millis(2));
    assert_eq!(pair.client.info().retransmits, 0, "it was reordered only");
    assert_eq!(pair.client.window_bytes(), before + 10 * 1448, "it grows when the gap is filled");
}

#[test]
fn limited_transmit_sends_new_data_on_the_first_two_duplicates() {
    let blind = Config { sack: false, pacing: false, ..config() };
    let mut pair = Pair::established(blind.clone(), blind, 1);
    let mut seen = 0;
    pair.meddle = Box::new(move |from, segment| {
        seen += u32::from(from == From::Client && !segment.payload.is_empty());
        if from == From::Client && seen == 1 { vec![] } else { pass(segment) }
    });
    pair.send(From::Client, pattern(0, 100_000));
    pair.flush();
    let window =
        pair.log.iter().filter(|(_, from, segment)| *from == From::Client && !segment.payload.is_empty());
    assert_eq!(window.count(), 10);
    let duplicate = polypath_wire::Segment {
        seq: pair.client.receive.wire_ack(),
        ack: pair.client.send.wire(pair.client.send.una()),
        flags: polypath_wire::TcpFlags::ACK,
        window: u16::MAX,
        options: polypath_wire::Options {
            timestamps: Some(polypath_wire::Timestamps {
                value: pair.client.handshake.timestamps().recent(),
                echo: 0,
            }),
            ..Default::default()
        },
        ..Default::default()
    };
    // The first says the window as well.
    pair.client.handle_segment(pair.now, &mut duplicate.clone(), &mut ());
    for number in 1..=2 {
        let start = pair.log.len();
        pair.client.handle_segment(pair.now, &mut duplicate.clone(), &mut ());
        pair.flush();
        assert_eq!(pair.sent(From::Client, start).len(), 1, "duplicate {number} (RFC 3042)");
    }
    let in_flight = pair.client.in_flight_bytes();
    let start = pair.log.len();
    pair.client.handle_segment(pair.now, &mut duplicate.clone(), &mut ());
    pair.flush();
    assert_eq!(pair.log[start].2.seq, pair.client.send.wire(pair.client.send.una()), "the third is a loss");
    assert!(pair.client.ssthresh_bytes() < in_flight / 2, "what went beyond the window does not count");
}
