//! The thread that emulates: takes frames in, lets links decide, gives them out on time.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use polypath_link::middlebox::{Chain, Direction, Outputs};
use polypath_link::{Change, Link};
use polypath_system::WallClock;
use polypath_units::{Duration, Instant};
use polypath_wire::Packet;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::emulated_link::{DirectionStatistics, EmulatedLink, LinkStatistics};
use super::error::EmulateError;
use super::frame::{Frame, answering};
use super::port::Port;

/// A sleep ends late by at least so much, so the last stretch before a deadline is not slept.
const SPIN: Duration = Duration::from_micros(20);
/// What is due sooner waits for this: at high rates, a wake-up then serves several frames and the rest of the processor's
/// time is for others, without which the kernel takes its share all at once.
const SHORTEST_SLEEP: Duration = Duration::from_micros(40);
/// Longest sleep, after which interfaces that were full are tried again.
const RETRY: Duration = Duration::from_micros(50);
/// An interface that is down is looked at as often: it may be gone for good.
const LOOK_AFTER: Duration = Duration::from_millis(20);
/// What counts as late.
const LATE: Duration = Duration::from_micros(200);

/// Least of the priorities that come before all ordinary programs.
const REAL_TIME_PRIORITY: u32 = 1;
/// Where that is not granted: the most that an ordinary program can have, and the shortest time slice.
const NICE: i32 = -20;
const TIME_SLICE: Duration = Duration::from_micros(100);

/// What the thread is asked.
#[derive(Debug)]
pub(super) enum Request {
    Change(usize, Direction, Change),
    Statistics(Sender<Vec<LinkStatistics>>),
    Stop,
}

/// One direction of a line.
#[derive(Debug)]
struct Way {
    link: Link<Frame>,
    /// The latest that the link was told.
    time: Instant,
    max_lateness: Duration,
    late_batches: u64,
    /// Ethernet header of the last frame from one station to the other: for packets that a middlebox makes.
    header: Vec<u8>,
}

/// An emulated link.
#[derive(Debug)]
pub(super) struct Line {
    /// Where frames of a direction come in: the first for forward ones.
    ports: [Port; 2],
    ways: [Way; 2],
    boxes: Chain,
    outputs: Outputs,
    /// One of its interfaces is gone for good: nothing goes over it any more.
    pub(super) is_over: bool,
}

fn index(direction: Direction) -> usize {
    match direction {
        Direction::Forward => 0,
        Direction::Backward => 1,
    }
}

const DIRECTIONS: [Direction; 2] = [Direction::Forward, Direction::Backward];

impl Line {
    /// Opens the interfaces of a link, in the calling thread's namespace.
    pub(super) fn open(link: EmulatedLink) -> Result<Self, EmulateError> {
        let way = |config, seed| Way {
            link: Link::drop_tail(config, seed),
            time: Instant::ZERO,
            max_lateness: Duration::ZERO,
            late_batches: 0,
            header: Vec::new(),
        };
        let seed = link.seed;
        Ok(Self {
            ports: [Port::open(&link.a)?, Port::open(&link.b)?],
            ways: [way(link.forward, seed), way(link.backward, seed.rotate_left(32) ^ 1)],
            boxes: (1..)
                .zip(link.middleboxes)
                .map(|(number, kind)| kind.build_for(&(seed ^ number << 32)))
                .collect(),
            outputs: Outputs::new(),
            is_over: false,
        })
    }

    /// Takes in what has come for one direction. True if there may be more.
    fn receive(&mut self, direction: Direction, clock: WallClock) -> bool {
        let now = clock.now();
        let Self { ports, ways, boxes, outputs, .. } = self;
        let port = &mut ports[index(direction)];
        let received = port.receive(|age, frame| {
            let at = Instant::from_nanos(now.as_nanos().saturating_sub(Duration::from(age).as_nanos()));
            if boxes.is_empty() {
                ways[index(direction)].take(at, frame);
            } else {
                through_boxes(ways, boxes, outputs, at, direction, frame);
            }
        });
        // Going down is told once, and going away, which begins so, is not told again.
        let more = received.unwrap_or_else(|_| {
            port.is_down = true;
            false
        });
        for direction in DIRECTIONS {
            while let Some(message) = self.ways[index(direction)].link.poll_reverse() {
                self.ports[index(direction)].push(message);
            }
        }
        more
    }

