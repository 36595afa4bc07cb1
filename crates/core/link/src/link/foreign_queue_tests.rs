//! Queues of somebody else, good and bad.

use alloc::boxed::Box;

use polypath_units::BitRate;

use super::tests::{line, ms, run, send, span};
use super::*;
use crate::queue::{self, DROP_TAIL, Dropped, Queue};

/// Drops on the way out and refuses idle passage, as CoDel and RED may.
#[derive(Debug)]
struct EverySecond {
    waiting: VecDeque<Queued>,
    count: u32,
}

impl Queue for EverySecond {
    fn enqueue(&mut self, _now: Instant, packet: Queued, _dropped: &mut Dropped) {
        self.waiting.push_back(packet);
    }
    fn dequeue(&mut self, _now: Instant, dropped: &mut Dropped) -> Option<Queued> {
        dropped.add(self.waiting.pop_front()?.size_bytes);
        self.waiting.pop_front()
    }
    fn pass(&mut self, _now: Instant, _packet: &mut Packet) -> bool {
        self.count += 1;
        self.count > 1
    }
    fn set_limit(&mut self, _limit: QueueLimit, _rate: Option<BitRate>) {}
    fn len_packets(&self) -> u64 {
        self.waiting.len() as u64
    }
    fn len_bytes(&self) -> u64 {
        self.waiting.iter().map(|queued| u64::from(queued.size_bytes)).sum()
    }
}

#[test]
fn other_disciplines_fit_behind_the_trait() {
    let discipline =
        queue::Policy::new("every-second", |_| Box::new(EverySecond { waiting: VecDeque::new(), count: 0 }));
    let mut link = Link::new(LinkConfig { discipline, ..line(10) }, 1);
    send(&mut link, ms(0), 0..7);
    // 0 finds the link idle and is refused, 1 is sent; of 2 to 6 every second one goes.
    assert_eq!(run(&mut link, ms(100)), [(ms(11), 1), (ms(12), 3), (ms(13), 5)]);
    assert_eq!(link.stats().queue_drops, 4);
    assert_eq!(queue::Policy::by_name("Drop-Tail").unwrap().name(), "drop-tail");
    assert!(queue::Policy::by_name("every-second").is_none());
}

/// Our drop-tail queue behind the trait, as the queue of somebody who wraps it.
#[derive(Debug)]
struct Wrapped(Box<dyn Queue>);

impl Queue for Wrapped {
    fn enqueue(&mut self, now: Instant, packet: Queued, dropped: &mut Dropped) {
        self.0.enqueue(now, packet, dropped);
    }
    fn dequeue(&mut self, now: Instant, dropped: &mut Dropped) -> Option<Queued> {
        self.0.dequeue(now, dropped)
    }
    fn set_limit(&mut self, limit: QueueLimit, rate: Option<BitRate>) {
        self.0.set_limit(limit, rate);
    }
    fn len_packets(&self) -> u64 {
        self.0.len_packets()
    }
    fn len_bytes(&self) -> u64 {
        self.0.len_bytes()
    }
}

#[test]
fn a_drop_tail_queue_behind_the_trait_is_the_same() {
    let wrapped = queue::Policy::new("wrapped", |settings| Box::new(Wrapped(DROP_TAIL.build_for(settings))));
    let course = |discipline| {
        let mut link = Link::new(LinkConfig { discipline, queue: QueueLimit::Delay(span(4)), ..line(10) }, 1);
        send(&mut link, ms(0), 0..20);
        link.apply(ms(2), Change::Rate(Some(BitRate::from_mbps(24))));
        send(&mut link, ms(2), 20..40);
        (run(&mut link, ms(100)), link.stats())
    };
    assert_eq!(course(wrapped), course(DROP_TAIL));
}

