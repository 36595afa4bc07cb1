//! Two hosts of network namespaces on this machine, joined by several paths: for tests, benchmarks and demonstrations.

mod built;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Duration;

use polypath_system::tun::{Tun, TunConfig};
use polypath_system::{Namespace, Netlink, SystemState};

pub use built::built;

/// Between two looks at addresses that are not usable yet.
const ADDRESS_POLL: Duration = Duration::from_millis(5);
/// After that they will not come.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// A client's and a server's namespace, joined by pairs of virtual Ethernet interfaces. Path 0 is `path0` on both sides,
/// with 10.77.0.1/24 and fd77:0::1/64 at the client and 10.77.0.2/24 and fd77:0::2/64 at the server; path 1 is `path1`
/// with 10.77.1.x and fd77:1::x, and so on. With a middle namespace, path n enters it by `client{n}` and leaves it by
/// `server{n}`, and nothing joins the two: that is for an emulator to do.
#[derive(Debug)]
pub struct Testbed {
    /// Where the client lives.
    pub client: Namespace,
    /// Where the server lives.
    pub server: Namespace,
    /// What lies between them, if anything.
    pub middle: Option<Namespace>,
    paths: u8,
}

impl Testbed {
    /// Two hosts joined directly by `paths` paths. Needs CAP_SYS_ADMIN and CAP_NET_ADMIN.
    pub fn new(paths: u8) -> io::Result<Self> {
        Self::build(paths, None)
    }

    /// Two hosts whose paths end in a third namespace.
    pub fn with_middle(paths: u8) -> io::Result<Self> {
        Self::build(paths, Some(Namespace::create()?))
    }

    /// What another process built, from the files of its two namespaces (`/proc/PID/fd/N`).
    pub fn open(client: &str, server: &str, paths: u8) -> io::Result<Self> {
        Ok(Self { client: Namespace::open(client)?, server: Namespace::open(server)?, middle: None, paths })
    }

    fn build(paths: u8, middle: Option<Namespace>) -> io::Result<Self> {
        let testbed = Self { client: Namespace::create()?, server: Namespace::create()?, middle, paths };
        for namespace in [&testbed.client, &testbed.server].into_iter().chain(&testbed.middle) {
            // Duplicate address detection would keep IPv6 addresses from being used for a second.
            namespace.set_variable("net/ipv6/conf/default/accept_dad", "0")?;
            namespace.set_variable("net/ipv6/conf/default/router_solicitations", "0")?;
        }
        for path in 0..paths {
            testbed.join(path)?;
        }
        // What connects before that does so from the loopback address, and never gets an answer.
        for side in [Side::Client, Side::Server] {
            testbed.namespace(side).run(|| {
                let netlink = Netlink::new()?;
                (0..paths).try_for_each(|path| {
                    wait_for_addresses(&netlink, &Self::interface(path), &[side.path_v6(path).into()])
                })
            })??;
        }
        Ok(testbed)
    }

    fn join(&self, path: u8) -> io::Result<()> {
        let name = Self::interface(path);
        match &self.middle {
            None => self.client.run(|| Netlink::new()?.add_veth("joining", &name, Some(&self.server)))??,
            Some(middle) => {
                let (to_client, to_server) = (format!("client{path}"), format!("server{path}"));
                middle.run(|| {
                    let netlink = Netlink::new()?;
                    netlink.add_veth(&to_server, &name, Some(&self.server))?;
                    netlink.add_veth(&to_client, &name, Some(&self.client))?;
                    netlink.set_up(&to_client)?;
                    netlink.set_up(&to_server)
                })??;
            }
        }
        let is_direct = self.middle.is_none();
        self.client.run(|| {
            let netlink = Netlink::new()?;
            if is_direct {
                netlink.rename("joining", &name)?;
            }
            configure(&netlink, &name, path, Side::Client)
        })??;
        self.server.run(|| configure(&Netlink::new()?, &name, path, Side::Server))?
    }

