#[cfg(test)]
mod foreign_queue_tests;
mod impaired;
mod packet_like;
mod stats;
mod transmitter;

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::net::IpAddr;

use polypath_units::{Duration, Instant};
use polypath_wire::Packet;

use crate::impairment::{Fate, Passing};
use crate::queue::{AnyQueue, DropTail, QueueLimit, QueueSettings, Queued};
use crate::{Change, LinkConfig, OnDown};
use impaired::ActingImpairments;
pub use packet_like::PacketLike;
pub use stats::LinkStats;
use transmitter::Transmitter;

/// Most messages to senders that wait to be fetched; more are dropped.
const MAX_REVERSE_PACKETS: usize = 64;

/// One direction of a line.
///
/// # Use
/// - [`handle_packet`](Self::handle_packet) puts a packet in; afterwards fetch what
///   [`poll_reverse`](Self::poll_reverse) has for its sender;
/// - [`poll_timeout`](Self::poll_timeout) says when to look again;
/// - [`poll_transmit`](Self::poll_transmit) takes out what has arrived, until it has no more. It does all
///   that is due; [`handle_timeout`](Self::handle_timeout) beforehand is allowed and changes nothing.
///
/// Time never goes backwards from call to call. A call too early does nothing.
///
/// # How it works
/// When a packet starts to be sent, its arrival is known: start + size / rate + delay. So it
/// goes into the line of arrivals right then, and there is one event per packet: its arrival. Packets that
/// find the transmitter busy wait in the queue, and are started, each at the instant that the transmitter
/// became free, whenever the link is next looked at.
///
/// What it carries is IP packets, or whatever else stands for them: see [`PacketLike`].
///
/// ```
/// # mod polypath { pub use {polypath_link as link, polypath_units as units, polypath_wire as wire}; }
/// use polypath::link::{Link, LinkConfig, QueueLimit};
/// use polypath::units::{BitRate, Duration, Instant};
/// use polypath::wire::{Endpoint, FourTuple, Packet, Segment};
///
/// let config = LinkConfig::new(BitRate::from_mbps(10), Duration::from_millis(20), QueueLimit::Packets(100));
/// let mut link = Link::new(config, 1);
/// let (local, remote) = (Endpoint::new([10, 0, 0, 1].into(), 5001), Endpoint::new([10, 0, 0, 2].into(), 80));
/// let segment = Segment { payload: vec![0; 1460].into(), ..Segment::default() };
/// link.handle_packet(Instant::ZERO, Packet::tcp(FourTuple { local, remote }, segment));
/// // 1500 bytes leave in 1.2 ms, and are under way for 20.
/// let arrives_at = link.poll_timeout().unwrap();
/// assert_eq!(arrives_at, Instant::ZERO + Duration::from_micros(21_200));
/// assert!(link.poll_transmit(arrives_at).is_some());
/// ```
#[derive(Debug)]
pub struct Link<P = Packet> {
    /// When the transmitter is free; [`Instant::FAR_FUTURE`] while it is stopped. Once all that is due is
    /// done, packets wait only if this is in the future.
    busy_until: Instant,
    /// When the next scheduled change is.
    next_change: Instant,
    delay: Duration,
    /// None of `arrivals` is later.
    last_arrival: Instant,
    mtu_bytes: u32,
    /// Nothing is random.
    plain: bool,
    /// Number of the transmission that is or was last under way.
    transmission: u32,
    transmitter: Transmitter,
    /// Arrivals of the first packets in `packets`, in order.
    arrivals: VecDeque<InFlight>,
    /// Packets under way in the order of their arrival, then, if the queue is a drop-tail queue, those that
    /// wait.
    packets: VecDeque<P>,
    /// Packets that others may overtake or that overtake others.
    stragglers: BinaryHeap<Straggler<P>>,
    queue: AnyQueue<P>,
    stats: LinkStats,
    impairments: ActingImpairments,
    /// Number of stragglers so far, which orders those of equal arrival.
    straggler_count: u64,
    /// What the stopped transmitter was sending.
    halted: Vec<Halted<P>>,
    /// What remains of that, in billionths of a bit.
    halted_work: u128,
    limit: QueueLimit,
    up: bool,
    on_down: OnDown,
    mtu_black_hole: bool,
    icmp_source: Option<IpAddr>,
    /// Latest first.
    schedule: Vec<(Instant, Change)>,
    reverse: VecDeque<P>,
}

