//! Forms of captures, and what is wrong with some.

use super::captures::{Folder, Timed, big_endian_pcap, block, data, forth, pcap, pcapng};
use crate::reorder::{Numbers, Outcome, examine};

fn packets() -> Vec<Timed> {
    [0, 2, 1].into_iter().zip(1..).map(|(at, millis)| (millis, data(forth(), at * 100, 100, None))).collect()
}

fn look(capture: &[u8]) -> Result<Outcome, String> {
    let folder = Folder::new();
    let path = folder.file("capture", capture);
    examine(&path, Numbers::Tcp, None, 64)
        .map_err(|trouble| trouble.to_string().replace(&path.display().to_string(), "FILE"))
}

fn both_ways(packets: &[Timed]) -> Vec<(u64, Vec<u8>, bool)> {
    packets.iter().map(|(at, packet)| (*at, packet.clone(), false)).collect()
}

#[test]
fn all_forms_of_captures_say_the_same() {
    let packets = packets();
    let late_ms = |outcome: &Outcome| outcome.total.figures.late_time().map(|late| late.greatest * 1e3);
    for (form, capture) in [
        ("pcap", pcap(&packets)),
        // Headers of 20 and 20 bytes, and one more.
        ("pcap", big_endian_pcap(&packets, 41)),
        ("pcapng", pcapng(&both_ways(&packets))),
    ] {
        let outcome = look(&capture).expect("figures");
        let figures = &outcome.total.figures;
        assert_eq!((outcome.captures[0].format, outcome.captures[0].packets), (form, 3));
        assert_eq!((figures.received, figures.reordered, late_ms(&outcome)), (3, 1, Some(1.0)));
        assert_eq!((outcome.captures[0].broken.as_deref(), outcome.notes.len()), (None, 1));
    }
}

#[test]
fn a_packet_without_a_time_is_said() {
    let mut capture = pcapng(&both_ways(&packets()));
    let packet = data(forth(), 300, 100, None);
    capture.extend(block(3, &[&(packet.len() as u32).to_le_bytes()[..], &packet].concat()));
    // The block that packets once had.
    capture.extend(block(2, &[0; 20]));
    let outcome = look(&capture).expect("figures");
    assert_eq!(outcome.total.figures.received, 4);
    let notes = outcome.notes.join(" ");
    assert!(
        notes.contains("1 packets of") && notes.contains("no time") && notes.contains("obsolete"),
        "{notes}"
    );
}

/// Secrets of TLS, and what programs put there themselves.
#[test]
fn a_block_of_some_megabytes_between_packets_is_passed_over() {
    let mut capture = pcapng(&both_ways(&packets()));
    let rest = capture.split_off(capture.len() - 184);
    capture.extend(block(0x0bad, &vec![7; 3_000_000]));
    capture.extend(rest);
    let outcome = look(&capture).expect("figures");
    assert_eq!((outcome.total.figures.received, outcome.captures[0].broken.as_deref()), (3, None));
}

#[test]
fn a_capture_that_is_cut_off_says_where() {
    for capture in [pcap(&packets()), pcapng(&both_ways(&packets()))] {
        for missing in [1, 30, 139] {
            let outcome = look(&capture[..capture.len() - missing]).expect("figures of what is there");
            assert_eq!(outcome.total.figures.received, 2, "{missing}");
            let broken = outcome.captures[0].broken.as_deref();
            assert_eq!(broken, Some("cut off behind packet 2"), "{missing}");
        }
    }
    let line = look(&pcap(&packets())[..30]).expect_err("nothing is there");
    assert_eq!(line, "FILE has no packets, and is cut off behind packet 0");
}

#[test]
fn what_is_damaged_is_read_up_to_there() {
    let whole = pcapng(&both_ways(&packets()));
    let mut without_end = whole.clone();
    let last = without_end.len();
    without_end[last - 1] ^= 1;
    let mut no_interface = whole.clone();
    no_interface.extend(block(6, &[9, 0, 0, 0].repeat(8)));
    let mut no_length = whole;
    no_length.extend([6, 0, 0, 0, 3, 0, 0, 0].repeat(8));
    for (capture, packets) in [(without_end, 2), (no_interface, 3), (no_length, 3)] {
        let outcome = look(&capture).expect("figures of what is there");
        let broken = outcome.captures[0].broken.clone();
        assert_eq!(broken, Some(format!("damaged behind packet {packets}")));
        assert_eq!(outcome.total.figures.received, packets);
    }
    // A packet of 4 GB keeps nobody waiting, and takes no memory.
    let mut huge = pcap(&packets());
    huge.extend([0xff; 64]);
    assert_eq!(look(&huge).expect("figures").captures[0].broken.as_deref(), Some("cut off behind packet 3"));
}

#[test]
fn what_is_no_capture_is_one_line() {
    let said = |bytes: &[u8]| look(bytes).expect_err("no capture");
    assert_eq!(said(b""), "FILE: is empty; expected a capture (pcapng or pcap)");
    let text = said(b"root:x:0:0:root:/root:/bin/bash\n");
    assert_eq!(text, "FILE: is no capture; expected pcapng or pcap, such as tcpdump -w writes");
    assert!(said(b"\x1f\x8b\x08 and more").contains("is compressed"));
    assert_eq!(said(&[0x0a, 0x0d, 0x0d, 0x0a]), text, "a head alone");
}
