//! What requests have beside what they ask for.

use url::Url;

use super::way::Dial;
use crate::cookies::{Cookies, Noted};
use crate::http1::{self, Head};

/// What all requests of a download have.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    pub(crate) url: Url,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) cookies: Option<Cookies>,
}

/// Fields that are for one host only.
const FOR_ONE_HOST: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

/// What requests have beside what they need. What is for one host only goes to no other, wherever a server or a manifest sends.
#[derive(Clone, Debug)]
pub(crate) struct RequestFields {
    /// Whose host is told everything.
    home: Url,
    fields: Vec<(String, String)>,
    cookies: Option<Cookies>,
}

impl RequestFields {
    pub(crate) fn new(home: Url, fields: Vec<(String, String)>, cookies: Option<Cookies>) -> Self {
        Self { home, fields, cookies }
    }

    /// The same for now. Cookies that are noted there stay there.
    pub(crate) fn apart(&self) -> Self {
        Self { cookies: self.cookies.as_ref().map(Cookies::apart), ..self.clone() }
    }

    /// Takes the cookies of an answer that is believed.
    pub(crate) fn note_cookies(&self, url: &Url, head: &Head) {
        self.cookies.iter().for_each(|cookies| cookies.note(url, head));
    }

    /// The same of several.
    pub(crate) fn note_all_cookies(&self, noted: &Noted) {
        noted.iter().for_each(|(url, head)| self.note_cookies(url, head));
    }

    /// Takes the cookies of an answer, if it is the server's for sure.
    pub(crate) fn note_cookies_if_sure(&self, url: &Url, head: &Head) {
        self.cookies.iter().for_each(|cookies| cookies.note_if_sure(url, head));
    }

    /// What requests to the server of a URL have.
    pub(crate) fn asking(&self, url: &Url) -> Asking {
        let is_at_home = self.home.origin() == url.origin();
        let is_for_it = |name: &str| is_at_home || !FOR_ONE_HOST.contains(&&*name.to_ascii_lowercase());
        let fields = self.fields.iter().filter(|(name, _)| is_for_it(name)).cloned().collect();
        Asking { url: url.clone(), fields, cookies: self.cookies.clone() }
    }
}

impl Asking {
    /// A request for a range of the file, or all.
    pub(crate) fn request(
        &self,
        way: &dyn Dial,
        url: Option<&Url>,
        range: Option<&str>,
    ) -> Result<http1::Request, http1::InvalidRequest> {
        let url = url.unwrap_or(&self.url);
        let mut request = way.request(url)?;
        let has = |name: &str| self.fields.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        for (name, value) in [
            ("User-Agent", concat!("polypath/", env!("CARGO_PKG_VERSION"))),
            ("Accept", "*/*"),
            ("Accept-Encoding", "identity"),
        ] {
            if !has(name) {
                request = request.with_field(name, value)?;
            }
        }
        // A request has one field of cookies (RFC 6265 §5.4).
        let is_cookie = |name: &str| name.eq_ignore_ascii_case("cookie");
        let given = self.fields.iter().filter(|(name, _)| is_cookie(name)).map(|(_, value)| value.clone());
        let kept = self.cookies.as_ref().and_then(|cookies| cookies.field(url));
        let cookies: Vec<String> = kept.into_iter().chain(given).collect();
        for (name, value) in self.fields.iter().filter(|(name, _)| !is_cookie(name)) {
            request = request.with_field(name, value)?;
        }
        if !cookies.is_empty() {
            request = request.with_field("Cookie", &cookies.join("; "))?;
        }
        match range {
            Some(range) => request.with_field("Range", range),
            None => Ok(request),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_for_one_host_goes_to_no_other() {
        let url = |text: &str| Url::parse(text).expect("a URL");
        let fields = [("AUTHORIZATION", "a"), ("Cookie", "b"), ("Accept", "c")];
        let fields = fields.map(|(name, value)| (name.into(), value.into())).to_vec();
        let fields = RequestFields::new(url("https://example.org/film.mpd"), fields, None);
        let names = |text: &str| fields.asking(&url(text)).fields.len();
        assert_eq!(names("https://example.org/1.m4s"), 3);
        for other in
            ["http://example.org/1.m4s", "https://example.org:8443/1.m4s", "https://cdn.example.org/1.m4s"]
        {
            assert_eq!(names(other), 1, "{other}");
        }
    }
}
