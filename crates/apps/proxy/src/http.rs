//! Requests and answers of HTTP that pass through a proxy (RFC 9110, 9112): where a request goes, and which fields go no further.

#[cfg(feature = "net")]
pub(crate) mod max_forwards;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::Scheme;
use http::{Method, StatusCode, Uri, Version};

use crate::failure::{ConnectFailure, UpstreamFailure};
use crate::target::{Host, Target};

/// Fields that are for the next hop alone, besides those that `Connection` names (RFC 9110 §7.6.1).
const OF_ONE_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHORIZATION,
    header::PROXY_AUTHENTICATE,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Why a request is not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// It is for a server, not for a proxy.
    #[error("a request for a server: expected one for a proxy, with a whole URL such as http://example.org/")]
    NotForProxy,
    /// The scheme of its URL is not passed on.
    #[error("a URL that is not http: expected http://, or CONNECT for anything else")]
    Scheme,
    /// The host or port of its URL is none.
    #[error("no host and port that make sense: expected such as example.org:443")]
    Target,
    /// The length of its body can be understood in two ways (RFC 9112 §6.3): what one server takes for a body, the next takes for a request.
    #[error(
        "a body whose length can be understood in two ways: expected Content-Length once, or Transfer-Encoding: chunked"
    )]
    Length,
    /// Its body ended before its end, or is not in chunks where it says so.
    #[error("a body that is cut off or malformed: expected as many bytes as Content-Length says, or chunks")]
    Body,
    /// What follows a CONNECT is for the server (RFC 9110 §9.3.6).
    #[error("a CONNECT with a body: expected it without Content-Length and Transfer-Encoding")]
    BodyOfConnect,
    /// One of HTTP/1.1 has it once (RFC 9112 §3.2).
    #[error("no Host, or several: expected one")]
    Host,
}

impl RequestError {
    /// What the client is told.
    #[must_use]
    pub fn status(self) -> StatusCode {
        StatusCode::BAD_REQUEST
    }
}

/// Where a request goes.
pub fn target(method: &Method, uri: &Uri) -> Result<Target, RequestError> {
    let authority = uri.authority().ok_or(RequestError::NotForProxy)?;
    // Credentials of a URL are not for a server's name.
    if authority.as_str().contains('@') {
        return Err(RequestError::Target);
    }
    if *method == Method::CONNECT {
        return authority.as_str().parse().map_err(|_| RequestError::Target);
    }
    if uri.scheme() != Some(&Scheme::HTTP) {
        return Err(RequestError::Scheme);
    }
    let host: Host = authority.host().parse().map_err(|_| RequestError::Target)?;
    let has_port = authority.as_str().len() > authority.host().len();
    let is_number = |port: &http::uri::Port<&str>| port.as_str().bytes().all(|byte| byte.is_ascii_digit());
    let port = match authority.port().filter(is_number).map(|port| port.as_u16()) {
        None if has_port => return Err(RequestError::Target),
        port => port.unwrap_or(80),
    };
    if port == 0 { Err(RequestError::Target) } else { Ok(Target { host, port }) }
}

/// The name and the password of a client (RFC 7617 §2).
#[must_use]
pub fn basic_credentials(value: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (scheme, rest) = value.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let text = BASE64.decode(rest.trim_ascii()).ok()?;
    let colon = text.iter().position(|byte| *byte == b':')?;
    Some((text[..colon].to_vec(), text[colon + 1..].to_vec()))
}

/// Whether the length of the body is told in one way only (RFC 9112 §6.1, §6.3).
pub fn check_length(version: Version, fields: &HeaderMap) -> Result<(), RequestError> {
    let mut encodings = fields.get_all(header::TRANSFER_ENCODING).iter();
    let mut lengths = fields.get_all(header::CONTENT_LENGTH).iter();
    let encoding = encodings.next();
    if encodings.next().is_some()
        || (encoding.is_some() && (lengths.next().is_some() || version < Version::HTTP_11))
    {
        return Err(RequestError::Length);
    }
    if let Some(encoding) = encoding {
        return if encoding.as_bytes().eq_ignore_ascii_case(b"chunked") {
            Ok(())
        } else {
            Err(RequestError::Length)
        };
    }
    let is_number =
        |value: &HeaderValue| !value.is_empty() && value.as_bytes().iter().all(u8::is_ascii_digit);
    match (lengths.next(), lengths.next()) {
        (None, _) => Ok(()),
        (Some(one), None) if is_number(one) => Ok(()),
        _ => Err(RequestError::Length),
    }
}

/// An answer says in a way that is not understood how long it is, or how its content is coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an answer whose length is not understood: expected Content-Length, or Transfer-Encoding: chunked")]
pub struct UnclearAnswer;

