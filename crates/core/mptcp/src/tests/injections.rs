//! One forged segment between two hosts that are silent: how many packets it causes, whatever it is.

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::net::{IpAddr, Ipv4Addr};
use std::vec;

use polypath_units::Duration;
use polypath_wire::{
    AddAddr, DataSeq, Dss, DssMapping, MptcpOption, MptcpVersion, Packet, ResetReason, Segment, TcpFlags,
    TcpOption, WireDataSeq,
};

use super::network::{Network, Way, segment, segment_mut};
use super::{MINUTE, config, pattern};
use crate::ConnectionConfig;

/// Most packets of both hosts together after one injection. A FIN that is never acknowledged is sent sixteen times, and each may
/// be answered; a subflow that is reset may be opened again.
const MOST_PACKETS: usize = 64;

/// The last packet that each end sent over the first path.
type Last = Rc<RefCell<[Option<Packet>; 2]>>;

fn silent_hosts(config: ConnectionConfig, paths: &[u64]) -> (Network, Last) {
    let mut network = Network::new(paths, config.clone(), config, 5);
    let last = Last::default();
    let seen = last.clone();
    network.meddle = Box::new(move |way, packet| {
        let addr = if way == Way::ToServer { packet.ip.src } else { packet.ip.dst };
        if addr == super::network::client_addr(0) {
            seen.borrow_mut()[way as usize] = Some(packet.clone());
        }
        vec![packet]
    });
    let client = network.connect();
    network.client.send(client, pattern(0, 3000).into()).expect("it is open");
    network.run_until(network.now + Duration::from_secs(2));
    let server = network.accepted();
    network.server.send(server, pattern(0, 3000).into()).expect("it is open");
    network.run_until(network.now + MINUTE);
    (network, last)
}

/// What one forged segment does to silent hosts; `forge` gets a segment that is exactly what its receiver expects.
fn packets_after(
    config: &ConnectionConfig,
    paths: &[u64],
    way: Way,
    forge: &dyn Fn(&mut Segment),
) -> (usize, Network) {
    let (mut network, last) = silent_hosts(config.clone(), paths);
    let mut forged = last.borrow()[way as usize].clone().expect("both have sent");
    let expected = segment_mut(&mut forged);
    expected.seq = expected.seq_end();
    expected.payload = Vec::new().into();
    expected.flags = TcpFlags::ACK;
    expected.options.dss = None;
    expected.options.rest.clear();
    expected.options.sack.clear();
    let back = last.borrow()[1 - way as usize].clone().expect("both have sent");
    expected.ack = segment(&back).seq_end();
    forge(expected);
    let before = network.log.len();
    match way {
        Way::ToServer => network.server.handle_packet(network.now, forged),
        Way::ToClient => network.client.handle_packet(network.now, forged),
    }
    network.run_until(network.now + MINUTE * 30);
    let count = network.log.len() - before;
    // And then there is silence.
    let end = network.log.len();
    network.run_until(network.now + MINUTE * 30);
    assert_eq!(network.log.len(), end, "it never ends\n{}", network.log[before..].join("\n"));
    (count, network)
}

fn modes() -> [ConnectionConfig; 3] {
    let plain = ConnectionConfig { mptcp: false, ..ConnectionConfig::default() };
    [config(MptcpVersion::V0, true), config(MptcpVersion::V1, false), plain]
}

#[track_caller]
fn assert_few(config: &ConnectionConfig, paths: &[u64], what: &str, forge: &dyn Fn(&mut Segment)) -> usize {
    let mut most = 0;
    for way in [Way::ToServer, Way::ToClient] {
        let (count, network) = packets_after(config, paths, way, forge);
        let log = || network.log[network.log.len() - count..].join("\n");
        assert!(count <= MOST_PACKETS, "{count} packets after {what} {way:?}\n{}", log());
        most = most.max(count);
    }
    most
}

#[test]
fn any_flags_anywhere_cause_few_packets() {
    let flags = [0x10u8, 0x11, 0x01, 0x02, 0x12, 0x04, 0x14, 0x00, 0x3f];
    let seqs = [0i32, 1, -1, 700, -700, 1 << 20, 1 << 30];
    let acks = [0i32, 1, -1, 5000, -100_000_000];
    for config in modes() {
        for flags in flags {
            for seq in seqs {
                for ack in acks {
                    for len in [0, 100] {
                        let forge = |segment: &mut Segment| {
                            segment.flags = TcpFlags(flags);
                            segment.seq.0 = segment.seq.0.wrapping_add_signed(seq);
                            segment.ack.0 = segment.ack.0.wrapping_add_signed(ack);
                            segment.payload = pattern(0, len).into();
                        };
                        let what = std::format!("flags {flags:#x}, seq {seq}, ack {ack}, {len} bytes");
                        assert_few(&config, &[10], &what, &forge);
                    }
                }
            }
        }
    }
}

fn options() -> Vec<(&'static str, MptcpOption)> {
    let dss = |data_fin, mapping: Option<(u64, u16)>, data_ack: Option<u64>| {
        let mapping = mapping.map(|(seq, len)| DssMapping {
            data_seq: WireDataSeq::Full(DataSeq(seq)),
            subflow_offset: 3001,
            len,
            checksum: None,
        });
        let data_ack = data_ack.map(|ack| WireDataSeq::Low(ack as u32));
        MptcpOption::Dss(Dss { data_ack, mapping, data_fin, ..Dss::default() })
    };
    let add = |addr: [u8; 4]| {
        MptcpOption::AddAddr(AddAddr {
            version: MptcpVersion::V1,
            echo: false,
            address_id: 9,
            addr: IpAddr::V4(Ipv4Addr::from(addr)),
            port: None,
            hmac: Some(7),
        })
    };
    vec![
        ("DATA_ACK", dss(false, None, Some(12_345))),
        ("DATA_FIN", dss(true, Some((12_345, 1)), None)),
        ("mapping", dss(false, Some((12_345, 100)), None)),
        ("infinite mapping", dss(false, Some((12_345, 0)), None)),
        ("ADD_ADDR", add([10, 0, 0, 9])),
        ("MP_PRIO", MptcpOption::Prio { backup: true, address_id: None }),
        ("MP_FAIL", MptcpOption::Fail { data_seq: DataSeq(12_345) }),
        ("MP_FASTCLOSE", MptcpOption::Fastclose { receiver_key: 5 }),
        ("MP_TCPRST", MptcpOption::Reset { flags: 0, reason: ResetReason::MIDDLEBOX }),
    ]
}

#[test]
fn any_option_causes_few_packets() {
    for config in modes() {
        for paths in [&[10][..], &[10, 25]] {
            for (name, option) in options() {
                for flags in [0x10u8, 0x11, 0x14] {
                    for (seq, len) in [(0, 0), (0, 100), (-700, 0), (-700, 100), (1 << 20, 0)] {
                        let forge = |segment: &mut Segment| {
                            segment.flags = TcpFlags(flags);
                            segment.seq.0 = segment.seq.0.wrapping_add_signed(seq);
                            segment.payload = pattern(0, len).into();
                            match &option {
                                MptcpOption::Dss(dss) => segment.options.dss = Some(*dss),
                                other => segment.options.rest.push(TcpOption::Mptcp(other.clone())),
                            }
                        };
                        let what = std::format!("{name}, flags {flags:#x}, seq {seq}, {len} bytes");
                        assert_few(&config, paths, &what, &forge);
                    }
                }
            }
        }
    }
}
