//! Network set-up for a stack behind a TUN device: one private address per uplink, routed and translated out of that
//! uplink, and back again to as it was.

pub mod abilities;
mod action;
mod away;
pub mod doctor;
mod error;
mod farewell;
mod forward;
mod gateway;
mod guardian;
mod interception;
mod kernel_paths;
mod limits;
mod nat;
mod nft;
mod options;
mod places;
mod plan;
mod record;
mod rule;
mod table;
#[cfg(test)]
mod tests;
pub mod uplinks;
mod variables;
mod watch;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::path::{Path, PathBuf};

pub(crate) use action::Action;
use action::is_router;
use away::Away;
pub use error::SetupError;
pub use gateway::{Gateway, GatewayLeft, GatewayOptions, gateway_left};
use guardian::Guardian;
pub(crate) use guardian::{LeftBehind, left_behind};
pub use guardian::{clear, clear_before_gateway, guard, guard_detached, left_by};
pub use interception::{Intercept, InterceptBy, Interception};
use limits::Limits;
use nat::Translation;
pub(crate) use nft::probe as probe_nft;
pub use options::{DetachedGuardian, GuardianCommand, SetupOptions};
pub(crate) use plan::{NetworkPlan, PathPlan};
use polypath_stack::peer_list::PeerList;
use polypath_system::tun::Tun;
use polypath_system::{Namespace, Netlink, SystemState, conntrack};
use record::Record;
use socket2::{Domain, Protocol, Socket, Type};
use variables::SharedVariables;
pub use watch::Watch;

/// What became of the paths when the network changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PathChanges {
    /// Paths that are new, or come back.
    pub added: Vec<PathPlan>,
    /// Paths that go on, but are reached by peers at other addresses.
    pub readdressed: Vec<PathPlan>,
    /// Stack addresses that work no more.
    pub removed: Vec<IpAddr>,
}

/// A network that is set up. Dropping it takes everything down.
#[derive(Debug)]
pub struct NetworkSetup {
    namespace: Namespace,
    tun: String,
    options: SetupOptions,
    numbers: BTreeMap<String, u8>,
    installed: NetworkPlan,
    /// Those of the stack's addresses whose uplinks are gone for now.
    away: Away,
    /// The uplinks' addresses that stood last for those of the stack.
    outer: BTreeMap<IpAddr, IpAddr>,
    /// Until it is left.
    variables: Option<SharedVariables>,
    /// Until it is taken down.
    record: Option<Record>,
    /// Takes it down if this process can't.
    guardian: Option<Guardian>,
    /// Keep the exposed ports from everyone else.
    reserved: Vec<Socket>,
    /// Exposed ports at which a socket of the kernel listens too: the system's own clients reach that one.
    held: Vec<u16>,
}

impl NetworkSetup {
    /// Says what would be done for the device `tun`, as the commands that a person would type, and does nothing.
    pub fn dry_run(namespace: &Namespace, tun: &str, options: &SetupOptions) -> Result<String, SetupError> {
        namespace.run(|| {
            let state = SystemState::read(&Netlink::new()?)?;
            let slot = (0..places::SLOTS)
                .find(|slot| places::is_slot_free(&state, *slot))
                .ok_or(SetupError::NoSlot)?;
            let plan = NetworkPlan::compute(&state, options, slot, tun, &BTreeMap::new())?;
            let actions = plan.base.iter().chain(&plan.device);
            let actions = actions.chain(plan.paths.iter().flat_map(|path| &path.actions));
            let mut lines: Vec<String> = actions.map(ToString::to_string).collect();
            let limits = &Limits::of(&plan.base, is_router);
            let (paths, exposed) = (&*plan.paths, &*options.exposed_ports);
            let others = &*plan.other_addresses;
            let translation = Translation { slot, tun, paths, away: &[], others, exposed, held: &[], limits };
            let through_firewalls = forward::text(tun, &nft::table_name(slot))?;
            lines.push(format!("nft -f - <<END\n{}\nEND{through_firewalls}", translation.text()));
            Ok(lines.join("\n"))
        })?
    }

