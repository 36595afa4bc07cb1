//! Multipath TCP for C programs: `libpolypath`, described in `include/polypath.h`.
//!
//! A descriptor is a socket of the kernel, so that everything that works on sockets works on it. With our own stack it is
//! one over the loopback interface, whose other end [`polypath_relay`] joins with a connection of the stack.

#![allow(unsafe_code)]

mod address;
mod failure;
mod guardian;
mod interface;
mod live;
mod open_engines;
mod options;

use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::{Arc, Weak};

use address::{address, storage, write_address};
pub use failure::polypath_strerror;
use failure::{errno_failure, guard, not_listening, number, report, set_errno};
use interface::interface_of;
use libc::{sockaddr, sockaddr_storage, socklen_t};
pub use live::{polypath_getsockopt, polypath_setsockopt};
use open_engines::{carried, listening, own_listening};
use options::SocketOptions;
use polypath_relay::{Driver, EngineChoice, Relay, in_words_of_settings};
use polypath_stack::engine::{SubflowInfo, choose_congestion, socket_info};
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

/// Connections waiting to be accepted.
const BACKLOG: c_int = 4096;
const MAX_SUBFLOWS: usize = 16;

/// `polypath_engine`.
#[derive(Debug)]
#[allow(non_camel_case_types)]
pub struct polypath_engine {
    carrier: Carrier,
    name: &'static CStr,
    /// Why engine auto is not our own stack; empty otherwise.
    reason: CString,
}

#[derive(Debug)]
enum Carrier {
    Kernel {
        is_plain_tcp: bool,
    },
    Relay {
        /// It is the open engines' own, so that it ends with the program.
        relay: Weak<Relay>,
        /// Has its threads.
        process: u32,
    },
}

/// `struct polypath_subflow`: a view of [`SubflowInfo`].
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

fn kernel_socket(is_plain_tcp: bool, like: &SockAddr, options: &SocketOptions<'_>) -> io::Result<Socket> {
    let protocol = if is_plain_tcp { Protocol::TCP } else { Protocol::MPTCP };
    let domain = Domain::from(c_int::from(like.family()));
    let socket =
        Socket::new(domain, Type::STREAM, Some(protocol)).map_err(|error| match error.raw_os_error() {
            Some(code @ (libc::EPROTONOSUPPORT | libc::ENOPROTOOPT)) => {
                number(code, "this kernel has no Multipath TCP, or net.mptcp.enabled is 0")
            }
            _ => error,
        })?;
    if let Some(name) = options.congestion {
        choose_congestion(&SockRef::from(&socket), name)?;
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
        let options = unsafe { text(options) }?;
        let choice =
            EngineChoice::parse(options).map_err(|error| number(libc::EINVAL, &error.to_string()))?;
        if let EngineChoice::Relay(ours) | EngineChoice::Auto { ours, .. } = &choice
            && let Some(name) = ours.contradictory_interface()
        {
            let message =
                format!("'backup={name}': expected an interface that is not in interface={name} too");
            return Err(number(libc::EINVAL, &message));
        }
        let (choice, reason) = choice.decided()?;
        let reason = CString::new(reason.unwrap_or_default())?;
        let (carrier, name) = match choice {
            EngineChoice::Auto { .. } => return Err(number(libc::EINVAL, "no engine was chosen")),
            EngineChoice::Kernel => (Carrier::Kernel { is_plain_tcp: false }, c"kernel"),
            EngineChoice::PlainTcp => (Carrier::Kernel { is_plain_tcp: true }, c"tcp"),
            EngineChoice::Relay(mut choices) => {
                let name = match choices.driver {
                    Driver::Tun => c"tun",
                    Driver::Udp => c"udp",
                };
                choices.detached_guardian = guardian::guardian();
                let relay = Arc::new(Relay::start(&choices).map_err(in_words_of_settings)?);
                let carrier = Carrier::Relay { relay: Arc::downgrade(&relay), process: std::process::id() };
                open_engines::add(relay)?;
                (carrier, name)
            }
        };
        Ok(Box::into_raw(Box::new(polypath_engine { carrier, name, reason })))
    })
}

