//! Opening, closing, resets, timers of idle connections.

use core::net::Ipv4Addr;
use std::boxed::Box;
use std::string::ToString;
use std::vec;
use std::vec::Vec;

use polypath_units::{Duration, Instant};
use polypath_wire::{Endpoint, FourTuple, IcmpMessage, Segment, SeqNumber, TcpFlags, TcpOption, Timestamps};

use super::super::{CloseReason, Connection, Disposition, DropReason, Event, State};
use super::pair::{From, Pair, pass, pattern, setup};
use crate::Config;

fn config() -> Config {
    Config::default()
}

#[test]
fn three_segments_open_and_four_close() {
    let mut pair = Pair::established(config(), config(), 1);
    let letters: vec::Vec<_> = pair.log.iter().map(|(_, _, s)| std::format!("{:?}", s.flags)).collect();
    assert_eq!(letters, ["S", "S.", "."]);
    pair.client.finish();
    pair.run_for(Duration::from_millis(100));
    assert_eq!(pair.states(), (State::FinWait2, State::CloseWait));
    // Half-closed: the other direction still works.
    pair.send(From::Server, pattern(0, 5000));
    pair.run_for(Duration::from_millis(200));
    assert_eq!(pair.at_client, pattern(0, 5000));
    pair.server().finish();
    pair.run_for(Duration::from_millis(100));
    assert_eq!(pair.states(), (State::TimeWait, State::Closed));
    pair.run_for(Duration::from_secs(61));
    assert_eq!(pair.states().0, State::Closed);
    // Data comes in one piece or, as pacing has it, in several.
    pair.client_events.dedup();
    assert_eq!(
        pair.client_events,
        [Event::Connected, Event::Readable, Event::PeerFinished, Event::Closed(CloseReason::Finished)]
    );
    assert_eq!(pair.client.poll_timeout(), None);
}

#[test]
fn both_may_close_at_once() {
    let mut pair = Pair::established(config(), config(), 1);
    pair.client.finish();
    pair.server().finish();
    pair.flush();
    assert_eq!(pair.states(), (State::FinWait1, State::FinWait1));
    pair.run_for(Duration::from_millis(11));
    assert_eq!(pair.states(), (State::Closing, State::Closing));
    pair.run_for(Duration::from_millis(100));
    assert_eq!(pair.states(), (State::TimeWait, State::TimeWait));
}

#[test]
fn both_may_open_at_once() {
    let now = Instant::from_secs(1);
    let mut one = Connection::<()>::connect(now, setup(&config(), true, 100));
    let mut other = Connection::<()>::connect(now, setup(&config(), false, 900));
    for _ in 0..6 {
        let mut from_one = vec![];
        while let Some(packet) = one.poll_transmit(now, &mut ()) {
            from_one.push(packet);
        }
        while let Some(packet) = other.poll_transmit(now, &mut ()) {
            if let polypath_wire::Transport::Tcp(mut segment) = packet.transport {
                one.handle_segment(now, &mut segment, &mut ());
            }
        }
        for packet in from_one {
            if let polypath_wire::Transport::Tcp(mut segment) = packet.transport {
                other.handle_segment(now, &mut segment, &mut ());
            }
        }
    }
    assert_eq!((one.state(), other.state()), (State::Established, State::Established));
}

#[test]
fn a_refused_connection_says_so() {
    let now = Instant::from_secs(1);
    let mut client = Connection::<()>::connect(now, setup(&config(), true, 100));
    let _syn = client.poll_transmit(now, &mut ());
    let mut reset = Segment { flags: TcpFlags::RST.with(TcpFlags::ACK), ..Segment::default() };
    reset.ack = client.isn().add(2);
    client.handle_segment(now, &mut reset, &mut ());
    assert_eq!(client.state(), State::SynSent, "acknowledges something else: ignored");
    reset.ack = client.isn().add(1);
    client.handle_segment(now, &mut reset, &mut ());
    assert_eq!(client.poll(), Some(Event::Closed(CloseReason::Refused)));
}

#[test]
fn a_lost_syn_is_sent_again_with_backoff_and_given_up() {
    let mut pair = Pair::new(config(), config(), 1);
    pair.loss_percent = 100;
    pair.run_for(Duration::from_secs(300));
    let times: vec::Vec<u64> = pair.log.iter().map(|(at, _, _)| at.as_millis() / 1000).collect();
    assert_eq!(times, [1, 2, 4, 8, 16, 32, 64]);
    assert_eq!(pair.client_events, [Event::Closed(CloseReason::TimedOut)]);
}

#[test]
fn a_lost_syn_ack_or_third_ack_is_repaired() {
    for victim in [1, 2] {
        let mut pair = Pair::new(config(), config(), 1);
        let mut seen = 0;
        pair.meddle = Box::new(move |_, segment| {
            seen += 1;
            if seen == victim + 1 { vec![] } else { pass(segment) }
        });
        pair.run_for(Duration::from_secs(5));
        assert_eq!(pair.states(), (State::Established, State::Established), "segment {victim} lost");
    }
}

