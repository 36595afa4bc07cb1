//! The receive window, and what peers do with theirs.

use std::boxed::Box;
use std::string::ToString;
use std::vec;

use polypath_units::{Duration, Instant};
use polypath_wire::{Segment, SeqNumber, TcpFlags};

use super::super::{CloseReason, Connection, Disposition, Event, State};
use super::pair::{From, Pair, pass, pattern, setup};
use crate::Config;

fn config() -> Config {
    Config { max_aggregate_bytes: 0, ..Config::default() }
}

#[test]
fn the_right_edge_never_moves_back_but_by_the_rounding_of_its_scale() {
    for buffer in [3_000, 70_001, 1_000_003] {
        let odd = Config { receive_buffer_bytes: buffer, ..config() };
        let mut pair = Pair::established(config(), odd, 1);
        let shift = pair.server().receive.shift();
        pair.loss_percent = 2;
        pair.send(From::Client, pattern(0, 400_000));
        let mut edge = None;
        let mut seen = 3;
        for round in 0..3000 {
            pair.server_sleeps = round / 40 % 2 == 0;
            if !pair.step() {
                break;
            }
            for (_, from, segment) in &pair.log[seen..] {
                if *from == From::Server {
                    let new = segment.ack.add(u32::from(segment.window) << shift);
                    assert!(
                        edge.is_none_or(|edge| !new.add((1 << shift) - 1).before(edge)),
                        "buffer {buffer}: {new} after {edge:?}"
                    );
                    edge = Some(edge.map_or(new, |edge: SeqNumber| edge.max(new)));
                }
            }
            seen = pair.log.len();
        }
        assert!(pair.at_server.len() > 20_000);
    }
}

/// Each of them is shorter than what the window is counted in.
#[test]
fn a_full_buffer_closes_its_window_to_short_segments_too() {
    const BUFFER_BYTES: u64 = 1_000_003;
    let large = Config { receive_buffer_bytes: BUFFER_BYTES, ..config() };
    let mut pair = Pair::established(config(), large, 1);
    pair.server_sleeps = true;
    pair.send(From::Client, pattern(0, 990_000));
    pair.run_for(Duration::from_secs(20));
    let (now, shift) = (pair.now, pair.server().receive.shift());
    let ack = pair.client.receive.wire_ack();
    let first = pair.server().receive.wire_ack();
    let mut edge = first.add(1);
    for sent in 0..20_000 {
        let seq = first.add(sent);
        if !seq.before(edge) {
            break;
        }
        let timestamps = pair
            .log
            .iter()
            .rev()
            .find_map(|(_, from, segment)| segment.options.timestamps.filter(|_| *from == From::Client));
        let mut segment = Segment { flags: TcpFlags::ACK, seq, ack, window: 1000, ..Segment::default() };
        segment.options.timestamps = timestamps;
        segment.payload = vec![1].into();
        pair.deliver(From::Client, &mut segment);
        let server = pair.server();
        server.request_ack();
        let answer = server.poll_transmit(now, &mut ()).expect("an acknowledgment");
        let polypath_wire::Transport::Tcp(answer) = answer.transport else { panic!("{answer:?}") };
        edge = answer.ack.add(u32::from(answer.window) << shift);
    }
    let held = pair.server().readable_bytes();
    assert!(held > 999_000 && held <= BUFFER_BYTES, "{held} of {BUFFER_BYTES}");
}

#[test]
fn a_peer_that_closes_its_window_over_data_in_flight_is_waited_for() {
    let mut pair = Pair::established(config(), config(), 1);
    pair.send(From::Client, pattern(0, 300_000));
    pair.run_for(Duration::from_millis(35));
    let until = pair.now + Duration::from_secs(200);
    // From now on nothing gets through but acknowledgments of what was received, with window zero.
    pair.clocked = Some(Box::new(move |now, from, mut segment| {
        if from == From::Server && now < until {
            segment.window = 0;
        }
        let fits = from == From::Server || now >= until || segment.payload.is_empty();
        if fits { pass(segment) } else { pass(Segment { payload: vec![].into(), ..segment }) }
    }));
    pair.run_for(Duration::from_secs(150));
    assert_eq!(pair.client.state(), State::Established);
    assert_eq!(pair.client.consecutive_timeouts(), 0, "a closed window is not a dead path");
    let ssthresh = pair.client.ssthresh_bytes();
    assert_eq!(ssthresh, u64::MAX, "nor congestion");
    pair.run_for(Duration::from_secs(200));
    assert!(pair.at_server == pattern(0, 300_000), "{}", pair.at_server.len());
}

