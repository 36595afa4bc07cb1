use bytes::Bytes;

use super::limits::MAX_FIELDS;
use super::{Error, Fields};

const BEGIN: &[u8] = b"HTTP/1.";

/// What an answer begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Status code, such as 206.
    pub status: u16,
    /// Header fields.
    pub fields: Fields,
    /// The server speaks HTTP/1.0.
    pub(super) is_http10: bool,
}

impl Head {
    /// One that came otherwise than as HTTP/1.
    #[cfg(feature = "net")]
    pub(crate) fn new(status: u16, fields: Fields) -> Self {
        Self { status, fields, is_http10: false }
    }

    /// Whether the server ends the connection after this answer.
    pub(super) fn is_last(&self) -> bool {
        self.is_http10
            || self.fields.members("connection").any(|option| option.eq_ignore_ascii_case(b"close"))
    }
}

/// Whether `bytes` can't be the begin of an answer. Said at once, since a server of another protocol may wait for our word.
pub(super) fn is_no_answer(bytes: &[u8]) -> bool {
    let length = bytes.len().min(BEGIN.len());
    bytes[..length] != BEGIN[..length]
}

/// Where the empty line of a head ends, looked for from `from` on; what is before was looked at earlier.
pub(crate) fn end_of_head(bytes: &[u8], from: usize) -> Option<usize> {
    // An end that began in what was looked at: at most two bytes of "\n\r\n".
    let from = from.saturating_sub(2);
    let rest = bytes.get(from..)?;
    let mut lines = rest.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(index, _)| index);
    lines.find_map(|index| match &rest[index + 1..] {
        [b'\r', b'\n', ..] => Some(from + index + 3),
        [b'\n', ..] => Some(from + index + 2),
        _ => None,
    })
}

/// Reads a head, which ends with its empty line.
pub(crate) fn parse_head(bytes: &[u8]) -> Result<Head, Error> {
    if is_no_answer(bytes) {
        return Err(Error::NotHttp);
    }
    if bytes.windows(2).any(|pair| matches!(pair, [b'\n', b' ' | b'\t'])) {
        return Err(Error::FoldedField);
    }
    // The copy is small; a slice would hold the whole buffer of which it is a part.
    let bytes = Bytes::copy_from_slice(bytes);
    let mut found = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut response = httparse::Response::new(&mut found);
    match response.parse(&bytes) {
        Ok(httparse::Status::Complete(length)) if length == bytes.len() => {}
        Err(httparse::Error::TooManyHeaders) => return Err(Error::TooManyFields),
        Ok(_) | Err(_) => return Err(Error::MalformedHead),
    }
    let status = response.code.filter(|status| (100..600).contains(status)).ok_or(Error::MalformedHead)?;
    let slice = |field: &httparse::Header<'_>| {
        (bytes.slice_ref(field.name.as_bytes()), bytes.slice_ref(field.value.trim_ascii()))
    };
    let fields = Fields::new(response.headers.iter().map(slice).collect());
    Ok(Head { status, fields, is_http10: response.version == Some(0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_head_is_found_wherever_it_is_cut() {
        let text = b"HTTP/1.1 200 OK\r\nA: b\r\n\r\nbody\r\n\r\n";
        for looked_at in 0..25 {
            assert_eq!(end_of_head(text, looked_at), Some(25), "{looked_at}");
        }
        assert_eq!(end_of_head(&text[..24], 0), None);
        assert_eq!(end_of_head(b"HTTP/1.1 200 OK\n\nbody", 0), Some(17));
    }

    #[test]
    fn a_head_is_read() {
        let head = parse_head(b"HTTP/1.1 206 Partial Content\r\nETag:  \"x\" \r\nempty:\r\n\r\n").unwrap();
        assert_eq!(head.status, 206);
        assert_eq!(head.fields.text("etag"), Some("\"x\""));
        assert_eq!(head.fields.text("empty"), Some(""));
        assert!(!head.is_last());
        assert!(parse_head(b"HTTP/1.1 200 OK\r\nConnection: Keep-Alive, Close\r\n\r\n").unwrap().is_last());
        assert!(parse_head(b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n").unwrap().is_last());
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        let refused = [
            ("\r\nHTTP/1.1 200 OK\r\n\r\n", Error::NotHttp),
            ("SSH-2.0-OpenSSH\r\n\r\n", Error::NotHttp),
            ("HTTP/2 200\r\n\r\n", Error::NotHttp),
            ("HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", Error::FoldedField),
            ("HTTP/1.1 200 OK\r\nA : b\r\n\r\n", Error::MalformedHead),
            ("HTTP/1.1 200 OK\r\nA\r\n\r\n", Error::MalformedHead),
            ("HTTP/1.1 200 OK\r\nA: b\rC: d\r\n\r\n", Error::MalformedHead),
            ("HTTP/1.1 200 OK\r\nA: \0\r\n\r\n", Error::MalformedHead),
            ("HTTP/1.1 099 OK\r\n\r\n", Error::MalformedHead),
            ("HTTP/1.1 OK\r\n\r\n", Error::MalformedHead),
        ];
        for (text, error) in refused {
            assert_eq!(parse_head(text.as_bytes()), Err(error), "{text:?}");
        }
        let many = |count| format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(count));
        assert!(parse_head(many(MAX_FIELDS).as_bytes()).is_ok());
        assert_eq!(parse_head(many(MAX_FIELDS + 1).as_bytes()), Err(Error::TooManyFields));
    }
}
