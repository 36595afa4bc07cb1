//! Every Multipath TCP option, bit by bit from the figures of RFC 8684 and RFC 6824, and the handshake
//! variants.

use polypath_wire::{
    AddAddr, DataSeq, Dss, DssMapping, MpCapable, MpCapableKeys, MpJoin, MptcpOption, MptcpVersion, Options,
    RemoveAddr, ResetReason, TcpOption, WireDataSeq,
};

use crate::hex;

const KEY_A: u64 = 0x0102_0304_0506_0708;
const KEY_B: u64 = 0x1112_1314_1516_1718;

/// Checks one option in both directions, its printed form, and its length.
#[track_caller]
fn check(digits: &str, option: MptcpOption, text: &str) {
    let bytes = hex(digits);
    let options = match option.clone() {
        MptcpOption::Dss(dss) => Options { dss: Some(dss), ..Options::default() },
        option => Options { rest: vec![TcpOption::Mptcp(option)], ..Options::default() },
    };
    assert_eq!(Options::parse(&bytes).as_ref(), Ok(&options));
    assert_eq!(option.len_bytes(), bytes.len());
    let mut emitted = Vec::new();
    options.emit(&mut emitted);
    assert_eq!(emitted.len(), bytes.len().next_multiple_of(4));
    // Padding, if any, stands in front.
    assert!(emitted.ends_with(&bytes), "{emitted:02x?}");
    assert_eq!(option.to_string(), text);
}

fn capable(version: u8, flags: u8, keys: MpCapableKeys) -> MptcpOption {
    MptcpOption::Capable(MpCapable { version, flags, keys })
}

#[test]
fn mp_capable_version_1() {
    // Figure 4: kind, length, subtype and version, flags.
    check("1e 04 01 01", capable(1, MpCapable::HMAC, MpCapableKeys::None), "mptcp 4 capable v1");
    check(
        "1e 0c 01 21 0102030405060708",
        capable(1, MpCapable::HMAC | MpCapable::NO_JOIN_INITIAL_ADDRESS, MpCapableKeys::Sender(KEY_A)),
        "mptcp 12 capable v1 {0x102030405060708}",
    );
    check(
        "1e 14 01 81 0102030405060708 1112131415161718",
        capable(
            1,
            MpCapable::HMAC | MpCapable::CHECKSUM,
            MpCapableKeys::Both { sender: KEY_A, receiver: KEY_B },
        ),
        "mptcp 20 capable v1 csum {0x102030405060708,0x1112131415161718}",
    );
    let with_data =
        |checksum| MpCapableKeys::BothWithData { sender: KEY_A, receiver: KEY_B, data_len: 0x05a8, checksum };
    check(
        "1e 16 01 01 0102030405060708 1112131415161718 05a8",
        capable(1, MpCapable::HMAC, with_data(None)),
        "mptcp 22 capable v1 {0x102030405060708,0x1112131415161718} len 1448",
    );
    check(
        "1e 18 01 81 0102030405060708 1112131415161718 05a8 beef",
        capable(1, MpCapable::HMAC | MpCapable::CHECKSUM, with_data(Some(0xbeef))),
        "mptcp 24 capable v1 csum {0x102030405060708,0x1112131415161718} len 1448 csum 0xbeef",
    );
}

#[test]
fn mp_capable_version_0() {
    check(
        "1e 0c 00 81 0102030405060708",
        capable(0, MpCapable::HMAC | MpCapable::CHECKSUM, MpCapableKeys::Sender(KEY_A)),
        "mptcp 12 capable v0 csum {0x102030405060708}",
    );
    // B: keys come from the application.
    check(
        "1e 14 00 41 0102030405060708 1112131415161718",
        capable(
            0,
            MpCapable::HMAC | MpCapable::EXTENSIBILITY,
            MpCapableKeys::Both { sender: KEY_A, receiver: KEY_B },
        ),
        "mptcp 20 capable v0 {0x102030405060708,0x1112131415161718}",
    );
}

#[test]
fn low_overhead_handshake() {
    check(
        "1e 08 01 01 01020304",
        capable(1, 1, MpCapableKeys::Token(0x0102_0304)),
        "mptcp 8 capable v1 token 0x1020304",
    );
    check(
        "1e 10 01 01 01020304 11121314 00000000",
        capable(1, 1, MpCapableKeys::Tokens { sender: 0x0102_0304, receiver: 0x1112_1314 }),
        "mptcp 16 capable v1 tokens 0x1020304,0x11121314",
    );
    check(
        "1e 08 11 07 01020304",
        MptcpOption::Join(MpJoin::LowOverhead { backup: true, address_id: 7, token: Some(0x0102_0304) }),
        "mptcp 8 join backup id 7 token 0x1020304",
    );
    check(
        "1e 04 10 09",
        MptcpOption::Join(MpJoin::LowOverhead { backup: false, address_id: 9, token: None }),
        "mptcp 4 join id 9",
    );
}