    /// Finds out what has become of interfaces that went down. The one that is gone, if there is one, ends the line.
    fn look_after_ports(&mut self) -> Option<&str> {
        for port in self.ports.iter_mut().filter(|port| port.is_down) {
            port.is_down = !port.is_up();
        }
        let is_gone = |port: &&Port| port.is_down && port.is_gone();
        let gone = self.ports.iter().find(is_gone)?;
        self.is_over = true;
        Some(&gone.name)
    }

    /// Gives out what is due.
    fn transmit(&mut self, now: Instant) {
        if self.boxes.poll_timeout().is_some_and(|at| at <= now) {
            self.boxes.handle_timeout(now, &mut self.outputs);
            settle(&mut self.ways, &mut self.outputs, now, None);
        }
        let [a, b] = &mut self.ports;
        let [forward, backward] = &mut self.ways;
        for (way, port) in [(forward, b), (backward, a)] {
            way.transmit(now, port);
            port.flush();
        }
    }

    fn next_event_at(&self) -> Option<Instant> {
        let [forward, backward] = &self.ways;
        let events = [forward.link.poll_timeout(), backward.link.poll_timeout(), self.boxes.poll_timeout()];
        events.into_iter().flatten().min()
    }

    fn statistics(&mut self) -> LinkStatistics {
        let [a, b] = &mut self.ports;
        let [forward, backward] = &self.ways;
        let (forward, backward) = (forward.statistics(), backward.statistics());
        LinkStatistics { forward, backward, a: a.statistics(), b: b.statistics() }
    }
}

impl Way {
    fn take(&mut self, at: Instant, frame: Frame) {
        // The kernel's time stamps may be older than what the link was told since.
        self.time = self.time.max(at);
        self.link.handle_packet(self.time, frame);
    }

    fn transmit(&mut self, now: Instant, port: &mut Port) {
        self.time = self.time.max(now);
        let before = self.link.poll_timeout();
        let mut is_first = true;
        while let Some(frame) = self.link.poll_transmit(self.time) {
            if is_first && let Some(due) = before {
                let lateness = self.time - due;
                self.max_lateness = self.max_lateness.max(lateness);
                self.late_batches += u64::from(lateness > LATE);
            }
            is_first = false;
            port.push(frame);
        }
    }

    fn statistics(&self) -> DirectionStatistics {
        DirectionStatistics {
            link: self.link.stats(),
            max_lateness: self.max_lateness,
            late_batches: self.late_batches,
        }
    }
}

/// Takes a frame through the middleboxes, if they know what is in it, and to the links.
fn through_boxes(
    ways: &mut [Way; 2],
    boxes: &mut Chain,
    outputs: &mut Outputs,
    at: Instant,
    direction: Direction,
    frame: Frame,
) {
    let Some(packet) = frame.packet() else {
        ways[index(direction)].take(at, frame);
        return;
    };
    if frame.is_unicast() {
        let ends = [direction, direction.reversed()].map(index);
        frame.header().clone_into(&mut ways[ends[0]].header);
        if ways[ends[1]].header.is_empty() {
            ways[ends[1]].header = answering(frame.header());
        }
    }
    boxes.handle_packet(at, direction, packet.clone(), outputs);
    settle(ways, outputs, at, Some((direction, &packet, frame)));
}

/// Hands what middleboxes let out to the links. What they left as it was stays in its frame.
fn settle(
    ways: &mut [Way; 2],
    outputs: &mut Outputs,
    at: Instant,
    mut unchanged: Option<(Direction, &Packet, Frame)>,
) {
    while let Some((direction, packet)) = outputs.pop() {
        let way = &mut ways[index(direction)];
        let original = unchanged.take_if(|(came, original, _)| *came == direction && **original == packet);
        let frame = match original {
            Some((_, _, frame)) => Some(frame),
            None => Frame::with_packet(&way.header, &packet),
        };
        if let Some(frame) = frame {
            way.take(at, frame);
        }
    }
}

/// The thread's state.
pub(super) struct Worker {
    lines: Vec<Line>,
    inbox: Receiver<Request>,
    wake: Arc<OwnedFd>,
    clock: WallClock,
}

impl Worker {
    pub(super) fn new(lines: Vec<Line>, inbox: Receiver<Request>, wake: Arc<OwnedFd>) -> Self {
        Self { lines, inbox, wake, clock: WallClock::starting_at(Instant::ZERO) }
    }

