//! Queues: which packets wait for the transmitter, and which are dropped. One file per discipline.

mod drop_tail;
mod registry;

use alloc::boxed::Box;
use core::fmt;

use polypath_units::{BitRate, Duration, Instant};
use polypath_wire::Packet;

pub(crate) use drop_tail::DropTail;
pub use registry::{DROP_TAIL, Discipline, Disciplines, QueueSettings, UnknownDiscipline};

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
pub trait Queue<P = Packet>: fmt::Debug + Send {
    /// A packet comes while the transmitter is busy.
    fn enqueue(&mut self, now: Instant, packet: Queued<P>, dropped: &mut Dropped);

    /// The transmitter is free: the next packet. `now` is when it became free.
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

    /// It does what our [`DROP_TAIL`] does, no less and no more: a link then keeps the packets itself, and does not ask it again.
    fn is_drop_tail(&self) -> bool {
        false
    }
}

/// A queue: the usual one is called directly, the others through the trait.
#[derive(Debug)]
pub(crate) enum AnyQueue<P> {
    DropTail(DropTail),
    Other(Box<dyn Queue<P>>),
}

impl AnyQueue<Packet> {
    pub(crate) fn new(discipline: Discipline, settings: &QueueSettings) -> Self {
        let queue = discipline.build_for(settings);
        if queue.is_drop_tail() {
            return Self::DropTail(DropTail::new(settings.limit, settings.rate));
        }
        Self::Other(queue)
    }
}

impl<P> AnyQueue<P> {
    pub(crate) fn set_limit(&mut self, limit: QueueLimit, rate: Option<BitRate>) {
        match self {
            Self::DropTail(queue) => queue.set_limit(limit, rate),
            Self::Other(queue) => queue.set_limit(limit, rate),
        }
    }

    #[inline]
    pub(crate) fn pass(&mut self, now: Instant, packet: &mut P) -> bool {
        match self {
            Self::DropTail(_) => true,
            Self::Other(queue) => queue.pass(now, packet),
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::DropTail(queue) => queue.len_packets() == 0,
            Self::Other(queue) => queue.len_packets() == 0,
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> (u64, u64) {
        match self {
            Self::DropTail(queue) => (queue.len_packets(), queue.len_bytes()),
            Self::Other(queue) => (queue.len_packets(), queue.len_bytes()),
        }
    }
}
