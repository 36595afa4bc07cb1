//! Names of the variables under `/proc/sys` that set-up reads and changes.

/// Whether the system forwards IPv4, whatever interface it comes by. Nothing that set-up changes.
pub const FORWARD_V4: &str = "net/ipv4/ip_forward";
/// Whether the system forwards IPv6. Set-up switches it on where interfaces can't be told to one by one (before Linux 6.17).
pub const FORWARD_V6: &str = "net/ipv6/conf/all/forwarding";

/// Whether the system forwards what comes by an interface.
pub fn forwarding(link: &str, is_v4: bool) -> String {
    if is_v4 {
        format!("net/ipv4/conf/{link}/forwarding")
    } else {
        format!("net/ipv6/conf/{link}/force_forwarding")
    }
}

/// The interface that a variable is about, if it is one of those, and whether it is about IPv4.
pub fn forwarding_link(variable: &str) -> Option<(&str, bool)> {
    [("net/ipv4/conf/", "/forwarding", true), ("net/ipv6/conf/", "/force_forwarding", false)]
        .into_iter()
        .find_map(|(first, last, is_v4)| Some((link_between(variable, first, last)?, is_v4)))
}

/// The interface whose name stands between the two.
pub fn link_between<'a>(variable: &'a str, first: &str, last: &str) -> Option<&'a str> {
    let link = variable.strip_prefix(first)?.strip_suffix(last)?;
    // No interface has a name that leads elsewhere.
    (!link.is_empty() && !link.contains('/') && link != "." && link != "..").then_some(link)
}

/// Whether a variable is one of those.
pub fn is_accept_ra(variable: &str) -> bool {
    link_between(variable, "net/ipv6/conf/", "/accept_ra").is_some()
}

/// The variable that says whether an interface listens to router advertisements.
pub fn accept_ra(link: &str) -> String {
    format!("net/ipv6/conf/{link}/accept_ra")
}
