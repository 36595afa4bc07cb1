//! Two captures, of the sender and of the receiver: packets are found again by what they are.
//!
//! The captures may have packets of both directions. Of a flow and the one that goes the other way, that one came whose packets are later in
//! the capture of the receiver, by more than those of the other: that holds whatever the clocks of both show.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;

use polypath_tunnel::reordering::Arrival;
use polypath_units::Instant;

use super::capture::{Capture, Ended};
use super::flow::FlowId;
use super::flows::Flows;
use super::metrics::Metrics;
use super::outcome::{Captured, EndedFlows, FlowFigures, Outcome, Trouble, name_of};
use super::seen::{Look, Seen};
use super::sent::{Found, MOST_PACKETS, Sameness, Sent};

/// How packets are compared, and which.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Comparing {
    /// Addresses and ports change on the way.
    pub(crate) is_translated: bool,
    /// Only what was sent to this address.
    pub(crate) to: Option<IpAddr>,
    pub(crate) window: u32,
}

/// A capture that was read.
struct Read {
    capture: Capture,
    look: Look,
    ended: Ended,
}

/// How far out of order the packets of one capture are in another.
pub(crate) fn compare(sent: &Path, received: &Path, comparing: Comparing) -> Result<Outcome, Trouble> {
    let kept_bytes = [kept_bytes(sent)?, kept_bytes(received)?];
    let same = Sameness::new(kept_bytes, comparing.is_translated);
    let mut index = Sent::default();
    let mut too_many = false;
    let first = read(sent, comparing.to, |look, seen| {
        let Some(flow) = FlowId::of(&seen.packet) else {
            return look.leave_out("cut within their headers");
        };
        too_many |= !too_many && !index.push(same.hash(&seen.packet), flow, seen.at);
    })?;
    if too_many {
        return Err(Trouble::new(format!(
            "{} has more than {MOST_PACKETS} packets, or 65536 flows; expected a part of it, as editcap cuts out",
            name_of(sent)
        )));
    }
    // An address that translation changes is that of the sender's side.
    let to = comparing.to.filter(|_| !comparing.is_translated);
    let mut courses = Courses::default();
    index.begin();
    read(received, to, |_, seen| {
        if let Some(found) = found(&mut index, same, &seen).filter(|found| !found.is_copy) {
            courses.note(&found, seen.at);
        }
    })?;
    if courses.flows.is_empty() {
        return Err(Trouble::new(format!(
            "no packet of {} is in {}; expected captures of the same packets, each whole or cut at the same length \
             (behind address translation: --translated)",
            name_of(received),
            name_of(sent)
        )));
    }
    let ranks = Ranks::of(&index, &courses);
    index.begin();
    let mut arrived = Arrived::new(comparing.window);
    let second = read(received, to, |look, seen| {
        let Some(found) = found(&mut index, same, &seen) else {
            return look.leave_out("not in the capture of the sender");
        };
        match ranks.of_position(found.position) {
            Some(rank) => arrived.handle(&index, &found, rank, &seen),
            None => look.leave_out("on the way to the sender"),
        }
    })?;
    Ok(outcome([(sent, first), (received, second)], comparing.window, &ranks, arrived))
}

fn kept_bytes(path: &Path) -> Result<u32, Trouble> {
    let unreadable = |error| Trouble::unreadable(path, &error);
    let mut capture = Capture::open(path).map_err(unreadable)?;
    // What is said of interfaces stands before the first packet.
    let _ = capture.read(|_| ()).map_err(unreadable)?;
    Ok(capture.kept_bytes())
}

