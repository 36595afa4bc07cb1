//! Options of sockets that are open, as `setsockopt(2)` has them.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::io;

use libc::socklen_t;

use crate::borrow;
use crate::failure::{errno_failure, guard, number};
use crate::open_engines::{carrying, is_inherited};

/// # Safety
/// As for `setsockopt(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polypath_setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    guard(-1, || {
        // SAFETY: the caller keeps the descriptor open during the call.
        let program = unsafe { borrow(fd) }?;
        let relay = carrying(program)?;
        refuse_congestion(relay.is_some(), level, name)?;
        // SAFETY: the caller's promises are those that the system call asks for.
        errno_failure(unsafe { libc::setsockopt(fd, level, name, value, length) })?;
        relay.map_or(Ok(0), |relay| relay.options_changed(program).map(|()| 0))
    })
}

/// # Safety
/// As for `getsockopt(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polypath_getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    guard(-1, || {
        // SAFETY: the caller keeps the descriptor open during the call.
        let program = unsafe { borrow(fd) }?;
        // What the kernel tells of a socket, it tells a child of fork, too.
        let is_carried = is_inherited(program) || carrying(program)?.is_some();
        refuse_congestion(is_carried, level, name)?;
        // SAFETY: the caller's promises are those that the system call asks for.
        errno_failure(unsafe { libc::getsockopt(fd, level, name, value, length) })
    })
}

/// The kernel's congestion control is not that of a connection which a stack of ours carries.
fn refuse_congestion(is_carried: bool, level: c_int, name: c_int) -> io::Result<()> {
    if is_carried && (level, name) == (libc::IPPROTO_TCP, libc::TCP_CONGESTION) {
        return Err(number(
            libc::ENOPROTOOPT,
            "with engines tun and udp the congestion control is chosen by polypath_connect or polypath_open",
        ));
    }
    Ok(())
}
