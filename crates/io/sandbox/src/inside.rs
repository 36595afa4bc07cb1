//! The half of the launch that happens inside: namespaces, the device, and at last the program.

use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use polypath_system::Netlink;
use polypath_system::tun::{Tun, TunConfig, TunError};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::process::{Signal, getegid, geteuid, set_parent_process_death_signal};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use socket2::{Domain, Protocol, Socket, Type};

use super::{DEVICE, PROGRAM_V4, PROGRAM_V6};

/// First byte of a message over the channel.
pub(super) mod tag {
    /// The namespace is ready; its descriptors come along.
    pub(in super::super) const READY: u8 = b'R';
    /// It is not; the reason follows.
    pub(in super::super) const FAILED: u8 = b'F';
    /// The program could not be started; the error number follows.
    pub(in super::super) const NOT_STARTED: u8 = b'X';
}

/// What the process inside is told on its command line.
#[derive(Clone, Debug)]
pub struct Inside {
    /// MTU of the device in bytes.
    pub mtu_bytes: u16,
    /// Where to take queries for the host's resolver.
    pub resolvers: Vec<IpAddr>,
    /// The program and its arguments.
    pub command: Vec<OsString>,
}

/// The descriptor that a process was given by number on its command line.
///
/// Errors: it is not open, or no socket.
pub fn channel(number: i32) -> io::Result<OwnedFd> {
    use std::os::fd::FromRawFd;
    if number <= 2 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "standard streams are no channel"));
    }
    // SAFETY: the descriptor came through exec for this very purpose, and nothing else in this process knows it. If the
    // number is wrong the calls below fail.
    #[allow(unsafe_code)]
    let channel = unsafe { OwnedFd::from_raw_fd(number) };
    match rustix::net::sockopt::socket_type(&channel) {
        Ok(_) => Ok(channel),
        Err(error) => {
            // Not ours to close.
            std::mem::forget(channel);
            Err(error.into())
        }
    }
}

/// Moves this process, which must have one thread only, into namespaces of its own, hands their network to the process at
/// the other end of `channel`, and becomes the program when that one says so. Returns only if that failed; the other
/// end knows why.
pub fn enter_and_execute(channel: OwnedFd, inside: &Inside) -> io::Error {
    // The program must not have it; and closing it is how the other end learns that the program runs.
    if let Err(error) = rustix::io::fcntl_setfd(&channel, rustix::io::FdFlags::CLOEXEC) {
        return error.into();
    }
    let prepared = enter_namespaces()
        .and_then(|()| Ok(set_parent_process_death_signal(Some(Signal::KILL))?))
        .and_then(|()| open_network(inside.mtu_bytes, &inside.resolvers));
    let descriptors = match prepared {
        Ok(descriptors) => descriptors,
        Err(error) => {
            tell(channel.as_fd(), tag::FAILED, error.to_string().as_bytes());
            return error;
        }
    };
    if let Err(error) = hand_over(channel.as_fd(), &descriptors) {
        return error;
    }
    drop(descriptors);
    let mut go = [0; 1];
    match rustix::net::recv(&channel, &mut go[..], RecvFlags::empty()) {
        Ok((1.., _)) => {}
        Ok(_) => return io::Error::other("the process outside is gone"),
        Err(error) => return error.into(),
    }
    let Some((program, arguments)) = inside.command.split_first() else {
        return io::Error::new(io::ErrorKind::InvalidInput, "no program");
    };
    let error = Command::new(program).args(arguments).exec();
    let number = error.raw_os_error().unwrap_or(libc::EINVAL);
    tell(channel.as_fd(), tag::NOT_STARTED, &number.to_ne_bytes());
    error
}

/// Tells the other end; if it is gone, there is nobody to tell.
fn tell(channel: BorrowedFd<'_>, tag: u8, text: &[u8]) {
    let message = [&[tag], text].concat();
    let _ = rustix::net::send(channel, &message, SendFlags::NOSIGNAL);
}

