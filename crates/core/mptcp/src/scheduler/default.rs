use arrayvec::ArrayVec;
use polypath_units::{Duration, Instant};
use polypath_wire::DataSeq;

use super::arrival::{arrives_in, deliverable_bytes, new_arrives_in, stands_in_queue, steady_bytes};
use super::copy_budget::CopyBudget;
use super::fits_one::carries_all;
use super::lowest_rtt::lowest_rtt;
use super::lowest_rtt_bm::window_limit_bytes;
use super::{Data, Decision, Scheduler, SubflowView, View};
use crate::identifiers::SubflowId;
use crate::mapping::MOST_MAPPED_BYTES;

/// No slower than the best path alone.
///
/// The fastest subflow with room sends, and a slower one only where that lets everything arrive earlier:
/// - what would reach the peer no later through faster subflows, with all that is written until then, waits for them (as ECF
///   does, but knowing that a window doubles each round in slow start, and at what pace the application writes);
/// - what would block the peer's window for faster subflows waits for them (as BLEST does);
/// - a slower subflow, or a much thinner one, fills its path, but not the path's queue (as bufferbloat mitigation does, Paasch
///   4.3.2);
/// - where the peer's window is short, the fastest does not fill its queue either while another's path lacks data.
///
/// Where nothing new may leave, a subflow with room sends a copy of what a slower, or silent, one holds: what keeps the window
/// closed (opportunistic retransmission, Paasch 4.2.1), and the end of what was written, within a budget.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DefaultScheduler {
    /// Up to here was looked for something to copy at the end; what was not worth it then may be later.
    looked_until: Option<DataSeq>,
    /// What the last decision was, if a copy.
    copying: Option<Copying>,
    budget: CopyBudget,
    /// Since when data waits to leave though the application has written all it has.
    waiting: Option<Waiting>,
}

/// Why something that another subflow holds goes out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copying {
    /// It is lost, as it seems, or keeps the window closed.
    Repair,
    /// It is on its way, and arrives earlier: see [`CopyBudget`].
    Haste,
}

/// A queue for which a subflow is held back: shorter ones harm nobody, and are what pacing and offloads make anyway.
const HARMFUL_QUEUE: Duration = Duration::from_millis(20);
/// λ of bufferbloat mitigation, as evaluated by its authors.
const LAMBDA: f64 = 3.0;
/// A subflow that carries so many times as much may fill its queue, not the other.
const BROADER: f64 = 4.0;
const PORTIONS_PER_S: u64 = 20;
/// What a copy of data that is not lost must save: estimates of two equal paths differ by less, and copying over both what
/// either brings takes a share of all.
const WORTHWHILE: Duration = Duration::from_millis(1);
/// Subflows that are passed over in one decision.
const MOST_PASSED: usize = 8;
/// Pieces of sent data looked at for one decision.
const SCAN_LIMIT: usize = 64;

