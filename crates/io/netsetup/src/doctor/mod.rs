//! Why a path is used or not, in words: what stands in the way of Multipath TCP on this host, on each of its paths and on
//! the way to a peer, and what to do about it.
//!
//! Nothing is changed. With a peer, a few connections to it are opened and closed, and no data is sent on them.

mod ask;
mod host;
mod path;
mod peer;
mod probe;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;

use polypath_system::{Link, Namespace, Netlink, SystemState};
use serde::Serialize;

/// How good or bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// As it should be.
    Good,
    /// It works, with limits.
    Limited,
    /// It stands in the way.
    Blocked,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A word for what was looked at, such as `route`: the same in every report.
    pub subject: &'static str,
    /// How good or bad it is.
    pub level: Level,
    /// What was found, as a sentence.
    pub text: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Finding {
    fn good(subject: &'static str, text: impl Into<String>) -> Self {
        Self { subject, level: Level::Good, text: text.into(), advice: None }
    }

    fn limited(subject: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { subject, level: Level::Limited, text: text.into(), advice: Some(advice.into()) }
    }

    fn blocked(subject: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { subject, level: Level::Blocked, text: text.into(), advice: Some(advice.into()) }
    }
}

/// What was found on one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PathReport {
    /// The interface.
    pub interface: String,
    /// What was found.
    pub findings: Vec<Finding>,
}

/// Everything that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// On this host.
    pub host: Vec<Finding>,
    /// On each path.
    pub paths: Vec<PathReport>,
    /// About the peer, if one was named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub peer: Vec<Finding>,
}

impl Report {
    /// All findings, and the interfaces of those that belong to a path.
    pub fn findings(&self) -> impl Iterator<Item = (Option<&str>, &Finding)> {
        let host = self.host.iter().chain(&self.peer).map(|finding| (None, finding));
        let paths = self
            .paths
            .iter()
            .flat_map(|path| path.findings.iter().map(|finding| (Some(path.interface.as_str()), finding)));
        host.chain(paths)
    }

    /// Whether something stands in the way.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.findings().any(|(_, finding)| finding.level == Level::Blocked)
    }
}

/// What to look at.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Interfaces; all that could be paths if none is named.
    pub interfaces: Vec<String>,
    /// Addresses of the peer, at a port where it accepts TCP connections. The first one of each family counts.
    pub peer: Vec<SocketAddr>,
}

/// Why nothing could be looked at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DoctorError {
    /// The user named an interface that isn't there.
    #[error("there is no interface {name}; present are: {}", present.join(", "))]
    NoSuchInterface {
        /// The name.
        name: String,
        /// The interfaces that are there.
        present: Vec<String>,
    },
    /// The system does not tell.
    #[error("can't read the state of the network: {0}")]
    Io(#[from] io::Error),
}

/// Looks at everything, in `namespace`. Takes seconds if the peer is silent.
pub fn examine(namespace: &Namespace, options: &Options) -> Result<Report, DoctorError> {
    namespace.run(|| {
        let state = SystemState::read(&Netlink::new()?)?;
        let links = candidates(&state, &options.interfaces)?;
        let probed = probe::probe_all(&state, &links, &options.peer);
        let offloads = ask::offloads();
        let report = |link: &&Link, probes: &Vec<probe::Probe>| {
            let settings = path::Settings::read(&link.name, offloads.get(&link.name).copied());
            let mut findings = path::check(&state, link, &settings);
            findings.extend(probes.iter().flat_map(|probe| peer::check_path(link, probe, &probed)));
            PathReport { interface: link.name.clone(), findings }
        };
        let paths = links.iter().zip(&probed.of_links).map(|(link, probes)| report(link, probes)).collect();
        let peer = peer::check(&options.peer, &probed);
        Ok(Report { host: host::check(&state, &links), paths, peer })
    })?
}

/// The interfaces to look at: those named, or else those that are, or could be, uplinks.
fn candidates<'a>(state: &'a SystemState, named: &[String]) -> Result<Vec<&'a Link>, DoctorError> {
    let is_foreign = |link: &&Link| !link.is_loopback && !link.name.starts_with("polypath");
    if let Some(name) = named.iter().find(|name| state.link(name).is_none()) {
        let present = state.links.iter().filter(is_foreign).map(|link| link.name.clone()).collect();
        return Err(DoctorError::NoSuchInterface { name: name.clone(), present });
    }
    let could_be = |link: &&Link| {
        let is_default = [true, false].iter().any(|is_v4| state.default_route(link.index, *is_v4).is_some());
        // Bridges of containers and virtual machines have addresses, but lead nowhere; hardware counts even if it is off.
        let leads_inwards =
            link.kind.as_deref().is_some_and(|kind| ["bridge", "dummy", "ifb", "vrf"].contains(&kind));
        is_default || !leads_inwards && (!link.addresses.is_empty() || link.kind.is_none())
    };
    let is_wanted = |link: &&Link| if named.is_empty() { could_be(link) } else { named.contains(&link.name) };
    Ok(state.links.iter().filter(is_foreign).filter(is_wanted).collect())
}