#[test]
fn mp_join() {
    // Figures 5 to 7.
    check(
        "1e 0c 11 05 a1a2a3a4 b1b2b3b4",
        MptcpOption::Join(MpJoin::Syn {
            backup: true,
            address_id: 5,
            token: 0xa1a2_a3a4,
            nonce: 0xb1b2_b3b4,
        }),
        "mptcp 12 join backup id 5 token 0xa1a2a3a4 nonce 0xb1b2b3b4",
    );
    check(
        "1e 10 10 06 1112131415161718 b1b2b3b4",
        MptcpOption::Join(MpJoin::SynAck {
            backup: false,
            address_id: 6,
            truncated_hmac: KEY_B,
            nonce: 0xb1b2_b3b4,
        }),
        "mptcp 16 join id 6 hmac 0x1112131415161718 nonce 0xb1b2b3b4",
    );
    let hmac: [u8; 20] = std::array::from_fn(|i| 0x30 + i as u8);
    check(
        "1e 18 10 00 303132333435363738393a3b3c3d3e3f40414243",
        MptcpOption::Join(MpJoin::Ack { hmac }),
        "mptcp 24 join hmac 0x303132333435363738393a3b3c3d3e3f40414243",
    );
    // Application-supplied keys.
    let truncated_hmac: [u8; 16] = std::array::from_fn(|i| 0x30 + i as u8);
    check(
        "1e 1c 11 08 303132333435363738393a3b3c3d3e3f b1b2b3b4 a1a2a3a4",
        MptcpOption::Join(MpJoin::AckWithToken {
            backup: true,
            address_id: 8,
            truncated_hmac,
            nonce: 0xb1b2_b3b4,
            token: 0xa1a2_a3a4,
        }),
        "mptcp 28 join backup id 8 hmac 0x303132333435363738393a3b3c3d3e3f nonce 0xb1b2b3b4 token 0xa1a2a3a4",
    );
}

#[test]
fn dss() {
    // Figure 9, with everything that it can have.
    let mapping = DssMapping {
        data_seq: WireDataSeq::Full(DataSeq(KEY_B)),
        subflow_offset: 0x2122_2324,
        len: 0x3132,
        checksum: Some(0x4142),
    };
    let full = Dss {
        data_ack: Some(WireDataSeq::Full(DataSeq(KEY_A))),
        mapping: Some(mapping),
        data_fin: true,
        ..Dss::default()
    };
    check(
        "1e 1c 20 1f 0102030405060708 1112131415161718 21222324 3132 4142",
        MptcpOption::Dss(full),
        "mptcp 28 dss fin ack 72623859790382856 seq 1230066625199609624 subseq 555885348 len 12594 csum 0x4142",
    );
    check(
        "1e 08 20 01 01020304",
        MptcpOption::Dss(Dss { data_ack: Some(WireDataSeq::Low(0x0102_0304)), ..Dss::default() }),
        "mptcp 8 dss ack 16909060",
    );
    let short = DssMapping {
        data_seq: WireDataSeq::Low(0x1112_1314),
        subflow_offset: 1,
        len: 0x05a8,
        checksum: None,
    };
    check(
        "1e 12 20 05 01020304 11121314 00000001 05a8",
        MptcpOption::Dss(Dss {
            data_ack: Some(WireDataSeq::Low(0x0102_0304)),
            mapping: Some(short),
            ..Dss::default()
        }),
        "mptcp 18 dss ack 16909060 seq 286397204 subseq 1 len 1448",
    );
    // A lone DATA_FIN: length one, subflow offset zero (RFC 8684 §3.3.3).
    check(
        "1e 12 20 1c 1112131415161718 00000000 0001",
        MptcpOption::Dss(Dss {
            mapping: Some(DssMapping {
                data_seq: WireDataSeq::Full(DataSeq(KEY_B)),
                subflow_offset: 0,
                len: 1,
                checksum: None,
            }),
            data_fin: true,
            ..Dss::default()
        }),
        "mptcp 18 dss fin seq 1230066625199609624 subseq 0 len 1",
    );
    // S, the last of the seven reserved bits.
    check(
        "1e 0e 20 24 11121314 00000001 05a8",
        MptcpOption::Dss(Dss { mapping: Some(short), control_stream: true, ..Dss::default() }),
        "mptcp 14 dss control seq 286397204 subseq 1 len 1448",
    );
}