fn hand_over(channel: BorrowedFd<'_>, descriptors: &[OwnedFd]) -> io::Result<()> {
    let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    let message = SendAncillaryMessage::ScmRights(&borrowed);
    let mut space = vec![MaybeUninit::uninit(); message.size()];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(message) {
        return Err(io::Error::other("too many descriptors to hand over"));
    }
    rustix::net::sendmsg(channel, &[IoSlice::new(&[tag::READY])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Makes the network of the namespace that this thread is in; returns the device, then a UDP socket and a TCP listener for
/// each resolver.
pub(super) fn open_network(mtu_bytes: u16, resolvers: &[IpAddr]) -> io::Result<Vec<OwnedFd>> {
    let device = Tun::create(&TunConfig { name: DEVICE.to_string(), ..TunConfig::default() }).map_err(|error| match error {
        TunError::Permission | TunError::Forbidden => io::Error::new(
            io::ErrorKind::PermissionDenied,
            "/dev/net/tun, which carries the program's packets, is not for this user; expected its mode to be 0666, by `sudo chmod 0666 /dev/net/tun`",
        ),
        other => io::Error::other(other),
    })?;
    let netlink = Netlink::new()?;
    netlink.set_up("lo")?;
    netlink.set_mtu(DEVICE, mtu_bytes.into())?;
    netlink.add_address(DEVICE, PROGRAM_V4.into(), 32)?;
    netlink.set_up(DEVICE)?;
    netlink.add_route(DEVICE, (Ipv4Addr::UNSPECIFIED.into(), 0), None, None)?;
    // A kernel without IPv6 is no reason to refuse the rest.
    let v6 = netlink
        .add_address(DEVICE, PROGRAM_V6.into(), 128)
        .and_then(|()| netlink.add_route(DEVICE, (Ipv6Addr::UNSPECIFIED.into(), 0), None, None));
    if let Err(error) = v6 {
        tracing::debug!("no IPv6 in the program's namespace: {error}");
    }
    let mut descriptors = vec![device.as_fd().try_clone_to_owned()?];
    for &resolver in resolvers {
        let at = SocketAddr::new(resolver, 53);
        let bind = |kind, protocol| -> io::Result<Socket> {
            let socket = Socket::new(Domain::for_address(at), kind, Some(protocol))?;
            socket.bind(&at.into())?;
            Ok(socket)
        };
        let datagrams = bind(Type::DGRAM.nonblocking(), Protocol::UDP)?;
        let listener = bind(Type::STREAM.nonblocking(), Protocol::TCP)?;
        listener.listen(64)?;
        descriptors.extend([datagrams.into(), listener.into()]);
    }
    Ok(descriptors)
}

/// With the right to make a network namespace, only that; else in a user namespace, in which users and groups have the
/// numbers that they have outside.
fn enter_namespaces() -> io::Result<()> {
    match unshare(UnshareFlags::NEWNET) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        other => return other,
    }
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNET).map_err(|error| explain_refusal(&error))?;
    let write = |name: &str, text: String| {
        std::fs::write(format!("/proc/self/{name}"), text).map_err(|error| {
            io::Error::new(error.kind(), format!("can't set up a user namespace: /proc/self/{name}: {error}"))
        })
    };
    write("setgroups", "deny".to_string())?;
    write("uid_map", format!("{user} {user} 1"))?;
    write("gid_map", format!("{group} {group} 1"))
}

/// Why there is no user namespace to be had, and who decides that.
fn explain_refusal(error: &io::Error) -> io::Error {
    let is_zero = |name: &str| {
        std::fs::read_to_string(format!("/proc/sys/{name}")).is_ok_and(|value| value.trim() == "0")
    };
    let restricted = std::fs::read_to_string("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
        .is_ok_and(|value| value.trim() == "1");
    let reason = if is_zero("user/max_user_namespaces") {
        "user namespaces are switched off: sysctl user.max_user_namespaces is 0; set it to some thousands"
    } else if is_zero("kernel/unprivileged_userns_clone") {
        "user namespaces are for root only: sysctl kernel.unprivileged_userns_clone is 0; set it to 1"
    } else if restricted {
        "user namespaces are restricted by AppArmor: sysctl kernel.apparmor_restrict_unprivileged_userns is 1; set it to 0, \
         or give polypath a profile that allows userns"
    } else if is_zero("user/max_net_namespaces") {
        "network namespaces are switched off: sysctl user.max_net_namespaces is 0; set it to some thousands"
    } else {
        "the system allows neither a network namespace (CAP_SYS_ADMIN) nor a user namespace; in a container, its seccomp \
         profile may forbid them"
    };
    io::Error::new(error.kind(), format!("{reason} ({error}), or run as root"))
}

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: only UnshareFlags::FILES could pull file descriptors away from other code, and it is never among `flags`.
    #[allow(unsafe_code)]
    unsafe {
        Ok(unshare_unsafe(flags)?)
    }
}