#[test]
fn a_dead_peer_with_a_closed_window_is_given_up() {
    let small = Config { receive_buffer_bytes: 8_000, ..config() };
    let mut pair = Pair::established(Config { retries: 5, ..config() }, small, 1);
    pair.server_sleeps = true;
    pair.send(From::Client, pattern(0, 30_000));
    pair.run_for(Duration::from_secs(600));
    assert_eq!(pair.client.state(), State::Established, "it answers");
    pair.loss_percent = 100;
    pair.run_for(Duration::from_secs(600));
    assert_eq!(pair.client_events.last(), Some(&Event::Closed(CloseReason::TimedOut)));
}

#[test]
fn the_user_timeout_counts_from_when_data_waits() {
    let hasty = Config { user_timeout: Some(Duration::from_secs(30)), ..config() };
    let mut pair = Pair::established(hasty, config(), 1);
    pair.run_for(Duration::from_secs(3600));
    // Idle for an hour, and then the path fails for a few seconds.
    pair.loss_percent = 100;
    pair.send(From::Client, pattern(0, 5_000));
    pair.run_for(Duration::from_secs(5));
    assert_eq!(pair.client.state(), State::Established);
    pair.loss_percent = 0;
    pair.run_for(Duration::from_secs(60));
    assert_eq!(pair.at_server, pattern(0, 5_000));
}

#[test]
fn keepalive_leaves_data_in_flight_to_its_own_timer() {
    let keen = Config {
        keepalive_idle: Some(Duration::from_secs(1)),
        keepalive_interval: Duration::from_secs(1),
        keepalive_probes: 2,
        ..config()
    };
    let mut pair = Pair::established(keen, config(), 1);
    pair.loss_percent = 100;
    pair.send(From::Client, pattern(0, 10));
    pair.run_for(Duration::from_secs(30));
    assert_eq!(pair.client.state(), State::Established);
    pair.loss_percent = 0;
    pair.run_for(Duration::from_secs(60));
    assert_eq!(pair.at_server, pattern(0, 10));
}

#[test]
fn a_forged_timestamp_outside_of_the_window_changes_nothing() {
    let mut pair = Pair::established(config(), config(), 1);
    let (seq, ack) = (pair.client.receive.wire_ack(), pair.client.send.wire(pair.client.send.next()));
    let recent = pair.client.handshake.timestamps().recent();
    for (seq, ack) in [(seq.sub(100_000), ack), (seq, ack.add(50_000)), (seq, ack.sub(500_000_000))] {
        let mut forged = Segment { flags: TcpFlags::ACK, seq, ack, ..Segment::default() };
        forged.options.timestamps =
            Some(polypath_wire::Timestamps { value: recent.wrapping_add(1 << 30), echo: 0 });
        let disposition = pair.client.handle_segment(pair.now, &mut forged, &mut ());
        assert!(!disposition.is_accepted());
        assert_eq!(pair.client.handshake.timestamps().recent(), recent);
    }
}

#[test]
fn the_acknowledgment_of_a_duplicate_counts() {
    let untimed = Config { timestamps: false, ..config() };
    let mut pair = Pair::established(untimed.clone(), untimed, 1);
    pair.send(From::Server, pattern(0, 1000));
    pair.run_for(Duration::from_millis(100));
    pair.send(From::Client, pattern(0, 1000));
    pair.flush();
    let first = pair.client.receive.wire_ack().sub(1000);
    let acknowledged = pair.client.send.wire(pair.client.send.next());
    let mut duplicate = Segment {
        flags: TcpFlags::ACK,
        seq: first,
        ack: acknowledged,
        window: 1000,
        payload: pattern(0, 1000).into(),
        ..Segment::default()
    };
    let disposition = pair.client.handle_segment(pair.now, &mut duplicate, &mut ());
    assert_eq!(disposition, Disposition::Acknowledged);
    assert_eq!((pair.client.acked_offset(), duplicate.payload.len()), (1000, 1000));
    let before = pair.log.len();
    pair.flush();
    assert_eq!(pair.sent(From::Client, before), [(".".to_string(), 0)], "and it is answered");
    assert_eq!(pair.log[before].2.options.sack[0].start, first, "as a duplicate (RFC 2883)");
}

