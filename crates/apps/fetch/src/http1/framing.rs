use super::{Error, Head, Method};

/// How the end of a body is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// By a number of bytes; none if there is no body.
    Length(u64),
    /// By a chunk of size 0.
    Chunked,
    /// By the end of the connection.
    UntilEnd,
}

/// How an answer's body ends: RFC 9112 §6.3, without what RFC 9112 §6.1 allows and two readers may understand differently.
pub(crate) fn framing(head: &Head, method: Method) -> Result<Framing, Error> {
    let has_encoding = head.fields.has("transfer-encoding");
    let length = content_length(head)?;
    if has_encoding && length.is_some() {
        return Err(Error::TwoFramings);
    }
    if has_encoding {
        let mut encodings = head.fields.members("transfer-encoding");
        let is_chunked = encodings.next().is_some_and(|encoding| encoding.eq_ignore_ascii_case(b"chunked"));
        if head.is_http10 || !is_chunked || encodings.next().is_some() {
            return Err(Error::UnknownTransferEncoding);
        }
    }
    let is_empty = method == Method::Head || matches!(head.status, 100..200 | 204 | 304);
    Ok(match length {
        _ if is_empty => Framing::Length(0),
        _ if has_encoding => Framing::Chunked,
        Some(length) => Framing::Length(length),
        None => Framing::UntilEnd,
    })
}

fn content_length(head: &Head) -> Result<Option<u64>, Error> {
    let mut length = None;
    // Equal ones in a list are allowed: some proxies join fields that stand twice.
    for value in head.fields.all("content-length").flat_map(|value| value.split(|byte| *byte == b',')) {
        let value = value.trim_ascii();
        let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        let number = std::str::from_utf8(value).ok().filter(|_| is_number).and_then(|text| text.parse().ok());
        let number: u64 = number.ok_or(Error::MalformedLength)?;
        if length.is_some_and(|earlier| earlier != number) {
            return Err(Error::DifferentLengths);
        }
        length = Some(number);
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::super::head::parse_head;
    use super::*;

    fn head(version: &str, status: u16, fields: &str) -> Head {
        parse_head(format!("HTTP/{version} {status} X\r\n{fields}\r\n").as_bytes()).unwrap()
    }

    #[test]
    fn the_end_of_a_body_is_told_by_its_head() {
        let of = |status, fields: &str| framing(&head("1.1", status, fields), Method::Get);
        assert_eq!(of(200, "Content-Length: 5\r\n"), Ok(Framing::Length(5)));
        assert_eq!(of(200, "Content-Length: 5, 5\r\nContent-Length: 05\r\n"), Ok(Framing::Length(5)));
        assert_eq!(of(200, "Transfer-Encoding: Chunked\r\n"), Ok(Framing::Chunked));
        assert_eq!(of(200, ""), Ok(Framing::UntilEnd));
        assert_eq!(of(204, ""), Ok(Framing::Length(0)));
        assert_eq!(of(304, "Content-Length: 5\r\n"), Ok(Framing::Length(0)));
        let asked = framing(&head("1.1", 200, "Content-Length: 5\r\n"), Method::Head);
        assert_eq!(asked, Ok(Framing::Length(0)));
    }

    #[test]
    fn lengths_that_smuggle_are_refused() {
        let of = |fields: &str| framing(&head("1.1", 200, fields), Method::Get).unwrap_err();
        assert_eq!(of("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), Error::TwoFramings);
        assert_eq!(of("Content-Length: 5\r\nContent-Length: 6\r\n"), Error::DifferentLengths);
        for length in ["", "+5", "-5", "0x5", "5 5", "5,", "1e3", "18446744073709551616"] {
            assert_eq!(of(&format!("Content-Length: {length}\r\n")), Error::MalformedLength, "{length}");
        }
        for encoding in ["", "gzip, chunked", "chunked, chunked", "identity", "xchunked"] {
            let fields = format!("Transfer-Encoding: {encoding}\r\n");
            assert_eq!(of(&fields), Error::UnknownTransferEncoding, "{encoding}");
        }
        let old = framing(&head("1.0", 200, "Transfer-Encoding: chunked\r\n"), Method::Get);
        assert_eq!(old, Err(Error::UnknownTransferEncoding));
    }
}
