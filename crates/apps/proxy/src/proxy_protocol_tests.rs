use proptest::prelude::*;

use super::ProxyProtocolVersion::{V1, V2};
use super::*;

fn client(source: &str, destination: &str) -> ProxyHeader {
    ProxyHeader::Proxied { source: source.parse().unwrap(), destination: destination.parse().unwrap() }
}

/// Parses, and says what is left.
fn parse(bytes: &[u8]) -> Result<Option<(ProxyHeader, Vec<u8>)>, ProxyHeaderError> {
    let mut input = BytesMut::from(bytes);
    let header = ProxyHeader::parse(&mut input)?;
    Ok(header.map(|header| (header, input.to_vec())))
}

fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [SIGNATURE, &[command, family][..], &length, rest].concat()
}

const V4_ADDRESSES: &[u8] = &[192, 0, 2, 1, 198, 51, 100, 1, 0xc8, 0x22, 0x01, 0xbb];

#[test]
fn headers_are_read_when_they_are_whole_and_leave_the_rest() {
    let v4 = client("192.0.2.1:51234", "198.51.100.1:443");
    let v6 = client("[2001:db8::1]:51234", "[2001:db8::2]:443");
    let v6_addresses = [
        &"2001:db8::1".parse::<Ipv6Addr>().unwrap().octets()[..],
        &"2001:db8::2".parse::<Ipv6Addr>().unwrap().octets(),
        &V4_ADDRESSES[8..],
    ]
    .concat();
    let extended = [V4_ADDRESSES, &[0x04, 0, 1, 0]].concat();
    for (bytes, header) in [
        (b"PROXY TCP4 192.0.2.1 198.51.100.1 51234 443\r\n".to_vec(), v4),
        (b"PROXY TCP6 2001:db8::1 2001:db8::2 51234 443\r\n".to_vec(), v6),
        (b"PROXY TCP6 ::ffff:192.0.2.1 ::ffff:198.51.100.1 51234 443\r\n".to_vec(), v4),
        (b"PROXY UNKNOWN\r\n".to_vec(), ProxyHeader::Local),
        (b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535 and more\r\n".to_vec(), ProxyHeader::Local),
        (binary(0x21, 0x11, V4_ADDRESSES), v4),
        (binary(0x21, 0x12, &extended), v4),
        (binary(0x21, 0x21, &v6_addresses), v6),
        (binary(0x20, 0x00, b""), ProxyHeader::Local),
        (binary(0x20, 0x11, V4_ADDRESSES), ProxyHeader::Local),
        (binary(0x21, 0x00, b"extension"), ProxyHeader::Local),
        (binary(0x21, 0x31, &[0; 216]), ProxyHeader::Local),
    ] {
        let with_data = [&bytes[..], b"\r\nGET"].concat();
        assert_eq!(parse(&with_data), Ok(Some((header, b"\r\nGET".to_vec()))), "{bytes:?}");
        for end in 0..bytes.len() {
            assert_eq!(parse(&bytes[..end]), Ok(None), "{end} of {bytes:?}");
        }
    }
}

#[test]
fn what_is_no_header_is_refused() {
    use ProxyHeaderError::{Binary, Line, Missing, TooLong};
    for (bytes, why) in [
        (b"GET / HTTP/1.1\r\n".to_vec(), Missing),
        (b"\x16\x03\x01".to_vec(), Missing),
        (b"PROXX".to_vec(), Missing),
        (b"PROXY\r\n".to_vec(), Missing),
        (b"\r\n\r\n\0\r\nQUIT\r".to_vec(), Missing),
        (b"PROXY TCP4 \r\n".to_vec(), Line),
        (b"PROXY TCP4 192.0.2.1 198.51.100.1 51234\r\n".to_vec(), Line),
        (b"PROXY TCP4 192.0.2.1 198.51.100.1 51234 \r\n".to_vec(), Line),
        (b"PROXY TCP4 192.0.2.1 198.51.100.1 51234 443 \r\n".to_vec(), Line),
        (b"PROXY TCP4  192.0.2.1 198.51.100.1 51234 443\r\n".to_vec(), Line),
        (b"PROXY TCP4 192.0.2.1 198.51.100.1 051234 443\r\n".to_vec(), Line),
        (b"PROXY TCP4 192.0.2.1 198.51.100.1 +1234 443\r\n".to_vec(), Line),
        (b"PROXY TCP4 192.0.2.1 198.51.100.1 65536 443\r\n".to_vec(), Line),
        (b"PROXY TCP4 2001:db8::1 2001:db8::2 51234 443\r\n".to_vec(), Line),
        (b"PROXY UDP4 192.0.2.1 198.51.100.1 51234 443\r\n".to_vec(), Line),
        (b"PROXY TCP4\n192.0.2.1 198.51.100.1 51234 443\r\n".to_vec(), Line),
        (b"PROXY \xff\r\n".to_vec(), Line),
        ([b"PROXY UNKNOWN".to_vec(), vec![b' '; 94]].concat(), Line),
        (binary(0x11, 0x11, V4_ADDRESSES), Binary),
        (binary(0x22, 0x11, V4_ADDRESSES), Binary),
        (binary(0x21, 0x41, V4_ADDRESSES), Binary),
        (binary(0x21, 0x13, V4_ADDRESSES), Binary),
        (binary(0x21, 0x11, &V4_ADDRESSES[..11]), Binary),
        (binary(0x21, 0x21, V4_ADDRESSES), Binary),
        (binary(0x21, 0x11, &[0; 4097])[..16].to_vec(), TooLong),
    ] {
        assert_eq!(parse(&bytes), Err(why), "{}", String::from_utf8_lossy(&bytes));
    }
    let longest = [b"PROXY UNKNOWN".to_vec(), vec![b' '; 92], b"\r\n".to_vec()].concat();
    assert_eq!((longest.len(), parse(&longest)), (107, Ok(Some((ProxyHeader::Local, Vec::new())))));
}

#[test]
fn headers_are_written_as_others_read_them() {
    let v4 = client("192.0.2.1:51234", "198.51.100.1:443");
    assert_eq!(v4.emit(V1), "PROXY TCP4 192.0.2.1 198.51.100.1 51234 443\r\n");
    assert_eq!(v4.emit(V2), binary(0x21, 0x11, V4_ADDRESSES));
    let mixed = client("192.0.2.1:51234", "[2001:db8::2]:443");
    assert_eq!(mixed.emit(V1), "PROXY TCP6 ::ffff:192.0.2.1 2001:db8::2 51234 443\r\n");
    assert_eq!(ProxyHeader::Local.emit(V1), "PROXY UNKNOWN\r\n");
    assert_eq!(ProxyHeader::Local.emit(V2), binary(0x20, 0, b""));
}

proptest! {
    #[test]
    fn a_header_is_read_as_it_was_written(
        source: (IpAddr, u16),
        destination: (IpAddr, u16),
        version in prop::sample::select(vec![V1, V2]),
    ) {
        let header = proxied(source, destination);
        let bytes = header.emit(version);
        prop_assert!(version == V2 || bytes.len() <= LONGEST_LINE);
        prop_assert_eq!(parse(&bytes), Ok(Some((header, Vec::new()))));
    }

    #[test]
    fn more_bytes_do_not_change_what_was_said(
        begin in prop::sample::select(vec![&b""[..], b"PROXY ", b"PROXY TCP4 ", b"PROXY UNKNOWN", SIGNATURE, b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0"]),
        tail in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let bytes = [begin, &tail].concat();
        let mut said = None;
        for end in 0..=bytes.len() {
            match (parse(&bytes[..end]), &said) {
                (Ok(None), None) => {}
                (now, None) => said = Some(now.map(|header| header.map(|(header, _)| header))),
                (now, Some(before)) => prop_assert_eq!(&now.map(|header| header.map(|(header, _)| header)), before),
            }
        }
    }
}
