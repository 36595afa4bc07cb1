//! A host that forwards between a tunnel's device and its other interfaces: for the LAN behind it, or for peers who leave by it.
//!
//! Forwarding is switched on for the interfaces that need it, and limited to the tunnel: nobody else's packets are forwarded because of
//! us. All of it is on file before it is done, so that the next start undoes it if this process is killed.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use polypath_system::process::Process;
use polypath_system::{Netlink, SystemState};
use serde::{Deserialize, Serialize};

use super::action::Action;
use super::limits::Limits;
use super::places::DEVICES;
use super::plan::forwarding_actions;
use super::rule::{Match, Rule, Then};
use super::table::{self, Chain, Table};
use super::variables::SharedVariables;
use super::{forward, record};

/// In the variables that instances share: no slot of a stack.
const SLOT: u8 = u8::MAX;
/// Headers of IPv4 and TCP; IPv6 has 20 more.
const HEADERS_V4_BYTES: u32 = 40;
const HEADERS_V6_BYTES: u32 = 60;

const CHAINS: [Chain; 3] = [
    Chain { name: "segments", kind: "filter", hook: "forward", priority: -150 },
    Chain { name: "forward", kind: "filter", hook: "forward", priority: 0 },
    Chain { name: "postrouting", kind: "nat", hook: "postrouting", priority: 100 },
];

/// What passes between a tunnel's device and other interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayOptions {
    /// Interfaces behind which there are hosts that use the tunnel.
    pub lan: Vec<String>,
    /// Peers may leave by this host's other interfaces.
    pub internet: bool,
    /// What passes gets this host's address, so that no one beyond has to know a route back.
    pub masquerade: bool,
    /// The device's own addresses.
    pub addresses: Vec<IpAddr>,
    /// The tunnel carries IPv6.
    pub has_v6: bool,
    /// Longest packet of the device: TCP is told what fits.
    pub mtu_bytes: u32,
}

/// A host that forwards. Dropping it takes everything down.
#[derive(Debug)]
pub struct Gateway {
    device: String,
    options: GatewayOptions,
    directory: PathBuf,
    variables: Option<SharedVariables>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Content {
    #[serde(flatten)]
    process: Process,
    device: String,
}

impl Gateway {
    /// Begins to forward in the calling thread's network namespace, for a device whose name begins with `polypath` and which is there
    /// already.
    pub fn open(device: &str, options: GatewayOptions) -> io::Result<Self> {
        Self::open_in(device, options, polypath_system::runtime_directory()?)
    }

