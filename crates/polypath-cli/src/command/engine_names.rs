//! What the engine's options are called, on the command line and in files.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clap::ValueEnum;
use polypath_mptcp::JudgePaths;
use schemars::JsonSchema;
use serde::Deserialize;

/// What carries the connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// The best of tun, kernel and tcp that this host allows; one line says which
    #[default]
    Auto,
    /// Our own stack, on all uplinks; needs CAP_NET_ADMIN
    Tun,
    /// Our own stack in UDP datagrams, to another Polypath; needs no privileges
    Udp,
    /// The kernel's Multipath TCP
    Kernel,
    /// The kernel's plain TCP, to compare with
    Tcp,
}

/// Whose paths to judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Judge {
    /// Nobody's.
    Never,
    /// Those of senders that are not of our kind.
    Foreign,
    /// Everybody's.
    Always,
}

impl From<Judge> for JudgePaths {
    fn from(judge: Judge) -> Self {
        match judge {
            Judge::Never => Self::Never,
            Judge::Foreign => Self::Foreign,
            Judge::Always => Self::Always,
        }
    }
}

/// Reads an address, maybe with a port, at which peers reach this end.
pub(super) fn parse_announced(text: &str) -> Result<(IpAddr, Option<u16>), String> {
    let announced = match text.trim_start_matches('[').trim_end_matches(']').parse() {
        Ok(addr) => Some((addr, None)),
        Err(_) => text.parse::<SocketAddr>().ok().map(|at| (at.ip(), Some(at.port()))),
    };
    let Some((addr, port)) = announced.filter(|(_, port)| *port != Some(0)) else {
        return Err("expected an address such as 192.0.2.1, or one with a port such as 192.0.2.1:8080 or [2001:db8::1]:8080".into());
    };
    if addr.is_unspecified() || addr.is_multicast() || addr == Ipv4Addr::BROADCAST {
        return Err("expected the address of one host, which peers can connect to".into());
    }
    Ok((addr, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_to_announce_are_read_as_people_write_them() {
        let addr = |text: &str| text.parse::<IpAddr>().expect("an address");
        assert_eq!(parse_announced("192.0.2.1"), Ok((addr("192.0.2.1"), None)));
        assert_eq!(parse_announced("192.0.2.1:80"), Ok((addr("192.0.2.1"), Some(80))));
        assert_eq!(parse_announced("2001:db8::1"), Ok((addr("2001:db8::1"), None)));
        assert_eq!(parse_announced("[2001:db8::1]"), Ok((addr("2001:db8::1"), None)));
        assert_eq!(parse_announced("[2001:db8::1]:80"), Ok((addr("2001:db8::1"), Some(80))));
        for wrong in [
            "",
            "eth0",
            "192.0.2.1:0",
            "192.0.2.1:x",
            "192.0.2.256",
            "0.0.0.0",
            "[::]:80",
            "224.0.0.1",
            "255.255.255.255",
        ] {
            assert!(parse_announced(wrong).is_err(), "{wrong}");
        }
    }
}