/// What is under way, and when it arrives.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    at: Instant,
    size_bytes: u32,
    transmission: u32,
}

/// A packet in the middle of a transmission that has stopped.
#[derive(Debug)]
struct Halted<P> {
    /// How long after the end of the transmission it arrives.
    offset: Duration,
    straggles: bool,
    arrival: InFlight,
    packet: P,
}

/// A packet under way on its own, ordered so that the earliest arrival is the greatest.
#[derive(Debug)]
struct Straggler<P> {
    order: u64,
    arrival: InFlight,
    packet: P,
}

impl<P> Ord for Straggler<P> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.arrival.at, other.order).cmp(&(self.arrival.at, self.order))
    }
}

impl<P> PartialOrd for Straggler<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P> PartialEq for Straggler<P> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<P> Eq for Straggler<P> {}

impl Link {
    /// An empty link. Everything random in it follows from `seed`.
    pub fn new(config: LinkConfig, seed: u64) -> Self {
        let settings =
            QueueSettings { limit: config.queue, rate: config.rate, seed: seed ^ 0x7175_6575_6500_0000 };
        let queue = AnyQueue::new(&config.discipline, &settings);
        Self::with_queue(config, queue, seed)
    }
}

impl<P: PacketLike> Link<P> {
    /// An empty link with a drop-tail queue, whatever the configuration's discipline: the others know packets only.
    /// Everything random in it follows from `seed`.
    pub fn drop_tail(config: LinkConfig, seed: u64) -> Self {
        let queue = AnyQueue::DropTail(DropTail::new(config.queue, config.rate));
        Self::with_queue(config, queue, seed)
    }

    fn with_queue(config: LinkConfig, queue: AnyQueue<P>, seed: u64) -> Self {
        let impairments = ActingImpairments::new(&config, seed);
        let mut schedule = config.schedule;
        // Stable, and reversed twice, so that changes of the same time keep their order.
        schedule.reverse();
        schedule.sort_by_key(|(at, _)| core::cmp::Reverse(*at));
        let transmitter = Transmitter::new(config.rate);
        let runs = transmitter.runs() && !config.down;
        Self {
            busy_until: if runs { Instant::ZERO } else { Instant::FAR_FUTURE },
            next_change: schedule.last().map_or(Instant::FAR_FUTURE, |(at, _)| *at),
            delay: config.delay,
            last_arrival: Instant::ZERO,
            mtu_bytes: config.mtu_bytes.unwrap_or(u32::MAX),
            plain: impairments.none(),
            transmission: 0,
            transmitter,
            arrivals: VecDeque::new(),
            packets: VecDeque::new(),
            stragglers: BinaryHeap::new(),
            queue,
            stats: LinkStats::default(),
            impairments,
            straggler_count: 0,
            halted: Vec::new(),
            halted_work: 0,
            limit: config.queue,
            up: !config.down,
            on_down: config.on_down,
            mtu_black_hole: config.mtu_black_hole,
            icmp_source: config.icmp_source,
            schedule,
            reverse: VecDeque::new(),
        }
    }

    /// A packet comes in at the near end. An aggregate is cut into the segments that it stands for.
    #[inline]
    pub fn handle_packet(&mut self, now: Instant, packet: P) {
        if packet.is_aggregate() {
            self.handle_aggregate(now, packet);
        } else {
            self.handle_single(now, packet);
        }
    }

    #[inline(never)]
    fn handle_aggregate(&mut self, now: Instant, packet: P) {
        for segment in packet.segments() {
            self.handle_single(now, segment);
        }
    }

