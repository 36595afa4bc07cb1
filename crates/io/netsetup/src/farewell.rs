//! The last words of a process that was killed, said by its guardian over the device that is still there.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use bytes::Bytes;
use polypath_stack::peer_list;
use polypath_stack::stack::Transmit;
use polypath_stack::tun::TunTransmit;
use polypath_system::tun::{Tun, VNET_HEADER_BYTES};
use polypath_tcp::reset_in_reply;
use polypath_wire::{FourTuple, MptcpOption, Packet, Segment, TcpFlags, TcpOption, Timestamps, Transport};
use rustix::event::{PollFd, PollFlags, Timespec};

/// How long peers may take: some of their retransmissions, and some of ours.
const LONGEST: Duration = Duration::from_secs(5);
/// How often a peer is asked that has not answered.
const BETWEEN: Duration = Duration::from_millis(500);
/// When all peers know, how long it is quiet before it is believed.
const QUIET: Duration = Duration::from_millis(200);
/// Largest packet with its header that the kernel hands over.
const BUFFER_BYTES: usize = 65_536 + VNET_HEADER_BYTES;

/// Tells the peers in a list that their connections are no more.
///
/// Nobody knows the sequence numbers any longer. So each peer is sent a SYN, which it answers with an acknowledgment that has
/// them (RFC 5961 §4.2), as is all else that it sends. To that it gets a RST with MP_FASTCLOSE and its key (RFC 8684 §3.5), which ends
/// the whole connection: after a RST alone it would wait for other subflows.
pub(super) fn take_leave(device: OwnedFd, peers: &File) -> io::Result<()> {
    let peers: HashMap<FourTuple, Option<u64>> = peer_list::read(peers)?.into_iter().collect();
    let mut transmit = TunTransmit::on(&Tun::from_queue("", device.try_clone()?));
    let mut silent: HashSet<FourTuple> = peers.keys().copied().collect();
    let mut buffer = vec![0; BUFFER_BYTES];
    let began = Instant::now();
    let mut due = began;
    while began.elapsed() < LONGEST {
        if due <= Instant::now() {
            due = Instant::now() + BETWEEN;
            silent.iter().try_for_each(|tuple| transmit.transmit(question(*tuple)))?;
        }
        let wait = if silent.is_empty() { QUIET } else { due.saturating_duration_since(Instant::now()) };
        if !is_readable(&device, wait)? {
            if silent.is_empty() {
                break;
            }
            continue;
        }
        let length = match rustix::io::read(&device, &mut buffer) {
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => continue,
            // No device, but what stands where one would be.
            Ok(0) => return Ok(()),
            length => length?,
        };
        let Ok(packet) = polypath_system::tun::parse(Bytes::copy_from_slice(&buffer[..length])) else {
            continue;
        };
        let Some(tuple) = packet.receiver_tuple() else { continue };
        silent.remove(&tuple);
        if let Some(answer) = answer(&packet, tuple, peers.get(&tuple).copied().flatten()) {
            transmit.transmit(answer)?;
        }
    }
    Ok(())
}

fn is_readable(device: &OwnedFd, wait: Duration) -> io::Result<bool> {
    let mut watched = [PollFd::from_borrowed_fd(device.as_fd(), PollFlags::IN)];
    let wait = Timespec::try_from(wait).map_err(io::Error::other)?;
    match rustix::event::poll(&mut watched, Some(&wait)) {
        Err(rustix::io::Errno::INTR) => Ok(false),
        count => Ok(count? > 0),
    }
}

/// With a timestamp, for those that take no segment without one (RFC 7323 §3.2).
fn question(tuple: FourTuple) -> Packet {
    let mut segment = Segment { flags: TcpFlags::SYN, ..Segment::default() };
    segment.options.timestamps = Some(Timestamps::default());
    Packet::tcp(tuple, segment)
}

/// The reset for whatever a peer sends on a flow of the stack, with its key if there is one. A reset gets none.
fn answer(packet: &Packet, tuple: FourTuple, key: Option<u64>) -> Option<Packet> {
    let Transport::Tcp(segment) = &packet.transport else { return None };
    let mut reset = reset_in_reply(segment)?;
    let option = key.map(|receiver_key| TcpOption::Mptcp(MptcpOption::Fastclose { receiver_key }));
    reset.options.rest.extend(option);
    Some(Packet::tcp(tuple, reset))
}