#[test]
fn only_an_exact_reset_resets() {
    let mut pair = Pair::established(config(), config(), 1);
    let next = pair.client.receive.wire_ack();
    let mut reset = Segment { flags: TcpFlags::RST, seq: next.add(1000), ..Segment::default() };
    let before = pair.log.len();
    let disposition = pair.client.handle_segment(pair.now, &mut reset, &mut ());
    assert_eq!(disposition, Disposition::Dropped(DropReason::Reset));
    pair.flush();
    assert_eq!(pair.sent(From::Client, before), [(".".to_string(), 0)], "a challenge ACK");
    reset.seq = next;
    pair.client.handle_segment(pair.now, &mut reset, &mut ());
    assert_eq!(pair.client.poll(), Some(Event::Closed(CloseReason::Reset)));
}

#[test]
fn challenge_acks_are_limited() {
    let mut pair = Pair::established(config(), config(), 1);
    let seq = pair.client.receive.wire_ack();
    let before = pair.log.len();
    for _ in 0..100 {
        let mut syn = Segment { flags: TcpFlags::SYN, seq, ..Segment::default() };
        pair.client.handle_segment(pair.now, &mut syn, &mut ());
        pair.flush();
    }
    assert_eq!(pair.sent(From::Client, before).len(), 10);
    assert_eq!(pair.client.state(), State::Established);
}

#[test]
fn old_timestamps_are_dropped() {
    let mut pair = Pair::established(config(), config(), 1);
    let (seq, ack) = (pair.client.receive.wire_ack(), pair.client.send.wire(pair.client.send.next()));
    let mut segment = Segment { flags: TcpFlags::ACK, seq, ack, window: 100, ..Segment::default() };
    segment.payload = pattern(0, 10).into();
    let old = pair.client.handshake.timestamps().recent().wrapping_sub(1);
    segment.options.timestamps = Some(Timestamps { value: old, echo: 0 });
    let disposition = pair.client.handle_segment(pair.now, &mut segment, &mut ());
    assert_eq!(disposition, Disposition::Dropped(DropReason::Paws));
}

#[test]
fn abort_sends_a_reset() {
    let mut pair = Pair::established(config(), config(), 1);
    pair.client.abort();
    pair.run_for(Duration::from_millis(50));
    assert_eq!(pair.client_events.last(), Some(&Event::Closed(CloseReason::Aborted)));
    assert_eq!(pair.server_events.last(), Some(&Event::Closed(CloseReason::Reset)));
}

#[test]
fn keepalive_finds_a_dead_peer_and_spares_a_live_one() {
    let keen = Config {
        keepalive_idle: Some(Duration::from_secs(10)),
        keepalive_interval: Duration::from_secs(1),
        keepalive_probes: 3,
        ..config()
    };
    let mut pair = Pair::established(keen, config(), 1);
    pair.run_for(Duration::from_secs(100));
    assert_eq!(pair.states(), (State::Established, State::Established));
    pair.loss_percent = 100;
    pair.run_for(Duration::from_secs(15));
    assert_eq!(pair.client_events.last(), Some(&Event::Closed(CloseReason::TimedOut)));
}

#[test]
fn unacknowledged_data_fails_the_connection_in_the_user_timeout() {
    let hasty = Config { user_timeout: Some(Duration::from_secs(5)), ..config() };
    let mut pair = Pair::established(hasty, config(), 1);
    pair.loss_percent = 100;
    pair.send(From::Client, pattern(0, 10));
    let start = pair.now;
    while pair.client.state() != State::Closed && pair.step() {}
    let took = pair.now - start;
    assert!(took >= Duration::from_secs(5) && took < Duration::from_secs(15), "{took}");
    assert_eq!(pair.client_events.last(), Some(&Event::Closed(CloseReason::TimedOut)));
}

#[test]
fn options_that_the_peer_lacks_are_off() {
    let plain = Config { timestamps: false, sack: false, window_scaling: false, ..config() };
    let mut pair = Pair::established(config(), plain, 1);
    let syn_ack = &pair.log[1].2;
    assert!(
        matches!(syn_ack.options.rest[..], [TcpOption::Mss(1460)]) && syn_ack.options.timestamps.is_none()
    );
    pair.send(From::Client, pattern(0, 200_000));
    pair.run_for(Duration::from_secs(5));
    assert_eq!(pair.at_server, pattern(0, 200_000));
    assert!(
        pair.log.iter().skip(2).all(|(_, _, s)| s.options.timestamps.is_none() && s.options.sack.is_empty())
    );
}

