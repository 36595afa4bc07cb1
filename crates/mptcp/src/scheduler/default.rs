use arrayvec::ArrayVec;
use polypath_units::{Duration, Instant};
use polypath_wire::DataSeq;

use super::arrival::{arrives_in, deliverable_bytes, new_arrives_in, stands_in_queue, steady_bytes};
use super::lowest_rtt::lowest_rtt;
use super::lowest_rtt_bm::window_limit_bytes;
use super::{Data, Decision, Scheduler, SubflowView, View};
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
/// closed (opportunistic retransmission, Paasch 4.2.1), and the end of what was written.
#[derive(Clone, Copy, Debug, core::default::Default)]
pub(super) struct Default {
    /// Copies of the end have gone out up to here.
    copied_until: Option<DataSeq>,
    /// The last decision was a copy.
    is_copying: bool,
    /// Since when data waits to leave though the application has written all it has, and up to where it had.
    waits_since: Option<(Instant, DataSeq)>,
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

impl Scheduler for Default {
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
        let mut passed: ArrayVec<u8, MOST_PASSED> = ArrayVec::new();
        self.is_copying = false;
        let pace = self.pace(view);
        loop {
            let decision = lowest_rtt(view, |subflow| may_send(subflow) && !passed.contains(&subflow.id));
            let Some(decision) = decision else { break };
            let chosen = view.subflows.get(decision.subflow)?;
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
            let limit_bytes = portion_bytes(view, view.subflows.get(decision.subflow)?, &passed);
            return Some(Decision { limit_bytes, ..decision });
        }
        if !passed.is_empty() {
            return None;
        }
        self.is_copying = true;
        self.copy(view, may_send)
    }

    fn on_sent(&mut self, _subflow: u8, seq: DataSeq, len_bytes: u64) {
        if self.is_copying {
            self.copied_until = Some(seq.add(len_bytes));
        }
    }

    fn copies(&self) -> bool {
        true
    }
}

impl Default {
    /// At what pace the application has written since data began to wait.
    fn pace(&mut self, view: &View<'_>) -> Pace {
        let written = view.data_next.add(view.unsent_bytes);
        if view.unsent_bytes == 0 || view.more_to_come {
            self.waits_since = None;
            return Pace::default();
        }
        let (since, before) = *self.waits_since.get_or_insert((view.now, written));
        Pace { bytes: written.diff(before).max(0) as u64, time: view.now.since(since) }
    }

    /// Something that another subflow holds, and this one brings earlier.
    fn copy(&self, view: &View<'_>, may_send: impl Fn(&SubflowView) -> bool) -> Option<Decision> {
        if view.new_bytes > 0 || view.more_to_come && !view.window_limited {
            return None;
        }
        let mut seq = view.data_una;
        if let Some(until) = self.copied_until.filter(|until| until.after(seq) && !view.window_limited) {
            seq = until;
        }
        for _ in 0..SCAN_LIMIT {
            let held = view.held_at(seq)?;
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
                let copier = view.subflows.iter().enumerate().filter(|(_, subflow)| is_earlier(subflow));
                if let Some((index, subflow)) = copier.min_by_key(|(_, subflow)| new_arrives_in(subflow)) {
                    // In whole segments, even if what they hold went out in pieces.
                    let limit_bytes = held.len_bytes().max(subflow.segment_bytes.into());
                    return Some(Decision { limit_bytes, ..Decision::send(index, Data::Copy(held.seq)) });
                }
            }
            if view.window_limited {
                return None;
            }
            seq = held.end;
        }
        None
    }
}

