//! What a host does with packets that were made for the purpose.

use alloc::sync::Arc;
use core::net::Ipv4Addr;

use polypath_units::Duration;
use polypath_wire::{
    Dss, MpCapable, MpCapableKeys, MptcpOption, MptcpVersion, Segment, SeqNumber, TcpFlags, TcpOption,
    Timestamps, WireDataSeq,
};

use super::*;
use crate::crypto;

const NOW: Instant = Instant::from_secs(1000);

fn tuple(port: u16) -> FourTuple {
    FourTuple {
        local: Endpoint::new(Ipv4Addr::new(10, 0, 0, 2).into(), port),
        remote: Endpoint::new(Ipv4Addr::new(10, 0, 0, 1).into(), 80),
    }
}

fn server(config: HostConfig) -> Host {
    let mut host = Host::new(config, 1);
    host.listen(Endpoint::new(Ipv4Addr::UNSPECIFIED.into(), 80)).expect("the port is free");
    host
}

fn capable(keys: MpCapableKeys) -> TcpOption {
    TcpOption::Mptcp(MptcpOption::Capable(MpCapable { version: 1, flags: MpCapable::HMAC, keys }))
}

fn syn(seq: u32) -> Segment {
    let mut syn = Segment { seq: SeqNumber(seq), flags: TcpFlags::SYN, window: 9000, ..Segment::default() };
    syn.options.timestamps = Some(Timestamps { value: seq, echo: 0 });
    syn.options.rest.extend([TcpOption::Mss(1460), TcpOption::WindowScale(7), capable(MpCapableKeys::None)]);
    syn
}

/// Gives the host a segment of a client and returns what it says to that.
fn ask(host: &mut Host, now: Instant, port: u16, segment: &Segment) -> Option<Segment> {
    host.handle_packet(now, Packet::tcp(tuple(port), segment.clone()));
    let Transport::Tcp(answer) = host.poll_transmit(now)?.transport else { return None };
    assert_eq!(host.poll_transmit(now), None);
    Some(answer)
}

/// The third ACK after a SYN/ACK, with both keys.
fn third_ack(syn_ack: &Segment) -> Segment {
    let sender = syn_ack.options.mptcp().find_map(|option| match option {
        MptcpOption::Capable(MpCapable { keys: MpCapableKeys::Sender(key), .. }) => Some(*key),
        _ => None,
    });
    let mut ack = Segment {
        seq: syn_ack.ack,
        ack: syn_ack.seq.add(1),
        flags: TcpFlags::ACK,
        window: 100,
        ..Segment::default()
    };
    let echo = syn_ack.options.timestamps.expect("timestamps").value;
    ack.options.timestamps = Some(Timestamps { value: 9_999_999, echo });
    ack.options.rest.push(capable(MpCapableKeys::Both { sender: 7, receiver: sender.expect("a key") }));
    ack
}

fn accepted(host: &mut Host) -> Option<ConnectionId> {
    core::iter::from_fn(|| host.poll())
        .find_map(|(id, event)| matches!(event, Event::Accepted { listener: Some(_), .. }).then_some(id))
}

#[test]
fn a_syn_without_room_leaves_nothing_and_its_third_ack_opens_a_connection() {
    let mut host = server(HostConfig { backlog: 0, ..HostConfig::default() });
    for _ in 0..10 {
        let syn_ack = ask(&mut host, NOW, 5, &syn(77)).expect("an answer");
        assert_eq!((host.population().connections, host.population().flows, host.token_count()), (0, 0, 0));
        assert_eq!(host.poll_timeout(), None);
        assert!(syn_ack.options.len_bytes() <= polypath_wire::MAX_OPTIONS_BYTES);
    }
    let syn_ack = ask(&mut host, NOW, 5, &syn(77)).expect("an answer");
    let ack = third_ack(&syn_ack);
    // Right up to two minutes later, and never for another client, number or time.
    for wrong in
        [Segment { ack: ack.ack.add(256), ..ack.clone() }, Segment { seq: ack.seq.add(1), ..ack.clone() }]
    {
        assert_eq!(ask(&mut host, NOW, 5, &wrong), None);
    }
    let is_reset = |answer: Option<Segment>| answer.is_some_and(|answer| answer.flags.rst());
    assert!(is_reset(ask(&mut host, NOW, 6, &ack)), "no SYN of that client was answered");
    let mut early = ack.clone();
    early.options.timestamps =
        Some(Timestamps { value: 1, echo: ack.options.timestamps.unwrap().echo.wrapping_add(1) });
    assert!(is_reset(ask(&mut host, NOW, 5, &early)), "we never sent that timestamp");
    assert_eq!((host.population().connections, host.counters().syncookies_failed), (0, 4));
    let answer = ask(&mut host, NOW + Duration::from_secs(60), 5, &ack).expect("an acknowledgment");
    assert!(answer.flags.ack() && !answer.flags.rst() && answer.options.dss.is_some());
    let id = accepted(&mut host).expect("it is open");
    assert!(host.info(id).is_some_and(|info| info.mptcp));
    assert_eq!(
        host.core.listeners().get(host.core.listeners().find(tuple(5).remote).unwrap()).unwrap().half_open(),
        0
    );
    // The cookie of another client is too old by then; where none is in use, strangers are reset.
    let late = third_ack(&ask(&mut host, NOW, 8, &syn(9)).expect("an answer"));
    assert_eq!(ask(&mut host, NOW + Duration::from_secs(127), 8, &late).map(|reset| reset.flags), None);
    let reset = ask(&mut host, NOW + Duration::from_secs(1000), 8, &late).expect("a reset");
    assert!(reset.flags.rst());
    assert_eq!(host.population().connections, 1);
}

