//! Multipath TCP for C programs: `libpolypath`, described in `include/polypath.h`.
//!
//! A descriptor is a socket of the kernel, so that everything that works on sockets works on it.

#![allow(unsafe_code)]

mod failure;
mod options;

use std::ffi::{CStr, c_char, c_int};
use std::io;
use std::os::fd::{BorrowedFd, IntoRawFd};

use libc::{sockaddr, sockaddr_storage, socklen_t};
use polypath_net::engine::{SubflowInfo, socket_info};
use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, SockRef, Socket, Type};

use failure::{errno_failure, guard, number, report};
use options::{EngineOptions, SocketOptions};

pub use failure::polypath_strerror;

/// Connections waiting to be accepted.
const BACKLOG: c_int = 4096;
const MAX_SUBFLOWS: usize = 16;

/// `polypath_engine`.
#[derive(Debug)]
#[allow(non_camel_case_types)]
pub struct polypath_engine {
    options: EngineOptions,
}

/// `struct polypath_subflow`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs, missing_debug_implementations, non_camel_case_types)]
pub struct polypath_subflow {
    pub local: sockaddr_storage,
    pub remote: sockaddr_storage,
    pub bytes_acked: u64,
    pub bytes_received: u64,
    pub retransmissions: u64,
    pub srtt_us: u64,
    pub cwnd_bytes: u64,
}

/// `struct polypath_info`.
#[repr(C)]
#[allow(missing_docs, missing_debug_implementations, non_camel_case_types)]
pub struct polypath_info {
    pub is_multipath: u32,
    pub subflow_count: u32,
    pub subflows: [polypath_subflow; MAX_SUBFLOWS],
}

/// A string of the caller; an absent one is empty.
///
/// # Safety
/// Null, or a string that ends with a zero and lives as long as it is used.
unsafe fn text<'a>(text: *const c_char) -> io::Result<&'a str> {
    if text.is_null() {
        return Ok("");
    }
    // SAFETY: not null, and the caller vouches for the rest.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| number(libc::EINVAL, "a text that isn't UTF-8"))
}

/// A socket address of the caller.
///
/// # Safety
/// Null, or `length` bytes that can be read.
unsafe fn address(address: *const sockaddr, length: socklen_t) -> io::Result<SockAddr> {
    let mut storage = SockAddrStorage::zeroed();
    if address.is_null() || length < 2 || length > storage.size_of() {
        return Err(number(libc::EINVAL, "expected the address of an IPv4 or IPv6 socket"));
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
        libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
        _ => return Err(number(libc::EAFNOSUPPORT, "expected an IPv4 or IPv6 address")),
    };
    if (length as usize) < needed {
        return Err(number(libc::EINVAL, "an address that is shorter than its family's"));
    }
    Ok(address)
}

/// # Safety
/// Null, or an engine that [`polypath_open`] gave and [`polypath_free`] hasn't taken.
unsafe fn engine<'a>(engine: *const polypath_engine) -> io::Result<&'a polypath_engine> {
    // SAFETY: the caller vouches for it; null becomes `None`.
    unsafe { engine.as_ref() }
        .ok_or_else(|| number(libc::EINVAL, "no engine; expected what polypath_open gave"))
}

/// # Safety
/// The descriptor stays open as long as the result is used.
unsafe fn borrow<'a>(fd: c_int) -> io::Result<BorrowedFd<'a>> {
    if fd < 0 {
        return Err(number(libc::EBADF, "no descriptor"));
    }
    // SAFETY: not -1, and the caller keeps it open. One that was never open makes system calls fail with EBADF.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

fn socket(engine: &polypath_engine, like: &SockAddr, options: &SocketOptions<'_>) -> io::Result<Socket> {
    let protocol = if engine.options.is_plain_tcp { Protocol::TCP } else { Protocol::MPTCP };
    let domain = Domain::from(c_int::from(like.family()));
    let socket =
        Socket::new(domain, Type::STREAM, Some(protocol)).map_err(|error| match error.raw_os_error() {
            Some(code @ (libc::EPROTONOSUPPORT | libc::ENOPROTOOPT)) => {
                number(code, "this kernel has no Multipath TCP, or net.mptcp.enabled is 0")
            }
            _ => error,
        })?;
    if let Some(name) = options.congestion {
        socket.set_tcp_congestion(name.as_bytes())?;
    }
    socket.set_nonblocking(options.is_nonblocking)?;
    Ok(socket)
}

/// # Safety
/// `options` is null or a string that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polypath_open(options: *const c_char) -> *mut polypath_engine {
    guard(std::ptr::null_mut(), || {
        // SAFETY: as the caller of this function promises.
        let options = EngineOptions::parse(unsafe { text(options) }?)?;
        Ok(Box::into_raw(Box::new(polypath_engine { options })))
    })
}

/// # Safety
/// `engine` is null, or came from [`polypath_open`] and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polypath_free(engine: *mut polypath_engine) {
    if !engine.is_null() {
        // SAFETY: it was made by `Box::into_raw`, and is freed once.
        drop(unsafe { Box::from_raw(engine) });
    }
}

