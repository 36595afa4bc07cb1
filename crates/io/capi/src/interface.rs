//! Which interface of the system has an address.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_int};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libc::{ifaddrs, sockaddr, sockaddr_in, sockaddr_in6};

use crate::failure::errno_failure;

/// What the system has told, until it is dropped.
struct Listed(*mut ifaddrs);

impl Drop for Listed {
    fn drop(&mut self) {
        // SAFETY: it came from `getifaddrs`, and is freed once.
        unsafe { libc::freeifaddrs(self.0) }
    }
}

/// The name of the interface that has an address. It asks through the C library, which leaves no descriptor open.
pub(crate) fn interface_of(own: IpAddr) -> io::Result<Option<CString>> {
    let mut first = std::ptr::null_mut();
    // SAFETY: the call writes one pointer, to where there is room for it.
    errno_failure(unsafe { libc::getifaddrs(&raw mut first) })?;
    let listed = Listed(first);
    let mut next = listed.0;
    // SAFETY: it is null at the end of the list, or an entry that lives as long as `listed`.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: an address of the list is null or whole.
        if unsafe { ip(entry.ifa_addr) }.is_some_and(|addr| addr == own.to_canonical()) {
            // SAFETY: each entry has a name, which ends with a zero.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_bytes();
            // An address may have a label, which is the name of its interface with a colon and more.
            let name = name.split(|byte| *byte == b':').next().unwrap_or(name);
            return Ok(Some(CString::new(name)?));
        }
        next = entry.ifa_next;
    }
    Ok(None)
}

/// # Safety
/// Null, or an address as long as its family says.
unsafe fn ip(address: *const sockaddr) -> Option<IpAddr> {
    // SAFETY: the caller vouches for it; null becomes `None`. An address may be less aligned than its family's type.
    unsafe {
        match c_int::from(address.as_ref()?.sa_family) {
            libc::AF_INET => {
                let v4 = address.cast::<sockaddr_in>().read_unaligned();
                Some(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)).into())
            }
            libc::AF_INET6 => {
                let v6 = address.cast::<sockaddr_in6>().read_unaligned();
                Some(Ipv6Addr::from(v6.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_its_address_and_no_descriptor_stays_open() {
        let descriptors = || std::fs::read_dir("/proc/self/fd").expect("a list").count();
        let before = descriptors();
        assert_eq!(interface_of(Ipv4Addr::LOCALHOST.into()).expect("it is asked"), Some(c"lo".into()));
        assert_eq!(interface_of([203, 0, 113, 1].into()).expect("it is asked"), None);
        assert_eq!(descriptors(), before);
    }
}
