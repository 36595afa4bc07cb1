//! SYNs without end from addresses that answer nobody, and clients that connect meanwhile.

use polypath_units::Duration;
use polypath_wire::{Segment, TcpFlags, TcpOption, Timestamps, Transport};

use super::super::*;
use super::network::PORT;
use super::network::{CLIENT, Faults, Network, SERVER, address, endpoint, pattern};
use crate::flood::tuple;

const MILLISECOND: Duration = Duration::from_millis(1);

fn spoofed(number: u32) -> (FourTuple, Segment) {
    let mut syn =
        Segment { seq: SeqNumber(number), flags: TcpFlags::SYN, window: 1000, ..Segment::default() };
    syn.options.timestamps = Some(Timestamps { value: number, echo: 0 });
    (tuple(number, endpoint(SERVER, PORT)), syn)
}

/// A thousand such SYNs in each of so many milliseconds.
fn flood(network: &mut Network, from: u32, for_ms: u32) {
    for ms in 0..for_ms {
        for number in 0..1000 {
            let (tuple, syn) = spoofed(from + ms * 1000 + number);
            network.inject(SERVER, tuple, syn);
            while let Some(packet) = network.hosts[SERVER].poll_transmit(network.now) {
                if packet.ip.dst == address(CLIENT) {
                    network.carry(CLIENT, packet);
                }
            }
        }
        network.run_for(MILLISECOND);
    }
}

#[test]
fn a_million_syns_a_second_delay_nobody() {
    let mut network = Network::new(1, Faults::default());
    let listener = network.listen(1024);
    network.latency = MILLISECOND * 25;
    network.apps[SERVER].answer = pattern(1000);
    for begin in 0..4 {
        flood(&mut network, begin * 25_000, 25);
        network.connect(pattern(100_000));
    }
    flood(&mut network, 100_000, 100);
    let connected = |(_, event): &&(ConnectionId, HostEvent)| *event == HostEvent::Connected;
    assert_eq!(network.apps[CLIENT].events.iter().filter(connected).count(), 4, "within two round trips");
    let server = network.hosts[SERVER].counters();
    assert_eq!((server.syncookies_recv, server.syncookies_failed), (4, 0));
    assert_eq!(network.hosts[SERVER].population().half_open, 1024);
    // The spoofed addresses are nobody's: what is sent there again and again must not reach the client.
    let core = &network.hosts[SERVER].core;
    let spoofed: Vec<ConnectionId> = core.half_open_of(listener).collect();
    spoofed.into_iter().for_each(|id| network.hosts[SERVER].unbind(id));
    network.run_to_end();
    assert_eq!(network.apps[SERVER].finished.len(), 4);
    assert!(network.apps[SERVER].finished.iter().all(|stream| stream.received == pattern(100_000)[..]));
    assert!(network.apps[CLIENT].finished.iter().all(|stream| stream.received == pattern(1000)[..]));
    network.assert_nothing_left();
}

/// Every SYN answered with a cookie, and the wire as bad as may be: nothing is lost, and the same ends.
#[test]
fn cookies_alone_serve_over_a_bad_wire() {
    for seed in 0..40 {
        let mut network = Network::new(seed, Faults { loss: 50, duplication: 50, reordering: 100 });
        network.listen(0);
        network.apps[SERVER].answer = pattern(3000);
        for number in 0..5 {
            network.connect(pattern(1 + 20_000 * number));
        }
        network.run_to_end();
        let server = network.hosts[SERVER].counters();
        assert!(server.syncookies_recv >= 5 && server.syncookies_sent >= 5);
        let finished = &network.apps[SERVER].finished;
        assert_eq!(finished.iter().filter(|stream| stream.peer_finished).count(), 5, "seed {seed}");
        assert!(network.apps[CLIENT].finished.iter().all(|stream| stream.received == pattern(3000)[..]));
        network.assert_nothing_left();
    }
}

