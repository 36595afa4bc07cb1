//! The system calls behind the C library's functions of the same names, which this library replaces.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint, c_void};
use std::io;
use std::net::SocketAddr;

use libc::{msghdr, sockaddr, sockaddr_storage, socklen_t, ssize_t};
use socket2::{SockAddr, SockAddrStorage};

pub(crate) fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: the system call takes three numbers and no memory; glibc's `socket` is the same call.
    unsafe { libc::syscall(libc::SYS_socket, domain, kind, protocol) as c_int }
}

/// # Safety
/// As for `connect(2)`.
pub(crate) unsafe fn connect(fd: c_int, to: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: the caller promises what the system call asks for.
    unsafe { libc::syscall(libc::SYS_connect, fd, to, length) as c_int }
}

pub(crate) fn listen(fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: the system call takes two numbers and no memory.
    unsafe { libc::syscall(libc::SYS_listen, fd, backlog) as c_int }
}

/// # Safety
/// As for `accept4(2)`.
pub(crate) unsafe fn accept4(fd: c_int, peer: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int {
    // SAFETY: the caller promises what the system call asks for.
    unsafe { libc::syscall(libc::SYS_accept4, fd, peer, length, flags) as c_int }
}

/// # Safety
/// As for `getpeername(2)`.
pub(crate) unsafe fn getpeername(fd: c_int, peer: *mut sockaddr, length: *mut socklen_t) -> c_int {
    // SAFETY: the caller promises what the system call asks for.
    unsafe { libc::syscall(libc::SYS_getpeername, fd, peer, length) as c_int }
}

/// # Safety
/// As for `getsockopt(2)`.
pub(crate) unsafe fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller promises what the system call asks for.
    unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, name, value, length) as c_int }
}

/// # Safety
/// As for `getsockname(2)`.
pub(crate) unsafe fn getsockname(fd: c_int, local: *mut sockaddr, length: *mut socklen_t) -> c_int {
    // SAFETY: the caller promises what the system call asks for.
    unsafe { libc::syscall(libc::SYS_getsockname, fd, local, length) as c_int }
}

/// # Safety
/// As for `setsockopt(2)`.
pub(crate) unsafe fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    // SAFETY: the caller promises what the system call asks for.
    unsafe { libc::syscall(libc::SYS_setsockopt, fd, level, name, value, length) as c_int }
}

/// # Safety
/// As for `sendto(2)`.
pub(crate) unsafe fn sendto(
    fd: c_int,
    data: *const c_void,
    data_length: usize,
    flags: c_int,
    to: *const sockaddr,
    length: socklen_t,
) -> ssize_t {
    // SAFETY: the caller promises what the system call asks for.
    unsafe { libc::syscall(libc::SYS_sendto, fd, data, data_length, flags, to, length) as ssize_t }
}

/// # Safety
/// As for `sendmsg(2)`.
pub(crate) unsafe fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller promises what the system call asks for.
    unsafe { libc::syscall(libc::SYS_sendmsg, fd, message, flags) as ssize_t }
}

/// # Safety
/// As for `sendmmsg(2)`.
pub(crate) unsafe fn sendmmsg(fd: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int) -> c_int {
    // SAFETY: the caller promises what the system call asks for.
    unsafe { libc::syscall(libc::SYS_sendmmsg, fd, messages, count, flags) as c_int }
}

pub(crate) fn errno() -> c_int {
    // SAFETY: always gives this thread's own variable.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(code: c_int) {
    // SAFETY: always gives this thread's own variable.
    unsafe { *libc::__errno_location() = code };
}

/// A number that the kernel knows of a socket.
fn option(fd: c_int, name: c_int) -> Option<c_int> {
    let mut value: c_int = 0;
    let mut length = size_of::<c_int>() as socklen_t;
    // SAFETY: the value and its length live through the call, and the length is the value's.
    let result =
        unsafe { getsockopt(fd, libc::SOL_SOCKET, name, (&raw mut value).cast::<c_void>(), &raw mut length) };
    (result == 0).then_some(value)
}

