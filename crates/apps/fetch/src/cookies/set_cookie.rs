//! The field `Set-Cookie` (RFC 6265bis §5.6).

use url::Url;

use super::cookie::{Cookie, domain_of, host_of, is_of_many, is_within};
use super::date;

/// Nobody's cookie lives longer (RFC 6265bis §5.5).
const MAX_AGE_S: u64 = 400 * 86_400;

/// The cookie that the answer to a request for a URL sets; none if it may not, or if it is none.
pub(super) fn parse(value: &[u8], url: &Url, now_unix_s: u64) -> Option<Cookie> {
    let text = std::str::from_utf8(value).ok()?;
    let mut parts = text.split(';').map(str::trim_ascii);
    let (name, value) = parts.next()?.split_once('=')?;
    let host = host_of(url)?;
    let mut cookie = Cookie {
        name: name.trim_ascii_end().into(),
        value: value.trim_ascii_start().into(),
        domain: host.clone(),
        is_host_only: true,
        path: default_path(url.path()),
        is_secure: false,
        is_http_only: false,
        expires_unix_s: None,
    };
    let (mut domain, mut max_age_s) = ("", None);
    for part in parts {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let value = value.trim_ascii_start();
        match name.trim_ascii_end().to_ascii_lowercase().as_str() {
            "domain" => domain = value.strip_prefix('.').unwrap_or(value),
            "path" if value.starts_with('/') => cookie.path = value.into(),
            "path" => cookie.path = default_path(url.path()),
            "secure" => cookie.is_secure = true,
            "httponly" => cookie.is_http_only = true,
            "expires" => cookie.expires_unix_s = date::parse(value).or(cookie.expires_unix_s),
            "max-age" => max_age_s = parse_seconds(value).or(max_age_s),
            _ => {}
        }
    }
    if let Some(seconds) = max_age_s {
        // None left is the past.
        cookie.expires_unix_s = Some(if seconds == 0 { 0 } else { now_unix_s.saturating_add(seconds) });
    }
    let latest = now_unix_s.saturating_add(MAX_AGE_S);
    cookie.expires_unix_s = cookie.expires_unix_s.map(|expires| expires.min(latest));
    if !domain.is_empty() {
        let domain = domain_of(domain)?;
        if !is_within(&host, &domain) {
            return None;
        }
        // One that many have may only be set for the very host.
        if is_of_many(&domain) && host != domain {
            return None;
        }
        cookie.is_host_only = is_of_many(&domain) || host.parse::<std::net::IpAddr>().is_ok();
        cookie.domain = domain;
    }
    let is_secure = cookie.is_secure && url.scheme() == "https";
    let has_prefix =
        |prefix: &str| cookie.name.get(..prefix.len()).is_some_and(|name| name.eq_ignore_ascii_case(prefix));
    let is_as_named = (!has_prefix("__Secure-") || is_secure)
        && (!has_prefix("__Host-") || is_secure && domain.is_empty() && cookie.path == "/");
    let is_allowed = !cookie.is_secure || is_secure;
    (cookie.is_sound() && is_as_named && is_allowed).then_some(cookie)
}

/// Seconds, of which less than none is none.
fn parse_seconds(text: &str) -> Option<u64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    Some(if text.starts_with('-') { 0 } else { digits.parse().unwrap_or(u64::MAX) })
}

/// The folder of what was asked for (RFC 6265 §5.1.4).
fn default_path(path: &str) -> String {
    match path.rsplit_once('/') {
        Some((folder, _)) if folder.starts_with('/') => folder.into(),
        _ => "/".into(),
    }
}
