//! Why a port can't be listened at, where it is the user's rights.

use std::fmt;
use std::io;

use rustix::thread::CapabilitySet;

use super::Failure;

/// The first port that everybody may use.
const FIRST_FREE: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";

/// A failure to listen at a port: what the engine says, unless the port is for others than this user.
pub(super) fn cannot_listen(port: u16, kind: io::ErrorKind, error: impl fmt::Display) -> Failure {
    // Engine tun has its own words for it, and no kind.
    if !matches!(kind, io::ErrorKind::PermissionDenied | io::ErrorKind::Other) {
        return Failure::run(error);
    }
    let sets = rustix::thread::capabilities(None);
    let may = |capability| sets.as_ref().is_ok_and(|sets| sets.effective.contains(capability));
    let first = std::fs::read_to_string(FIRST_FREE).ok().and_then(|text| text.trim().parse().ok());
    match reserved(port, first.unwrap_or(1024), &may) {
        Some(message) => Failure::Run(message),
        None => Failure::run(error),
    }
}

fn reserved(port: u16, first: u16, may: &impl Fn(CapabilitySet) -> bool) -> Option<String> {
    if port == 0 || port >= first || may(CapabilitySet::NET_BIND_SERVICE) {
        return None;
    }
    // A file has all of its capabilities from one command.
    let others = if may(CapabilitySet::NET_ADMIN) { "cap_net_admin," } else { "" };
    Some(format!(
        "can't listen at port {port}: this user may not use ports below {first} (CAP_NET_BIND_SERVICE); choose another \
         port, such as {}, or first `sudo setcap {others}cap_net_bind_service+ep \"$(command -v polypath)\"` (whoever may \
         run that file may use them then)",
        u32::from(port) + 8000
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_to_low_ports_is_named_where_it_lacks() {
        let nobody = |_| false;
        let message = reserved(80, 1024, &nobody).expect("a reserved port");
        assert!(message.starts_with("can't listen at port 80: this user may not use ports below 1024"));
        assert!(message.contains("(CAP_NET_BIND_SERVICE)") && message.contains("such as 8080"), "{message}");
        assert!(message.contains("`sudo setcap cap_net_bind_service+ep"), "{message}");
        let admin = |capability| capability == CapabilitySet::NET_ADMIN;
        let message = reserved(80, 1024, &admin).expect("a reserved port");
        assert!(message.contains("setcap cap_net_admin,cap_net_bind_service+ep"), "{message}");
        for (port, first) in [(0, 1024), (1024, 1024), (80, 80)] {
            assert_eq!(reserved(port, first, &nobody), None, "{port} {first}");
        }
        assert_eq!(reserved(80, 1024, &|capability| capability == CapabilitySet::NET_BIND_SERVICE), None);
    }
}
