//! The seeds of the fuzz targets: valid packets and options of every kind, kept as files beside this test.

use std::net::IpAddr;
use std::path::PathBuf;
use std::{env, fs};

use polypath_wire::{
    Datagram, Endpoint, FourTuple, IcmpMessage, IpHeader, Options, Packet, Segment, SeqNumber, TcpFlags,
    Timestamps, Transport,
};

use crate::hex;

/// Options as hexadecimal digits, by name.
const OPTIONS: &[(&str, &str)] = &[
    ("syn", "020405b4 0402080a0102030400000000 01030307 1e040101"),
    ("syn-v0", "020405b4 0402080a0102030400000000 01030307 1e0c00810102030405060708"),
    ("syn-ack", "020405b4 0402080a0102030411121314 01030307 1e0c01010102030405060708"),
    ("third-ack", "0101080a0102030411121314 1e14010101020304050607081112131415161718"),
    ("data-with-capable", "080a0102030411121314 1e16018101020304050607081112131415161718 05a8"),
    (
        "data-with-capable-checksum",
        "0101080a0102030411121314 1e18018101020304050607081112131415161718 05a8beef",
    ),
    ("capable-tokens", "1e0801010102030401010101 1e1001010102030411121314 00000000"),
    ("join-syn", "020405b4 0402080a0102030400000000 01030307 1e0c1105a1a2a3a4b1b2b3b4"),
    ("join-syn-ack", "020405b4 0402080a0102030411121314 1e1010060102030405060708b1b2b3b4"),
    ("join-ack", "0101080a0102030411121314 1e181000303132333435363738393a3b3c3d3e3f40414243"),
    ("join-ack-token", "0101080a0102030411121314 1e1c1108303132333435363738393a3b3c3d3e3f b1b2b3b4a1a2a3a4"),
    ("join-low-overhead", "1e081107010203041e041009"),
    ("dss-short", "080a0102030411121314 1e12200521222324000000010000000205a8"),
    ("dss-full", "080a0102030411121314 1e1c201f0102030405060708111213141516171821222324 3132 4142"),
    ("dss-control", "0101 1e0e20241112131400000001 05a8"),
    ("dss-sack", "0101080a0102030411121314 050a0000000100000002 1e08200101020304 00000000"),
    ("dss-twice", "1e0820010000000101010101 1e08200100000002"),
    ("sack-4", "0101052200000001000000020000000300000004000000050000000600000007000000080000"),
    ("add-addr", "1e1030080a0000010102030405060708 1e0831080a000001 1e0a34080a0000011f90 0000"),
    ("add-addr-v6", "1e1e300820010db80000000000000000000000011f900102030405060708 0000"),
    ("add-addr-v6-v0", "1e16360820010db80000000000000000000000011f90 0000"),
    ("signals", "1e0540010201 1e0351 1e045007 1e0c60000102030405060708 1e048106 000000"),
    ("fastclose", "1e0c70000102030405060708 1e05f3abcd 2202 01"),
    ("fast-open", "220a0001020304050607 2204ffff fd04f989"),
    ("illegal-length", "020405b4 030008"),
];

fn options(name: &str) -> Options {
    let (_, digits) = OPTIONS.iter().find(|(candidate, _)| *candidate == name).expect("a seed of that name");
    Options::parse(&hex(digits)).expect("well-formed")
}

fn flow(is_v6: bool) -> FourTuple {
    let addr = |last: u8| -> IpAddr {
        if is_v6 {
            [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last].into()
        } else {
            [10, 0, 0, last].into()
        }
    };
    FourTuple { local: Endpoint::new(addr(1), 40_000), remote: Endpoint::new(addr(2), 443) }
}

fn packets() -> Vec<(String, Packet)> {
    let mut packets = Vec::new();
    for is_v6 in [false, true] {
        let mut add = |name: &str, packet| {
            packets.push((format!("{name}-{}", if is_v6 { "v6" } else { "v4" }), packet))
        };
        let flow = flow(is_v6);
        let segment = Segment { seq: SeqNumber(100), window: 1000, ..Segment::default() };
        for (name, flags, len) in [
            ("syn", TcpFlags::SYN, 0),
            ("join-syn-ack", TcpFlags::SYN.with(TcpFlags::ACK), 0),
            ("third-ack", TcpFlags::ACK, 0),
            ("dss-full", TcpFlags::ACK.with(TcpFlags::PSH), 100),
            ("dss-sack", TcpFlags::ACK, 0),
            ("fastclose", TcpFlags::RST, 0),
        ] {
            let ack = SeqNumber(if flags.ack() { 200 } else { 0 });
            let payload = vec![0x61; len].into();
            add(
                name,
                Packet::tcp(flow, Segment { flags, ack, options: options(name), payload, ..segment.clone() }),
            );
        }
        let timestamps = Some(Timestamps { value: 7, echo: 8 });
        let options = Options { timestamps, ..Options::default() };
        let fin = TcpFlags::FIN.with(TcpFlags::ACK);
        add("fin", Packet::tcp(flow, Segment { flags: fin, options, ..segment }));
        let ip = IpHeader::new(flow.remote.addr, flow.local.addr);
        let datagram = Datagram { src_port: 53, dst_port: 40_000, payload: b"answer"[..].into() };
        add("udp", Packet { ip, transport: Transport::Udp(datagram) });
        let seq = SeqNumber(100);
        for (name, message) in [
            ("too-big", IcmpMessage::PacketTooBig { mtu: 1400, flow, seq }),
            ("unreachable", IcmpMessage::Unreachable { code: 3, flow, seq }),
        ] {
            add(name, Packet { ip, transport: Transport::Icmp(message) });
        }
    }
    packets
}

/// Folder, file name and content of every seed.
pub(crate) fn seeds(folder: &str) -> Vec<(String, Vec<u8>)> {
    let mut seeds = Vec::new();
    if folder == "options" {
        seeds.extend(OPTIONS.iter().map(|(name, digits)| ((*name).to_owned(), hex(digits))));
    } else {
        for (name, packet) in packets() {
            let mut bytes = Vec::new();
            packet.emit(&mut bytes);
            seeds.push((name, bytes));
        }
    }
    seeds
}

/// With `POLYPATH_WRITE_SEEDS` set, writes the files instead of comparing them.
#[test]
fn the_files_are_what_this_code_makes() {
    for folder in ["packet", "options"] {
        let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "seeds", folder].iter().collect();
        let seeds = seeds(folder);
        if env::var_os("POLYPATH_WRITE_SEEDS").is_some() {
            for (name, bytes) in &seeds {
                fs::write(path.join(name), bytes).unwrap();
            }
        }
        for (name, bytes) in &seeds {
            assert_eq!(fs::read(path.join(name)).as_ref().ok(), Some(bytes), "{folder}/{name}");
        }
        assert_eq!(fs::read_dir(&path).unwrap().count(), seeds.len(), "in {folder}");
    }
}
