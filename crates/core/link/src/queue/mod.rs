//! Queues: which packets wait for the transmitter, and which are dropped. One file per discipline.

mod drop_tail;
mod registry;

use alloc::boxed::Box;
use core::fmt;

use polypath_units::{BitRate, Duration, Instant};
use polypath_wire::Packet;

pub(crate) use drop_tail::DropTail;
pub use registry::{DROP_TAIL, Disciplines, Policy, QueueSettings, UnknownPolicy};

/// How much may wait for the transmitter. The packet being sent does not count, and a packet that finds
/// nothing waiting is always let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// Bytes, IP headers included.
    Bytes(u64),
    /// Packets of any length.
    Packets(u64),
    /// As many bytes as the link sends in this time at its present rate; no limit without a rate.
    Delay(Duration),
    /// No limit.
    Unlimited,
}

/// Limits of a queue, in the units that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Most bytes that wait.
    pub bytes: u64,
    /// Most packets that wait.
    pub packets: u64,
}

impl QueueLimit {
    /// This limit at a rate.
    pub fn bounds(self, rate: Option<BitRate>) -> Bounds {
        let none = Bounds { bytes: u64::MAX, packets: u64::MAX };
        match self {
            Self::Bytes(bytes) => Bounds { bytes, ..none },
            Self::Packets(packets) => Bounds { packets, ..none },
            Self::Delay(span) => Bounds { bytes: rate.map_or(u64::MAX, |rate| rate.bytes_in(span)), ..none },
            Self::Unlimited => none,
        }
    }
}

/// A packet that waits.
#[derive(Debug)]
pub struct Queued<P = Packet> {
    /// The packet.
    pub packet: P,
    /// Its length, IP header included.
    pub size_bytes: u32,
}

/// What a queue threw away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Packets.
    pub packets: u64,
    /// Bytes, IP headers included.
    pub bytes: u64,
}

impl Dropped {
    /// Counts one packet.
    pub fn add(&mut self, size_bytes: u32) {
        self.packets += 1;
        self.bytes += u64::from(size_bytes);
    }
}

/// A queueing discipline. It owns the packets that wait.
///
/// It may drop on the way in (drop-tail, RED), on the way out (CoDel), and packets other than the one at hand
/// (drop-head): whatever it drops, it reports. It may mark packets (ECN) as it likes.
///
/// It gives no more packets than it was given, and it does not keep one back while the transmitter is free: for delay there are
/// [impairments](crate::impairment), for rates the link's own. A link down that drops what waits dequeues it.
///
/// ```
/// # mod polypath { pub use {polypath_link as link, polypath_units as units, polypath_wire as wire}; }
/// use polypath::link::QueueLimit;
/// use polypath::link::queue::{DROP_TAIL, Dropped, Queued, QueueSettings};
/// use polypath::units::Instant;
/// use polypath::wire::{Endpoint, FourTuple, Packet, Segment};
///
/// let settings = QueueSettings { limit: QueueLimit::Packets(1), rate: None, seed: 1 };
/// let mut queue = DROP_TAIL.build_for(&settings);
/// let (local, remote) = (Endpoint::new([10, 0, 0, 1].into(), 5001), Endpoint::new([10, 0, 0, 2].into(), 80));
/// let mut dropped = Dropped::default();
/// for _ in 0..3 {
///     let packet = Packet::tcp(FourTuple { local, remote }, Segment::default());
///     queue.enqueue(Instant::ZERO, Queued { packet, size_bytes: 40 }, &mut dropped);
/// }
/// assert_eq!((queue.len_packets(), dropped.packets), (1, 2));
/// ```
pub trait Queue<P = Packet>: fmt::Debug + Send {
    /// A packet comes while the transmitter is busy.
    fn enqueue(&mut self, now: Instant, packet: Queued<P>, dropped: &mut Dropped);

    /// The transmitter is free: the next packet; `None` only if nothing waits any more, as all of it may have been dropped just now.
    /// `now` is when the transmitter became free.
    ///
    /// A link that is told `None` while something waits does not ask again before the next packet comes, or the limit changes.
    fn dequeue(&mut self, now: Instant, dropped: &mut Dropped) -> Option<Queued<P>>;

    /// A packet comes while nothing waits and the transmitter is free; false drops it. It does not enter the
    /// queue.
    fn pass(&mut self, now: Instant, packet: &mut P) -> bool {
        let _ = (now, packet);
        true
    }

