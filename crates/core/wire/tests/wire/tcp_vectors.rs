//! TCP options from the standards' figures, and what becomes of malformed ones.

use polypath_wire::{
    Dss, DssMapping, MAX_OPTIONS_BYTES, MpCapable, MpCapableKeys, MptcpOption, Options, ParseError,
    SackBlock, SeqNumber, TcpOption, Timestamps, WireDataSeq,
};

use crate::hex;

fn emit(options: &Options) -> Vec<u8> {
    let mut out = vec![0xff];
    options.emit(&mut out);
    assert_eq!(out.remove(0), 0xff, "emitting appends");
    out
}

#[track_caller]
fn check(digits: &str, options: &Options, text: &str) {
    assert_eq!(Options::parse(&hex(digits)).as_ref(), Ok(options));
    assert_eq!(emit(options), hex(digits));
    assert_eq!(options.len_bytes(), hex(digits).len());
    assert_eq!(options.to_string(), text);
}

fn rest(rest: &[TcpOption]) -> Options {
    Options { rest: rest.to_vec(), ..Options::default() }
}

const TIMESTAMPS: Timestamps = Timestamps { value: 0x0102_0304, echo: 0x1112_1314 };

#[test]
fn each_option() {
    check("", &Options::default(), "[]");
    check("02 04 05b4", &rest(&[TcpOption::Mss(1460)]), "[mss 1460]");
    check("01 03 03 07", &rest(&[TcpOption::WindowScale(7)]), "[wscale 7]");
    check("01 01 04 02", &rest(&[TcpOption::SackPermitted]), "[sackOK]");
    check("01 01 22 02", &rest(&[TcpOption::FastOpen([].into_iter().collect())]), "[tfo cookiereq]");
    check(
        "01 01 22 0a 0001020304050607",
        &rest(&[TcpOption::FastOpen((0..8).collect())]),
        "[tfo cookie 0001020304050607]",
    );
    check(
        "fd 04 f989",
        &rest(&[TcpOption::Unknown { kind: 253, data: [0xf9, 0x89].into_iter().collect() }]),
        "[unknown-253 0xf989]",
    );
    check(
        "01 01 08 0a 01020304 11121314",
        &Options { timestamps: Some(TIMESTAMPS), ..Options::default() },
        "[TS val 16909060 ecr 286397204]",
    );
    let block = |start, end| SackBlock { start: SeqNumber(start), end: SeqNumber(end) };
    check(
        "01 01 05 12 00000001 00000002 fffffffe 00000003",
        &Options { sack: [block(1, 2), block(0xffff_fffe, 3)].into_iter().collect(), ..Options::default() },
        "[sack 2 {1:2}{4294967294:3}]",
    );
}

#[test]
fn a_syn_looks_like_those_of_usual_stacks() {
    let capable = TcpOption::Mptcp(MptcpOption::Capable(MpCapable {
        version: 1,
        flags: MpCapable::HMAC,
        keys: MpCapableKeys::None,
    }));
    let options = Options {
        timestamps: Some(Timestamps { value: 0x0102_0304, echo: 0 }),
        rest: vec![TcpOption::Mss(1460), TcpOption::SackPermitted, TcpOption::WindowScale(7), capable],
        ..Options::default()
    };
    check(
        "02 04 05b4  04 02 08 0a 01020304 00000000  01 03 03 07  1e 04 01 01",
        &options,
        "[mss 1460,sackOK,TS val 16909060 ecr 0,wscale 7,mptcp 4 capable v1]",
    );
}

#[test]
fn padding_aligns_only_where_it_costs_no_space() {
    let ack = Dss { data_ack: Some(WireDataSeq::Low(0x2122_2324)), ..Dss::default() };
    let options = Options { timestamps: Some(TIMESTAMPS), dss: Some(ack), ..Options::default() };
    check(
        "01 01 08 0a 01020304 11121314  1e 08 20 01 21222324",
        &options,
        "[TS val 16909060 ecr 286397204,mptcp 8 dss ack 555885348]",
    );
    // 10 + 18 bytes: two NOPs in front would make it 32.
    let mapping = DssMapping { data_seq: WireDataSeq::Low(1), subflow_offset: 2, len: 3, checksum: None };
    let options = Options { dss: Some(Dss { mapping: Some(mapping), ..ack }), ..options };
    check(
        "08 0a 01020304 11121314  1e 12 20 05 21222324 00000001 00000002 0003",
        &options,
        "[TS val 16909060 ecr 286397204,mptcp 18 dss ack 555885348 seq 1 subseq 2 len 3]",
    );
}

#[test]
fn repetitions_keep_their_order() {
    let options =
        Options::parse(&hex("08 0a 00000001 00000002  08 0a 00000003 00000004  02 04 0001 02 04 0002"));
    let options = options.unwrap();
    assert_eq!(options.timestamps, Some(Timestamps { value: 1, echo: 2 }));
    assert_eq!(
        options.rest,
        [TcpOption::Timestamps(Timestamps { value: 3, echo: 4 }), TcpOption::Mss(1), TcpOption::Mss(2)]
    );
    assert_eq!(options.mss(), Some(1));
    assert_eq!(Options::parse(&emit(&options)), Ok(options));
}

#[test]
fn an_illegal_length_hides_what_follows_it() {
    let mss = rest(&[TcpOption::Mss(1460)]);
    for (tail, error) in [
        ("03 00 02 04", ParseError::Malformed("TCP option length below two")),
        ("03 01 02 04", ParseError::Malformed("TCP option length below two")),
        ("08 0a 0000", ParseError::Truncated { what: "TCP option", needed: 10, available: 4 }),
        ("01 01 01 1e", ParseError::Truncated { what: "TCP option", needed: 2, available: 1 }),
    ] {
        let bytes = hex(&format!("02 04 05b4 {tail}"));
        assert_eq!(Options::parse(&bytes), Err(error), "{tail}");
        assert_eq!(Options::parse_lenient(&bytes), mss, "{tail}");
    }
    assert_eq!(
        Options::parse(&hex("02 04 05b4 00 03 00 00")).as_ref(),
        Ok(&mss),
        "nothing after the end counts"
    );
}

#[test]
fn a_known_kind_of_a_wrong_length_is_unknown() {
    for digits in [
        "02 03 05",
        "03 02",
        "04 03 00",
        "05 02",
        "05 09 00000000000000",
        "08 08 000000000000",
        "22 05 000000",
        "22 07 0000000000",
    ] {
        let bytes = hex(digits);
        let data = bytes[2..].iter().copied().collect();
        let options = rest(&[TcpOption::Unknown { kind: bytes[0], data }]);
        assert_eq!(Options::parse(&bytes).as_ref(), Ok(&options), "{digits}");
        assert_eq!(Options::parse(&emit(&options)), Ok(options), "{digits}");
    }
}

#[test]
fn what_does_not_fit_is_left_out() {
    let mut options = rest(&[]);
    for _ in 0..30 {
        options.rest.push(TcpOption::Timestamps(TIMESTAMPS));
        options.rest.push(TcpOption::WindowScale(7));
        let bytes = emit(&options);
        assert!(bytes.len() <= MAX_OPTIONS_BYTES && bytes.len().is_multiple_of(4));
        assert!(Options::parse(&bytes).is_ok());
    }
    assert_eq!(
        Options::parse(&[1; MAX_OPTIONS_BYTES + 1]),
        Err(ParseError::Malformed("more than 40 bytes of TCP options"))
    );
}