impl Scheduler for DefaultScheduler {
    fn name(&self) -> &'static str {
        "default"
    }

    fn select(&mut self, view: &View<'_>) -> Option<Decision> {
        let is_any_sound = view.subflows.iter().any(is_sound);
        let is_any_proven = view.subflows.iter().any(is_proven);
        let is_tried = |subflow: &SubflowView| {
            !is_any_proven || is_proven(subflow) || subflow.pending_bytes() < untried_bytes(subflow)
        };
        let may_send = |subflow: &SubflowView| {
            subflow.is_available() && (is_sound(subflow) || !is_any_sound) && is_tried(subflow)
        };
        let mut passed: ArrayVec<SubflowId, MOST_PASSED> = ArrayVec::new();
        self.copying = None;
        let pace = self.pace(view);
        if pace.is_of_a_writer
            && let Some(subflow) = carries_all(view, may_send)
        {
            return Some(Decision::send(subflow, Data::New));
        }
        loop {
            let decision = lowest_rtt(view, |subflow| may_send(subflow) && !passed.contains(&subflow.id));
            let Some(decision) = decision else { break };
            let chosen = view.subflow(decision.subflow)?;
            if decision.data == Data::Reinjection {
                return Some(decision);
            }
            // Of more than can be remembered one sends: none may wait for a subflow that was not asked.
            if waits(view, chosen, &passed, pace) && passed.try_push(chosen.id).is_ok() {
                continue;
            }
            if view.subflows.len() < 2 {
                return Some(decision);
            }
            let lacks_data = |subflow: &SubflowView| {
                may_send(subflow)
                    && !passed.contains(&subflow.id)
                    && !is_busy(subflow)
                    && !waits(view, subflow, &passed, pace)
            };
            let other = if leaves_window(view, chosen) { lowest_rtt(view, lacks_data) } else { None };
            let decision = other.unwrap_or(decision);
            let limit_bytes = portion_bytes(view, view.subflow(decision.subflow)?, &passed);
            return Some(Decision { limit_bytes, ..decision });
        }
        if !passed.is_empty() {
            return None;
        }
        let (decision, copying) = self.copy(view, may_send)?;
        self.copying = Some(copying);
        Some(decision)
    }

    fn on_sent(&mut self, _subflow: SubflowId, seq: DataSeq, len_bytes: u64) {
        match self.copying {
            None => return self.budget.on_sent(len_bytes),
            Some(Copying::Haste) => self.budget.on_copied(len_bytes),
            Some(Copying::Repair) => {}
        }
        self.looked_until = Some(seq.add(len_bytes));
    }

    fn copies(&self) -> bool {
        true
    }

    fn knows_slow_paths(&self) -> bool {
        true
    }
}

impl DefaultScheduler {
    /// At what pace the application has written since data began to wait.
    fn pace(&mut self, view: &View<'_>) -> Pace {
        let written = view.data_next.add(view.unsent_bytes);
        if view.unsent_bytes == 0 || view.more_to_come {
            self.waiting = None;
            return Pace::default();
        }
        let waiting = *self.waiting.get_or_insert_with(|| Waiting {
            since: view.now,
            written,
            fitted_one: view.subflows.iter().any(|subflow| subflow.room_bytes >= view.unsent_bytes),
        });
        Pace {
            bytes: written.diff(waiting.written).max(0) as u64,
            time: view.now.since(waiting.since),
            is_of_a_writer: waiting.fitted_one,
        }
    }

    /// Something that another subflow holds, and this one brings earlier.
    fn copy(
        &mut self,
        view: &View<'_>,
        may_send: impl Fn(&SubflowView) -> bool,
    ) -> Option<(Decision, Copying)> {
        if view.new_bytes > 0 || view.more_to_come && !view.window_limited {
            return None;
        }
        let mut seq = view.data_una;
        if let Some(until) = self.looked_until.filter(|until| until.after(seq) && !view.window_limited) {
            seq = until;
        }
        let mut is_from_start = seq == view.data_una;
        for _ in 0..SCAN_LIMIT {
            let Some(held) = view.held_at(seq) else {
                if is_from_start {
                    return None;
                }
                is_from_start = true;
                seq = view.data_una;
                continue;
            };
            // A backup has it, or a subflow that is gone, if none of these.
            if let Some(holder) = view.subflow(held.subflow)
                && !(held.again && is_on_its_way(holder))
            {
                let remaining = arrives_in(holder, held.end_offset);
                let worth = if is_on_its_way(holder) { WORTHWHILE } else { Duration::ZERO };
                let is_earlier = |subflow: &SubflowView| {
                    holder.id != subflow.id
                        && may_send(subflow)
                        && remaining > new_arrives_in(subflow) + worth
                };
                let copier = view.subflows.iter().filter(|subflow| is_earlier(subflow));
                if let Some(subflow) = copier.min_by_key(|subflow| new_arrives_in(subflow)) {
                    // In whole segments, even if what they hold went out in pieces.
                    let limit_bytes = held.len_bytes().max(subflow.segment_bytes.into());
                    let is_hasty =
                        is_on_its_way(holder) && !holder.bottleneck_has_fallen && !view.window_limited;
                    if !is_hasty || self.budget.allows(limit_bytes) {
                        let copying = if is_hasty { Copying::Haste } else { Copying::Repair };
                        let decision = Decision::send(subflow.id, Data::Copy(held.seq));
                        return Some((Decision { limit_bytes, ..decision }, copying));
                    }
                }
            }
            if view.window_limited {
                return None;
            }
            seq = held.end;
            self.looked_until = Some(seq);
        }
        None
    }
}

