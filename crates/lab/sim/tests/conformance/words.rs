//! The words of a line.

use std::str::FromStr;

use polypath_units::Duration;

use crate::script::When;

/// Words, with parentheses as words of their own; commas only part them.
#[derive(Debug)]
pub(crate) struct Words {
    words: Vec<String>,
    at: usize,
}

impl Words {
    pub(crate) fn new(line: &str) -> Self {
        let spaced = line.replace('(', " ( ").replace(')', " ) ").replace(',', " ");
        Self { words: spaced.split_whitespace().map(str::to_owned).collect(), at: 0 }
    }

    pub(crate) fn peek(&self) -> Option<&str> {
        self.words.get(self.at).map(String::as_str)
    }

    pub(crate) fn next(&mut self) -> Option<String> {
        let word = self.words.get(self.at).cloned();
        self.at += 1;
        word
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.at >= self.words.len()
    }

    /// Takes `word` if it comes next.
    pub(crate) fn take(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(word);
        self.at += usize::from(found);
        found
    }

    pub(crate) fn word(&mut self, what: &str) -> Result<String, String> {
        self.next().ok_or_else(|| format!("{what} is missing"))
    }

    pub(crate) fn value<T: FromStr>(&mut self, what: &str) -> Result<T, String> {
        let word = self.word(what)?;
        word.parse().map_err(|_| format!("`{word}` is no {what}"))
    }

    /// The words in the parentheses that come next, if any do.
    pub(crate) fn arguments(&mut self) -> Result<Self, String> {
        let mut words = Vec::new();
        if self.take("(") {
            loop {
                match self.word("a closing parenthesis")? {
                    word if word == ")" => break,
                    word => words.push(word),
                }
            }
        }
        Ok(Self { words, at: 0 })
    }

    pub(crate) fn end(&self) -> Result<(), String> {
        self.peek().map_or(Ok(()), |word| Err(format!("`{word}` means nothing here")))
    }

    pub(crate) fn rest(&mut self) -> String {
        let rest = self.words.get(self.at..).unwrap_or_default().join(" ");
        self.at = self.words.len();
        rest
    }
}

/// `A:B`: from A on, before B.
pub(crate) fn range(word: &str) -> Option<(i64, i64)> {
    let (start, end) = word.split_once(':')?;
    Some((start.parse().ok()?, end.parse().ok()?))
}

/// `200ms`, `1.5s`, `40us`.
pub(crate) fn duration(word: &str) -> Result<Duration, String> {
    let split = word.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(word.len());
    let (number, unit) = word.split_at(split);
    let seconds = match unit {
        "s" => 1.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        "" if number == "0" => 1.0,
        _ => return Err(format!("`{word}` is no time, such as 200ms or 1.5s")),
    };
    let number: f64 = number.parse().map_err(|_| format!("`{word}` is no time"))?;
    Ok(Duration::from_nanos((number * seconds * 1e9).round() as u64))
}

/// `200ms`, `200ms~10ms` or `0..1s`.
pub(crate) fn when(word: &str) -> Result<When, String> {
    if let Some((from, to)) = word.split_once("..") {
        return Ok(When { from: duration(from)?, to: duration(to)? });
    }
    let (middle, tolerance) = word.split_once('~').unwrap_or((word, "0"));
    let (middle, tolerance) = (duration(middle)?, duration(tolerance)?);
    Ok(When { from: middle.saturating_sub(tolerance), to: middle + tolerance })
}
