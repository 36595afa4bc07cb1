//! What an end records of a peer over two paths of unequal delay: its paths keep the order, together they do not, and what is handed on does.

mod network;

use std::collections::BTreeMap;

use network::{Network, PathConfig, packet};
use polypath_tunnel::reordering::{Arrival, ArrivalOrder, ReorderedRatio};
use polypath_tunnel::{Record, RecordedStream};
use polypath_units::{Duration, Instant};

/// More than the faster path carries.
const PACKETS: u32 = 6_000;
const SPACING: Duration = Duration::from_micros(500);

fn ratio(records: &[Record], is_wanted: impl Fn(RecordedStream) -> bool) -> (u64, f64) {
    let mut streams = BTreeMap::new();
    for record in records.iter().filter(|record| is_wanted(record.stream)) {
        let (order, ratio): &mut (ArrivalOrder, ReorderedRatio) = streams.entry(record.stream).or_default();
        ratio.handle_arrival(&order.handle_arrival(Arrival::of(record.number.into())));
    }
    let received = streams.values().map(|(order, _)| order.received()).sum();
    let reordered: u64 = streams.values().map(|(_, ratio)| ratio.reordered()).sum();
    (received, reordered as f64 / received as f64)
}

#[test]
fn paths_reorder_together_and_what_is_handed_on_is_in_order() {
    let mut network = Network::new(&[PathConfig::new(20, 5), PathConfig::new(20, 25)]);
    network.run_until(Instant::from_secs(2));
    let peer = network.peers[1];
    assert!(network.ends[1].take_recorded(peer).is_none(), "nobody has asked for it");
    assert!(network.ends[1].start_recording(peer) && !network.ends[1].start_recording(peer));
    for number in 0..PACKETS {
        let at = Instant::from_secs(2) + SPACING.mul_f64(number.into());
        network.send_at(at, 0, packet(1, 2, 1_000, number, 1_400));
    }
    network.run_until(Instant::from_secs(8));

    let taken = network.ends[1].take_recorded(peer).expect("it is recorded");
    let records = &taken.records;
    let (came, of_came) = ratio(records, |stream| matches!(stream, RecordedStream::Came(_)));
    let (left, of_left) = ratio(records, |stream| matches!(stream, RecordedStream::HandedOn(_)));
    let (datagrams, of_paths) = ratio(records, |stream| matches!(stream, RecordedStream::Path { .. }));
    assert_eq!((came, left), (u64::from(PACKETS), u64::from(PACKETS)));
    assert!(datagrams > came && of_paths == 0.0, "{of_paths} of {datagrams} datagrams");
    assert!(of_came > 0.05 && of_left == 0.0, "{of_came}, {of_left}");
    assert_eq!((taken.flows.len(), taken.missed, taken.without_number), (1, 0, 0));
    assert_eq!(taken.flows[0].1.ports, Some((1_000, 9_000)));

    network.ends[1].stop_recording(peer);
    assert!(network.ends[1].take_recorded(peer).is_none());
}