/// Makes the length of an answer one that is told in one way only: chunks have no other (RFC 9112 §6.3), and a number may come several times
/// (RFC 9110 §8.6). Nobody is told of another coding, so none is taken (RFC 9112 §6.1); older servers name it where there is none.
pub fn settle_length_of_answer(status: StatusCode, fields: &mut HeaderMap) -> Result<(), UnclearAnswer> {
    let settled = settle(fields);
    if matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) && settled.is_err() {
        // Their content is none, whatever they say.
        fields.remove(header::TRANSFER_ENCODING);
        fields.remove(header::CONTENT_LENGTH);
        return Ok(());
    }
    settled
}

fn settle(fields: &mut HeaderMap) -> Result<(), UnclearAnswer> {
    let is_identity = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    if fields.get_all(header::TRANSFER_ENCODING).iter().all(is_identity) {
        fields.remove(header::TRANSFER_ENCODING);
    }
    let mut encodings = fields.get_all(header::TRANSFER_ENCODING).iter();
    if let Some(encoding) = encodings.next() {
        if encodings.next().is_some() || !encoding.as_bytes().eq_ignore_ascii_case(b"chunked") {
            return Err(UnclearAnswer);
        }
        fields.remove(header::CONTENT_LENGTH);
        return Ok(());
    }
    let mut settled: Option<u64> = None;
    for value in fields.get_all(header::CONTENT_LENGTH) {
        for length in value.to_str().map_err(|_| UnclearAnswer)?.split(',').map(str::trim) {
            let is_number = length.bytes().all(|byte| byte.is_ascii_digit());
            let length = length.parse().ok().filter(|_| is_number).ok_or(UnclearAnswer)?;
            if settled.is_some_and(|settled| settled != length) {
                return Err(UnclearAnswer);
            }
            settled = Some(length);
        }
    }
    if let Some(length) = settled {
        fields.insert(header::CONTENT_LENGTH, length.into());
    }
    Ok(())
}

/// Whether the fields say what they may of such a request: whose it is (RFC 9112 §3.2), and that a CONNECT has no body (RFC 9110 §9.3.6).
pub fn check_meaning(method: &Method, version: Version, fields: &HeaderMap) -> Result<(), RequestError> {
    let hosts = fields.get_all(header::HOST).iter().count();
    // Some clients connect without it, and it says nothing there that the target does not.
    let may_lack_host = version < Version::HTTP_11 || *method == Method::CONNECT;
    if hosts > 1 || (hosts == 0 && !may_lack_host) {
        return Err(RequestError::Host);
    }
    let length = fields.get(header::CONTENT_LENGTH);
    let has_body =
        fields.contains_key(header::TRANSFER_ENCODING) || length.is_some_and(|length| length != "0");
    if *method == Method::CONNECT && has_body { Err(RequestError::BodyOfConnect) } else { Ok(()) }
}

/// Takes out what is for one hop alone (RFC 9110 §7.6.1).
pub fn remove_fields_of_one_hop(fields: &mut HeaderMap) {
    let named: Vec<HeaderName> = fields
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        // What says where a message ends and whom it is for is not the client's to take out.
        .filter(|name| !matches!(*name, header::HOST | header::CONTENT_LENGTH | header::VIA))
        .collect();
    for name in named.iter().chain(&OF_ONE_HOP) {
        fields.remove(name);
    }
}

