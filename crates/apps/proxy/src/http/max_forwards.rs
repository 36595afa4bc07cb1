//! How many proxies a request may pass (RFC 9110 §7.6.2).

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{
    ALLOW, AUTHORIZATION, CONTENT_TYPE, COOKIE, HeaderMap, HeaderName, HeaderValue, MAX_FORWARDS,
    PROXY_AUTHORIZATION,
};
use http::request::Parts;
use http::{Method, Response};

/// Secrets, which no answer repeats (RFC 9110 §9.3.8).
const SECRET: [HeaderName; 3] = [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE];
/// What may be asked of the proxy.
const METHODS: &str = "CONNECT, DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT, TRACE";

/// Counts this proxy. The answer is there if the request may go no further; it is only of TRACE and OPTIONS that this is asked.
pub(crate) fn pass(request: &mut Parts) -> Option<Response<Bytes>> {
    let is_asked = [Method::TRACE, Method::OPTIONS].contains(&request.method);
    // What is no number is nobody's to mend.
    let left: u32 = request.headers.get(MAX_FORWARDS).filter(|_| is_asked)?.to_str().ok()?.parse().ok()?;
    match left.checked_sub(1) {
        Some(left) => {
            request.headers.insert(MAX_FORWARDS, left.into());
            None
        }
        None if request.method == Method::TRACE => Some(traced(request)),
        None => {
            let mut answer = Response::new(Bytes::new());
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static(METHODS));
            Some(answer)
        }
    }
}

/// The request as it came (RFC 9110 §9.3.8).
fn traced(request: &Parts) -> Response<Bytes> {
    let mut text = BytesMut::new();
    text.put(format!("{} {} {:?}\r\n", request.method, request.uri, request.version).as_bytes());
    for (name, value) in without_secrets(&request.headers) {
        text.put(name.as_str().as_bytes());
        text.put(&b": "[..]);
        text.put(value.as_bytes());
        text.put(&b"\r\n"[..]);
    }
    text.put(&b"\r\n"[..]);
    let mut answer = Response::new(text.freeze());
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("message/http"));
    answer
}

fn without_secrets(fields: &HeaderMap) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
    fields.iter().filter(|(name, _)| !SECRET.contains(name))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn request(method: Method, most: &str) -> Parts {
        let request =
            Request::builder().method(method).uri("http://example.org/a").header("max-forwards", most);
        let request = request.header("cookie", "secret").header("x-own", "1");
        request.body(()).expect("a request").into_parts().0
    }

    #[test]
    fn each_proxy_counts_and_the_last_answers() {
        let mut passed = request(Method::OPTIONS, "2");
        assert!(pass(&mut passed).is_none());
        assert_eq!(passed.headers["max-forwards"], "1");
        let answer = pass(&mut request(Method::OPTIONS, "0")).expect("an answer");
        assert!(answer.body().is_empty() && answer.headers()[ALLOW] == METHODS);
        let answer = pass(&mut request(Method::TRACE, "0")).expect("an answer");
        assert_eq!(answer.headers()[CONTENT_TYPE], "message/http");
        let text = "TRACE http://example.org/a HTTP/1.1\r\nmax-forwards: 0\r\nx-own: 1\r\n\r\n";
        assert_eq!(answer.body(), text);
    }

    #[test]
    fn of_other_methods_and_what_is_no_number_nothing_is_asked() {
        for (method, most) in [(Method::GET, "0"), (Method::TRACE, ""), (Method::OPTIONS, "-1")] {
            let mut passed = request(method, most);
            assert!(pass(&mut passed).is_none());
            assert_eq!(passed.headers["max-forwards"], most);
        }
    }
}
