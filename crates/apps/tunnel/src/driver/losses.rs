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

/// What the calling thread's network namespace tells under `/proc`.
fn network_file(name: &str) -> String {
    fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default()
}

/// Datagrams that came while the buffers of these sockets were full.
pub(super) fn overflowed_datagrams<'a>(sockets: impl Iterator<Item = BorrowedFd<'a>>) -> u64 {
    let inodes: Vec<u64> =
        sockets.filter_map(|socket| Some(rustix::fs::fstat(socket.as_fd()).ok()?.st_ino)).collect();
    ["udp", "udp6"].iter().map(|name| drops_of(&network_file(name), &inodes)).sum()
}

/// Packets that came to a device while its queue was full.
pub(super) fn overflowed_packets(device: &str) -> u64 {
    queue_drops_of(&network_file("dev"), device)
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
    use super::*;

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
