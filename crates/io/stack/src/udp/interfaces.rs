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

/// Changes come in bursts: an interface that comes gets its addresses within this time, often.
const QUIET: Duration = Duration::from_millis(50);

/// So often it is looked whether the stack has ended, ...
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// ... and so often whether interfaces have come, where the system does not tell.
const UNTOLD_WAIT: Duration = Duration::from_secs(1);

/// A path whose interface was named.
#[derive(Debug)]
struct NamedPath {
    own: OwnPath,
    interface: String,
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
    /// Any socket of the namespace.
    probe: OwnedFd,
    /// What the system tells of interfaces; none where it may not be asked.
    changes: Option<AsyncFd<OwnedFd>>,
}

impl Interfaces {
    /// None yet. To be called where the interfaces are, within a tokio runtime.
    pub(super) fn new() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let probe = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
        Ok(Self { named: Vec::new(), probe, changes: changes().ok() })
    }

    /// The interface that has a name now.
    pub(super) fn index(&self, name: &str) -> Option<u32> {
        name_to_index(&self.probe, name).ok()
    }

    /// Looks after a path, whose sockets are bound to the interface `index`.
    pub(super) fn add(&mut self, own: OwnPath, interface: &str, endpoint: LocalEndpoint, index: Option<u32>) {
        self.named.push(NamedPath { own, interface: interface.into(), endpoint, index });
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
        for path in &mut self.named {
            let Ok(index) = name_to_index(&self.probe, &path.interface) else { continue };
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

    /// Waits until something may have changed; the interfaces of which the system told.
    async fn changed(&self) -> Changed {
        let mut told = Changed::default();
        match &self.changes {
            Some(changes) => {
                if let Ok(Ok(())) = tokio::time::timeout(LONGEST_WAIT, heard(changes, &mut told)).await {
                    tokio::time::sleep(QUIET).await;
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
fn changes() -> io::Result<AsyncFd<OwnedFd>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    let groups = libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;
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

/// The interfaces that messages are about: links and addresses have the index at the same place (`rtnetlink(7)`).
fn indices_of(mut messages: &[u8]) -> Vec<u32> {
    const INDEX_AT: usize = 20;
    let number = |bytes: &[u8], at: usize| -> Option<u32> {
        Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
    };
    let mut indices = Vec::new();
    while let Some(len) = number(messages, 0) {
        let len = usize::try_from(len).unwrap_or(usize::MAX).max(4).next_multiple_of(4);
        indices.extend(number(messages, INDEX_AT));
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
            Interfaces::new()
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