#[test]
fn icmp_lowers_the_mtu_only_for_what_is_in_flight() {
    let one_at_a_time = Config { max_aggregate_bytes: 0, ..config() };
    let mut pair = Pair::established(one_at_a_time.clone(), one_at_a_time, 1);
    pair.meddle = Box::new(|_, segment| if segment.payload.len() > 1200 { vec![] } else { pass(segment) });
    pair.send(From::Client, pattern(0, 50_000));
    pair.flush();
    let flow = FourTuple {
        local: Endpoint::new(Ipv4Addr::new(10, 0, 0, 1).into(), 40_000),
        remote: Endpoint::new(Ipv4Addr::new(10, 0, 0, 2).into(), 80),
    };
    let seq = pair.client.send.wire(pair.client.send.una());
    let stray = IcmpMessage::PacketTooBig { mtu: 600, flow, seq: seq.sub(5000) };
    pair.client.handle_icmp(pair.now, &stray);
    assert_eq!(pair.client.info().pmtu_bytes, 1500);
    pair.client.handle_icmp(pair.now, &IcmpMessage::PacketTooBig { mtu: 1200, flow, seq });
    let start = pair.now;
    while pair.at_server.len() < 50_000 && pair.step() {}
    assert_eq!(pair.at_server, pattern(0, 50_000));
    assert!(pair.now - start < Duration::from_millis(500), "without a timeout: {}", pair.now - start);
}

#[test]
fn a_black_hole_for_large_segments_is_found() {
    let one_at_a_time = Config { max_aggregate_bytes: 0, ..config() };
    let mut pair = Pair::established(one_at_a_time.clone(), one_at_a_time, 1);
    pair.meddle = Box::new(|_, segment| if segment.payload.len() > 1200 { vec![] } else { pass(segment) });
    pair.send(From::Client, pattern(0, 50_000));
    pair.run_for(Duration::from_secs(60));
    assert_eq!(pair.at_server, pattern(0, 50_000));
    assert!(pair.client_events.contains(&Event::MtuChanged));
}

#[test]
fn a_probe_that_an_acknowledgment_has_overtaken_does_not_keep_the_fin_back() {
    let mut pair = Pair::established(config(), config(), 9);
    pair.send(From::Client, pattern(0, 1000));
    pair.run_for(Duration::from_millis(200));
    // The time of the tail loss probe and the acknowledgment came at once, before anything could leave.
    let next = pair.client.send.next();
    pair.client.recovery.handle_tail_timeout(next);
    pair.client.finish();
    pair.run_for(Duration::from_millis(100));
    assert_eq!(pair.states(), (State::FinWait2, State::CloseWait));
}

fn with_timestamps(pair: &Pair, mut segment: Segment) -> Segment {
    segment.options.timestamps =
        Some(Timestamps { value: pair.client.handshake.timestamps().recent(), echo: 0 });
    segment
}

#[test]
fn acknowledgments_of_what_was_never_sent_are_answered_seldom_and_not_for_ever() {
    let mut pair = Pair::established(config(), config(), 1);
    pair.meddle = Box::new(|_, _| vec![]);
    for too_far in [1, 100_000, -100_000_000] {
        let start = pair.log.len();
        for _ in 0..100 {
            let ack = pair.client.send.wire(pair.client.send.next()).0.wrapping_add_signed(too_far);
            let (seq, flags) = (pair.client.receive.wire_ack(), TcpFlags::ACK);
            let forged = Segment { seq, ack: SeqNumber(ack), flags, ..Segment::default() };
            let disposition =
                pair.client.handle_segment(pair.now, &mut with_timestamps(&pair, forged), &mut ());
            assert!(!disposition.is_accepted());
            pair.run_for(Duration::from_millis(300));
        }
        assert_eq!(pair.sent(From::Client, start).len(), 10, "in half a minute (RFC 5961 §5.2)");
        // What the peer really sends begins a new count.
        let (seq, ack) = (pair.client.receive.wire_ack(), pair.client.send.wire(pair.client.send.next()));
        let real = Segment { seq, ack, flags: TcpFlags::ACK, window: 1000, ..Segment::default() };
        let real = &mut with_timestamps(&pair, real);
        assert!(pair.client.handle_segment(pair.now, real, &mut ()).is_accepted());
    }
}

#[test]
fn segments_without_the_timestamps_that_were_agreed_are_dropped_but_for_resets() {
    let mut pair = Pair::established(config(), config(), 1);
    let (seq, ack) = (pair.client.receive.wire_ack(), pair.client.send.wire(pair.client.send.next()));
    let start = pair.log.len();
    let bare =
        Segment { seq, ack, flags: TcpFlags::ACK, payload: pattern(0, 10).into(), ..Segment::default() };
    let disposition = pair.client.handle_segment(pair.now, &mut bare.clone(), &mut ());
    assert_eq!(disposition, Disposition::Dropped(DropReason::NoTimestamp));
    pair.flush();
    assert_eq!((pair.log.len(), pair.at_client.len()), (start, 0), "silently (RFC 7323 §3.2)");
    let mut reset = Segment { payload: Vec::new().into(), flags: TcpFlags::RST, ..bare };
    pair.client.handle_segment(pair.now, &mut reset, &mut ());
    assert_eq!(pair.client.state(), State::Closed);
}

#[test]
fn resets_carry_timestamps() {
    let mut pair = Pair::established(config(), config(), 1);
    pair.client.abort();
    pair.flush();
    let (_, _, reset) = pair.log.last().expect("a reset left");
    assert!(reset.flags.rst());
    let timestamps = reset.options.timestamps.expect("RFC 7323 §3.2");
    assert_eq!(timestamps.echo, pair.client.handshake.timestamps().recent());
}
