use alloc::vec::Vec;

use polypath_units::Instant;

/// Bits of a deadline that one level of the wheel resolves.
const LEVEL_BITS: u32 = 6;
const SLOTS_PER_LEVEL: usize = 1 << LEVEL_BITS;
/// Eleven levels of six bits hold every 64-bit nanosecond instant.
const LEVELS: usize = 11;
/// The list of entries that have expired and were not polled yet.
const DUE: u16 = (LEVELS * SLOTS_PER_LEVEL) as u16;
/// The list that a free node is on.
const FREE: u16 = u16::MAX;
const NIL: u32 = u32::MAX;

/// A hierarchical timing wheel (Varghese and Lauck, scheme 7) with deadlines that are exact to the
/// nanosecond.
///
/// Each owner has at most one entry, named by the owner's index, which should be small: the place of a value in a [`Slab`]. So
/// an owner keeps nothing of its own. Scheduling, cancelling and asking for the next deadline cost the same however many entries
/// there are; an entry moves between levels at most ten times in its life, and a lone one not at all.
///
/// [`Slab`]: crate::slab::Slab
///
/// # Contract
/// - **Lazy.** [`TimerWheel::schedule`] to a *later* instant than the entry has does nothing: the entry fires
///   early, and its owner looks at its true deadline and schedules again. So a retransmission timer that
///   every acknowledgment pushes back costs a comparison each time.
/// - **Never late.** [`TimerWheel::next_deadline`] is at or before the earliest entry. It is exact unless an
///   entry that was the earliest of its slot has been cancelled or replaced; then an empty poll at the old
///   instant sets it right.
/// - **Ordered.** Entries expire in the order of their instants.
///
/// # Structure
/// The wheel is a monotone radix structure: an entry's level is the highest group of six bits in which its
/// instant differs from `elapsed`, its slot is that group's value. Hence everything on a lower level, and in
/// a lower slot of the same level, is earlier, and the first occupied slot holds the next deadline. When it
/// is reached, `elapsed` moves there and the slot's entries spread over the levels below.
#[derive(Debug)]
pub(crate) struct TimerWheel {
    /// By owner.
    nodes: Vec<Node>,
    /// Entries in the wheel or due.
    len: usize,
    /// All entries at or before this instant have become due.
    elapsed: Instant,
    occupied_levels: u16,
    occupied_slots: [u64; LEVELS],
    /// One list per slot, and the due list at the end.
    lists: Vec<List>,
}

/// The entry of an owner, if it has one.
#[derive(Clone, Debug)]
struct Node {
    /// When it fires; the clock's origin if there is none.
    at: Instant,
    previous: u32,
    next: u32,
    list: u16,
}

const NO_ENTRY: Node = Node { at: Instant::ZERO, previous: NIL, next: NIL, list: FREE };

#[derive(Clone, Debug)]
struct List {
    head: u32,
    tail: u32,
    /// At or before the earliest entry.
    earliest: Instant,
}

const EMPTY_LIST: List = List { head: NIL, tail: NIL, earliest: Instant::FAR_FUTURE };

impl TimerWheel {
    /// An empty wheel.
    pub(crate) fn new() -> Self {
        Self {
            nodes: Vec::new(),
            len: 0,
            elapsed: Instant::ZERO,
            occupied_levels: 0,
            occupied_slots: [0; LEVELS],
            lists: alloc::vec![EMPTY_LIST; usize::from(DUE) + 1],
        }
    }

    /// Entries that are scheduled or due.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Sees to it that `owner` is polled at `at` or earlier. [`Instant::FAR_FUTURE`] means never and needs no
    /// entry.
    #[inline]
    pub(crate) fn schedule(&mut self, owner: u32, at: Instant) {
        // An entry that is later than `elapsed` can't have become due; so this one stands and is early enough.
        let stands = |node: &Node| at >= node.at && node.at > self.elapsed;
        if at == Instant::FAR_FUTURE || self.nodes.get(owner as usize).is_some_and(stands) {
            return;
        }
        self.reschedule(owner, at);
    }

