//! Opening connections of our stack: `connect`, and `send` where it opens one.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint, c_void};
use std::io;
use std::net::SocketAddr;

use libc::{msghdr, sockaddr, socklen_t, ssize_t};
use socket2::SockAddr;

use crate::{borrow, carrier, is_outward, ours, system};

/// Connects a TCP socket to another machine, as `connect(2)` does; none if that is the kernel's business.
pub(crate) fn open(fd: c_int, remote: SocketAddr) -> Option<io::Result<()>> {
    let program =
        borrow(fd).filter(|_| is_outward(&remote) && carrier::is_relayed() && system::is_tcp(fd))?;
    // The kernel knows what to say of a socket that is connecting, connected or listening.
    if !system::is_closed(fd) {
        return None;
    }
    let keeper = match carrier::keeper() {
        Ok(keeper) => keeper,
        Err(error) => return Some(Err(error)),
    };
    let begun = keeper.connect(program, remote, |address| {
        // Each call is told by errno, and a person once.
        carrier::launch_keeper(address).inspect_err(carrier::complain)
    });
    Some(begun.inspect_err(complain_of_engine).and_then(|to| wait(fd, to)))
}

/// Says what is no matter of the peer, and of one connection.
fn complain_of_engine(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, HostUnreachable, TimedOut};
    let is_of_peer = matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | HostUnreachable | TimedOut
    );
    if !is_of_peer && error.raw_os_error().is_none() {
        carrier::complain(error);
    }
}

/// Waits as `connect(2)` does for a socket that is connecting to the keeper at `to`.
fn wait(fd: c_int, to: SocketAddr) -> io::Result<()> {
    if system::is_nonblocking(fd) {
        return Err(io::Error::from_raw_os_error(libc::EINPROGRESS));
    }
    // Sending nothing waits as connecting does. But it never connects once more, if that has failed meanwhile.
    // SAFETY: nothing is read from where the address points.
    let waited = unsafe { system::sendto(fd, std::ptr::null(), 0, libc::MSG_NOSIGNAL, std::ptr::null(), 0) };
    let to = SockAddr::from(to);
    // For the kernel the program has been told only now.
    // SAFETY: the address lives through the call, and the length is its own.
    if waited == 0 && unsafe { system::connect(fd, to.as_ptr().cast(), to.len()) } == 0 {
        return Ok(());
    }
    let error = match system::errno() {
        // The socket's time limit is over. For the program it was the first call.
        libc::EAGAIN => libc::EINPROGRESS,
        // The keeper can only reset it; it knows why.
        libc::ECONNRESET | libc::EPIPE => reason(fd).unwrap_or(libc::ECONNRESET),
        error => error,
    };
    Err(io::Error::from_raw_os_error(error))
}

fn reason(fd: c_int) -> Option<c_int> {
    carrier::keeper().ok()?.find(borrow(fd)?)?.error
}

/// Opens the connection for a call that sends with `MSG_FASTOPEN` and names a peer. None if the kernel is to do it, which is
/// so for loopback addresses and for a socket that is connected.
///
/// # Safety
/// Null, or `length` bytes that can be read.
unsafe fn open_to_send(fd: c_int, flags: c_int, to: *const sockaddr, length: socklen_t) -> Option<c_int> {
    if flags & libc::MSG_FASTOPEN == 0 {
        return None;
    }
    // SAFETY: the caller promises it.
    let remote = unsafe { system::ip_address(to, length) };
    ours(|| open(fd, remote?))
}

/// `sendto(2)`. With `MSG_FASTOPEN` it connects first, as a kernel does that knows no cookie of the peer.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sendto(
    fd: c_int,
    data: *const c_void,
    data_length: usize,
    flags: c_int,
    to: *const sockaddr,
    length: socklen_t,
) -> ssize_t {
    // SAFETY: the caller promises what the system call asks for.
    match unsafe { open_to_send(fd, flags, to, length) } {
        // SAFETY: the same; the socket is connected now, so that no address is needed.
        Some(0) => unsafe {
            system::sendto(fd, data, data_length, flags & !libc::MSG_FASTOPEN, std::ptr::null(), 0)
        },
        Some(_) => -1,
        // SAFETY: the same.
        None => unsafe { system::sendto(fd, data, data_length, flags, to, length) },
    }
}

/// `sendmsg(2)`, as [`sendto`].
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller promises what the system call asks for: null, or a message.
    let Some(given) = (unsafe { message.as_ref() }).filter(|_| flags & libc::MSG_FASTOPEN != 0) else {
        // SAFETY: the same.
        return unsafe { system::sendmsg(fd, message, flags) };
    };
    // SAFETY: the same.
    match unsafe { open_to_send(fd, flags, given.msg_name.cast(), given.msg_namelen) } {
        Some(0) => {
            let connected = msghdr { msg_name: std::ptr::null_mut(), msg_namelen: 0, ..*given };
            // SAFETY: the rest of the message is the caller's.
            unsafe { system::sendmsg(fd, &raw const connected, flags & !libc::MSG_FASTOPEN) }
        }
        Some(_) => -1,
        // SAFETY: the same.
        None => unsafe { system::sendmsg(fd, message, flags) },
    }
}

/// `sendmmsg(2)`, which does not open connections of our stack: that is `EOPNOTSUPP`, as where the kernel's `tcp_fastopen` is
/// off.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sendmmsg(
    fd: c_int,
    messages: *mut libc::mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    if flags & libc::MSG_FASTOPEN != 0 {
        let refused = || {
            let is_ours = carrier::is_relayed() && system::is_tcp(fd) && system::is_closed(fd);
            is_ours.then(|| Err(io::ErrorKind::Unsupported.into()))
        };
        if let Some(result) = ours(refused) {
            return result;
        }
    }
    // SAFETY: the caller promises what the system call asks for.
    unsafe { system::sendmmsg(fd, messages, count, flags) }
}
