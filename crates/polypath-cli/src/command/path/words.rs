//! The words of `ip mptcp endpoint` and `ip mptcp limits`.

use std::net::IpAddr;
use std::num::NonZeroU16;

use polypath_control::{Change, Flags, Target};

/// Why words can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum WordsError {
    #[error("{after}: the words end there; expected {expected}")]
    Ends { after: String, expected: &'static str },
    #[error("\"{word}\": expected {expected}")]
    Unexpected { word: String, expected: &'static str },
    #[error("no endpoint is named; expected an address, an interface or id N")]
    NoTarget,
}

const FLAGS: &str =
    "dev NAME, id N, port N, priority N, signal, subflow, backup, nobackup, fullmesh or nofullmesh";
const COMMANDS: &str = "show, add, delete, change or flush";
const LIMITS: &str = "subflows N or add_addr_accepted N, with N of 0 to 255";

/// What to do with endpoints; none is to show them.
pub(super) fn endpoint(words: &[String]) -> Result<Option<Change>, WordsError> {
    let Some((command, rest)) = words.split_first() else { return Ok(None) };
    match command.as_str() {
        "show" | "list" | "ls" | "lst" => match rest.first() {
            None => Ok(None),
            Some(word) => Err(WordsError::Unexpected { word: word.clone(), expected: "no more after show" }),
        },
        "add" => target_and_flags(command, rest).map(|(target, flags)| Some(Change::Add(target, flags))),
        "change" | "replace" => {
            target_and_flags(command, rest).map(|(target, flags)| Some(Change::Change(target, flags)))
        }
        "delete" | "del" => {
            let (target, flags) = target_and_flags(command, rest)?;
            if flags != Flags::default() {
                let word = rest.last().cloned().unwrap_or_default();
                return Err(WordsError::Unexpected { word, expected: "no flags after delete" });
            }
            Ok(Some(Change::Delete(target)))
        }
        "flush" => match rest.first() {
            None => Ok(Some(Change::Flush)),
            Some(word) => Err(WordsError::Unexpected { word: word.clone(), expected: "no more after flush" }),
        },
        _ => Err(WordsError::Unexpected { word: command.clone(), expected: COMMANDS }),
    }
}

/// What to do with limits; none is to show them.
pub(super) fn limits(words: &[String]) -> Result<Option<Change>, WordsError> {
    let Some((command, rest)) = words.split_first() else { return Ok(None) };
    match (command.as_str(), rest) {
        ("show", []) => return Ok(None),
        ("set", [_, ..]) => {}
        ("set", []) => return Err(WordsError::Ends { after: command.clone(), expected: LIMITS }),
        ("show", [word, ..]) => {
            return Err(WordsError::Unexpected { word: word.clone(), expected: "no more after show" });
        }
        _ => return Err(WordsError::Unexpected { word: command.clone(), expected: "show or set" }),
    }
    let (mut subflows, mut add_addr_accepted) = (None, None);
    let mut rest = rest.iter();
    while let Some(word) = rest.next() {
        let limit = match word.as_str() {
            "subflows" | "subflow" => &mut subflows,
            "add_addr_accepted" | "add_addr_accept" => &mut add_addr_accepted,
            _ => return Err(WordsError::Unexpected { word: word.clone(), expected: LIMITS }),
        };
        *limit = Some(number(word, rest.next(), LIMITS)?);
    }
    Ok(Some(Change::Limits { subflows, add_addr_accepted }))
}

/// An interface or an address.
pub(super) fn target(word: &str) -> Target {
    match word.parse::<IpAddr>() {
        Ok(address) => Target { address: Some(address), ..Target::default() },
        Err(_) => Target { dev: Some(word.into()), ..Target::default() },
    }
}

fn target_and_flags(command: &str, words: &[String]) -> Result<(Target, Flags), WordsError> {
    let (mut meant, mut flags) = (Target::default(), Flags::default());
    let mut words = words.iter();
    let mut is_first = true;
    while let Some(word) = words.next() {
        match word.as_str() {
            "dev" => meant.dev = Some(next(word, words.next(), "the name of an interface")?.clone()),
            "id" => meant.id = Some(number(word, words.next(), "a number of 1 to 255")?),
            "port" => {
                let port = number::<NonZeroU16>(word, words.next(), "a port of 1 to 65535")?;
                flags.port = Some(port.get());
            }
            "priority" => flags.priority = Some(number(word, words.next(), "a number of 0 to 255")?),
            "signal" => flags.signal = Some(true),
            "subflow" => flags.subflow = Some(true),
            "backup" => flags.backup = Some(true),
            "nobackup" => flags.backup = Some(false),
            "fullmesh" => flags.fullmesh = Some(true),
            "nofullmesh" => flags.fullmesh = Some(false),
            name if is_first => meant = target(name),
            _ => return Err(WordsError::Unexpected { word: word.clone(), expected: FLAGS }),
        }
        is_first = false;
    }
    if meant == Target::default() {
        return match is_first {
            true => {
                Err(WordsError::Ends { after: command.into(), expected: "an address, an interface or id N" })
            }
            false => Err(WordsError::NoTarget),
        };
    }
    Ok((meant, flags))
}

fn next<'a>(after: &str, word: Option<&'a String>, expected: &'static str) -> Result<&'a String, WordsError> {
    word.ok_or_else(|| WordsError::Ends { after: after.into(), expected })
}

fn number<T: std::str::FromStr>(
    after: &str,
    word: Option<&String>,
    expected: &'static str,
) -> Result<T, WordsError> {
    let word = next(after, word, expected)?;
    word.parse().map_err(|_| WordsError::Unexpected { word: word.clone(), expected })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn endpoints_are_named_as_ip_names_them() {
        let wifi = Target { dev: Some("wifi".into()), ..Target::default() };
        let address = Target { address: "192.0.2.1".parse().ok(), ..Target::default() };
        for (text, change) in [
            ("", None),
            ("show", None),
            ("flush", Some(Change::Flush)),
            ("delete wifi", Some(Change::Delete(wifi.clone()))),
            ("del id 3", Some(Change::Delete(Target { id: Some(3), ..Target::default() }))),
            (
                "change wifi backup priority 7",
                Some(Change::Change(
                    wifi.clone(),
                    Flags { backup: Some(true), priority: Some(7), ..Flags::default() },
                )),
            ),
            (
                "change id 2 nobackup",
                Some(Change::Change(
                    Target { id: Some(2), ..Target::default() },
                    Flags { backup: Some(false), ..Flags::default() },
                )),
            ),
            (
                "add 192.0.2.1 dev wifi subflow fullmesh",
                Some(Change::Add(
                    Target { dev: Some("wifi".into()), ..address.clone() },
                    Flags { subflow: Some(true), fullmesh: Some(true), ..Flags::default() },
                )),
            ),
            (
                "add 192.0.2.1 port 8080 signal id 9",
                Some(Change::Add(
                    Target { id: Some(9), ..address },
                    Flags { signal: Some(true), port: Some(8080), ..Flags::default() },
                )),
            ),
        ] {
            assert_eq!(endpoint(&words(text)), Ok(change), "{text}");
        }
        let set = Change::Limits { subflows: Some(2), add_addr_accepted: Some(4) };
        assert_eq!(limits(&words("set subflows 2 add_addr_accepted 4")), Ok(Some(set)));
        assert_eq!(limits(&words("show")), Ok(None));
    }

    #[test]
    fn mistakes_say_what_was_expected() {
        for (text, expected) in [
            ("remove wifi", "\"remove\": expected show, add, delete"),
            ("add", "add: the words end there; expected an address"),
            ("add signal", "no endpoint is named"),
            ("add wifi id", "id: the words end there; expected a number of 1 to 255"),
            ("add wifi id 256", "\"256\": expected a number of 1 to 255"),
            ("add 192.0.2.1 signal port 0", "\"0\": expected a port of 1 to 65535"),
            ("add wifi priority x", "\"x\": expected a number of 0 to 255"),
            ("add wifi lte", "\"lte\": expected dev NAME"),
            ("delete wifi backup", "\"backup\": expected no flags after delete"),
            ("flush wifi", "\"wifi\": expected no more after flush"),
        ] {
            let error = endpoint(&words(text)).expect_err(text).to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
        for text in ["set", "set subflows", "set subflows 300", "set speed 3", "get"] {
            assert!(limits(&words(text)).is_err(), "{text}");
        }
    }
}
