//! How a transfer's bytes were shared among the interfaces: the line that every command ends with.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use polypath_mptcp::FallbackReason;
use polypath_netsetup::abilities::Interfaces;
use polypath_stack::{Engine, Fallback, Tally};
use polypath_system::{Namespace, console};
use serde::Serialize;

use super::harmless;
use super::interfaces::{self, Asked};
use super::rates::Rates;
use super::watch::{Seen, Telling, Watch};
use super::words::{amount, and};

/// A transfer that has begun.
#[derive(Debug)]
pub(super) struct Begun {
    before: Tally,
    interfaces: Interfaces,
    peer: &'static str,
    /// How the peer is reached: `HOST:PORT`.
    place: Option<String>,
    asked: Asked,
    /// Who takes connections has no say in their paths.
    has_say: bool,
    watch: Option<Watch>,
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

/// What is known besides.
#[derive(Clone, Debug)]
struct Circumstances {
    is_plain_tcp: bool,
    is_kernel: bool,
    /// Interfaces that lead out.
    uplinks: Vec<String>,
    /// Interfaces that were named, have an address, and lead nowhere else.
    without_way: Vec<String>,
    /// Interfaces that were named and are not there.
    absent: Vec<String>,
    peer: &'static str,
    place: Option<String>,
    asked: Asked,
    /// None of who takes connections.
    seen: Option<Seen>,
    has_say: bool,
    /// Each path is sent what the others are, so that bytes on the paths are more than what arrives.
    has_copies: bool,
}

impl Begun {
    /// Takes note of what there is when a server begins, which has no say in the paths of those who come.
    pub(super) fn serving(engine: &Engine) -> Self {
        let asked = Asked::default();
        Self {
            before: engine.tally(),
            interfaces: look(),
            peer: "client",
            place: None,
            asked,
            has_say: false,
            watch: None,
        }
    }

    /// Takes note of what there is, at the begin of a transfer; `peer` is what the other end is called. Meanwhile it is told
    /// which path is lost.
    pub(super) fn connecting(engine: &Engine, peer: &'static str, asked: Asked, telling: Telling) -> Self {
        let watch = Some(Watch::start(engine, telling, asked.clone()));
        Self { peer, asked, has_say: true, watch, ..Self::serving(engine) }
    }

    /// Of a program that takes connections: their clients decide about their paths, and one interface here may be two there.
    pub(super) fn of_server(self) -> Self {
        Self { has_say: false, ..self }
    }

    /// With the place at which the peer is reached, as `HOST:PORT`.
    pub(super) fn reaching(self, place: Option<String>) -> Self {
        Self { place, ..self }
    }

    /// How fast bytes went since, by interface; none of who was not watched.
    pub(super) fn rates(&self, engine: &Engine) -> Option<Rates> {
        let now = look();
        let tally = engine.tally();
        let name = |own: &str| {
            let path = tally.paths.iter().find(|path| path.own.to_string() == own);
            let known = path.and_then(|path| path.name.clone());
            let addr = own.parse::<IpAddr>().ok();
            let found = || addr.and_then(|addr| now.name_of(addr).or_else(|| self.interfaces.name_of(addr)));
            known.or_else(|| found().map(str::to_string)).unwrap_or_else(|| own.into())
        };
        Some(self.watch.as_ref()?.rates(&tally).renamed(name))
    }

    /// What has gone since; none if nothing has, or nothing left this machine.
    pub(super) fn shares(&self, engine: &Engine) -> Option<Shares> {
        let now = look();
        let name = |addr: IpAddr| now.name_of(addr).or_else(|| self.interfaces.name_of(addr));
        let (is_kernel, is_plain_tcp) = match engine {
            Engine::Kernel(engine) => (true, engine.is_plain_tcp()),
            _ => (false, false),
        };
        let uplinks = now.uplinks.clone();
        let named = self.asked.only.iter().chain(&self.asked.backups);
        let leads_nowhere =
            |name: &&String| !now.uplinks.contains(*name) && now.all.iter().any(|link| link.name == **name);
        let without_way = named.clone().filter(leads_nowhere).cloned().collect();
        // What can't be found out is not said.
        let links = interfaces::links().ok();
        let is_absent = |name: &&String| links.as_ref().is_some_and(|links| !links.contains(*name));
        let absent = named.filter(is_absent).cloned().collect();
        let seen = self.watch.as_ref().map(Watch::seen);
        let has_copies = sends_copies(engine) || seen.as_ref().is_some_and(Seen::has_copies);
        let circumstances = Circumstances {
            is_plain_tcp,
            is_kernel,
            uplinks,
            without_way,
            absent,
            peer: self.peer,
            place: self.place.clone(),
            asked: self.asked.clone(),
            seen,
            has_say: self.has_say,
            has_copies,
        };
        Shares::of(&engine.tally().since(&self.before), name, &circumstances)
    }

