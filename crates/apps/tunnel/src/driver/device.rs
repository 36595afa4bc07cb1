//! The device inside.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

use polypath_system::tun::Tun;
use rustix::io::Errno;

use crate::engine::PACKET_ROOM_BYTES;
use crate::offload::{Coalescer, Segmenter, VNET_HEADER_BYTES};

/// The longest frame: a packet of 64 KB behind its header.
const MOST_FRAME_BYTES: usize = VNET_HEADER_BYTES + (1 << 16);
/// Of packets for the device, no more than so much waits.
const MOST_PENDING_BYTES: usize = 1 << 18;

/// A TUN device, whose frames are cut into packets and joined of them.
pub(super) struct Device {
    tun: Tun,
    frame: Vec<u8>,
    coalescer: Coalescer,
    /// Packets for the device, behind each other.
    pending: Vec<u8>,
    ranges: Vec<Range<usize>>,
    /// Packets that the kernel did not take.
    unwritten: u64,
    malformed_frames: u64,
    /// Why the device could not be written to, before the next flush.
    failed: io::Result<()>,
}

impl Device {
    pub(super) fn new(tun: Tun) -> Self {
        let joins_udp = tun.segments_udp();
        Self {
            tun,
            frame: vec![0; MOST_FRAME_BYTES],
            coalescer: Coalescer::new(joins_udp),
            pending: Vec::with_capacity(MOST_PENDING_BYTES),
            ranges: Vec::new(),
            unwritten: 0,
            malformed_frames: 0,
            failed: Ok(()),
        }
    }

    /// Reads one frame; each of its packets comes behind room for a header. False if there was none.
    pub(super) fn read(&mut self, take: &mut dyn FnMut(Box<[u8]>)) -> io::Result<bool> {
        let length = match rustix::io::read(&self.tun, &mut self.frame[..]) {
            Ok(length) => length,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(error) => {
                return Err(polypath_system::in_context("can't read from the TUN device", error.into()));
            }
        };
        // A frame that makes no sense is dropped, as a network drops packets.
        let Ok(mut segments) = Segmenter::new(&self.frame[..length]) else {
            self.malformed_frames += 1;
            return Ok(true);
        };
        while let Some(len_bytes) = segments.next_len_bytes() {
            let mut packet = vec![0; PACKET_ROOM_BYTES + len_bytes];
            if segments.write_next(&mut packet[PACKET_ROOM_BYTES..]).is_none() {
                break;
            }
            take(packet.into());
        }
        Ok(true)
    }

    /// A packet for the device, which [`Device::flush`] writes.
    pub(super) fn push(&mut self, packet: &[u8]) {
        if self.pending.len() + packet.len() > MOST_PENDING_BYTES {
            let written = self.write();
            self.failed = std::mem::replace(&mut self.failed, Ok(())).and(written);
        }
        let begin = self.pending.len();
        self.pending.extend_from_slice(packet);
        self.ranges.push(begin..self.pending.len());
    }

    /// Writes what was pushed, joined where that is possible.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let before = std::mem::replace(&mut self.failed, Ok(()));
        before.and(self.write())
    }

    fn write(&mut self) -> io::Result<()> {
        if self.ranges.is_empty() {
            return Ok(());
        }
        let (tun, pending, unwritten) = (&self.tun, &self.pending, &mut self.unwritten);
        let packets: Vec<&[u8]> = self.ranges.iter().map(|range| &pending[range.clone()]).collect();
        let mut failed = None;
        self.coalescer.coalesce(&packets, |parts: &[IoSlice<'_>]| match rustix::io::writev(tun, parts) {
            Ok(_) => {}
            // Full, or down, or no packet that the kernel takes: lost, as anywhere on its way.
            Err(Errno::AGAIN | Errno::IO | Errno::INVAL | Errno::NOBUFS | Errno::NOMEM | Errno::INTR) => {
                *unwritten += 1;
            }
            Err(error) => failed = Some(error),
        });
        self.pending.clear();
        self.ranges.clear();
        failed.map_or(Ok(()), |error| {
            Err(polypath_system::in_context("can't write to the TUN device", error.into()))
        })
    }

    pub(super) fn name(&self) -> &str {
        self.tun.name()
    }

    /// Packets, or several joined, that the kernel did not take, and frames that made no sense.
    pub(super) fn losses(&self) -> (u64, u64) {
        (self.unwritten, self.malformed_frames)
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tun.as_fd()
    }
}
