//! A network of its own for one program, all of whose TCP connections go through an [`Engine`](polypath_stack::Engine).
//!
//! The program lives in a fresh network namespace (and, without root, in a fresh user namespace that gives the right to
//! make one). Its only way out is a TUN device, behind which a gateway terminates every TCP connection and opens
//! another one with the engine to the same destination. UDP and ping are relayed by ordinary sockets. The program needs
//! no library and no proxy setting, so that it may be static, be of any language, and start others.
//!
//! A connection is accepted only when its destination has accepted: the program's SYN waits until the engine is
//! connected. Refusals and unreachable networks show to the program as what they are.
//!
//! - `inside`: what happens in the namespace before the program starts;
//! - `launch`: the process outside, which waits for the program and hands on signals;
//! - `gateway`: what happens to packets.

mod ended;
mod gateway;
mod inside;
mod launch;
mod signals;

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use ended::{Ended, RunError};
pub use inside::{Inside, channel, enter_and_execute};
pub use launch::Launch;

/// The device's name in the namespace.
const DEVICE: &str = "polypath0";
/// Addresses of the program's side of the device: of the range for tests within a network (RFC 2544), and a unique local
/// one (RFC 4193). They are host routes and never leave the machine.
const PROGRAM_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
const PROGRAM_V6: Ipv6Addr = Ipv6Addr::new(0xfd70, 0x6f6c, 0x7970, 0, 0, 0, 0, 2);
/// Those of the gateway, for connections whose peer has no address that the program could answer to.
const GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfd70, 0x6f6c, 0x7970, 0, 0, 0, 0, 1);

/// What program to run, and how its network is to be.
#[derive(Clone, Debug)]
pub struct Enclosure {
    /// The program, to be found as a shell finds it.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Largest packet of the program's device, in bytes: 1280 to 65 520. Default 65 520: it costs least.
    pub mtu_bytes: u16,
    /// Addresses that stand for this host's loopback interface. None by default: a program does not reach local services
    /// unless it is allowed to.
    pub host_loopback: Vec<IpAddr>,
    /// Ports at which the program is reached from outside.
    pub publish: Vec<Publish>,
    /// Loopback addresses at which this host has a DNS resolver; see [`loopback_resolvers`].
    pub resolvers: Vec<IpAddr>,
}

impl Enclosure {
    /// A program with everything else as by default.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            mtu_bytes: 65_520,
            host_loopback: Vec::new(),
            publish: Vec::new(),
            resolvers: loopback_resolvers(&std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default()),
        }
    }
}

/// A port that is open to the outside and leads to one of the program's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publish {
    /// Where the engine listens; without it, at all addresses of both families.
    pub addr: Option<IpAddr>,
    /// The port there.
    pub outside: u16,
    /// The program's port.
    pub inside: u16,
}

/// The name servers in a `resolv.conf` that are on the loopback interface, which the program's namespace does not share;
/// 127.0.0.1 if none is named at all (resolv.conf(5)).
#[must_use]
pub fn loopback_resolvers(resolv_conf: &str) -> Vec<IpAddr> {
    let named: Vec<IpAddr> = resolv_conf
        .lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver")?.split_whitespace().next()?.parse().ok())
        .collect();
    if named.is_empty() {
        return vec![Ipv4Addr::LOCALHOST.into()];
    }
    named.into_iter().filter(IpAddr::is_loopback).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_resolvers_are_special() {
        let text =
            "# comment\nnameserver 127.0.0.53\n nameserver 192.0.2.1\nnameserver ::1\nsearch example\n";
        let expected: Vec<IpAddr> = vec!["127.0.0.53".parse().unwrap(), "::1".parse().unwrap()];
        assert_eq!(loopback_resolvers(text), expected);
        assert_eq!(loopback_resolvers("nameserver 192.0.2.1\n"), Vec::<IpAddr>::new());
        assert_eq!(loopback_resolvers("search example\n"), vec![IpAddr::from([127, 0, 0, 1])]);
    }
}
