use std::fmt::Write as _;

use bytes::Bytes;

/// What is asked for. Only methods without a body, whose answer can be asked for again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The content.
    Get,
    /// What the answer would say of it, without the content.
    Head,
}

impl Method {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
        }
    }
}

/// A request that can't be written: it would be read as another one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRequest {
    /// Empty, or with spaces, control characters or letters beyond ASCII.
    #[error("{0:?} is no target of a request; expected a path such as /file")]
    Target(String),
    /// Not a token.
    #[error("{0:?} is no name of a field")]
    Name(String),
    /// With control characters, such as an end of line.
    #[error("the value of the field {0} has control characters")]
    Value(String),
    /// A field by which the request would have a body.
    #[error("a request without a body has no field {0}")]
    Body(String),
}

/// A request without a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    method: Method,
    target: String,
    fields: Vec<(String, String)>,
}

impl Request {
    /// Asks `host` (as the field `Host` has it, with a port unless it is the scheme's) for `target`.
    pub fn new(method: Method, host: &str, target: &str) -> Result<Self, InvalidRequest> {
        let is_target = !target.is_empty() && target.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_target {
            return Err(InvalidRequest::Target(target.to_owned()));
        }
        Self { method, target: target.to_owned(), fields: Vec::new() }.with_field("Host", host)
    }

    /// Adds a field.
    pub fn with_field(mut self, name: &str, value: &str) -> Result<Self, InvalidRequest> {
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(InvalidRequest::Name(name.to_owned()));
        }
        if value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
            return Err(InvalidRequest::Value(name.to_owned()));
        }
        if ["Content-Length", "Transfer-Encoding", "Upgrade"]
            .iter()
            .any(|body| name.eq_ignore_ascii_case(body))
        {
            return Err(InvalidRequest::Body(name.to_owned()));
        }
        self.fields.push((name.to_owned(), value.to_owned()));
        Ok(self)
    }

    /// What is asked for.
    #[must_use]
    pub fn method(&self) -> Method {
        self.method
    }

    /// Of what it asks: a path, or a URL for a proxy.
    #[cfg(feature = "net")]
    pub(crate) fn target(&self) -> &str {
        &self.target
    }

    /// Its fields, with the host as the first.
    #[cfg(feature = "net")]
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub(super) fn into_bytes(self) -> Bytes {
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method.name(), self.target);
        for (name, value) in &self.fields {
            let _ = write!(text, "{name}: {value}\r\n");
        }
        text.push_str("\r\n");
        text.into()
    }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_written_as_http_has_it() {
        let request = Request::new(Method::Get, "example.org", "/file?x=1").unwrap();
        let request = request.with_field("Range", "bytes=0-99").unwrap();
        let expected = "GET /file?x=1 HTTP/1.1\r\nHost: example.org\r\nRange: bytes=0-99\r\n\r\n";
        assert_eq!(request.into_bytes(), expected);
    }

    #[test]
    fn a_request_that_would_be_read_as_two_is_refused() {
        for target in ["", "/a b", "/a\r\nX: y", "/ä"] {
            assert_eq!(
                Request::new(Method::Get, "h", target),
                Err(InvalidRequest::Target(target.to_owned()))
            );
        }
        let request = Request::new(Method::Head, "h", "/").unwrap();
        assert_eq!(request.method(), Method::Head);
        let with = |name: &str, value: &str| request.clone().with_field(name, value).unwrap_err();
        assert_eq!(with("a b", ""), InvalidRequest::Name("a b".to_owned()));
        assert_eq!(with("", ""), InvalidRequest::Name(String::new()));
        assert_eq!(with("A", "x\nB: y"), InvalidRequest::Value("A".to_owned()));
        assert_eq!(with("content-length", "1"), InvalidRequest::Body("content-length".to_owned()));
        assert!(Request::new(Method::Get, "h\r\n", "/").is_err());
    }
}