    /// Sets up the network in `namespace` for the device `tun`, which is there already.
    /// A guardian that is nobody's child is started rather than the one of the options.
    pub(crate) fn apply(
        namespace: &Namespace,
        tun: &Tun,
        options: SetupOptions,
        detached: Option<&DetachedGuardian>,
    ) -> Result<Self, SetupError> {
        Self::apply_with(namespace, tun, options, detached, &polypath_system::runtime_directory()?)
    }

    fn apply_with(
        namespace: &Namespace,
        device: &Tun,
        options: SetupOptions,
        detached: Option<&DetachedGuardian>,
        directory: &Path,
    ) -> Result<Self, SetupError> {
        let directory: PathBuf = directory.into();
        let tun = device.name();
        namespace.run(|| {
            let netlink = Netlink::new()?;
            // What is in the way of this one is an error below; the rest is said by who calls `clear`.
            if let Err(error) = guardian::clear_in(&directory) {
                tracing::info!(%error, "what instances that died have left can't all be removed");
            }
            netlink.set_up(tun)?;
            // From the first record on.
            let mut guardian = start_guardian(&options, detached, &directory, device);
            for slot in 0..places::SLOTS {
                let Some(record) = Record::claim(&directory, slot, &netlink)? else { continue };
                // Before they are read: what is found set stays so.
                let variables = SharedVariables::join(&directory, slot)?;
                let state = SystemState::read(&netlink)?;
                // What an instance that died had there is gone by now, so a table of that name is somebody else's.
                if !places::is_slot_free(&state, slot) || nat::is_there(slot)? {
                    variables.leave(&netlink)?;
                    continue;
                }
                let installed = NetworkPlan { slot, ..NetworkPlan::default() };
                // From here on, dropping it undoes what was done.
                let mut setup = Self {
                    namespace: namespace.clone(),
                    tun: tun.to_string(),
                    guardian: guardian.take(),
                    options,
                    numbers: BTreeMap::new(),
                    installed,
                    away: Away::default(),
                    outer: BTreeMap::new(),
                    variables: Some(variables),
                    record: Some(record),
                    reserved: Vec::new(),
                    held: Vec::new(),
                };
                setup.adapt(&netlink, &state)?;
                if setup.installed.paths.is_empty() {
                    return Err(SetupError::NoUplink);
                }
                return Ok(setup);
            }
            Err(SetupError::NoSlot)
        })?
    }

    /// The paths, in the order of the interfaces.
    #[must_use]
    pub(crate) fn paths(&self) -> &[PathPlan] {
        &self.installed.paths
    }

    /// Where a stack is to note its subflows, so that their peers are told if this process is killed.
    pub(crate) fn peer_list(&self) -> Option<PeerList> {
        self.guardian.as_ref()?.peer_list().ok()
    }

    /// The stack's address that peers reach at one of the system's.
    #[must_use]
    pub(crate) fn stack_address(&self, outer: IpAddr) -> Option<IpAddr> {
        let of_family =
            |path: &PathPlan| path.stack_addresses().find(|addr| addr.is_ipv4() == outer.is_ipv4());
        let own =
            self.paths().iter().filter(|path| path.uplink_addresses.contains(&outer)).find_map(of_family);
        let is_other = self.installed.other_addresses.contains(&outer);
        own.or_else(|| self.paths().iter().find_map(of_family).filter(|_| is_other))
    }

    /// The interface of one of the stack's addresses, also of one that is gone for now.
    pub(crate) fn link_of(&self, own: IpAddr) -> Option<&str> {
        let path = self.paths().iter().find(|path| path.stack_addresses().any(|addr| addr == own));
        let slot = self.installed.slot;
        let had = || {
            self.numbers.iter().find(|(_, number)| {
                [IpAddr::V4(places::stack_v4(slot, **number)), IpAddr::V6(places::stack_v6(slot, **number))]
                    .contains(&own)
            })
        };
        path.map(|path| path.link.as_str()).or_else(|| had().map(|(name, _)| name.as_str()))
    }

    /// Number of the instance: part of the names of what it sets up.
    #[cfg(test)]
    pub(crate) fn slot(&self) -> u8 {
        self.installed.slot
    }