    /// Has the hosts find each other's hardware addresses, which would cost the first packets a round trip, and waits so long for it. A
    /// lost question is asked again by the kernel after a second.
    pub fn make_neighbours(&self, patience: Duration) -> io::Result<()> {
        /// Nobody listens there.
        const DISCARD: u16 = 9;
        self.client.run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            (0..self.paths)
                .try_for_each(|path| socket.send_to(&[0], (Self::server_v4(path), DISCARD)).map(drop))
        })??;
        std::thread::sleep(patience);
        Ok(())
    }

    /// Number of paths.
    #[must_use]
    pub fn paths(&self) -> u8 {
        self.paths
    }

    /// Name of a path's interface, at the client and at the server.
    #[must_use]
    pub fn interface(path: u8) -> String {
        format!("path{path}")
    }

    /// The client's IPv4 address on a path.
    #[must_use]
    pub fn client_v4(path: u8) -> Ipv4Addr {
        Side::Client.path_v4(path)
    }

    /// The server's IPv4 address on a path.
    #[must_use]
    pub fn server_v4(path: u8) -> Ipv4Addr {
        Side::Server.path_v4(path)
    }

    /// The client's IPv6 address on a path.
    #[must_use]
    pub fn client_v6(path: u8) -> Ipv6Addr {
        Side::Client.path_v6(path)
    }

    /// The server's IPv6 address on a path.
    #[must_use]
    pub fn server_v6(path: u8) -> Ipv6Addr {
        Side::Server.path_v6(path)
    }
}

/// One of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client.
    Client,
    /// The server.
    Server,
}

impl Side {
    fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    /// The last number of the side's addresses on the paths.
    fn number(self) -> u8 {
        match self {
            Self::Client => 1,
            Self::Server => 2,
        }
    }

    /// The IPv4 address of a stack behind a TUN device at this side, for a path: 10.78.n.1 or 10.78.n.2.
    #[must_use]
    pub fn stack_v4(self, path: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 78, path, self.number())
    }

    /// Its IPv6 address for a path: fd78:n::1 or fd78:n::2.
    #[must_use]
    pub fn stack_v6(self, path: u8) -> Ipv6Addr {
        Ipv6Addr::new(0xfd78, path.into(), 0, 0, 0, 0, 0, self.number().into())
    }

    fn path_v4(self, path: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, path, self.number())
    }

    fn path_v6(self, path: u8) -> Ipv6Addr {
        Ipv6Addr::new(0xfd77, path.into(), 0, 0, 0, 0, 0, self.number().into())
    }
}

/// Routing tables of the paths: 100 plus the path's number.
const FIRST_TABLE: u32 = 100;

impl Testbed {
    /// The namespace of a side.
    #[must_use]
    pub fn namespace(&self, side: Side) -> &Namespace {
        match side {
            Side::Client => &self.client,
            Side::Server => &self.server,
        }
    }

