//! The device that joins a program's namespace with the gateway.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use polypath_wire::{Checksum, Packet, Transport};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

/// The header that goes before each packet of a device with IFF_VNET_HDR (virtio 1.2 §5.1.6).
const VNET_HEADER_BYTES: usize = 10;
/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`.
const NEEDS_CHECKSUM: u8 = 1;
/// Room for the largest packet and its header.
const MAX_PACKET_BYTES: usize = VNET_HEADER_BYTES + 65_536;
/// Packets are read into blocks of this size, of which each takes what it needs.
const BLOCK_BYTES: usize = 4 * MAX_PACKET_BYTES;

/// Makes a TUN device in the network namespace of the calling thread. It vanishes with the descriptor.
pub(super) fn create(name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let device = rustix::fs::open("/dev/net/tun", flags, Mode::empty())?;
    // SAFETY: an ifreq is plain data, for which all zeros are valid.
    #[allow(unsafe_code)]
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero.
    for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one ifreq, which lives through the call.
    #[allow(unsafe_code)]
    let status = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    // The program's kernel leaves out checksums that nobody would look at.
    // SAFETY: TUNSETOFFLOAD takes its flags by value.
    #[allow(unsafe_code)]
    let status =
        unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::TUN_F_CSUM as libc::c_ulong) };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(device)
}

/// Packets from and to a TUN device.
#[derive(Debug)]
pub(super) struct Tun {
    device: AsyncFd<OwnedFd>,
    block: BytesMut,
    header: Vec<u8>,
}

impl Tun {
    pub(super) fn new(device: OwnedFd) -> io::Result<Self> {
        // SAFETY: the descriptor is owned by what registers it, and closed only after that.
        #[allow(unsafe_code)]
        let device = unsafe { AsyncFd::register(device) }?;
        Ok(Self { device, block: BytesMut::new(), header: Vec::new() })
    }

    /// The next IP packet, as bytes.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        loop {
            let mut guard = std::task::ready!(self.device.poll_read_ready(cx))?;
            if self.block.capacity() < MAX_PACKET_BYTES {
                self.block = BytesMut::with_capacity(BLOCK_BYTES);
            }
            match rustix::io::read(self.device.get_ref(), self.block.spare_capacity_mut()) {
                Ok((read, _)) => {
                    let length = read.len();
                    // SAFETY: `read` says that so many bytes of the spare capacity are initialized now.
                    #[allow(unsafe_code)]
                    unsafe {
                        self.block.set_len(length);
                    }
                    let mut packet = self.block.split().freeze();
                    return Poll::Ready(Ok(packet.split_off(VNET_HEADER_BYTES.min(length))));
                }
                Err(Errno::AGAIN) => guard.clear_ready(),
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    /// Gives a packet to the program's kernel, which is trusted not to need checksums. A packet that the device does
    /// not take is lost, as on any link.
    pub(super) fn write(&mut self, packet: &Packet) {
        let checksum_offset = match packet.transport {
            Transport::Tcp(_) => Some(16u16),
            Transport::Udp(_) => Some(6),
            Transport::Icmp(_) => None,
        };
        self.header.clear();
        self.header.resize(VNET_HEADER_BYTES, 0);
        if let Some(offset) = checksum_offset {
            self.header[0] = NEEDS_CHECKSUM;
            self.header[6..8].copy_from_slice(&(packet.ip.len_bytes() as u16).to_ne_bytes());
            self.header[8..10].copy_from_slice(&offset.to_ne_bytes());
        }
        packet.emit_header(&mut self.header, Checksum::Partial);
        let payload = packet.payload_slices().iter().map(|slice| IoSlice::new(slice));
        let slices: Vec<IoSlice<'_>> = std::iter::once(IoSlice::new(&self.header)).chain(payload).collect();
        if slices.len() <= 1024 {
            let _ = rustix::io::writev(self.device.get_ref(), &slices);
        }
    }

    /// Gives a packet that is bytes already.
    pub(super) fn write_bytes(&mut self, packet: &[u8]) {
        let slices = [IoSlice::new(&[0; VNET_HEADER_BYTES]), IoSlice::new(packet)];
        let _ = rustix::io::writev(self.device.get_ref(), &slices);
    }
}
