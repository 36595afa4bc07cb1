//! Data with mappings: what an extension may rely on.

use std::vec::Vec;

use polypath_units::{Duration, Instant};
use polypath_wire::{SackBlock, Segment, TcpFlags, TcpOption, Transport};

use super::super::{Connection, State};
use super::pair::{pattern, setup};
use crate::{Config, Extension, OptionSpace, Outgoing};

/// The mapping that only its first segment carries.
const ONCE: u16 = 100;

/// Remembers what it was told of each segment.
#[derive(Default)]
struct Recorder {
    sent: Vec<(Option<u16>, usize)>,
}

impl Extension for Recorder {
    type Mapping = u16;

    fn data_option_bytes(&self, mapping: &u16, is_start: bool) -> usize {
        if *mapping == ONCE && !is_start { 0 } else { 20 }
    }

    fn write_options(&mut self, segment: &Outgoing<u16>, _space: &mut OptionSpace<'_>) {
        self.sent.push((segment.mapping, segment.payload_len_bytes));
    }
}

fn established(config: &Config) -> (Connection<u16>, Recorder, Instant) {
    let now = Instant::from_secs(1);
    let mut ext = Recorder::default();
    let mut tcp = Connection::<u16>::connect(now, setup(config, true, 5));
    while tcp.poll_transmit(now, &mut ext).is_some() {}
    let mut syn_ack =
        Segment { flags: TcpFlags(0x12), ack: tcp.send.wire(1), window: 60_000, ..Segment::default() };
    syn_ack.options.rest.push(TcpOption::SackPermitted);
    syn_ack.options.rest.push(TcpOption::Mss(1460));
    tcp.handle_segment(now, &mut syn_ack, &mut ext);
    assert_eq!(tcp.state(), State::Established);
    while tcp.poll_transmit(now, &mut ext).is_some() {}
    ext.sent.clear();
    (tcp, ext, now)
}

/// Payloads that leave, as `(offset, bytes)`.
fn drain(tcp: &mut Connection<u16>, ext: &mut Recorder, now: Instant) -> Vec<(u64, Vec<u8>)> {
    let mut out = Vec::new();
    while let Some(packet) = tcp.poll_transmit(now, ext) {
        let Transport::Tcp(segment) = packet.transport else { panic!("TCP") };
        let offset = segment.seq.diff(tcp.isn().add(1));
        out.push((offset as u64, segment.payload.to_vec()));
    }
    out
}

fn acknowledge(
    tcp: &mut Connection<u16>,
    ext: &mut Recorder,
    now: Instant,
    until: u64,
    blocks: &[(u64, u64)],
) {
    let mut ack = Segment {
        flags: TcpFlags::ACK,
        seq: tcp.receive.wire_ack(),
        ack: tcp.send.wire(until + 1),
        window: 60_000,
        ..Segment::default()
    };
    for (start, end) in blocks {
        let (start, end) = (tcp.send.wire(start + 1), tcp.send.wire(end + 1));
        ack.options.sack.push(SackBlock { start, end });
    }
    assert!(tcp.handle_segment(now, &mut ack, ext).is_accepted());
    tcp.check_invariants();
}

#[test]
fn a_segment_holds_one_mapping_also_when_it_is_sent_again() {
    for aggregate in [0, 65_000] {
        let config = Config { pacing: false, max_aggregate_bytes: aggregate, ..Config::default() };
        let (mut tcp, mut ext, now) = established(&config);
        for id in 0..6 {
            tcp.enqueue(pattern(usize::from(id) * 700, 700).into(), id);
        }
        let first = drain(&mut tcp, &mut ext, now);
        assert_eq!(first.len(), 6);
        assert_eq!(ext.sent, (0..6).map(|id| (Some(id), 700)).collect::<Vec<_>>());
        // What was selectively acknowledged became one piece; then the receiver forgets, and everything comes again.
        let later = now + Duration::from_millis(20);
        acknowledge(&mut tcp, &mut ext, later, 0, &[(2100, 4200)]);
        acknowledge(&mut tcp, &mut ext, later, 0, &[(700, 4200)]);
        ext.sent.clear();
        let mut again: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut at = later;
        let mut until = 0;
        while until < 4200 {
            let more = drain(&mut tcp, &mut ext, at);
            if more.is_empty() {
                at = tcp.poll_timeout().expect("something is in flight").max(at);
                tcp.handle_timeout(at, &mut ext);
                continue;
            }
            again.extend(more);
            at += Duration::from_millis(5);
            // What came again without a gap.
            while let Some((offset, bytes)) =
                again.iter().rfind(|(offset, bytes)| *offset <= until && until < offset + bytes.len() as u64)
            {
                until = offset + bytes.len() as u64;
            }
            acknowledge(&mut tcp, &mut ext, at, until, &[]);
        }
        for ((offset, bytes), (mapping, len)) in again.iter().zip(&ext.sent) {
            assert_eq!((*offset / 700) as u16, mapping.expect("data has a mapping"));
            assert!(*len <= 700 && offset % 700 + *len as u64 <= 700);
            assert_eq!(*bytes, pattern(*offset as usize, *len));
        }
        assert_eq!(tcp.acked_offset(), 4200);
        let timeouts = tcp.info().timeouts.expect("our own stack tells");
        assert!(timeouts <= 1, "{timeouts} timeouts: the books told of bytes that did not leave");
    }
}

