//! How many clients there is room for.

use std::num::NonZeroUsize;
use std::thread::available_parallelism;

use polypath_proxy::access::ClientLimits;
use polypath_proxy::net::Settings;

/// Of one connection: a socket at each side. A client that sends datagrams has a third one, and two places.
const DESCRIPTORS: u64 = 2;
/// What the proxy has besides: pipes, entrances, its own sockets, and lookups.
const SPARE_DESCRIPTORS: u64 = 600;
/// Of a thread that serves connections: what it waits with, twice, and what wakes it.
const DESCRIPTORS_OF_THREAD: u64 = 3;

/// More threads are of no use to anybody.
pub(super) const MOST_THREADS: NonZeroUsize = NonZeroUsize::new(128).expect("some");

/// How many cores the process may use, as far as each can have a thread.
pub(super) fn cores() -> NonZeroUsize {
    available_parallelism().unwrap_or(NonZeroUsize::MIN).min(MOST_THREADS)
}

/// What holds unless the file says otherwise, in a process that may have so many descriptors and a thread for each of so many cores: whoever is let in
/// finds two descriptors, and one client can't take all from the others.
pub(super) fn limits(descriptors: u64, cores: NonZeroUsize) -> ClientLimits {
    let mut limits = Settings::default().limits;
    let further_threads = (cores.get() - 1) as u64;
    let spare = (SPARE_DESCRIPTORS + DESCRIPTORS_OF_THREAD * further_threads).min(descriptors / 2);
    let most = u32::try_from((descriptors - spare) / DESCRIPTORS).unwrap_or(u32::MAX).max(1);
    limits.all.connections = limits.all.connections.min(most);
    limits.each.connections = limits.each.connections.min(limits.all.connections.div_ceil(2));
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_let_in_for_whom_there_are_no_descriptors() {
        for (descriptors, all, each) in
            [(1 << 20, 65_536, 16_384), (20_000, 9700, 4850), (1024, 256, 128), (64, 16, 8), (0, 1, 1)]
        {
            let limits = limits(descriptors, NonZeroUsize::MIN);
            assert_eq!((limits.all.connections, limits.each.connections), (all, each), "{descriptors}");
        }
        let of_many = limits(20_000, NonZeroUsize::new(101).expect("a number"));
        assert_eq!(of_many.all.connections, 9550);
    }
}
