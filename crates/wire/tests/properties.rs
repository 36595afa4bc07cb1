//! Parse ∘ emit is the identity, and no bytes make parsing panic.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::Bytes;
use polypath_wire::{
    AddAddr, DataSeq, Datagram, Dss, DssMapping, Endpoint, FourTuple, IcmpMessage, IpHeader, MpCapable,
    MpCapableKeys, MpJoin, MptcpOption, MptcpVersion, Options, Packet, RemoveAddr, ResetReason, SackBlock, SackBlocks,
    Segment, SeqNumber, TcpFlags, TcpOption, Timestamps, Transport, WireDataSeq, fuzzing,
};
use proptest::prelude::*;

fn addr() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(|octets| Ipv4Addr::from(octets).into()),
        any::<[u8; 16]>().prop_map(|octets| Ipv6Addr::from(octets).into()),
    ]
}

fn data_seq() -> impl Strategy<Value = WireDataSeq> {
    prop_oneof![
        any::<u32>().prop_map(WireDataSeq::Low),
        any::<u64>().prop_map(|seq| WireDataSeq::Full(DataSeq(seq)))
    ]
}

fn dss() -> impl Strategy<Value = Dss> {
    let mapping = (data_seq(), any::<u32>(), any::<u16>(), any::<Option<u16>>()).prop_map(
        |(data_seq, subflow_offset, len, checksum)| DssMapping { data_seq, subflow_offset, len, checksum },
    );
    (proptest::option::of(data_seq()), proptest::option::of(mapping), any::<bool>()).prop_map(
        |(data_ack, mapping, fin)| Dss { data_ack, mapping, data_fin: fin && mapping.is_some(), ..Dss::default() },
    )
}

fn capable() -> impl Strategy<Value = MptcpOption> {
    let keys = prop_oneof![
        Just(MpCapableKeys::None),
        any::<u64>().prop_map(MpCapableKeys::Sender),
        any::<(u64, u64)>().prop_map(|(sender, receiver)| MpCapableKeys::Both { sender, receiver }),
        any::<(u64, u64, u16, Option<u16>)>().prop_map(|(sender, receiver, data_len, checksum)| {
            MpCapableKeys::BothWithData { sender, receiver, data_len, checksum }
        }),
    ];
    (0u8..2, any::<u8>(), keys)
        .prop_map(|(version, flags, keys)| MptcpOption::Capable(MpCapable { version, flags: flags & !0x40, keys }))
}

fn join() -> impl Strategy<Value = MptcpOption> {
    prop_oneof![
        any::<(bool, u8, u32, u32)>().prop_map(|(backup, address_id, token, nonce)| {
            MptcpOption::Join(MpJoin::Syn { backup, address_id, token, nonce })
        }),
        any::<(bool, u8, u64, u32)>().prop_map(|(backup, address_id, truncated_hmac, nonce)| {
            MptcpOption::Join(MpJoin::SynAck { backup, address_id, truncated_hmac, nonce })
        }),
        any::<[u8; 20]>().prop_map(|hmac| MptcpOption::Join(MpJoin::Ack { hmac })),
    ]
}

fn add_addr() -> impl Strategy<Value = MptcpOption> {
    (any::<bool>(), any::<bool>(), any::<u8>(), addr(), any::<Option<u16>>(), any::<u64>()).prop_map(
        |(v1, echo, address_id, addr, port, hmac)| {
            let version = if v1 { MptcpVersion::V1 } else { MptcpVersion::V0 };
            let echo = v1 && echo;
            let hmac = (v1 && !echo).then_some(hmac);
            MptcpOption::AddAddr(AddAddr { version, echo, address_id, addr, port, hmac })
        },
    )
}

fn mptcp() -> impl Strategy<Value = MptcpOption> {
    prop_oneof![
        capable(),
        join(),
        add_addr(),
        proptest::collection::vec(any::<u8>(), 1..8).prop_map(|ids| {
            MptcpOption::RemoveAddr(RemoveAddr { address_ids: ids.into_iter().collect() })
        }),
        any::<(bool, Option<u8>)>().prop_map(|(backup, address_id)| MptcpOption::Prio { backup, address_id }),
        any::<u64>().prop_map(|seq| MptcpOption::Fail { data_seq: DataSeq(seq) }),
        any::<u64>().prop_map(|receiver_key| MptcpOption::Fastclose { receiver_key }),
        (0u8..16, any::<u8>())
            .prop_map(|(flags, reason)| MptcpOption::Reset { flags, reason: ResetReason(reason) }),
    ]
}

fn tcp_option() -> impl Strategy<Value = TcpOption> {
    prop_oneof![
        any::<u16>().prop_map(TcpOption::Mss),
        (0u8..15).prop_map(TcpOption::WindowScale),
        Just(TcpOption::SackPermitted),
        mptcp().prop_map(TcpOption::Mptcp),
    ]
}

fn timestamps() -> impl Strategy<Value = Timestamps> {
    any::<(u32, u32)>().prop_map(|(value, echo)| Timestamps { value, echo })
}

fn sack() -> impl Strategy<Value = SackBlocks> {
    proptest::collection::vec(any::<(u32, u32)>(), 0..4).prop_map(|blocks| {
        blocks.into_iter().map(|(a, b)| SackBlock { start: SeqNumber(a), end: SeqNumber(b) }).collect()
    })
}