/// Data that waits to leave.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    since: Instant,
    /// Up to where the application had written when it began.
    written: DataSeq,
    /// A subflow had room for all of it then: so writes a program at its own pace. A transfer writes more than that, and has its end
    /// go over all.
    fitted_one: bool,
}

/// How much an application that is not held back has written in the time in which data waited.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    bytes: u64,
    time: Duration,
    is_of_a_writer: bool,
}

impl Pace {
    /// What it writes within `time` if it goes on like this. A pace of a shorter time foretells nothing.
    fn within(self, time: Duration) -> u64 {
        if self.time <= time {
            return 0;
        }
        (self.bytes as f64 * time.as_secs_f64() / self.time.as_secs_f64()) as u64
    }
}

/// The peer answers.
fn is_sound(subflow: &SubflowView) -> bool {
    subflow.timeouts == 0 && !subflow.is_probing
}

/// Nothing says that what it holds is lost.
fn is_on_its_way(subflow: &SubflowView) -> bool {
    is_sound(subflow) && !subflow.in_recovery
}

/// It has delivered something, or its rate is known from before: more than its handshake tells.
fn is_proven(subflow: &SubflowView) -> bool {
    subflow.acked_offset > 0 || subflow.bottleneck_bytes_per_s.is_some()
}

/// New data had better not go to `chosen`: all would arrive later. `passed` are the subflows that wait themselves.
fn waits(view: &View<'_>, chosen: &SubflowView, passed: &[SubflowId], pace: Pace) -> bool {
    let arrives_in = new_arrives_in(chosen);
    // Once a path's bottleneck is known, its round-trip time no longer says when something arrives.
    let is_earlier = |subflow: &SubflowView| {
        chosen.bottleneck_bytes_per_s.is_some()
            && subflow.id != chosen.id
            && !subflow.srtt.is_zero()
            && new_arrives_in(subflow) < arrives_in
    };
    let earlier = || moving(view, passed).filter(|subflow| is_faster(subflow, chosen) || is_earlier(subflow));
    // What the others can bring to the peer until this one has; a round trip until it is acknowledged.
    let by_then: u64 = earlier().map(|subflow| expected_bytes(view, subflow, arrives_in)).sum();
    if !view.more_to_come
        && by_then >= view.unsent_bytes + pace.within(arrives_in)
        && earlier().next().is_some()
    {
        return true;
    }
    let fills_queue = chosen.srtt > chosen.min_rtt + HARMFUL_QUEUE
        && chosen.pending_bytes() > 0
        && chosen.pending_bytes() >= queue_limit_bytes(chosen);
    fills_queue && moving(view, passed).any(|subflow| is_better(subflow, chosen))
        || blocks(view, chosen, passed, chosen.segment_bytes.into())
}

/// Those that will bring something: who has nothing in flight must have room, or its peer's window is closed, and must not wait in
/// turn: nothing would end it.
fn moving<'a>(view: &View<'a>, passed: &[SubflowId]) -> impl Iterator<Item = &'a SubflowView> {
    let may_begin = |subflow: &SubflowView| subflow.is_available() && !passed.contains(&subflow.id);
    view.subflows
        .iter()
        .filter(|subflow| is_sound(subflow))
        .filter(move |subflow| subflow.in_flight_bytes > 0 || may_begin(subflow))
}

/// So much may be under way where more would only stand in the queue: a multiple of what the path holds without one, as its rate
/// tells, or its window, which may have been larger than the path from the start.
fn queue_limit_bytes(subflow: &SubflowView) -> u64 {
    let by_window = window_limit_bytes(subflow, LAMBDA);
    let by_rate = subflow.bottleneck_bytes_per_s.map_or(u64::MAX, |rate| {
        let held_bytes = rate as f64 * subflow.min_rtt.as_secs_f64();
        ((LAMBDA * held_bytes) as u64).max(untried_bytes(subflow))
    });
    by_window.min(by_rate)
}

