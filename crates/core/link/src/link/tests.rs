use alloc::boxed::Box;
use alloc::vec::Vec;

use polypath_units::BitRate;
use polypath_wire::{IcmpMessage, SeqNumber, TcpFlags, Transport};

use super::*;
use crate::impairment::{self, Impairment, Numbers, Random};
use crate::testing::{FLOW, data, data_segment, datagram, segment_of, tag_of};
use crate::{Jitter, Loss, Reordering};

/// 1500 bytes take 1 ms.
const RATE: BitRate = BitRate::from_mbps(12);
const TX: Duration = Duration::from_millis(1);

pub(super) fn ms(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

pub(super) fn span(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) fn line(delay_ms: u64) -> LinkConfig {
    LinkConfig::new(RATE, span(delay_ms), QueueLimit::Unlimited)
}

/// Runs the link from deadline to deadline until nothing is due or `end` comes.
pub(super) fn run(link: &mut Link, end: Instant) -> Vec<(Instant, u16)> {
    let mut out = Vec::new();
    while let Some(at) = link.poll_timeout().filter(|at| *at <= end) {
        link.handle_timeout(at);
        while let Some(packet) = link.poll_transmit(at) {
            out.push((at, tag_of(&packet)));
        }
        assert!(link.poll_timeout().is_none_or(|next| next > at), "no progress at {at}");
        assert_conserved(link);
    }
    out
}

#[track_caller]
fn assert_conserved(link: &Link) {
    let stats = link.stats();
    assert_eq!(
        stats.sent_packets + stats.duplicated_packets,
        stats.delivered_packets + stats.dropped_packets() + stats.inside_packets(),
        "{stats:?}"
    );
}

pub(super) fn send(link: &mut Link, at: Instant, tags: impl IntoIterator<Item = u16>) {
    for tag in tags {
        link.handle_packet(at, datagram(tag, 1500));
    }
}

/// One packet each millisecond: as fast as [`RATE`] sends.
fn stream(link: &mut Link, count: u16) -> Vec<(Instant, u16)> {
    let mut out = Vec::new();
    for tag in 0..count {
        let at = ms(u64::from(tag));
        out.extend(run(link, at));
        send(link, at, [tag]);
    }
    out.extend(run(link, Instant::FAR_FUTURE));
    out
}

pub(super) fn tags(arrivals: &[(Instant, u16)]) -> Vec<u16> {
    arrivals.iter().map(|(_, tag)| *tag).collect()
}

#[test]
fn a_packet_arrives_after_its_transmission_and_the_delay() {
    let mut link = Link::new(line(10), 1);
    send(&mut link, ms(5), [1, 2, 3]);
    assert_eq!(link.poll_timeout(), Some(ms(16)));
    assert!(link.poll_transmit(ms(16) - Duration::from_nanos(1)).is_none());
    assert_eq!(run(&mut link, ms(100)), [(ms(16), 1), (ms(17), 2), (ms(18), 3)]);
    assert_eq!(link.poll_timeout(), None);
    let stats = link.stats();
    assert_eq!((stats.delivered_packets, stats.delivered_bytes, stats.busy), (3, 4500, TX * 3));
    assert_eq!((stats.max_queue_packets, stats.max_queue_bytes), (2, 3000));
}

#[test]
fn without_a_rate_everything_leaves_at_once() {
    let mut link = Link::new(LinkConfig { delay: span(3), ..LinkConfig::default() }, 1);
    send(&mut link, ms(0), 0..50);
    let out = run(&mut link, ms(100));
    assert_eq!(tags(&out), (0..50).collect::<Vec<_>>());
    assert!(out.iter().all(|(at, _)| *at == ms(3)));
    assert_eq!(link.stats().max_queue_packets, 0);
}

#[test]
fn ten_thousand_packets_take_exactly_their_bits_over_the_rate() {
    // 1000 bytes at 7 Mbit/s: 1 142 857.14 ns each.
    let config = LinkConfig::new(BitRate::from_mbps(7), Duration::ZERO, QueueLimit::Unlimited);
    let mut link = Link::new(config, 1);
    for tag in 0..10_000 {
        link.handle_packet(ms(0), datagram(tag, 1000));
    }
    let out = run(&mut link, Instant::FAR_FUTURE);
    assert_eq!(out.last().unwrap().0.as_nanos(), 10_000 * 8_000_000 / 7);
    assert_eq!(link.stats().busy.as_nanos(), 10_000 * 8_000_000 / 7);
}

#[test]
fn the_queue_is_limited_in_packets_bytes_or_time() {
    // The first packet is in the transmitter and does not count.
    for (limit, admitted) in [
        (QueueLimit::Packets(5), 6),
        (QueueLimit::Bytes(7_500), 6),
        (QueueLimit::Bytes(7_499), 5),
        (QueueLimit::Delay(span(5)), 6),
        (QueueLimit::Delay(span(4)), 5),
        // There is room for one packet in any case.
        (QueueLimit::Bytes(100), 2),
        (QueueLimit::Packets(0), 2),
        (QueueLimit::Unlimited, 20),
    ] {
        let mut link = Link::new(LinkConfig { queue: limit, ..line(10) }, 1);
        send(&mut link, ms(0), 0..20);
        assert_eq!(link.stats().queue_drops, 20 - u64::from(admitted), "{limit:?}");
        assert_eq!(tags(&run(&mut link, ms(100))), (0..admitted).collect::<Vec<_>>());
    }
}

#[test]
fn room_in_the_queue_comes_back_as_packets_leave_even_if_nobody_looks() {
    let mut link = Link::new(LinkConfig { queue: QueueLimit::Packets(2), ..line(50) }, 1);
    send(&mut link, ms(0), 0..4);
    assert_eq!(link.stats().queue_drops, 1);
    // By 2.5 ms the first two are sent and the third is being sent.
    send(&mut link, ms(2) + span(1) / 2, 4..7);
    assert_eq!(link.stats().queue_drops, 2);
    assert_eq!(tags(&run(&mut link, ms(100))), [0, 1, 2, 4, 5]);
}

#[test]
fn a_limit_in_time_follows_the_rate() {
    let mut link = Link::new(LinkConfig { queue: QueueLimit::Delay(span(4)), ..line(0) }, 1);
    link.apply(ms(0), Change::Rate(Some(BitRate::from_mbps(24))));
    send(&mut link, ms(0), 0..20);
    assert_eq!(link.stats().queue_packets, 8);
    link.apply(ms(0), Change::Queue(QueueLimit::Packets(9)));
    send(&mut link, ms(0), 0..20);
    assert_eq!(link.stats().queue_packets, 9);
}

#[test]
fn a_restart_means_the_same_losses_again() {
    let mut link = Link::new(LinkConfig { loss: Loss::Random(0.5), ..line(10) }, 7);
    let mut arrived = |from: u64| -> Vec<u64> {
        send(&mut link, ms(from), 0..20);
        let numbers =
            run(&mut link, ms(from + 100)).into_iter().map(|(_, number)| u64::from(number)).collect();
        link.apply(ms(from + 100), Change::RestartRandom);
        numbers
    };
    let first = arrived(0);
    assert!((2..18).contains(&first.len()));
    assert_eq!(arrived(100), first);
}

#[test]
fn a_new_rate_counts_for_what_remains_of_the_packet_being_sent() {
    let mut link = Link::new(line(10), 1);
    send(&mut link, ms(0), [1, 2]);
    // Half of the first one is sent: the rest and the second at a quarter of the rate take 2 and 4 ms.
    link.apply(Instant::from_micros(500), Change::Rate(Some(BitRate::from_mbps(3))));
    assert_eq!(
        run(&mut link, ms(100)),
        [(Instant::from_micros(12_500), 1), (Instant::from_micros(16_500), 2)]
    );
    assert_eq!(link.stats().busy, Duration::from_micros(6_500));
}

#[test]
fn at_rate_zero_packets_wait() {
    let mut link = Link::new(line(10), 1);
    send(&mut link, ms(0), [1, 2]);
    link.apply(Instant::from_micros(250), Change::Rate(Some(BitRate::ZERO)));
    assert_eq!(link.poll_timeout(), None);
    send(&mut link, ms(5), [3]);
    link.apply(ms(20), Change::Rate(Some(RATE)));
    let first = ms(20) + Duration::from_micros(750) + span(10);
    assert_eq!(run(&mut link, ms(100)), [(first, 1), (first + TX, 2), (first + TX * 2, 3)]);
    link.apply(ms(100), Change::Rate(Some(BitRate::ZERO)));
    send(&mut link, ms(101), [4]);
    link.apply(ms(102), Change::Rate(None));
    assert_eq!(run(&mut link, ms(200)), [(ms(112), 4)]);
}

#[test]
fn a_shorter_delay_does_not_reorder() {
    let mut link = Link::new(line(100), 1);
    send(&mut link, ms(0), [1]);
    link.apply(ms(1), Change::Delay(span(10)));
    send(&mut link, ms(1), [2]);
    send(&mut link, ms(150), [3]);
    assert_eq!(run(&mut link, ms(200)), [(ms(101), 1), (ms(101), 2), (ms(161), 3)]);
}

#[test]
fn a_cut_link_loses_what_is_inside_and_what_comes() {
    let mut link = Link::new(line(10), 1);
    send(&mut link, ms(0), 0..20);
    // By 12 ms, two have arrived (one at 11 ms, one right now), nobody has fetched them; 18 are inside.
    link.apply(ms(12), Change::Down);
    assert!(!link.is_up());
    assert_eq!(link.stats().down_drops, 18);
    send(&mut link, ms(13), 20..25);
    assert_eq!(link.stats().down_drops, 23);
    assert_eq!(tags(&run(&mut link, ms(30))), [0, 1]);
    link.apply(ms(40), Change::Up);
    link.apply(ms(40), Change::Up);
    send(&mut link, ms(40), [30]);
    assert_eq!(run(&mut link, ms(100)), [(ms(51), 30)]);
    assert_conserved(&link);
}

#[test]
fn a_held_link_goes_on_where_it_stopped() {
    let config = LinkConfig { on_down: OnDown::Hold, queue: QueueLimit::Packets(5), ..line(10) };
    let mut link = Link::new(config, 1);
    send(&mut link, ms(0), 0..4);
    // One is under way, the second half sent.
    link.apply(Instant::from_micros(1_500), Change::Down);
    send(&mut link, ms(5), 4..10);
    assert_eq!(link.stats().queue_drops, 3);
    assert_eq!(run(&mut link, ms(50)), [(ms(11), 0)]);
    link.apply(ms(50), Change::Up);
    let first = Instant::from_micros(60_500);
    let expected: Vec<_> = (1..7).map(|tag| (first + TX * u64::from(tag - 1), tag)).collect();
    assert_eq!(run(&mut link, ms(100)), expected);
}

#[test]
fn the_schedule_is_kept_to_the_nanosecond_whoever_looks_when() {
    let schedule = [
        (ms(40), Change::Up),
        (ms(10), Change::Rate(Some(BitRate::from_mbps(6)))),
        (ms(10), Change::Delay(span(5))),
        (ms(30), Change::Down),
    ];
    let config = LinkConfig { schedule: schedule.to_vec(), ..line(1) };
    let mut often = Link::new(config.clone(), 1);
    let mut seldom = Link::new(config, 1);
    let mut out = Vec::new();
    for tag in 0..25_u16 {
        let at = ms(u64::from(tag) * 2);
        out.extend(run(&mut often, at));
        send(&mut often, at, [tag]);
        send(&mut seldom, at, [tag]);
    }
    out.extend(run(&mut often, ms(1000)));
    assert_eq!(tags(&run(&mut seldom, ms(1000))), tags(&out));
    assert_eq!(often.stats(), LinkStats { ..seldom.stats() });
    // Sent at 2n ms: 1 + 1 ms of way before 10 ms, 2 + 5 ms after it; between 30 and 40 ms there is nothing,
    // and what was sent at 24 ms and after was under way when the link went down.
    let expected = (0..5)
        .map(|tag| (ms(tag * 2 + 2), tag as u16))
        .chain((5..12).map(|tag| (ms(tag * 2 + 7), tag as u16)))
        .chain((20..25).map(|tag| (ms(tag * 2 + 7), tag as u16)));
    assert_eq!(out, expected.collect::<Vec<_>>());
    assert_eq!(often.poll_timeout(), None);
}

#[test]
fn a_link_may_start_down() {
    let config = LinkConfig { down: true, schedule: alloc::vec![(ms(10), Change::Up)], ..line(0) };
    let mut link = Link::new(config, 1);
    send(&mut link, ms(0), [1]);
    assert_eq!(link.poll_timeout(), Some(ms(10)));
    send(&mut link, ms(10), [2]);
    assert_eq!(run(&mut link, ms(20)), [(ms(11), 2)]);
}

#[test]
fn aggregates_are_cut_into_segments() {
    let mut link = Link::new(line(0), 1);
    let mut packet = data(1, 4000);
    let Transport::Tcp(segment) = &mut packet.transport else { unreachable!() };
    segment.segment_size = 1460;
    segment.flags = TcpFlags::ACK.with(TcpFlags::PSH);
    link.handle_packet(ms(0), packet);
    let shape: Vec<_> = core::iter::from_fn(|| link.poll_transmit(ms(10)))
        .map(|packet| {
            (segment_of(&packet).seq.0, segment_of(&packet).payload.len(), segment_of(&packet).segment_size)
        })
        .collect();
    assert_eq!(shape, [(1, 1460, 0), (1461, 1460, 0), (2921, 1080, 0)]);
    assert_eq!(link.stats().sent_packets, 3);
}

#[test]
fn what_is_longer_than_the_mtu_is_dropped_and_its_sender_told() {
    let mut link = Link::new(LinkConfig { mtu_bytes: Some(1400), ..line(0) }, 1);
    link.handle_packet(ms(0), data(1, 1360));
    assert!(link.poll_reverse().is_none());
    link.handle_packet(ms(0), data(77, 1361));
    let message = link.poll_reverse().unwrap();
    assert_eq!((message.ip.src, message.ip.dst), (FLOW.remote.addr, FLOW.local.addr));
    let expected = IcmpMessage::PacketTooBig { mtu: 1400, flow: FLOW, seq: SeqNumber(77) };
    assert_eq!(message.transport, Transport::Icmp(expected));
    let mut may_fragment = data(99, 1361);
    may_fragment.ip.dont_fragment = false;
    link.handle_packet(ms(0), may_fragment);
    assert_eq!(link.stats().too_big_drops, 1);
    assert_eq!(link.stats().inside_packets(), 2);
}

#[test]
fn a_black_hole_says_nothing() {
    let config = LinkConfig { mtu_bytes: Some(1400), mtu_black_hole: true, ..line(0) };
    let mut link = Link::new(config, 1);
    link.handle_packet(ms(0), Packet::tcp(FLOW, data_segment(1, 1400)));
    assert!(link.poll_reverse().is_none());
    assert_eq!(link.stats().too_big_drops, 1);
    assert_conserved(&link);
}

#[test]
fn random_loss_is_as_frequent_as_it_should_be() {
    let mut link = Link::new(LinkConfig { loss: Loss::Random(0.02), ..line(5) }, 7);
    let out = stream(&mut link, 50_000);
    // 1000 expected, standard deviation 31.
    assert!((900..1100).contains(&link.stats().lost_packets), "{}", link.stats().lost_packets);
    assert!(out.is_sorted());
    assert_eq!(link.stats().busy, TX * 50_000, "a lost packet uses the transmitter");
}

#[test]
fn gilbert_elliott_loses_as_the_model_says() {
    let (p, r, bad_loss, good_loss) = (0.01, 0.2, 0.7, 0.001);
    let loss = Loss::GilbertElliott { p, r, bad_loss, good_loss };
    let mut link = Link::new(LinkConfig { loss, ..line(5) }, 7);
    let arrived = tags(&stream(&mut link, 60_000));
    let mut lost = alloc::vec![true; 60_000];
    arrived.iter().for_each(|tag| lost[usize::from(*tag)] = false);
    let frequency = |hits: usize, of: usize| hits as f64 / of as f64;
    // Stationary: the share of time in the bad state is p / (p + r).
    let bad = p / (p + r);
    let expected = bad * bad_loss + (1.0 - bad) * good_loss;
    let measured = frequency(lost.iter().filter(|lost| **lost).count(), lost.len());
    assert!((measured / expected - 1.0).abs() < 0.1, "loss {measured}, expected {expected}");
    // Two in a row: the state of the second follows from that of the first.
    let both = bad * bad_loss * ((1.0 - r) * bad_loss + r * good_loss)
        + (1.0 - bad) * good_loss * (p * bad_loss + (1.0 - p) * good_loss);
    let measured = frequency(lost.windows(2).filter(|pair| pair[0] && pair[1]).count(), lost.len() - 1);
    assert!((measured / both - 1.0).abs() < 0.15, "pairs {measured}, expected {both}");
}

#[test]
fn jitter_spreads_the_delay_and_keeps_the_order_unless_told_otherwise() {
    // Packets 20 ms apart, so that order costs nothing.
    let delays = |jitter: Jitter| -> Vec<f64> {
        let mut link = Link::new(LinkConfig { jitter, rate: None, ..line(50) }, 3);
        let mut out = Vec::new();
        for tag in 0..5000_u16 {
            send(&mut link, ms(u64::from(tag) * 200), [tag]);
            out.extend(run(&mut link, ms(u64::from(tag) * 200 + 199)));
        }
        out.iter().map(|(at, tag)| (*at - ms(u64::from(*tag) * 200)).as_millis_f64()).collect()
    };
    let moments = |values: &[f64]| {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>();
        (mean, libm::sqrt(variance / values.len() as f64))
    };
    let uniform = delays(Jitter::uniform(span(10)));
    assert!(uniform.iter().all(|delay| (40.0..=60.0).contains(delay)));
    let (mean, deviation) = moments(&uniform);
    assert!((mean - 50.0).abs() < 0.3 && (deviation - 5.77).abs() < 0.2, "{mean} {deviation}");
    let (mean, deviation) = moments(&delays(Jitter::normal(span(10))));
    assert!((mean - 50.0).abs() < 0.5 && (deviation - 10.0).abs() < 0.3, "{mean} {deviation}");

    let in_order =
        |jitter| tags(&stream(&mut Link::new(LinkConfig { jitter, ..line(50) }, 3), 1000)).is_sorted();
    assert!(in_order(Jitter::uniform(span(10))));
    assert!(!in_order(Jitter::uniform(span(10)).any_order()));
}

#[test]
fn a_reordered_packet_arrives_late_and_holds_up_no_other() {
    let reorder = Reordering { probability: 0.01, extra_delay: span(5) };
    let mut link = Link::new(LinkConfig { reorder, ..line(10) }, 3);
    let out = stream(&mut link, 10_000);
    let late: Vec<_> = out.iter().filter(|(at, tag)| *at != ms(u64::from(*tag) + 11)).collect();
    assert!(late.iter().all(|(at, tag)| *at == ms(u64::from(*tag) + 16)));
    assert_eq!(late.len() as u64, link.stats().reordered_packets);
    assert!((60..140).contains(&late.len()), "{}", late.len());
    assert_eq!(out.len(), 10_000);
}

#[test]
fn a_duplicated_packet_arrives_twice() {
    let mut link = Link::new(LinkConfig { duplicate: 0.1, ..line(10) }, 3);
    let out = stream(&mut link, 10_000);
    let copies = link.stats().duplicated_packets;
    assert!((900..1100).contains(&copies), "{copies}");
    assert_eq!(out.len() as u64, 10_000 + copies);
    assert!(out.is_sorted());
}

/// Everything at once, with a random but fixed course of events.
fn turmoil(seed: u64) -> (Vec<(Instant, u16)>, LinkStats) {
    let mut dice = crate::random::Random::new(seed);
    let mut link = Link::new(
        LinkConfig {
            loss: Loss::GilbertElliott { p: 0.02, r: 0.3, bad_loss: 0.8, good_loss: 0.0 },
            jitter: Jitter::normal(span(3)).any_order(),
            duplicate: 0.02,
            reorder: Reordering { probability: 0.05, extra_delay: span(7) },
            queue: QueueLimit::Delay(span(20)),
            on_down: if dice.chance(0.5) { OnDown::Hold } else { OnDown::Flush },
            ..line(10)
        },
        seed,
    );
    let mut out = Vec::new();
    let mut now = ms(0);
    for tag in 0..500 {
        now += Duration::from_micros(u64::from(dice.u32() % 2000));
        out.extend(run(&mut link, now));
        send(&mut link, now, [tag]);
        assert_conserved(&link);
        let change = match dice.u32() % 100 {
            0 => Change::Down,
            1..=4 => Change::Up,
            5 => Change::Rate(Some(BitRate::from_mbps(u64::from(dice.u32() % 20)))),
            6 => Change::Delay(span(u64::from(dice.u32() % 30))),
            7 => Change::Jitter(Jitter::uniform(span(u64::from(dice.u32() % 5)))),
            8 => Change::Rate(None),
            _ => continue,
        };
        link.apply(now, change);
        assert_conserved(&link);
    }
    link.apply(now, Change::Rate(Some(RATE)));
    link.apply(now, Change::Up);
    out.extend(run(&mut link, Instant::FAR_FUTURE));
    assert_eq!(link.stats().inside_packets(), 0);
    (out, link.stats())
}

#[test]
fn no_packet_appears_or_vanishes_whatever_happens_and_the_seed_decides() {
    for seed in 0..100 {
        let (first, second) = (turmoil(seed), turmoil(seed));
        assert_eq!(first, second, "seed {seed}");
        assert!(first.0.iter().map(|(at, _)| at).is_sorted(), "seed {seed}");
        assert_ne!(first.0, turmoil(seed + 1000).0);
    }
}

/// Loses every packet of a number, and sends those before twice.
#[derive(Debug, Default)]
struct EveryNth {
    n: u64,
    count: u64,
}

impl Impairment for EveryNth {
    fn handle_packet(&mut self, packet: Passing, fate: &mut Fate, _: &mut Random) {
        assert_eq!(packet.size_bytes, 1500);
        self.count += 1;
        match self.count % self.n {
            0 => fate.lose(),
            1 => fate.duplicate(),
            _ => {}
        }
    }

    fn restart(&mut self) {
        self.count = 0;
    }
}

const EVERY_NTH: impairment::Policy = impairment::Policy::with_parameter(
    "every-nth",
    ("n", Numbers::new([3.0])),
    ("1 or more", |numbers| numbers.get(0, 3.0) >= 1.0),
    |_, numbers| Box::new(EveryNth { n: numbers.get(0, 3.0) as u64, count: 0 }),
);

#[test]
fn other_impairments_fit_behind_the_trait_and_come_and_go() {
    let mut link = Link::new(LinkConfig { impairments: alloc::vec![EVERY_NTH], ..line(10) }, 1);
    let mut arrived = |at, changes: &[Change]| {
        for change in changes {
            link.apply(ms(at), change.clone());
        }
        send(&mut link, ms(at), 0..5);
        tags(&run(&mut link, ms(at + 100)))
    };
    assert_eq!(arrived(0, &[]), [0, 0, 1, 3, 3, 4]);
    assert_eq!(arrived(100, &[]), [1, 1, 2, 4, 4], "the sixth and the ninth are lost");
    assert_eq!(arrived(200, &[Change::RestartRandom]), [0, 0, 1, 3, 3, 4]);
    let other = impairment::Policy::by_name("duplicate:100%").unwrap();
    assert_eq!(
        arrived(300, &[Change::Begin(other.clone()), Change::End(EVERY_NTH)]),
        [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    );
    assert_eq!(arrived(400, &[Change::End(other)]), [0, 1, 2, 3, 4]);
    assert_eq!(link.stats().lost_packets, 4);
}

#[test]
fn an_impairment_by_name_draws_what_the_setting_draws() {
    let course = |config: LinkConfig| stream(&mut Link::new(LinkConfig { ..config }, 7), 5000);
    let by_name = |name: &str| {
        course(LinkConfig { impairments: alloc::vec![impairment::Policy::by_name(name).unwrap()], ..line(5) })
    };
    let loss = Loss::GilbertElliott { p: 0.02, r: 0.3, bad_loss: 0.8, good_loss: 0.01 };
    assert_eq!(by_name("gilbert-elliott:2%,30%,80%,1%"), course(LinkConfig { loss, ..line(5) }));
    assert_eq!(by_name("loss:5%"), course(LinkConfig { loss: Loss::Random(0.05), ..line(5) }));
    assert_eq!(by_name("jitter:2ms"), course(LinkConfig { jitter: Jitter::uniform(span(2)), ..line(5) }));
    let reorder = Reordering { probability: 0.1, extra_delay: span(7) };
    assert_eq!(by_name("reorder:10%,7ms"), course(LinkConfig { reorder, ..line(5) }));
    assert_eq!(by_name("duplicate:5%"), course(LinkConfig { duplicate: 0.05, ..line(5) }));
}
