use std::vec::Vec;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::super::tests::{sent, subflow, view};
use super::*;
use crate::identifiers::SubflowId;

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
        DefaultScheduler::default().select(&view)
    };
    assert_eq!(pick(29_200, false), None);
    assert_eq!(pick(29_201, false), Some(Decision::send(SubflowId(2), Data::New)));
    assert_eq!(pick(29_200, true), Some(Decision::send(SubflowId(2), Data::New)));
}

/// It would wait longer and longer, until the slow one is needed after all.
#[test]
fn what_the_application_goes_on_to_write_waits_as_well() {
    let subflows = full_and_slow(100);
    let mut scheduler = DefaultScheduler::default();
    let mut pick = |ms, unsent_bytes| {
        let now = Instant::ZERO + Duration::from_millis(ms);
        let view = View { now, unsent_bytes, window_left_bytes: 1 << 20, ..view(&subflows) };
        scheduler.select(&view).map(|decision| decision.subflow.0)
    };
    // The fast one brings 29 200 in the 50 ms until the slow one's arrives; 1 000 more each 10 ms are 5 000 in that time.
    assert_eq!(pick(0, 18_000), None);
    assert_eq!(pick(50, 23_000), None, "not for longer than the time that is foreseen");
    assert_eq!(pick(60, 24_000), None);
    assert_eq!(pick(70, 25_000), Some(2));
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
        DefaultScheduler::default().select(&view)
    };
    assert_eq!(pick(43_800 + 1459), None);
    assert_eq!(pick(43_800 + 1460), Some(Decision::send(SubflowId(2), Data::New)));
}

#[test]
fn no_more_goes_to_a_slow_subflow_at_once_than_the_window_has_room_for_until_it_has_arrived() {
    let mut subflows = full_and_slow(100);
    subflows[1].bottleneck_bytes_per_s = Some(1_000_000);
    // n bytes are acknowledged in 60 + n/1000 ms; in that time the fast one brings (50 + n/1000)/20 · 14 600 bytes.
    let pick = |left_bytes| {
        let view = View { window_left_bytes: left_bytes, more_to_come: true, ..view(&subflows) };
        DefaultScheduler::default().select(&view).map(|decision| decision.limit_bytes)
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
        DefaultScheduler::default().select(&view).map(|decision| decision.subflow.0)
    };
    // Until the slow one's is acknowledged, after 75 + 10 ms, the fast one brings 75 000 bytes.
    assert_eq!(pick(75_000, 5_840), Some(2));
    assert_eq!(pick(70_620, 5_840), Some(2));
    assert_eq!(pick(70_619, 5_840), Some(1), "4 381 and a segment block the window");
    assert_eq!(pick(75_000, 5_841), Some(1), "the fast one's own window is shorter than the peer's");
    subflows[1].srtt = Duration::from_millis(10);
    subflows[1].min_rtt = Duration::from_millis(10);
    subflows[1].bottleneck_bytes_per_s = Some(1_000_000);
    subflows[0].in_flight_bytes = 0;
    let mut pick = |in_flight_bytes| {
        subflows[1].in_flight_bytes = in_flight_bytes;
        let view = View { window_left_bytes: 5_840, more_to_come: true, ..view(&subflows) };
        DefaultScheduler::default().select(&view).map(|decision| decision.subflow.0)
    };
    assert_eq!(pick(15_839), Some(2), "four segments of queue harm nobody");
    assert_eq!(pick(15_840), Some(1));
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
        DefaultScheduler::default().select(&view).map(|decision| decision.subflow.0)
    };
    // Acknowledged in 10 + 14.6 + 10 ms, the broad one brings 19.6/30 of its window; 87 600 in 30 ms is four times as much.
    assert_eq!(pick(90_000, 58_800 + 1_459), None);
    assert_eq!(pick(90_000, 58_800 + 1_460), Some(1));
    assert_eq!(pick(87_600, 1_460), Some(1));
}