/// Makes of a request to a proxy one to the server: its path alone, the `Host` of its URL (RFC 9112 §3.2.2), no field of one hop, and `Via`
/// (RFC 9110 §7.6.3).
pub fn make_request_for_server(
    uri: &mut Uri,
    version: Version,
    fields: &mut HeaderMap,
) -> Result<(), RequestError> {
    let authority = uri.authority().ok_or(RequestError::NotForProxy)?;
    // As it is understood here, so that nobody understands it otherwise.
    let host = match authority.port_u16() {
        Some(port) => HeaderValue::from_str(&format!("{}:{port}", authority.host())),
        None => HeaderValue::from_str(authority.host()),
    };
    let host = host.map_err(|_| RequestError::Target)?;
    let is_chunked = fields.contains_key(header::TRANSFER_ENCODING);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    // A URL may have a query and no path.
    let slash = if path.starts_with('/') { "" } else { "/" };
    *uri = format!("{slash}{path}").parse().map_err(|_| RequestError::Target)?;
    remove_fields_of_one_hop(fields);
    if is_chunked {
        // Without it, a GET would go without its body.
        fields.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    fields.insert(header::HOST, host);
    add_via(version, fields);
    Ok(())
}

/// Says that the message came through a proxy (RFC 9110 §7.6.3).
pub fn add_via(version: Version, fields: &mut HeaderMap) {
    let via = if version < Version::HTTP_11 { "1.0 polypath" } else { "1.1 polypath" };
    fields.append(header::VIA, HeaderValue::from_static(via));
}

/// What a client is told of a server that was not reached.
#[must_use]
pub fn status_of(failure: ConnectFailure) -> StatusCode {
    match failure {
        ConnectFailure::NotAllowed
        | ConnectFailure::Upstream(UpstreamFailure::NotAllowed | UpstreamFailure::Address) => {
            StatusCode::FORBIDDEN
        }
        ConnectFailure::Overloaded
        | ConnectFailure::Local
        | ConnectFailure::Upstream(UpstreamFailure::Full) => StatusCode::SERVICE_UNAVAILABLE,
        ConnectFailure::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        ConnectFailure::NameUnknown
        | ConnectFailure::NameLookupFailed
        | ConnectFailure::Refused
        | ConnectFailure::Reset
        | ConnectFailure::Garbled
        | ConnectFailure::NetworkUnreachable
        | ConnectFailure::HostUnreachable
        | ConnectFailure::Upstream(_) => StatusCode::BAD_GATEWAY,
    }
}

/// Whether a request is there to its last field. An answer before that could be lost: what lies unread when a socket is closed resets it.
#[must_use]
pub fn has_all_fields(input: &[u8]) -> bool {
    input.windows(4).any(|bytes| bytes == b"\r\n\r\n")
}

/// An answer to whatever is asked, after which the connection is closed (RFC 9112 §9.6).
#[must_use]
pub fn last_answer(failure: ConnectFailure) -> Bytes {
    let (status, line) = (status_of(failure), format!("{failure}\n"));
    let text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{line}",
        line.len()
    );
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target_of(method: &Method, uri: &str) -> Result<String, RequestError> {
        target(method, &uri.parse().unwrap()).map(|target| target.to_string())
    }

    #[test]
    fn a_request_goes_where_its_url_says() {
        let get = |uri| target_of(&Method::GET, uri);
        assert_eq!(get("http://Example.org/a?b"), Ok("example.org:80".into()));
        assert_eq!(get("http://example.org:8080/"), Ok("example.org:8080".into()));
        assert_eq!(get("http://[2001:db8::1]/"), Ok("[2001:db8::1]:80".into()));
        assert_eq!(get("/index.html"), Err(RequestError::NotForProxy));
        assert_eq!(get("https://example.org/"), Err(RequestError::Scheme));
        assert_eq!(get("http://user:word@example.org/"), Err(RequestError::Target));
        for port in ["0", "+80", "+8080", "65536", "8a", ""] {
            let uri = format!("http://example.org:{port}/");
            assert_eq!(target_of(&Method::GET, &uri), Err(RequestError::Target), "{port:?}");
        }
        let connect = |uri| target_of(&Method::CONNECT, uri);
        assert_eq!(connect("example.org:443"), Ok("example.org:443".into()));
        assert_eq!(connect("example.org"), Err(RequestError::Target));
        assert_eq!(connect("user@example.org:443"), Err(RequestError::Target));
    }

    #[test]
    fn a_length_that_can_be_understood_in_two_ways_is_refused() {
        let check = |fields: &[(HeaderName, &'static str)]| {
            let pairs = fields.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
            let mut map = HeaderMap::new();
            pairs.for_each(|(name, value)| {
                map.append(name, value);
            });
            check_length(Version::HTTP_11, &map)
        };
        use header::{CONTENT_LENGTH as LENGTH, TRANSFER_ENCODING as ENCODING};
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&[(LENGTH, "5")]), Ok(()));
        assert_eq!(check(&[(ENCODING, "Chunked")]), Ok(()));
        for wrong in [
            vec![(LENGTH, "5"), (ENCODING, "chunked")],
            vec![(LENGTH, "5"), (LENGTH, "5")],
            vec![(LENGTH, "+5")],
            vec![(LENGTH, "5, 5")],
            vec![(LENGTH, "")],
            vec![(ENCODING, "gzip, chunked")],
            vec![(ENCODING, "chunked"), (ENCODING, "identity")],
            vec![(ENCODING, "xchunked")],
        ] {
            assert_eq!(check(&wrong), Err(RequestError::Length), "{wrong:?}");
        }
        let mut old = HeaderMap::new();
        old.insert(ENCODING, HeaderValue::from_static("chunked"));
        assert_eq!(check_length(Version::HTTP_10, &old), Err(RequestError::Length));
    }

    #[test]
    fn hosts_are_one_and_a_connect_has_no_body() {
        use header::{CONTENT_LENGTH as LENGTH, HOST};
        let check = |method: Method, version, fields: &[(HeaderName, &'static str)]| {
            let mut map = HeaderMap::new();
            for (name, value) in fields {
                map.append(name, HeaderValue::from_static(value));
            }
            check_meaning(&method, version, &map)
        };
        let new = Version::HTTP_11;
        assert_eq!(check(Method::GET, new, &[(HOST, "x")]), Ok(()));
        assert_eq!(check(Method::GET, Version::HTTP_10, &[]), Ok(()));
        assert_eq!(check(Method::CONNECT, new, &[(LENGTH, "0")]), Ok(()));
        assert_eq!(check(Method::GET, new, &[]), Err(RequestError::Host));
        assert_eq!(check(Method::GET, new, &[(HOST, "x"), (HOST, "x")]), Err(RequestError::Host));
        assert_eq!(check(Method::CONNECT, new, &[(LENGTH, "5")]), Err(RequestError::BodyOfConnect));
    }

    #[test]
    fn a_url_may_have_a_query_and_no_path() {
        let mut uri: Uri = "http://example.org?q=1".parse().expect("a URL");
        make_request_for_server(&mut uri, Version::HTTP_11, &mut HeaderMap::new()).expect("a request");
        assert_eq!(uri, "/?q=1");
    }

    #[test]
    fn what_older_servers_say_and_what_has_no_content_passes() {
        let settled = |status, said: &[(HeaderName, &'static str)]| {
            let of =
                |(name, value): &(HeaderName, &'static str)| (name.clone(), HeaderValue::from_static(value));
            let mut fields: HeaderMap = said.iter().map(of).collect();
            settle_length_of_answer(status, &mut fields).map(|()| fields.len())
        };
        let (encoding, length) = (header::TRANSFER_ENCODING, header::CONTENT_LENGTH);
        let identity = (encoding.clone(), "Identity");
        assert_eq!(settled(StatusCode::OK, std::slice::from_ref(&identity)), Ok(0));
        assert_eq!(settled(StatusCode::OK, &[identity, (length.clone(), "5")]), Ok(1));
        let (coded, odd) = ((encoding, "gzip"), (length, ""));
        for said in [coded, odd] {
            assert_eq!(settled(StatusCode::OK, std::slice::from_ref(&said)), Err(UnclearAnswer));
            assert_eq!(settled(StatusCode::NOT_MODIFIED, std::slice::from_ref(&said)), Ok(0));
            assert_eq!(settled(StatusCode::NO_CONTENT, &[said]), Ok(0));
        }
    }

    #[test]
    fn a_server_is_told_its_port_as_a_number() {
        for (authority, host) in [
            ("Example.org:08080", "Example.org:8080"),
            ("[2001:db8::1]:0080", "[2001:db8::1]:80"),
            ("[2001:db8::1]", "[2001:db8::1]"),
        ] {
            let mut uri: Uri = format!("http://{authority}/").parse().expect("a URL");
            let mut fields = HeaderMap::new();
            make_request_for_server(&mut uri, Version::HTTP_11, &mut fields).expect("a request");
            assert_eq!(fields[header::HOST], host);
        }
    }

    #[test]
    fn credentials_are_a_name_and_all_behind_the_first_colon() {
        assert_eq!(basic_credentials(b"Basic YTpiOmM="), Some((b"a".to_vec(), b"b:c".to_vec())));
        assert_eq!(basic_credentials(b"basic  YTo="), Some((b"a".to_vec(), Vec::new())));
        for wrong in [&b"Basic"[..], b"Basic ", b"Basic YQ==", b"Bearer YTpi", b"Basic ***"] {
            assert_eq!(basic_credentials(wrong), None);
        }
    }

    #[test]
    fn what_is_for_one_hop_goes_no_further() {
        let mut fields = HeaderMap::new();
        for (name, value) in [
            ("connection", "X-Own, content-length,close"),
            ("x-own", "1"),
            ("content-length", "5"),
            ("proxy-authorization", "Basic eDp5"),
            ("keep-alive", "timeout=5"),
            ("accept", "*/*"),
            ("host", "elsewhere.example"),
        ] {
            fields.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let mut uri: Uri = "http://example.org:8080/a?b".parse().unwrap();
        make_request_for_server(&mut uri, Version::HTTP_11, &mut fields).unwrap();
        assert_eq!(uri, "/a?b");
        let mut left: Vec<String> =
            fields.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        left.sort();
        assert_eq!(left, ["accept: */*", "content-length: 5", "host: example.org:8080", "via: 1.1 polypath"]);
    }
}
