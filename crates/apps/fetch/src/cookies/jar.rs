//! Cookies that are kept.

use std::fmt;

use url::Url;

use super::cookie::Cookie;
use super::set_cookie;
use crate::http1::Head;

/// Cookies of one domain, three times what RFC 6265 §6.1 asks for. One more takes the place of the oldest.
const MAX_OF_DOMAIN: usize = 150;
/// Cookies in all. One more is not kept, so that no server takes away what is another's.
const MAX_COOKIES: usize = 3000;
/// Names, values, domains and paths of all.
const MAX_BYTES: usize = 4 << 20;
/// What one request has: servers refuse more.
const MAX_FIELD_BYTES: usize = 8190;
/// What one answer sets.
const MAX_OF_ANSWER: usize = 50;

/// Cookies, in the order in which they came.
#[derive(Clone, Default)]
pub struct Jar {
    cookies: Vec<Cookie>,
}

/// Without their values, by which somebody could take their owner's place.
impl fmt::Debug for Jar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Jar of {}", self.cookies.len())
    }
}

impl Jar {
    /// Takes what the answer to a request for a URL sets, as far as it may.
    pub fn note(&mut self, url: &Url, head: &Head, now_unix_s: u64) {
        for value in head.fields.all("set-cookie").take(MAX_OF_ANSWER) {
            if let Some(cookie) = set_cookie::parse(value, url, now_unix_s) {
                let is_open = url.scheme() != "https";
                if !is_open || !self.cookies.iter().any(|known| known.would_be_hidden_by(&cookie)) {
                    self.put(cookie, now_unix_s);
                }
            }
        }
    }

    /// The value of the field `Cookie` of a request; none if no cookie is for it.
    #[must_use]
    pub fn field(&self, url: &Url, now_unix_s: u64) -> Option<String> {
        let is_for_it = |cookie: &&Cookie| !cookie.is_over(now_unix_s) && cookie.is_for(url);
        let mut cookies: Vec<&Cookie> = self.cookies.iter().filter(is_for_it).collect();
        // Of two with a name, a server takes the first.
        cookies.sort_by_key(|cookie| std::cmp::Reverse(cookie.path.len()));
        let mut field = String::new();
        for Cookie { name, value, .. } in cookies {
            if field.len() + name.len() + value.len() + 3 <= MAX_FIELD_BYTES {
                let between = if field.is_empty() { "" } else { "; " };
                field.push_str(&format!("{between}{name}={value}"));
            }
        }
        Some(field).filter(|field| !field.is_empty())
    }

    /// Keeps a cookie in place of the one that it replaces. One that is over only takes that one away.
    pub(super) fn put(&mut self, cookie: Cookie, now_unix_s: u64) {
        self.cookies.retain(|known| !known.is_over(now_unix_s));
        let known = self.cookies.iter().position(|known| known.is_same(&cookie));
        if cookie.is_over(now_unix_s) {
            known.map(|at| self.cookies.remove(at));
            return;
        }
        let replaced = known.map_or(0, |at| bytes_of(&self.cookies[at]));
        if self.cookies.iter().map(bytes_of).sum::<usize>() - replaced + bytes_of(&cookie) > MAX_BYTES {
            return;
        }
        if let Some(at) = known {
            self.cookies[at] = cookie;
            return;
        }
        let of_domain = |known: &Cookie| known.domain == cookie.domain;
        if self.cookies.iter().filter(|known| of_domain(known)).count() >= MAX_OF_DOMAIN
            && let Some(oldest) = self.cookies.iter().position(of_domain)
        {
            self.cookies.remove(oldest);
        }
        if self.cookies.len() < MAX_COOKIES {
            self.cookies.push(cookie);
        }
    }

    /// Those that are not over.
    pub(super) fn kept(&self, now_unix_s: u64) -> impl Iterator<Item = &Cookie> {
        self.cookies.iter().filter(move |cookie| !cookie.is_over(now_unix_s))
    }
}

fn bytes_of(cookie: &Cookie) -> usize {
    [&cookie.name, &cookie.value, &cookie.domain, &cookie.path].map(String::len).into_iter().sum()
}

#[cfg(test)]
mod tests;