    #[inline]
    fn handle_single(&mut self, now: Instant, mut packet: P) {
        self.advance(now);
        let size_bytes = packet.len_bytes() as u32;
        self.stats.sent_packets += 1;
        self.stats.sent_bytes += u64::from(size_bytes);
        if size_bytes > self.mtu_bytes && packet.dont_fragment() {
            self.refuse_too_big(&packet);
        } else if self.busy_until > now {
            self.wait(now, packet, size_bytes);
        } else if self.queue.pass(now, &mut packet) {
            self.start_new(now, size_bytes, packet);
        } else {
            self.stats.queue_drops += 1;
        }
    }

    #[inline]
    fn wait(&mut self, now: Instant, packet: P, size_bytes: u32) {
        if !self.up && self.on_down == OnDown::Flush {
            self.stats.down_drops += 1;
            return;
        }
        match &mut self.queue {
            AnyQueue::DropTail(queue) => {
                if queue.admit(size_bytes) {
                    self.packets.push_back(packet);
                } else {
                    self.stats.queue_drops += 1;
                }
            }
            AnyQueue::Other(queue) => {
                self.stats.queue_drops += queue.enqueue(now, Queued { packet, size_bytes });
            }
        }
        let (packets, bytes) = self.queue.len();
        self.stats.max_queue_packets = self.stats.max_queue_packets.max(packets);
        self.stats.max_queue_bytes = self.stats.max_queue_bytes.max(bytes);
    }

    /// Occupies the transmitter with a packet and says when it arrives if nothing happens to it on the way.
    #[inline]
    fn occupy(&mut self, at: Instant, size_bytes: u32) -> InFlight {
        let time = self.transmitter.time(size_bytes);
        self.busy_until = at + time;
        self.stats.busy += time;
        self.transmission = self.transmission.wrapping_add(1);
        InFlight { at: self.busy_until + self.delay, size_bytes, transmission: self.transmission }
    }

    #[inline]
    fn expect(&mut self, arrival: InFlight) {
        self.last_arrival = self.last_arrival.max(arrival.at);
        self.arrivals.push_back(InFlight { at: self.last_arrival, ..arrival });
    }

    /// Starts to send a packet that is not in `packets`.
    #[inline]
    fn start_new(&mut self, at: Instant, size_bytes: u32, packet: P) {
        let arrival = self.occupy(at, size_bytes);
        if self.plain {
            self.expect(arrival);
            self.packets.push_back(packet);
        } else {
            self.start_impaired(arrival, packet);
        }
    }

    /// Starts to send the first packet that waits in `packets`.
    #[inline]
    fn start_waiting(&mut self, at: Instant, size_bytes: u32) {
        let arrival = self.occupy(at, size_bytes);
        if self.plain {
            self.expect(arrival);
        } else if let Some(packet) = self.packets.remove(self.arrivals.len()) {
            self.start_impaired(arrival, packet);
        }
    }

    #[inline(never)]
    fn start_impaired(&mut self, mut arrival: InFlight, packet: P) {
        let packet_sent = Passing { sent_at: self.busy_until, size_bytes: arrival.size_bytes };
        let fate = self.impairments.handle_packet(packet_sent, Fate::new(self.delay));
        if fate.is_lost() {
            self.stats.lost_packets += 1;
            return;
        }
        arrival.at = self.busy_until + fate.delay();
        self.stats.reordered_packets += u64::from(fate.is_held_back());
        for _ in 0..fate.copies() {
            self.stats.duplicated_packets += 1;
            self.fly(arrival, packet.clone(), fate.overtakes());
        }
        self.fly(arrival, packet, fate.overtakes());
    }

    fn fly(&mut self, arrival: InFlight, packet: P, straggles: bool) {
        if straggles {
            self.straggler_count += 1;
            self.stragglers.push(Straggler { order: self.straggler_count, arrival, packet });
        } else {
            self.packets.insert(self.arrivals.len(), packet);
            self.expect(arrival);
        }
    }

    /// The next packet that has arrived at the far end by now.
    #[inline]
    #[must_use]
    pub fn poll_transmit(&mut self, now: Instant) -> Option<P> {
        self.advance(now);
        if !self.stragglers.is_empty() {
            return self.poll_with_stragglers(now);
        }
        let arrival = self.arrivals.pop_front_if(|arrival| arrival.at <= now)?;
        self.count_delivery(arrival);
        self.packets.pop_front()
    }