fn read(path: &Path, to: Option<IpAddr>, take: impl FnMut(&mut Look, Seen<'_>)) -> Result<Read, Trouble> {
    let unreadable = |error| Trouble::unreadable(path, &error);
    let mut capture = Capture::open(path).map_err(unreadable)?;
    let mut look = Look::default();
    let ended = look.each(&mut capture, to, take).map_err(unreadable)?;
    Ok(Read { capture, look, ended })
}

fn found(index: &mut Sent, same: Sameness, seen: &Seen<'_>) -> Option<Found> {
    if seen.is_outbound { None } else { index.take(same.hash(&seen.packet)) }
}

/// By flow: how many packets came, and the sum of the times that they took by both clocks.
#[derive(Debug, Default)]
struct Courses {
    flows: HashMap<u32, (u64, i128)>,
}

impl Courses {
    fn note(&mut self, found: &Found, at: Instant) {
        let (packets, nanos) = self.flows.entry(found.flow).or_default();
        *packets += 1;
        *nanos += i128::from(at.as_nanos()) - i128::from(found.sent_at.as_nanos());
    }

    /// The flow went from the sender to the receiver.
    fn is_forth(&self, index: &Sent, number: u32) -> bool {
        let mean = |number| {
            let (packets, nanos) = self.flows.get(&number)?;
            Some(nanos / i128::from(*packets))
        };
        let Some(own) = mean(number) else { return false };
        let back = index.number(index.flows()[number as usize].reversed()).filter(|back| *back != number);
        // The one that was seen first, if that does not tell.
        back.and_then(|back| Some((mean(back)?, back)))
            .is_none_or(|(other, back)| own > other || own == other && number < back)
    }
}

/// The numbers of packets in the order of sending, among all that went forth and among those of their flow.
#[derive(Debug)]
struct Ranks {
    /// By position.
    ranks: Vec<Rank>,
    /// That belong to flows of which nothing came, and that went the other way.
    strangers: u64,
    back: u64,
}

#[derive(Clone, Copy, Debug)]
struct Rank {
    of_all: u32,
    of_flow: u32,
}

const NO_RANK: u32 = u32::MAX;

impl Ranks {
    fn of(index: &Sent, courses: &Courses) -> Self {
        let flows = 0..index.flows().len() as u32;
        let is_forth: Vec<bool> = flows.map(|number| courses.is_forth(index, number)).collect();
        let mut next = vec![0; is_forth.len()];
        let (mut all, mut strangers, mut back) = (0, 0, 0);
        let ranks = index.flow_of().iter().map(|flow| {
            let number = *flow as usize;
            if !is_forth[number] {
                let count = if courses.flows.contains_key(flow) { &mut back } else { &mut strangers };
                *count += 1;
                return Rank { of_all: NO_RANK, of_flow: NO_RANK };
            }
            let rank = Rank { of_all: all, of_flow: next[number] };
            all += 1;
            next[number] += 1;
            rank
        });
        let ranks = ranks.collect();
        Self { ranks, strangers, back }
    }

    fn of_position(&self, position: u32) -> Option<Rank> {
        self.ranks.get(position as usize).copied().filter(|rank| rank.of_all != NO_RANK)
    }

    /// How many were sent before the first that came, and behind the last.
    fn outside(&self, lowest: u64, highest: u64) -> (u64, u64) {
        let all = self.ranks.iter().filter(|rank| rank.of_all != NO_RANK).count() as u64;
        (lowest, all.saturating_sub(highest + 1))
    }
}

/// What came.
struct Arrived {
    window: u32,
    total: Metrics,
    flows: Flows<u32, (FlowId, Metrics)>,
    ended: EndedFlows,
    lowest: u64,
    highest: u64,
    with_likes: u64,
}

impl Arrived {
    fn new(window: u32) -> Self {
        Self {
            window,
            total: Metrics::new(window),
            flows: Flows::new(),
            ended: EndedFlows::new(false),
            lowest: u64::MAX,
            highest: 0,
            with_likes: 0,
        }
    }

    fn handle(&mut self, index: &Sent, found: &Found, rank: Rank, seen: &Seen<'_>) {
        let payload_bytes = u32::try_from(seen.packet.transport_len).unwrap_or(u32::MAX);
        let arrival = |sequence: u32| Arrival { sequence: sequence.into(), at: seen.at, payload_bytes };
        let of_all = u64::from(rank.of_all);
        (self.lowest, self.highest) = (self.lowest.min(of_all), self.highest.max(of_all));
        self.with_likes += u64::from(found.has_likes);
        self.total.handle_arrival(arrival(rank.of_all));
        let window = self.window;
        let name = index.flows()[found.flow as usize];
        let ((_, metrics), silent) = self.flows.of(found.flow, || (name, Metrics::new(window)));
        metrics.handle_arrival(arrival(rank.of_flow));
        if let Some((_, (flow, metrics))) = silent {
            self.ended.add(figures(Some(flow), metrics));
        }
    }
}

fn figures(flow: Option<FlowId>, metrics: Metrics) -> FlowFigures {
    FlowFigures { flow, figures: metrics.finish(), retransmitted: None, undecided: None }
}

fn outcome(captures: [(&Path, Read); 2], window: u32, ranks: &Ranks, arrived: Arrived) -> Outcome {
    let Arrived { total, flows, mut ended, lowest, highest, with_likes, .. } = arrived;
    flows.into_iter().for_each(|(_, (flow, metrics))| ended.add(figures(Some(flow), metrics)));
    let (_, flows, more_flows) = ended.finish();
    let mut notes = Vec::new();
    let mut captured = captures.map(|(path, read)| {
        notes.extend(read.look.notes(&name_of(path), &read.capture));
        Captured::new(name_of(path), &read.capture, read.look.left_out, &read.ended)
    });
    let (before, behind) = ranks.outside(lowest, highest);
    let causes = [
        ("of flows of which nothing came", ranks.strangers),
        ("on the way to the sender", ranks.back),
        ("sent before the first that came", before),
        ("sent behind the last that came", behind),
    ];
    captured[0].left_out.extend(causes.into_iter().filter(|(_, count)| *count > 0));
    if with_likes > 0 {
        notes.push(format!(
            "{with_likes} packets are like others that were sent: which of them came first can't be told, and they count as in order."
        ));
    }
    Outcome {
        captures: captured.into(),
        order: "sent".into(),
        total_is_one_stream: true,
        total: figures(None, total),
        flows,
        more_flows,
        notes,
        window,
    }
}
