//! How a transfer's bytes were shared among the interfaces: the line that every command ends with.

use std::fmt;
use std::net::IpAddr;

use polypath_mptcp::FallbackReason;
use polypath_netsetup::abilities::Interfaces;
use polypath_stack::{Engine, Fallback, Tally};
use polypath_system::{Namespace, console};
use serde::Serialize;

use super::harmless;

/// A transfer that has begun.
#[derive(Debug)]
pub(super) struct Begun {
    before: Tally,
    interfaces: Interfaces,
    peer: &'static str,
}

/// What went over each interface, and why over one only.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Shares {
    interfaces: Vec<Share>,
    /// All bytes over those of the interface that carried most; none if there was one only.
    #[serde(skip_serializing_if = "Option::is_none")]
    times_the_faster_alone: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    one_path_only: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Share {
    interface: String,
    bytes: u64,
}

/// What is known besides of the engine.
#[derive(Clone, Copy, Debug)]
struct Circumstances {
    is_plain_tcp: bool,
    is_kernel: bool,
    uplinks: usize,
    peer: &'static str,
}

impl Begun {
    /// Takes note of what there is, at the begin of a transfer; `peer` is what the other end is called.
    pub(super) fn new(engine: &Engine, peer: &'static str) -> Self {
        Self { before: engine.tally(), interfaces: look(), peer }
    }

    /// What has gone since; none if nothing has, or nothing left this machine.
    pub(super) fn shares(&self, engine: &Engine) -> Option<Shares> {
        let now = look();
        let name = |addr: IpAddr| now.name_of(addr).or_else(|| self.interfaces.name_of(addr));
        let (is_kernel, is_plain_tcp) = match engine {
            Engine::Kernel(engine) => (true, engine.is_plain_tcp()),
            _ => (false, false),
        };
        let uplinks = now.uplinks.len();
        let circumstances = Circumstances { is_plain_tcp, is_kernel, uplinks, peer: self.peer };
        Shares::of(&engine.tally().since(&self.before), name, circumstances)
    }

    /// Why connections since then are plain TCP, if they were to be more.
    pub(super) fn fallback(&self, engine: &Engine) -> Option<String> {
        fallback(&engine.tally().since(&self.before), self.peer)
    }

    /// Says it, as a line on standard error.
    pub(super) fn tell(&self, engine: &Engine, is_quiet: bool) {
        if !is_quiet && let Some(shares) = self.shares(engine) {
            console::tell(harmless(&shares.to_string()));
        }
    }
}

/// What can't be read has no names.
fn look() -> Interfaces {
    Namespace::current().and_then(|namespace| Interfaces::look(&namespace)).unwrap_or_default()
}

impl Shares {
    fn of<'a>(
        tally: &Tally,
        name: impl Fn(IpAddr) -> Option<&'a str>,
        circumstances: Circumstances,
    ) -> Option<Self> {
        let mut interfaces: Vec<Share> = Vec::new();
        for path in tally.paths.iter().filter(|path| !path.own.is_loopback()) {
            let known = path.name.clone().or_else(|| name(path.own).map(str::to_string));
            let interface = known.unwrap_or_else(|| path.own.to_string());
            match interfaces.iter_mut().find(|share| share.interface == interface) {
                Some(share) => share.bytes += path.bytes,
                None => interfaces.push(Share { interface, bytes: path.bytes }),
            }
        }
        interfaces.sort_by_key(|share| std::cmp::Reverse(share.bytes));
        let most = interfaces.first()?.bytes;
        let total: u64 = interfaces.iter().map(|share| share.bytes).sum();
        let is_shared = interfaces.len() > 1;
        let times_the_faster_alone = is_shared.then(|| total as f64 / most as f64);
        let one_path_only = match fallback(tally, circumstances.peer) {
            Some(cause) => Some(cause),
            None if is_shared => None,
            None => Some(circumstances.one_path()),
        };
        Some(Self { interfaces, times_the_faster_alone, one_path_only })
    }
}

impl Circumstances {
    fn one_path(self) -> String {
        if self.is_plain_tcp {
            "engine tcp has no more".into()
        } else if self.uplinks < 2 {
            "there is no second uplink".into()
        } else if self.is_kernel {
            "the kernel opened no second one (`polypath doctor` tells why)".into()
        } else {
            "no second one was ready in time (`polypath doctor --peer HOST:PORT` tells of each)".into()
        }
    }
}

/// The most frequent cause of fallbacks, and of how many connections.
fn fallback(tally: &Tally, peer: &str) -> Option<String> {
    let (fallback, count) = tally.fallbacks.iter().max_by_key(|(_, count)| *count)?;
    let cause = match fallback {
        Fallback::Reason(reason) => cause(*reason, peer),
        _ => format!("{THE_WAY} changed what was sent, so that Multipath TCP ended early"),
    };
    Some(match tally.connections {
        0 | 1 => cause,
        all if *count >= all => cause,
        all => format!("{count} of {all} connections: {cause}"),
    })
}

const THE_WAY: &str = "something on the way";

