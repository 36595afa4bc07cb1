//! Connections that other hosts send through this one, led to a listener here: what a router does for clients that know of no proxy.
//!
//! A claim to a slot, its record and its guardian are those of a stack behind a device, so that what undoes those undoes this, too.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::Path;

use polypath_system::{Link, Namespace, Netlink, Route, SystemState};
use rustix::thread::{CapabilitySet, capabilities};

use super::SetupError;
use super::action::Action;
use super::guardian::{self, Guardian};
use super::nat;
use super::nft::table_name;
use super::options::GuardianCommand;
use super::places::{self, DEVICES, FIRST_MARK_PRIORITY, FIRST_TABLE, SLOTS, STACKS_V4, STACKS_V6};
use super::record::Record;
use super::rule::{Match, Rule, Then};
use super::table::{Chain, Table};

/// The path whose numbers an interception has: it has no paths.
const NUMBER: u8 = 0;

static CHAINS: [Chain; 3] = [
    Chain { name: "tproxy", kind: "filter", hook: "prerouting", priority: -150 },
    Chain { name: "redirect", kind: "nat", hook: "prerouting", priority: -100 },
    Chain { name: "input", kind: "filter", hook: "input", priority: 0 },
];

/// How connections come to a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InterceptBy {
    /// With their own destination, which the listener's sockets then have as address. They need the option IP_TRANSPARENT.
    Tproxy,
    /// Translated to this host. The listener asks the kernel for the destination of before.
    Redirect,
}

/// Connections that are led to a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intercept {
    /// How.
    pub by: InterceptBy,
    /// Where the listener is: an address of each family that is intercepted. For a redirection, its port alone counts.
    pub at: Vec<SocketAddr>,
    /// Ports of destinations; all if there is none.
    pub ports: Vec<RangeInclusive<u16>>,
    /// By which interfaces they come. If none is named: any, where `clients` says from whom, or else those without a default route,
    /// which do not lead to the Internet.
    pub interfaces: Vec<String>,
    /// Networks of clients, as an address and the length of a prefix; all if there is none.
    pub clients: Vec<(IpAddr, u8)>,
}

impl Intercept {
    /// Whether there is an interface by which clients come. Others that are named may come late.
    fn check(&self, state: &SystemState) -> Result<(), SetupError> {
        let is_there = |name: &String| state.link(name).is_some();
        match self.interfaces.first() {
            Some(name) if !self.interfaces.iter().any(is_there) => {
                let others = state.links.iter().filter(|link| !link.is_loopback);
                let present = others.map(|link| link.name.clone()).collect();
                Err(SetupError::NoSuchInterface { name: name.clone(), present })
            }
            None if self.clients.is_empty() && lan(state).next().is_none() => Err(SetupError::NoLan),
            _ => Ok(()),
        }
    }
}

/// Interceptions of this process. Dropping it takes everything down.
///
/// Connections for this host itself are left alone, as is what this host and the stacks on it send.
#[derive(Debug)]
pub struct Interception {
    namespace: Namespace,
    slot: u8,
    intercepts: Vec<Intercept>,
    /// Interfaces without a default route.
    lan: Vec<String>,
    installed: Vec<Action>,
    /// Connections have been redirected, and need the translation until they end.
    has_redirected: bool,
    /// Until it is taken down.
    record: Option<Record>,
    /// Takes it down if this process can't.
    guardian: Option<Guardian>,
}

impl Interception {
    /// One of nothing so far, in this thread's network. A guardian takes it down if this process is killed; without one, the next
    /// start does.
    pub fn open(guardian: Option<&GuardianCommand>) -> Result<Self, SetupError> {
        Self::open_in(&Namespace::current()?, guardian, &polypath_system::runtime_directory()?)
    }