/// The name of the engine, which with `engine=auto` is the one that was taken.
///
/// # Safety
/// `of` is null, or came from [`polypath_open`] and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polypath_engine_name(of: *const polypath_engine) -> *const c_char {
    // SAFETY: as the caller of this function promises.
    guard(std::ptr::null(), || unsafe { engine(of) }.map(|engine| engine.name.as_ptr()))
}

/// Why `engine=auto` took another engine than `tun`; empty if it did not.
///
/// # Safety
/// `of` is null, or came from [`polypath_open`] and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polypath_engine_reason(of: *const polypath_engine) -> *const c_char {
    // SAFETY: as the caller of this function promises.
    guard(std::ptr::null(), || unsafe { engine(of) }.map(|engine| engine.reason.as_ptr()))
}

/// # Safety
/// `engine` is null, or came from [`polypath_open`] and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polypath_free(engine: *mut polypath_engine) {
    if !engine.is_null() {
        // SAFETY: it was made by `Box::into_raw`, and is freed once.
        let engine = unsafe { Box::from_raw(engine) };
        guard((), || {
            if let Carrier::Relay { relay, .. } = &engine.carrier {
                open_engines::free(relay);
            }
            Ok(())
        });
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
    let mut progress = None;
    let fd = guard(-1, || {
        // SAFETY: as the caller of this function promises.
        let (engine, remote, options) = unsafe { (engine(of)?, address(remote, length)?, text(options)?) };
        let options = SocketOptions::parse(options)?;
        let (socket, connected) = match &engine.carrier {
            Carrier::Kernel { is_plain_tcp } => {
                let socket = kernel_socket(*is_plain_tcp, &remote, &options.for_kernel()?)?;
                let connected = socket.connect(&remote);
                (socket, connected)
            }
            Carrier::Relay { relay, process } => {
                let relay = open_engines::usable(relay, *process)?;
                let socket = loopback_socket(options.is_nonblocking)?;
                let remote = remote.as_socket().ok_or_else(|| number(libc::EAFNOSUPPORT, "no IP address"))?;
                let connected = relay.connect(socket.as_fd(), remote, options.for_relay(&relay)?);
                (socket, connected)
            }
        };
        match connected {
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {
                progress = Some(error);
                Ok(socket.into_raw_fd())
            }
            result => result.map(|()| socket.into_raw_fd()),
        }
    });
    match progress {
        // Not a failure, but the caller wants to know.
        Some(error) => report(&error),
        None if fd >= 0 => set_errno(0),
        None => {}
    }
    fd
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
        let options = SocketOptions::parse(options)?.for_listener()?;
        let socket = match &engine.carrier {
            Carrier::Kernel { is_plain_tcp } => {
                let socket = kernel_socket(*is_plain_tcp, &local, &options.for_kernel()?)?;
                socket.set_reuse_address(true)?;
                socket
                    .bind(&local)
                    .and_then(|()| socket.listen(BACKLOG))
                    .map_err(|error| not_listening(&local, &error))?;
                socket
            }
            Carrier::Relay { relay, process } => {
                let relay = open_engines::usable(relay, *process)?;
                let local = local.as_socket().ok_or_else(|| number(libc::EAFNOSUPPORT, "no IP address"))?;
                let options = options.for_relay_listener()?;
                let socket = loopback_socket(options.is_nonblocking)?;
                socket.bind(&SockAddr::from(std::net::SocketAddr::from((Ipv4Addr::LOCALHOST, 0))))?;
                socket.listen(BACKLOG)?;
                relay.listen(socket.as_fd(), local, false).map_err(in_words_of_settings)?;
                socket
            }
        };
        Ok(socket.into_raw_fd())
    })
}

/// The program's end of a connection of our own stack.
fn loopback_socket(is_nonblocking: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    // What is small shall reach the stack at once; it has its own ways to gather.
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(is_nonblocking)?;
    Ok(socket)
}

/// Descriptors have run out.
fn is_scarcity(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

fn is_invalid(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EINVAL)
}

/// What accepting fails with at a listener of this engine that doesn't listen any more.
fn no_longer_listening(relay: &Weak<Relay>) -> io::Error {
    let message = match open_engines::usable(relay, std::process::id()) {
        Ok(_) => "the listener was closed or shut down",
        Err(_) => "the listener no longer listens: its engine was freed",
    };
    number(libc::EINVAL, message)
}