#[test]
fn options_survive_and_forgeries_do_not() {
    let tuple = FourTuple { local: endpoint(CLIENT, 9), remote: endpoint(SERVER, PORT) };
    for (timestamps, sack, scale) in [(false, false, None), (false, true, Some(0)), (true, true, Some(14))] {
        for (mss, class) in [(1460, 1460), (1400, 1400), (1399, 1340), (65_000, 8960), (100, 64)] {
            let mut network = Network::new(1, Faults::default());
            network.listen(0);
            let host = &mut network.hosts[SERVER];
            let mut syn = Segment { seq: SeqNumber(5), flags: TcpFlags::SYN, ..Segment::default() };
            syn.options.rest.push(TcpOption::Mss(mss));
            syn.options.rest.extend(sack.then_some(TcpOption::SackPermitted));
            syn.options.rest.extend(scale.map(TcpOption::WindowScale));
            syn.options.timestamps = timestamps.then_some(Timestamps { value: 3, echo: 0 });
            host.handle_packet(network.now, Packet::tcp(tuple, syn));
            let Transport::Tcp(answer) = host.poll_transmit(network.now).unwrap().transport else { panic!() };
            assert_eq!(answer.options.sack_permitted(), sack);
            assert_eq!(answer.options.window_scale().is_some(), scale.is_some());
            let echo = |ours: Timestamps| Timestamps { value: 4, echo: ours.value };
            let mut ack = Segment {
                seq: SeqNumber(6),
                ack: answer.seq.add(1),
                flags: TcpFlags::ACK,
                window: 100,
                ..Segment::default()
            };
            ack.options.timestamps = answer.options.timestamps.map(echo);
            for wrong in [ack.ack.add(1 << 8), ack.ack.add(1 << 31), SeqNumber(0)] {
                host.handle_packet(network.now, Packet::tcp(tuple, Segment { ack: wrong, ..ack.clone() }));
                assert_eq!(host.population().connections, 0);
                // With a timestamp of ours it may be a later segment of a client whose third ACK was lost.
                assert_eq!(host.poll_transmit(network.now).is_none(), timestamps);
            }
            if let Some(Timestamps { value, echo }) = ack.options.timestamps {
                for echo in [echo.wrapping_add(1), echo.wrapping_sub(130_000)] {
                    let mut wrong = ack.clone();
                    wrong.options.timestamps = Some(Timestamps { value, echo });
                    host.handle_packet(network.now, Packet::tcp(tuple, wrong));
                    assert_eq!(host.population().connections, 0, "it was not sent of late");
                    assert!(host.poll_transmit(network.now).is_some(), "so it is reset");
                }
            }
            host.handle_packet(network.now, Packet::tcp(tuple, ack));
            let Some((id, HostEvent::Accepted { .. })) = host.poll() else { panic!("it is not open") };
            let info = host.info(id).unwrap();
            assert_eq!(info.mss_bytes, class.min(1460));
            assert_eq!(info.peer_window_bytes, 100 << scale.unwrap_or(0));
        }
    }
}

#[test]
fn without_a_flood_there_are_no_cookies_to_guess() {
    let mut network = Network::new(1, Faults::default());
    network.listen(16);
    let tuple = FourTuple { local: endpoint(CLIENT, 9), remote: endpoint(SERVER, PORT) };
    let host = &mut network.hosts[SERVER];
    for ack in 0..10_000 {
        let segment = Segment { ack: SeqNumber(ack), flags: TcpFlags::ACK, window: 1, ..Segment::default() };
        host.handle_packet(network.now, Packet::tcp(tuple, segment));
    }
    assert_eq!((host.counters().syncookies_failed, host.population().connections), (0, 0));
    let Transport::Tcp(reset) = host.poll_transmit(network.now).unwrap().transport else { panic!() };
    assert_eq!(reset.flags, TcpFlags::RST);
}

/// A SYN that comes twice is answered twice, first without room and then with: the client may acknowledge either answer.
#[test]
fn the_answer_of_a_cookie_holds_where_there_is_room_again() {
    let mut network = Network::new(1, Faults::default());
    network.listen(1);
    let (_, mut syn) = spoofed(5);
    let tuple = |port| FourTuple { local: endpoint(CLIENT, port), remote: endpoint(SERVER, PORT) };
    let host = &mut network.hosts[SERVER];
    let mut answer = |port, segment: Segment| {
        host.handle_packet(network.now, Packet::tcp(tuple(port), segment));
        host.poll_transmit(network.now).map(|packet| match packet.transport {
            Transport::Tcp(segment) => segment,
            _ => panic!(),
        })
    };
    let held = answer(1, syn.clone()).unwrap();
    let cookie = answer(2, syn.clone()).unwrap();
    let reset = Segment { seq: syn.seq.add(1), ack: held.seq.add(1), flags: TcpFlags::RST, ..syn.clone() };
    assert_eq!(answer(1, reset), None);
    let again = answer(2, syn.clone()).unwrap();
    assert_eq!(again, cookie);
    syn.seq = syn.seq.add(1);
    syn.options.timestamps = cookie.options.timestamps.map(|ours| Timestamps { value: 9, echo: ours.value });
    let third = Segment { ack: cookie.seq.add(1), flags: TcpFlags::ACK, ..syn };
    assert_eq!(answer(2, third), None);
    assert_eq!(host.counters().syncookies_recv, 0);
    assert!(matches!(host.poll(), Some((_, HostEvent::Accepted { .. }))));
}
