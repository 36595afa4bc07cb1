use polypath_wire::{Endpoint, FourTuple, Segment, SeqNumber, TcpFlags, Transport};
use proptest::prelude::*;

use super::*;

const FLOW: FourTuple = FourTuple {
    local: Endpoint::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)), 40_000),
    remote: Endpoint::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)), 80),
};
/// Without options, headers have so many bytes.
const HEADERS: usize = 40;

fn packet(seq: u32, len: usize, segment_size: u16) -> Packet {
    let payload = vec![0; len].into();
    Packet::tcp(
        FLOW,
        Segment { seq: SeqNumber(seq), flags: TcpFlags::ACK, payload, segment_size, ..Segment::default() },
    )
}

fn seq(packet: &Packet) -> u32 {
    let Transport::Tcp(segment) = &packet.transport else { panic!("no segment") };
    segment.seq.0
}

fn hops<const N: usize>(ids: [u64; N]) -> Arc<[LimitId]> {
    ids.map(LimitId).into()
}

/// Lines that have come down to these rates, and when.
fn lines<const N: usize>(limits: [(u64, BitRate); N]) -> (Lines, Instant) {
    let mut lines = Lines::default();
    limits.into_iter().for_each(|(id, rate)| lines.set(Instant::ZERO, LimitId(id), rate));
    (lines, Instant::from_secs(1))
}

/// What comes out until then, with its times.
fn drain(lines: &mut Lines, from: Instant, until: Instant) -> Vec<(Instant, u32)> {
    let mut out = Vec::new();
    let mut now = from;
    loop {
        while let Some(packet) = lines.poll_transmit(now, Way::Received) {
            out.push((now, seq(&packet)));
        }
        match lines.poll_timeout() {
            Some(next) if next <= until => now = next,
            _ => return out,
        }
    }
}

#[test]
fn an_aggregate_passes_as_its_segments_at_the_rate() {
    // 1000 bytes each 8 ms.
    let (mut lines, begin) = lines([(1, BitRate::from_mbps(1))]);
    let payload = 1000 - HEADERS;
    let aggregate = packet(0, 3 * payload, payload as u16);
    lines.handle_packet(begin, Way::Received, hops([1]), aggregate);
    assert_eq!(lines.poll_transmit(begin, Way::Received), None);
    let out = drain(&mut lines, begin, Instant::from_secs(2));
    let expected = [(8, 0), (16, 960), (24, 1920)].map(|(ms, seq)| (begin + Duration::from_millis(ms), seq));
    assert_eq!(out, expected);
    let [sent, received] = lines.figures(LimitId(1));
    assert_eq!(sent, LimitFigures::default());
    assert_eq!((received.passed_packets, received.passed_bytes), (3, 3000));
}

#[test]
fn what_finds_the_queue_full_is_dropped() {
    let (mut lines, begin) = lines([(1, BitRate::from_kbps(100))]);
    for number in 0..100 {
        lines.handle_packet(begin, Way::Received, hops([1]), packet(number, 1000, 0));
    }
    let [_, figures] = lines.figures(LimitId(1));
    // One is being sent.
    assert_eq!((figures.waiting_packets, figures.dropped_packets), (LEAST_PACKETS + 1, 99 - LEAST_PACKETS));
    assert_eq!(queue(BitRate::from_mbps(12)), QueueLimit::Packets(100));
    assert_eq!(queue(BitRate::from_mbps(100_000)), QueueLimit::Packets(MOST_PACKETS));
}

#[test]
fn of_several_limits_the_slowest_counts() {
    let mbps = BitRate::from_mbps;
    let (mut lines, begin) = lines([(1, mbps(100)), (2, mbps(1)), (3, mbps(10))]);
    for number in 0..4 {
        lines.handle_packet(begin, Way::Received, hops([1, 2, 3]), packet(number, 960, 0));
    }
    // Only one of them is of this one.
    lines.handle_packet(begin, Way::Received, hops([3]), packet(9, 960, 0));
    let out = drain(&mut lines, begin, Instant::from_secs(2));
    assert_eq!(out.iter().map(|(_, seq)| *seq).collect::<Vec<_>>(), [9, 0, 1, 2, 3]);
    let last = out.last().expect("the last").0;
    // 32 ms at the slowest, the two others for one packet, and a grain at each.
    let most = Duration::from_micros(32_000 + 80 + 800) + GRAIN + GRAIN + GRAIN;
    assert!(last >= begin + Duration::from_millis(32) && last <= begin + most, "{last:?}");
}

