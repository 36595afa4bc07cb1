//! Requests and heads of answers, as HTTP/2 has them and as HTTP/1.1 does.

use bytes::Bytes;
use http::header::HeaderMap;
use http::uri::{Scheme, Uri};
use http::{HeaderName, HeaderValue, StatusCode};

use crate::http1::{self, Fields, Framing, Head, InvalidRequest, MAX_FIELDS, framing};

/// Fields of one connection, which HTTP/2 doesn't have (RFC 9113 §8.2.2); the host is the authority there.
const OF_HTTP1: [&str; 6] = ["host", "connection", "proxy-connection", "keep-alive", "te", "http2-settings"];
/// Answers are wanted one after the other (RFC 9218), as each is of use only when those before it are there.
const PRIORITY: (&str, &str) = ("priority", "u=3");

/// A request on a connection with TLS.
pub(super) fn request(request: &http1::Request) -> Result<http::Request<()>, InvalidRequest> {
    let target = || InvalidRequest::Target(request.target().to_owned());
    let host = request.fields().find(|(name, _)| name.eq_ignore_ascii_case("host"));
    let uri = Uri::builder().scheme(Scheme::HTTPS).path_and_query(request.target());
    let uri = uri.authority(host.map_or("", |(_, value)| value)).build().map_err(|_| target())?;
    let builder = http::Request::builder().version(http::Version::HTTP_2).uri(uri);
    let mut asked = builder.method(request.method().name()).body(()).map_err(|_| target())?;
    for (name, value) in request.fields() {
        let name =
            HeaderName::from_bytes(name.as_bytes()).map_err(|_| InvalidRequest::Name(name.to_owned()))?;
        let value = HeaderValue::from_str(value).map_err(|_| InvalidRequest::Value(name.to_string()))?;
        if !OF_HTTP1.contains(&name.as_str()) {
            asked.headers_mut().append(name, value);
        }
    }
    let (name, value) = PRIORITY;
    asked.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    Ok(asked)
}

/// What an answer to a request begins with. It is refused for what is refused of HTTP/1.1 (RFC 9113 §8.1.1).
pub(super) fn head(
    status: StatusCode,
    fields: &HeaderMap,
    method: http1::Method,
) -> Result<Head, http1::Error> {
    if fields.len() > MAX_FIELDS {
        return Err(http1::Error::TooManyFields);
    }
    let copy = |(name, value): (&HeaderName, &HeaderValue)| {
        let value = value.as_bytes().trim_ascii();
        (Bytes::copy_from_slice(name.as_ref()), Bytes::copy_from_slice(value))
    };
    let head = Head::new(status.as_u16(), Fields::new(fields.iter().map(copy).collect()));
    // How the body ends is told by its frames, and nothing else may say something different.
    match framing(&head, method)? {
        Framing::Chunked => Err(http1::Error::UnknownTransferEncoding),
        Framing::Length(_) | Framing::UntilEnd => Ok(head),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_no_field_of_a_connection() {
        let asked = http1::Request::new(http1::Method::Get, "example.org:8443", "/a|b?x={1}").unwrap();
        let asked =
            asked.with_field("Connection", "close").unwrap().with_field("Range", "bytes=0-9").unwrap();
        let written = request(&asked).unwrap();
        assert_eq!(written.uri(), "https://example.org:8443/a|b?x={1}");
        let fields: Vec<_> = written.headers().iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(fields, ["range", "priority"]);
        let asked = asked.with_field("Priority", "u=1, i").unwrap();
        assert_eq!(request(&asked).unwrap().headers()["priority"], "u=1, i");
    }

    #[test]
    fn heads_that_say_two_things_are_refused() {
        let of = |fields: &[(&'static str, &'static str)]| {
            let fields = fields
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            let mut map = HeaderMap::new();
            fields.for_each(|(name, value)| {
                map.append(name, value);
            });
            head(StatusCode::OK, &map, http1::Method::Get)
        };
        assert_eq!(of(&[("etag", " \"a\" ")]).unwrap().fields.text("ETag"), Some("\"a\""));
        let (length, encoding) = ("content-length", "transfer-encoding");
        assert_eq!(of(&[(length, "5"), (length, "6")]), Err(http1::Error::DifferentLengths));
        assert_eq!(of(&[(length, "+5")]), Err(http1::Error::MalformedLength));
        assert_eq!(of(&[(encoding, "chunked")]), Err(http1::Error::UnknownTransferEncoding));
        assert_eq!(of(&[("a", "b"); MAX_FIELDS + 1]), Err(http1::Error::TooManyFields));
    }
}
