//! The least that a tunnel can do: packets of a TUN device in UDP datagrams, as they are. What others do beyond it costs them the difference.

use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::thread;

use polypath_system::tun::{Tun, TunConfig};
use polypath_tunnel::offload::{Coalescer, Segmenter, VNET_HEADER_BYTES};
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// Room for any packet.
const PACKET_BYTES: usize = 65_575;
/// What one call may send, in several datagrams.
const CALL_BYTES: usize = 65_000;

/// Makes a device, and carries its packets to the same port of another host and back, until this process is ended.
pub(crate) fn run(name: &str, peer: Ipv4Addr, port: u16) -> io::Result<()> {
    let config = TunConfig { name: name.to_string(), udp_segmentation: true, ..TunConfig::default() };
    let tun = Tun::create(&config).map_err(io::Error::other)?;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?;
    let state = UdpSocketState::new((&socket).into())?;
    let way = Way { tun, socket, state, peer: SocketAddr::from((peer, port)) };
    thread::scope(|scope| {
        let sending = scope.spawn(|| way.carry_out());
        way.carry_in()?;
        sending.join().map_err(|_| io::Error::other("a thread of the relay died"))?
    })
}

struct Way {
    tun: Tun,
    socket: UdpSocket,
    state: UdpSocketState,
    peer: SocketAddr,
}

impl Way {
    fn carry_out(&self) -> io::Result<()> {
        let mut frame = vec![0; VNET_HEADER_BYTES + PACKET_BYTES];
        let mut datagrams = vec![0; CALL_BYTES + PACKET_BYTES];
        loop {
            let bytes = match rustix::io::read(&self.tun, &mut frame) {
                Ok(bytes) => bytes,
                Err(Errno::AGAIN) => {
                    poll(&mut [PollFd::new(&self.tun, PollFlags::IN)], None)?;
                    continue;
                }
                Err(errno) => return Err(errno.into()),
            };
            // What makes no sense is dropped.
            let Ok(mut segmenter) = Segmenter::new(&frame[..bytes]) else { continue };
            // All are of that size but the last one.
            let size = segmenter.max_len_bytes();
            let most = self.state.max_gso_segments().min(CALL_BYTES / size).max(1) * size;
            let mut filled = 0;
            while let Some(bytes) = segmenter.write_next(&mut datagrams[filled..]) {
                filled += bytes;
                if filled >= most {
                    self.send(&datagrams[..filled], size)?;
                    filled = 0;
                }
            }
            if filled > 0 {
                self.send(&datagrams[..filled], size)?;
            }
        }
    }

    fn send(&self, contents: &[u8], size: usize) -> io::Result<()> {
        let segment_size = (contents.len() > size).then_some(size);
        let transmit = Transmit { destination: self.peer, ecn: None, contents, segment_size, src_ip: None };
        loop {
            match self.state.try_send((&self.socket).into(), &transmit) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    poll(&mut [PollFd::new(&self.socket, PollFlags::OUT)], None)?;
                }
                // What does not leave is lost: the other end may not be there yet.
                _ => return Ok(()),
            }
        }
    }

    fn carry_in(&self) -> io::Result<()> {
        let mut buffers = vec![vec![0; PACKET_BYTES]; BATCH_SIZE];
        let mut metas = [RecvMeta::default(); BATCH_SIZE];
        let mut coalescer = Coalescer::new(self.tun.segments_udp());
        loop {
            let mut slices: Vec<IoSliceMut<'_>> =
                buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
            let count = match self.state.recv((&self.socket).into(), &mut slices, &mut metas) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], None)?;
                    continue;
                }
                // The other end is not there yet.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                Err(error) => return Err(error),
            };
            let filled = buffers.iter().zip(&metas[..count]);
            let batch: Vec<&[u8]> =
                filled.flat_map(|(buffer, meta)| buffer[..meta.len].chunks(meta.stride.max(1))).collect();
            coalescer.coalesce(&batch, |parts| {
                // What the kernel refuses, it would also drop.
                let _ = rustix::io::writev(&self.tun, parts);
            });
        }
    }
}
