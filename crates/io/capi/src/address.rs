//! Socket addresses of C.

use std::ffi::c_int;
use std::io;
use std::net::SocketAddr;

use libc::{sockaddr, sockaddr_storage, socklen_t};
use socket2::{SockAddr, SockAddrStorage};

use crate::failure::number;

/// A socket address of the caller.
///
/// # Safety
/// Null, or `length` bytes that can be read.
pub(crate) unsafe fn address(address: *const sockaddr, length: socklen_t) -> io::Result<SockAddr> {
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

/// An address in the form of C.
pub(crate) fn storage(address: SocketAddr) -> sockaddr_storage {
    let mut storage = SockAddr::from(address).as_storage();
    // SAFETY: the storage is a `sockaddr_storage`, any bytes of which are valid.
    *unsafe { storage.view_as::<sockaddr_storage>() }
}

/// Gives the caller an address as `accept(2)` does: as much of it as there is room for, and its whole length.
///
/// # Safety
/// Both are null, or `length` can be read and written and says how many bytes of `to` can be written.
pub(crate) unsafe fn write_address(
    from: SocketAddr,
    to: *mut sockaddr,
    length: *mut socklen_t,
) -> io::Result<()> {
    if to.is_null() && length.is_null() {
        return Ok(());
    }
    if to.is_null() || length.is_null() {
        return Err(number(libc::EFAULT, "expected an address and its length, or neither"));
    }
    let from = SockAddr::from(from);
    // SAFETY: not null, and the caller vouches for the rest; a `SockAddr` has `len` bytes, which no caller's memory
    // overlaps.
    unsafe {
        let room = (*length).min(from.len());
        std::ptr::copy_nonoverlapping(from.as_ptr().cast::<u8>(), to.cast::<u8>(), room as usize);
        *length = from.len();
    }
    Ok(())
}