    pub(super) fn open_in(
        namespace: &Namespace,
        guardian: Option<&GuardianCommand>,
        directory: &Path,
    ) -> Result<Self, SetupError> {
        // Else nft says it, in its own words.
        if !capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_ADMIN)) {
            return Err(SetupError::Permission);
        }
        namespace.run(|| {
            if let Err(error) = guardian::clear_in(directory) {
                tracing::info!(%error, "what instances that died have left can't all be removed");
            }
            let netlink = Netlink::new()?;
            // From the first record on.
            let started = guardian.map(|command| Guardian::start_without_device(command, directory));
            let guardian = started.transpose().unwrap_or_else(|error| {
                tracing::warn!(%error, "nobody will take this down if it is killed");
                None
            });
            for slot in 0..SLOTS {
                let Some(record) = Record::claim(directory, slot, &netlink)? else { continue };
                let state = SystemState::read(&netlink)?;
                if places::is_slot_free(&state, slot) && !nat::is_there(slot)? {
                    return Ok(Self {
                        namespace: namespace.clone(),
                        slot,
                        intercepts: Vec::new(),
                        lan: Vec::new(),
                        installed: Vec::new(),
                        has_redirected: false,
                        record: Some(record),
                        guardian,
                    });
                }
            }
            Err(SetupError::NoSlot)
        })?
    }

    /// Intercepts this, from now on, and nothing else. Connections that were intercepted before go on. What fails changes nothing.
    pub fn set(&mut self, intercepts: Vec<Intercept>) -> Result<(), SetupError> {
        let namespace = self.namespace.clone();
        namespace.run(|| {
            let netlink = Netlink::new()?;
            let state = SystemState::read(&netlink)?;
            intercepts.iter().try_for_each(|of| of.check(&state))?;
            let before = std::mem::replace(&mut self.intercepts, intercepts);
            let adapted = self.adapt(&netlink, &state);
            if adapted.is_err() {
                self.intercepts = before;
            }
            Ok(adapted?)
        })?
    }

    /// Looks at the interfaces anew.
    pub fn update(&mut self) -> io::Result<()> {
        let namespace = self.namespace.clone();
        namespace.run(|| {
            let netlink = Netlink::new()?;
            let state = SystemState::read(&netlink)?;
            self.adapt(&netlink, &state)
        })?
    }

    /// Takes everything down, and says what could not be. Connections that are intercepted end.
    pub fn close(mut self) -> io::Result<()> {
        self.take_down()
    }

    fn adapt(&mut self, netlink: &Netlink, state: &SystemState) -> io::Result<()> {
        self.lan = lan(state).map(Into::into).collect();
        self.has_redirected |= self.intercepts.iter().any(|of| of.by == InterceptBy::Redirect);
        let mut wanted = self.installed.clone();
        wanted.extend(self.actions().into_iter().filter(|action| !self.installed.contains(action)));
        if let Some(record) = &mut self.record {
            record.note(wanted.iter().cloned())?;
        }
        for action in wanted {
            match action.apply(netlink) {
                // A loopback interface that was down has lost its routes, so all are added again.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                result => result?,
            }
            if !self.installed.contains(&action) {
                self.installed.push(action);
            }
        }
        self.table().apply()
    }

    /// What keeps marked packets here, of the families that are handed over.
    fn actions(&self) -> Vec<Action> {
        let handed = self.intercepts.iter().filter(|of| of.by == InterceptBy::Tproxy);
        let at: Vec<SocketAddr> = handed.flat_map(|of| of.at.iter().copied()).collect();
        let id = places::id(self.slot, NUMBER);
        let (table, priority, mark) = (FIRST_TABLE + id, FIRST_MARK_PRIORITY + id, self.mark());
        let families = [true, false].into_iter().filter(|is_v4| at.iter().any(|at| at.is_ipv4() == *is_v4));
        let of = |is_v4| {
            [Action::AddLocalRoute { is_v4, table }, Action::AddMarkRule { mark, is_v4, table, priority }]
        };
        families.flat_map(of).collect()
    }

    fn mark(&self) -> u32 {
        places::mark(self.slot, NUMBER)
    }

    fn table(&self) -> Table<'_> {
        // Rules that translate have the kernel follow all connections.
        let chains = match (!self.installed.is_empty(), self.has_redirected) {
            (true, false) => &CHAINS[..1],
            (false, true) => &CHAINS[1..],
            _ => &CHAINS[..],
        };
        let mut rules = Vec::new();
        if !self.installed.is_empty() {
            rules.extend(left_alone("tproxy"));
            rules.extend(self.led(InterceptBy::Tproxy));
            // Those that have begun, be it before the rules were changed. That one has no wildcard can't be asked: the kernel says of half of
            // a handshake neither that it has one nor that it has none.
            let others = vec![Match::Tcp, Match::OfTransparent, Match::OfAnyAddress];
            rules.push(Rule { chain: "tproxy", matches: others, then: Then::Return });
            let begun = vec![Match::Tcp, Match::OfTransparent];
            rules.push(Rule { chain: "tproxy", matches: begun, then: Then::Keep(self.mark()) });
        }
        if self.has_redirected {
            rules.extend(left_alone("redirect"));
            rules.extend(self.led(InterceptBy::Redirect));
            rules.extend(self.guarded());
        }
        Table { name: table_name(self.slot), chains, rules }
    }

    /// What leads connections to their listeners.
    fn led(&self, by: InterceptBy) -> Vec<Rule<'_>> {
        let mut rules = Vec::new();
        for of in self.intercepts.iter().filter(|of| of.by == by) {
            for at in &of.at {
                let Some(mut matches) = self.sources(of, at.is_ipv4()) else { continue };
                matches.extend((!of.ports.is_empty()).then(|| Match::Ports(&of.ports)));
                let (chain, then) = match by {
                    InterceptBy::Tproxy => ("tproxy", Then::Hand(*at, self.mark())),
                    InterceptBy::Redirect => ("redirect", Then::RedirectHere(at.port())),
                };
                rules.push(Rule { chain, matches, then });
            }
        }
        rules
    }

    /// Which connections of a family come from clients that are meant; none if there are none.
    fn sources<'a>(&'a self, of: &'a Intercept, is_v4: bool) -> Option<Vec<Match<'a>>> {
        let mut matches = vec![Match::Opening, Match::OfV4(is_v4)];
        let one_of =
            |links: &'a [String]| Match::InOneOf(links.iter().map(String::as_str).collect::<Vec<&str>>());
        match (&*of.interfaces, &*of.clients) {
            ([], []) if self.lan.is_empty() => return None,
            ([], []) => matches.push(one_of(&self.lan)),
            ([], _) => matches.push(Match::NotIn(DEVICES)),
            (named, _) => matches.push(one_of(named)),
        }
        if !of.clients.is_empty() {
            let own: Vec<_> =
                of.clients.iter().copied().filter(|(addr, _)| addr.is_ipv4() == is_v4).collect();
            if own.is_empty() {
                return None;
            }
            matches.push(Match::FromNetworks(own));
        }
        Some(matches)
    }

    /// A listener to which connections are redirected listens at all addresses: nobody else reaches it. The first rule stays for those that
    /// have begun: a kernel that is asked for nothing of the kind follows no connections, and forgets those that it has translated.
    fn guarded(&self) -> impl Iterator<Item = Rule<'_>> {
        let redirected = self.intercepts.iter().filter(|of| of.by == InterceptBy::Redirect);
        let mut ports: Vec<u16> = redirected.flat_map(|of| of.at.iter().map(SocketAddr::port)).collect();
        ports.sort_unstable();
        ports.dedup();
        let rule = |matches, then| Rule { chain: "input", matches, then };
        let others = ports.into_iter().map(move |port| rule(vec![Match::Port(port)], Then::Reset));
        std::iter::once(rule(vec![Match::Translated], Then::Accept)).chain(others)
    }

    fn take_down(&mut self) -> io::Result<()> {
        // Once only.
        let Some(record) = self.record.take() else { return Ok(()) };
        let (slot, installed) = (self.slot, std::mem::take(&mut self.installed));
        let result = self.namespace.run(|| {
            let netlink = Netlink::new()?;
            let mut result = nat::remove(slot);
            for action in installed.iter().rev() {
                result = result.and(action.undo(&netlink));
            }
            result
        });
        let result = result.and_then(|result| result);
        let guardian = self.guardian.take();
        if result.is_err() {
            // What is left stays on file, and is the guardian's when this process ends, or the next start's.
            std::mem::forget((record, guardian));
        }
        result
    }
}

impl Drop for Interception {
    fn drop(&mut self) {
        if let Err(error) = self.take_down() {
            tracing::error!(%error, "the network is not as it was");
        }
    }
}

/// What is for this host, and what stacks on it send.
fn left_alone<'a>(chain: &'static str) -> impl Iterator<Item = Rule<'a>> {
    let matches =
        [Match::ToThisHost, Match::FromNetworks(vec![STACKS_V4]), Match::FromNetworks(vec![STACKS_V6])];
    matches.into_iter().map(move |matched| Rule {
        chain,
        matches: vec![Match::Opening, matched],
        then: Then::Return,
    })
}

/// Interfaces that do not lead to the Internet.
fn lan(state: &SystemState) -> impl Iterator<Item = &str> {
    let is_uplink =
        |link: &Link| state.routes.iter().any(|route: &Route| route.is_default() && route.link == link.index);
    let links = state.links.iter().filter(move |link| !link.is_loopback && !is_uplink(link));
    links.map(|link| link.name.as_str()).filter(|name| !name.starts_with("polypath"))
}