/// Breaks its promises: see [`Fault`].
#[derive(Debug)]
struct Bad {
    fault: Fault,
    waiting: VecDeque<Queued>,
    asked: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Gives nothing, though something waits.
    KeepsAll,
    /// Gives something only every other time.
    KeepsAtTimes,
    /// Gives a copy, for ever.
    GivesMore,
    /// Says that more waits than it has.
    Boasts,
    /// Says that nothing waits.
    Hides,
    /// Drops in silence.
    Swallows,
}

impl Queue for Bad {
    fn enqueue(&mut self, _: Instant, packet: Queued, _: &mut Dropped) {
        if self.fault != Fault::Swallows {
            self.waiting.push_back(packet);
        }
    }
    fn dequeue(&mut self, _: Instant, _: &mut Dropped) -> Option<Queued> {
        self.asked += 1;
        assert!(self.asked < 1000, "it is asked for ever");
        match self.fault {
            Fault::KeepsAll => None,
            Fault::KeepsAtTimes if self.asked.is_multiple_of(2) => None,
            Fault::GivesMore => {
                let Queued { packet, size_bytes } = self.waiting.front()?;
                Some(Queued { packet: packet.clone(), size_bytes: *size_bytes })
            }
            _ => self.waiting.pop_front(),
        }
    }
    fn set_limit(&mut self, _: QueueLimit, _: Option<BitRate>) {}
    fn len_packets(&self) -> u64 {
        match self.fault {
            Fault::Boasts => self.waiting.len() as u64 + 10 * self.asked,
            Fault::Hides => 0,
            _ => self.waiting.len() as u64,
        }
    }
    fn len_bytes(&self) -> u64 {
        1500 * self.len_packets()
    }
}

fn bad(fault: Fault) -> Box<dyn Queue> {
    Box::new(Bad { fault, waiting: VecDeque::new(), asked: 0 })
}

/// As a driver does: to each deadline, until nothing is due by `end`. A deadline that stays where it is would keep it busy for ever.
fn drive(link: &mut Link, end: Instant) -> usize {
    let mut arrived = 0;
    for _ in 0..1000 {
        let Some(at) = link.poll_timeout().filter(|at| *at <= end) else { return arrived };
        link.handle_timeout(at);
        while link.poll_transmit(at).is_some() {
            arrived += 1;
        }
        assert!(link.poll_timeout().is_none_or(|next| next > at), "no progress at {at}");
    }
    panic!("the link always wants to be looked at");
}

#[test]
fn a_queue_that_breaks_its_promises_keeps_no_driver_busy() {
    let disciplines = [
        (Fault::KeepsAll, queue::Policy::new("bad", |_| bad(Fault::KeepsAll))),
        (Fault::KeepsAtTimes, queue::Policy::new("bad", |_| bad(Fault::KeepsAtTimes))),
        (Fault::GivesMore, queue::Policy::new("bad", |_| bad(Fault::GivesMore))),
        (Fault::Boasts, queue::Policy::new("bad", |_| bad(Fault::Boasts))),
        (Fault::Hides, queue::Policy::new("bad", |_| bad(Fault::Hides))),
        (Fault::Swallows, queue::Policy::new("bad", |_| bad(Fault::Swallows))),
    ];
    for rate in [Some(BitRate::from_mbps(12)), None] {
        for (fault, discipline) in disciplines.clone() {
            let mut link = Link::new(LinkConfig { discipline, rate, ..line(10) }, 1);
            let mut arrived = 0;
            for round in 0..4 {
                send(&mut link, ms(100 * round), 0..5);
                arrived += drive(&mut link, ms(100 * round + 90));
            }
            link.apply(ms(400), Change::Queue(QueueLimit::Packets(3)));
            link.apply(ms(401), Change::Rate(Some(BitRate::from_mbps(24))));
            arrived += drive(&mut link, ms(500));
            send(&mut link, ms(500), 0..5);
            link.apply(ms(501), Change::Down);
            link.apply(ms(600), Change::Up);
            arrived += drive(&mut link, Instant::FAR_FUTURE);
            // Whoever finds the link idle needs no queue.
            assert!((4..=25).contains(&arrived), "{fault:?}: {arrived}");
        }
    }
}
