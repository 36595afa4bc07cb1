//! Options of sockets for which the libraries have no name.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Bytes of an option that were written.
pub(super) fn get(socket: &impl AsFd, level: i32, option: i32, buffer: &mut [u8]) -> io::Result<usize> {
    let capacity = buffer.len();
    let mut length = libc::socklen_t::try_from(capacity).map_err(io::Error::other)?;
    // SAFETY: the kernel writes at most `length` bytes into the buffer, and the number of them into `length`.
    #[allow(unsafe_code)]
    let result = unsafe {
        libc::getsockopt(socket.as_fd().as_raw_fd(), level, option, buffer.as_mut_ptr().cast(), &mut length)
    };
    if result == 0 { Ok((length as usize).min(capacity)) } else { Err(io::Error::last_os_error()) }
}

/// Sets an option that is a number.
pub(super) fn set(socket: &impl AsFd, level: i32, option: i32, value: libc::c_int) -> io::Result<()> {
    let length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes of a value that outlives the call.
    #[allow(unsafe_code)]
    let result = unsafe {
        libc::setsockopt(socket.as_fd().as_raw_fd(), level, option, (&raw const value).cast(), length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
