//! Options, as a C program writes them: `name=value,name`.

use std::io;

use crate::failure::number;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct EngineOptions {
    pub(crate) is_plain_tcp: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SocketOptions<'a> {
    pub(crate) is_nonblocking: bool,
    pub(crate) congestion: Option<&'a str>,
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty())
}

fn unknown(word: &str, expected: &str) -> io::Error {
    number(libc::EINVAL, &format!("'{word}': unsupported in this build; expected {expected}"))
}

impl EngineOptions {
    pub(crate) fn parse(text: &str) -> io::Result<Self> {
        let mut options = Self::default();
        for word in words(text) {
            options.is_plain_tcp = match word {
                "engine=kernel" => false,
                "engine=tcp" => true,
                _ => return Err(unknown(word, "engine=kernel or engine=tcp")),
            };
        }
        Ok(options)
    }
}

impl<'a> SocketOptions<'a> {
    pub(crate) fn parse(text: &'a str) -> io::Result<Self> {
        let mut options = Self::default();
        for word in words(text) {
            match word.split_once('=') {
                None if word == "nonblocking" => options.is_nonblocking = true,
                Some(("congestion", name)) => options.congestion = Some(name),
                _ => return Err(unknown(word, "nonblocking or congestion=NAME")),
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_options_are_named() {
        assert!(EngineOptions::parse("engine=tcp").is_ok_and(|options| options.is_plain_tcp));
        let message = EngineOptions::parse("engine=udp,interface=wlan0").unwrap_err().to_string();
        assert!(message.contains("'engine=udp'") && message.contains("engine=kernel"), "{message}");
        let options = SocketOptions::parse("nonblocking, congestion=reno").expect("both are known");
        assert_eq!(options, SocketOptions { is_nonblocking: true, congestion: Some("reno") });
        assert!(SocketOptions::parse("backup").is_err());
    }
}