#[test]
fn a_limit_that_is_gone_lets_go_and_one_that_changes_goes_on() {
    let (mut lines, begin) = lines([(1, BitRate::ZERO)]);
    for number in 0..3 {
        lines.handle_packet(begin, Way::Received, hops([1]), packet(number, 960, 0));
    }
    let at = Instant::from_secs(2);
    assert_eq!((drain(&mut lines, begin, at), lines.poll_timeout()), (Vec::new(), None));
    lines.set(at, LimitId(1), BitRate::from_mbps(1));
    let first = drain(&mut lines, at, at + Duration::from_millis(8));
    assert_eq!(first, [(at + Duration::from_millis(8), 0)]);
    let later = at + Duration::from_millis(9);
    lines.remove(later, LimitId(1));
    assert!(lines.has_passed());
    assert_eq!(drain(&mut lines, later, later), [(later, 1), (later, 2)]);
    // Whoever still believes that it is there.
    lines.handle_packet(later, Way::Received, hops([1]), packet(7, 960, 0));
    assert_eq!(drain(&mut lines, later, later), [(later, 7)]);
    assert!(!lines.has_passed());
}

#[test]
fn what_passes_at_first_is_counted_and_then_comes_down() {
    let mut lines = Lines::default();
    lines.set(Instant::ZERO, LimitId(1), BitRate::from_mbps(1));
    // 10 Mbit/s for two seconds.
    let mut out = [0; 20];
    for number in 0..2500 {
        let now = Instant::from_micros(800 * number);
        lines.handle_packet(now, Way::Received, hops([1]), packet(number as u32, 960, 0));
        while lines.poll_transmit(now, Way::Received).is_some() {
            out[(now.as_nanos() / 100_000_000) as usize] += 1;
        }
    }
    assert!(out[0] > 100 && out[..8].is_sorted_by(|one, next| one >= next), "{out:?}");
    assert!(out[8..].iter().all(|&packets| (12..=13).contains(&packets)), "{out:?}");
}

#[derive(Clone, Debug)]
enum Step {
    Packet { is_sent: bool, len: usize, segments: usize },
    Wait(u64),
    Set { id: u64, kbps: u64 },
    Remove(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any::<bool>(), 1..1400_usize, 1..8_usize).prop_map(|(is_sent, len, segments)| Step::Packet { is_sent, len, segments }),
        4 => (0..20_000_u64).prop_map(Step::Wait),
        1 => (1..4_u64, 0..20_000_u64).prop_map(|(id, kbps)| Step::Set { id, kbps }),
        1 => (1..4_u64).prop_map(Step::Remove),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is set and removed meanwhile, what does not come out was dropped or still waits, within the bound, and order is kept.
    #[test]
    fn nothing_is_lost_out_of_sight_and_order_is_kept(steps in prop::collection::vec(step(), 1..200)) {
        let mut lines = Lines::default();
        let (mut now, mut next) = (Instant::ZERO, 0);
        let (mut came, mut dropped, mut out) = (0, 0, [Vec::new(), Vec::new()]);
        let dropped_by = |lines: &Lines, id| -> u64 {
            lines.figures(LimitId(id)).iter().map(|figures| figures.dropped_packets).sum()
        };
        for step in steps.into_iter().chain((1..4).map(Step::Remove)) {
            match step {
                Step::Packet { is_sent, len, segments } => {
                    let way = if is_sent { Way::Sent } else { Way::Received };
                    lines.handle_packet(now, way, hops([1, 2, 3]), packet(next, len * segments, len as u16));
                    next += 20_000;
                    came += segments as u64;
                }
                Step::Wait(micros) => now += Duration::from_micros(micros),
                Step::Set { id, kbps } => lines.set(now, LimitId(id), BitRate::from_kbps(kbps)),
                Step::Remove(id) => {
                    dropped += dropped_by(&lines, id);
                    lines.remove(now, LimitId(id));
                }
            }
            for way in [Way::Sent, Way::Received] {
                while let Some(packet) = lines.poll_transmit(now, way) {
                    out[way as usize].extend(packet.segments().map(|segment| seq(&segment)));
                }
            }
            for line in lines.lines.values().flatten() {
                prop_assert!(line.link.stats().queue_packets <= MOST_PACKETS);
            }
        }
        prop_assert_eq!(came, dropped + out.iter().map(|out| out.len() as u64).sum::<u64>());
        prop_assert!(out.iter().all(|out| out.is_sorted()));
    }
}
