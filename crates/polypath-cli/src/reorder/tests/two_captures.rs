//! Two captures: what was sent is found in what came.

use polypath_wire::FourTuple;

use super::captures::{
    Folder, Timed, big_endian_pcap, data, endpoint, forth, pcap, udp, with_identification,
};
use crate::reorder::{Comparing, Outcome, compare};

const COMPARING: Comparing = Comparing { is_translated: false, to: None, window: 64 };

fn look(sent: &[u8], received: &[u8], comparing: Comparing) -> Result<Outcome, String> {
    let folder = Folder::new();
    let paths = [folder.file("sent", sent), folder.file("received", received)];
    let found = compare(&paths[0], &paths[1], comparing);
    found.map_err(|trouble| {
        paths.iter().fold(trouble.to_string(), |line, path| {
            line.replace(&path.display().to_string(), &path.file_name().expect("a name").to_string_lossy())
        })
    })
}

fn packet(number: u64) -> Vec<u8> {
    udp(forth(), &number.to_be_bytes())
}

/// Packets with these numbers, one each millisecond from then on.
fn numbered(from: u64, numbers: &[u64]) -> Vec<Timed> {
    (from..).zip(numbers.iter().map(|number| packet(*number))).collect()
}

#[test]
fn the_order_of_sending_is_that_of_the_sender() {
    let sent = pcap(&numbered(1000, &[11, 17, 13, 19, 12, 18, 14, 15]));
    // RFC 5236 §8: 1, 4, 2, 5, 3, 6, 7, 8, by a clock that is behind.
    let received = pcap(&numbered(3, &[11, 19, 17, 12, 13, 18, 14, 15]));
    let outcome = look(&sent, &received, COMPARING).expect("figures");
    let figures = &outcome.total.figures;
    assert_eq!(figures.reorder_density(), [(-2, 0.125), (-1, 0.125), (0, 0.5), (1, 0.125), (2, 0.125)]);
    assert_eq!(figures.buffer_density(), [(0, 0.625), (1, 0.25), (2, 0.125)]);
    assert_eq!((figures.received, figures.lost, figures.duplicates), (8, Some(0), 0));
    assert_eq!(outcome.flows[0].figures, *figures);
    assert!(outcome.captures.iter().all(|capture| capture.left_out.is_empty()), "{outcome:?}");
}

#[test]
fn losses_copies_and_strangers_are_told_apart() {
    let sent = pcap(&numbered(0, &[1, 2, 3, 4, 5, 6, 7, 8]));
    let received = pcap(&numbered(9, &[2, 99, 4, 4, 3, 7]));
    let outcome = look(&sent, &received, COMPARING).expect("figures");
    let figures = &outcome.total.figures;
    assert_eq!((figures.received, figures.lost, figures.duplicates, figures.reordered), (4, Some(2), 1, 1));
    let [sent, received] = &outcome.captures[..] else { panic!("two captures") };
    assert_eq!(sent.left_out["sent before the first that came"], 1);
    assert_eq!(sent.left_out["sent behind the last that came"], 1);
    assert_eq!(received.left_out["not in the capture of the sender"], 1);
}

/// Each end's clock shows another time, and each end captures what it sends and what it gets.
#[test]
fn what_goes_the_other_way_is_left_out_whatever_the_clocks_show() {
    for offset in [0, 5_000] {
        let (mut at_sender, mut at_receiver) = (Vec::new(), Vec::new());
        for number in 0..4_u64 {
            let millis = 1000 + number * 100;
            let (there, back) = (packet(number), udp(forth().reversed(), &number.to_be_bytes()));
            at_sender.extend([(millis, there.clone()), (millis + 80, back.clone())]);
            at_receiver.extend([(millis + 40 + offset, there), (millis + 40 + offset, back)]);
        }
        let outcome = look(&pcap(&at_sender), &pcap(&at_receiver), COMPARING).expect("figures");
        assert_eq!((outcome.flows.len(), outcome.total.figures.received), (1, 4), "{offset}");
        let flow = outcome.flows[0].flow.expect("a flow");
        assert_eq!(flow.to.to_string(), "192.0.2.2:80");
        assert_eq!(outcome.captures[0].left_out["on the way to the sender"], 4);
        // The other way round, the other flow is the one that came.
        let outcome = look(&pcap(&at_receiver), &pcap(&at_sender), COMPARING).expect("figures");
        assert_eq!(outcome.flows[0].flow.expect("a flow").to.to_string(), "192.0.2.1:5001");
    }
}

