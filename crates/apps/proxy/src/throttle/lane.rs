//! One limit, with the flows that it is of.

use std::collections::BTreeSet;

use polypath_units::{BitRate, Duration, Instant};

use super::bucket::Bucket;
use super::limit::{Limit, Moment};
use super::turns::{FlowId, Turns};

/// What is given at once: octets of this time, but a packet at least, and no more than a socket takes in one call.
const AT_ONCE: Duration = Duration::from_millis(10);
const AT_ONCE_LEAST: u64 = 1500;
const AT_ONCE_MOST: u64 = 1 << 16;
/// What may have been saved, where nothing else is said.
const SAVED: Duration = Duration::from_millis(50);
/// The longest that a flow waits before it asks again, since hours begin and end meanwhile.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// What a limit says of a flow that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Nothing: now it does not hold.
    Free,
    /// As many octets, at most.
    Octets(u64),
    /// None before this time.
    Wait(Instant),
}

/// A period of a budget, by its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Period(Instant);

#[derive(Debug)]
pub(super) struct Lane {
    limit: Limit,
    bucket: Bucket,
    turns: Turns,
    flows: BTreeSet<FlowId>,
    /// Octets of the period that runs, and when it ends: without an end, none are used.
    used: u64,
    ends: Option<Instant>,
    /// When it began.
    begun: Instant,
    /// Datagrams that were dropped while they waited here.
    dropped: u64,
}

impl Lane {
    pub(super) fn new(now: Instant, limit: Limit) -> Self {
        let rate = limit.rate.unwrap_or_default();
        let bucket = Bucket::new(now, rate, burst(&limit, rate));
        Self {
            limit,
            bucket,
            turns: Turns::default(),
            flows: BTreeSet::new(),
            used: 0,
            ends: None,
            begun: now,
            dropped: 0,
        }
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(super) fn drops(&mut self) {
        self.dropped += 1;
    }

    /// When the period ends that runs.
    pub(super) fn ends(&self) -> Option<Instant> {
        self.ends
    }

    /// Octets that were used already, in a period that ends then, or when one from now on would.
    pub(super) fn set_used(&mut self, now: Instant, octets: u64, ends: Instant) {
        if let Some(budget) = self.limit.budget {
            self.used = octets;
            self.ends = Some(ends.min(now + budget.period));
            self.begun = now;
        }
    }

    pub(super) fn flows(&self) -> usize {
        self.flows.len()
    }

    pub(super) fn waiting(&self) -> usize {
        self.turns.waiting()
    }

    /// The limit is another one now. What was used of the budget stays used, as long as there is one.
    pub(super) fn set_limit(&mut self, now: Instant, limit: Limit) {
        self.ends = self.ends.zip(limit.budget).map(|(ends, budget)| ends.min(now + budget.period));
        if self.ends.is_none() {
            self.used = 0;
        }
        self.limit = limit;
    }

    /// Whether it is of this flow from now on.
    pub(super) fn set_member(&mut self, flow: FlowId, is_member: bool) {
        if is_member {
            self.flows.insert(flow);
        } else if self.flows.remove(&flow) {
            self.turns.remove(flow);
        }
    }

    pub(super) fn ask(&mut self, moment: Moment, flow: FlowId, wanted: u64) -> Answer {
        let now = moment.now;
        if self.limit.hours.is_some_and(|hours| !hours.contains(moment.minute)) {
            self.turns.leave_queue(flow);
            return Answer::Free;
        }
        // Without an end, what is used up would be so for ever.
        if self.ends.is_none_or(|ends| ends <= now) {
            self.used = 0;
            self.ends = None;
        }
        let left = self.limit.budget.map(|budget| budget.octets.saturating_sub(self.used));
        let rate = match (left, self.limit.budget) {
            (Some(0), Some(budget)) => Some(budget.then),
            _ => self.limit.rate,
        };
        let most = left.filter(|left| *left != 0).unwrap_or(u64::MAX).min(wanted);
        let Some(rate) = rate else {
            self.turns.leave_queue(flow);
            return if left.is_some() { Answer::Octets(most) } else { Answer::Free };
        };
        self.bucket.set_rate(now, rate, burst(&self.limit, rate));
        let octets = most.min(at_once(rate));
        // More than that is waited for in steps.
        let enough = rate.bytes_in(LONGEST_WAIT).saturating_add(burst(&self.limit, rate));
        let before = self.turns.octets_before(now, flow, octets, enough);
        let ready = self.bucket.ready_at(now, before.saturating_add(octets));
        if ready <= now {
            return Answer::Octets(octets);
        }
        Answer::Wait(self.ends.map_or(ready, |ends| ready.min(ends)))
    }

    /// The flow waits here, and asks again at this time.
    pub(super) fn wait(&mut self, flow: FlowId, wanted: u64, until: Instant) {
        self.turns.wait(flow, wanted.min(at_once(self.bucket.rate())), until);
    }

    /// The flow waits elsewhere.
    pub(super) fn leave_queue(&mut self, flow: FlowId) {
        self.turns.leave_queue(flow);
    }

    /// The flow gets this many octets. Says of which period they used the budget, if there is one.
    pub(super) fn take(&mut self, now: Instant, flow: FlowId, octets: u64) -> Option<Period> {
        self.bucket.take(now, octets);
        self.turns.take(flow, octets);
        let budget = self.limit.budget?;
        self.used = self.used.saturating_add(octets);
        if self.ends.is_none() {
            self.ends = Some(now + budget.period);
            self.begun = now;
        }
        Some(Period(self.begun))
    }

    /// The flow got this many too many, which used the budget of that period, or none. Another one has none of them.
    pub(super) fn give_back(&mut self, flow: FlowId, octets: u64, used: Option<Period>) {
        self.bucket.give_back(octets);
        self.turns.give_back(flow, octets);
        if used == Some(Period(self.begun)) {
            self.used = self.used.saturating_sub(octets);
        }
    }
}

fn at_once(rate: BitRate) -> u64 {
    rate.bytes_in(AT_ONCE).clamp(AT_ONCE_LEAST, AT_ONCE_MOST)
}

/// What may be saved: enough for what is given at once, and nothing where nothing comes.
fn burst(limit: &Limit, rate: BitRate) -> u64 {
    if rate == BitRate::ZERO {
        return 0;
    }
    limit.burst.unwrap_or_else(|| rate.bytes_in(SAVED)).max(at_once(rate))
}
