//! The kernel's congestion controls, by its names for them.

use std::{fs, io};

use socket2::{Domain, Protocol, SockRef, Socket, Type};

/// A congestion control that the kernel does not have, or not for this user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CongestionRefused {
    /// There is none of that name.
    #[error("the kernel has no congestion control {name}; expected one of {}", .available.join(", "))]
    Unknown {
        /// The name.
        name: String,
        /// Those that there are.
        available: Vec<String>,
    },
    /// There is one, for the privileged.
    #[error("this user may not choose the kernel's congestion control {name}; expected one of {}", .allowed.join(", "))]
    Forbidden {
        /// The name.
        name: String,
        /// Those that everybody may choose.
        allowed: Vec<String>,
    },
}

/// Chooses the congestion control of a socket of the kernel, by the kernel's name for it.
///
/// Errors: [`io::ErrorKind::InvalidInput`] with [`CongestionRefused`] if it has none of that name, and
/// [`io::ErrorKind::PermissionDenied`] if it is not for this user.
pub fn choose_congestion(socket: &SockRef<'_>, name: &str) -> io::Result<()> {
    // Multipath TCP takes any name, and forgets those that it doesn't know.
    if socket.protocol()? == Some(Protocol::MPTCP) {
        let plain = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        choose(&SockRef::from(&plain), name)?;
    }
    choose(socket, name)
}

fn choose(socket: &SockRef<'_>, name: &str) -> io::Result<()> {
    socket.set_tcp_congestion(name.as_bytes()).map_err(|error| {
        let name = name.to_owned();
        match error.raw_os_error() {
            Some(libc::ENOENT) => {
                let refused = CongestionRefused::Unknown { name, available: listed("available") };
                io::Error::new(io::ErrorKind::InvalidInput, refused)
            }
            Some(libc::EPERM) => {
                let refused = CongestionRefused::Forbidden { name, allowed: listed("allowed") };
                io::Error::new(io::ErrorKind::PermissionDenied, refused)
            }
            _ => error,
        }
    })
}

/// What the namespace of this thread has; nothing where that can't be read.
fn listed(which: &str) -> Vec<String> {
    let path = format!("/proc/sys/net/ipv4/tcp_{which}_congestion_control");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_kernel_does_not_have_are_refused_with_those_that_it_has() {
        for protocol in [Protocol::TCP, Protocol::MPTCP] {
            let Ok(socket) = Socket::new(Domain::IPV4, Type::STREAM, Some(protocol)) else {
                eprintln!("SKIPPED: this kernel has no Multipath TCP");
                continue;
            };
            let socket = SockRef::from(&socket);
            // Every kernel has it.
            choose_congestion(&socket, "reno").expect("a congestion control");
            let error = choose_congestion(&socket, "nosuch").expect_err("there is none");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            let said = error.to_string();
            assert!(
                said.starts_with("the kernel has no congestion control nosuch; expected one of "),
                "{said}"
            );
            assert!(said.contains("reno"), "{said}");
        }
    }
}