fn is_faster(subflow: &SubflowView, chosen: &SubflowView) -> bool {
    subflow.srtt < chosen.srtt && !chosen.srtt.is_zero()
}

fn is_better(subflow: &SubflowView, chosen: &SubflowView) -> bool {
    is_faster(subflow, chosen) || is_broader(subflow, chosen)
}

/// `chosen` carries little beside this subflow: what waits in its queue holds up more than it brings, however short that queue
/// has become since it was last filled.
fn is_broader(subflow: &SubflowView, chosen: &SubflowView) -> bool {
    let rate = |subflow: &SubflowView| subflow.window_bytes as f64 / subflow.srtt.as_secs_f64();
    !subflow.srtt.is_zero() && rate(subflow) > BROADER * rate(chosen)
}

/// Until so many bytes are acknowledged that `chosen` is given now, better subflows bring more than the peer's window holds.
fn blocks(view: &View<'_>, chosen: &SubflowView, passed: &[SubflowId], bytes: u64) -> bool {
    // A DATA_ACK comes back over any subflow (RFC 8684 §3.3.2), and over these something comes all the time.
    let back = |subflow: &SubflowView| subflow.min_rtt / 2;
    let better = || moving(view, passed).filter(|subflow| is_better(subflow, chosen));
    let back_in = better().map(back).fold(back(chosen), Duration::min);
    // As the windows are: the peer's grows with them.
    let acknowledged_in = match chosen.bottleneck_bytes_per_s {
        Some(rate) => {
            let further_bytes = bytes.saturating_sub(chosen.segment_bytes.into());
            let further = Duration::from_secs_f64(further_bytes as f64 / rate.max(1) as f64);
            new_arrives_in(chosen) + further + back_in
        }
        None => chosen.srtt / 2 + back_in,
    };
    let by_ack: u64 = better().map(|subflow| steady_bytes(subflow, acknowledged_in)).sum();
    by_ack > 0 && by_ack + bytes > view.window_left_bytes
}

/// The peer's window, not its own, keeps `chosen` from sending more, and its bottleneck is busy without: another makes more of
/// what is left of the window.
fn leaves_window(view: &View<'_>, chosen: &SubflowView) -> bool {
    let is_scarce = view.window_left_bytes <= view.unsent_bytes.min(chosen.room_bytes);
    is_scarce && is_busy(chosen)
}

/// Its bottleneck has enough to carry.
fn is_busy(subflow: &SubflowView) -> bool {
    stands_in_queue(subflow, untried_bytes(subflow))
}

/// How much goes to a subflow in one decision: what its bottleneck carries in a moment, as what it already holds decides
/// about more, and what does not block the peer's window.
fn portion_bytes(view: &View<'_>, chosen: &SubflowView, passed: &[SubflowId]) -> u64 {
    let least = u64::from(chosen.segment_bytes);
    let Some(rate) = chosen.bottleneck_bytes_per_s else { return u64::MAX };
    let mut portion = (rate / PORTIONS_PER_S).max(untried_bytes(chosen)).min(MOST_MAPPED_BYTES);
    while portion > least && blocks(view, chosen, passed, portion) {
        portion /= 2;
    }
    portion.max(least)
}

/// What a subflow that has delivered nothing yet gets beside one that has: its handshake tells of its delay, not of its rate.
fn untried_bytes(subflow: &SubflowView) -> u64 {
    4 * u64::from(subflow.segment_bytes)
}

/// What is known to come: of a subflow that has delivered nothing yet, beside one that has, no more than what it is tried with.
fn expected_bytes(view: &View<'_>, subflow: &SubflowView, time: Duration) -> u64 {
    let deliverable = deliverable_bytes(subflow, time);
    if !is_proven(subflow) && view.subflows.iter().any(is_proven) {
        deliverable.min(untried_bytes(subflow).saturating_sub(subflow.pending_bytes()))
    } else {
        deliverable
    }
}

#[cfg(test)]
mod tests;
