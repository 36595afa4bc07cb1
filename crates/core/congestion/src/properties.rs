//! What holds for every algorithm, whatever it is told.

use alloc::vec::Vec;

use polypath_units::{BitRate, Duration, Instant};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::window::MAX_WINDOW_BYTES;
use crate::{Ack, Config, FlowView, Flows, Policy, RateSample};

#[derive(Clone, Debug)]
enum Op {
    Ack(Ack, Vec<FlowView>),
    Congestion(u64, Vec<FlowView>),
    Timeout(u64),
    Spurious,
    RecoveryEnd,
    IdleRestart,
    Mss(u32),
    SetWindow(u64, Option<u64>),
}

/// Mostly usual sizes, sometimes anything.
fn bytes() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..200_000_u64, 1 => any::<u64>(), 1 => Just(0), 1 => Just(u64::MAX)]
}

fn span() -> impl Strategy<Value = Duration> {
    let nanos = prop_oneof![4 => 0..2_000_000_000_u64, 1 => any::<u64>(), 1 => Just(0), 1 => Just(u64::MAX)];
    nanos.prop_map(Duration::from_nanos)
}

fn mss() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 500..9000_u32, 1 => any::<u32>(), 1 => Just(0)]
}

fn flow() -> impl Strategy<Value = FlowView> {
    (bytes(), mss(), span(), any::<bool>(), (bytes(), bytes())).prop_map(
        |(window_bytes, mss_bytes, srtt, slow, (since_loss, between_losses))| FlowView {
            window_bytes,
            mss_bytes,
            srtt,
            min_rtt: srtt,
            in_slow_start: slow,
            acked_since_loss_bytes: since_loss,
            acked_between_losses_bytes: between_losses,
        },
    )
}

fn rate() -> impl Strategy<Value = RateSample> {
    let numbers = (bytes(), bytes(), bytes(), bytes(), bytes(), bytes());
    (bytes(), any::<bool>(), numbers).prop_map(|(rate, app_limited, numbers)| RateSample {
        delivery_rate: BitRate::from_bps(rate),
        app_limited,
        prior_delivered_bytes: numbers.0,
        delivered_bytes: numbers.1,
        tx_in_flight_bytes: numbers.2,
        in_flight_bytes: numbers.3,
        lost_bytes: numbers.4,
        total_lost_bytes: numbers.5,
    })
}

fn op() -> impl Strategy<Value = Op> {
    let spans = (span(), span(), proptest::option::weighted(0.9, span()));
    let rates = proptest::option::weighted(0.9, rate());
    let acks = (bytes(), bytes(), spans, rates, any::<(bool, bool)>(), vec(flow(), 0..4));
    let acks = acks.prop_map(
        |(acked_bytes, in_flight_bytes, (after, srtt, rtt), rate, (window_limited, round_ended), flows)| {
            let ack = Ack {
                now: Instant::ZERO + after,
                acked_bytes,
                in_flight_bytes,
                rtt,
                srtt,
                min_rtt: srtt,
                window_limited: window_limited || round_ended,
                round_ended,
                rate,
            };
            Op::Ack(ack, flows)
        },
    );
    prop_oneof![
        20 => acks,
        2 => (bytes(), vec(flow(), 0..4)).prop_map(|(in_flight, flows)| Op::Congestion(in_flight, flows)),
        2 => bytes().prop_map(Op::Timeout),
        2 => Just(Op::Spurious),
        2 => Just(Op::RecoveryEnd),
        1 => Just(Op::IdleRestart),
        1 => mss().prop_map(Op::Mss),
        1 => (bytes(), proptest::option::of(bytes())).prop_map(|(window, ssthresh)| Op::SetWindow(window, ssthresh)),
    ]
}

fn config() -> impl Strategy<Value = Config> {
    (mss(), any::<u32>(), any::<u32>()).prop_map(|(mss_bytes, initial, least)| Config {
        mss_bytes,
        initial_window_packets: initial >> 20,
        min_ssthresh_packets: least % 4,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// No call order and no number makes an algorithm panic, or its window leave the range from one segment to the
    /// largest.
    #[test]
    fn windows_stay_in_range(config in config(), ops in vec(op(), 1..80)) {
        for algorithm in Policy::ALL {
            let mut controller = algorithm.build_for(&config);
            let mut mss_bytes = config.mss_bytes;
            let mut now = Instant::ZERO;
            for op in &ops {
                match op {
                    Op::Ack(ack, flows) => {
                        now += Duration::from_nanos(ack.now.as_nanos() >> 4);
                        controller.on_ack(&Ack { now, ..*ack }, &Flows { all: flows, own: 0 });
                    }
                    Op::Congestion(in_flight, flows) => {
                        controller.on_congestion(now, *in_flight, &Flows { all: flows, own: 1 });
                    }
                    Op::Timeout(in_flight) => {
                        controller.on_timeout(now, *in_flight, &Flows::single(&FlowView::default()));
                    }
                    Op::Spurious => controller.on_spurious(now),
                    Op::RecoveryEnd => controller.on_recovery_end(now),
                    Op::IdleRestart => controller.on_idle_restart(now),
                    Op::Mss(bytes) => {
                        controller.on_mss(*bytes);
                        mss_bytes = *bytes;
                    }
                    Op::SetWindow(window, ssthresh) => controller.set_window(*window, *ssthresh),
                }
                let window_bytes = controller.window_bytes();
                let least_bytes = u64::from(mss_bytes.max(1));
                prop_assert!(window_bytes >= least_bytes, "{algorithm}: {controller:?} after {op:?}");
                prop_assert!(window_bytes <= MAX_WINDOW_BYTES, "{algorithm}: {controller:?} after {op:?}");
                prop_assert!(controller.ssthresh_bytes() >= least_bytes, "{algorithm}: {controller:?} after {op:?}");
                prop_assert!(controller.pacing_rate().is_none_or(|rate| rate > BitRate::ZERO));
                // Of all that is inside, nothing may become not-a-number.
                let inside = alloc::format!("{controller:?}");
                prop_assert!(!inside.contains("NaN") && !inside.contains(": inf") && !inside.contains("-inf"), "{inside} after {op:?}");
            }
        }
    }
}