/// The same at a socket that no open engine of our own stack listens at.
fn not_a_listener() -> io::Error {
    number(
        libc::EINVAL,
        "the socket does not listen, or no longer: it was closed or shut down, or its engine was freed",
    )
}

/// # Safety
/// As for `accept(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polypath_accept(fd: c_int, peer: *mut sockaddr, length: *mut socklen_t) -> c_int {
    guard(-1, || {
        // SAFETY: the caller keeps the descriptor open during the call.
        let listener = unsafe { borrow(fd) }?;
        let Some(relay) = listening(listener)?.map(|relay| Arc::downgrade(&relay)) else {
            // SAFETY: the caller's promises are those that the system call asks for.
            let accepted = errno_failure(unsafe { libc::accept4(fd, peer, length, libc::SOCK_CLOEXEC) });
            return accepted.map_err(|error| if is_invalid(&error) { not_a_listener() } else { error });
        };
        loop {
            let nowhere = std::ptr::null_mut();
            // It may wait for long. Nothing of the engine is held meanwhile, which could not end otherwise.
            // SAFETY: the system call writes no address where there is no place for one.
            let accepted = unsafe { libc::accept4(fd, nowhere, std::ptr::null_mut(), libc::SOCK_CLOEXEC) };
            let accepted = errno_failure(accepted);
            let engine = relay.upgrade();
            let accepted = match (accepted, &engine) {
                // There is one for it, if a connection waits.
                (Err(error), Some(relay)) if is_scarcity(&error) && relay.make_room(listener) => continue,
                (Err(error), _) if is_invalid(&error) => return Err(no_longer_listening(&relay)),
                (result, _) => result?,
            };
            // SAFETY: a descriptor that was made just now, and that nobody else knows.
            let accepted = unsafe { OwnedFd::from_raw_fd(accepted) };
            let engine = engine.ok_or_else(|| no_longer_listening(&relay))?;
            // Another program of this machine may have connected to the loopback address: that is none of ours.
            if let Some(carried) = engine.accepted(accepted.as_fd()) {
                // SAFETY: as the caller of this function promises.
                unsafe { write_address(carried.remote(), peer, length) }?;
                return Ok(accepted.into_raw_fd());
            }
        }
    })
}

/// # Safety
/// As for `getsockname(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polypath_getsockname(
    fd: c_int,
    local: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    guard(-1, || {
        // SAFETY: the caller keeps the descriptor open during the call.
        let borrowed = unsafe { borrow(fd) }?;
        let listens_at = listening(borrowed)?.and_then(|relay| relay.listens_at(borrowed));
        let ours = match listens_at {
            Some(at) => Some(at),
            None => carried(borrowed)?.map(|carried| carried.seen_local()).transpose()?,
        };
        match ours {
            // SAFETY: as the caller of this function promises.
            Some(ours) => unsafe { write_address(ours, local, length) }.map(|()| 0),
            // SAFETY: the caller's promises are those that the system call asks for.
            None => errno_failure(unsafe { libc::getsockname(fd, local, length) }),
        }
    })
}

/// # Safety
/// As for `getpeername(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polypath_getpeername(
    fd: c_int,
    peer: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    guard(-1, || {
        // SAFETY: the caller keeps the descriptor open during the call.
        match carried(unsafe { borrow(fd) }?)? {
            // As for a socket of the kernel: there is no peer before the connection is there.
            Some(carried) if !carried.is_open() => Err(number(libc::ENOTCONN, "the socket isn't connected")),
            // SAFETY: as the caller of this function promises.
            Some(carried) => unsafe { write_address(carried.remote(), peer, length) }.map(|()| 0),
            // SAFETY: the caller's promises are those that the system call asks for.
            None => errno_failure(unsafe { libc::getpeername(fd, peer, length) }),
        }
    })
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
    guard(-1, || {
        // SAFETY: the caller owns the descriptor.
        let borrowed = unsafe { borrow(fd) }?;
        if let Some(relay) = own_listening(borrowed) {
            relay.close_listener(borrowed);
        }
        // SAFETY: the caller owns the descriptor.
        errno_failure(unsafe { libc::close(fd) })
    })
}

