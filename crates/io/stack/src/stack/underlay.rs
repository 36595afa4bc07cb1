use std::net::{IpAddr, SocketAddr};
use std::{fmt, io};

use polypath_wire::FourTuple;

/// No path has an address of the family of `remote`.
pub(crate) fn lacks_family(remote: SocketAddr) -> io::Error {
    let family = if remote.is_ipv4() { "IPv4" } else { "IPv6" };
    let text = format!("no path has an {family} address, which {remote} needs");
    io::Error::new(io::ErrorKind::NetworkUnreachable, text)
}

/// What [`Underlay::doubts`] gives.
pub(crate) type Look = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// The network below a stack: what lies between it and the addresses that its peers see.
pub trait Underlay: fmt::Debug + Send {
    /// The stack's own address for one at which somebody wants to listen.
    fn listens_at(&self, local: SocketAddr) -> SocketAddr;

    /// Whether peers can reach what listens there. Errors: [`io::ErrorKind::Unsupported`] if this end is not to be reached,
    /// [`io::ErrorKind::AddrNotAvailable`] if the address is another host's, or one that nobody reaches the stack at. With `is_held`,
    /// whoever listens there has the kernel take connections, too.
    fn may_listen(&self, local: SocketAddr, is_held: bool) -> io::Result<()> {
        let _ = (local, is_held);
        Ok(())
    }

    /// The stack's own address for one from which somebody wants to connect. Errors: [`io::ErrorKind::AddrNotAvailable`] if it is
    /// that of no path.
    fn connects_from(&self, local: SocketAddr) -> io::Result<SocketAddr> {
        Ok(local)
    }

    /// The address by which the stack knows a peer that is to be dialled.
    fn dials(&self, remote: SocketAddr) -> SocketAddr {
        remote
    }

    /// The stack's address from which a peer is reached, if it is reached from one only. Errors: none of them leads there.
    fn starts_at(&self, remote: SocketAddr) -> io::Result<Option<IpAddr>> {
        let _ = remote;
        Ok(None)
    }

    /// A look at whether a peer may answer that was dialled just now, if there is doubt. It asks the system, which may block, so it
    /// is not for tasks nor under a lock. Its errors: [`io::ErrorKind::NetworkUnreachable`] if there is no way to the peer, and none
    /// is awaited.
    fn doubts(&self, dialled: SocketAddr) -> Option<Look> {
        let _ = dialled;
        None
    }

    /// The address by which peers on the way know one of the stack's own.
    fn seen_at(&self, own: SocketAddr) -> SocketAddr {
        own
    }

    /// A peer of the stack's, with the address by which the network knows it now.
    fn peer_at(&self, peer: SocketAddr) -> SocketAddr {
        peer
    }

    /// Lets peers reach a port; with `is_held`, whoever listens there has it from the kernel already, so that it need
    /// not be kept from others.
    fn expose(&self, port: u16, is_held: bool) -> io::Result<()>;

    /// What a peer may lack that does not answer, if it has to have more than an open port.
    fn expected_of_peers(&self) -> Option<String> {
        None
    }

    /// What people call the path that one of the stack's own addresses belongs to.
    fn path_name(&self, own: IpAddr) -> Option<String> {
        let _ = own;
        None
    }

    /// A subflow, with the addresses by which the network knows it now.
    fn seen_subflow(&self, FourTuple { local, remote }: FourTuple) -> FourTuple {
        FourTuple { local: self.seen_at(local.into()).into(), remote: self.peer_at(remote.into()).into() }
    }

    /// As [`Underlay::path_name`], for one of the subflows from that address.
    fn subflow_path_name(&self, subflow: FourTuple) -> Option<String> {
        self.path_name(subflow.local.addr)
    }

    /// Whether paths stay while their interface is down, so that nobody is told of it.
    fn outlives_interfaces(&self) -> bool {
        false
    }

    /// What was counted there, by name.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}