    /// A failure, with the paths that are there no more.
    pub(super) fn explained(&self, engine: &Engine, message: String) -> String {
        let (Engine::Stack(stack), Some(watch)) = (engine, &self.watch) else { return message };
        let gone = watch.seen().gone(stack, &self.asked.budgets);
        if gone.is_empty() { message } else { format!("{message}; {}", gone.join(", and ")) }
    }

    /// Why connections since then are plain TCP, if they were to be more.
    pub(super) fn fallback(&self, engine: &Engine) -> Option<String> {
        fallback(&engine.tally().since(&self.before), self.peer)
    }

    /// Says it, as a line on standard error.
    pub(super) fn tell(&self, engine: &Engine, is_quiet: bool) {
        self.tell_shares(engine, is_quiet, |shares| shares);
    }

    /// As [`Begun::tell`] where the whole did not come about: then there is nothing that it was faster than.
    pub(super) fn tell_of_failure(&self, engine: &Engine, is_quiet: bool) {
        self.tell_shares(engine, is_quiet, |shares| Shares { times_the_faster_alone: None, ..shares });
    }

    fn tell_shares(&self, engine: &Engine, is_quiet: bool, shown: impl FnOnce(Shares) -> Shares) {
        if !is_quiet && let Some(shares) = self.shares(engine) {
            console::tell(harmless(&shown(shares).to_string()));
        }
    }
}

/// By its scheduler now. Of the peer's, what arrives tells.
fn sends_copies(engine: &Engine) -> bool {
    matches!(engine, Engine::Stack(stack) if stack.connection_config().scheduler.name() == "redundant")
}

/// What can't be read has no names.
fn look() -> Interfaces {
    Namespace::current().and_then(|namespace| Interfaces::look(&namespace)).unwrap_or_default()
}

impl Shares {
    fn of<'a>(
        tally: &Tally,
        name: impl Fn(IpAddr) -> Option<&'a str>,
        circumstances: &Circumstances,
    ) -> Option<Self> {
        let mut interfaces: Vec<Share> = Vec::new();
        let mut addresses: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
        for path in tally.paths.iter().filter(|path| !path.own.is_loopback()) {
            let known = path.name.clone().or_else(|| name(path.own).map(str::to_string));
            let interface = known.unwrap_or_else(|| path.own.to_string());
            addresses.entry(interface.clone()).or_default().push(path.own);
            match interfaces.iter_mut().find(|share| share.interface == interface) {
                Some(share) => share.bytes += path.bytes,
                None => interfaces.push(Share { interface, bytes: path.bytes }),
            }
        }
        interfaces.sort_by_key(|share| std::cmp::Reverse(share.bytes));
        let most = interfaces.first()?.bytes;
        let total: u64 = interfaces.iter().map(|share| share.bytes).sum();
        let is_shared = interfaces.len() > 1;
        let is_compared = is_shared && !circumstances.has_copies;
        // Bytes tell of the time only where all were in use for all of it.
        let is_whole = circumstances
            .seen
            .as_ref()
            .is_none_or(|seen| addresses.values().all(|addresses| seen.was_used_throughout(addresses)));
        let times_the_faster_alone = (is_compared && is_whole).then(|| total as f64 / most as f64);
        let one_path_only = match fallback(tally, circumstances.peer) {
            Some(cause) => Some(cause),
            None if is_shared => None,
            None => circumstances.one_path(&interfaces[0].interface),
        };
        Some(Self { interfaces, times_the_faster_alone, one_path_only })
    }
}

