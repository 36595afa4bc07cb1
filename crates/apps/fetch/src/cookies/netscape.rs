//! Files of cookies in Netscape's format, which curl and others read and write: a line for each, of seven words with tabs between them.

use std::fmt::Write as _;
use std::net::IpAddr;

use super::cookie::{Cookie, domain_of, is_of_many};
use super::jar::Jar;

/// No file of cookies that could be kept has more.
pub const MAX_FILE_BYTES: u64 = 8 << 20;

/// What such a file begins with.
const TITLE: &str = "# Netscape HTTP Cookie File\n# Written by polypath. curl and others read it.\n\n";
/// A cookie that scripts don't see. It looks like a remark.
const HTTP_ONLY: &str = "#HttpOnly_";

/// A line that is no cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "line {line}: {problem}; expected a cookie in Netscape's format: domain, TRUE or FALSE, path, TRUE or FALSE, time, name and value, with tabs between them"
)]
pub struct InvalidLine {
    line: usize,
    problem: &'static str,
}

impl Jar {
    /// Takes the cookies of a file. What is over by now is left out.
    ///
    /// # Errors
    /// The first line that is neither a cookie nor a remark.
    pub fn read(&mut self, text: &str, now_unix_s: u64) -> Result<(), InvalidLine> {
        for (at, line) in text.lines().enumerate() {
            let (line, is_http_only) = match line.strip_prefix(HTTP_ONLY) {
                Some(rest) => (rest, true),
                None => (line, false),
            };
            if line.trim_ascii().is_empty() || !is_http_only && line.starts_with('#') {
                continue;
            }
            let cookie = parse_line(line, is_http_only);
            let cookie = cookie.map_err(|problem| InvalidLine { line: at + 1, problem })?;
            if !cookie.is_over(now_unix_s) {
                self.put(cookie, now_unix_s);
            }
        }
        Ok(())
    }

    /// As a file has them.
    #[must_use]
    pub fn to_file(&self, now_unix_s: u64) -> String {
        let mut text = TITLE.to_owned();
        let word = |is: bool| if is { "TRUE" } else { "FALSE" };
        for cookie in self.kept(now_unix_s) {
            let _ = writeln!(
                text,
                "{}{}{}\t{}\t{}\t{}\t{}\t{}\t{}",
                if cookie.is_http_only { HTTP_ONLY } else { "" },
                if cookie.is_host_only { "" } else { "." },
                cookie.domain,
                word(!cookie.is_host_only),
                cookie.path,
                word(cookie.is_secure),
                cookie.expires_unix_s.unwrap_or(0),
                cookie.name,
                cookie.value,
            );
        }
        text
    }
}

fn parse_line(line: &str, is_http_only: bool) -> Result<Cookie, &'static str> {
    let words: Vec<&str> = line.split('\t').collect();
    // Some write no value where it is empty.
    let (&[domain, is_for_all, path, is_secure, expires, name], value) = match words.as_slice() {
        [words @ .., value] if words.len() == 6 => (words.try_into().map_err(|_| "")?, *value),
        words => (words.try_into().map_err(|_| "it has no seven words")?, ""),
    };
    let flag = |text: &str| match text {
        "TRUE" => Ok(true),
        "FALSE" => Ok(false),
        _ => Err("a word is neither TRUE nor FALSE"),
    };
    let domain = domain_of(domain.strip_prefix('.').unwrap_or(domain)).ok_or("it begins with no domain")?;
    let is_for_one = is_of_many(&domain) || domain.parse::<IpAddr>().is_ok();
    let expires: u64 = expires.parse().map_err(|_| "its time is no number of seconds since 1970")?;
    let cookie = Cookie {
        name: name.into(),
        value: value.into(),
        domain,
        is_host_only: is_for_one || !flag(is_for_all)?,
        path: if path.starts_with('/') { path.into() } else { "/".into() },
        is_secure: flag(is_secure)?,
        is_http_only,
        expires_unix_s: Some(expires).filter(|expires| *expires > 0),
    };
    if cookie.is_sound() { Ok(cookie) } else { Err("it has no name, is too long, or has control characters") }
}