/// As `getsockopt(2)` with `SO_ERROR`.
#[unsafe(no_mangle)]
pub extern "C" fn polypath_error(fd: c_int) -> c_int {
    guard(-1, || {
        // SAFETY: the caller keeps the descriptor open during the call.
        let fd = unsafe { borrow(fd) }?;
        if let Some(carried) = carried(fd)? {
            return Ok(carried.error().unwrap_or(0));
        }
        let failure = SockRef::from(&fd).take_error()?;
        Ok(failure.as_ref().map_or(0, polypath_relay::errno))
    })
}

impl From<&SubflowInfo> for polypath_subflow {
    fn from(info: &SubflowInfo) -> Self {
        Self {
            local: storage(info.tuple.local.into()),
            remote: storage(info.tuple.remote.into()),
            bytes_acked: info.tcp.bytes_acked,
            bytes_received: info.tcp.bytes_received,
            retransmissions: info.tcp.retransmits,
            srtt_us: info.tcp.srtt.as_micros(),
            cwnd_bytes: info.tcp.cwnd_bytes,
        }
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
        let fd = unsafe { borrow(fd) }?;
        let state = match carried(fd)? {
            Some(carried) => carried.info()?,
            None => socket_info(&fd)?,
        };
        // SAFETY: zeros are valid for both structures, which are made of numbers only.
        let mut filled: polypath_info = unsafe { std::mem::zeroed() };
        filled.is_multipath = state.is_multipath.into();
        filled.subflow_count = u32::try_from(state.subflows.len()).unwrap_or(u32::MAX);
        for (to, from) in filled.subflows.iter_mut().zip(&state.subflows) {
            *to = from.into();
        }
        // SAFETY: not null, and the caller vouches for the rest; what was there needs no drop.
        unsafe { info.write(filled) };
        Ok(0)
    })
}

/// # Safety
/// `subflow` is null or can be read, and so many bytes of `name` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polypath_interface(
    fd: c_int,
    subflow: *const polypath_subflow,
    name: *mut c_char,
    size: usize,
) -> c_int {
    guard(-1, || {
        if name.is_null() {
            return Err(number(libc::EFAULT, "no place for the name"));
        }
        // SAFETY: the caller keeps the descriptor open during the call; null becomes `None`.
        let (fd, subflow) = unsafe { (borrow(fd)?, subflow.as_ref()) };
        let subflow = subflow.ok_or_else(|| number(libc::EFAULT, "no subflow"))?;
        let length = size_of::<sockaddr_storage>() as socklen_t;
        // SAFETY: a storage has so many bytes.
        let local = unsafe { address((&raw const subflow.local).cast(), length) }?;
        // SAFETY: as before.
        let remote = unsafe { address((&raw const subflow.remote).cast(), length) }?;
        let [local, remote] = [local, remote].map(|at| at.as_socket());
        let (local, remote) = local.zip(remote).ok_or_else(|| number(libc::EAFNOSUPPORT, "no IP address"))?;
        let of_stack = carried(fd)?.and_then(|carried| carried.path_name(local, remote));
        let found = match of_stack {
            Some(name) => Some(CString::new(name)?),
            None => interface_of(local.ip())?,
        };
        let found = found.ok_or_else(|| number(libc::ENODEV, "no interface has the subflow's address"))?;
        let found = found.as_bytes_with_nul();
        if found.len() > size {
            return Err(number(libc::ERANGE, "the name is longer than its place"));
        }
        // SAFETY: so many bytes can be written, says the caller, and nothing of ours is there.
        unsafe { std::ptr::copy_nonoverlapping(found.as_ptr(), name.cast::<u8>(), found.len()) };
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
        if carried(fd)?.is_some() || listening(fd)?.is_some() {
            return Err(number(
                libc::ENOPROTOOPT,
                "with engines tun and udp the congestion control is chosen by polypath_connect or polypath_open",
            ));
        }
        choose_congestion(&SockRef::from(&fd), value)?;
        Ok(0)
    })
}
