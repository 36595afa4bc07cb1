//! One cookie, and the requests that it is for.

use std::net::IpAddr;

use url::{Host, Url};

/// Of a name and a value together (RFC 6265bis §5.6).
const MAX_BYTES: usize = 4096;
/// Of a path or a domain.
const MAX_PLACE_BYTES: usize = 1024;
/// Under a country's domain, who has one of these is no one in particular (RFC 6265 §5.3, step 5).
const OF_EVERYBODY: [&str; 14] =
    ["ac", "co", "com", "edu", "go", "gob", "gouv", "gov", "gv", "mil", "ne", "net", "or", "org"];

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Cookie {
    pub(super) name: String,
    pub(super) value: String,
    /// In lower case. An IPv6 address has no brackets.
    pub(super) domain: String,
    /// For that host alone, and no host below it.
    pub(super) is_host_only: bool,
    pub(super) path: String,
    /// For https:// alone.
    pub(super) is_secure: bool,
    /// Not for scripts. It is kept for programs that have some.
    pub(super) is_http_only: bool,
    /// Seconds since 1970; none is the end of a session.
    pub(super) expires_unix_s: Option<u64>,
}

impl Cookie {
    /// Whether it is small enough, and can be written into a request and a line of a file.
    pub(super) fn is_sound(&self) -> bool {
        let texts = [&self.name, &self.value, &self.domain, &self.path];
        let is_short = self.name.len() + self.value.len() <= MAX_BYTES
            && self.domain.len().max(self.path.len()) <= MAX_PLACE_BYTES;
        let is_clean = texts.iter().all(|text| !text.bytes().any(|byte| byte.is_ascii_control()));
        let is_whole = !self.value.contains(';') && !self.name.contains([';', '=']);
        !self.name.is_empty() && !self.domain.is_empty() && is_short && is_clean && is_whole
    }

    pub(super) fn is_over(&self, now_unix_s: u64) -> bool {
        self.expires_unix_s.is_some_and(|expires| expires <= now_unix_s)
    }

    /// Whether a request has it.
    pub(super) fn is_for(&self, url: &Url) -> bool {
        let Some(host) = host_of(url) else { return false };
        let is_for_host =
            if self.is_host_only { host == self.domain } else { is_within(&host, &self.domain) };
        is_for_host && (!self.is_secure || url.scheme() == "https") && is_below(url.path(), &self.path)
    }

    /// Whether another one takes its place.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (&self.name, &self.domain, self.is_host_only, &self.path)
            == (&other.name, &other.domain, other.is_host_only, &other.path)
    }

    /// Whether one that came by http:// would be taken for this one, which is for https:// alone.
    pub(super) fn would_be_hidden_by(&self, other: &Self) -> bool {
        let is_related = is_within(&self.domain, &other.domain) || is_within(&other.domain, &self.domain);
        self.is_secure && self.name == other.name && is_related && is_below(&other.path, &self.path)
    }
}

/// The host of a URL as cookies have it.
pub(super) fn host_of(url: &Url) -> Option<String> {
    Some(text_of(&url.host()?.to_owned()))
}

/// A domain as cookies have it; none if it is none.
pub(super) fn domain_of(text: &str) -> Option<String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.to_string());
    }
    Host::parse(text).ok().map(|host| text_of(&host))
}

fn text_of(host: &Host) -> String {
    match host {
        Host::Domain(domain) => domain.to_ascii_lowercase(),
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => address.to_string(),
    }
}

/// Whether a host is a domain, or below it (RFC 6265 §5.1.3).
pub(super) fn is_within(host: &str, domain: &str) -> bool {
    let is_below = || host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    host == domain || is_below() && host.parse::<IpAddr>().is_err()
}

/// Whether many have hosts below a domain that have nothing to do with each other, as far as one can tell without a list of them all.
pub(super) fn is_of_many(domain: &str) -> bool {
    let mut labels = domain.rsplit('.');
    let (last, second, third) = (labels.next().unwrap_or_default(), labels.next(), labels.next());
    let Some(second) = second.filter(|_| !last.is_empty()) else { return true };
    third.is_none() && last.len() == 2 && OF_EVERYBODY.contains(&second)
}

/// Whether a path is a cookie's, or below it (RFC 6265 §5.1.4).
fn is_below(path: &str, of_cookie: &str) -> bool {
    let rest = path.strip_prefix(of_cookie);
    rest.is_some_and(|rest| rest.is_empty() || of_cookie.ends_with('/') || rest.starts_with('/'))
}