#[test]
fn a_slow_subflow_does_not_fill_its_queue_but_the_fastest_may() {
    let mut subflows = full_and_slow(300);
    subflows[1].min_rtt = Duration::from_millis(50);
    // 3 · 50/300 · 14 600 = 7 300.
    let pick = |subflows: &[SubflowView]| {
        let view = View { more_to_come: true, window_left_bytes: 1 << 20, ..view(subflows) };
        DefaultScheduler::default().select(&view).map(|decision| decision.subflow.0)
    };
    subflows[1].in_flight_bytes = 7_299;
    assert_eq!(pick(&subflows), Some(2));
    subflows[1].in_flight_bytes = 7_300;
    assert_eq!(pick(&subflows), None);
    assert_eq!(pick(&subflows[1..]), Some(2));
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
        DefaultScheduler::default().select(&view).map(|decision| decision.subflow.0)
    };
    // 4 · 14 600 in 300 ms are 77 867 in 400 ms.
    assert_eq!(pick(77_866), Some(1));
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
    let mut scheduler = DefaultScheduler::default();
    // The first arrives within its half round trip: 100 · (1/2 − 1/2) ms. The last takes 50 ms, a copy 10 ms.
    let copy = Decision { limit_bytes: 1460, ..Decision::send(SubflowId(1), Data::Copy(DataSeq(2920))) };
    assert_eq!(scheduler.select(&end), Some(copy));
    scheduler.on_sent(SubflowId(1), DataSeq(2920), 1460);
    let mut copied = chunks.clone();
    copied[2].subflow = SubflowId(1);
    copied[2].again = true;
    assert_eq!(scheduler.select(&View { sent: &copied, ..end }), None);
    assert_eq!(DefaultScheduler::default().select(&View { more_to_come: true, ..end }), None);
    assert_eq!(DefaultScheduler::default().select(&View { subflows: &subflows[1..], ..end }), None);
}

#[test]
fn a_thin_path_is_no_faster_for_its_round_trip() {
    let mut subflows = [subflow(1, 20, 5), subflow(2, 100, 9)];
    subflows[1].acked_offset = 1;
    let pick = |subflows: &[SubflowView], more_to_come| {
        let view = View { unsent_bytes: 14_600, new_bytes: 14_600, more_to_come, ..view(subflows) };
        DefaultScheduler::default().select(&view).map(|decision| decision.subflow.0)
    };
    assert_eq!(pick(&subflows, false), Some(1));
    // A segment arrives after 10 + 58 ms, over the other path after 50 ms.
    subflows[0].bottleneck_bytes_per_s = Some(25_000);
    assert_eq!(pick(&subflows, false), Some(2));
    assert_eq!(pick(&subflows, true), Some(1), "there is enough for both");
    // After 10 + 20 ms.
    subflows[0].bottleneck_bytes_per_s = Some(73_000);
    assert_eq!(pick(&subflows, false), Some(1));
}

#[test]
fn what_stands_in_the_queue_of_a_thin_path_is_copied_though_its_round_trip_is_shorter() {
    let mut subflows = [subflow(1, 20, 0), subflow(2, 100, 5)];
    subflows[0].in_flight_bytes = 5840;
    let chunks = sent(&[(0, 2920, 1), (2920, 2920, 1)]);
    let pick = |subflows: &[SubflowView]| {
        let end = View { new_bytes: 0, unsent_bytes: 0, sent: &chunks, ..view(subflows) };
        DefaultScheduler::default().select(&View { data_next: DataSeq(5840), ..end }).map(|copy| copy.data)
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
        DefaultScheduler::default().select(&View { data_next: DataSeq(2920), ..closed })
    };
    // 136 of 2920 arrive at once; after a loss, one round trip later: then by whole segments.
    assert_eq!(pick(&subflows), None);
    subflows[0].in_recovery = true;
    let copy = Decision { limit_bytes: 1460, ..Decision::send(SubflowId(2), Data::Copy(DataSeq(0))) };
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
        DefaultScheduler::default().select(&View { data_next: DataSeq(2920), ..end }).map(|copy| copy.data)
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
        DefaultScheduler::default().select(&little)
    };
    assert_eq!(pick(&subflows), None);
    subflows[0].in_flight_bytes = 0;
    assert_eq!(pick(&subflows), Some(Decision::send(SubflowId(2), Data::New)));
}

#[test]
fn two_subflows_do_not_wait_for_each_other() {
    // The first is faster by its round trip; the second by the rate that is remembered of it.
    let mut subflows = [subflow(1, 20, 10), subflow(2, 22, 10)];
    subflows[0].bottleneck_bytes_per_s = Some(1 << 18);
    subflows[1].bottleneck_bytes_per_s = Some(1 << 30);
    let little = View { new_bytes: 90, unsent_bytes: 90, ..view(&subflows) };
    let decision = DefaultScheduler::default().select(&little).map(|decision| decision.subflow.0);
    assert_eq!(decision, Some(2));
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
    assert!(DefaultScheduler::default().select(&little).is_some());
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
            subflow.id = SubflowId(id);
        }
        let new_bytes = unsent_bytes.min(window_left_bytes);
        let view = View { new_bytes, unsent_bytes, window_left_bytes, more_to_come, ..view(&subflows) };
        prop_assert!(DefaultScheduler::default().select(&view).is_some());
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
    assert_eq!(
        DefaultScheduler::default().select(&view(&subflows)),
        Some(Decision::send(SubflowId(2), Data::New))
    );
    subflows[1].is_probing = true;
    assert_eq!(
        DefaultScheduler::default().select(&view(&subflows)),
        Some(Decision::send(SubflowId(1), Data::New))
    );
}