    /// Emulates until it is asked to stop.
    pub(super) fn run(&mut self) -> Result<(), EmulateError> {
        // Without it the kernel ends sleeps up to 50 µs late, to bundle them.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        // What comes late because another program had the processor is late all the same.
        come_first();
        let mut ready = vec![true; 2 * self.lines.len()];
        loop {
            if self.handle_requests() {
                return Ok(());
            }
            let mut is_busy = false;
            let mut gone = None;
            for (number, line) in self.lines.iter_mut().enumerate().filter(|(_, line)| !line.is_over) {
                for direction in DIRECTIONS {
                    if ready.get(2 * number + index(direction)).is_some_and(|is_ready| *is_ready) {
                        is_busy |= line.receive(direction, self.clock);
                    }
                }
                if let Some(name) = line.look_after_ports() {
                    tracing::warn!("{name}: the interface is gone, and with it its link");
                    gone = Some(name.to_string());
                }
            }
            if let Some(name) = gone.filter(|_| self.running().next().is_none()) {
                return Err(EmulateError::Gone { name });
            }
            let now = self.clock.now();
            self.lines.iter_mut().filter(|line| !line.is_over).for_each(|line| line.transmit(now));
            self.wait(is_busy, &mut ready)?;
        }
    }

    /// The lines over which something goes, with their numbers.
    fn running(&self) -> impl Iterator<Item = (usize, &Line)> {
        self.lines.iter().enumerate().filter(|(_, line)| !line.is_over)
    }

    /// True if it is to stop.
    fn handle_requests(&mut self) -> bool {
        while let Ok(request) = self.inbox.try_recv() {
            match request {
                Request::Change(number, direction, change) => {
                    if let Some(line) = self.lines.get_mut(number) {
                        let way = &mut line.ways[index(direction)];
                        way.time = way.time.max(self.clock.now());
                        way.link.apply(way.time, change);
                    }
                }
                Request::Statistics(answer) => {
                    // Who asked may have gone away.
                    let _ = answer.send(self.lines.iter_mut().map(Line::statistics).collect());
                }
                Request::Stop => return true,
            }
        }
        false
    }

    /// Waits for a frame, a request, or until just before something is due, and says at which interfaces there is something.
    fn wait(&self, is_busy: bool, ready: &mut [bool]) -> io::Result<()> {
        let ports = || self.running().flat_map(|(_, line)| &line.ports);
        let next =
            self.running().filter_map(|(_, line)| line.next_event_at()).min().unwrap_or(Instant::FAR_FUTURE);
        let is_full = ports().any(Port::is_full);
        let left = next - self.clock.now();
        let sleep = match (is_busy, is_full) {
            (true, _) => Duration::ZERO,
            _ if left.is_zero() => Duration::ZERO,
            (_, true) => RETRY.min(left),
            _ => left.saturating_sub(SPIN).max(SHORTEST_SLEEP),
        };
        let is_any_down = ports().any(|port| port.is_down);
        let sleep = if is_any_down { sleep.min(LOOK_AFTER) } else { sleep };
        let timeout = Timespec {
            tv_sec: (sleep.as_nanos() / 1_000_000_000).min(3600) as i64,
            tv_nsec: (sleep.as_nanos() % 1_000_000_000) as _,
        };
        let mut polled: Vec<PollFd<'_>> = Vec::with_capacity(ready.len() + 1);
        for port in ports() {
            polled.push(PollFd::from_borrowed_fd(port.as_fd(), PollFlags::IN));
        }
        polled.push(PollFd::new(&self.wake, PollFlags::IN));
        match poll(&mut polled, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let numbers = self.running().flat_map(|(number, _)| [2 * number, 2 * number + 1]);
        for (number, polled) in numbers.zip(&polled) {
            if let Some(ready) = ready.get_mut(number) {
                *ready = !polled.revents().is_empty();
            }
        }
        if polled.last().is_some_and(|wake| !wake.revents().is_empty()) {
            // Its number says nothing.
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        }
        Ok(())
    }
}

/// Asks the scheduler to run the calling thread as soon as it wakes, whatever else there is to do; the kernel leaves the
/// others at least a twentieth of the time. Without the right to ask, things stay as they are.
fn come_first() {
    /// `struct sched_attr` (linux/sched/types.h), first version.
    #[repr(C)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    let ordinary = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: 0,
        nice: NICE,
        priority: 0,
        runtime: TIME_SLICE.as_nanos(),
        deadline: 0,
        period: 0,
    };
    let real_time = Attributes {
        policy: libc::SCHED_FIFO as u32,
        nice: 0,
        priority: REAL_TIME_PRIORITY,
        runtime: 0,
        ..ordinary
    };
    for attributes in [real_time, ordinary] {
        // SAFETY: the kernel reads as many bytes of the attributes as their first field says, which is their size.
        #[allow(unsafe_code)]
        let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, std::ptr::from_ref(&attributes), 0) };
        if result == 0 {
            return;
        }
    }
}
