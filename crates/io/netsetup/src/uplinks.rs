//! Our stack on the uplinks of this machine: a TUN device, the network set up for it, and a watch that tells the stack
//! which paths come and go.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use polypath_mptcp::path_manager::LocalEndpoint;
use polypath_mptcp::{ConnectionConfig, HostConfig};
use polypath_stack::UplinkPreference;
use polypath_stack::stack::{Stack, Underlay, default_connection};
use polypath_system::tun::{Tun, TunConfig, TunError};
use polypath_system::{Namespace, Netlink};

use crate::{DetachedGuardian, NetworkSetup, PathPlan, SetupError, Watch};
pub use crate::{GuardianCommand, SetupOptions, guard};

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
    /// Where peers reach this end, if not at the uplinks' own addresses: those of a router that passes connections on to
    /// one of them, each with the port if it isn't the same.
    pub announced: Vec<(IpAddr, Option<u16>)>,
    /// The guardian of a library, rather than that of `setup`.
    pub detached_guardian: Option<DetachedGuardian>,
}

impl Default for UplinkOptions {
    fn default() -> Self {
        let (setup, tun) = (SetupOptions::default(), TunConfig::default());
        let (preferences, announced) = (BTreeMap::new(), Vec::new());
        Self { setup, connection: default_connection(), tun, preferences, announced, detached_guardian: None }
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

/// A stack on the uplinks of `namespace`. The network is as it was when the stack has ended. Where the process is killed, that takes a
/// guardian, which [`SetupOptions::guardian`] names: by default there is none, and the next start puts the network back. A program may
/// be its own guardian:
///
/// ```
/// # mod polypath { pub use polypath_netsetup::uplinks; }
/// use polypath::uplinks::{GuardianCommand, UplinkOptions, guard};
///
/// fn main() -> std::io::Result<()> {
///     let words: Vec<String> = std::env::args().collect();
///     if let [_, mark, directory, parent] = &words[..]
///         && mark == "guardian"
///     {
///         return guard(directory.as_ref(), parent.parse().map_err(std::io::Error::other)?);
///     }
///     let mut options = UplinkOptions::default();
///     let arguments = vec!["guardian".into()];
///     options.setup.guardian = Some(GuardianCommand { program: "/proc/self/exe".into(), arguments });
///     // And so on: `uplinks::open` with these options.
///     Ok(())
/// }
/// ```
///
/// Must be called within a tokio runtime.
pub fn open(namespace: &Namespace, options: UplinkOptions) -> Result<Stack, UplinkError> {
    let tun = namespace.run(|| Tun::create(&options.tun)).map_err(|error| match error.kind() {
        // Without privileges the namespace can't be entered either.
        io::ErrorKind::PermissionDenied => UplinkError::Tun(TunError::Permission),
        _ => error.into(),
    })??;
    let setup = NetworkSetup::apply(namespace, &tun, options.setup, options.detached_guardian.as_ref())?;
    let leading_out = setup.paths().iter().filter(|path| path.open_addresses().next().is_some());
    let mtu_bytes = leading_out.map(|path| path.mtu_bytes).min().unwrap_or(1500);
    namespace.run(|| Netlink::new()?.set_mtu(tun.name(), mtu_bytes.clamp(1280, 65_535)))??;
    let mut connection = options.connection;
    let tcp = Arc::make_mut(&mut connection.tcp);
    tcp.mtu_bytes = u16::try_from(mtu_bytes).unwrap_or(u16::MAX);
    let wishes = Wishes { preferences: options.preferences, is_announced: options.announced.is_empty() };
    let endpoints = setup.paths().iter().flat_map(|path| endpoints(path, &wishes));
    let endpoints = endpoints.chain(elsewhere(&options.announced)).collect();
    let config = HostConfig { connection: Arc::new(connection), endpoints, ..HostConfig::default() };
    let stack = Stack::tun(&tun, config)?;
    if let Some(peers) = setup.peer_list() {
        stack.keep_peers(peers);
    }
    let watch = Watch::new(namespace)?;
    let setup = Arc::new(Mutex::new(setup));
    tokio::spawn(follow(watch, Arc::downgrade(&setup), stack.downgrade(), wishes));
    stack.set_underlay(Box::new(Uplinks { setup, _tun: tun }));
    Ok(stack)
}

impl From<UplinkError> for io::Error {
    /// With the kind of what it holds; the error itself is inside.
    fn from(error: UplinkError) -> Self {
        let kind = match &error {
            UplinkError::Tun(TunError::Permission | TunError::Forbidden)
            | UplinkError::Setup(SetupError::Permission) => io::ErrorKind::PermissionDenied,
            UplinkError::Setup(SetupError::NoSuchInterface { .. } | SetupError::Loopback { .. }) => {
                io::ErrorKind::InvalidInput
            }
            UplinkError::Setup(SetupError::NoUplink) => io::ErrorKind::NetworkUnreachable,
            UplinkError::Setup(SetupError::PortInUse { .. }) => io::ErrorKind::AddrInUse,
            UplinkError::Io(error)
            | UplinkError::Setup(SetupError::Io(error))
            | UplinkError::Tun(TunError::Io { error, .. }) => error.kind(),
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// What a stack's listeners have to do with the uplinks; dropping it takes the set-up down.
#[derive(Debug)]
struct Uplinks {
    setup: Arc<Mutex<NetworkSetup>>,
    _tun: Tun,
}

impl Underlay for Uplinks {
    fn listens_at(&self, local: SocketAddr) -> SocketAddr {
        let setup = self.setup.lock().unwrap_or_else(PoisonError::into_inner);
        let own = setup.stack_address(local.ip());
        own.map_or(local, |addr| SocketAddr::new(addr, local.port()))
    }

    fn may_listen(&self, local: SocketAddr, is_held: bool) -> io::Result<()> {
        let addr = local.ip().to_canonical();
        if is_held || addr.is_unspecified() {
            return Ok(());
        }
        if !addr.is_loopback() {
            let setup = self.setup.lock().unwrap_or_else(PoisonError::into_inner);
            let mut of_stack = setup.paths().iter().flat_map(PathPlan::stack_addresses);
            if setup.stack_address(addr).is_some() || of_stack.any(|own| own == addr) {
                return Ok(());
            }
            let all = if addr.is_ipv4() { "0.0.0.0" } else { "[::]" };
            let text = format!(
                "can't listen at {local}: engine tun is not reached there; expected {all} or an address of an interface (`ip addr` shows them)"
            );
            return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, text));
        }
        let all = if addr.is_ipv4() {
            "0.0.0.0 (clients here then use 127.0.0.1)"
        } else {
            "[::] (clients here then use 127.0.0.1, not ::1)"
        };
        let text = format!(
            "can't listen at {local}: nobody reaches engine tun there; expected {all}, an uplink's address, or engine kernel"
        );
        Err(io::Error::new(io::ErrorKind::AddrNotAvailable, text))
    }

    fn dials(&self, remote: SocketAddr) -> SocketAddr {
        // As for the kernel's sockets, this is the system itself.
        let is_here = remote.ip() == IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        if is_here { (Ipv4Addr::LOCALHOST, remote.port()).into() } else { remote }
    }

    fn starts_at(&self, remote: SocketAddr) -> io::Result<Option<IpAddr>> {
        let addr = remote.ip();
        if addr == IpAddr::V6(Ipv6Addr::LOCALHOST) || addr == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
            // The kernel takes no packets to or from it from a device.
            return Err(io::Error::new(
                io::ErrorKind::AddrNotAvailable,
                "it is this system itself, which engine tun reaches by its other addresses only; expected 127.0.0.1, an uplink's address, or engine kernel",
            ));
        }
        let setup = self.setup.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(nearest(setup.paths(), addr))
    }

    fn path_name(&self, own: IpAddr) -> Option<String> {
        let setup = self.setup.lock().unwrap_or_else(PoisonError::into_inner);
        setup.link_of(own).map(str::to_string)
    }

    fn seen_at(&self, own: SocketAddr) -> SocketAddr {
        let setup = self.setup.lock().unwrap_or_else(PoisonError::into_inner);
        let path = setup.paths().iter().find(|path| path.stack_addresses().any(|addr| addr == own.ip()));
        let outer = path.and_then(|path| path.outer_address(own.is_ipv4()));
        outer.map_or(own, |addr| SocketAddr::new(addr, own.port()))
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

/// The stack's address on the path that has the smallest network with `addr` in it.
fn nearest(paths: &[PathPlan], addr: IpAddr) -> Option<IpAddr> {
    let reaching = paths.iter().filter_map(|path| path.reaches(addr).map(|length| (length, path)));
    // Of several that are equal, the first.
    let (_, path) = reaching.min_by_key(|(length, _)| std::cmp::Reverse(*length))?;
    path.stack_addresses().find(|own| own.is_ipv4() == addr.is_ipv4())
}

/// What is wanted of uplinks, those too that are yet to come.
struct Wishes {
    preferences: BTreeMap<String, UplinkPreference>,
    /// Their addresses are announced.
    is_announced: bool,
}

/// A path's addresses as endpoints: the stack opens subflows from them. They are private, so that the uplink's are announced
/// instead, which is where peers reach them.
fn endpoints(path: &PathPlan, wishes: &Wishes) -> impl Iterator<Item = LocalEndpoint> {
    let preference = wishes.preferences.get(&path.link).copied().unwrap_or_default();
    let is_announced = wishes.is_announced;
    path.open_addresses().map(move |addr| {
        let id = 2 * path.number + if addr.is_ipv4() { 1 } else { 2 };
        let mut endpoint = preference.apply(LocalEndpoint::subflow(addr, id), path.number);
        if path.is_backup {
            endpoint = endpoint.backup();
        }
        match path.outer_address(addr.is_ipv4()) {
            Some(outer) if is_announced => endpoint.announced_as(outer),
            _ => endpoint,
        }
    })
}

/// Addresses of somebody else who passes connections on, as endpoints from which nothing is opened.
fn elsewhere(announced: &[(IpAddr, Option<u16>)]) -> impl Iterator<Item = LocalEndpoint> + '_ {
    announced.iter().zip(FIRST_ELSEWHERE..).map(|((addr, port), id)| {
        let endpoint = LocalEndpoint::signal(*addr, id).announced_as(*addr);
        LocalEndpoint { port: *port, ..endpoint }
    })
}

/// The first identifier of an address elsewhere, past those of all paths.
const FIRST_ELSEWHERE: u8 = 200;

/// Tells the stack which paths come and go, as long as there is a stack.
async fn follow(
    mut watch: Watch,
    setup: Weak<Mutex<NetworkSetup>>,
    stack: polypath_stack::stack::WeakStack,
    wishes: Wishes,
) {
    while watch.changed().await.is_some() {
        let (Some(setup), Some(stack)) = (setup.upgrade(), stack.upgrade()) else { return };
        let changes = setup.lock().unwrap_or_else(PoisonError::into_inner).update();
        match changes {
            Ok(changes) => {
                let removed: Vec<IpAddr> = changes.removed;
                removed.into_iter().for_each(|addr| stack.remove_path(addr));
                let changed = changes.added.iter().chain(&changes.readdressed);
                changed
                    .flat_map(|path| endpoints(path, &wishes))
                    .for_each(|endpoint| stack.add_path(endpoint));
            }
            Err(error) => tracing::warn!(%error, "the uplinks have changed, and can't be followed"),
        }
    }
}

#[cfg(test)]
mod reach_tests;

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use polypath_stack::Engine;
    use polypath_stack::engine::{ConnectOptions, KernelEngine, StreamInfo, SubflowInfo};
    use polypath_stack::stack::ending::{is_told, upload_to_the_end};
    use polypath_testbed::{Testbed, is_root_or_skip};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use polypath_mptcp::AddressId;

    fn ip(namespace: &Namespace, words: &str) {
        let done = namespace.run(|| Command::new("ip").args(words.split(' ')).output());
        let done = done.expect("the namespace").expect("iproute2");
        assert!(done.status.success(), "ip {words}: {done:?}");
    }

    /// Two hosts, each with an uplink per path.
    fn testbed() -> Testbed {
        let testbed = Testbed::new(2).expect("namespaces");
        for (namespace, other) in [(&testbed.client, 2), (&testbed.server, 1)] {
            for path in 0..2 {
                let metric = 100 + path;
                ip(
                    namespace,
                    &format!("route add default via 10.77.{path}.{other} dev path{path} metric {metric}"),
                );
            }
            ip(namespace, "mptcp limits set subflows 4 add_addr_accepted 4");
        }
        testbed
    }

    /// Talks from `client` to `local` at `server` until a subflow to `announced` has carried something.
    async fn joins(client: &Engine, server: &Engine, local: SocketAddr, to: SocketAddr, announced: IpAddr) {
        let listener = server.listen(local).await.expect("a listener");
        let options = ConnectOptions::default();
        let (near, far) = tokio::join!(client.connect(to, &options), listener.accept());
        let (mut near, (far, _)) = (near.expect("connects"), far.expect("is accepted"));
        let serving = tokio::spawn(async move {
            let (mut read, mut write) = tokio::io::split(far);
            tokio::io::copy(&mut read, &mut write).await
        });
        let mut last = StreamInfo::default();
        // A join takes a few round trips, which others on this machine may slow down.
        for _ in 0..200 {
            near.write_all(&[7; 100_000]).await.expect("writes");
            near.read_exact(&mut [0; 100_000]).await.expect("reads");
            last = near.info().expect("it lives");
            let joined =
                last.subflows.iter().find(|subflow| subflow.tuple.remote.addr.to_canonical() == announced);
            let carried =
                |subflow: &SubflowInfo| subflow.tcp.bytes_acked > 1 || subflow.tcp.bytes_received > 1;
            if joined.is_some_and(carried) {
                near.shutdown().await.expect("ends");
                serving.await.expect("a task").expect("ends too");
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("no subflow to {announced}: {last:?}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_server_behind_translation_announces_its_other_uplink() {
        if !is_root_or_skip("announcing uplinks") {
            return;
        }
        let testbed = testbed();
        let on_uplinks = |namespace: &Namespace, uplinks: &[&str]| {
            let mut options = UplinkOptions::default();
            options.setup.uplinks = uplinks.iter().map(ToString::to_string).collect();
            Engine::Stack(open(namespace, options).expect("a stack"))
        };
        let server = on_uplinks(&testbed.server, &[]);
        let kernel = Engine::Kernel(KernelEngine::new().in_namespace(testbed.client.clone()));
        let one = on_uplinks(&testbed.client, &["path0"]);
        let both = on_uplinks(&testbed.client, &["path0", "path1"]);
        for (client, port) in [(&kernel, 8001), (&one, 8002), (&both, 8003)] {
            // At every address, and at one of them only.
            for (local, port) in [(IpAddr::from([0; 4]), port), (Testbed::server_v4(0).into(), port + 1000)] {
                let to = SocketAddr::from((Testbed::server_v4(0), port));
                joins(client, &server, (local, port).into(), to, Testbed::server_v4(1).into()).await;
            }
        }
    }

    /// As after an interruption of a program in the middle of an upload.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_peer_of_a_stack_whose_runtime_ends_is_told() {
        if !is_root_or_skip("the end of a stack on uplinks") {
            return;
        }
        let testbed = testbed();
        let kernel = Engine::Kernel(KernelEngine::new().in_namespace(testbed.server.clone()));
        let at = SocketAddr::from((Testbed::server_v4(0), 8001));
        let listener = kernel.listen(at).await.expect("a listener");
        let namespace = testbed.client.clone();
        let start = move || open(&namespace, UplinkOptions::default()).expect("a stack");
        let (accepted, ()) = tokio::join!(listener.accept(), upload_to_the_end(start, at));
        is_told(accepted.expect("is accepted").0).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_address_elsewhere_is_announced_with_its_port() {
        if !is_root_or_skip("announcing addresses elsewhere") {
            return;
        }
        let testbed = testbed();
        let elsewhere = IpAddr::from([192, 0, 2, 80]);
        let options = UplinkOptions { announced: vec![(elsewhere, Some(9000))], ..UplinkOptions::default() };
        let server = open(&testbed.server, options).expect("a stack");
        let of_second =
            server.paths().iter().find(|path| path.id == AddressId(3)).expect("the second path").addr;
        // A router before the server: 192.0.2.80 with port 9000 leads to its second uplink, with the server's port.
        ip(&testbed.client, "route add 192.0.2.80 via 10.77.1.2 dev path1");
        let rules = [
            "add table ip router",
            "add chain ip router in { type nat hook prerouting priority -150 ; }",
            &format!("add rule ip router in ip daddr 192.0.2.80 tcp dport 9000 dnat to {of_second}:8001"),
        ];
        for rule in rules {
            let done = testbed.server.run(|| Command::new("nft").arg("--").args(rule.split(' ')).output());
            assert!(done.expect("the namespace").expect("nft").status.success(), "nft {rule}");
        }
        let server = Engine::Stack(server);
        let kernel = Engine::Kernel(KernelEngine::new().in_namespace(testbed.client.clone()));
        let to = SocketAddr::from((Testbed::server_v4(0), 8001));
        joins(&kernel, &server, ([0, 0, 0, 0], 8001).into(), to, elsewhere).await;
    }
}
