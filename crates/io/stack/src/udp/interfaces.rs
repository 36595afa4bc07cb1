//! Interfaces of paths that come late, or go and come again as others of the same name, as that of a modem on USB does: the kernel
//! binds a socket to the interface that had the name, so the sockets of the path are opened anew.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Weak;
use std::time::Duration;

use polypath_mptcp::path_manager::LocalEndpoint;
use polypath_system::Namespace;
use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::address::OwnPath;
use super::driver::DriverShared;
use super::options::usable_uplinks;

/// Changes come in bursts: an interface that comes gets its addresses within this time, often.
const QUIET: Duration = Duration::from_millis(50);

/// Routes may change all the time: so often, at most, are they looked at.
const ROUTES_QUIET: Duration = Duration::from_millis(300);

/// So often it is looked whether the stack has ended, ...
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// ... and so often whether interfaces have come, where the system does not tell.
const UNTOLD_WAIT: Duration = Duration::from_secs(1);

/// A path whose interface was named.
#[derive(Debug)]
struct NamedPath {
    own: OwnPath,
    /// None if it is for one that comes later.
    interface: Option<String>,
    /// It may become that of an uplink that comes later.
    is_spare: bool,
    endpoint: LocalEndpoint,
    /// The interface that its sockets are bound to; none if it has not come yet.
    index: Option<u32>,
}

/// The interfaces of which the system told.
#[derive(Debug, Default)]
struct Changed {
    indices: HashSet<u32>,
    /// There was more to tell than there was room for.
    is_incomplete: bool,
}

impl Changed {
    fn may_contain(&self, index: u32) -> bool {
        self.is_incomplete || self.indices.contains(&index)
    }
}

/// The interfaces of the paths for which they were named.
#[derive(Debug)]
pub(super) struct Interfaces {
    named: Vec<NamedPath>,
    /// The path that follows the system's routes, if there is one.
    routed: Option<OwnPath>,
    /// Any socket of the namespace.
    probe: OwnedFd,
    /// What the system tells of interfaces; none where it may not be asked.
    changes: Option<AsyncFd<OwnedFd>>,
}

impl Interfaces {
    /// None yet. To be called where the interfaces are, within a tokio runtime. Of routes the system tells much, so only who follows
    /// uplinks is told.
    pub(super) fn new(follows_uplinks: bool) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let probe = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
        Ok(Self { named: Vec::new(), routed: None, probe, changes: changes(follows_uplinks).ok() })
    }

    /// The interface that has a name now.
    pub(super) fn index(&self, name: &str) -> Option<u32> {
        name_to_index(&self.probe, name).ok()
    }

    /// Looks after a path, whose sockets are bound to the interface `index`.
    pub(super) fn add(&mut self, own: OwnPath, interface: &str, endpoint: LocalEndpoint, index: Option<u32>) {
        self.named.push(NamedPath {
            own,
            interface: Some(interface.into()),
            is_spare: false,
            endpoint,
            index,
        });
    }

    /// The path that follows the system's routes.
    pub(super) fn add_routed(&mut self, own: OwnPath) {
        self.routed = Some(own);
    }

    /// A path for an uplink that comes later.
    pub(super) fn add_spare(&mut self, own: OwnPath, endpoint: LocalEndpoint) {
        self.named.push(NamedPath { own, interface: None, is_spare: true, endpoint, index: None });
    }

    /// Opens the sockets of paths anew whose interfaces come, as long as there is the driver.
    pub(super) async fn follow(mut self, namespace: Namespace, shared: Weak<DriverShared>) {
        while !self.named.is_empty() {
            let changed = self.changed().await;
            let Some(shared) = shared.upgrade() else { return };
            self.look(&changed, &namespace, &shared);
        }
    }

    fn look(&mut self, changed: &Changed, namespace: &Namespace, shared: &DriverShared) {
        if self.has_spares() {
            self.take_uplinks(namespace, shared);
        }
        for path in &mut self.named {
            let Some(interface) = &path.interface else { continue };
            let Ok(index) = name_to_index(&self.probe, interface) else { continue };
            let is_other = path.index != Some(index);
            if is_other {
                if open_again(path.own, namespace, shared).is_err() {
                    // It went again, maybe.
                    continue;
                }
                path.index = Some(index);
            }
            // What waits for the path asks at once whether it is back.
            if (is_other || changed.may_contain(index))
                && let Some(stack) = shared.stack()
            {
                stack.add_path(path.endpoint);
            }
        }
    }

    fn has_spares(&self) -> bool {
        self.named.iter().any(|path| path.is_spare)
    }

    /// Gives spare paths to uplinks that have none: beside the first, which the path has that follows the system's routes.
    fn take_uplinks(&mut self, namespace: &Namespace, shared: &DriverShared) {
        let Ok(Ok((first, further))) = namespace.run(usable_uplinks) else { return };
        for name in &further {
            if self.named.iter().any(|path| path.interface.as_ref() == Some(name)) {
                continue;
            }
            let probe = &self.probe;
            let is_gone = |name: &String| name_to_index(probe, name).is_err();
            let is_free =
                |path: &&mut NamedPath| path.is_spare && path.interface.as_ref().is_none_or(is_gone);
            let Some(path) = self.named.iter_mut().find(is_free) else { break };
            shared.ports().iter().filter(|port| port.path == Some(path.own)).for_each(|port| port.give(name));
            shared.rename(path.own, Some(name.clone()));
            (path.interface, path.index) = (Some(name.clone()), None);
        }
        let Some((own, first)) = self.routed.zip(first) else { return };
        // Where the routes lead now. While its interface is up, it doesn't take the name of another path.
        let names = shared.names();
        let name = names.get(usize::from(own.0).saturating_sub(1)).and_then(Option::as_ref);
        let is_down = name.is_none_or(|name| *name != first && !further.contains(name));
        if is_down || !names.contains(&Some(first.clone())) {
            shared.rename(own, Some(first));
        }
    }

    /// Waits until something may have changed; the interfaces of which the system told.
    async fn changed(&self) -> Changed {
        let mut told = Changed::default();
        match &self.changes {
            Some(changes) => {
                if let Ok(Ok(())) = tokio::time::timeout(LONGEST_WAIT, heard(changes, &mut told)).await {
                    let is_of_routes = told.indices.is_empty() && !told.is_incomplete;
                    tokio::time::sleep(if is_of_routes { ROUTES_QUIET } else { QUIET }).await;
                    take(changes.get_ref(), &mut told);
                }
            }
            None => tokio::time::sleep(UNTOLD_WAIT).await,
        }
        told
    }
}

