//! What somebody gets who knows the token of a connection, and not its keys.

use core::net::{IpAddr, Ipv4Addr};
use std::vec;

use polypath_units::Duration;
use polypath_wire::{
    Dss, DssMapping, Endpoint, FourTuple, MpCapable, MpCapableKeys, MpJoin, MptcpOption, MptcpVersion,
    Packet, Segment, SeqNumber, TcpFlags, TcpOption, WireDataSeq,
};

use super::network::{Network, PORT, segment, server_addr};
use super::{MINUTE, network};
use crate::crypto::Key;
use crate::{ConnectionId, Event, FallbackReason};

fn stranger() -> FourTuple {
    let addr: IpAddr = Ipv4Addr::new(10, 9, 0, 7).into();
    FourTuple { local: Endpoint::new(addr, 7777), remote: Endpoint::new(server_addr(0), PORT) }
}

/// An open connection over which nothing was sent yet, as the server names it.
fn open() -> (Network, ConnectionId) {
    let mut network = network(&[10], MptcpVersion::V1, false, 1);
    network.connect();
    network.run_until(network.now + Duration::from_secs(1));
    let id = network.accepted();
    (network, id)
}

/// The stranger sends a SYN with the token; returns the sequence number of the SYN/ACK.
fn ask_to_join(network: &mut Network, id: ConnectionId) -> SeqNumber {
    let token = network.server.info(id).expect("the connection lives").local_token;
    let mut syn = Segment { flags: TcpFlags::SYN, window: 1000, ..Segment::default() };
    let join = MpJoin::Syn { backup: false, address_id: 1, token, nonce: 5 };
    syn.options.rest.push(TcpOption::Mptcp(MptcpOption::Join(join)));
    network.server.handle_packet(network.now, Packet::tcp(stranger(), syn));
    let answer = network.server.poll_transmit(network.now).expect("the stranger is answered");
    segment(&answer).seq
}

#[test]
fn whoever_does_not_prove_its_keys_gives_no_data() {
    for maps in [false, true] {
        let (mut network, id) = open();
        let isn = ask_to_join(&mut network, id);
        let mut data = Segment {
            flags: TcpFlags::ACK,
            seq: SeqNumber(1),
            ack: isn.add(1),
            window: 1000,
            payload: vec![7; 100].into(),
            ..Segment::default()
        };
        if maps {
            let data_seq = WireDataSeq::Full(network.server.info(id).expect("it lives").receive_next);
            let mapping = DssMapping { data_seq, subflow_offset: 1, len: 100, checksum: None };
            data.options.dss = Some(Dss { mapping: Some(mapping), ..Dss::default() });
        }
        network.server.handle_packet(network.now, Packet::tcp(stranger(), data));
        assert!(network.server.recv(id).is_none(), "a stranger's bytes are read, maps: {maps}");
        let fell_back = |event: &(_, Event)| matches!(event.1, Event::FellBack(_));
        network.flush();
        assert!(!network.server_events.iter().any(fell_back), "a stranger ends Multipath TCP, maps: {maps}");
        // The subflow of the peer is there, and carries what it sends.
        let (client, _) = network.client_events[0];
        network.client.send(client, vec![1; 50].into()).expect("the connection lives");
        network.run_until(network.now + MINUTE);
        let read = network.server.recv(id).expect("the peer's data arrives");
        assert_eq!(read.to_vec(), [1; 50]);
    }
}

/// The answer to a SYN of the stranger, answered as if SYNs had crossed.
fn cross(network: &mut Network, isn: SeqNumber) {
    let crossed = Segment {
        flags: TcpFlags::SYN.with(TcpFlags::ACK),
        ack: isn.add(1),
        window: 1000,
        ..Segment::default()
    };
    network.server.handle_packet(network.now, Packet::tcp(stranger(), crossed));
    network.flush();
}

#[test]
fn a_syn_ack_in_place_of_the_third_ack_leaves_nothing_half_open() {
    let (mut network, id) = open();
    let isn = ask_to_join(&mut network, id);
    cross(&mut network, isn);
    assert_eq!(network.server.info(id).expect("it lives").subflows.len(), 1);
    assert_eq!(network.server.population().flows, 1);
    let mut syn = Segment { flags: TcpFlags::SYN, window: 1000, ..Segment::default() };
    let capable = MpCapable { version: 1, flags: MpCapable::HMAC, keys: MpCapableKeys::None };
    syn.options.rest.push(TcpOption::Mptcp(MptcpOption::Capable(capable)));
    network.server.handle_packet(network.now, Packet::tcp(stranger(), syn));
    let isn = segment(&network.server.poll_transmit(network.now).expect("an answer")).seq;
    network.server_events.clear();
    cross(&mut network, isn);
    let events: std::vec::Vec<Event> = network.server_events.iter().map(|(_, event)| *event).collect();
    assert!(events.contains(&Event::FellBack(FallbackReason::ThirdAckStripped)), "{events:?}");
    assert!(events.iter().any(|event| matches!(event, Event::Accepted { .. })), "{events:?}");
}

#[test]
fn what_an_infinite_mapping_puts_behind_a_gap_is_bounded() {
    let mut network = network(&[10], MptcpVersion::V1, false, 1);
    let own = Key(9);
    let mut syn = Segment { flags: TcpFlags::SYN, window: 1000, ..Segment::default() };
    let capable =
        |keys| TcpOption::Mptcp(MptcpOption::Capable(MpCapable { version: 1, flags: MpCapable::HMAC, keys }));
    syn.options.rest.push(capable(MpCapableKeys::None));
    network.server.handle_packet(network.now, Packet::tcp(stranger(), syn));
    let answer = network.server.poll_transmit(network.now).expect("an answer");
    let answer = segment(&answer);
    let receiver = answer.options.mptcp().find_map(|option| match option {
        MptcpOption::Capable(MpCapable { keys: MpCapableKeys::Sender(key), .. }) => Some(*key),
        _ => None,
    });
    let mut next = Segment {
        flags: TcpFlags::ACK,
        seq: SeqNumber(1),
        ack: answer.seq.add(1),
        window: 1000,
        ..Segment::default()
    };
    let mut third = next.clone();
    let keys = MpCapableKeys::Both { sender: own.0, receiver: receiver.expect("a key") };
    third.options.rest.push(capable(keys));
    network.server.handle_packet(network.now, Packet::tcp(stranger(), third));
    network.flush();
    let id = network.accepted();
    // One byte as it should be; then the mapping says that the byte at its place is the next, so that there is a gap of one.
    let (_, idsn) = own.derive(MptcpVersion::V1);
    let say = |position: u64, len| {
        let data_seq = WireDataSeq::Full(idsn.add(position));
        let mapping = DssMapping { data_seq, subflow_offset: 1, len, checksum: None };
        Some(Dss { mapping: Some(mapping), ..Dss::default() })
    };
    next.options.dss = say(1, 1);
    next.payload = vec![7].into();
    network.server.handle_packet(network.now, Packet::tcp(stranger(), next.clone()));
    network.flush();
    assert!(network.server.recv(id).is_some());
    next.options.dss = say(2, 0);
    for _ in 0..1000 {
        next.payload = vec![7; 8000].into();
        network.server.handle_packet(network.now, Packet::tcp(stranger(), next.clone()));
        while network.server.poll_transmit(network.now).is_some() {}
        next.seq = next.seq.add(8000);
    }
    let info = network.server.info(id).expect("the connection lives");
    assert!(!info.mptcp, "it fell back");
    assert!(info.reassembly_bytes <= info.receive_buffer_bytes, "{info:?}");
    assert!(network.server.recv(id).is_none());
}