    /// The limit, or the rate that it is a function of, is new. `None` is a link without a rate.
    fn set_limit(&mut self, limit: QueueLimit, rate: Option<BitRate>);

    /// Packets that wait.
    fn len_packets(&self) -> u64;

    /// Bytes that wait, IP headers included.
    fn len_bytes(&self) -> u64;

    /// It is our own drop-tail queue: a link then keeps the packets itself, and does not ask it again. Nobody else can say so.
    #[doc(hidden)]
    fn is_drop_tail(&self, _: sealed::Ours) -> bool {
        false
    }
}

mod sealed {
    /// A type that nobody outside can name: what takes it is called and implemented here alone.
    #[derive(Clone, Copy, Debug)]
    pub struct Ours;
}

/// A queue: the usual one is called directly, the others through the trait.
#[derive(Debug)]
pub(crate) enum AnyQueue<P> {
    DropTail(DropTail),
    Other(Guarded<P>),
}

/// A queue from anywhere, which may break its promises: it is asked so seldom that it can keep no link busy for nothing.
#[derive(Debug)]
pub(crate) struct Guarded<P> {
    queue: Box<dyn Queue<P>>,
    /// Packets that it was given, and neither gave back nor reported as dropped: it is asked for no more.
    held_packets: u64,
    /// It gave none though it should have some: it is not asked until something changes.
    is_stuck: bool,
}

impl<P> Guarded<P> {
    pub(crate) fn new(queue: Box<dyn Queue<P>>) -> Self {
        Self { queue, held_packets: 0, is_stuck: false }
    }

    /// Returns how many packets it dropped.
    pub(crate) fn enqueue(&mut self, now: Instant, packet: Queued<P>) -> u64 {
        let mut dropped = Dropped::default();
        self.queue.enqueue(now, packet, &mut dropped);
        self.held_packets = (self.held_packets + 1).saturating_sub(dropped.packets);
        self.is_stuck = false;
        dropped.packets
    }

    /// The next packet, and how many it dropped before. None is the last word until something changes.
    pub(crate) fn dequeue(&mut self, now: Instant) -> (Option<Queued<P>>, u64) {
        if self.is_empty() {
            return (None, 0);
        }
        let mut dropped = Dropped::default();
        let next = self.queue.dequeue(now, &mut dropped);
        self.is_stuck = next.is_none();
        self.held_packets = self.held_packets.saturating_sub(dropped.packets + u64::from(next.is_some()));
        (next, dropped.packets)
    }

    /// There is nothing to ask it for.
    fn is_empty(&self) -> bool {
        self.held_packets == 0 || self.is_stuck
    }

    /// Gives up what waits.
    pub(crate) fn clear(&mut self, now: Instant) {
        self.is_stuck = false;
        while self.dequeue(now).0.is_some() {}
    }
}

impl AnyQueue<Packet> {
    pub(crate) fn new(discipline: &Policy, settings: &QueueSettings) -> Self {
        let queue = discipline.build_for(settings);
        if queue.is_drop_tail(sealed::Ours) {
            return Self::DropTail(DropTail::new(settings.limit, settings.rate));
        }
        Self::Other(Guarded::new(queue))
    }
}

impl<P> AnyQueue<P> {
    pub(crate) fn set_limit(&mut self, limit: QueueLimit, rate: Option<BitRate>) {
        match self {
            Self::DropTail(queue) => queue.set_limit(limit, rate),
            Self::Other(guarded) => {
                guarded.is_stuck = false;
                guarded.queue.set_limit(limit, rate);
            }
        }
    }

    #[inline]
    pub(crate) fn pass(&mut self, now: Instant, packet: &mut P) -> bool {
        match self {
            Self::DropTail(_) => true,
            Self::Other(guarded) => {
                // When this one is sent, the queue is asked again.
                guarded.is_stuck = false;
                guarded.queue.pass(now, packet)
            }
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::DropTail(queue) => queue.len_packets() == 0,
            Self::Other(guarded) => guarded.is_empty(),
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> (u64, u64) {
        match self {
            Self::DropTail(queue) => (queue.len_packets(), queue.len_bytes()),
            Self::Other(guarded) => (guarded.queue.len_packets(), guarded.queue.len_bytes()),
        }
    }
}