/// The sockets of a path.
fn open_again(own: OwnPath, namespace: &Namespace, shared: &DriverShared) -> io::Result<()> {
    let runtime = tokio::runtime::Handle::current();
    let of_path = || shared.ports().iter().filter(|port| port.path == Some(own));
    namespace.run(|| {
        let _entered = runtime.enter();
        of_path().filter(|port| port.is_v4).try_for_each(|port| port.open_again())?;
        // The system may lack IPv6.
        of_path().filter(|port| !port.is_v4).for_each(|port| drop(port.open_again()));
        Ok(())
    })?
}

/// Where the system tells of interfaces and their addresses. The protocol of routes is netlink's number zero.
fn changes(with_routes: bool) -> io::Result<AsyncFd<OwnedFd>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    let routes = if with_routes { libc::RTMGRP_IPV4_ROUTE | libc::RTMGRP_IPV6_ROUTE } else { 0 };
    let groups = libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR | routes;
    bind(&socket, &SocketAddrNetlink::new(0, groups as u32))?;
    // SAFETY: the descriptor stays open and the same as long as the AsyncFd, which owns it.
    #[allow(unsafe_code)]
    let changes = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE)? };
    Ok(changes)
}

/// Waits for the next change.
async fn heard(changes: &AsyncFd<OwnedFd>, told: &mut Changed) -> io::Result<()> {
    loop {
        let mut ready = changes.readable().await?;
        ready.clear_ready();
        if take(changes.get_ref(), told) {
            return Ok(());
        }
    }
}

/// Takes what the system has told; true if there was something.
fn take(socket: impl AsFd, told: &mut Changed) -> bool {
    let mut bytes = [0_u8; 8192];
    let mut is_any = false;
    loop {
        match recv(&socket, &mut bytes[..], RecvFlags::DONTWAIT) {
            Ok((len, _)) => told.indices.extend(indices_of(&bytes[..len])),
            Err(Errno::NOBUFS) => told.is_incomplete = true,
            Err(Errno::INTR) => continue,
            Err(_) => return is_any,
        }
        is_any = true;
    }
}

/// The interfaces that messages are about: links and addresses have the index at the same place (`rtnetlink(7)`), routes do not.
fn indices_of(mut messages: &[u8]) -> Vec<u32> {
    const TYPE_AT: usize = 4;
    const INDEX_AT: usize = 20;
    let number = |bytes: &[u8], at: usize| -> Option<u32> {
        Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
    };
    let mut indices = Vec::new();
    while let Some(len) = number(messages, 0) {
        let len = usize::try_from(len).unwrap_or(usize::MAX).max(4).next_multiple_of(4);
        let kind = messages
            .get(TYPE_AT..TYPE_AT + 2)
            .and_then(|bytes| Some(u16::from_ne_bytes(bytes.try_into().ok()?)));
        let is_route = kind.is_some_and(|kind| matches!(kind, libc::RTM_NEWROUTE | libc::RTM_DELROUTE));
        indices.extend(number(messages, INDEX_AT).filter(|_| !is_route));
        messages = messages.get(len..).unwrap_or_default();
    }
    indices
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use polypath_testbed::{Testbed, is_root_or_skip};

    use super::*;

    /// Far more than the socket has room for.
    const CHANGES: u32 = 4000;

    #[tokio::test]
    async fn where_messages_were_lost_any_interface_may_have_changed() {
        if !is_root_or_skip("changes of interfaces") {
            return;
        }
        let testbed = Testbed::new(1).expect("namespaces");
        let runtime = tokio::runtime::Handle::current();
        let interfaces = testbed.client.run(|| {
            let _entered = runtime.enter();
            Interfaces::new(true)
        });
        let interfaces = interfaces.expect("the namespace").expect("sockets");
        let mut ip = Command::new("ip");
        ip.args(["-batch", "-"]).stdin(Stdio::piped());
        let mut running = testbed.client.run(|| ip.spawn()).expect("the namespace").expect("iproute2");
        let mut input = running.stdin.take().expect("a pipe");
        for n in 0..CHANGES {
            writeln!(input, "addr add 10.200.{}.{}/32 dev lo", n / 250, n % 250).expect("it reads");
        }
        drop(input);
        assert!(running.wait().expect("it ends").success());
        let path = interfaces.index("path0").expect("the testbed's");
        assert!(interfaces.changed().await.may_contain(path), "its messages may be among those lost");
    }
}