#[test]
fn every_flag_combination_of_a_dss_has_the_length_that_it_says() {
    for flags in 0..=0x3f_u8 {
        let ack = if flags & 1 == 0 { 0 } else { 4 << (flags >> 1 & 1) };
        let mapping = if flags & 4 == 0 { 0 } else { 6 + (4 << (flags >> 3 & 1)) };
        for checksum in if mapping > 0 { &[0, 2][..] } else { &[0] } {
            let len: usize = 4 + ack + mapping + checksum;
            let mut bytes = vec![30, len as u8, 0x20, flags];
            bytes.extend((4..len).map(|i| i as u8));
            let options = Options::parse(&bytes).unwrap();
            let dss = options.dss.unwrap_or_else(|| panic!("flags {flags:#04x}, length {len}"));
            assert_eq!(dss.len_bytes(), len);
            assert_eq!(dss.data_fin, flags & 0x10 != 0);
            assert_eq!(dss.mapping.and_then(|mapping| mapping.checksum).is_some(), *checksum == 2);
            let mut emitted = Vec::new();
            options.emit(&mut emitted);
            // "8 bytes" of what is not there has no meaning.
            let meaningless = if ack == 0 { 2 } else { 0 } | if mapping == 0 { 8 } else { 0 };
            bytes[3] &= !meaningless;
            assert!(emitted.ends_with(&bytes), "flags {flags:#04x}: {emitted:02x?}");

            // Any other length is malformed, and kept as it came.
            for wrong in [len - 1, len + 1, len + 3] {
                if wrong < 4 || wrong == 40 {
                    continue;
                }
                let mut bytes = vec![0; wrong];
                bytes[..4].copy_from_slice(&[30, wrong as u8, 0x20, flags]);
                let options = Options::parse(&bytes).unwrap();
                assert_eq!(options.dss, None, "flags {flags:#04x}, length {wrong}");
                assert!(matches!(options.mptcp().next(), Some(MptcpOption::Unknown { subtype: 2, .. })));
            }
        }
    }
}

#[test]
fn add_addr() {
    let v4 = "10.0.0.1".parse().unwrap();
    let v6 = "2001:db8::1".parse().unwrap();
    let v1 = AddAddr {
        version: MptcpVersion::V1,
        echo: false,
        address_id: 8,
        addr: v4,
        port: None,
        hmac: Some(KEY_A),
    };
    let echo = AddAddr { echo: true, hmac: None, ..v1 };
    let v0 = AddAddr { version: MptcpVersion::V0, hmac: None, ..v1 };
    let port = Some(0x1f90);
    // Figure 12 of RFC 8684.
    for (digits, add, text) in [
        ("1e 10 30 08 0a000001 0102030405060708", v1, "16 add-addr id 8 10.0.0.1 hmac 0x102030405060708"),
        (
            "1e 12 30 08 0a000001 1f90 0102030405060708",
            AddAddr { port, ..v1 },
            "18 add-addr id 8 10.0.0.1:8080 hmac 0x102030405060708",
        ),
        (
            "1e 1c 30 08 20010db8000000000000000000000001 0102030405060708",
            AddAddr { addr: v6, ..v1 },
            "28 add-addr id 8 2001:db8::1 hmac 0x102030405060708",
        ),
        (
            "1e 1e 30 08 20010db8000000000000000000000001 1f90 0102030405060708",
            AddAddr { addr: v6, port, ..v1 },
            "30 add-addr id 8 [2001:db8::1]:8080 hmac 0x102030405060708",
        ),
        ("1e 08 31 08 0a000001", echo, "8 add-addr echo id 8 10.0.0.1"),
        ("1e 0a 31 08 0a000001 1f90", AddAddr { port, ..echo }, "10 add-addr echo id 8 10.0.0.1:8080"),
        (
            "1e 14 31 08 20010db8000000000000000000000001",
            AddAddr { addr: v6, ..echo },
            "20 add-addr echo id 8 2001:db8::1",
        ),
        (
            "1e 16 31 08 20010db8000000000000000000000001 1f90",
            AddAddr { addr: v6, port, ..echo },
            "22 add-addr echo id 8 [2001:db8::1]:8080",
        ),
        // Figure 9 of RFC 6824.
        ("1e 08 34 08 0a000001", v0, "8 add-addr id 8 10.0.0.1"),
        ("1e 0a 34 08 0a000001 1f90", AddAddr { port, ..v0 }, "10 add-addr id 8 10.0.0.1:8080"),
        (
            "1e 14 36 08 20010db8000000000000000000000001",
            AddAddr { addr: v6, ..v0 },
            "20 add-addr id 8 2001:db8::1",
        ),
        (
            "1e 16 36 08 20010db8000000000000000000000001 1f90",
            AddAddr { addr: v6, port, ..v0 },
            "22 add-addr id 8 [2001:db8::1]:8080",
        ),
    ] {
        check(digits, MptcpOption::AddAddr(add), &format!("mptcp {text}"));
    }
}

