//! Where a peer may be that is not asked path by path: for handshakes, hellos, and all that goes to a stock WireGuard.

use polypath_units::Instant;

use super::link::{Direction, Link, PathEnds};
use super::state::Peer;

impl Peer {
    /// The places for the same message: those of the smallest rank that works, and of the next ones if there was no answer so often.
    /// Nothing goes over a path that is closed.
    pub(crate) fn places(&self, unanswered: u32) -> Vec<PathEnds> {
        let is_one =
            |link: &&Link| link.is_up() && !link.settings.closed && (link.is_ours() || link.is_believed());
        let links = || self.links.iter().flatten().map(|link| &**link).filter(is_one);
        let mut ranks: Vec<_> = links().map(|link| link.settings.rank()).collect();
        ranks.sort_unstable();
        ranks.dedup();
        // Of a stock peer's paths nobody knows whether they work.
        let working = links().filter(|link| link.is_alive()).map(|link| link.settings.rank()).min();
        let first = working.map_or(0, |rank| ranks.partition_point(|other| *other < rank));
        let last = ranks.get(first.saturating_add(unanswered as usize)).or(ranks.last());
        let mut places: Vec<_> = links()
            .filter(|link| last.is_some_and(|last| link.settings.rank() <= *last))
            .map(Link::ends)
            .collect();
        if places.is_empty() {
            places.extend(self.plain_ends());
        }
        places
    }

    /// Where the handshake, or plain data, came from, if something may go there.
    pub(crate) fn plain_ends(&self) -> Option<PathEnds> {
        let ends = self.plain_ends?;
        let carries = |link: &Link| link.is_up() && !link.settings.closed;
        self.link_of(ends).is_none_or(carries).then_some(ends)
    }

    /// Whether an answer may leave there: not over a path of ours that is to carry nothing.
    pub(crate) fn answers_at(&self, ends: PathEnds) -> bool {
        self.link_of(ends).is_none_or(|link| !link.is_ours() || !link.settings.closed)
    }

    /// The handshake, or plain data, came from there.
    pub(crate) fn set_plain_ends(&mut self, ends: PathEnds) {
        self.plain_ends = Some(ends);
    }

    /// Plain data came from there. What is still under way over a worse path than the one in use moves nothing.
    pub(super) fn note_plain_ends(&mut self, ends: PathEnds) {
        let rank_of = |ends: PathEnds| self.link_of(ends).map(|link| link.settings.rank());
        let is_worse = match (rank_of(ends), self.plain_ends().and_then(rank_of)) {
            (Some(rank), Some(used)) => rank > used,
            _ => false,
        };
        if !is_worse {
            self.plain_ends = Some(ends);
        }
    }

    /// A stock peer answers to where it last heard from us. Where that is not of the best rank, it has to hear from elsewhere.
    pub(super) fn follow_ranks(&mut self, now: Instant) {
        let (None, Some(ends)) = (self.instance, self.plain_ends) else { return };
        let rank = self.link_of(ends).filter(|link| link.is_up()).map(|link| link.settings.rank());
        let others = self.links.iter().flatten().filter(|link| link.is_up() && !link.settings.closed);
        let best = others.map(|link| link.settings.rank()).min();
        if best.is_some_and(|best| rank.is_none_or(|rank| best < rank)) {
            self.sessions.want_handshake(now);
        }
    }

    /// The path between these ends. The peer's address may have changed since.
    fn link_of(&self, ends: PathEnds) -> Option<&Link> {
        self.link_number_of(ends).and_then(|at| self.links[at].as_deref())
    }

    fn link_number_of(&self, ends: PathEnds) -> Option<usize> {
        let at = |is_it: &dyn Fn(&Link) -> bool| {
            self.links.iter().position(|link| link.as_deref().is_some_and(is_it))
        };
        let is_from_there = |link: &Link| link.is_ours() && link.ends().local == ends.local;
        at(&|link| link.ends() == ends).or_else(|| at(&is_from_there))
    }

    /// What went to these ends, or came from there, in WireGuard's own form.
    pub(crate) fn count_plain(&mut self, ends: PathEnds, direction: Direction, len_bytes: usize) {
        let at = self.link_number_of(ends);
        if let Some(link) = at.and_then(|at| self.links[at].as_deref_mut()) {
            link.count_plain(direction, len_bytes);
        }
    }

    /// A datagram in WireGuard's own form, to send as it is.
    pub(crate) fn push_ready(&mut self, ends: PathEnds, datagram: Vec<u8>) {
        self.count_plain(ends, Direction::Sent, datagram.len());
        self.ready.push_back((ends, datagram));
    }
}