    pub(super) fn open_in(device: &str, options: GatewayOptions, directory: PathBuf) -> io::Result<Self> {
        if !is_device(device) {
            let problem = format!(
                "{device:?}: expected a device whose name begins with polypath, of letters, digits and -_."
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        polypath_control::create_directory(&directory).map_err(|error| record::refused(&directory, error))?;
        let device = device.to_owned();
        let content = Content { process: Process::current(), device: device.clone() };
        {
            let _lock = record::lock_directory(&directory)?;
            record::replace(&place(&directory, &device)?, &content)?;
        }
        let variables = SharedVariables::join(&directory, SLOT)?;
        // From here on, dropping it undoes what was done.
        let mut gateway = Self { device, options, directory, variables: Some(variables) };
        gateway.update()?;
        Ok(gateway)
    }

    /// Looks at the interfaces anew.
    pub fn update(&mut self) -> io::Result<()> {
        let Some(variables) = &self.variables else { return Ok(()) };
        let netlink = Netlink::new()?;
        let state = SystemState::read(&netlink)?;
        let others =
            state.links.iter().filter(|link| !link.is_loopback && !link.name.starts_with("polypath"));
        let others = others.filter(|link| self.options.internet || self.options.lan.contains(&link.name));
        let links: Vec<&str> = others.map(|link| link.name.as_str()).chain([self.device.as_str()]).collect();
        let links_v6 = if self.options.has_v6 { links.as_slice() } else { &[] };
        let actions = forwarding_actions(&state, &links, links_v6);
        variables.note(&actions)?;
        // Before the system forwards, what it forwards is limited to the tunnel's.
        let limits = variables.limits()?;
        self.table(&limits).apply()?;
        forward::allow(&self.device, &table_name(&self.device))?;
        actions.iter().try_for_each(|action| action.apply(&netlink))?;
        // Only now does the kernel follow connections, and have the variable.
        let Some(action) = Action::follow_leniently() else { return Ok(()) };
        variables.note(std::slice::from_ref(&action))?;
        action.apply(&netlink)
    }

    /// Takes everything down, and says what could not be.
    pub fn close(mut self) -> io::Result<()> {
        self.take_down()
    }

    fn take_down(&mut self) -> io::Result<()> {
        // Once only.
        let Some(variables) = self.variables.take() else { return Ok(()) };
        // The limits of what is forwarded go last: not for a moment is this a router for others.
        let left = variables.leave(&Netlink::new()?);
        left.and(table::remove(&table_name(&self.device)))?;
        let path = place(&self.directory, &self.device)?;
        fs::remove_file(&path).map_err(|error| record::at(&path, error))
    }

    fn table<'a>(&'a self, limits: &'a Limits) -> Table<'a> {
        let mut rules = self.segments();
        rules.extend(self.forwarded(limits));
        rules.extend(self.masqueraded());
        Table { name: table_name(&self.device), chains: &CHAINS, rules }
    }

    /// The ends of TCP connections learn what fits into the tunnel: many networks lose the message that would tell them.
    fn segments(&self) -> Vec<Rule<'_>> {
        let mut rules = Vec::new();
        for (is_v4, headers) in [(true, HEADERS_V4_BYTES), (false, HEADERS_V6_BYTES)] {
            let most = u16::try_from(self.options.mtu_bytes.saturating_sub(headers)).unwrap_or(u16::MAX);
            for direction in [Match::In(&self.device), Match::Out(&self.device)] {
                let matches = vec![direction, Match::OfV4(is_v4), Match::Syn];
                rules.push(Rule { chain: "segments", matches, then: Then::MostSegment(most) });
            }
        }
        rules
    }

    fn forwarded<'a>(&'a self, limits: &'a Limits) -> Vec<Rule<'a>> {
        let device = self.device.as_str();
        let rule = |matches, then| Rule { chain: "forward", matches, then };
        let mut rules = vec![rule(vec![Match::In(device), Match::Out(device)], Then::Accept)];
        for lan in &self.options.lan {
            rules.push(rule(vec![Match::In(lan), Match::Out(device)], Then::Accept));
            if !self.options.masquerade {
                rules.push(rule(vec![Match::In(device), Match::Out(lan)], Then::Accept));
            }
        }
        if self.options.internet {
            rules.push(rule(vec![Match::In(device)], Then::Accept));
        }
        // Of the rest only what answers, or what somebody translates on purpose.
        for direction in [Match::In(device), Match::Out(device)] {
            rules.push(rule(vec![direction.clone(), Match::Answering], Then::Accept));
            rules.push(rule(vec![direction.clone(), Match::Translated], Then::Accept));
            rules.push(rule(vec![direction], Then::Drop));
        }
        rules.push(rule(vec![Match::In(DEVICES)], Then::Accept));
        rules.push(rule(vec![Match::Out(DEVICES)], Then::Accept));
        rules.extend(limits.rules("forward"));
        rules
    }

    fn masqueraded(&self) -> Vec<Rule<'_>> {
        let device = self.device.as_str();
        let mut rules = Vec::new();
        if self.options.masquerade {
            let rule = |matches, then| Rule { chain: "postrouting", matches, then };
            // An address rather than a masquerade: the device goes with its process, and connections outlive that.
            for address in first_of_each_family(&self.options.addresses) {
                let family = Match::OfV4(address.is_ipv4());
                let lan = self.options.lan.iter();
                rules.extend(lan.map(|lan| {
                    let matches = vec![family.clone(), Match::In(lan), Match::Out(device)];
                    rule(matches, Then::From(address))
                }));
            }
            if self.options.internet {
                rules.push(rule(vec![Match::In(device), Match::NotOut(device)], Then::Masquerade));
            }
        }
        rules
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Err(error) = self.take_down() {
            tracing::error!(%error, "the network is not as it was");
        }
    }
}

fn first_of_each_family(addresses: &[IpAddr]) -> impl Iterator<Item = IpAddr> {
    [true, false]
        .into_iter()
        .filter_map(|is_v4| addresses.iter().copied().find(|addr| addr.is_ipv4() == is_v4))
}

fn is_device(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    name.starts_with("polypath") && name.len() < 16 && name.chars().all(is_plain)
}

fn table_name(device: &str) -> String {
    format!("polypath-tunnel-{device}")
}

fn prefix() -> io::Result<String> {
    Ok(format!("gateway-{}-", record::namespace()?))
}

fn place(directory: &Path, device: &str) -> io::Result<PathBuf> {
    Ok(directory.join(format!("{}{device}.json", prefix()?)))
}

/// The records of the calling thread's namespace, read by `read`.
fn records(
    directory: &Path,
    read: impl Fn(&Path) -> io::Result<Option<String>>,
) -> io::Result<Vec<(PathBuf, Content)>> {
    let prefix = prefix()?;
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| record::at(directory, error))?,
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(device) = name.to_str().and_then(|name| name.strip_prefix(&prefix)?.strip_suffix(".json"))
        else {
            continue;
        };
        let Some(text) = read(&entry.path())? else { continue };
        // It is replaced as a whole, so what can't be read isn't ours.
        let content = serde_json::from_str::<Content>(&text).ok();
        let is_ours = |content: &Content| content.device == device && is_device(device);
        found.extend(content.filter(is_ours).map(|content| (entry.path(), content)));
    }
    Ok(found)
}

