//! What requests have beside what they ask for.

use url::Url;

use super::way::Dial;
use crate::http1;

/// What all requests of a download have.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    pub(crate) url: Url,
    pub(crate) fields: Vec<(String, String)>,
}

/// Fields that are for one host only.
const FOR_ONE_HOST: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

/// What requests have beside what they need. What is for one host only goes to no other, wherever a server or a manifest sends.
#[derive(Clone, Debug)]
pub(crate) struct RequestFields {
    /// Whose host is told everything.
    home: Url,
    fields: Vec<(String, String)>,
}

impl RequestFields {
    pub(crate) fn new(home: Url, fields: Vec<(String, String)>) -> Self {
        Self { home, fields }
    }

    /// What requests to the server of a URL have.
    pub(crate) fn asking(&self, url: &Url) -> Asking {
        let is_at_home = self.home.origin() == url.origin();
        let is_for_it = |name: &str| is_at_home || !FOR_ONE_HOST.contains(&&*name.to_ascii_lowercase());
        let fields = self.fields.iter().filter(|(name, _)| is_for_it(name)).cloned().collect();
        Asking { url: url.clone(), fields }
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
        let mut request = way.request(url.unwrap_or(&self.url))?;
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
        for (name, value) in &self.fields {
            request = request.with_field(name, value)?;
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
        let fields = RequestFields::new(url("https://example.org/film.mpd"), fields);
        let names = |text: &str| fields.asking(&url(text)).fields.len();
        assert_eq!(names("https://example.org/1.m4s"), 3);
        for other in
            ["http://example.org/1.m4s", "https://example.org:8443/1.m4s", "https://cdn.example.org/1.m4s"]
        {
            assert_eq!(names(other), 1, "{other}");
        }
    }
}
