//! Datagrams through sockets of the loopback interface.

use std::future::poll_fn;

use bytes::Bytes;
use polypath_wire::{IpHeader, TcpFlags};

use super::*;
use crate::udp::address::SourceTag;
use crate::udp::datagram::{OPENING_BYTES, RETRY_BYTES};
use crate::udp::keys::PathKey;

const KEY: PathKey = PathKey([8; 16]);

/// A receiver at a free port, and where that is.
fn receiver(most_held_bytes: usize) -> (UdpReceive, SocketAddr) {
    let port = Port::open(true, 0, None, None).expect("a socket");
    let at = SocketAddr::from((
        [127, 0, 0, 1],
        port.socket().expect("a socket").socket.local_addr().expect("an address").port(),
    ));
    let shared = Arc::new(DriverShared::new(vec![port], Vec::new(), &UdpOptions::default(), &[3; 64]));
    (shared.receivers(most_held_bytes).remove(0), at)
}

/// Datagrams of one segment, and the size of each.
fn datagrams(payload_bytes: usize, segment_size: u16, flags: TcpFlags) -> (Vec<u8>, usize) {
    let payload = vec![7; payload_bytes].into();
    let segment = Segment { src_port: 1, dst_port: 2, flags, payload, segment_size, ..Segment::default() };
    let ip = IpHeader::new([0; 16].into(), KEY.id().addr(SourceTag::new(1)));
    let packet = Packet { ip, transport: Transport::Tcp(segment) };
    let header = Header { kind: Kind::Segment, to_owner: false, path: KEY.id() };
    let mut train = Vec::new();
    let size = datagram::emit(header, &packet, &mut train).expect("TCP");
    (train, size)
}

async fn receive_all(receiver: &mut UdpReceive, packets: &mut Vec<Packet>, payload_bytes: usize) {
    let len = |packet: &Packet| packet.payload_slices().iter().map(Bytes::len).sum::<usize>();
    while packets.iter().map(len).sum::<usize>() < payload_bytes {
        poll_fn(|cx| receiver.poll_receive(cx, packets)).await.expect("packets");
    }
}

/// Makes the path of `KEY` known to lead to `from`.
fn introduce(receiver: &UdpReceive, from: SocketAddr, at: SocketAddr) {
    let route = Route { socket: 0, remote: from, local: Some(at.ip()) };
    let (peers, now) = (&mut receiver.shared.traffic().peers, receiver.shared.clock.now());
    let reaction =
        peers.handle_segment(now, Came { path: KEY.id(), route, len_bytes: OPENING_BYTES, is_syn: true });
    let challenge = reaction.challenge.expect("a challenge");
    assert!(peers.handle_introduction(now, KEY.id(), route, challenge, KEY));
}

#[tokio::test]
async fn a_reset_from_an_unproven_address_is_not_for_the_stack() {
    let (mut receiver, at) = receiver(usize::MAX);
    let socket = || std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let (owner, thief) = (socket(), socket());
    introduce(&receiver, owner.local_addr().expect("an address"), at);
    let mut packets = Vec::new();
    for flags in [TcpFlags::RST, TcpFlags::SYN, TcpFlags::ACK.with(TcpFlags::FIN)] {
        thief.send_to(&datagrams(10, 0, flags).0, at).expect("sends");
    }
    owner.send_to(&datagrams(100, 0, TcpFlags::ACK).0, at).expect("sends");
    receive_all(&mut receiver, &mut packets, 1).await;
    assert_eq!(packets.iter().map(|packet| packet.payload_slices().len()).collect::<Vec<_>>(), [1]);
    assert_eq!(packets[0].payload_slices()[0].len(), 100);
    // What the thief got is shorter than what it sent, and no more datagrams.
    thief.set_nonblocking(true).expect("a choice");
    let mut bytes = [0; 2048];
    let answers: Vec<usize> = std::iter::from_fn(|| thief.recv(&mut bytes).ok()).collect();
    assert!(answers.len() <= 3 && answers.iter().all(|len| *len <= RETRY_BYTES), "{answers:?}");
}

#[tokio::test]
async fn a_made_up_refusal_has_to_quote_what_was_sent() {
    let (receiver, _) = receiver(usize::MAX);
    let way = (OwnPath(1), SocketAddr::from(([192, 0, 2, 1], 6824)));
    let path = receiver.shared.traffic().own.note_sent(Instant::ZERO, way, true);
    let (mut quoted, _) = datagrams(0, 0, TcpFlags::SYN);
    assert!(receiver.shared.refused(&quoted).is_none(), "a path that is not ours");
    quoted[4..12].copy_from_slice(&path.0.to_be_bytes());
    let packet = receiver.shared.refused(&quoted).expect("a message");
    let Transport::Icmp(IcmpMessage::Unreachable { flow, .. }) = packet.transport else { panic!() };
    assert_eq!((flow.local.addr, flow.local.port, flow.remote.port), (OwnPath(1).addr(), 1, 2));
    assert!(receiver.shared.refused(&quoted[..19]).is_none(), "cut");
}

#[tokio::test]
async fn small_datagrams_hold_no_large_buffers() {
    let (mut receiver, at) = receiver(usize::MAX);
    let sender = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    introduce(&receiver, sender.local_addr().expect("an address"), at);
    let (datagram, _) = datagrams(10, 0, TcpFlags::ACK);
    let mut packets = Vec::new();
    for count in 1..=1000 {
        sender.send_to(&datagram, at).expect("sends");
        receive_all(&mut receiver, &mut packets, count * 10).await;
    }
    assert_eq!(receiver.pool.held_bytes(), 0);
}

#[tokio::test]
async fn large_segments_keep_their_buffers_up_to_a_bound() {
    const MOST_HELD_BYTES: usize = 20 * RECEIVE_BUFFER_BYTES;
    let (mut receiver, at) = receiver(MOST_HELD_BYTES);
    let sender = Port::open(true, 0, None, None).expect("a socket");
    let from = SocketAddr::from((
        [127, 0, 0, 1],
        sender.socket().expect("a socket").socket.local_addr().expect("an address").port(),
    ));
    introduce(&receiver, from, at);
    let (train, size) = datagrams(40_000, 1400, TcpFlags::ACK);
    let mut packets = Vec::new();
    let mut most_held = 0;
    for count in 1..=100 {
        sender.send_train(at, None, &train, size).expect("sends");
        receive_all(&mut receiver, &mut packets, count * 40_000).await;
        most_held = most_held.max(receiver.pool.held_bytes());
    }
    assert!(most_held <= MOST_HELD_BYTES + BATCH_SIZE * RECEIVE_BUFFER_BYTES, "{most_held}");
    packets.clear();
    assert_eq!(receiver.pool.held_bytes(), 0);
}