/// The processes that died and forwarded.
pub(super) fn left(
    directory: &Path,
    read: impl Fn(&Path) -> io::Result<Option<String>>,
) -> io::Result<Vec<u32>> {
    let records = records(directory, read)?;
    let dead = records.into_iter().filter(|(_, content)| !content.process.is_alive());
    Ok(dead.map(|(_, content)| content.process.pid).collect())
}

/// Where it stands what a process that died has set up to forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatewayLeft {
    /// In the calling thread's network namespace: [`clear`](crate::clear) takes it down.
    Here,
    /// In another one, if that is still there: only who is there can take it down.
    Elsewhere,
}

/// What a process that died has left for this device.
///
/// # Errors
/// If the records can't be read.
pub fn gateway_left(device: &str) -> io::Result<Option<GatewayLeft>> {
    left_of(&polypath_system::runtime_directory()?, device)
}

pub(super) fn left_of(directory: &Path, device: &str) -> io::Result<Option<GatewayLeft>> {
    let here = place(directory, device)?;
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries.map_err(|error| record::at(directory, error))?,
    };
    let mut left = None;
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_of_device = name.to_str().is_some_and(|name| {
            let rest = name.strip_prefix("gateway-").and_then(|rest| rest.strip_suffix(".json"));
            rest.and_then(|rest| rest.split_once('-')).is_some_and(|(_, of)| of == device)
        });
        if !is_of_device {
            continue;
        }
        let Some(text) = record::read(&entry.path())? else { continue };
        let content = serde_json::from_str::<Content>(&text).ok();
        if content.is_none_or(|content| content.process.is_alive()) {
            continue;
        }
        if entry.path() == here {
            return Ok(Some(GatewayLeft::Here));
        }
        left = Some(GatewayLeft::Elsewhere);
    }
    Ok(left)
}

/// Takes down what forwarded for a tunnel whose process died. Variables are put back before.
pub(super) fn clear(directory: &Path, but: Option<&str>) -> io::Result<()> {
    let _lock = record::lock_directory(directory)?;
    for (path, content) in records(directory, record::read)? {
        if !content.process.is_alive() && but != Some(content.device.as_str()) {
            table::remove(&table_name(&content.device))?;
            fs::remove_file(&path).map_err(|error| record::at(&path, error))?;
        }
    }
    Ok(())
}
