//! One capture: the examples of RFC 4737 and RFC 5236, in each kind of numbers.

use std::path::Path;

use polypath_wire::TcpFlags;

use super::captures::{Folder, Timed, control, data, forth, pcap, pcapng, udp, with_identification};
use crate::reorder::{FlowFigures, Numbers, Outcome, examine};

const WINDOW: u32 = 64;

/// The example of RFC 4737 §7.1: numbers and times of arrival.
const RFC_4737: [(u32, u64); 10] =
    [(1, 68), (2, 88), (3, 108), (5, 148), (6, 168), (7, 188), (8, 208), (4, 210), (9, 228), (10, 248)];
/// That of RFC 5236 §8, tables 1 and 3.
const RFC_5236: [u32; 8] = [1, 4, 2, 5, 3, 6, 7, 8];

fn look(capture: &[u8], numbers: &str) -> Result<Outcome, String> {
    let folder = Folder::new();
    let path = folder.file("received.pcap", capture);
    let numbers = numbers.parse::<Numbers>().expect("a place of numbers");
    let found = examine(&path, numbers, None, WINDOW);
    found.map_err(|trouble| trouble.to_string().replace(&path.display().to_string(), "FILE"))
}

/// A packet with a number in it, by where that is.
fn numbered(kind: &str, number: u32) -> Vec<u8> {
    let [.., high, low] = number.to_be_bytes();
    match kind {
        "tcp" => data(forth(), number * 100, 100, None),
        "ip-id" => with_identification(udp(forth(), b"payload"), number as u16),
        "rtp" => udp(forth(), &[0x80, 96, high, low, 0, 0, 0, 0]),
        _ => udp(forth(), &[&[0xff; 8], &number.to_be_bytes()[..], b"more"].concat()),
    }
}

const KINDS: [&str; 4] = ["tcp", "ip-id", "rtp", "payload-u32@8"];

#[test]
fn the_example_of_rfc_4737_in_each_kind_of_numbers() {
    for kind in KINDS {
        let packets: Vec<Timed> =
            RFC_4737.iter().map(|(number, at)| (*at, numbered(kind, *number))).collect();
        let outcome = look(&pcap(&packets), kind).expect("figures");
        let figures = &outcome.total.figures;
        assert_eq!((figures.received, figures.reordered, figures.duplicates), (10, 1, 0), "{kind}");
        assert_eq!(figures.reordered_ratio(), 0.1);
        assert_eq!(figures.extent().map(|extent| extent.greatest), Some(4.0), "{kind}");
        assert_eq!(figures.late_time().map(|late| late.greatest), Some(0.062), "{kind}");
        assert_eq!(figures.n_reordered, [1; 4], "{kind}");
        assert_eq!(figures.mean_free_run(), Some(9.0));
        let lost = if kind == "ip-id" { None } else { Some(0) };
        assert_eq!((figures.lost, outcome.flows.len()), (lost, 1), "{kind}");
        assert_eq!(outcome.flows[0].figures, *figures, "one flow is all");
    }
}

#[test]
fn the_example_of_rfc_5236_in_each_kind_of_numbers() {
    for kind in KINDS {
        let packets: Vec<Timed> = (0..).zip(RFC_5236.map(|number| numbered(kind, number))).collect();
        let outcome = look(&pcap(&packets), kind).expect("figures");
        let figures = &outcome.total.figures;
        let density = [(-2, 0.125), (-1, 0.125), (0, 0.5), (1, 0.125), (2, 0.125)];
        assert_eq!(figures.reorder_density(), density, "{kind}");
        assert!((figures.reorder_entropy() - (0.5 * 2_f64.ln() + 0.5 * 8_f64.ln())).abs() < 1e-12);
        assert_eq!(figures.buffer_density(), [(0, 0.625), (1, 0.25), (2, 0.125)], "{kind}");
        assert_eq!(figures.buffer_packets().map(|waiting| waiting.mean), Some(0.5));
    }
}

#[test]
fn losses_and_copies_are_counted() {
    for kind in ["tcp", "rtp", "payload-u32@8"] {
        let packets: Vec<Timed> = (0..).zip([1, 2, 5, 5, 6].map(|number| numbered(kind, number))).collect();
        let outcome = look(&pcap(&packets), kind).expect("figures");
        let figures = &outcome.total.figures;
        assert_eq!((figures.received, figures.lost, figures.duplicates), (4, Some(2), 1), "{kind}");
        assert_eq!((figures.reordered, figures.reorder_entropy()), (0, 0.0), "{kind}");
    }
}

