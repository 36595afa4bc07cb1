//! What somebody gets who knows the token of a connection, and not its keys.

use core::net::{IpAddr, Ipv4Addr};
use std::vec;

use polypath_units::Duration;
use polypath_wire::{
    Dss, DssMapping, Endpoint, FourTuple, MpJoin, MptcpOption, MptcpVersion, Packet, Segment, SeqNumber,
    TcpFlags, TcpOption, WireDataSeq,
};

use super::network::{Network, PORT, segment, server_addr};
use super::{MINUTE, network};
use crate::{ConnectionId, Event};

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
        assert!(network.server.recv(network.now, id).is_none(), "a stranger's bytes are read, maps: {maps}");
        let fell_back = |event: &(_, Event)| matches!(event.1, Event::FellBack(_));
        network.flush();
        assert!(!network.server_events.iter().any(fell_back), "a stranger ends Multipath TCP, maps: {maps}");
        // The subflow of the peer is there, and carries what it sends.
        let (client, _) = network.client_events[0];
        network.client.send(network.now, client, vec![1; 50].into()).expect("the connection lives");
        network.run_until(network.now + MINUTE);
        let read = network.server.recv(network.now, id).expect("the peer's data arrives");
        assert_eq!(read.to_vec(), [1; 50]);
    }
}
