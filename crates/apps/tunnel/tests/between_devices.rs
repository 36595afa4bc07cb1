//! Frames between the TUN devices of two namespaces, cut and joined on the way: what the kernel hands over and what it takes.
// The kernel's own sockets are what is tested with.
#![allow(clippy::disallowed_types)]

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use polypath_system::tun::{Tun, TunConfig};
use polypath_system::{Namespace, Netlink};
use polypath_testbed::{is_root_or_skip, wait_for_addresses};
use polypath_tunnel::offload::{Coalescer, Segmenter, VNET_HEADER_BYTES};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const MTU_BYTES: usize = 1400;
/// The protocol's number.
const UDP: u8 = 17;

const ADDRESSES: [[&str; 2]; 2] = [["10.9.0.1", "fd09::1"], ["10.9.0.2", "fd09::2"]];

struct Host {
    namespace: Namespace,
    tun: Tun,
}

impl Host {
    fn new(addresses: [&str; 2]) -> Self {
        let namespace = Namespace::create().expect("a namespace");
        // Its addresses need no second of detection.
        namespace.set_variable("net/ipv6/conf/default/accept_dad", "0").expect("a variable");
        let config = TunConfig { udp_segmentation: true, ..TunConfig::default() };
        let addresses = addresses.map(|addr| addr.parse::<IpAddr>().expect("an address"));
        let tun = namespace.run(|| {
            let tun = Tun::create(&config).expect("a device");
            let netlink = Netlink::new().expect("netlink");
            netlink.set_mtu(tun.name(), MTU_BYTES as u32).expect("an MTU");
            netlink.set_up(tun.name()).expect("it comes up");
            for (addr, length) in addresses.iter().zip([24, 64]) {
                netlink.add_address(tun.name(), *addr, length).expect("an address");
            }
            wait_for_addresses(&netlink, tun.name(), &addresses).expect("they are usable");
            tun
        });
        Self { namespace, tun: tun.expect("a device") }
    }

    /// Until there is something to read, or for a moment.
    fn wait(&self) {
        let limit = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        poll(&mut [PollFd::new(&self.tun, PollFlags::IN)], Some(&limit)).expect("poll");
    }

    /// The packets of what the device has, each no longer than the MTU, and the longest frame.
    fn read(&self) -> (Vec<Vec<u8>>, usize) {
        let mut frame = vec![0; VNET_HEADER_BYTES + 65_575];
        let (mut packets, mut longest) = (Vec::new(), 0);
        while packets.len() < 200
            && let Ok(len) = rustix::io::read(&self.tun, &mut frame)
        {
            longest = longest.max(len - VNET_HEADER_BYTES);
            let mut segmenter = Segmenter::new(&frame[..len]).expect("a frame of the kernel");
            while let Some(len) = segmenter.next_len_bytes() {
                let mut packet = vec![0; len];
                segmenter.write_next(&mut packet).expect("a buffer that is long enough");
                assert!(len <= MTU_BYTES, "{len} bytes");
                packets.push(packet);
            }
        }
        (packets, longest)
    }

    /// Hands over packets; says how long the longest frame was.
    fn write(&self, packets: &[Vec<u8>]) -> usize {
        let mut longest = 0;
        Coalescer::new(self.tun.segments_udp()).coalesce(packets, |parts| {
            let len: usize = parts.iter().map(|part| part.len()).sum();
            assert_eq!(rustix::io::writev(&self.tun, parts).expect("the kernel takes it"), len);
            longest = longest.max(len - VNET_HEADER_BYTES);
        });
        longest
    }
}

fn protocol(packet: &[u8]) -> u8 {
    packet[if packet[0] >> 4 == 4 { 9 } else { 6 }]
}

/// Carries packets until it is over; says how long the longest frames were at either side.
fn carry(from: &Host, to: &Host, is_over: &AtomicBool) -> (usize, usize) {
    let mut longest = (0, 0);
    while !is_over.load(Ordering::Relaxed) {
        from.wait();
        let (packets, read) = from.read();
        longest = (longest.0.max(read), longest.1.max(to.write(&packets)));
    }
    longest
}

#[test]
fn tcp_crosses_in_large_frames() {
    if !is_root_or_skip("TUN devices") {
        return;
    }
    let hosts = ADDRESSES.map(Host::new);
    let [client, server] = &hosts;
    let is_over = AtomicBool::new(false);
    let data: Vec<u8> = (0..8_000_000_u32).map(|at| (at * 167 + at / 251 * 13) as u8).collect();
    thread::scope(|scope| {
        let there = scope.spawn(|| carry(client, server, &is_over));
        let back = scope.spawn(|| carry(server, client, &is_over));
        for addr in ADDRESSES[1] {
            let addr: IpAddr = addr.parse().expect("an address");
            let listener = server.namespace.run(|| TcpListener::bind((addr, 0))).unwrap().expect("listens");
            let addr = listener.local_addr().expect("an address");
            let mut sender = client.namespace.run(|| TcpStream::connect(addr)).unwrap().expect("connects");
            let (mut receiver, _) = listener.accept().expect("a connection");
            scope.spawn(|| sender.write_all(&data).map(|()| drop(sender)).expect("sends"));
            let mut received = Vec::new();
            receiver.read_to_end(&mut received).expect("receives");
            assert!(received == data);
        }
        is_over.store(true, Ordering::Relaxed);
        let (read, written) = there.join().expect("no panic");
        assert!(read > 2 * MTU_BYTES && written > 2 * MTU_BYTES, "frames of {read} and {written} bytes");
        back.join().expect("no panic");
    });
}

#[test]
fn datagrams_of_one_write_arrive_one_by_one() {
    if !is_root_or_skip("TUN devices") {
        return;
    }
    let hosts = ADDRESSES.map(Host::new);
    let [client, server] = &hosts;
    for [from, to] in [[ADDRESSES[0][0], ADDRESSES[1][0]], [ADDRESSES[0][1], ADDRESSES[1][1]]] {
        let receiver = server.namespace.run(|| UdpSocket::bind((to, 0))).unwrap().expect("a socket");
        receiver.set_read_timeout(Some(Duration::from_secs(10))).expect("a limit");
        let addr = receiver.local_addr().expect("an address");
        let sender = client.namespace.run(|| UdpSocket::bind((from, 0))).unwrap().expect("a socket");
        let datagrams: Vec<Vec<u8>> = (0..10).map(|number| vec![number; 1000]).collect();
        for datagram in &datagrams {
            sender.send_to(datagram, addr).expect("sends");
        }
        // The kernel asks for routers and joins groups when it likes, in between; what is sent meanwhile waits for that.
        let (mut packets, mut waits) = (Vec::new(), 0..500);
        while packets.len() < datagrams.len() && waits.next().is_some() {
            client.wait();
            packets.extend(client.read().0.into_iter().filter(|packet| protocol(packet) == UDP));
        }
        assert_eq!(packets.len(), datagrams.len());
        let longest = server.write(&packets);
        assert_eq!(longest > 10_000, server.tun.segments_udp(), "a frame of {longest} bytes");
        for expected in &datagrams {
            let mut datagram = [0; 2000];
            let len = receiver.recv(&mut datagram).expect("a datagram");
            assert_eq!(&datagram[..len], expected);
        }
    }
}