#[test]
fn a_token_that_was_taken_meanwhile_means_tcp() {
    let mut host = server(HostConfig { backlog: 0, ..HostConfig::default() });
    let syn_ack = ask(&mut host, NOW, 5, &syn(77)).expect("an answer");
    let ack = third_ack(&syn_ack);
    let Some(TcpOption::Mptcp(MptcpOption::Capable(MpCapable {
        keys: MpCapableKeys::Both { receiver, .. },
        ..
    }))) = ack.options.rest.first()
    else {
        panic!("keys")
    };
    let (token, _) = crypto::Key(*receiver).derive(polypath_wire::MptcpVersion::V1);
    host.tokens.insert(token, 12_345);
    ask(&mut host, NOW, 5, &ack);
    let id = accepted(&mut host).expect("it is open");
    assert!(host.info(id).is_some_and(|info| !info.mptcp));
    assert_eq!(host.tokens.get(token), Some(12_345));
}

/// A connection that the server has closed first, so that TIME-WAIT is its. Returns the last number that it used.
fn close(host: &mut Host, port: u16) -> SeqNumber {
    let mut opening = syn(1);
    opening.options.rest.pop();
    let syn_ack = ask(host, NOW, port, &opening).expect("an answer");
    let (seq, ack) = (syn_ack.ack, syn_ack.seq.add(1));
    let mut say = Segment { seq, ack, flags: TcpFlags::ACK, window: 100, ..Segment::default() };
    say.options.timestamps = syn_ack.options.timestamps.map(|ours| Timestamps { value: 2, echo: ours.value });
    ask(host, NOW, port, &say);
    let id = accepted(host).expect("it is open");
    host.release(NOW, id);
    while host.poll_transmit(NOW).is_some() {}
    let fin = Segment { ack: ack.add(1), flags: TcpFlags::FIN.with(TcpFlags::ACK), ..say };
    ask(host, NOW, port, &fin);
    ack.add(1)
}

#[test]
fn a_reused_port_gets_a_later_number() {
    let mut host = server(HostConfig::default());
    let mut later = 0;
    for port in 1000..1032 {
        let last = close(&mut host, port);
        assert_eq!(host.population().time_waits, 1);
        // At the same instant, the number would be the same.
        let syn_ack = ask(&mut host, NOW, port, &syn(99)).expect("an answer");
        assert!(syn_ack.flags.syn() && host.population().time_waits == 0);
        later += usize::from(syn_ack.seq.after(last));
    }
    assert_eq!(later, 32);
}

#[test]
fn time_wait_records_are_bounded() {
    let mut host = server(HostConfig { max_time_wait: 3, ..HostConfig::default() });
    for port in 1000..1008 {
        close(&mut host, port);
    }
    let left = (host.population().time_waits, host.population().flows, host.population().connections);
    assert_eq!(left, (3, 3, 0));
    assert_eq!(host.counters().time_wait_overflow, 5);
}

