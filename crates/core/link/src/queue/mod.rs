//! Queues: which packets wait for the transmitter, and which are dropped. One file per discipline.

mod drop_tail;

use alloc::boxed::Box;
use core::fmt;

use polypath_units::{BitRate, Duration, Instant};
use polypath_wire::Packet;

pub(crate) use drop_tail::DropTail;

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

/// A queueing discipline other than drop-tail. It owns the packets that wait.
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
}

/// A discipline that can be chosen.
#[derive(Clone, Copy)]
pub enum Discipline {
    /// First in, first out; what finds the queue full is dropped.
    DropTail,
    /// Any other.
    Other {
        /// Its name, in lower case.
        name: &'static str,
        /// Builds one instance from the limit, the rate and a seed.
        build: fn(QueueLimit, Option<BitRate>, u64) -> Box<dyn Queue>,
    },
}

impl Discipline {
    /// Every discipline that users can choose by name.
    pub const ALL: &'static [Self] = &[Self::DropTail];

    /// The discipline of that name, or `None`.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|discipline| discipline.name().eq_ignore_ascii_case(name))
    }

    /// The name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DropTail => "drop-tail",
            Self::Other { name, .. } => name,
        }
    }

    pub(crate) fn build(self, limit: QueueLimit, rate: Option<BitRate>, seed: u64) -> AnyQueue<Packet> {
        match self {
            Self::DropTail => AnyQueue::DropTail(DropTail::new(limit, rate)),
            Self::Other { build, .. } => AnyQueue::Other(build(limit, rate, seed)),
        }
    }
}

impl fmt::Debug for Discipline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A queue: the usual one is called directly, the others through the trait.
#[derive(Debug)]
pub(crate) enum AnyQueue<P> {
    DropTail(DropTail),
    Other(Box<dyn Queue<P>>),
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