#[test]
fn the_others() {
    let address_ids = [1, 2].into_iter().collect();
    check("1e 05 40 01 02", MptcpOption::RemoveAddr(RemoveAddr { address_ids }), "mptcp 5 rem-addr id 1 2");
    check("1e 03 51", MptcpOption::Prio { backup: true, address_id: None }, "mptcp 3 prio backup");
    check("1e 04 50 07", MptcpOption::Prio { backup: false, address_id: Some(7) }, "mptcp 4 prio id 7");
    check(
        "1e 0c 60 00 0102030405060708",
        MptcpOption::Fail { data_seq: DataSeq(KEY_A) },
        "mptcp 12 fail seq 72623859790382856",
    );
    check(
        "1e 0c 70 00 0102030405060708",
        MptcpOption::Fastclose { receiver_key: KEY_A },
        "mptcp 12 fast-close key 0x102030405060708",
    );
    check(
        "1e 04 81 06",
        MptcpOption::Reset { flags: 1, reason: ResetReason::MIDDLEBOX },
        "mptcp 4 tcprst reason 6 transient",
    );
    check(
        "1e 05 f3 abcd",
        MptcpOption::Unknown { subtype: 15, flags: 3, data: [0xab, 0xcd].into_iter().collect() },
        "mptcp 5 unknown-15 0xabcd",
    );
}

#[test]
fn as_many_addresses_as_the_option_space_holds_are_removed() {
    let mut bytes = vec![30, 40, 0x40];
    bytes.extend(1..=37);
    let options = Options::parse(&bytes).unwrap();
    assert!(matches!(options.mptcp().next(), Some(MptcpOption::RemoveAddr(r)) if r.address_ids.len() == 37));
    let mut emitted = Vec::new();
    options.emit(&mut emitted);
    assert_eq!(emitted, bytes);
}

#[test]
fn reserved_bits_are_ignored() {
    let clean = Options::parse(&hex("1e 0c 11 05 a1a2a3a4 b1b2b3b4")).unwrap();
    assert_eq!(Options::parse(&hex("1e 0c 1f 05 a1a2a3a4 b1b2b3b4")).unwrap(), clean);
    let clean = Options::parse(&hex("1e 08 20 01 01020304")).unwrap();
    assert_eq!(Options::parse(&hex("1e 08 2f c1 01020304")).unwrap(), clean);
    let clean = Options::parse(&hex("1e 10 30 08 0a000001 0102030405060708")).unwrap();
    assert_eq!(Options::parse(&hex("1e 10 34 08 0a000001 0102030405060708")).unwrap(), clean);
}

#[test]
fn malformed_options_are_kept_as_unknown() {
    // A wrong length for each subtype; the low nibble and the data stay.
    for digits in
        ["1e 05 01 01 00", "1e 05 10 00 00", "1e 03 20", "1e 07 30 01 0a0000", "1e 03 40", "1e 05 50 0000"]
    {
        let bytes = hex(digits);
        let options = Options::parse(&bytes).unwrap();
        let unknown = MptcpOption::Unknown {
            subtype: bytes[2] >> 4,
            flags: bytes[2] & 15,
            data: bytes[3..].iter().copied().collect(),
        };
        assert_eq!(options.rest, [TcpOption::Mptcp(unknown)], "{digits}");
    }
    for digits in ["1e 0b 60 0001020304050607", "1e 0d 70 00010203040506070809", "1e 05 80 0000"] {
        let options = Options::parse(&hex(digits)).unwrap();
        assert!(matches!(options.mptcp().next(), Some(MptcpOption::Unknown { .. })), "{digits}");
    }
    // Without a subtype it is no Multipath TCP option at all.
    let options = Options::parse(&hex("1e 02")).unwrap();
    assert!(matches!(&options.rest[..], [TcpOption::Unknown { kind: 30, data }] if data.is_empty()));
}

#[test]
fn the_first_dss_has_the_field_and_the_second_does_not() {
    let options = Options::parse(&hex("1e 08 20 01 00000001 1e 08 20 01 00000002")).unwrap();
    let ack = |low| Dss { data_ack: Some(WireDataSeq::Low(low)), ..Dss::default() };
    assert_eq!(options.dss, Some(ack(1)));
    assert_eq!(options.mptcp().collect::<Vec<_>>(), [&MptcpOption::Dss(ack(2))]);
}