fn cause(reason: FallbackReason, peer: &str) -> String {
    match reason {
        FallbackReason::Disabled => "Multipath TCP was not wanted".into(),
        FallbackReason::PeerLacksMptcp => {
            format!("the {peer} does not speak Multipath TCP, or {THE_WAY} strips it")
        }
        FallbackReason::SynDropped => format!("{THE_WAY} drops what begins a Multipath TCP connection"),
        FallbackReason::Mirrored => format!("the {peer} or {THE_WAY} sends unknown options back"),
        FallbackReason::ThirdAckStripped | FallbackReason::DssMissing => {
            format!("{THE_WAY} strips options of Multipath TCP")
        }
        FallbackReason::ChecksumFailed => format!("{THE_WAY} changed the data"),
        FallbackReason::InfiniteMapping => format!("the {peer} ended Multipath TCP"),
    }
}

impl fmt::Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, Share { interface, bytes }) in self.interfaces.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{interface} {}", amount(*bytes))?;
        }
        if let Some(times) = self.times_the_faster_alone {
            write!(f, ", {times:.1} times the faster alone")?;
        }
        match (&self.one_path_only, self.times_the_faster_alone) {
            (Some(cause), None) => write!(f, "; one path only: {cause}"),
            // Of several connections.
            (Some(cause), Some(_)) => write!(f, "; over one path {cause}"),
            (None, _) => Ok(()),
        }
    }
}

/// `512 B`, `3.4 MB`, `26 MB`: two digits or more.
fn amount(bytes: u64) -> String {
    let units = [(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB"), (1000, "kB")];
    let Some((size, unit)) = units.into_iter().find(|(size, _)| bytes >= *size) else {
        return format!("{bytes} B");
    };
    let value = bytes as f64 / size as f64;
    let digits = usize::from(value < 9.95);
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: Circumstances =
        Circumstances { is_plain_tcp: false, is_kernel: false, uplinks: 2, peer: "server" };

    fn tally(paths: &[(u8, u64)]) -> Tally {
        let mut tally = Tally::default();
        for (last, bytes) in paths {
            let own = IpAddr::from([192, 0, 2, *last]);
            tally.paths.push(polypath_stack::PathTally { own, name: None, bytes: *bytes });
        }
        tally.connections = 1;
        tally
    }

    fn line(tally: &Tally, circumstances: Circumstances) -> String {
        let name = |addr: IpAddr| match addr {
            IpAddr::V4(addr) => match addr.octets()[3] {
                1 => Some("wifi"),
                2 => Some("lte"),
                _ => None,
            },
            IpAddr::V6(_) => None,
        };
        Shares::of(tally, name, circumstances).expect("bytes").to_string()
    }

    #[test]
    fn shares_are_told_by_interface() {
        assert_eq!(
            line(&tally(&[(2, 14_000_000), (1, 26_400_000)]), TWO),
            "wifi 26 MB, lte 14 MB, 1.5 times the faster alone"
        );
        assert_eq!(
            line(&tally(&[(1, 1_000_000), (9, 500)]), TWO),
            "wifi 1.0 MB, 192.0.2.9 500 B, 1.0 times the faster alone"
        );
        assert!(Shares::of(&tally(&[]), |_| None, TWO).is_none());
    }

    #[test]
    fn one_path_has_a_cause() {
        let one = tally(&[(1, 40_000_000)]);
        let with = |reason, connections| {
            let mut tally = one.clone();
            tally.fallbacks.push((reason, 1));
            tally.connections = connections;
            tally
        };
        let lacks = Fallback::Reason(FallbackReason::PeerLacksMptcp);
        let begin = "wifi 40 MB; one path only: ";
        for (tally, circumstances, cause) in [
            (one.clone(), Circumstances { uplinks: 1, ..TWO }, "there is no second uplink"),
            (one.clone(), Circumstances { is_plain_tcp: true, ..TWO }, "engine tcp has no more"),
            (
                one.clone(),
                Circumstances { is_kernel: true, ..TWO },
                "the kernel opened no second one (`polypath doctor` tells why)",
            ),
            (
                one.clone(),
                TWO,
                "no second one was ready in time (`polypath doctor --peer HOST:PORT` tells of each)",
            ),
            (
                with(lacks, 1),
                TWO,
                "the server does not speak Multipath TCP, or something on the way strips it",
            ),
            (
                with(lacks, 3),
                TWO,
                "1 of 3 connections: the server does not speak Multipath TCP, or something on the way strips it",
            ),
            (
                with(Fallback::Later, 1),
                TWO,
                "something on the way changed what was sent, so that Multipath TCP ended early",
            ),
        ] {
            assert_eq!(line(&tally, circumstances), format!("{begin}{cause}"));
        }
    }

    #[test]
    fn json_has_the_same() {
        let shares = Shares::of(&tally(&[(1, 30), (2, 10)]), |_| None, TWO);
        let json = serde_json::to_value(shares).expect("JSON");
        assert_eq!(json["interfaces"][0]["bytes"], 30);
        assert!(
            json["times_the_faster_alone"].as_f64().is_some_and(|times| (times - 4.0 / 3.0).abs() < 1e-9)
        );
        assert!(json.get("one_path_only").is_none());
    }

    #[test]
    fn amounts_have_two_digits() {
        let amounts = [999, 1000, 9_949, 9_950, 25_600_000, 1_400_000_000].map(amount);
        assert_eq!(amounts, ["999 B", "1.0 kB", "9.9 kB", "10 kB", "26 MB", "1.4 GB"]);
    }
}
