//! The stack behind a TUN device.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use polypath_system::tun::{self, Tun, VNET_HEADER_BYTES};
use polypath_wire::{Checksum, Packet};
use rustix::fd::AsFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::stack::{Buffer, BufferPool, Receive, Transmit};

/// Largest packet with its header that the kernel hands over.
const BUFFER_BYTES: usize = 65_536 + VNET_HEADER_BYTES;

/// Packets that one call reads at most: others want their turn.
const BATCH_PACKETS: usize = 64;

/// Packets up to this size are copied out of their buffer, so that a small one doesn't hold a large one.
const COPIED_BYTES: usize = 2048;

/// Slices of one packet; beyond, the rest is copied together. The kernel takes 1024 at most.
const MAX_SLICES: usize = 256;

/// The halves of a device's driver: one to send, one per queue to receive.
///
/// Must be called within a tokio runtime.
pub fn split(tun: &Tun) -> io::Result<(TunTransmit, Vec<TunReceive>)> {
    let transmit = TunTransmit::on(tun);
    let pool = BufferPool::new(BUFFER_BYTES, 64);
    let receive = tun
        .queues()
        .iter()
        .map(|queue| {
            // SAFETY: the descriptor stays open and the same as long as the Queue, which shares its ownership.
            #[allow(unsafe_code)]
            let fd = unsafe { AsyncFd::register_with_interest(Queue(queue.clone()), Interest::READABLE)? };
            Ok(TunReceive { fd, pool: pool.clone(), spare: None })
        })
        .collect::<io::Result<_>>()?;
    Ok((transmit, receive))
}

/// Writes packets to a TUN device.
#[derive(Debug)]
pub struct TunTransmit {
    queue: Arc<OwnedFd>,
    header: Vec<u8>,
}

impl Transmit for TunTransmit {
    fn transmit(&mut self, packet: Packet) -> io::Result<()> {
        self.header.clear();
        self.header.resize(VNET_HEADER_BYTES, 0);
        packet.emit_header(&mut self.header, Checksum::Partial);
        let vnet = tun::emit(&packet, self.header.len() - VNET_HEADER_BYTES);
        self.header[..VNET_HEADER_BYTES].copy_from_slice(&vnet);
        let payload = packet.payload_slices();
        let written = match payload {
            [] => rustix::io::write(&self.queue, &self.header),
            [slice] => rustix::io::writev(&self.queue, &[IoSlice::new(&self.header), IoSlice::new(slice)]),
            slices if slices.len() < MAX_SLICES => {
                let mut gathered = arrayvec::ArrayVec::<IoSlice<'_>, MAX_SLICES>::new();
                gathered.push(IoSlice::new(&self.header));
                gathered.extend(slices.iter().map(|slice| IoSlice::new(slice)));
                rustix::io::writev(&self.queue, &gathered)
            }
            slices => {
                slices.iter().for_each(|slice| self.header.extend_from_slice(slice));
                rustix::io::write(&self.queue, &self.header)
            }
        };
        match written {
            Ok(_) => Ok(()),
            // The device is down or has no room: the packet is lost as it may be anywhere on its way.
            Err(rustix::io::Errno::IO | rustix::io::Errno::AGAIN | rustix::io::Errno::NOBUFS) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

#[derive(Debug)]
struct Queue(Arc<OwnedFd>);

impl AsRawFd for Queue {
    fn as_raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Reads packets from a queue of a TUN device.
#[derive(Debug)]
pub struct TunReceive {
    fd: AsyncFd<Queue>,
    pool: BufferPool,
    spare: Option<Buffer>,
}

impl TunTransmit {
    /// What sends by a device.
    pub fn on(tun: &Tun) -> Self {
        Self { queue: tun.queues()[0].clone(), header: Vec::with_capacity(128) }
    }

    /// Writes a packet that is bytes already, checksums included; it may be lost as any other.
    pub fn transmit_bytes(&mut self, packet: &[u8]) {
        let slices = [IoSlice::new(&[0; VNET_HEADER_BYTES]), IoSlice::new(packet)];
        let _ = rustix::io::writev(&self.queue, &slices);
    }
}

impl Receive for TunReceive {
    fn poll_receive(&mut self, cx: &mut Context<'_>, packets: &mut Vec<Packet>) -> Poll<io::Result<()>> {
        // What can't be read is none of ours: a protocol that the stack doesn't speak.
        self.poll_each(cx, |bytes| tun::parse(bytes).map(|packet| packets.push(packet)).is_ok())
    }
}

impl TunReceive {
    /// Hands a bounded number of packets, each with its vnet header, to `take`, which says whether it was of use;
    /// ready when one was.
    pub fn poll_each(
        &mut self,
        cx: &mut Context<'_>,
        mut take: impl FnMut(Bytes) -> bool,
    ) -> Poll<io::Result<()>> {
        let mut is_of_use = false;
        loop {
            let mut guard = ready!(self.fd.poll_read_ready(cx))?;
            for _ in 0..BATCH_PACKETS {
                let mut buffer = self.spare.take().unwrap_or_else(|| self.pool.take());
                match rustix::io::read(guard.get_inner(), &mut buffer[..]) {
                    Ok(len) => {
                        let bytes = if len <= COPIED_BYTES {
                            let bytes = Bytes::copy_from_slice(&buffer[..len]);
                            self.spare = Some(buffer);
                            bytes
                        } else {
                            buffer.freeze(len)
                        };
                        is_of_use |= take(bytes);
                    }
                    Err(rustix::io::Errno::AGAIN) => {
                        self.spare = Some(buffer);
                        guard.clear_ready();
                        break;
                    }
                    Err(rustix::io::Errno::INTR) => {}
                    Err(errno) => return Poll::Ready(Err(errno.into())),
                }
            }
            if is_of_use {
                return Poll::Ready(Ok(()));
            }
        }
    }
}