    /// Lets peers reach a TCP port of the stack at every uplink's address.
    pub(crate) fn expose(&mut self, port: u16) -> Result<(), SetupError> {
        if self.options.exposed_ports.contains(&port) {
            return Ok(());
        }
        let namespace = self.namespace.clone();
        let reserved = namespace.run(|| reserve(port))?.map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => SetupError::PortInUse { port },
            _ => error.into(),
        })?;
        self.reserved.push(reserved);
        self.expose_more(port)
    }

    /// As [`NetworkSetup::expose`], for a port that the caller has from the kernel.
    pub(crate) fn expose_held(&mut self, port: u16) -> Result<(), SetupError> {
        if self.options.exposed_ports.contains(&port) {
            return Ok(());
        }
        self.held.push(port);
        self.expose_more(port)
    }

    fn expose_more(&mut self, port: u16) -> Result<(), SetupError> {
        self.options.exposed_ports.push(port);
        Ok(self.namespace.clone().run(|| self.translate())??)
    }

    /// Looks at the network anew, adapts to what has changed, and says what that means for the stack.
    pub(crate) fn update(&mut self) -> Result<PathChanges, SetupError> {
        let namespace = self.namespace.clone();
        namespace.run(|| {
            let netlink = Netlink::new()?;
            let state = SystemState::read(&netlink)?;
            self.adapt(&netlink, &state)
        })?
    }

    fn adapt(&mut self, netlink: &Netlink, state: &SystemState) -> Result<PathChanges, SetupError> {
        let wanted =
            NetworkPlan::compute(state, &self.options, self.installed.slot, &self.tun, &self.numbers)?;
        let mut changes = PathChanges::default();
        let before = std::mem::replace(&mut self.installed.paths, wanted.paths.clone());
        let before_away = self.away.actions();
        self.away.come_back(&wanted.paths);
        for old in &before {
            let new = wanted.paths.iter().find(|new| new.is_same_path(old));
            let is_gone = |addr: &IpAddr| new.is_none_or(|new| !new.has(*addr) || new.confines(old, *addr));
            changes.removed.extend(old.stack_addresses().filter(is_gone));
            // Uplinks come back. Networks beside them come and go, those of containers for example, and must not use up numbers.
            if old.is_confined() {
                self.numbers.remove(&old.link);
            } else {
                let lost = old.stack_addresses().filter(|addr| new.is_none_or(|new| !new.has(*addr)));
                lost.for_each(|addr| self.away.go(old, addr));
            }
        }
        for new in &wanted.paths {
            match before.iter().find(|old| old.is_same_path(new)) {
                Some(old) if new.opens_no_more_than(old) => {
                    changes.readdressed.extend(is_readdressed(old, new).then(|| new.clone()));
                }
                _ => changes.added.push(new.clone()),
            }
        }
        let staying = self.away.actions();
        let is_kept = |action: &Action| {
            staying.contains(action) || wanted.paths.iter().any(|path| path.actions.contains(action))
        };
        let known: Vec<&Action> = before.iter().flat_map(|path| &path.actions).chain(&before_away).collect();
        undo(netlink, known.iter().copied().filter(|action| !is_kept(action)));
        self.installed.other_addresses.clone_from(&wanted.other_addresses);
        self.numbers.extend(wanted.paths.iter().map(|path| (path.link.clone(), path.number)));
        if let Some(record) = &mut self.record {
            record.note(wanted.paths.iter().flat_map(|path| &path.actions).chain(&staying).cloned())?;
        }
        if let Some(variables) = &self.variables {
            variables.note(&wanted.base)?;
        }
        // Before the system forwards, what it forwards is limited to the stack's.
        self.translate()?;
        wanted.base.iter().try_for_each(|action| action.apply(netlink))?;
        for action in &wanted.device {
            match action.apply(netlink) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                result => result?,
            }
        }
        for action in wanted.paths.iter().flat_map(|path| &path.actions) {
            match action.apply(netlink) {
                // An interface that went down for a moment has lost its routes, so all are added again.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && known.contains(&action) => {}
                result => result?,
            }
        }
        self.forget_moved();
        Ok(changes)
    }

    /// Has the kernel forget how it translates connections of paths whose uplinks have other addresses than before: what the
    /// stack sends on them leaves with the new one, and the peer says that it does not know it.
    fn forget_moved(&mut self) {
        let slot = self.installed.slot;
        for path in &self.installed.paths {
            for own in path.stack_addresses() {
                let Some(outer) = path.outer_address(own.is_ipv4()) else { continue };
                let before = self.outer.insert(own, outer);
                if before.is_none_or(|before| before == outer) {
                    continue;
                }
                // Without it, they wait until they time out: no reason not to follow what else has changed.
                if let Err(error) = conntrack::forget(places::mark(slot, path.number), own.is_ipv4()) {
                    tracing::warn!(%error, "connections of {} keep its address of before", path.link);
                }
            }
        }
    }

    fn translate(&self) -> io::Result<()> {
        let (slot, tun, paths) = (self.installed.slot, &*self.tun, &*self.installed.paths);
        let limits = self.variables.as_ref().map(SharedVariables::limits).transpose()?.unwrap_or_default();
        let (exposed, held) = (&*self.options.exposed_ports, &*self.held);
        let (others, away) = (&*self.installed.other_addresses, self.away.addresses());
        Translation { slot, tun, paths, away, others, exposed, held, limits: &limits }.apply()
    }

    /// Takes everything down, and says what could not be.
    #[cfg(test)]
    pub(crate) fn remove(mut self) -> io::Result<()> {
        self.take_down()
    }

    fn take_down(&mut self) -> io::Result<()> {
        // Once only.
        let Some(variables) = self.variables.take() else { return Ok(()) };
        let paths = std::mem::take(&mut self.installed.paths);
        let away = std::mem::take(&mut self.away).actions();
        let slot = self.installed.slot;
        // Where descriptors are short, nft needs those of the ports.
        self.reserved.clear();
        let result = self.namespace.run(|| {
            let netlink = Netlink::new()?;
            // The limits of what is forwarded go last: not for a moment is this a router for others.
            let mut result = variables.leave(&netlink);
            for action in paths.iter().flat_map(|path| &path.actions).chain(&away).rev() {
                result = result.and(action.undo(&netlink));
            }
            result.and(nat::remove(slot))
        });
        let result = result.and_then(|result| result);
        // Not before: until here this process may still be killed.
        let (record, guardian) = (self.record.take(), self.guardian.take());
        if result.is_err() {
            // What is left stays on file, and is the guardian's when this process ends, or the next start's.
            std::mem::forget((record, guardian));
        }
        result
    }
}

