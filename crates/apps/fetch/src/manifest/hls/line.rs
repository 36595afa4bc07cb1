use polypath_units::Duration;

use crate::manifest::error::{Error, quoted};
use crate::manifest::resource::ByteRange;

/// A line that says something (RFC 8216, section 4.1).
#[derive(Clone, Copy, Debug)]
pub(super) enum Line<'a> {
    /// A tag, and what follows its colon.
    Tag(&'a str, &'a str),
    /// A segment or a playlist.
    Uri(&'a str),
}

/// The lines of a playlist with their numbers; comments and empty lines are left out.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (usize, Line<'_>)> {
    text.lines().enumerate().filter_map(|(at, line)| {
        let line = line.trim_end();
        let said = match line.strip_prefix('#') {
            None if line.is_empty() => return None,
            None => Line::Uri(line),
            Some(tag) if tag.starts_with("EXT") => {
                let (name, value) = tag.split_once(':').unwrap_or((tag, ""));
                Line::Tag(name, value.trim_start())
            }
            Some(_) => return None,
        };
        Some((at + 1, said))
    })
}

/// An attribute list (section 4.2).
#[derive(Debug)]
pub(super) struct Attributes<'a> {
    line: usize,
    tag: &'a str,
    list: Vec<(&'a str, &'a str)>,
}

impl<'a> Attributes<'a> {
    const MOST: usize = 64;

    pub(super) fn parse(line: usize, tag: &'a str, text: &'a str) -> Result<Self, Error> {
        let wrong = |what: &str| Error::malformed(line, format!("{tag} has {what} in {}", quoted(text)));
        let mut list = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let (name, after) = rest.split_once('=').ok_or_else(|| wrong("an attribute without \"=\""))?;
            let (value, after) = match after.strip_prefix('"') {
                Some(quoted) => {
                    quoted.split_once('"').ok_or_else(|| wrong("a quotation that doesn't end"))?
                }
                None => after.split_at(after.find(',').unwrap_or(after.len())),
            };
            list.push((name.trim(), value.trim()));
            if list.len() > Self::MOST {
                return Err(wrong("too many attributes"));
            }
            rest = match after.trim_start().strip_prefix(',') {
                Some(next) => next.trim_start(),
                None if after.trim().is_empty() => "",
                None => return Err(wrong("something between two attributes")),
            };
        }
        Ok(Self { line, tag, list })
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a str> {
        self.list.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    pub(super) fn require(&self, name: &str) -> Result<&'a str, Error> {
        self.get(name).ok_or_else(|| Error::malformed(self.line, format!("{} has no {name}", self.tag)))
    }

    pub(super) fn is_yes(&self, name: &str) -> bool {
        self.get(name) == Some("YES")
    }
}

/// A decimal-integer (section 4.2).
pub(super) fn integer(line: usize, tag: &str, text: &str) -> Result<u64, Error> {
    let text = text.trim();
    text.parse().map_err(|_| {
        Error::malformed(line, format!("{tag} is {}; expected a number such as 6", quoted(text)))
    })
}

/// Seconds as a decimal-floating-point, to the nanosecond.
pub(super) fn seconds(line: usize, tag: &str, text: &str) -> Result<Duration, Error> {
    let text = text.trim();
    let wrong =
        || Error::malformed(line, format!("{tag} is {}; expected seconds such as 6.006", quoted(text)));
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    // A day is more than any segment has.
    let whole: u64 = whole.parse().ok().filter(|whole| *whole <= 86_400).ok_or_else(wrong)?;
    if !is_number(fraction) {
        return Err(wrong());
    }
    let nanos = (fraction.bytes().chain(std::iter::repeat(b'0')).take(9))
        .fold(0, |nanos, digit| nanos * 10 + u64::from(digit - b'0'));
    Ok(Duration::from_secs(whole) + Duration::from_nanos(nanos))
}

/// `length[@offset]` (section 4.3.2.2); `next` is where the range before ended.
pub(super) fn byte_range(line: usize, tag: &str, text: &str, next: Option<u64>) -> Result<ByteRange, Error> {
    let (len, first) = match text.split_once('@') {
        Some((len, first)) => (len, Some(integer(line, tag, first)?)),
        None => (text, next),
    };
    let len = integer(line, tag, len)?;
    let first = first.ok_or_else(|| {
        Error::malformed(line, format!("{tag} has no offset, and no range of the same file goes before it"))
    })?;
    ByteRange::new(first, len)
        .ok_or_else(|| Error::malformed(line, format!("{tag} {} is no range of bytes", quoted(text))))
}