    /// A TUN device at one side for a stack with an address per path ([`Side::stack_v4`], [`Side::stack_v6`]). Packets
    /// from the client's address of path n leave by path n, and packets to it come back by path n. The kernel only forwards.
    pub fn attach_tun(&self, side: Side, config: &TunConfig) -> io::Result<Tun> {
        let namespace = self.namespace(side);
        for (variable, value) in [
            ("net/ipv4/ip_forward", "1"),
            ("net/ipv4/conf/all/rp_filter", "0"),
            ("net/ipv4/conf/default/rp_filter", "0"),
            ("net/ipv6/conf/all/forwarding", "1"),
        ] {
            namespace.set_variable(variable, value)?;
        }
        let tun = namespace.run(|| {
            let tun = Tun::create(config).map_err(io::Error::other)?;
            let netlink = Netlink::new()?;
            netlink.set_up(tun.name())?;
            for path in 0..self.paths {
                let (interface, table) = (Self::interface(path), FIRST_TABLE + u32::from(path));
                let stack: [(IpAddr, u8); 2] =
                    [(side.stack_v4(path).into(), 32), (side.stack_v6(path).into(), 128)];
                let gateways: [IpAddr; 2] =
                    [side.peer().path_v4(path).into(), side.peer().path_v6(path).into()];
                for (source, gateway) in stack.into_iter().zip(gateways) {
                    let everywhere: IpAddr = if gateway.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
                    netlink.add_route(tun.name(), source, None, None)?;
                    netlink.add_route(&interface, (everywhere, 0), Some(gateway), Some(table))?;
                    // A server answers by the path that leads to the client's address.
                    if side == Side::Client {
                        netlink.add_source_rule(source, table, 1000 + table)?;
                    }
                }
            }
            Ok::<_, io::Error>(tun)
        })??;
        self.namespace(side.peer()).run(|| {
            let netlink = Netlink::new()?;
            for path in 0..self.paths {
                let interface = Self::interface(path);
                let (v4, v6) = (side.path_v4(path), side.path_v6(path));
                netlink.add_route(&interface, (side.stack_v4(path).into(), 32), Some(v4.into()), None)?;
                netlink.add_route(&interface, (side.stack_v6(path).into(), 128), Some(v6.into()), None)?;
            }
            Ok::<_, io::Error>(())
        })??;
        Ok(tun)
    }
}

fn configure(netlink: &Netlink, name: &str, path: u8, side: Side) -> io::Result<()> {
    netlink.add_address(name, side.path_v4(path).into(), 24)?;
    netlink.add_address(name, side.path_v6(path).into(), 64)?;
    netlink.set_up(name)
}

/// Until an interface of this thread's namespace has these addresses and they can be used: the kernel makes those of IPv6 usable some time after it
/// took them, on a busy machine much later. Errors: `TimedOut` after ten seconds.
pub fn wait_for_addresses(netlink: &Netlink, interface: &str, addresses: &[IpAddr]) -> io::Result<()> {
    for _ in 0..LONGEST_WAIT.as_millis() / ADDRESS_POLL.as_millis() {
        let state = SystemState::read(netlink)?;
        let link = state.link(interface);
        if link.is_some_and(|link| addresses.iter().all(|addr| link.addresses.contains(addr))) {
            return Ok(());
        }
        std::thread::sleep(ADDRESS_POLL);
    }
    let message = format!("{interface} can't use {addresses:?} after {LONGEST_WAIT:?}");
    Err(io::Error::new(io::ErrorKind::TimedOut, message))
}

/// Whether this process may make namespaces and interfaces; else says on standard error which test is skipped.
#[must_use]
pub fn is_root_or_skip(what: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        polypath_system::console::tell(format_args!(
            "SKIPPED {what}: it makes network namespaces and needs root"
        ));
    }
    is_root
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};

    use super::*;

    #[test]
    fn two_hosts_talk_over_every_path() {
        if !is_root_or_skip("testbed") {
            return;
        }
        let testbed = Testbed::new(2).expect("namespaces");
        for (namespace, addr) in
            [(&testbed.client, Testbed::client_v6(1)), (&testbed.server, Testbed::server_v6(1))]
        {
            let state = namespace.run(|| SystemState::read(&Netlink::new()?)).unwrap().unwrap();
            let link = state.link(&Testbed::interface(1)).expect("an interface");
            assert!(link.addresses.contains(&addr.into()), "{state:?}");
        }
        for path in 0..2 {
            for addr in [IpAddr::V4(Testbed::server_v4(path)), IpAddr::V6(Testbed::server_v6(path))] {
                let listener = testbed.server.run(|| TcpListener::bind((addr, 0))).unwrap().unwrap();
                let to: SocketAddr = listener.local_addr().unwrap();
                let mut client = testbed.client.run(|| TcpStream::connect(to)).unwrap().unwrap();
                client.write_all(b"x").unwrap();
                let mut byte = [0];
                listener.accept().unwrap().0.read_exact(&mut byte).unwrap();
                assert_eq!(byte, *b"x");
            }
        }
    }
}
