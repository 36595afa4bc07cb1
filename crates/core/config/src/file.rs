use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use polypath_units::named::Named;
use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};

use crate::{Policies, PolicyKind};

/// What is wrong with a file, as one line that names the file, the key and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// The file as the user named it.
    pub file: String,
    /// Line of the key, counted from one, if there is a line to point to.
    pub line: Option<usize>,
    /// The key in full, such as `links[1].rate`; empty if the mistake is in no key.
    pub key: String,
    /// What is wrong.
    pub kind: FileErrorKind,
    /// What is wrong and what was expected, in words.
    pub message: String,
}

/// The kind of a mistake in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileErrorKind {
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

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
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

impl core::error::Error for FileError {}

/// A file's name and text, to make errors that point into it.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// As the user named it.
    pub file: &'a str,
    /// All of it.
    pub text: &'a str,
}

impl Source<'_> {
    /// An error about `key`, whose line is looked up.
    pub fn error(
        &self,
        kind: FileErrorKind,
        key: impl Into<String>,
        message: impl Into<String>,
    ) -> FileError {
        let key = key.into();
        let line = self.line_of(&key);
        FileError { file: self.file.to_string(), line, key, kind, message: message.into() }
    }

    /// A mistake in the value of `key`.
    pub fn wrong(&self, key: impl Into<String>, message: impl Into<String>) -> FileError {
        self.error(FileErrorKind::Reference, key, message)
    }

    /// A name that is none of `known`.
    pub fn unknown<'n>(
        &self,
        key: impl Into<String>,
        what: &str,
        name: &str,
        known: impl IntoIterator<Item = &'n str>,
    ) -> FileError {
        let known: Vec<String> = known.into_iter().map(|name| format!("\"{name}\"")).collect();
        let expected = match known.len() {
            0 => "expected none".to_string(),
            1 => format!("expected {}", known[0]),
            _ => format!("expected one of {}", known.join(", ")),
        };
        self.wrong(key, format!("unknown {what} \"{name}\"; {expected}"))
    }

    /// The policy that `key` names.
    ///
    /// # Errors
    /// That there is none of this name; lists the names.
    pub fn policy<K: PolicyKind>(
        &self,
        key: impl Into<String>,
        name: &str,
        policies: &Policies,
    ) -> Result<Named<K>, FileError> {
        policies.find(name).map_err(|unknown| self.wrong(key, unknown.to_string()))
    }

    /// The policies that a list of names stands for.
    ///
    /// # Errors
    /// The first name that is none; lists the names.
    pub fn policies<K: PolicyKind>(
        &self,
        key: &str,
        names: &[String],
        policies: &Policies,
    ) -> Result<Vec<Named<K>>, FileError> {
        let named = (0..).zip(names);
        named.map(|(number, name)| self.policy(format!("{key}[{number}]"), name, policies)).collect()
    }

    /// The line of a byte offset.
    pub fn line_at(&self, offset: usize) -> usize {
        1 + self.text.as_bytes()[..offset.min(self.text.len())].iter().filter(|byte| **byte == b'\n').count()
    }

    /// The line of a key such as `links[1].rate`, or of the nearest table that holds it.
    pub fn line_of(&self, key: &str) -> Option<usize> {
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

/// TOML to the words of a file.
///
/// # Errors
/// The first mistake, with its line and key.
pub fn read<T: DeserializeOwned>(source: Source<'_>) -> Result<T, FileError> {
    let syntax = |error: &toml::de::Error| {
        let line = error.span().map(|span| source.line_at(span.start));
        (line, error.message().to_string())
    };
    let deserializer = toml::Deserializer::parse(source.text).map_err(|error| {
        let (line, message) = syntax(&error);
        FileError {
            file: source.file.to_string(),
            line,
            key: String::new(),
            kind: FileErrorKind::Syntax,
            message: format!("{message}; expected TOML"),
        }
    })?;
    serde_path_to_error::deserialize(deserializer).map_err(|error| {
        let key = error.path().to_string();
        let (line, message) = syntax(error.inner());
        let message = with_hyphens(&key, &message).unwrap_or_else(|| without_types(&message));
        let located = source.error(FileErrorKind::Value, if key == "." { "" } else { &key }, message);
        FileError { line: line.or(located.line), ..located }
    })
}

/// Of a key that is known with hyphens in place of its underscores, what to write.
fn with_hyphens(key: &str, message: &str) -> Option<String> {
    let word = key.rsplit('.').next().unwrap_or(key);
    let right = word.replace('_', "-");
    let is_known = message.starts_with("unknown field") && message.contains(&format!("`{right}`"));
    (word != right && is_known).then(|| format!("keys have hyphens; expected {right}"))
}

/// A person writes numbers, and not types of a program.
fn without_types(message: &str) -> String {
    let Some((found, expected)) = message.rsplit_once("expected ") else { return message.to_string() };
    let number = match expected {
        "f64" | "f32" => "a number",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number from 0 on",
        "a string" => "text in quotes",
        _ => return message.to_string(),
    };
    format!("{found}expected {number}")
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "kebab-case")]
    struct Words {
        #[allow(dead_code)]
        one_thing: Option<u8>,
        #[allow(dead_code)]
        share: Option<f64>,
    }

    #[test]
    fn numbers_are_called_numbers() {
        let mistake = |text| {
            let source = Source { file: "a.toml", text };
            read::<Words>(source).expect_err("a mistake").to_string()
        };
        let share = "a.toml:1: share: invalid type: string \"5 %\", expected a number";
        assert_eq!(mistake("share = \"5 %\""), share);
        let whole = mistake("one-thing = -1");
        assert_eq!(
            whole,
            "a.toml:1: one-thing: invalid value: integer `-1`, expected a whole number from 0 on"
        );
    }

    #[test]
    fn a_key_with_underscores_gets_the_one_with_hyphens() {
        let mistake = |text| {
            let source = Source { file: "a.toml", text };
            read::<Words>(source).expect_err("a mistake").to_string()
        };
        assert_eq!(mistake("\none_thing = 1"), "a.toml:2: one_thing: keys have hyphens; expected one-thing");
        let other = mistake("other_thing = 1");
        assert!(other.starts_with("a.toml:1: other_thing: unknown field `other_thing`, expected"), "{other}");
        assert!(read::<Words>(Source { file: "a.toml", text: "one-thing = 1" }).is_ok());
    }
}