impl Shares {
    /// Each with its bytes, the most first.
    pub(super) fn interfaces(&self) -> impl Iterator<Item = (&str, u64)> {
        self.interfaces.iter().map(|share| (share.interface.as_str(), share.bytes))
    }

    pub(super) const fn times_the_faster_alone(&self) -> Option<f64> {
        self.times_the_faster_alone
    }

    pub(super) fn one_path_only(&self) -> Option<&str> {
        self.one_path_only.as_deref()
    }

    /// Of bytes that no engine carried, by interface. `is_whole` says that all interfaces were in use for all of the time.
    pub(super) fn of_interfaces(
        bytes: &[(String, u64)],
        is_whole: bool,
        one_path_only: Option<String>,
    ) -> Option<Self> {
        let share =
            |(interface, bytes): &(String, u64)| Share { interface: interface.clone(), bytes: *bytes };
        let mut interfaces: Vec<Share> = bytes.iter().map(share).collect();
        interfaces.sort_by_key(|share| std::cmp::Reverse(share.bytes));
        let most = interfaces.first()?.bytes;
        let total: u64 = interfaces.iter().map(|share| share.bytes).sum();
        let is_compared = is_whole && interfaces.len() > 1;
        let times_the_faster_alone = is_compared.then(|| total as f64 / most as f64);
        Some(Self { interfaces, times_the_faster_alone, one_path_only })
    }
}

impl Circumstances {
    /// Why it was this interface alone; none if this end can't know.
    fn one_path(&self, used: &str) -> Option<String> {
        let seen = self.seen.as_ref().filter(|_| self.has_say)?;
        let (regular, backups) = self.asked.parted(&[]);
        let backup = backups.iter().find(|backup| **backup != used);
        Some(if self.is_plain_tcp {
            "engine tcp has no more".into()
        } else if !self.is_kernel && self.asked.only == [used] && backup.is_none() {
            format!("only {used} was asked for")
        } else if let Some(failed) = seen.failed() {
            failed
        } else if let Some(name) = self.absent.first() {
            format!("there is no interface {name}")
        } else if let Some(name) = self.without_way.first() {
            format!("{name} has no default route (`polypath doctor` tells what to do)")
        } else if self.uplinks.len() < 2 {
            "there is no second uplink (`polypath doctor` tells of each interface)".into()
        } else if let Some(backup) = backup.filter(|_| regular.len() < 2 && !self.is_kernel) {
            format!("{backup} is a backup and was not needed")
        } else if self.is_kernel {
            "the kernel opened no second one (`polypath doctor` tells why)".into()
        } else {
            let place = self.place.as_ref().map_or(String::new(), |place| format!(" --peer {place}"));
            let is_asked = |name: &&String| self.asked.only.is_empty() || regular.contains(&name.as_str());
            let unused: Vec<&str> = self
                .uplinks
                .iter()
                .filter(is_asked)
                .map(String::as_str)
                .filter(|name| *name != used)
                .collect();
            match unused[..] {
                [] => format!("no second one was ready in time (`polypath doctor{place}` tells of each)"),
                _ => {
                    let unused = and(&unused);
                    format!("no answer came over {unused} in time (`polypath doctor{place}` tells why)")
                }
            }
        })
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
        match &self.one_path_only {
            Some(cause) if self.interfaces.len() == 1 => write!(f, "; one path only: {cause}"),
            // Of several connections.
            Some(cause) => write!(f, "; over one path {cause}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Circumstances {
        Circumstances {
            is_plain_tcp: false,
            is_kernel: false,
            uplinks: vec!["wifi".into(), "lte".into()],
            without_way: Vec::new(),
            absent: Vec::new(),
            peer: "server",
            place: Some("example.org:80".into()),
            asked: Asked::default(),
            seen: Some(Seen::default()),
            has_say: true,
            has_copies: false,
        }
    }

    fn asked(only: &[&str], backups: &[&str]) -> Circumstances {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_string()).collect();
        Circumstances {
            asked: Asked { only: owned(only), backups: owned(backups), ..Asked::default() },
            ..two()
        }
    }

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
        Shares::of(tally, name, &circumstances).expect("bytes").to_string()
    }

