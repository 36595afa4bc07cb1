//! Two paths without a network: packets leave at a constant rate, the paths take them in turn and carry each for a fixed time.
//!
//! That is the set-up of Kaspar 2011, Fig. 4.1 to 4.4, in the "deterministic world without jitter" of which the document speaks: packets of 1480 bytes, 42 to 44 ms
//! over a wireless LAN and 80 ms over a cellular network.

use polypath_tunnel::heterogeneity::{critical_bitrate, expected_displacement};
use polypath_tunnel::reordering::{
    Arrival, ArrivalOrder, Extents, LateTimes, ReorderBufferDensity, ReorderDensity, ReorderedRatio,
};
use polypath_tunnel::split::{PathView, Split};
use polypath_units::{BitRate, Duration, Instant};

const PACKET_BYTES: u32 = 1480;
const PACKETS: u64 = 4000;
const CELLULAR: Duration = Duration::from_millis(80);

/// A stream of this rate as it arrives.
fn arrivals(rate: BitRate, delays: [Duration; 2]) -> Vec<Arrival> {
    let mut splitter = "round-robin".parse::<Split>().unwrap().build();
    let paths = delays.map(|delay| PathView { rate, delay });
    let spacing = rate.time_to_send(u64::from(PACKET_BYTES));
    let mut arrivals: Vec<Arrival> = (0..PACKETS)
        .map(|sequence| {
            let path = splitter.choose(&paths).expect("a path");
            let sent = Instant::from_nanos(spacing.as_nanos() * sequence);
            Arrival { sequence, at: sent + paths[path].delay, payload_bytes: PACKET_BYTES }
        })
        .collect();
    arrivals.sort_by_key(|arrival| (arrival.at, arrival.sequence));
    arrivals
}

fn ratio(arrivals: &[Arrival]) -> f64 {
    let (mut order, mut ratio) = (ArrivalOrder::default(), ReorderedRatio::default());
    arrivals.iter().for_each(|arrival| ratio.handle_arrival(&order.handle_arrival(*arrival)));
    ratio.ratio()
}

fn density(arrivals: &[Arrival]) -> ReorderDensity {
    let mut density = ReorderDensity::new(200);
    arrivals.iter().for_each(|arrival| density.handle_arrival(arrival.sequence));
    density.finish();
    density
}

fn percent(rate: BitRate, percent: u64) -> BitRate {
    BitRate::from_bps(rate.as_bps() * percent / 100)
}

/// Kaspar 2011, Fig. 4.2 and eq. 4.1: nothing is reordered up to the critical bitrate, and beyond it one packet in two.
#[test]
fn reordering_sets_in_at_the_critical_bitrate() {
    for (wireless, critical_kbps) in [(42, 311), (43, 320), (44, 328)] {
        let delays = [CELLULAR, Duration::from_millis(wireless)];
        let critical = critical_bitrate(PACKET_BYTES, delays[0], delays[1]).expect("paths that differ");
        assert_eq!(critical.as_bps() / 1000, critical_kbps);
        for below in [25, 50, 99, 100] {
            assert_eq!(ratio(&arrivals(percent(critical, below), delays)), 0.0, "{below} % of {critical}");
        }
        for above in [101, 150, 400, 2000] {
            let ratio = ratio(&arrivals(percent(critical, above), delays));
            assert!((0.49..=0.5).contains(&ratio), "{above} % of {critical}: {ratio}");
        }
    }
}

/// Kaspar 2011, Fig. 4.3 and eq. 4.2: one half of the packets is early and one half late, by as many positions as the formula says.
#[test]
fn displacement_is_as_expected() {
    let cases = [(43, 2), (43, 1), (42, 1), (43, 5), (44, 10), (10, 6), (79, 90)];
    for (wireless, rate) in cases {
        let (rate, fast) = (BitRate::from_mbps(rate), Duration::from_millis(wireless));
        let expected = expected_displacement(rate, PACKET_BYTES, CELLULAR, fast);
        let density = density(&arrivals(rate, [CELLULAR, fast]));
        // A whole number of packets.
        let displacement = expected.round() as i64;
        assert!(displacement > 0);
        for displacement in [-displacement, displacement] {
            let share = density.density(displacement);
            assert!((0.49..=0.5).contains(&share), "{rate}, {wireless} ms: {share} at {displacement}");
        }
        // Without jitter there are two displacements, whatever the rate.
        assert!(
            (density.entropy() - 2.0_f64.ln()).abs() < 0.1,
            "{rate}, {wireless} ms: {}",
            density.entropy()
        );
    }
    let two_mbps = density(&arrivals(BitRate::from_mbps(2), [CELLULAR, Duration::from_millis(43)]));
    assert!(two_mbps.density(3) > 0.49 && two_mbps.late_by_at_least(3) > 0.49);
}

/// Kaspar 2011, Fig. 4.4(a): no buffer at 0.1 Mbit/s; at 1 Mbit/s two packets after one arrival in two, where the document, with jitter, measured up to four.
#[test]
fn the_buffer_holds_what_the_slow_path_still_carries() {
    let occupancy = |rate| {
        let mut buffer = ReorderBufferDensity::new(200, 0);
        for arrival in arrivals(rate, [CELLULAR, Duration::from_millis(43)]) {
            buffer.handle_arrival(arrival.sequence);
        }
        buffer
    };
    assert_eq!(occupancy(BitRate::from_kbps(100)).density(0), 1.0);
    let busy = occupancy(BitRate::from_mbps(1));
    assert_eq!(busy.percentile(0.99), Some(2));
    assert!(busy.density(2) > 0.49, "{busy:?}");
}

/// A reordered packet comes after as many arrivals and as much time as the delays say.
#[test]
fn lateness_is_the_difference_less_what_is_between_packets() {
    let rate = BitRate::from_mbps(2);
    let (mut order, mut extents, mut late) =
        (ArrivalOrder::default(), Extents::default(), LateTimes::default());
    for arrival in arrivals(rate, [CELLULAR, Duration::from_millis(43)]) {
        let evaluated = order.handle_arrival(arrival);
        extents.handle_arrival(&evaluated);
        late.handle_arrival(&evaluated);
    }
    // The first to overtake was sent 5.92 ms later.
    let expected = Duration::from_millis(37).saturating_sub(rate.time_to_send(u64::from(PACKET_BYTES)));
    assert_eq!((late.percentile(0.5), late.percentile(1.0)), (Some(expected), Some(expected)));
    // Three of the fast path, and between them those of the slow one.
    assert_eq!(extents.distribution().percentile(0.5), Some(5));
}