/// A segment from host 1 after a handshake that took 40 ms: where it begins, its sender's clock, and when it came.
fn conversation(segments: &[(u32, Option<u32>, u64)]) -> Vec<u8> {
    let mut packets = vec![
        (0, control(forth(), 999, TcpFlags::SYN), false),
        (0, control(forth().reversed(), 7, TcpFlags::SYN.with(TcpFlags::ACK)), true),
        (40, control(forth(), 1000, TcpFlags::ACK), false),
    ];
    for (at, clock, millis) in segments {
        packets.push((*millis, data(forth(), 1000 + at * 100, 100, *clock), false));
        packets.push((*millis, data(forth().reversed(), 8, 100, None), true));
    }
    pcapng(&packets)
}

#[test]
fn what_was_sent_again_is_told_from_what_was_late() {
    let clocks =
        [(0, Some(10), 50), (2, Some(10), 51), (3, Some(11), 52), (1, Some(60), 100), (4, Some(61), 101)];
    let found = |segments: &[(u32, Option<u32>, u64)]| {
        let outcome = look(&conversation(segments), "tcp").expect("figures");
        assert_eq!(outcome.flows.len(), 1, "what the host itself sent has not come from anywhere");
        assert_eq!(
            outcome.captures[0].left_out["sent by the host that captured them"],
            segments.len() as u64
        );
        let FlowFigures { figures, retransmitted, undecided, .. } = outcome.total;
        (figures.received, figures.lost, figures.reordered, retransmitted, undecided)
    };
    assert_eq!(
        found(&clocks),
        (4, Some(1), 0, Some(1), Some(0)),
        "its clock is behind that of what came before"
    );
    let late = clocks.map(|(at, clock, millis)| (at, if at == 1 { Some(9) } else { clock }, millis));
    assert_eq!(found(&late), (5, Some(0), 1, Some(0), Some(0)), "its clock is before that");
    let without = clocks.map(|(at, _, millis)| (at, None, millis));
    assert_eq!(found(&without), (4, Some(1), 0, Some(1), Some(1)), "it came a round trip later");
    let soon = without.map(|(at, clock, millis)| (at, clock, if at == 1 { 80 } else { millis }));
    assert_eq!(found(&soon), (5, Some(0), 1, Some(0), Some(0)), "nobody could have asked for it");
}

#[test]
fn a_connection_after_another_with_the_same_ports_is_another_one() {
    let mut packets = Vec::new();
    for first in [5_000_u32, 900_000] {
        packets.push((0, control(forth(), first - 1, TcpFlags::SYN)));
        packets.extend([0, 2, 1].map(|at| (1, data(forth(), first + at * 10, 10, None))));
    }
    let outcome = look(&pcap(&packets), "tcp").expect("figures");
    assert_eq!((outcome.flows.len(), outcome.total.figures.received), (2, 6));
    assert_eq!((outcome.total.figures.reordered, outcome.total.figures.lost), (2, Some(0)));
}

#[test]
fn sequence_numbers_go_on_behind_the_largest() {
    let packets: Vec<Timed> =
        [0, 2, 1, 3].map(|at| (1, data(forth(), (u32::MAX - 150).wrapping_add(at * 100), 100, None))).into();
    let figures = look(&pcap(&packets), "tcp").expect("figures").total.figures;
    assert_eq!((figures.received, figures.reordered, figures.lost), (4, 1, Some(0)));
}

#[test]
fn only_packets_to_an_address_are_looked_at_if_one_is_named() {
    let folder = Folder::new();
    let packets: Vec<Timed> = [forth(), forth().reversed()].map(|flow| (1, data(flow, 1, 10, None))).into();
    let path = folder.file("both.pcap", &pcap(&packets));
    let flows = |to: Option<&str>| {
        let to = to.map(|to| to.parse().expect("an address"));
        examine(&path, Numbers::Tcp, to, WINDOW).expect("figures").flows.len()
    };
    assert_eq!((flows(None), flows(Some("192.0.2.2"))), (2, 1));
}

#[test]
fn what_can_not_be_looked_at_is_one_line() {
    let no_data = pcap(&[(0, udp(forth(), b"x")), (1, control(forth(), 1, TcpFlags::ACK))]);
    let line = look(&no_data, "tcp").expect_err("nothing");
    assert!(line.starts_with("FILE has no packets to look at: 1 of 2 are"), "{line}");
    assert!(
        line.ends_with("expected --sequence for other than TCP, or a second capture, of the sender"),
        "{line}"
    );
    let line = look(&pcap(&[]), "tcp").expect_err("nothing");
    assert_eq!(line, "FILE has no packets");
    let random: Vec<Timed> =
        (0..50_u32).map(|step| (1, udp(forth(), &step.wrapping_mul(2_654_435_761).to_be_bytes()))).collect();
    let line = look(&pcap(&random), "payload-u32@0").expect_err("nothing");
    assert!(line.contains("no packets whose numbers count up by one"), "{line}");
    assert!(examine(Path::new("/nonexistent"), Numbers::Tcp, None, WINDOW).is_err());
}