#[test]
fn a_half_open_connection_of_the_peer_is_reset() {
    let now = Instant::from_secs(1);
    let mut client = Connection::<()>::connect(now, setup(&config(), true, 100));
    let _syn = client.poll_transmit(now, &mut ());
    // The peer still has the connection from before this host restarted, and says so (RFC 9293 §3.5.1, figure 9).
    let mut old = Segment {
        flags: TcpFlags::ACK,
        seq: SeqNumber(300),
        ack: client.isn().sub(777),
        ..Segment::default()
    };
    client.handle_segment(now, &mut old, &mut ());
    let packet = client.poll_transmit(now, &mut ()).expect("a reset");
    let polypath_wire::Transport::Tcp(reset) = packet.transport else { panic!("TCP") };
    assert_eq!((reset.flags, reset.seq), (TcpFlags::RST, old.ack));
    assert_eq!(client.state(), State::SynSent);
    assert!(client.poll_transmit(now, &mut ()).is_none());
}

#[test]
fn repeated_syns_do_not_use_up_the_handshake() {
    let mut pair = Pair::new(config(), config(), 1);
    let mut answers = 0;
    pair.meddle = Box::new(move |from, segment| match from {
        // The SYN comes nine times over, and the first nine answers are lost.
        From::Client if segment.flags.syn() => {
            (0..9).map(|copy| (Duration::from_millis(copy), segment.clone())).collect()
        }
        From::Server if answers < 9 => {
            answers += 1;
            vec![]
        }
        _ => pass(segment),
    });
    pair.run_for(Duration::from_secs(10));
    assert_eq!(pair.states(), (State::Established, State::Established));
}

#[test]
fn fin_before_the_data_waits_for_it() {
    let mut pair = Pair::established(config(), config(), 1);
    pair.meddle = Box::new(|from, segment| {
        let late = from == From::Client && !segment.flags.fin() && !segment.payload.is_empty();
        vec![(Duration::from_millis(if late { 7 } else { 0 }), segment)]
    });
    pair.send(From::Client, pattern(0, 5_000));
    pair.client.finish();
    pair.run_for(Duration::from_millis(200));
    assert_eq!(pair.at_server, pattern(0, 5_000));
    assert_eq!(pair.states(), (State::FinWait2, State::CloseWait));
}

#[test]
fn selective_acknowledgments_go_before_data() {
    let untimed = Config { timestamps: false, ..config() };
    let mut pair = Pair::established(untimed.clone(), untimed, 1);
    let next = pair.client.receive.wire_ack();
    let ack = pair.client.send.wire(pair.client.send.next());
    pair.send(From::Client, pattern(0, 100));
    let mut ahead =
        Segment { flags: TcpFlags::ACK, seq: next.add(500), ack, window: 1000, ..Segment::default() };
    ahead.payload = pattern(500, 100).into();
    pair.client.handle_segment(pair.now, &mut ahead, &mut ());
    let before = pair.log.len();
    pair.flush();
    let sent = pair.sent(From::Client, before);
    assert_eq!(sent, [(".".to_string(), 0), ("P.".to_string(), 100)]);
    assert_eq!(pair.log[before].2.options.sack.len(), 1);
}

#[test]
fn positions_go_on_past_four_gigabytes() {
    let now = Instant::from_secs(1);
    let config = Config { pacing: false, ..Config::default() };
    let mut client = Connection::<()>::connect(now, setup(&config, true, 77));
    let mut server: Option<Connection> = None;
    let chunk = bytes::Bytes::from(pattern(0, 65_160));
    let (total, mut read, mut clock) = (4_400_000_000u64, 0, now);
    while read < total {
        while client.unsent_bytes() < 1 << 20 {
            client.enqueue(chunk.clone().into(), ());
        }
        clock += Duration::from_micros(50);
        while let Some(packet) = client.poll_transmit(clock, &mut ()) {
            let polypath_wire::Transport::Tcp(mut segment) = packet.transport else { continue };
            match &mut server {
                None => server = Some(Connection::accept(clock, setup(&config, false, 9), &segment)),
                Some(server) => {
                    server.handle_segment(clock, &mut segment, &mut ());
                }
            }
        }
        let server = server.as_mut().expect("the SYN was sent");
        while let Some(data) = server.read() {
            let offset = (read % 65_160) as usize;
            assert_eq!(data.slices()[0].first(), chunk.get(offset));
            read += data.len() as u64;
        }
        server.window_may_have_opened(&());
        while let Some(packet) = server.poll_transmit(clock, &mut ()) {
            let polypath_wire::Transport::Tcp(mut segment) = packet.transport else { continue };
            client.handle_segment(clock, &mut segment, &mut ());
        }
        client.handle_timeout(clock, &mut ());
        server.handle_timeout(clock, &mut ());
    }
    assert!(client.acked_offset() > u64::from(u32::MAX));
    assert_eq!(client.info().bytes_retrans, 0);
}

