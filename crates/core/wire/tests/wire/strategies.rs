//! Random values in normal form: what the types can hold and a header has room for.

use std::net::IpAddr;

use bytes::Bytes;
use polypath_wire::{
    AddAddr, DataSeq, Datagram, Dss, DssMapping, Ecn, Endpoint, FourTuple, IcmpMessage, IpHeader,
    MAX_OPTIONS_BYTES, MpCapable, MpCapableKeys, MpJoin, MptcpOption, MptcpVersion, Options, Packet, Payload,
    RemoveAddr, ResetReason, SackBlock, SackBlocks, Segment, SeqNumber, TcpFlags, TcpOption, Timestamps,
    Transport, WireDataSeq,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// `cases` cases, the same ones in every run.
pub(crate) fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(0x8684),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn data_seq() -> impl Strategy<Value = WireDataSeq> {
    prop_oneof![
        any::<u32>().prop_map(WireDataSeq::Low),
        any::<u64>().prop_map(|seq| WireDataSeq::Full(DataSeq(seq))),
    ]
}

prop_compose! {
    fn mapping()(
        data_seq in data_seq(), subflow_offset: u32, len: u16, checksum: Option<u16>,
    ) -> DssMapping {
        DssMapping { data_seq, subflow_offset, len, checksum }
    }
}

prop_compose! {
    fn dss()(
        data_ack in option::of(data_seq()), mapping in option::of(mapping()),
        data_fin: bool, control_stream: bool,
    ) -> Dss {
        Dss { data_ack, mapping, data_fin, control_stream }
    }
}

fn capable() -> impl Strategy<Value = MptcpOption> {
    let keys = prop_oneof![
        Just(MpCapableKeys::None),
        any::<u64>().prop_map(MpCapableKeys::Sender),
        any::<(u64, u64)>().prop_map(|(sender, receiver)| MpCapableKeys::Both { sender, receiver }),
        any::<(u64, u64, u16, Option<u16>)>().prop_map(|(sender, receiver, data_len, checksum)| {
            MpCapableKeys::BothWithData { sender, receiver, data_len, checksum }
        }),
        any::<u32>().prop_map(MpCapableKeys::Token),
        any::<(u32, u32)>().prop_map(|(sender, receiver)| MpCapableKeys::Tokens { sender, receiver }),
    ];
    (0..16_u8, any::<u8>(), keys)
        .prop_map(|(version, flags, keys)| MptcpOption::Capable(MpCapable { version, flags, keys }))
}

fn join() -> impl Strategy<Value = MptcpOption> {
    let head = any::<(bool, u8)>();
    prop_oneof![
        (head, any::<(u32, u32)>()).prop_map(|((backup, address_id), (token, nonce))| MpJoin::Syn {
            backup,
            address_id,
            token,
            nonce
        }),
        (head, any::<(u64, u32)>()).prop_map(|((backup, address_id), (truncated_hmac, nonce))| {
            MpJoin::SynAck { backup, address_id, truncated_hmac, nonce }
        }),
        any::<[u8; 20]>().prop_map(|hmac| MpJoin::Ack { hmac }),
        (head, any::<([u8; 16], u32, u32)>()).prop_map(
            |((backup, address_id), (truncated_hmac, nonce, token))| MpJoin::AckWithToken {
                backup,
                address_id,
                truncated_hmac,
                nonce,
                token
            }
        ),
        (head, any::<Option<u32>>()).prop_map(|((backup, address_id), token)| MpJoin::LowOverhead {
            backup,
            address_id,
            token
        }),
    ]
    .prop_map(MptcpOption::Join)
}

fn add_addr() -> impl Strategy<Value = MptcpOption> {
    (any::<(bool, bool, u8, IpAddr, Option<u16>, Option<u64>)>()).prop_map(
        |(is_v0, echo, address_id, addr, port, hmac)| {
            let version = if is_v0 { MptcpVersion::V0 } else { MptcpVersion::V1 };
            let (echo, hmac) = if is_v0 { (false, None) } else { (echo, hmac) };
            MptcpOption::AddAddr(AddAddr { version, echo, address_id, addr, port, hmac })
        },
    )
}

/// Every variant, a repeated DSS included.
pub(crate) fn mptcp_option() -> impl Strategy<Value = MptcpOption> {
    prop_oneof![
        capable(),
        join(),
        dss().prop_map(MptcpOption::Dss),
        add_addr(),
        vec(any::<u8>(), 1..=37).prop_map(|ids| {
            MptcpOption::RemoveAddr(RemoveAddr { address_ids: ids.into_iter().collect() })
        }),
        any::<(bool, Option<u8>)>().prop_map(|(backup, address_id)| MptcpOption::Prio { backup, address_id }),
        any::<u64>().prop_map(|seq| MptcpOption::Fail { data_seq: DataSeq(seq) }),
        any::<u64>().prop_map(|receiver_key| MptcpOption::Fastclose { receiver_key }),
        (0..16_u8, any::<u8>())
            .prop_map(|(flags, reason)| MptcpOption::Reset { flags, reason: ResetReason(reason) }),
        (9..16_u8, 0..16_u8, vec(any::<u8>(), 0..=37)).prop_map(|(subtype, flags, data)| {
            MptcpOption::Unknown { subtype, flags, data: data.into_iter().collect() }
        }),
    ]
}

fn sack(blocks: impl Into<proptest::collection::SizeRange>) -> impl Strategy<Value = SackBlocks> {
    vec(any::<(u32, u32)>(), blocks).prop_map(|blocks| {
        let block = |(start, end)| SackBlock { start: SeqNumber(start), end: SeqNumber(end) };
        blocks.into_iter().map(block).collect()
    })
}

fn timestamps() -> impl Strategy<Value = Timestamps> {
    any::<(u32, u32)>().prop_map(|(value, echo)| Timestamps { value, echo })
}

fn tcp_option() -> impl Strategy<Value = TcpOption> {
    let unknown_kind = any::<u8>().prop_filter("not known", |kind| !matches!(kind, 0..=5 | 8 | 30 | 34));
    prop_oneof![
        2 => any::<u16>().prop_map(TcpOption::Mss),
        2 => any::<u8>().prop_map(TcpOption::WindowScale),
        2 => Just(TcpOption::SackPermitted),
        1 => sack(1..=4).prop_map(TcpOption::Sack),
        1 => timestamps().prop_map(TcpOption::Timestamps),
        1 => prop_oneof![Just(0), 2..=8_usize].prop_flat_map(|half| vec(any::<u8>(), 2 * half))
            .prop_map(|cookie| TcpOption::FastOpen(cookie.into_iter().collect())),
        6 => mptcp_option().prop_map(TcpOption::Mptcp),
        1 => (unknown_kind, vec(any::<u8>(), 0..=38)).prop_map(|(kind, data)| {
            TcpOption::Unknown { kind, data: data.into_iter().collect() }
        }),
    ]
}

/// Options that fit a header.
pub(crate) fn options() -> impl Strategy<Value = Options> {
    let fields = (option::of(timestamps()), sack(0..=3), option::of(dss()));
    (fields, vec(tcp_option(), 0..5)).prop_map(|((timestamps, sack, dss), candidates)| {
        let mut options = Options { timestamps, sack, dss, rest: Vec::new() };
        while options.len_bytes() > MAX_OPTIONS_BYTES {
            options.sack.pop();
        }
        for option in candidates {
            let is_first = match &option {
                TcpOption::Timestamps(_) => options.timestamps.is_none(),
                TcpOption::Sack(_) => options.sack.is_empty(),
                TcpOption::Mptcp(MptcpOption::Dss(_)) => options.dss.is_none(),
                _ => false,
            };
            options.rest.push(option);
            if is_first || options.len_bytes() > MAX_OPTIONS_BYTES {
                options.rest.pop();
            }
        }
        options
    })
}

/// A rope of up to four slices.
pub(crate) fn payload() -> impl Strategy<Value = Payload> {
    vec(vec(any::<u8>(), 0..500), 0..4).prop_map(|slices| {
        let mut payload = Payload::EMPTY;
        for slice in slices {
            payload.push(Bytes::from(slice));
        }
        payload
    })
}

prop_compose! {
    pub(crate) fn segment()(
        ports: (u16, u16), seq: u32, ack: u32, flags: u8, window: u16, urgent: u16,
        options in options(), payload in payload(),
    ) -> Segment {
        let flags = TcpFlags(flags);
        Segment {
            src_port: ports.0,
            dst_port: ports.1,
            seq: SeqNumber(seq),
            ack: SeqNumber(if flags.ack() { ack } else { 0 }),
            flags,
            window,
            urgent,
            options,
            payload,
            segment_size: 0,
        }
    }
}

fn addrs() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    prop_oneof![
        any::<([u8; 4], [u8; 4])>().prop_map(|(src, dst)| (src.into(), dst.into())),
        any::<([u8; 16], [u8; 16])>().prop_map(|(src, dst)| (src.into(), dst.into())),
    ]
}