/// Without one, the next start takes down what is left if this process is killed.
fn start_guardian(
    options: &SetupOptions,
    detached: Option<&DetachedGuardian>,
    directory: &Path,
    tun: &Tun,
) -> Option<Guardian> {
    let started = match detached {
        Some(how) => Guardian::start_detached(how, directory, tun),
        None => Guardian::start(options.guardian.as_ref()?, directory, tun),
    };
    started.inspect_err(|error| tracing::warn!(%error, "nobody will take this down if it is killed")).ok()
}

/// A socket that has a port, so that nobody else can listen there, and takes no connections.
fn reserve(port: u16) -> io::Result<Socket> {
    let open = |domain, unspecified: IpAddr| -> io::Result<Socket> {
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        // Connections that have ended are not in the way; somebody who listens is.
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::new(unspecified, port).into())?;
        socket.listen(0)?;
        // Those who come later shall see it as taken, but who connects past the stack shall be refused.
        socket.shutdown(Shutdown::Read)?;
        socket.set_reuse_address(false)?;
        Ok(socket)
    };
    match open(Domain::IPV6, Ipv6Addr::UNSPECIFIED.into()) {
        // No IPv6 here.
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            open(Domain::IPV4, Ipv4Addr::UNSPECIFIED.into())
        }
        result => result,
    }
}

/// Whether peers reach the same path at another address than before.
fn is_readdressed(old: &PathPlan, new: &PathPlan) -> bool {
    let mut families = new.open_addresses().map(|addr| addr.is_ipv4());
    families.any(|is_v4| old.outer_address(is_v4) != new.outer_address(is_v4))
}

/// Undoes what may partly be gone with its interface; what can't be undone now is tried again at the end.
fn undo<'a>(netlink: &Netlink, actions: impl DoubleEndedIterator<Item = &'a Action>) {
    for action in actions.rev() {
        if let Err(error) = action.undo(netlink) {
            tracing::warn!(%action, %error, "can't be undone");
        }
    }
}

impl Drop for NetworkSetup {
    fn drop(&mut self) {
        if let Err(error) = self.take_down() {
            tracing::error!(%error, "the network is not as it was");
        }
    }
}