    /// As [`TimerWheel::schedule`]; `None` leaves whatever is scheduled to fire in vain.
    #[inline]
    pub(crate) fn arm(&mut self, owner: u32, at: Option<Instant>) {
        if let Some(at) = at {
            self.schedule(owner, at);
        }
    }

    /// Removes the entry, if there is one. To be called before the owner goes away.
    pub(crate) fn cancel(&mut self, owner: u32) {
        if self.is_scheduled(owner) {
            self.unlink(owner);
            self.release(owner);
        }
    }

    /// True if the owner has an entry that was not polled yet.
    fn is_scheduled(&self, owner: u32) -> bool {
        self.nodes.get(owner as usize).is_some_and(|node| node.list != FREE)
    }

    /// When to call [`TimerWheel::poll_expired`] next: at or before the earliest entry.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let due = &self.lists[usize::from(DUE)];
        if due.head != NIL {
            return Some(self.nodes[due.head as usize].at);
        }
        if self.occupied_levels == 0 {
            return None;
        }
        Some(self.lists[usize::from(self.first_slot())].earliest)
    }

    /// The next owner whose entry is at or before `now`, in order of time. The entry is gone afterwards.
    #[inline]
    pub(crate) fn poll_expired(&mut self, now: Instant) -> Option<u32> {
        loop {
            let head = self.lists[usize::from(DUE)].head;
            if head != NIL {
                self.unlink(head);
                self.release(head);
                return Some(head);
            }
            if self.occupied_levels == 0 {
                return None;
            }
            let slot = self.first_slot();
            let earliest = self.lists[usize::from(slot)].earliest;
            if earliest > now {
                return None;
            }
            self.cascade(slot, earliest);
        }
    }

    /// The slot of the earliest entries; the wheel must not be empty.
    #[inline]
    fn first_slot(&self) -> u16 {
        let level = self.occupied_levels.trailing_zeros();
        let slot = self.occupied_slots[level as usize].trailing_zeros();
        (level << LEVEL_BITS | slot) as u16
    }

    /// Moves `elapsed` to `at`, which lies in `slot`, and spreads the slot's entries.
    fn cascade(&mut self, slot: u16, at: Instant) {
        self.elapsed = at;
        self.clear_occupied(slot);
        let mut index = core::mem::replace(&mut self.lists[usize::from(slot)], EMPTY_LIST).head;
        while index != NIL {
            let next = self.nodes[index as usize].next;
            self.link(index);
            index = next;
        }
    }

    /// The slow half of [`TimerWheel::schedule`]: there may be no entry, or it may be too late.
    #[inline(never)]
    fn reschedule(&mut self, owner: u32, at: Instant) {
        if self.is_scheduled(owner) {
            if at >= self.nodes[owner as usize].at {
                return;
            }
            self.unlink(owner);
        } else {
            self.len += 1;
            if self.nodes.len() <= owner as usize {
                self.nodes.resize(owner as usize + 1, NO_ENTRY);
            }
        }
        self.nodes[owner as usize].at = at;
        self.link(owner);
    }

    fn release(&mut self, owner: u32) {
        self.nodes[owner as usize] = NO_ENTRY;
        self.len -= 1;
    }

    /// Puts a node at the end of the list that its instant calls for.
    fn link(&mut self, index: u32) {
        let at = self.nodes[index as usize].at;
        let list_index = if at <= self.elapsed {
            DUE
        } else {
            let differing = at.as_nanos() ^ self.elapsed.as_nanos();
            let level = (u64::BITS - 1 - differing.leading_zeros()) / LEVEL_BITS;
            let slot = (at.as_nanos() >> (level * LEVEL_BITS)) & (SLOTS_PER_LEVEL as u64 - 1);
            self.occupied_levels |= 1 << level;
            self.occupied_slots[level as usize] |= 1 << slot;
            (level << LEVEL_BITS) as u16 | slot as u16
        };
        let list = &mut self.lists[usize::from(list_index)];
        list.earliest = list.earliest.min(at);
        let previous = core::mem::replace(&mut list.tail, index);
        if previous == NIL {
            list.head = index;
        } else {
            self.nodes[previous as usize].next = index;
        }
        let node = &mut self.nodes[index as usize];
        node.previous = previous;
        node.next = NIL;
        node.list = list_index;
    }

    fn unlink(&mut self, index: u32) {
        let Node { previous, next, list: list_index, .. } = self.nodes[index as usize];
        let list = &mut self.lists[usize::from(list_index)];
        if next == NIL {
            list.tail = previous;
        }
        if previous == NIL {
            list.head = next;
        }
        if list.head == NIL {
            list.earliest = Instant::FAR_FUTURE;
            if list_index != DUE {
                self.clear_occupied(list_index);
            }
        }
        if next != NIL {
            self.nodes[next as usize].previous = previous;
        }
        if previous != NIL {
            self.nodes[previous as usize].next = next;
        }
    }

    fn clear_occupied(&mut self, slot: u16) {
        let level = usize::from(slot >> LEVEL_BITS);
        self.occupied_slots[level] &= !(1 << (slot & (SLOTS_PER_LEVEL as u16 - 1)));
        if self.occupied_slots[level] == 0 {
            self.occupied_levels &= !(1 << level);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use polypath_units::Duration;

    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    /// A small generator (xorshift64*) is enough to pick operations.
    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % bound
        }
    }

    #[test]
    fn an_idle_entry_takes_24_bytes() {
        assert_eq!(size_of::<Node>(), 24);
    }

    #[test]
    fn fires_at_the_exact_nanosecond() {
        let mut wheel = TimerWheel::new();
        for (owner, nanos) in [(0, 200_000_001), (1, 200_000_000), (2, 7_200_000_000_003)] {
            wheel.schedule(owner, at(nanos));
        }
        assert_eq!(wheel.next_deadline(), Some(at(200_000_000)));
        assert_eq!(wheel.poll_expired(at(199_999_999)), None);
        assert_eq!(wheel.poll_expired(at(200_000_000)), Some(1));
        assert_eq!(wheel.poll_expired(at(200_000_000)), None);
        assert_eq!(wheel.next_deadline(), Some(at(200_000_001)));
        assert_eq!(wheel.poll_expired(at(200_000_001)), Some(0));
        assert_eq!(wheel.next_deadline(), Some(at(7_200_000_000_003)));
        assert_eq!(wheel.poll_expired(at(7_200_000_000_002)), None);
        assert_eq!(wheel.poll_expired(Instant::FAR_FUTURE), Some(2));
        assert_eq!((wheel.next_deadline(), wheel.len()), (None, 0));
    }

    #[test]
    fn a_later_deadline_leaves_the_entry_and_an_earlier_one_moves_it() {
        let mut wheel = TimerWheel::new();
        wheel.schedule(3, at(1_000));
        wheel.schedule(3, at(5_000));
        assert_eq!((wheel.next_deadline(), wheel.len()), (Some(at(1_000)), 1));
        wheel.schedule(3, at(300));
        assert_eq!((wheel.next_deadline(), wheel.len()), (Some(at(300)), 1));
        assert_eq!(wheel.poll_expired(at(2_000)), Some(3));
        assert_eq!(wheel.poll_expired(at(2_000)), None);
        // The owner now schedules its true deadline.
        wheel.schedule(3, at(5_000));
        assert_eq!((wheel.next_deadline(), wheel.len()), (Some(at(5_000)), 1));
    }

    #[test]
    fn deadlines_in_the_past_fire_at_once_and_once() {
        let mut wheel = TimerWheel::new();
        wheel.schedule(1, at(50));
        assert_eq!(wheel.poll_expired(at(100)), Some(1));
        wheel.schedule(1, at(20));
        wheel.schedule(1, at(20));
        wheel.schedule(2, Instant::ZERO);
        assert!(wheel.next_deadline() <= Some(at(50)));
        assert_eq!(wheel.poll_expired(at(100)), Some(1));
        assert_eq!(wheel.poll_expired(at(100)), Some(2));
        assert_eq!(wheel.poll_expired(at(100)), None);
    }

    #[test]
    fn never_and_cancel_leave_nothing_behind() {
        let mut wheel = TimerWheel::new();
        wheel.schedule(1, Instant::FAR_FUTURE);
        wheel.arm(1, None);
        wheel.cancel(1);
        assert_eq!(wheel.len(), 0);
        wheel.schedule(1, at(10));
        wheel.cancel(1);
        wheel.cancel(1);
        assert_eq!((wheel.next_deadline(), wheel.poll_expired(at(10))), (None, None));
        // The next owner of that index begins anew.
        wheel.schedule(1, at(20));
        assert_eq!((wheel.next_deadline(), wheel.len()), (Some(at(20)), 1));
    }

    #[test]
    fn agrees_with_a_sorted_set() {
        const OWNERS: u64 = 200;
        for seed in 1..=20 {
            let mut random = Random(seed);
            let mut wheel = TimerWheel::new();
            let mut expected: Vec<Option<Instant>> = alloc::vec![None; OWNERS as usize];
            let mut set = BTreeSet::new();
            let mut now = at(random.below(1 << 40));
            for _ in 0..20_000 {
                let owner = random.below(OWNERS) as usize;
                match random.below(10) {
                    0 => {
                        wheel.cancel(owner as u32);
                        if let Some(old) = expected[owner].take() {
                            set.remove(&(old, owner));
                        }
                    }
                    1..7 => {
                        let exponent = random.below(45);
                        let to = now + Duration::from_nanos(random.below(1 << exponent));
                        wheel.schedule(owner as u32, to);
                        if expected[owner].is_none_or(|old| to < old) {
                            if let Some(old) = expected[owner].replace(to) {
                                set.remove(&(old, owner));
                            }
                            set.insert((to, owner));
                        }
                    }
                    _ => {
                        let exponent = random.below(36);
                        now += Duration::from_nanos(random.below(1 << exponent));
                        let mut last = Instant::ZERO;
                        while let Some(fired) = wheel.poll_expired(now) {
                            let fired = fired as usize;
                            let due = expected[fired].take().expect("an entry fires once");
                            assert!(due <= now && last <= due);
                            assert!(set.remove(&(due, fired)));
                            last = due;
                        }
                    }
                }
                let first = set.first().map(|&(due, _)| due);
                assert!(wheel.next_deadline().is_none() == first.is_none() && wheel.next_deadline() <= first);
                if let Some(first) = first.filter(|&first| first <= now) {
                    assert!(wheel.next_deadline() <= Some(first));
                }
                assert_eq!(wheel.len(), set.len());
            }
        }
    }

    #[test]
    fn a_million_idle_timers_do_not_touch_the_work_of_one() {
        let mut wheel = TimerWheel::new();
        for owner in 0..1_000_000_u32 {
            // Idle for two hours, give or take.
            wheel.schedule(owner, at(7_200_000_000_000 + u64::from(owner) * 7_919));
        }
        let mut fired = 0;
        let mut now = Instant::ZERO;
        for _ in 0..1_000 {
            now += Duration::from_micros(120);
            wheel.schedule(1_000_000, now + Duration::from_millis(10));
            while wheel.next_deadline().is_some_and(|next| next <= now) {
                if wheel.poll_expired(now).is_some() {
                    fired += 1;
                }
            }
        }
        assert_eq!(fired, 11);
        assert_eq!(wheel.len(), 1_000_001);
    }
}
