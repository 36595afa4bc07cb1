//! Makes the TCP sockets of an unmodified, dynamically linked program Multipath TCP sockets.
//!
//! Loaded by `LD_PRELOAD`, it replaces `socket` alone: an IPv4 or IPv6 stream socket for TCP is made with
//! `IPPROTO_MPTCP`, or as asked where the kernel has none. Everything after that is the kernel's.
//! `POLYPATH_PRELOAD_OPTIONS` is `engine=kernel` or nothing.

use std::ffi::c_int;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

/// Whether the options ask for what this library does; says so once if they don't.
fn is_usable() -> bool {
    static USABLE: OnceLock<bool> = OnceLock::new();
    *USABLE.get_or_init(|| {
        let options = std::env::var_os("POLYPATH_PRELOAD_OPTIONS").unwrap_or_default();
        let usable = options.as_bytes().is_empty() || options.as_bytes() == b"engine=kernel";
        if !usable {
            let text = format!(
                "polypath: POLYPATH_PRELOAD_OPTIONS={}: unsupported in this build; expected engine=kernel\n",
                options.to_string_lossy()
            );
            // SAFETY: the pointer and the length are those of a living string. Not `eprintln`, which panics when
            // standard error is closed.
            #[allow(unsafe_code)]
            unsafe {
                libc::write(2, text.as_ptr().cast(), text.len());
            }
        }
        usable
    })
}

fn is_tcp(domain: c_int, kind: c_int, protocol: c_int) -> bool {
    let kind = kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    (domain == libc::AF_INET || domain == libc::AF_INET6)
        && kind == libc::SOCK_STREAM
        && (protocol == 0 || protocol == libc::IPPROTO_TCP)
}

fn open(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: the system call takes three numbers and no memory; glibc's `socket` is the same call.
    #[allow(unsafe_code)]
    let socket = unsafe { libc::syscall(libc::SYS_socket, domain, kind, protocol) };
    socket as c_int
}

fn errno() -> *mut c_int {
    // SAFETY: always gives this thread's own variable.
    #[allow(unsafe_code)]
    unsafe {
        libc::__errno_location()
    }
}

/// `socket(2)`, with Multipath TCP where TCP is asked for. Without usable options such a socket is refused with
/// `EPROTONOSUPPORT`: plain TCP behind the caller's back would be worse.
#[allow(unsafe_code)]
// SAFETY: the name and the signature are those of the C library's function, which this one replaces on purpose.
#[unsafe(no_mangle)]
pub extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if !is_tcp(domain, kind, protocol) {
        return open(domain, kind, protocol);
    }
    if !std::panic::catch_unwind(is_usable).unwrap_or(false) {
        // SAFETY: see `errno`; no other thread has this one's variable.
        unsafe { *errno() = libc::EPROTONOSUPPORT };
        return -1;
    }
    // SAFETY: see `errno`.
    let before = unsafe { *errno() };
    let socket = open(domain, kind, libc::IPPROTO_MPTCP);
    // SAFETY: see `errno`.
    let failure = unsafe { *errno() };
    let has_none = matches!(failure, libc::EPROTONOSUPPORT | libc::ENOPROTOOPT | libc::EINVAL);
    if socket < 0 && has_none {
        // SAFETY: see `errno`. A call that succeeds leaves the variable as it was.
        unsafe { *errno() = before };
        return open(domain, kind, protocol);
    }
    socket
}