    #[test]
    fn shares_are_told_by_interface() {
        assert_eq!(
            line(&tally(&[(2, 14_000_000), (1, 26_400_000)]), two()),
            "wifi 26 MB, lte 14 MB, 1.5 times the faster alone"
        );
        assert_eq!(
            line(&tally(&[(1, 1_000_000), (9, 500)]), two()),
            "wifi 1.0 MB, 192.0.2.9 500 B, 1.0 times the faster alone"
        );
        assert!(Shares::of(&tally(&[]), |_| None, &two()).is_none());
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
            (
                one.clone(),
                Circumstances { uplinks: vec!["wifi".into()], ..two() },
                "there is no second uplink (`polypath doctor` tells of each interface)",
            ),
            (
                one.clone(),
                Circumstances {
                    uplinks: vec!["wifi".into()],
                    without_way: vec!["lte".into()],
                    ..asked(&["wifi", "lte"], &[])
                },
                "lte has no default route (`polypath doctor` tells what to do)",
            ),
            (
                one.clone(),
                Circumstances { absent: vec!["let".into()], ..asked(&["wifi"], &["let"]) },
                "there is no interface let",
            ),
            (
                one.clone(),
                Circumstances { is_kernel: true, ..asked(&["wifi"], &[]) },
                "the kernel opened no second one (`polypath doctor` tells why)",
            ),
            (one.clone(), Circumstances { is_plain_tcp: true, ..two() }, "engine tcp has no more"),
            (
                one.clone(),
                Circumstances { is_kernel: true, ..two() },
                "the kernel opened no second one (`polypath doctor` tells why)",
            ),
            (
                one.clone(),
                two(),
                "no answer came over lte in time (`polypath doctor --peer example.org:80` tells why)",
            ),
            (
                one.clone(),
                Circumstances {
                    uplinks: vec!["wifi".into(), "lte".into(), "cable".into()],
                    ..asked(&["wifi", "cable"], &[])
                },
                "no answer came over cable in time (`polypath doctor --peer example.org:80` tells why)",
            ),
            (one.clone(), asked(&["wifi"], &[]), "only wifi was asked for"),
            (one.clone(), asked(&[], &["lte"]), "lte is a backup and was not needed"),
            (one.clone(), asked(&["wifi", "lte"], &["lte"]), "lte is a backup and was not needed"),
            (
                with(lacks, 1),
                two(),
                "the server does not speak Multipath TCP, or something on the way strips it",
            ),
            (
                with(lacks, 3),
                two(),
                "1 of 3 connections: the server does not speak Multipath TCP, or something on the way strips it",
            ),
            (
                with(Fallback::Later, 1),
                two(),
                "something on the way changed what was sent, so that Multipath TCP ended early",
            ),
        ] {
            assert_eq!(line(&tally, circumstances), format!("{begin}{cause}"));
        }
    }

    #[test]
    fn a_server_knows_no_cause_but_fallbacks() {
        let both = tally(&[(1, 40_000_000), (2, 40_000_000)]);
        assert_eq!(line(&both, two()), "wifi 40 MB, lte 40 MB, 2.0 times the faster alone");
        let copied = Circumstances { has_copies: true, ..two() };
        assert_eq!(line(&both, copied), "wifi 40 MB, lte 40 MB", "half of it are copies");
        let serving = || Circumstances { seen: None, has_say: false, ..two() };
        let one = tally(&[(1, 40_000_000)]);
        let published = Circumstances { has_say: false, uplinks: vec!["wifi".into()], ..two() };
        assert_eq!(line(&one, published), "wifi 40 MB", "of a program that listens");
        assert_eq!(line(&one, serving()), "wifi 40 MB");
        let mut fallen = one;
        fallen.fallbacks.push((Fallback::Later, 1));
        assert!(line(&fallen, serving()).contains("; one path only: something on the way"));
    }

    #[test]
    fn json_has_the_same() {
        let shares = Shares::of(&tally(&[(1, 30), (2, 10)]), |_| None, &two());
        let json = serde_json::to_value(shares).expect("JSON");
        assert_eq!(json["interfaces"][0]["bytes"], 30);
        assert!(
            json["times_the_faster_alone"].as_f64().is_some_and(|times| (times - 4.0 / 3.0).abs() < 1e-9)
        );
        assert!(json.get("one_path_only").is_none());
    }
}