/// Whether a descriptor is a TCP socket, of IPv4 or IPv6.
pub(crate) fn is_tcp(fd: c_int) -> bool {
    option(fd, libc::SO_PROTOCOL) == Some(libc::IPPROTO_TCP)
        && matches!(option(fd, libc::SO_DOMAIN), Some(libc::AF_INET | libc::AF_INET6))
}

/// Whether a TCP socket has no connection, and opens none.
pub(crate) fn is_closed(fd: c_int) -> bool {
    /// `TCP_CLOSE` of the kernel's `tcp_states.h`.
    const CLOSED: u8 = 7;
    let mut state = 0_u8;
    let mut length = size_of::<u8>() as socklen_t;
    let place = (&raw mut state).cast::<c_void>();
    // SAFETY: the first byte of `tcp_info` is the state; the kernel writes no more than the length, which is that of a byte.
    let result = unsafe { getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, place, &raw mut length) };
    result == 0 && state == CLOSED
}

pub(crate) fn is_nonblocking(fd: c_int) -> bool {
    // SAFETY: the system call takes numbers only.
    let flags = unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFL) };
    flags >= 0 && flags as c_int & libc::O_NONBLOCK != 0
}

/// Whether a descriptor is a socket of IPv6.
pub(crate) fn is_v6(fd: c_int) -> bool {
    option(fd, libc::SO_DOMAIN) == Some(libc::AF_INET6)
}

/// The IP address that a program gave, in the shortest form; none if it is something else.
///
/// # Safety
/// Null, or `length` bytes that can be read.
pub(crate) unsafe fn ip_address(address: *const sockaddr, length: socklen_t) -> Option<SocketAddr> {
    let mut storage = SockAddrStorage::zeroed();
    if address.is_null() || length < 2 || length > storage.size_of() {
        return None;
    }
    // SAFETY: `length` bytes can be read, says the caller, and fit into the storage, which is distinct from them; any
    // bytes are a valid `sockaddr_storage`.
    let address = unsafe {
        let to: *mut sockaddr_storage = storage.view_as();
        std::ptr::copy_nonoverlapping(address.cast::<u8>(), to.cast::<u8>(), length as usize);
        SockAddr::new(storage, length)
    };
    let needed = match c_int::from(address.family()) {
        libc::AF_INET => size_of::<libc::sockaddr_in>(),
        // Older programs leave the scope out.
        libc::AF_INET6 => 24,
        _ => return None,
    };
    let address = address.as_socket().filter(|_| length as usize >= needed)?;
    Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

/// Where a socket is bound, as the kernel knows it.
pub(crate) fn own_address(fd: c_int) -> Option<SocketAddr> {
    address(fd, libc::SYS_getsockname)
}

/// The peer, as the kernel knows it.
pub(crate) fn peer_address(fd: c_int) -> Option<SocketAddr> {
    address(fd, libc::SYS_getpeername)
}

fn address(fd: c_int, call: libc::c_long) -> Option<SocketAddr> {
    // SAFETY: both calls write at most the length that they are given.
    let ((), address) = unsafe {
        SockAddr::try_init(|storage, length| match libc::syscall(call, fd, storage, length) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        })
    }
    .ok()?;
    let address = address.as_socket()?;
    Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

/// Gives a program an address in its socket's family, with its whole length; nothing if it doesn't fit the family.
///
/// # Safety
/// Both are null, or what the kernel has filled in for a socket of that family.
pub(crate) unsafe fn write_address(
    address: SocketAddr,
    is_v6: bool,
    to: *mut sockaddr,
    length: *mut socklen_t,
    room: socklen_t,
) {
    let address = match address {
        SocketAddr::V4(v4) if is_v6 => SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port()),
        SocketAddr::V6(_) if !is_v6 => return,
        address => address,
    };
    if to.is_null() || length.is_null() {
        return;
    }
    let address = SockAddr::from(address);
    // SAFETY: neither is null, `room` bytes can be written, says the caller, and no caller's memory overlaps a
    // `SockAddr`, which has `len` bytes.
    unsafe {
        std::ptr::copy_nonoverlapping(
            address.as_ptr().cast::<u8>(),
            to.cast::<u8>(),
            room.min(address.len()) as usize,
        );
        *length = address.len();
    }
}