/// A sender with two addresses sends packets by turns: each flow is in order, and both together are not.
#[test]
fn flows_of_two_paths_are_one_stream_together() {
    let path = |number: u64| {
        let flow = FourTuple { local: endpoint(1 + 6 * (number % 2) as u8, 9), ..forth() };
        udp(flow, &number.to_be_bytes())
    };
    let order =
        |numbers: &[u64]| pcap(&(0..).zip(numbers.iter().map(|number| path(*number))).collect::<Vec<_>>());
    let outcome = look(&order(&[1, 2, 3, 4, 5, 6]), &order(&[2, 1, 4, 3, 6, 5]), COMPARING).expect("figures");
    assert!(outcome.total_is_one_stream);
    assert_eq!((outcome.total.figures.reordered, outcome.total.figures.received), (3, 6));
    assert_eq!(outcome.flows.len(), 2);
    assert!(outcome.flows.iter().all(|flow| flow.figures.reordered == 0 && flow.figures.lost == Some(0)));
}

#[test]
fn packets_that_are_alike_count_as_in_order_and_it_is_said() {
    let alike = |count| vec![(1, udp(forth(), b"ping")); count];
    let outcome = look(&pcap(&alike(3)), &pcap(&alike(4)), COMPARING).expect("figures");
    let figures = &outcome.total.figures;
    assert_eq!((figures.received, figures.reordered, figures.duplicates), (3, 0, 1));
    assert!(outcome.notes[0].contains("like others that were sent"), "{:?}", outcome.notes);
    let told = |count: u16| {
        (0..count).map(|id| (1, with_identification(udp(forth(), b"ping"), id + 1))).collect::<Vec<Timed>>()
    };
    assert!(look(&pcap(&told(3)), &pcap(&told(3)), COMPARING).expect("figures").notes.is_empty());
}

#[test]
fn captures_that_keep_less_are_compared_by_what_both_have() {
    let packets: Vec<Timed> = [0, 1, 2].map(|at| (at, data(forth(), at as u32 * 1000, 1000, Some(7)))).into();
    let outcome = look(&pcap(&packets), &big_endian_pcap(&packets, 96), COMPARING).expect("figures");
    assert_eq!(outcome.total.figures.received, 3);
}

#[test]
fn translated_packets_are_found_when_that_is_said() {
    let translated = FourTuple { local: endpoint(77, 40_000), ..forth() };
    let pair = |number: u64| (packet(number), udp(translated, &number.to_be_bytes()));
    let segment = |at: u32| (data(forth(), at, 100, Some(1)), data(translated, at, 100, Some(1)));
    let (sent, received): (Vec<_>, Vec<_>) = [pair(1), pair(2), segment(5), segment(105)]
        .map(|(one, other)| ((1, one), (2, other)))
        .into_iter()
        .unzip();
    let line = look(&pcap(&sent), &pcap(&received), COMPARING).expect_err("they are others");
    assert!(line.starts_with("no packet of received is in sent; expected"), "{line}");
    assert!(line.contains("--translated"), "{line}");
    let comparing = Comparing { is_translated: true, ..COMPARING };
    let outcome = look(&pcap(&sent), &pcap(&received), comparing).expect("figures");
    assert_eq!((outcome.total.figures.received, outcome.flows.len()), (4, 2));
}
