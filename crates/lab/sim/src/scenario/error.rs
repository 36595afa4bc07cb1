use std::fmt;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

/// Why a scenario can't be run, as one line that names the file, the key and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    /// The scenario file as the user named it.
    pub file: PathBuf,
    /// Line of the key, counted from one, if there is a line to point to.
    pub line: Option<usize>,
    /// The key in full, such as `links[1].rate`; empty if the mistake is in no key.
    pub key: String,
    /// What is wrong.
    pub kind: ScenarioErrorKind,
    /// What is wrong and what was expected, in words.
    pub message: String,
}

/// The kind of a mistake in a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScenarioErrorKind {
    /// The file can't be read.
    Unreadable,
    /// The file is no TOML.
    Syntax,
    /// A key that means nothing, is missing, or has a value that can't be read.
    Value,
    /// A value that names something that is not there, or that contradicts another.
    Reference,
    /// No route between the hosts of a connection.
    NoRoute,
    /// An output can't be written.
    Output,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        // Whatever the message came from, the error stays one line.
        write!(f, ": {}", self.message.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

impl std::error::Error for ScenarioError {}

/// A file's name and text, to make errors that point into it.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// As the user named it.
    pub file: &'a Path,
    /// All of it.
    pub text: &'a str,
}

impl Source<'_> {
    /// An error about `key`, whose line is looked up.
    pub fn error(
        &self,
        kind: ScenarioErrorKind,
        key: impl Into<String>,
        message: impl Into<String>,
    ) -> ScenarioError {
        let key = key.into();
        let line = self.line_of(&key);
        ScenarioError { file: self.file.to_path_buf(), line, key, kind, message: message.into() }
    }

    /// A mistake in the value of `key`.
    pub fn wrong(&self, key: impl Into<String>, message: impl Into<String>) -> ScenarioError {
        self.error(ScenarioErrorKind::Reference, key, message)
    }

    /// A name that is none of `known`.
    pub fn unknown<'n>(
        &self,
        key: impl Into<String>,
        what: &str,
        name: &str,
        known: impl IntoIterator<Item = &'n str>,
    ) -> ScenarioError {
        let known: Vec<String> = known.into_iter().map(|name| format!("\"{name}\"")).collect();
        let expected = match known.len() {
            0 => "expected none".to_string(),
            1 => format!("expected {}", known[0]),
            _ => format!("expected one of {}", known.join(", ")),
        };
        self.wrong(key, format!("unknown {what} \"{name}\"; {expected}"))
    }

    /// The line of a byte offset.
    pub fn line_at(&self, offset: usize) -> usize {
        1 + self.text.as_bytes()[..offset.min(self.text.len())].iter().filter(|byte| **byte == b'\n').count()
    }

    /// The line of a key such as `links[1].rate`, or of the nearest table that holds it.
    fn line_of(&self, key: &str) -> Option<usize> {
        let root = DeTable::parse(self.text).ok()?;
        let mut table = Some(root.get_ref());
        let mut array = None;
        let mut offset = None;
        for part in key.split(['.', '[']).filter(|part| !part.is_empty()) {
            let value = match part.strip_suffix(']') {
                Some(index) => {
                    let values: Option<&toml::de::DeArray<'_>> = array;
                    index.parse().ok().and_then(|index: usize| values?.get(index))
                }
                None => {
                    let entry = table.and_then(|table| table.iter().find(|(name, _)| name.get_ref() == part));
                    entry.map(|(name, value)| {
                        offset = Some(name.span().start);
                        value
                    })
                }
            };
            let Some(value) = value else { break };
            (table, array) = match value.get_ref() {
                DeValue::Table(inner) => {
                    offset = Some(value.span().start);
                    (Some(inner), None)
                }
                DeValue::Array(inner) => (None, Some(inner)),
                _ => {
                    offset = Some(value.span().start);
                    (None, None)
                }
            };
        }
        offset.map(|offset| self.line_at(offset))
    }
}