/// # Safety
/// The pointers are null or valid, as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polypath_connect(
    of: *mut polypath_engine,
    remote: *const sockaddr,
    length: socklen_t,
    options: *const c_char,
) -> c_int {
    guard(-1, || {
        // SAFETY: as the caller of this function promises.
        let (engine, remote, options) = unsafe { (engine(of)?, address(remote, length)?, text(options)?) };
        let socket = socket(engine, &remote, &SocketOptions::parse(options)?)?;
        match socket.connect(&remote) {
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {
                let fd = socket.into_raw_fd();
                // Not a failure, but the caller wants to know.
                report(&error);
                Ok(fd)
            }
            result => result.map(|()| socket.into_raw_fd()),
        }
    })
}

/// # Safety
/// The pointers are null or valid, as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polypath_listen(
    of: *mut polypath_engine,
    local: *const sockaddr,
    length: socklen_t,
    options: *const c_char,
) -> c_int {
    guard(-1, || {
        // SAFETY: as the caller of this function promises.
        let (engine, local, options) = unsafe { (engine(of)?, address(local, length)?, text(options)?) };
        let socket = socket(engine, &local, &SocketOptions::parse(options)?)?;
        socket.set_reuse_address(true)?;
        socket.bind(&local)?;
        socket.listen(BACKLOG)?;
        Ok(socket.into_raw_fd())
    })
}

/// # Safety
/// As for `accept(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polypath_accept(fd: c_int, peer: *mut sockaddr, length: *mut socklen_t) -> c_int {
    // SAFETY: the caller's promises are those that the system call asks for.
    guard(-1, || errno_failure(unsafe { libc::accept4(fd, peer, length, libc::SOCK_CLOEXEC) }))
}

/// # Safety
/// As for `getsockname(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polypath_getsockname(
    fd: c_int,
    local: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's promises are those that the system call asks for.
    guard(-1, || errno_failure(unsafe { libc::getsockname(fd, local, length) }))
}

/// # Safety
/// As for `getpeername(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polypath_getpeername(
    fd: c_int,
    peer: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's promises are those that the system call asks for.
    guard(-1, || errno_failure(unsafe { libc::getpeername(fd, peer, length) }))
}

/// As `shutdown(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn polypath_shutdown(fd: c_int, how: c_int) -> c_int {
    // SAFETY: the system call takes numbers only.
    guard(-1, || errno_failure(unsafe { libc::shutdown(fd, how) }))
}

/// As `close(2)`.
///
/// # Safety
/// The descriptor belongs to the caller.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polypath_close(fd: c_int) -> c_int {
    // SAFETY: the caller owns the descriptor.
    guard(-1, || errno_failure(unsafe { libc::close(fd) }))
}

fn subflow(subflow: &SubflowInfo) -> polypath_subflow {
    let storage = |address: std::net::SocketAddr| {
        let mut storage = SockAddr::from(address).as_storage();
        // SAFETY: the storage is a `sockaddr_storage`, any bytes of which are valid.
        *unsafe { storage.view_as::<sockaddr_storage>() }
    };
    polypath_subflow {
        local: storage(subflow.local),
        remote: storage(subflow.remote),
        bytes_acked: subflow.bytes_acked.unwrap_or(0),
        bytes_received: subflow.bytes_received.unwrap_or(0),
        retransmissions: subflow.retransmissions.unwrap_or(0),
        srtt_us: subflow.srtt.map_or(0, |srtt| srtt.as_micros() as u64),
        cwnd_bytes: subflow.cwnd_bytes.unwrap_or(0),
    }
}

/// # Safety
/// `info` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polypath_info(fd: c_int, info: *mut polypath_info) -> c_int {
    guard(-1, || {
        if info.is_null() {
            return Err(number(libc::EFAULT, "no place for the information"));
        }
        // SAFETY: the caller keeps the descriptor open during the call.
        let state = socket_info(&unsafe { borrow(fd) }?)?;
        // SAFETY: zeros are valid for both structures, which are made of numbers only.
        let mut filled: polypath_info = unsafe { std::mem::zeroed() };
        filled.is_multipath = state.is_multipath.into();
        filled.subflow_count = u32::try_from(state.subflows.len()).unwrap_or(u32::MAX);
        for (to, from) in filled.subflows.iter_mut().zip(&state.subflows) {
            *to = subflow(from);
        }
        // SAFETY: not null, and the caller vouches for the rest; what was there needs no drop.
        unsafe { info.write(filled) };
        Ok(0)
    })
}

/// # Safety
/// The strings are null or end with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polypath_set(fd: c_int, name: *const c_char, value: *const c_char) -> c_int {
    guard(-1, || {
        // SAFETY: as the caller of this function promises.
        let (fd, name, value) = unsafe { (borrow(fd)?, text(name)?, text(value)?) };
        if name != "congestion" {
            return Err(number(libc::ENOPROTOOPT, &format!("'{name}' can't be set; expected congestion")));
        }
        SockRef::from(&fd).set_tcp_congestion(value.as_bytes())?;
        Ok(0)
    })
}