    #[inline(never)]
    fn poll_with_stragglers(&mut self, now: Instant) -> Option<P> {
        let in_order = self.arrivals.front().map_or(Instant::FAR_FUTURE, |arrival| arrival.at);
        let straggler = self.stragglers.peek().map_or(Instant::FAR_FUTURE, |straggler| straggler.arrival.at);
        if in_order.min(straggler) > now {
            return None;
        }
        if in_order <= straggler {
            let arrival = self.arrivals.pop_front()?;
            self.count_delivery(arrival);
            return self.packets.pop_front();
        }
        let straggler = self.stragglers.pop()?;
        self.count_delivery(straggler.arrival);
        Some(straggler.packet)
    }

    #[inline]
    fn count_delivery(&mut self, arrival: InFlight) {
        self.stats.delivered_packets += 1;
        self.stats.delivered_bytes += u64::from(arrival.size_bytes);
    }

    /// The next message for senders at the near end (ICMP), at once: it does not travel over this link.
    #[inline]
    #[must_use]
    pub fn poll_reverse(&mut self) -> Option<P> {
        self.reverse.pop_front()
    }

    /// When the next packet arrives or the next change is due; `None` if nothing will happen.
    #[inline]
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let mut at = self.next_change;
        match self.arrivals.front() {
            // What waits arrives behind it.
            Some(arrival) => at = at.min(arrival.at),
            None if !self.queue.is_empty() => at = at.min(self.busy_until),
            None => {}
        }
        if let Some(straggler) = self.stragglers.peek() {
            at = at.min(straggler.arrival.at);
        }
        (at != Instant::FAR_FUTURE).then_some(at)
    }

    /// Does what is due: scheduled changes, and the start of transmissions.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
    }

    /// Changes the link now.
    pub fn apply(&mut self, now: Instant, change: Change) {
        self.advance(now);
        self.change(now, change);
    }

    /// Counters and present lengths.
    pub fn stats(&self) -> LinkStats {
        let (queue_packets, queue_bytes) = self.queue.len();
        let in_flight = self.arrivals.len() + self.stragglers.len() + self.halted.len();
        LinkStats { queue_packets, queue_bytes, in_flight_packets: in_flight as u64, ..self.stats }
    }

    /// True while the link is up.
    pub fn is_up(&self) -> bool {
        self.up
    }

    #[inline]
    fn advance(&mut self, now: Instant) {
        if self.next_change <= now {
            self.follow_schedule(now);
        }
        if self.busy_until <= now && !self.queue.is_empty() {
            self.drain(now);
        }
    }

    #[inline(never)]
    fn drain(&mut self, now: Instant) {
        while self.busy_until <= now {
            match &mut self.queue {
                AnyQueue::DropTail(queue) => {
                    let Some(size_bytes) = queue.leave() else { break };
                    self.start_waiting(self.busy_until, size_bytes);
                }
                AnyQueue::Other(queue) => {
                    let (next, dropped_packets) = queue.dequeue(self.busy_until);
                    self.stats.queue_drops += dropped_packets;
                    let Some(next) = next else { break };
                    self.start_new(self.busy_until, next.size_bytes, next.packet);
                }
            }
        }
    }

    #[cold]
    fn follow_schedule(&mut self, now: Instant) {
        while let Some((at, change)) = self.schedule.pop_if(|(at, _)| *at <= now) {
            self.drain(at);
            self.change(at, change);
        }
        self.next_change = self.schedule.last().map_or(Instant::FAR_FUTURE, |(at, _)| *at);
    }

    /// Changes the link at an instant by which all that was due before is done.
    #[cold]
    fn change(&mut self, at: Instant, change: Change) {
        match change {
            Change::Rate(rate) => {
                self.halt(at);
                self.transmitter = Transmitter::new(rate);
                self.queue.set_limit(self.limit, rate);
                self.resume(at);
            }
            Change::Delay(delay) => self.delay = delay,
            Change::Jitter(jitter) => self.impairments.set_jitter(jitter),
            Change::Loss(loss) => self.impairments.set_loss(loss),
            Change::Duplicate(probability) => self.impairments.set_duplication(probability),
            Change::Reorder(reordering) => self.impairments.set_reordering(reordering),
            Change::Begin(model) => self.impairments.begin(&model),
            Change::End(model) => self.impairments.end(&model),
            Change::Queue(limit) => {
                self.limit = limit;
                self.queue.set_limit(limit, self.transmitter.rate());
            }
            Change::Mtu(mtu) => self.mtu_bytes = mtu.unwrap_or(u32::MAX),
            Change::RestartRandom => self.impairments.restart_random(),
            Change::Up => {
                self.up = true;
                self.resume(at);
            }
            Change::Down => {
                self.up = false;
                self.halt(at);
                if self.on_down == OnDown::Flush {
                    self.flush(at);
                }
            }
        }
        self.plain = self.impairments.none();
    }

    /// Stops the transmitter in the middle of what it is sending.
    fn halt(&mut self, at: Instant) {
        if self.busy_until == Instant::FAR_FUTURE {
            return;
        }
        if self.busy_until > at {
            let rest = self.busy_until - at;
            self.halted_work = self.transmitter.work_in(rest);
            self.stats.busy -= rest;
            let (end, transmission) = (self.busy_until, self.transmission);
            while let Some(arrival) =
                self.arrivals.pop_back_if(|arrival| arrival.transmission == transmission)
            {
                if let Some(packet) = self.packets.remove(self.arrivals.len()) {
                    self.halted.push(Halted { offset: arrival.at - end, straggles: false, arrival, packet });
                }
            }
            self.last_arrival = self.arrivals.back().map_or(at, |arrival| arrival.at);
            if self.stragglers.iter().any(|straggler| straggler.arrival.transmission == transmission) {
                for straggler in core::mem::take(&mut self.stragglers) {
                    if straggler.arrival.transmission == transmission {
                        let Straggler { arrival, packet, .. } = straggler;
                        self.halted.push(Halted {
                            offset: arrival.at - end,
                            straggles: true,
                            arrival,
                            packet,
                        });
                    } else {
                        self.stragglers.push(straggler);
                    }
                }
            }
        }
        self.busy_until = Instant::FAR_FUTURE;
    }

    /// Starts the transmitter again, if nothing else keeps it from running.
    fn resume(&mut self, at: Instant) {
        if !self.up || !self.transmitter.runs() || self.busy_until != Instant::FAR_FUTURE {
            return;
        }
        let rest = self.transmitter.time_for_work(core::mem::take(&mut self.halted_work));
        self.busy_until = at + rest;
        self.stats.busy += rest;
        for Halted { offset, straggles, arrival, packet } in
            core::mem::take(&mut self.halted).into_iter().rev()
        {
            self.fly(InFlight { at: self.busy_until + offset, ..arrival }, packet, straggles);
        }
        self.drain(at);
    }

    /// Drops all that waits or is under way, except what has arrived by `at`.
    fn flush(&mut self, at: Instant) {
        let before = self.stats().inside_packets();
        match &mut self.queue {
            AnyQueue::DropTail(queue) => queue.clear(),
            AnyQueue::Other(queue) => queue.clear(at),
        }
        self.arrivals.retain(|arrival| arrival.at <= at);
        self.packets.truncate(self.arrivals.len());
        self.stragglers.retain(|straggler| straggler.arrival.at <= at);
        self.halted.clear();
        self.halted_work = 0;
        self.last_arrival = at;
        // What a queue says of its length is its own affair.
        self.stats.down_drops += before.saturating_sub(self.stats().inside_packets());
    }

    #[cold]
    fn refuse_too_big(&mut self, packet: &P) {
        self.stats.too_big_drops += 1;
        if self.mtu_black_hole || self.reverse.len() >= MAX_REVERSE_PACKETS {
            return;
        }
        self.reverse.extend(packet.too_big(self.mtu_bytes, self.icmp_source));
    }
}

#[cfg(test)]
mod tests;