/// How much an application that is not held back has written in the time in which data waited.
#[derive(Clone, Copy, Debug, core::default::Default)]
struct Pace {
    bytes: u64,
    time: Duration,
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
fn waits(view: &View<'_>, chosen: &SubflowView, passed: &[u8], pace: Pace) -> bool {
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
        && chosen.pending_bytes() >= window_limit_bytes(chosen, LAMBDA);
    fills_queue && moving(view, passed).any(|subflow| is_better(subflow, chosen))
        || blocks(view, chosen, passed, chosen.segment_bytes.into())
}

/// Those that will bring something: who has nothing in flight must have room, or its peer's window is closed, and must not wait in
/// turn: nothing would end it.
fn moving<'a>(view: &View<'a>, passed: &[u8]) -> impl Iterator<Item = &'a SubflowView> {
    let may_begin = |subflow: &SubflowView| subflow.is_available() && !passed.contains(&subflow.id);
    view.subflows
        .iter()
        .filter(|subflow| is_sound(subflow))
        .filter(move |subflow| subflow.in_flight_bytes > 0 || may_begin(subflow))
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
fn blocks(view: &View<'_>, chosen: &SubflowView, passed: &[u8], bytes: u64) -> bool {
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
fn portion_bytes(view: &View<'_>, chosen: &SubflowView, passed: &[u8]) -> u64 {
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
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::super::tests::{sent, subflow, view};
    use super::*;

    /// The fast subflow has no room; the slow one has.
    fn full_and_slow(slow_ms: u64) -> [SubflowView; 2] {
        let mut subflows = [subflow(1, 20, 0), subflow(2, slow_ms, 5)];
        subflows[0].in_flight_bytes = subflows[0].window_bytes;
        subflows[0].ssthresh_bytes = subflows[0].window_bytes;
        subflows
    }

    #[test]
    fn what_the_fast_subflow_brings_earlier_waits_for_it() {
        let subflows = full_and_slow(100);
        // Until the slow one's arrives in 50 ms: (1 + 40/20 − 1) · 14 600 new bytes.
        let pick = |left_bytes, more_to_come| {
            let view = View { unsent_bytes: left_bytes, more_to_come, ..view(&subflows) };
            Default::default().select(&view)
        };
        assert_eq!(pick(29_200, false), None);
        assert_eq!(pick(29_201, false), Some(Decision::send(1, Data::New)));
        assert_eq!(pick(29_200, true), Some(Decision::send(1, Data::New)));
    }

    /// It would wait longer and longer, until the slow one is needed after all.
    #[test]
    fn what_the_application_goes_on_to_write_waits_as_well() {
        let subflows = full_and_slow(100);
        let mut scheduler = Default::default();
        let mut pick = |ms, unsent_bytes| {
            let now = Instant::ZERO + Duration::from_millis(ms);
            let view = View { now, unsent_bytes, window_left_bytes: 1 << 20, ..view(&subflows) };
            scheduler.select(&view).map(|decision| decision.subflow)
        };
        // The fast one brings 29 200 in the 50 ms until the slow one's arrives; 1 000 more each 10 ms are 5 000 in that time.
        assert_eq!(pick(0, 18_000), None);
        assert_eq!(pick(50, 23_000), None, "not for longer than the time that is foreseen");
        assert_eq!(pick(60, 24_000), None);
        assert_eq!(pick(70, 25_000), Some(1));
        // From the start again once nothing waits.
        assert_eq!(pick(80, 0), None);
        assert_eq!(pick(90, 29_200), None);
    }

    #[test]
    fn what_would_block_the_window_waits() {
        let subflows = full_and_slow(120);
        // It arrives in 60 ms, and is acknowledged over the fast one 10 ms later: (1 + 60/20 − 1) · 14 600, and the segment.
        let pick = |left_bytes| {
            let view = View { window_left_bytes: left_bytes, more_to_come: true, ..view(&subflows) };
            Default::default().select(&view)
        };
        assert_eq!(pick(43_800 + 1459), None);
        assert_eq!(pick(43_800 + 1460), Some(Decision::send(1, Data::New)));
    }

    #[test]
    fn no_more_goes_to_a_slow_subflow_at_once_than_the_window_has_room_for_until_it_has_arrived() {
        let mut subflows = full_and_slow(100);
        subflows[1].bottleneck_bytes_per_s = Some(1_000_000);
        // n bytes are acknowledged in 60 + n/1000 ms; in that time the fast one brings (50 + n/1000)/20 · 14 600 bytes.
        let pick = |left_bytes| {
            let view = View { window_left_bytes: left_bytes, more_to_come: true, ..view(&subflows) };
            Default::default().select(&view).map(|decision| decision.limit_bytes)
        };
        // Room for 20 000: a quarter of what its bottleneck carries in a moment.
        assert_eq!(pick(36_500 + 34_600), Some(12_500));
        assert_eq!(pick(36_500 + 2_703), Some(1_562));
        assert_eq!(pick(36_500 + 2_525), Some(1_460));
        assert_eq!(pick(36_500 + 2_524), None);
        assert_eq!(pick(1 << 20), Some(50_000));
    }

    #[test]
    fn what_is_left_of_the_window_goes_to_a_path_that_lacks_data() {
        let mut subflows = [subflow(1, 100, 4), subflow(2, 150, 10)];
        subflows[0].min_rtt = Duration::from_millis(20);
        subflows[0].window_bytes = 200_000;
        subflows[0].bottleneck_bytes_per_s = Some(1_000_000);
        let mut pick = |in_flight_bytes, left_bytes| {
            subflows[0].in_flight_bytes = in_flight_bytes;
            let view = View { window_left_bytes: left_bytes, more_to_come: true, ..view(&subflows) };
            Default::default().select(&view).map(|decision| decision.subflow)
        };
        // Until the slow one's is acknowledged, after 75 + 10 ms, the fast one brings 75 000 bytes.
        assert_eq!(pick(75_000, 5_840), Some(1));
        assert_eq!(pick(70_620, 5_840), Some(1));
        assert_eq!(pick(70_619, 5_840), Some(0), "4 381 and a segment block the window");
        assert_eq!(pick(75_000, 5_841), Some(0), "the fast one's own window is shorter than the peer's");
        subflows[1].srtt = Duration::from_millis(10);
        subflows[1].min_rtt = Duration::from_millis(10);
        subflows[1].bottleneck_bytes_per_s = Some(1_000_000);
        subflows[0].in_flight_bytes = 0;
        let mut pick = |in_flight_bytes| {
            subflows[1].in_flight_bytes = in_flight_bytes;
            let view = View { window_left_bytes: 5_840, more_to_come: true, ..view(&subflows) };
            Default::default().select(&view).map(|decision| decision.subflow)
        };
        assert_eq!(pick(15_839), Some(1), "four segments of queue harm nobody");
        assert_eq!(pick(15_840), Some(0));
    }

    /// Its round trip is short because nothing stands in its queue; a portion of it would stand there for long.
    #[test]
    fn a_thin_path_blocks_a_broad_one_whose_round_trip_is_longer() {
        let mut subflows = [subflow(1, 20, 5), subflow(2, 30, 0)];
        subflows[0].bottleneck_bytes_per_s = Some(100_000);
        subflows[1].acked_offset = 1;
        let mut pick = |broad_window_bytes, left_bytes| {
            subflows[1].window_bytes = broad_window_bytes;
            subflows[1].ssthresh_bytes = 0;
            subflows[1].in_flight_bytes = broad_window_bytes;
            let view = View { window_left_bytes: left_bytes, more_to_come: true, ..view(&subflows) };
            Default::default().select(&view).map(|decision| decision.subflow)
        };
        // Acknowledged in 10 + 14.6 + 10 ms, the broad one brings 19.6/30 of its window; 87 600 in 30 ms is four times as much.
        assert_eq!(pick(90_000, 58_800 + 1_459), None);
        assert_eq!(pick(90_000, 58_800 + 1_460), Some(0));
        assert_eq!(pick(87_600, 1_460), Some(0));
    }

    #[test]
    fn a_slow_subflow_does_not_fill_its_queue_but_the_fastest_may() {
        let mut subflows = full_and_slow(300);
        subflows[1].min_rtt = Duration::from_millis(50);
        // 3 · 50/300 · 14 600 = 7 300.
        let pick = |subflows: &[SubflowView]| {
            let view = View { more_to_come: true, window_left_bytes: 1 << 20, ..view(subflows) };
            Default::default().select(&view).map(|decision| decision.subflow)
        };
        subflows[1].in_flight_bytes = 7_299;
        assert_eq!(pick(&subflows), Some(1));
        subflows[1].in_flight_bytes = 7_300;
        assert_eq!(pick(&subflows), None);
        assert_eq!(pick(&subflows[1..]), Some(0));
    }

    /// Each would fill its queue while that of the other drains, in turns.
    #[test]
    fn a_thin_subflow_does_not_fill_its_queue_though_its_round_trip_is_shorter() {
        let mut subflows = [subflow(1, 300, 10), subflow(2, 400, 0)];
        subflows[0].min_rtt = Duration::from_millis(50);
        subflows[0].in_flight_bytes = 7_300;
        let mut pick = |broad_window_bytes| {
            subflows[1].window_bytes = broad_window_bytes;
            subflows[1].in_flight_bytes = broad_window_bytes;
            let view = View { more_to_come: true, window_left_bytes: 1 << 20, ..view(&subflows) };
            Default::default().select(&view).map(|decision| decision.subflow)
        };
        // 4 · 14 600 in 300 ms are 77 867 in 400 ms.
        assert_eq!(pick(77_866), Some(0));
        assert_eq!(pick(77_868), None);
    }

    #[test]
    fn the_end_is_copied_from_the_slow_subflow_once() {
        let mut subflows = [subflow(1, 20, 5), subflow(2, 100, 5)];
        subflows[0].in_flight_bytes = 1460;
        subflows[1].in_flight_bytes = 2920;
        let chunks = sent(&[(0, 1460, 2), (1460, 1460, 1), (2920, 1460, 2)]);
        let mut end = View { new_bytes: 0, unsent_bytes: 0, sent: &chunks, ..view(&subflows) };
        end.data_next = DataSeq(4380);
        let mut scheduler = Default::default();
        // The first arrives within its half round trip: 100 · (1/2 − 1/2) ms. The last takes 50 ms, a copy 10 ms.
        let copy = Decision { limit_bytes: 1460, ..Decision::send(0, Data::Copy(DataSeq(2920))) };
        assert_eq!(scheduler.select(&end), Some(copy));
        scheduler.on_sent(1, DataSeq(2920), 1460);
        assert_eq!(scheduler.select(&end), None);
        assert_eq!(Default::default().select(&View { more_to_come: true, ..end }), None);
        assert_eq!(Default::default().select(&View { subflows: &subflows[1..], ..end }), None);
    }

    #[test]
    fn a_thin_path_is_no_faster_for_its_round_trip() {
        let mut subflows = [subflow(1, 20, 5), subflow(2, 100, 10)];
        subflows[1].acked_offset = 1;
        let pick = |subflows: &[SubflowView], more_to_come| {
            let view = View { unsent_bytes: 14_600, new_bytes: 14_600, more_to_come, ..view(subflows) };
            Default::default().select(&view).map(|decision| decision.subflow)
        };
        assert_eq!(pick(&subflows, false), Some(0));
        // A segment arrives after 10 + 58 ms, over the other path after 50 ms.
        subflows[0].bottleneck_bytes_per_s = Some(25_000);
        assert_eq!(pick(&subflows, false), Some(1));
        assert_eq!(pick(&subflows, true), Some(0), "there is enough for both");
        // After 10 + 20 ms.
        subflows[0].bottleneck_bytes_per_s = Some(73_000);
        assert_eq!(pick(&subflows, false), Some(0));
    }

    #[test]
    fn what_stands_in_the_queue_of_a_thin_path_is_copied_though_its_round_trip_is_shorter() {
        let mut subflows = [subflow(1, 20, 0), subflow(2, 100, 5)];
        subflows[0].in_flight_bytes = 5840;
        let chunks = sent(&[(0, 2920, 1), (2920, 2920, 1)]);
        let pick = |subflows: &[SubflowView]| {
            let end = View { new_bytes: 0, unsent_bytes: 0, sent: &chunks, ..view(subflows) };
            Default::default().select(&View { data_next: DataSeq(5840), ..end }).map(|copy| copy.data)
        };
        assert_eq!(pick(&subflows), None);
        // The first half arrives after 49 − 10 ms, the second after 97 − 10, its copy after 50.
        subflows[0].bottleneck_bytes_per_s = Some(60_000);
        assert_eq!(pick(&subflows), Some(Data::Copy(DataSeq(2920))));
    }

    #[test]
    fn what_is_on_its_way_is_not_copied_for_less_than_a_millisecond() {
        let mut subflows = [subflow(1, 20, 0), subflow(2, 19, 5)];
        subflows[0].in_flight_bytes = 2920;
        let chunks = sent(&[(0, 136, 1), (136, 2784, 1)]);
        let pick = |subflows: &[SubflowView]| {
            let closed = View { new_bytes: 0, window_limited: true, sent: &chunks, ..view(subflows) };
            Default::default().select(&View { data_next: DataSeq(2920), ..closed })
        };
        // 136 of 2920 arrive at once; after a loss, one round trip later: then by whole segments.
        assert_eq!(pick(&subflows), None);
        subflows[0].in_recovery = true;
        let copy = Decision { limit_bytes: 1460, ..Decision::send(1, Data::Copy(DataSeq(0))) };
        assert_eq!(pick(&subflows), Some(copy));
        // All of it in 10 ms, a copy in 9.5; then in 8.5.
        subflows[0].in_recovery = false;
        subflows[0].acked_offset = 0;
        subflows[0].in_flight_bytes = 136;
        assert_eq!(pick(&subflows), None);
        subflows[1].srtt = Duration::from_millis(17);
        assert_eq!(pick(&subflows).map(|copy| copy.data), Some(Data::Copy(DataSeq(0))));
    }

    /// Or both ends of a pair would bring the same in turn, each behind what it has sent since.
    #[test]
    fn a_copy_that_is_on_its_way_is_not_copied() {
        let mut subflows = [subflow(1, 100, 5), subflow(2, 20, 5)];
        subflows[0].in_flight_bytes = 1460;
        subflows[1].in_flight_bytes = 1460;
        let pick = |subflows: &[SubflowView], again| {
            let mut chunks = sent(&[(0, 1460, 2), (1460, 1460, 1)]);
            chunks.iter_mut().for_each(|chunk| chunk.again = again);
            let end = View { new_bytes: 0, unsent_bytes: 0, sent: &chunks, ..view(subflows) };
            Default::default().select(&View { data_next: DataSeq(2920), ..end }).map(|copy| copy.data)
        };
        assert_eq!(pick(&subflows, false), Some(Data::Copy(DataSeq(1460))));
        assert_eq!(pick(&subflows, true), None);
        subflows[0].in_recovery = true;
        assert_eq!(pick(&subflows, true), Some(Data::Copy(DataSeq(1460))));
    }

    #[test]
    fn a_subflow_that_nothing_will_give_room_is_not_waited_for() {
        let mut subflows = full_and_slow(100);
        let pick = |subflows: &[SubflowView]| {
            let little = View { unsent_bytes: 5000, window_left_bytes: 5000, ..view(subflows) };
            Default::default().select(&little)
        };
        assert_eq!(pick(&subflows), None);
        subflows[0].in_flight_bytes = 0;
        assert_eq!(pick(&subflows), Some(Decision::send(1, Data::New)));
    }

    #[test]
    fn two_subflows_do_not_wait_for_each_other() {
        // The first is faster by its round trip; the second by the rate that is remembered of it.
        let mut subflows = [subflow(1, 20, 10), subflow(2, 22, 10)];
        subflows[0].bottleneck_bytes_per_s = Some(1 << 18);
        subflows[1].bottleneck_bytes_per_s = Some(1 << 30);
        let little = View { new_bytes: 90, unsent_bytes: 90, ..view(&subflows) };
        let decision = Default::default().select(&little).map(|decision| decision.subflow);
        assert_eq!(decision, Some(1));
    }

    #[test]
    fn of_many_that_wait_for_the_next_one_sends() {
        // Each is faster than the next by its round trip, and later by its rate.
        let mut subflows: Vec<_> = (0..2 * MOST_PASSED as u8).map(|id| subflow(id, 20, 10)).collect();
        for (number, subflow) in (0_u32..).zip(&mut subflows) {
            subflow.srtt += Duration::from_micros(number.into());
            subflow.bottleneck_bytes_per_s = Some(1 << (18 + number));
        }
        let little = View { new_bytes: 90, unsent_bytes: 90, ..view(&subflows) };
        assert!(Default::default().select(&little).is_some());
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 4096,
            rng_seed: RngSeed::Fixed(0x8684),
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        /// Only what is in flight brings another occasion to decide.
        #[test]
        fn something_leaves_when_nothing_is_in_flight(
            paths in proptest::collection::vec(any_path(), 1..16),
            unsent_bytes in (0_u32..22).prop_map(|power| 1 << power),
            window_left_bytes in 1_u64..1 << 22,
            more_to_come: bool,
        ) {
            let mut subflows = paths;
            for (id, subflow) in (1..).zip(&mut subflows) {
                subflow.id = id;
            }
            let new_bytes = unsent_bytes.min(window_left_bytes);
            let view = View { new_bytes, unsent_bytes, window_left_bytes, more_to_come, ..view(&subflows) };
            prop_assert!(Default::default().select(&view).is_some());
        }
    }

    prop_compose! {
        fn any_path()(
            srtt_us in prop_oneof![10_000_u64..11_000, 10_000_u64..40_000],
            queue in prop_oneof![Just(1), 1_u64..10],
            window_packets in 1_u64..1000,
            in_slow_start: bool,
            is_probing: bool,
            acked_offset in 0_u64..3,
            rate in proptest::option::of((0_u32..32).prop_map(|power| 1 << power)),
        ) -> SubflowView {
            SubflowView {
                srtt: Duration::from_micros(srtt_us),
                min_rtt: Duration::from_micros(srtt_us / queue),
                window_bytes: window_packets * 1460,
                ssthresh_bytes: if in_slow_start { u64::MAX } else { 1460 },
                is_probing,
                acked_offset,
                bottleneck_bytes_per_s: rate,
                ..subflow(0, 0, window_packets)
            }
        }
    }

    #[test]
    fn a_silent_subflow_gets_no_new_data_while_another_answers() {
        let mut subflows = [subflow(1, 20, 5), subflow(2, 100, 5)];
        subflows[0].is_probing = true;
        assert_eq!(Default::default().select(&view(&subflows)), Some(Decision::send(1, Data::New)));
        subflows[1].is_probing = true;
        assert_eq!(Default::default().select(&view(&subflows)), Some(Decision::send(0, Data::New)));
    }

    #[test]
    fn what_keeps_the_window_closed_is_copied() {
        let mut subflows = [subflow(1, 20, 5), subflow(2, 100, 0)];
        subflows[1].in_flight_bytes = 2920;
        let chunks = sent(&[(0, 2920, 2)]);
        let closed = View { new_bytes: 0, window_limited: true, sent: &chunks, ..view(&subflows) };
        let decision = Default::default().select(&closed).map(|decision| (decision.subflow, decision.data));
        assert_eq!(decision, Some((0, Data::Copy(DataSeq(0)))));
    }
}
