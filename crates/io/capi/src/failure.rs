//! How a failure reaches a C program: `errno`, and a sentence.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{fmt, io};

use socket2::SockAddr;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// A number of errno with words of ours.
#[derive(Debug)]
struct Numbered {
    code: c_int,
    message: String,
}

impl fmt::Display for Numbered {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Numbered {}

/// A failure with this `errno`.
pub(crate) fn number(code: c_int, message: &str) -> io::Error {
    io::Error::other(Numbered { code, message: message.to_string() })
}

/// A system call's result.
pub(crate) fn errno_failure(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Why the kernel lets nobody listen there, with the same `errno`.
pub(crate) fn not_listening(local: &SockAddr, error: &io::Error) -> io::Error {
    let place = local.as_socket().map(|local| local.to_string()).unwrap_or_default();
    let code = polypath_relay::errno(error);
    let expected = match code {
        libc::EACCES => {
            "; expected root, the capability CAP_NET_BIND_SERVICE, or a port from sysctl net.ipv4.ip_unprivileged_port_start on"
        }
        _ => "",
    };
    number(code, &format!("can't listen at {place}: {error}{expected}"))
}

/// Sets `errno` and what [`polypath_strerror`] says.
pub(crate) fn report(error: &io::Error) {
    let ours = error.get_ref().and_then(|inner| inner.downcast_ref::<Numbered>()).map(|inner| inner.code);
    let code = ours.unwrap_or_else(|| polypath_relay::errno(error));
    let message = CString::new(error.to_string()).unwrap_or_default();
    LAST.with(|last| *last.borrow_mut() = message);
    set_errno(code);
}

pub(crate) fn set_errno(code: c_int) {
    // SAFETY: always gives this thread's own variable.
    unsafe { *libc::__errno_location() = code };
}

/// Runs a call. One that succeeds leaves `errno` as it was, whatever was tried on the way. A failure is reported and becomes `failed`, and so does a panic, which must not enter C.
pub(crate) fn guard<T>(failed: T, call: impl FnOnce() -> io::Result<T>) -> T {
    // SAFETY: always gives this thread's own variable.
    let before = unsafe { *libc::__errno_location() };
    let result = catch_unwind(AssertUnwindSafe(call));
    match result.unwrap_or_else(|_| Err(number(libc::EIO, "a fault in Polypath itself"))) {
        Ok(value) => {
            set_errno(before);
            value
        }
        Err(error) => {
            report(&error);
            failed
        }
    }
}

/// What went wrong in this thread's last failed call.
#[unsafe(no_mangle)]
pub extern "C" fn polypath_strerror() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"the thread is ending".as_ptr())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::*;

    #[test]
    fn a_port_that_is_refused_is_named_with_what_would_allow_it() {
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 80)).into();
        let refused = not_listening(&local, &io::Error::from_raw_os_error(libc::EACCES)).to_string();
        assert!(refused.contains("127.0.0.1:80") && refused.contains("CAP_NET_BIND_SERVICE"), "{refused}");
        let taken = not_listening(&local, &io::Error::from_raw_os_error(libc::EADDRINUSE)).to_string();
        assert!(taken.contains("127.0.0.1:80") && !taken.contains("expected"), "{taken}");
    }
}
