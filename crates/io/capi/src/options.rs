//! Options of sockets, as a C program writes them: `name=value,name`.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use polypath_relay::{Relay, congestion_named, scheduler_named, words};
use polypath_stack::engine::ConnectOptions;

use crate::failure::number;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SocketOptions<'a> {
    pub(crate) is_nonblocking: bool,
    pub(crate) congestion: Option<&'a str>,
    scheduler: Option<&'a str>,
    timeout: Option<Duration>,
}

const KNOWN: &str =
    "nonblocking, congestion=NAME, and for engines tun and udp scheduler=NAME or timeout_ms=NUMBER";

fn unexpected(word: &str, expected: &str) -> io::Error {
    number(libc::EINVAL, &format!("'{word}': expected {expected}"))
}

impl<'a> SocketOptions<'a> {
    pub(crate) fn parse(text: &'a str) -> io::Result<Self> {
        let mut options = Self::default();
        let mut given = Vec::new();
        for word in words(text) {
            let key = word.split('=').next().unwrap_or(word);
            if given.contains(&key) {
                return Err(unexpected(word, "each setting once"));
            }
            given.push(key);
            match word.split_once('=') {
                None if word == "nonblocking" => options.is_nonblocking = true,
                Some(("congestion", name)) => options.congestion = Some(name),
                Some(("scheduler", name)) => options.scheduler = Some(name),
                Some(("timeout_ms", text)) => {
                    // Nobody answers within no time. Without a limit, it is left out.
                    let milliseconds = text.parse().ok().filter(|milliseconds| *milliseconds > 0);
                    let expected = "timeout_ms=NUMBER, of milliseconds, 1 or more";
                    let milliseconds = milliseconds.ok_or_else(|| unexpected(word, expected))?;
                    options.timeout = Some(Duration::from_millis(milliseconds));
                }
                _ => return Err(unexpected(word, KNOWN)),
            }
        }
        Ok(options)
    }

    /// Refuses what is for connecting only.
    pub(crate) fn for_listener(self) -> io::Result<Self> {
        match self.timeout {
            None => Ok(self),
            Some(_) => {
                Err(unexpected("timeout_ms", "it with polypath_connect only; listening has no time limit"))
            }
        }
    }

    /// Refuses what a listener of our own stack can't do: its connections have the settings of the engine.
    pub(crate) fn for_relay_listener(self) -> io::Result<Self> {
        let given = self.congestion.map(|_| "congestion").or(self.scheduler.map(|_| "scheduler"));
        match given {
            None => Ok(self),
            Some(name) => {
                Err(unexpected(name, "it in polypath_open, whose settings accepted connections have"))
            }
        }
    }

    /// Refuses what the kernel's sockets can't do.
    pub(crate) fn for_kernel(self) -> io::Result<Self> {
        match (self.scheduler, self.timeout) {
            (None, None) => Ok(self),
            _ => Err(number(
                libc::EINVAL,
                "scheduler and timeout_ms are for engines tun and udp; the kernel's are set with sysctl",
            )),
        }
    }

    /// The same for a connection of our own stack.
    pub(crate) fn for_relay(&self, relay: &Relay) -> io::Result<ConnectOptions> {
        let mut config = None;
        if self.congestion.is_some() || self.scheduler.is_some() {
            let mut chosen = (*relay.connection_config()?).clone();
            if let Some(name) = self.congestion {
                chosen.congestion = congestion_named(name).map_err(|expected| unexpected(name, &expected))?;
            }
            if let Some(name) = self.scheduler {
                chosen.scheduler = scheduler_named(name).map_err(|expected| unexpected(name, &expected))?;
            }
            config = Some(Arc::new(chosen));
        }
        Ok(ConnectOptions { config, timeout: self.timeout, ..ConnectOptions::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_options_are_named() {
        let options = SocketOptions::parse("nonblocking, congestion=reno").expect("both are known");
        assert!(options.is_nonblocking && options.congestion == Some("reno"));
        assert!(options.for_kernel().is_ok());
        let options = SocketOptions::parse("timeout_ms=250").expect("it is known");
        assert_eq!(options.timeout, Some(Duration::from_millis(250)));
        assert!(options.for_kernel().is_err());
        let refused = SocketOptions::parse("timeout_ms=250").and_then(SocketOptions::for_listener);
        assert!(refused.expect_err("no time limit").to_string().contains("polypath_connect"));
        for text in ["scheduler=redundant", "nonblocking,congestion=reno"] {
            let refused = SocketOptions::parse(text).and_then(SocketOptions::for_relay_listener);
            assert!(refused.expect_err("the engine's").to_string().contains("polypath_open"), "{text}");
        }
        assert!(SocketOptions::parse("nonblocking").and_then(SocketOptions::for_relay_listener).is_ok());
        for (text, word, expected) in [
            ("backup", "backup", "nonblocking"),
            ("timeout_ms=0", "timeout_ms=0", "1 or more"),
            ("timeout_ms=soon", "timeout_ms=soon", "milliseconds"),
            ("timeout_ms=1 timeout_ms=2", "timeout_ms=2", "once"),
        ] {
            let message = SocketOptions::parse(text).expect_err(word).to_string();
            assert!(message.contains(word) && message.contains(expected), "{message}");
        }
    }
}
