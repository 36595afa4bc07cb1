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
/// Each owner has at most one entry, named by its [`TimerHandle`]. Scheduling, cancelling and asking for the
/// next deadline cost the same however many entries there are; an entry moves between levels at most ten
/// times in its life, and a lone one not at all.
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
pub struct TimerWheel<K> {
    nodes: Vec<Node<K>>,
    free: u32,
    /// Entries in the wheel or due.
    len: usize,
    /// All entries at or before this instant have become due.
    elapsed: Instant,
    occupied_levels: u16,
    occupied_slots: [u64; LEVELS],
    /// One list per slot, and the due list at the end.
    lists: Vec<List>,
}

#[derive(Debug)]
struct Node<K> {
    at: Instant,
    key: K,
    previous: u32,
    next: u32,
    /// Increases when the node is freed, which makes the handle that named it stale.
    generation: u32,
    list: u16,
}

#[derive(Clone, Debug)]
struct List {
    head: u32,
    tail: u32,
    /// At or before the earliest entry.
    earliest: Instant,
}

const EMPTY_LIST: List = List { head: NIL, tail: NIL, earliest: Instant::FAR_FUTURE };

/// Names an owner's entry in a [`TimerWheel`]; kept by the owner and used with one wheel only.
#[derive(Debug)]
pub struct TimerHandle {
    /// When the entry fires; the clock's origin if there is none for certain.
    at: Instant,
    index: u32,
    generation: u32,
}

impl Default for TimerHandle {
    fn default() -> Self {
        Self { at: Instant::ZERO, index: NIL, generation: 0 }
    }
}

impl<K: Copy> Default for TimerWheel<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Copy> TimerWheel<K> {
    /// An empty wheel.
    #[must_use]
    pub fn new() -> Self {
        Self {
            nodes: Vec::new(),
            free: NIL,
            len: 0,
            elapsed: Instant::ZERO,
            occupied_levels: 0,
            occupied_slots: [0; LEVELS],
            lists: alloc::vec![EMPTY_LIST; usize::from(DUE) + 1],
        }
    }