/// The peer's acknowledgments say so little of its window from now on.
fn squeeze(pair: &mut Pair, window: u16) {
    pair.meddle = Box::new(move |from, mut segment| {
        if from == From::Server {
            segment.window = segment.window.min(window);
        }
        pass(segment)
    });
}

#[test]
fn a_sliver_of_window_is_used_after_a_while_and_a_whole_segment_at_once() {
    let unscaled = Config { window_scaling: false, ..config() };
    let mut pair = Pair::established(unscaled.clone(), unscaled, 1);
    squeeze(&mut pair, 300);
    pair.send(From::Client, pattern(0, 1448));
    pair.run_for(Duration::from_millis(100));
    let (start, began) = (pair.log.len(), pair.now);
    pair.send(From::Client, pattern(1448, 1500));
    pair.flush();
    assert!(pair.sent(From::Client, start).is_empty(), "a sliver (RFC 9293 §3.8.6.2.1)");
    pair.run_for(Duration::from_secs(3));
    assert_eq!(pair.at_server.len(), 1448 + 1500, "the override timeout uses it");
    let sent = pair.log[start..]
        .iter()
        .filter(|(_, from, segment)| *from == From::Client && !segment.payload.is_empty());
    for (at, _, segment) in sent {
        assert!(segment.payload.len() <= 300);
        assert!(at.since(began) >= pair.client.config.min_rto, "{at}");
    }
    // News of a window for a segment is used without a wait.
    squeeze(&mut pair, 0);
    pair.send(From::Client, pattern(2948, 300));
    pair.run_for(Duration::from_secs(1));
    pair.send(From::Client, pattern(3248, 3000));
    pair.run_for(Duration::from_secs(20));
    let start = pair.log.len();
    squeeze(&mut pair, 1448);
    pair.server().request_ack();
    pair.run_for(Duration::from_millis(11));
    assert_eq!(pair.sent(From::Client, start)[0].1, 1448);
}

#[test]
fn a_window_that_never_held_a_segment_is_filled_by_halves() {
    let small = Config { receive_buffer_bytes: 1000, window_scaling: false, ..config() };
    let mut pair = Pair::established(config(), small, 1);
    let began = pair.now;
    pair.send(From::Client, pattern(0, 20_000));
    pair.run_for(Duration::from_secs(10));
    assert_eq!(pair.at_server, pattern(0, 20_000));
    let last = pair.log.iter().rfind(|(_, _, segment)| !segment.payload.is_empty()).expect("data left").0;
    // Two segments of 500 bytes a round trip of 20 ms, and nothing waits for a timer.
    assert!(last.since(began) <= Duration::from_millis(420), "{}", last.since(began));
}

#[test]
fn cork_holds_data_back_for_a_while_and_not_for_ever() {
    let mut pair = Pair::established(config(), config(), 1);
    pair.client.set_cork(true);
    pair.send(From::Client, pattern(0, 100));
    pair.run_for(Duration::from_millis(150));
    assert!(pair.at_server.is_empty());
    pair.run_for(Duration::from_millis(100));
    assert_eq!(pair.at_server.len(), 100, "as Linux: 200 ms at most");
}

/// RFC 9293 §3.10.7.4: what is not acceptable is dropped, and who made it up may know what was acknowledged.
#[test]
fn a_segment_from_before_the_window_changes_no_window() {
    let small = Config { receive_buffer_bytes: 6000, ..config() };
    let mut pair = Pair::established(config(), small, 1);
    pair.send(From::Server, pattern(0, 3000));
    pair.run_for(Duration::from_secs(1));
    let (now, window) = (pair.now, pair.client.peer_window_bytes());
    let timestamps = pair
        .log
        .iter()
        .rev()
        .find_map(|(_, from, segment)| segment.options.timestamps.filter(|_| *from == From::Server));
    for window_field in [u16::MAX, 0] {
        let client = &mut pair.client;
        let mut old = Segment {
            flags: TcpFlags::ACK.with(TcpFlags::FIN),
            seq: client.receive.wire_ack().sub(1),
            ack: client.send.wire(client.send.una()),
            window: window_field,
            ..Segment::default()
        };
        old.options.timestamps = timestamps;
        let disposition = client.handle_segment(now, &mut old, &mut ());
        assert_eq!(disposition, Disposition::Acknowledged);
        assert_eq!(client.peer_window_bytes(), window);
    }
}