#[test]
fn half_open_connections_of_a_closed_listener_leave_no_trace() {
    let mut config = crate::ConnectionConfig::default();
    Arc::make_mut(&mut config.tcp).syn_ack_retries = 0;
    let mut host = server(HostConfig { connection: Arc::new(config), ..HostConfig::default() });
    let listener = host.core.listeners().find(tuple(1).remote).expect("a listener");
    for port in 1..100 {
        ask(&mut host, NOW, port, &syn(1));
    }
    assert_eq!(host.core.listeners().get(listener).map(|listener| listener.half_open()), Some(99));
    host.close_listener(listener);
    let end = NOW + Duration::from_secs(100);
    host.handle_timeout(end);
    while host.poll_transmit(end).is_some() {}
    assert_eq!((host.population().connections, host.population().flows, host.token_count()), (0, 0, 0));
}

#[test]
fn data_of_a_connection_that_is_gone_opens_no_other() {
    let mut host = server(HostConfig { backlog: 0, ..HostConfig::default() });
    let syn_ack = ask(&mut host, NOW, 5, &syn(77)).expect("an answer");
    let key = syn_ack.options.mptcp().find_map(|option| match option {
        MptcpOption::Capable(MpCapable { keys: MpCapableKeys::Sender(key), .. }) => Some(crypto::Key(*key)),
        _ => None,
    });
    let (_, idsn) = key.expect("a key").derive(MptcpVersion::V1);
    let mut data = third_ack(&syn_ack);
    data.options.rest.clear();
    data.options.dss = Some(Dss { data_ack: Some(WireDataSeq::Full(idsn.add(1))), ..Dss::default() });
    // The third ACK may come behind it, but not much later.
    assert_eq!(ask(&mut host, NOW, 5, &data), None);
    let later = NOW + Duration::from_secs(4);
    assert!(ask(&mut host, later, 5, &data).expect("a reset").flags.rst());
    assert_eq!((host.population().connections, host.population().flows), (0, 0));
    // Without timestamps, only the cookie's age is known.
    let mut bare = data.clone();
    bare.options.timestamps = None;
    assert_eq!(ask(&mut host, later, 5, &bare), None);
    // Another segment with the cookie may be of a client whose options do not pass.
    data.options.dss = None;
    assert!(ask(&mut host, NOW, 5, &data).is_none_or(|answer| !answer.flags.rst()));
    assert_eq!(host.population().connections, 1);
}

fn packets(host: &mut Host, now: Instant) -> Vec<Packet> {
    core::iter::from_fn(|| host.poll_transmit(now)).collect()
}

fn exchange(one: &mut Host, other: &mut Host, now: Instant) {
    for _ in 0..9 {
        packets(one, now).into_iter().for_each(|packet| other.handle_packet(now, packet));
        packets(other, now).into_iter().for_each(|packet| one.handle_packet(now, packet));
    }
}

#[test]
fn what_is_kept_with_a_connection_is_gone_with_it_and_not_before() {
    let at = Endpoint::new([10, 0, 0, 2].into(), 80);
    let (mut client, mut server) = (Host::new(HostConfig::default(), 1), Host::new(HostConfig::default(), 2));
    server.listen(at).expect("the port is free");
    let near = client.connect(NOW, Endpoint::new([10, 0, 0, 1].into(), 0), at, None).expect("a free port");
    exchange(&mut client, &mut server, NOW);
    let mut events = core::iter::from_fn(|| server.poll());
    let far = events.find_map(|(id, event)| matches!(event, Event::Accepted { .. }).then_some(id));
    let far = far.expect("it is accepted");
    let (first, second): (Attachment, Attachment) = (Arc::new("first"), Arc::new("second"));
    server.attach(far, first.clone());
    server.attach(far, second.clone());
    assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (1, 2));
    assert!(server.attached(far).is_some_and(|kept| kept.is::<&str>()));

    // The application lets go, and the client has nothing yet.
    server.send(far, (&[7; 1000][..]).into()).expect("it is open");
    server.release(NOW, far);
    let sent = packets(&mut server, NOW);
    assert!(!sent.is_empty() && server.attached(far).is_some());
    sent.into_iter().for_each(|packet| client.handle_packet(NOW, packet));
    exchange(&mut client, &mut server, NOW);
    assert!(client.recv(near).is_some() && server.attached(far).is_some());

    client.release(NOW, near);
    exchange(&mut client, &mut server, NOW);
    let mut now = NOW;
    while server.population().connections > 0 {
        now += Duration::from_secs(1);
        server.handle_timeout(now);
        exchange(&mut client, &mut server, now);
        assert!(now < NOW + Duration::from_secs(1000), "it is closed");
    }
    assert!(server.attached(far).is_none() && Arc::strong_count(&second) == 1);
    server.attach(far, second.clone());
    assert_eq!(Arc::strong_count(&second), 1, "nothing is kept with what is gone");
}
