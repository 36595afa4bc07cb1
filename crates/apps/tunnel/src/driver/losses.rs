//! What is lost between the engine and the network, which no other count shows.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};

/// Counts since the tunnel began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Datagrams that the kernel did not take: its buffer was full, or no route was there.
    pub unsent_datagrams: u64,
    /// Datagrams that came while a socket's buffer was full.
    pub overflowed_datagrams: u64,
    /// Packets that the device did not take.
    pub unwritten_packets: u64,
    /// Packets that came to the device while its queue was full.
    pub overflowed_packets: u64,
    /// Frames of the device that made no sense.
    pub malformed_frames: u64,
}

/// What a driver has counted itself, and where the kernel counts the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnLosses {
    pub(super) unsent_datagrams: u64,
    pub(super) unwritten_packets: u64,
    pub(super) malformed_frames: u64,
    /// Of the sockets.
    pub(super) inodes: Vec<u64>,
    pub(super) device: String,
}

impl OwnLosses {
    /// With what the kernel has counted. It has a line for each socket of the network namespace, so this may take long: it is for another
    /// thread than the driver's, in the same namespace.
    #[must_use]
    pub fn with_kernels(self) -> Losses {
        let udp = ["udp", "udp6"].iter().map(|name| drops_of(&network_file(name), &self.inodes));
        Losses {
            unsent_datagrams: self.unsent_datagrams,
            overflowed_datagrams: udp.sum(),
            unwritten_packets: self.unwritten_packets,
            overflowed_packets: queue_drops_of(&network_file("dev"), &self.device),
            malformed_frames: self.malformed_frames,
        }
    }
}

/// What the calling thread's network namespace tells under `/proc`.
fn network_file(name: &str) -> String {
    fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default()
}

/// What the kernel's tables call these sockets.
pub(super) fn inodes<'a>(sockets: impl Iterator<Item = BorrowedFd<'a>>) -> Vec<u64> {
    sockets.filter_map(|socket| Some(rustix::fs::fstat(socket.as_fd()).ok()?.st_ino)).collect()
}

/// The last column of the lines with one of these inodes.
fn drops_of(table: &str, inodes: &[u64]) -> u64 {
    let drops = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let inode = fields.get(9)?.parse().ok()?;
        inodes.contains(&inode).then(|| fields.last()?.parse::<u64>().ok()).flatten()
    };
    table.lines().skip(1).filter_map(drops).sum()
}

/// What was dropped on its way out by a device, as `/proc/net/dev` has it.
fn queue_drops_of(table: &str, device: &str) -> u64 {
    let of_device = table.lines().find_map(|line| line.trim_start().strip_prefix(device)?.strip_prefix(':'));
    of_device.and_then(|fields| fields.split_whitespace().nth(11)?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use socket2::{Domain, Socket, Type};

    use super::*;

    #[test]
    fn a_full_buffer_is_seen_from_another_thread() {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        socket.set_recv_buffer_size(1).unwrap();
        let own = socket.local_addr().unwrap();
        for _ in 0..100 {
            socket.send_to(&[0; 1_000], &own).unwrap();
        }
        let inodes = inodes([socket.as_fd()].into_iter());
        let own = OwnLosses {
            unsent_datagrams: 1,
            unwritten_packets: 2,
            malformed_frames: 3,
            inodes,
            device: "none".into(),
        };
        let losses = std::thread::spawn(move || own.with_kernels()).join().unwrap();
        assert!(losses.overflowed_datagrams > 0, "{losses:?}");
        let expected = Losses {
            unsent_datagrams: 1,
            unwritten_packets: 2,
            malformed_frames: 3,
            overflowed_packets: 0,
            ..losses
        };
        assert_eq!(losses, expected);
    }

    #[test]
    fn the_kernels_tables_are_read() {
        let udp = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
            \x20 18: 00000000:CA6C 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 4711 2 0000000000000000 12\n\
            \x20 19: 00000000:CA6D 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 4712 2 0000000000000000 7\n";
        assert_eq!(drops_of(udp, &[4712, 9]), 7);
        assert_eq!(drops_of(udp, &[4711, 4712]), 19);
        let dev = "Inter-|   Receive                                                |  Transmit\n \
            face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n\
            polypath-vpn: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n    lo: 0 0 0 0 0 0 0 0 0 0 0 99 0 0 0 0\n";
        assert_eq!(queue_drops_of(dev, "polypath-vpn"), 12);
        assert_eq!(queue_drops_of(dev, "polypath"), 0);
    }
}
