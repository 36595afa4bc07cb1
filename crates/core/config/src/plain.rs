//! What the reader of TOML says, in words of the files: it speaks of types and fields of the program.

use alloc::format;
use alloc::string::{String, ToString};

/// A message in plain words; as it is, if it is none of those that are known.
pub(super) fn plain(message: &str) -> String {
    translated(message).unwrap_or_else(|| message.to_string())
}

fn translated(message: &str) -> Option<String> {
    if let Some(key) = message.strip_prefix("missing field ") {
        return Some(format!("no {}; expected one", quoted(key)));
    }
    for (theirs, ours) in [("unknown field ", "unknown key"), ("unknown variant ", "unknown word")] {
        if let Some(rest) = message.strip_prefix(theirs) {
            let (given, expected) = rest.split_once(", ").unwrap_or((rest, "there are no fields"));
            let expected = if expected == "there are no fields" { "expected none" } else { expected };
            return Some(format!("{ours} {}; {}", quoted(given), quoted(expected)));
        }
    }
    let rest = ["invalid type: ", "invalid value: ", "invalid length "];
    let (kind, rest) =
        rest.iter().enumerate().find_map(|(kind, begin)| Some((kind, message.strip_prefix(begin)?)))?;
    let (given, expected) = rest.split_once(", expected ")?;
    let given = if kind == 2 { format!("{given} of them") } else { of(given) };
    Some(format!("is {given}; expected {}", wanted(expected)))
}

/// Names in the quotation marks of the files.
fn quoted(names: &str) -> String {
    names.replace('`', "\"")
}

/// A value that is there.
fn of(given: &str) -> String {
    let inner = |begin: &str| given.strip_prefix(begin).map(|value| value.trim_matches('`').to_string());
    let number = inner("integer ").or_else(|| inner("floating point "));
    match given {
        "map" => "a table".to_string(),
        "sequence" => "a list".to_string(),
        _ => match (number, inner("boolean "), inner("string ")) {
            (Some(number), ..) => format!("the number {number}"),
            (_, Some(truth), _) => truth,
            (.., Some(text)) => text,
            _ => given.to_string(),
        },
    }
}

/// What should be there.
fn wanted(expected: &str) -> String {
    let words = match expected {
        "a string" | "string" | "a borrowed string" => "a string, such as \"name\"",
        "path string" => "a path, such as \"folder/file\"",
        "a boolean" => "true or false",
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" | "u64" | "usize" => "a whole number, such as 3",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number, such as -3",
        "f32" | "f64" => "a number, such as 0.5",
        "a sequence" => "a list, such as [\"one\", \"two\"]",
        "a map" | "map" => "a table of keys",
        "string or map" | "string only" => "a word of those that are known",
        _ if expected.starts_with("struct ") => "a table of keys",
        _ if expected.starts_with("enum ") => "a word of those that are known",
        _ => {
            return expected
                .strip_prefix("an array of length ")
                .map_or_else(|| quoted(expected), |length| format!("a list of {length}"));
        }
    };
    words.to_string()
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use serde::Deserialize;

    use super::*;
    use crate::{Source, read};

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Word {
        #[allow(dead_code)]
        One,
        #[allow(dead_code)]
        OtherOne,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "kebab-case")]
    #[allow(dead_code)]
    struct Inner {
        here: u64,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "kebab-case")]
    #[allow(dead_code)]
    struct Words {
        name: Option<String>,
        count: Option<usize>,
        small: Option<u8>,
        share: Option<f64>,
        truth: Option<bool>,
        list: Option<Vec<String>>,
        pair: Option<[u64; 2]>,
        inner: Option<Inner>,
        word: Option<Word>,
    }

    #[test]
    fn no_message_has_names_of_types() {
        let mistakes = [
            ("name = 5", "name: is the number 5; expected a string, such as \"name\""),
            ("name = [1]", "name: is a list; expected a string, such as \"name\""),
            ("count = \"no\"", "count: is \"no\"; expected a whole number, such as 3"),
            ("count = -1", "count: is the number -1; expected a whole number, such as 3"),
            ("count = 1.5", "count: is the number 1.5; expected a whole number, such as 3"),
            ("small = 300", "small: is the number 300; expected a whole number from 0 to 255"),
            ("share = true", "share: is true; expected a number, such as 0.5"),
            ("truth = \"yes, expected\"", "truth: is \"yes"),
            ("list = \"a\"", "list: is \"a\"; expected a list, such as [\"one\", \"two\"]"),
            ("pair = [1]", "pair: is 1 of them; expected a list of 2"),
            ("inner = 1", "inner: is the number 1; expected a table of keys"),
            ("inner = {}", "inner: no \"here\"; expected one"),
            ("inner = { there = 1 }", "inner.there: unknown key \"there\"; expected \"here\""),
            ("word = \"two\"", "word: unknown word \"two\"; expected \"one\" or \"other-one\""),
        ];
        for (text, wanted) in mistakes {
            let error = read::<Words>(Source { file: "a.toml", text }).expect_err("a mistake").to_string();
            assert!(error.starts_with(&format!("a.toml:1: {wanted}")), "{error}\n  expected {wanted}");
        }
        assert_eq!(plain("something else"), "something else");
    }
}
