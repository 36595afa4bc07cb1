//! What fuzz targets do with headers of the PROXY protocol.

use bytes::BytesMut;

use super::{FIXED, LONGEST_REST, ProxyHeader, ProxyHeaderError, ProxyProtocolVersion};

/// What the bytes say, they say as soon as they say anything; and it is read again when it is written.
pub fn proxy_header(bytes: &[u8]) {
    let whole = parse(bytes);
    for end in 0..bytes.len().min(2 * FIXED) {
        let begin = parse(&bytes[..end]);
        assert!(begin == Ok(None) || begin == whole, "{begin:?}, then {whole:?}");
    }
    match whole {
        Ok(None) => assert!(bytes.len() < FIXED + LONGEST_REST, "it waits for more than a header"),
        Ok(Some(header)) => {
            for version in [ProxyProtocolVersion::V1, ProxyProtocolVersion::V2] {
                assert_eq!(parse(&header.emit(version)), Ok(Some(header)));
            }
        }
        Err(_) => {}
    }
}

fn parse(bytes: &[u8]) -> Result<Option<ProxyHeader>, ProxyHeaderError> {
    ProxyHeader::parse(&mut BytesMut::from(bytes))
}
