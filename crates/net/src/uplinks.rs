//! Our stack on the uplinks of this machine: a TUN device, the network set up for it, and a watch that tells the stack
//! which paths come and go.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use polypath_mptcp::path_manager::{Budget, LocalEndpoint};
use polypath_mptcp::{ConnectionConfig, HostConfig};

use crate::setup::{NetworkSetup, PathPlan, SetupError, SetupOptions, Watch};
use crate::stack::{Stack, Surroundings, default_connection};
use crate::tun::{Tun, TunConfig, TunError};
use crate::{Namespace, Netlink};

/// Choices for a stack on the uplinks.
#[derive(Clone, Debug)]
pub struct UplinkOptions {
    /// Which uplinks, and what for.
    pub setup: SetupOptions,
    /// What connections get unless they bring their own. The MTU follows from the uplinks.
    pub connection: ConnectionConfig,
    /// The TUN device.
    pub tun: TunConfig,
    /// What is wanted of some uplinks, by the names of their interfaces.
    pub preferences: BTreeMap<String, UplinkPreference>,
}

/// What is wanted of one uplink, beside being used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UplinkPreference {
    /// The smaller, the more is it preferred by handovers. Default 0.
    pub priority: u8,
    /// Bytes that may go over it before it becomes a backup. Default: any number.
    pub budget_bytes: Option<u64>,
    /// Once the budget is spent, the uplink is used no more. Default false.
    pub is_budget_hard: bool,
}

impl UplinkPreference {
    /// One of the endpoints of the uplink with this number, from 0; they share the budget.
    pub(crate) fn apply(self, endpoint: LocalEndpoint, number: u8) -> LocalEndpoint {
        let (is_hard, pool) = (self.is_budget_hard, number + 1);
        let budget = self.budget_bytes.map(|bytes| Budget { bytes, is_hard, pool });
        LocalEndpoint { priority: self.priority, budget, ..endpoint }
    }
}

impl Default for UplinkOptions {
    fn default() -> Self {
        let (setup, tun) = (SetupOptions::default(), TunConfig::default());
        Self { setup, connection: default_connection(), tun, preferences: BTreeMap::new() }
    }
}

/// Why there is no stack on the uplinks.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UplinkError {
    /// No TUN device.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// The network can't be set up.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// Anything else.
    #[error("can't start the stack: {0}")]
    Io(#[from] io::Error),
}

impl Stack {
    /// A stack on the uplinks of `namespace`. The network is as it was when the stack has ended.
    ///
    /// Must be called within a tokio runtime.
    pub fn on_uplinks(namespace: &Namespace, options: UplinkOptions) -> Result<Self, UplinkError> {
        let tun = namespace.run(|| Tun::create(&options.tun)).map_err(|error| match error.kind() {
            // Without privileges the namespace can't be entered either.
            io::ErrorKind::PermissionDenied => UplinkError::Tun(TunError::Permission),
            _ => error.into(),
        })??;
        let setup = NetworkSetup::apply(namespace, tun.name(), options.setup)?;
        let mtu_bytes = setup.paths().iter().map(|path| path.mtu_bytes).min().unwrap_or(1500);
        namespace.run(|| Netlink::new()?.set_mtu(tun.name(), mtu_bytes.clamp(1280, 65_535)))??;
        let mut connection = options.connection;
        let tcp = Arc::make_mut(&mut connection.tcp);
        tcp.mtu_bytes = u16::try_from(mtu_bytes).unwrap_or(u16::MAX);
        let preferences = options.preferences;
        let endpoints = setup.paths().iter().flat_map(|path| endpoints(path, &preferences)).collect();
        let config = HostConfig { connection: Arc::new(connection), endpoints, ..HostConfig::default() };
        let stack = Self::tun(&tun, config)?;
        let watch = Watch::new(namespace)?;
        let setup = Arc::new(Mutex::new(setup));
        tokio::spawn(follow(watch, Arc::downgrade(&setup), stack.downgrade(), preferences));
        stack.surround(Box::new(Uplinks { setup, _tun: tun }));
        Ok(stack)
    }
}

/// What a stack's listeners have to do with the uplinks; dropping it takes the set-up down.
#[derive(Debug)]
struct Uplinks {
    setup: Arc<Mutex<NetworkSetup>>,
    _tun: Tun,
}

impl Surroundings for Uplinks {
    fn listens_at(&self, local: SocketAddr) -> SocketAddr {
        let setup = self.setup.lock().unwrap_or_else(PoisonError::into_inner);
        let path = setup.paths().iter().find(|path| path.uplink_addresses.contains(&local.ip()));
        let own = path.and_then(|path| path.stack_addresses().find(|addr| addr.is_ipv4() == local.is_ipv4()));
        own.map_or(local, |addr| SocketAddr::new(addr, local.port()))
    }

    fn expose(&self, port: u16, is_held: bool) -> io::Result<()> {
        let mut setup = self.setup.lock().unwrap_or_else(PoisonError::into_inner);
        let exposed = if is_held { setup.expose_held(port) } else { setup.expose(port) };
        exposed.map_err(|error| match error {
            SetupError::PortInUse { .. } => io::Error::new(io::ErrorKind::AddrInUse, error),
            error => io::Error::other(error),
        })
    }
}

/// A path's addresses as endpoints: the stack opens subflows from them. They are private, so they are not announced.
fn endpoints(
    path: &PathPlan,
    preferences: &BTreeMap<String, UplinkPreference>,
) -> impl Iterator<Item = LocalEndpoint> + use<> {
    let (number, is_backup) = (path.number, path.is_backup);
    let preference = preferences.get(&path.link).copied().unwrap_or_default();
    path.stack_addresses().map(move |addr| {
        let id = 2 * number + if addr.is_ipv4() { 1 } else { 2 };
        let endpoint = preference.apply(LocalEndpoint::subflow(addr, id), number);
        if is_backup { endpoint.backup() } else { endpoint }
    })
}

/// Tells the stack which paths come and go, as long as there is a stack.
async fn follow(
    mut watch: Watch,
    setup: Weak<Mutex<NetworkSetup>>,
    stack: crate::stack::WeakStack,
    preferences: BTreeMap<String, UplinkPreference>,
) {
    while watch.changed().await.is_some() {
        let (Some(setup), Some(stack)) = (setup.upgrade(), stack.upgrade()) else { return };
        let changes = setup.lock().unwrap_or_else(PoisonError::into_inner).update();
        match changes {
            Ok(changes) => {
                let removed: Vec<IpAddr> = changes.removed;
                removed.into_iter().for_each(|addr| stack.remove_path(addr));
                let added = changes.added.iter().flat_map(|path| endpoints(path, &preferences));
                added.for_each(|endpoint| stack.add_path(endpoint));
            }
            Err(error) => tracing::warn!(%error, "the uplinks have changed, and can't be followed"),
        }
    }
}