/// Where only the beginning of a mapping needs room, what lies behind it uses that, whenever it leaves.
#[test]
fn the_size_of_a_segment_depends_on_where_it_lies() {
    for aggregate in [0, 65_000] {
        let config = Config { pacing: false, max_aggregate_bytes: aggregate, ..Config::default() };
        let (mut tcp, mut ext, now) = established(&config);
        tcp.enqueue(pattern(0, 1440 + 3 * 1460).into(), ONCE);
        let first: Vec<_> = drain(&mut tcp, &mut ext, now).iter().map(|(_, bytes)| bytes.len()).collect();
        let one_by_one = [1440, 1460, 1460, 1460];
        assert_eq!(first, if aggregate == 0 { &one_by_one[..] } else { &[1440, 4380] });
        // Nothing arrived: all of it goes out again after timeouts, segment by segment.
        let (mut again, mut until, mut at) = (Vec::new(), 0, now);
        while until < 5820 {
            at = tcp.poll_timeout().expect("something is in flight").max(at);
            tcp.handle_timeout(at, &mut ext);
            for (offset, bytes) in drain(&mut tcp, &mut ext, at) {
                if offset == until {
                    again.push(bytes.len());
                    until += bytes.len() as u64;
                }
            }
            acknowledge(&mut tcp, &mut ext, at + Duration::from_millis(10), until, &[]);
        }
        assert_eq!(again, one_by_one);
    }
}

#[test]
fn what_is_not_acknowledged_can_be_had_for_reinjection() {
    let (mut tcp, mut ext, now) = established(&Config::default());
    for id in 0..4 {
        tcp.enqueue(pattern(usize::from(id) * 1000, 1000).into(), id);
    }
    drain(&mut tcp, &mut ext, now);
    acknowledge(&mut tcp, &mut ext, now + Duration::from_millis(20), 1500, &[]);
    let left: Vec<_> = tcp.mappings().map(|(start, len, id, data)| (start, len, id, data.len())).collect();
    assert_eq!(left, [(1000, 1000, 1, 1000), (2000, 1000, 2, 1000), (3000, 1000, 3, 1000)]);
    assert_eq!(tcp.peer_window_end_offset(), 1500 + 60_000);
}

#[test]
fn an_idle_connection_is_small() {
    assert!(size_of::<Connection<()>>() <= 1200, "{}", size_of::<Connection<()>>());
    assert_eq!(size_of::<Connection<()>>(), size_of::<Connection<u16>>());
    let config = Config { max_aggregate_bytes: 0, pacing: false, ..Config::default() };
    let (mut tcp, mut ext, now) = established(&config);
    let mut at = now;
    tcp.enqueue(pattern(0, 60_000).into(), 1);
    let mut most = 0;
    while tcp.acked_offset() < 60_000 {
        drain(&mut tcp, &mut ext, at);
        most = most.max(tcp.send.board().capacity());
        at += Duration::from_millis(10);
        let sent = tcp.sent_offset();
        acknowledge(&mut tcp, &mut ext, at, sent, &[]);
    }
    assert!(most > 16);
    assert!(tcp.send.board().capacity() <= 16);
}

/// Where no whole segment has room beside a short one, the window is what holds the sender back, and grows.
#[test]
fn a_window_of_one_segment_grows_by_a_shorter_one() {
    let config = Config { pacing: false, no_delay: true, ..Config::default() };
    let (mut tcp, mut ext, now) = established(&config);
    tcp.controller.set_window(1460, None);
    tcp.enqueue(pattern(0, 200).into(), 1);
    drain(&mut tcp, &mut ext, now);
    let sent = tcp.sent_offset();
    acknowledge(&mut tcp, &mut ext, now + Duration::from_millis(10), sent, &[]);
    assert_eq!((sent, tcp.window_bytes()), (200, 1660));
}

/// A window of one segment, or what is left of it, is not kept for a segment that no mapping fills.
#[test]
fn short_mappings_fill_a_window_of_one_segment() {
    let config = Config { pacing: false, no_delay: true, ..Config::default() };
    let (mut tcp, mut ext, now) = established(&config);
    tcp.controller.set_window(1460, None);
    for id in 0..20 {
        tcp.enqueue(pattern(usize::from(id) * 200, 200).into(), id);
    }
    assert_eq!(drain(&mut tcp, &mut ext, now).len(), 7);
}