/// Options that fit a header.
fn options() -> impl Strategy<Value = Options> {
    let parts = (
        proptest::option::of(timestamps()),
        sack(),
        proptest::option::of(dss()),
        proptest::collection::vec(tcp_option(), 0..4),
    );
    parts.prop_map(|(timestamps, sack, dss, rest)| {
        let mut all = Options::default();
        let fits = |options: &Options| options.len_bytes() <= polypath_wire::MAX_OPTIONS_BYTES;
        for option in rest {
            let more = Options { rest: [all.rest.clone(), vec![option]].concat(), ..all.clone() };
            if fits(&more) {
                all = more;
            }
        }
        for more in [
            Options { dss, ..all.clone() },
            Options { timestamps, dss, ..all.clone() },
            Options { timestamps, dss, sack, ..all.clone() },
        ] {
            if fits(&more) {
                all = more;
            }
        }
        all
    })
}

fn tuple() -> impl Strategy<Value = FourTuple> {
    let v4 = any::<([u8; 4], u16)>().prop_map(|(a, port)| Endpoint::new(Ipv4Addr::from(a).into(), port));
    let v6 = any::<([u8; 16], u16)>().prop_map(|(a, port)| Endpoint::new(Ipv6Addr::from(a).into(), port));
    prop_oneof![(v4.clone(), v4), (v6.clone(), v6)].prop_map(|(local, remote)| FourTuple { local, remote })
}

fn segment() -> impl Strategy<Value = Segment> {
    let payload = proptest::collection::vec(any::<u8>(), 0..200);
    (any::<(u32, u32, u8, u16, u16)>(), options(), payload).prop_map(
        |((seq, ack, flags, window, urgent), options, payload)| {
            let flags = TcpFlags(flags);
            Segment {
                seq: SeqNumber(seq),
                ack: SeqNumber(if flags.ack() { ack } else { 0 }),
                flags,
                window,
                urgent,
                options,
                payload: payload.into(),
                ..Segment::default()
            }
        },
    )
}

fn packet() -> impl Strategy<Value = Packet> {
    let tcp = (tuple(), segment()).prop_map(|(tuple, segment)| Packet::tcp(tuple, segment));
    let udp = (tuple(), proptest::collection::vec(any::<u8>(), 0..100)).prop_map(|(tuple, payload)| Packet {
        ip: IpHeader::new(tuple.local.addr, tuple.remote.addr),
        transport: Transport::Udp(Datagram {
            src_port: tuple.local.port,
            dst_port: tuple.remote.port,
            payload: payload.into(),
        }),
    });
    let icmp = (tuple(), any::<(u32, u16)>()).prop_map(|(flow, (seq, mtu))| Packet {
        ip: IpHeader::new(flow.remote.addr, flow.local.addr),
        transport: Transport::Icmp(IcmpMessage::PacketTooBig { mtu, flow, seq: SeqNumber(seq) }),
    });
    prop_oneof![4 => tcp, 1 => udp, 1 => icmp]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn packets_survive_the_wire(packet in packet()) {
        let mut bytes = Vec::new();
        packet.emit(&mut bytes);
        prop_assert_eq!(bytes.len(), packet.len_bytes());
        prop_assert_eq!(Packet::parse(Bytes::from(bytes)), Ok(packet));
    }

    #[test]
    fn options_survive_the_wire_and_have_the_length_they_say(options in options()) {
        let mut bytes = Vec::new();
        options.emit(&mut bytes);
        prop_assert_eq!(bytes.len(), options.len_bytes());
        prop_assert_eq!(Options::parse(&bytes), Ok(options));
    }

    #[test]
    fn any_change_of_a_packet_is_survived_and_mostly_noticed(
        packet in packet(), at in any::<prop::sample::Index>(), flip in 1u8..,
    ) {
        let mut bytes = Vec::new();
        packet.emit(&mut bytes);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        fuzzing::packet(&bytes);
        bytes.truncate(at);
        fuzzing::packet(&bytes);
    }
}

/// A short run of the fuzz targets with the same inputs each time: random bytes, and changed packets.
#[test]
fn fuzz_targets_run_for_a_while() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let syn = MptcpOption::Capable(MpCapable { version: 1, flags: 1, keys: MpCapableKeys::None });
    let mut seed = Segment { flags: TcpFlags::SYN, payload: vec![1, 2, 3].into(), ..Segment::default() };
    seed.options.rest = vec![TcpOption::Mss(1460), TcpOption::SackPermitted, TcpOption::Mptcp(syn)];
    seed.options.timestamps = Some(Timestamps { value: 1, echo: 2 });
    let end = |last| Endpoint::new(Ipv4Addr::new(10, 0, 0, last).into(), 80);
    let mut valid = Vec::new();
    Packet::tcp(FourTuple { local: end(1), remote: end(2) }, seed).emit(&mut valid);
    for round in 0..200_000 {
        let mut bytes: Vec<u8> = if round % 2 == 0 {
            (0..next() % 80).map(|_| next() as u8).collect()
        } else {
            let mut changed = valid.clone();
            for _ in 0..1 + next() % 4 {
                let at = next() as usize % changed.len();
                changed[at] = next() as u8;
            }
            changed
        };
        fuzzing::packet(&bytes);
        bytes.truncate(40);
        fuzzing::options(&bytes);
    }
}
