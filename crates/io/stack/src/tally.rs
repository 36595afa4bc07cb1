//! What connections have carried, by the address of this end: subflows come and go, and what they carried stays counted.

use std::net::IpAddr;

use polypath_mptcp::FallbackReason;

/// Addresses that are told apart; what is beyond them is not counted.
pub(crate) const MOST_ADDRESSES: usize = 64;

/// What an engine's connections have carried since it was started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// By the address of this end, in the order in which they came into use.
    pub paths: Vec<PathTally>,
    /// Why connections are plain TCP, and how many of them.
    pub fallbacks: Vec<(Fallback, u64)>,
    /// Connections that were opened or accepted.
    pub connections: u64,
}

/// What went over one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathTally {
    /// This end's address.
    pub own: IpAddr,
    /// Its interface, if the engine knows.
    pub name: Option<String>,
    /// Payload, both ways. Of a stack of ours with what was sent again.
    pub bytes: u64,
}

/// Why a connection is plain TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fallback {
    /// As our own stack has it.
    Reason(FallbackReason),
    /// It was Multipath TCP at first; the kernel does not tell why it is no more.
    Later,
}

impl Tally {
    pub(crate) fn add(&mut self, own: IpAddr, bytes: u64) {
        if bytes == 0 {
            return;
        }
        if let Some(path) = self.paths.iter_mut().find(|path| path.own == own) {
            path.bytes += bytes;
        } else if self.paths.len() < MOST_ADDRESSES {
            self.paths.push(PathTally { own, name: None, bytes });
        }
    }

    pub(crate) fn note_fallback(&mut self, fallback: Fallback) {
        match self.fallbacks.iter_mut().find(|(known, _)| *known == fallback) {
            Some((_, count)) => *count += 1,
            None => self.fallbacks.push((fallback, 1)),
        }
    }

    /// What came after an earlier state.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |own| earlier.paths.iter().find(|path| path.own == own).map_or(0, |path| path.bytes);
        let paths =
            self.paths.iter().map(|path| PathTally { bytes: path.bytes - before(path.own), ..path.clone() });
        let known = |wanted| {
            earlier.fallbacks.iter().find(|(known, _)| *known == wanted).map_or(0, |(_, count)| *count)
        };
        let fallbacks = self.fallbacks.iter().map(|(fallback, count)| (*fallback, count - known(*fallback)));
        Self {
            paths: paths.filter(|path| path.bytes > 0).collect(),
            fallbacks: fallbacks.filter(|(_, count)| *count > 0).collect(),
            connections: self.connections - earlier.connections,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_later_is_the_difference() {
        let (one, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let mut tally = Tally::default();
        tally.add(one, 5);
        tally.note_fallback(Fallback::Later);
        let earlier = tally.clone();
        assert_eq!(tally.since(&earlier), Tally::default());
        tally.add(other, 3);
        tally.add(one, 2);
        let lacks = Fallback::Reason(FallbackReason::PeerLacksMptcp);
        tally.note_fallback(lacks);
        let later = tally.since(&earlier);
        let bytes: Vec<_> = later.paths.iter().map(|path| (path.own, path.bytes)).collect();
        assert_eq!((bytes, later.fallbacks), (vec![(one, 2), (other, 3)], vec![(lacks, 1)]));
    }

    #[test]
    fn no_more_addresses_are_kept_than_there_can_be_paths() {
        let mut tally = Tally::default();
        (0..1000_u32).for_each(|number| tally.add(IpAddr::V4(number.into()), 1));
        assert_eq!(tally.paths.len(), MOST_ADDRESSES);
    }
}