    /// Entries that are scheduled or due.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if nothing is scheduled or due.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of heap storage in use.
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node<K>>() + self.lists.capacity() * size_of::<List>()
    }

    /// Sees to it that `key` is polled at `at` or earlier. [`Instant::FAR_FUTURE`] means never and needs no
    /// entry.
    #[inline]
    pub fn schedule(&mut self, handle: &mut TimerHandle, key: K, at: Instant) {
        // An entry that is later than `elapsed` cannot have fired; so this one stands and is early enough.
        if (at >= handle.at && handle.at > self.elapsed) || at == Instant::FAR_FUTURE {
            return;
        }
        self.reschedule(handle, key, at);
    }

    /// As [`TimerWheel::schedule`]; `None` leaves whatever is scheduled to fire in vain.
    #[inline]
    pub fn arm(&mut self, handle: &mut TimerHandle, key: K, at: Option<Instant>) {
        if let Some(at) = at {
            self.schedule(handle, key, at);
        }
    }

    /// Removes the entry, if there is one. To be called before the owner goes away.
    pub fn cancel(&mut self, handle: &mut TimerHandle) {
        if self.is_live(handle) {
            self.unlink(handle.index);
            self.release(handle.index);
        }
        *handle = TimerHandle::default();
    }

    /// True if the handle has an entry that was not polled yet.
    #[must_use]
    pub fn is_scheduled(&self, handle: &TimerHandle) -> bool {
        self.is_live(handle)
    }

    /// When to call [`TimerWheel::poll_expired`] next: at or before the earliest entry.
    #[inline]
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
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
    pub fn poll_expired(&mut self, now: Instant) -> Option<K> {
        loop {
            let head = self.lists[usize::from(DUE)].head;
            if head != NIL {
                let key = self.nodes[head as usize].key;
                self.unlink(head);
                self.release(head);
                return Some(key);
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
    fn reschedule(&mut self, handle: &mut TimerHandle, key: K, at: Instant) {
        if self.is_live(handle) {
            if at >= handle.at {
                return;
            }
            self.unlink(handle.index);
            self.nodes[handle.index as usize].at = at;
        } else {
            let (index, generation) = self.allocate(key, at);
            handle.index = index;
            handle.generation = generation;
        }
        handle.at = at;
        self.link(handle.index);
    }

    fn is_live(&self, handle: &TimerHandle) -> bool {
        self.nodes
            .get(handle.index as usize)
            .is_some_and(|node| node.generation == handle.generation && node.list != FREE)
    }

    fn allocate(&mut self, key: K, at: Instant) -> (u32, u32) {
        self.len += 1;
        if let Some(node) = self.nodes.get_mut(self.free as usize) {
            let index = self.free;
            self.free = node.next;
            node.at = at;
            node.key = key;
            return (index, node.generation);
        }
        let index = self.nodes.len() as u32;
        self.nodes.push(Node { at, key, previous: NIL, next: NIL, generation: 0, list: FREE });
        (index, 0)
    }

    fn release(&mut self, index: u32) {
        let node = &mut self.nodes[index as usize];
        node.generation = node.generation.wrapping_add(1);
        node.list = FREE;
        node.next = self.free;
        self.free = index;
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
    fn an_idle_entry_takes_32_bytes() {
        assert_eq!(size_of::<Node<crate::slab::Key>>(), 32);
        assert_eq!(size_of::<TimerHandle>(), 16);
    }

    #[test]
    fn fires_at_the_exact_nanosecond() {
        let mut wheel = TimerWheel::new();
        let mut handles: [TimerHandle; 3] = Default::default();
        for (key, nanos) in [(0, 200_000_001), (1, 200_000_000), (2, 7_200_000_000_003)] {
            wheel.schedule(&mut handles[key], key, at(nanos));
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
        assert_eq!(wheel.next_deadline(), None);
        assert!(wheel.is_empty());
    }

    #[test]
    fn a_later_deadline_leaves_the_entry_and_an_earlier_one_moves_it() {
        let mut wheel = TimerWheel::new();
        let mut handle = TimerHandle::default();
        wheel.schedule(&mut handle, 'a', at(1_000));
        wheel.schedule(&mut handle, 'a', at(5_000));
        assert_eq!((wheel.next_deadline(), wheel.len()), (Some(at(1_000)), 1));
        wheel.schedule(&mut handle, 'a', at(300));
        assert_eq!((wheel.next_deadline(), wheel.len()), (Some(at(300)), 1));
        assert_eq!(wheel.poll_expired(at(2_000)), Some('a'));
        assert_eq!(wheel.poll_expired(at(2_000)), None);
        // The owner now schedules its true deadline.
        wheel.schedule(&mut handle, 'a', at(5_000));
        assert_eq!((wheel.next_deadline(), wheel.len()), (Some(at(5_000)), 1));
    }

    #[test]
    fn deadlines_in_the_past_fire_at_once_and_once() {
        let mut wheel = TimerWheel::new();
        let (mut first, mut second) = (TimerHandle::default(), TimerHandle::default());
        wheel.schedule(&mut first, 1, at(50));
        assert_eq!(wheel.poll_expired(at(100)), Some(1));
        wheel.schedule(&mut first, 1, at(20));
        wheel.schedule(&mut first, 1, at(20));
        wheel.schedule(&mut second, 2, Instant::ZERO);
        assert!(wheel.next_deadline() <= Some(at(50)));
        assert_eq!(wheel.poll_expired(at(100)), Some(1));
        assert_eq!(wheel.poll_expired(at(100)), Some(2));
        assert_eq!(wheel.poll_expired(at(100)), None);
    }

    #[test]
    fn never_and_cancel_leave_nothing_behind() {
        let mut wheel = TimerWheel::new();
        let mut handle = TimerHandle::default();
        wheel.schedule(&mut handle, 1, Instant::FAR_FUTURE);
        wheel.arm(&mut handle, 1, None);
        assert!(wheel.is_empty());
        wheel.schedule(&mut handle, 1, at(10));
        wheel.cancel(&mut handle);
        wheel.cancel(&mut handle);
        assert_eq!((wheel.next_deadline(), wheel.poll_expired(at(10))), (None, None));
        // A stale handle does not touch the node's next owner.
        let (mut stale, mut other) = (TimerHandle::default(), TimerHandle::default());
        wheel.schedule(&mut stale, 1, at(10));
        assert_eq!(wheel.poll_expired(at(10)), Some(1));
        wheel.schedule(&mut other, 2, at(20));
        wheel.cancel(&mut stale);
        assert!(wheel.is_scheduled(&other));
    }

    #[test]
    fn agrees_with_a_sorted_set() {
        const OWNERS: u64 = 200;
        for seed in 1..=20 {
            let mut random = Random(seed);
            let mut wheel = TimerWheel::new();
            let mut handles: Vec<TimerHandle> = (0..OWNERS).map(|_| TimerHandle::default()).collect();
            let mut expected: Vec<Option<Instant>> = alloc::vec![None; OWNERS as usize];
            let mut set = BTreeSet::new();
            let mut now = at(random.below(1 << 40));
            for _ in 0..20_000 {
                let owner = random.below(OWNERS) as usize;
                match random.below(10) {
                    0 => {
                        wheel.cancel(&mut handles[owner]);
                        if let Some(old) = expected[owner].take() {
                            set.remove(&(old, owner));
                        }
                    }
                    1..7 => {
                        let exponent = random.below(45);
                        let to = now + Duration::from_nanos(random.below(1 << exponent));
                        wheel.schedule(&mut handles[owner], owner, to);
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
        for key in 0..1_000_000_u64 {
            // Idle for two hours, give or take.
            wheel.schedule(&mut TimerHandle::default(), key, at(7_200_000_000_000 + key * 7_919));
        }
        // Vec growth doubles, so up to 64 bytes are allocated for an entry of 32.
        assert!(wheel.allocated_bytes() < 40_000_000);
        let mut handle = TimerHandle::default();
        let mut fired = 0;
        let mut now = Instant::ZERO;
        for _ in 0..1_000 {
            now += Duration::from_micros(120);
            wheel.schedule(&mut handle, u64::MAX, now + Duration::from_millis(10));
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
