//! The simplest tunnel: packets of a TUN device in UDP datagrams, as they are, a system call for each.
//! Beside it one sees what protection costs a tunnel, and what it saves by handing over many packets at once.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::thread;

use polypath_system::tun::{Tun, TunConfig};
use polypath_tunnel::offload::{Coalescer, MAX_PACKETS, Segmenter, VNET_HEADER_BYTES};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::RecvFlags;

/// Room for any packet.
const PACKET_BYTES: usize = 65_575;

/// Makes a device, and carries its packets to the same port of another host and back, until this process is ended.
pub(crate) fn run(name: &str, peer: Ipv4Addr, port: u16) -> io::Result<()> {
    let config = TunConfig { name: name.to_string(), udp_segmentation: true, ..TunConfig::default() };
    let tun = Tun::create(&config).map_err(io::Error::other)?;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?;
    socket.connect(SocketAddr::from((peer, port)))?;
    thread::scope(|scope| {
        let sending = scope.spawn(|| carry_out(&tun, &socket));
        carry_in(&socket, &tun)?;
        sending.join().map_err(|_| io::Error::other("a thread of the relay died"))?
    })
}

fn carry_out(tun: &Tun, socket: &UdpSocket) -> io::Result<()> {
    let mut frame = vec![0; VNET_HEADER_BYTES + PACKET_BYTES];
    let mut packet = vec![0; PACKET_BYTES];
    loop {
        let bytes = match rustix::io::read(tun, &mut frame) {
            Ok(bytes) => bytes,
            Err(Errno::AGAIN) => {
                poll(&mut [PollFd::new(tun, PollFlags::IN)], None)?;
                continue;
            }
            Err(errno) => return Err(errno.into()),
        };
        // What makes no sense is dropped.
        let Ok(mut segmenter) = Segmenter::new(&frame[..bytes]) else { continue };
        while let Some(bytes) = segmenter.write_next(&mut packet) {
            // As is what does not leave: the other end may not be there yet.
            let _ = socket.send(&packet[..bytes]);
        }
    }
}

fn carry_in(socket: &UdpSocket, tun: &Tun) -> io::Result<()> {
    let mut packets = vec![vec![0; PACKET_BYTES]; MAX_PACKETS];
    let mut lengths = Vec::with_capacity(MAX_PACKETS);
    let mut coalescer = Coalescer::new(tun.segments_udp());
    loop {
        lengths.clear();
        for packet in &mut packets {
            // The first one is waited for.
            let flags = if lengths.is_empty() { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
            match rustix::net::recv(socket.as_fd(), packet, flags) {
                Ok((bytes, _)) => lengths.push(bytes),
                Err(Errno::AGAIN | Errno::CONNREFUSED) => break,
                Err(errno) => return Err(errno.into()),
            }
        }
        let batch: Vec<&[u8]> =
            packets.iter().zip(&lengths).map(|(packet, bytes)| &packet[..*bytes]).collect();
        coalescer.coalesce(&batch, |parts| {
            // What the kernel refuses, it would also drop.
            let _ = rustix::io::writev(tun, parts);
        });
    }
}