prop_compose! {
    fn ip_header()(addrs in addrs(), ttl: u8, ecn: u8, dont_fragment: bool) -> IpHeader {
        let (src, dst) = addrs;
        IpHeader { src, dst, ttl, ecn: Ecn::from_bits(ecn), dont_fragment: dont_fragment || src.is_ipv6() }
    }
}

pub(crate) fn tcp_packet() -> impl Strategy<Value = Packet> {
    (ip_header(), segment()).prop_map(|(ip, segment)| Packet { ip, transport: Transport::Tcp(segment) })
}

fn udp_packet() -> impl Strategy<Value = Packet> {
    (ip_header(), any::<(u16, u16)>(), payload()).prop_map(|(ip, (src_port, dst_port), payload)| Packet {
        ip,
        transport: Transport::Udp(Datagram { src_port, dst_port, payload }),
    })
}

fn icmp_packet() -> impl Strategy<Value = Packet> {
    let unreachable_code = prop::sample::select(&[0_u8, 1, 3, 13][..]);
    let message = (any::<(bool, u16, u16, u16, u32)>(), unreachable_code);
    (ip_header(), addrs(), addrs(), message).prop_map(
        |(ip, first, second, ((is_too_big, mtu, local_port, remote_port, seq), code))| {
            let same_family = first.0.is_ipv6() == ip.src.is_ipv6();
            // Of two tries, one often is of the family; if none is, the flow is that of the header reversed.
            let (local, remote) = match (same_family, second.0.is_ipv6() == ip.src.is_ipv6()) {
                (true, _) => first,
                (false, true) => second,
                (false, false) => (ip.dst, ip.src),
            };
            let flow = FourTuple {
                local: Endpoint::new(local, local_port),
                remote: Endpoint::new(remote, remote_port),
            };
            let seq = SeqNumber(seq);
            let message = if is_too_big {
                IcmpMessage::PacketTooBig { mtu, flow, seq }
            } else {
                IcmpMessage::Unreachable { code, flow, seq }
            };
            Packet { ip, transport: Transport::Icmp(message) }
        },
    )
}

pub(crate) fn packet() -> impl Strategy<Value = Packet> {
    prop_oneof![4 => tcp_packet(), 1 => udp_packet(), 1 => icmp_packet()]
}