#[test]
fn what_keeps_the_window_closed_is_copied() {
    let mut subflows = [subflow(1, 20, 5), subflow(2, 100, 0)];
    subflows[1].in_flight_bytes = 2920;
    let chunks = sent(&[(0, 2920, 2)]);
    let closed = View { new_bytes: 0, window_limited: true, sent: &chunks, ..view(&subflows) };
    let decision =
        DefaultScheduler::default().select(&closed).map(|decision| (decision.subflow, decision.data));
    assert_eq!(decision, Some((SubflowId(1), Data::Copy(DataSeq(0)))));
}

/// Its estimates say that it arrives in time; when they have changed, something behind it has been copied.
#[test]
fn what_was_not_worth_a_copy_may_be_later() {
    let mut subflows = [subflow(1, 20, 5), subflow(2, 100, 5), subflow(3, 200, 0)];
    subflows[1].in_flight_bytes = 2920;
    subflows[2].in_flight_bytes = 1460;
    let chunks = sent(&[(0, 1460, 2), (1460, 1460, 2), (2920, 1460, 3)]);
    let mut scheduler = DefaultScheduler::default();
    let mut pick = |subflows: &[SubflowView]| {
        let end = View { new_bytes: 0, unsent_bytes: 0, sent: &chunks, ..view(subflows) };
        let decision = scheduler.select(&View { data_next: DataSeq(4380), ..end })?;
        let Data::Copy(seq) = decision.data else { return None };
        scheduler.on_sent(SubflowId(1), seq, 1460);
        Some(seq.0)
    };
    // Half of what the second holds arrives at once, a copy in 10 ms.
    assert_eq!(pick(&subflows), Some(1460));
    assert_eq!(pick(&subflows), Some(2920));
    subflows[1].bottleneck_bytes_per_s = Some(10_000);
    assert_eq!(pick(&subflows), Some(0));
}

/// It was given that in good faith, and copies are to make good for it.
#[test]
fn what_a_path_holds_that_has_fallen_is_copied_beyond_the_budget() {
    let mut subflows = [subflow(1, 20, 1000), subflow(2, 100, 0)];
    subflows[1].in_flight_bytes = 1_460_000;
    subflows[1].bottleneck_bytes_per_s = Some(100_000);
    let held: Vec<(u64, u32, u8)> = (0..1000).map(|at| (at * 1460, 1460, 2)).collect();
    let chunks = sent(&held);
    let copied_bytes = |subflows: &[SubflowView]| {
        let mut scheduler = DefaultScheduler::default();
        let mut copied = 0;
        for _ in 0..1000 {
            let end = View { new_bytes: 0, unsent_bytes: 0, sent: &chunks, ..view(subflows) };
            let end = View { data_una: DataSeq(0), data_next: DataSeq(1_460_000), ..end };
            let Some(decision) = scheduler.select(&end) else { break };
            let Data::Copy(seq) = decision.data else { panic!("{decision:?}") };
            copied += 1460;
            scheduler.on_sent(SubflowId(1), seq, 1460);
        }
        copied
    };
    assert_eq!(copied_bytes(&subflows), (256 << 10) / 1460 * 1460);
    subflows[1].bottleneck_has_fallen = true;
    assert!(copied_bytes(&subflows) > 1_400_000);
}

/// It may have begun with a window larger than its path; the queue would take the rest.
#[test]
fn what_a_slow_path_holds_is_told_by_its_rate_not_by_its_window() {
    let mut subflows = [subflow(1, 20, 0), subflow(2, 300, 100)];
    subflows[0].in_flight_bytes = subflows[0].window_bytes;
    subflows[1].min_rtt = Duration::from_millis(100);
    subflows[1].window_bytes = 146_000;
    let mut pick = |in_flight_bytes, rate| {
        subflows[1].in_flight_bytes = in_flight_bytes;
        subflows[1].bottleneck_bytes_per_s = rate;
        let view = View { more_to_come: true, window_left_bytes: 1 << 30, ..view(&subflows) };
        DefaultScheduler::default().select(&view).map(|decision| decision.subflow.0)
    };
    assert_eq!(pick(29_000, None), Some(2));
    assert_eq!(pick(29_000, Some(100_000)), Some(2));
    assert_eq!(pick(30_000, Some(100_000)), None, "three times 100 ms");
    assert_eq!(pick(5_000, Some(1_000)), Some(2), "a few segments always");
    assert_eq!(pick(6_000, Some(1_000)), None);
}
