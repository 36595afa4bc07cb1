//! What the host can do: the kernel, devices, programs and permissions that the engines need.

use std::io;
use std::path::Path;

use polypath_system::{Link, SystemState};
use rustix::fs::Access;
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use socket2::{Domain, Protocol, Socket, Type};

use super::Finding;
use super::ask::variable;
use crate::kernel_paths::{KernelPaths, path_manager};
use crate::{LeftBehind, left_behind, probe_nft};

pub(super) fn check(state: &SystemState, links: &[&Link]) -> Vec<Finding> {
    let usable: Vec<&Link> = links.iter().copied().filter(|link| is_usable(state, link)).collect();
    let is_connected =
        |link: &&Link| link.is_running && !link.addresses.is_empty() && !is_usable(state, link);
    let without_way: Vec<&Link> = links.iter().copied().filter(is_connected).collect();
    let mut findings = vec![match links {
        [] => no_paths(state),
        _ => paths(&usable, &without_way),
    }];
    let kernel = kernel();
    let has_multipath = kernel.level == super::Level::Good;
    findings.push(kernel);
    if has_multipath {
        findings.extend(endpoints(path_manager(), &usable));
    }
    let is_admin = rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_ADMIN));
    findings.extend([tun(), nft(is_admin), permission(is_admin, are_variables_fixed())]);
    findings.extend(leftovers(left_behind()));
    if !is_admin {
        findings.push(user_namespaces(&variable));
    }
    findings
}

fn is_usable(state: &SystemState, link: &Link) -> bool {
    let leads_out = |is_v4: bool| {
        link.addresses.iter().any(|addr| addr.is_ipv4() == is_v4)
            && state.default_route(link.index, is_v4).is_some()
    };
    link.is_running && (leads_out(true) || leads_out(false))
}

/// There is nothing to look at one by one.
fn no_paths(state: &SystemState) -> Finding {
    let present: Vec<&str> = state.links.iter().map(|link| link.name.as_str()).collect();
    Finding::blocked(
        "paths",
        format!("no interface here could be a path; present are: {}", present.join(", ")),
        "connect a network: WiFi, a phone by USB, a cable; a container gets one from whoever starts it",
    )
}

pub(super) fn paths(usable: &[&Link], without_way: &[&Link]) -> Finding {
    let names: Vec<&str> = usable.iter().map(|link| link.name.as_str()).collect();
    match (names.as_slice(), without_way) {
        ([], _) => Finding::blocked(
            "paths",
            "no interface is up with an address and a default route",
            "bring one up; what is missing stands below, for each interface",
        ),
        ([only], [other, ..]) => Finding::limited(
            "paths",
            format!("only {only} leads out: {} is connected, and has no default route", other.name),
            format!(
                "`ip route add default via GATEWAY dev {} metric 1000`, with its gateway's address",
                other.name
            ),
        ),
        ([only], []) => Finding::limited(
            "paths",
            format!("only {only} leads out: there is nothing to combine it with, or to fall back to"),
            "connect a second network: WiFi, a phone by USB, another cable",
        ),
        (several, _) => {
            Finding::good("paths", format!("{} interfaces lead out: {}", several.len(), several.join(", ")))
        }
    }
}

fn kernel() -> Finding {
    let advice_other = "choose --engine tun or udp, which need no support of the kernel";
    match Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)) {
        Ok(_) => Finding::good("kernel", "the kernel speaks Multipath TCP"),
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Finding::limited(
            "kernel",
            "the kernel's Multipath TCP is switched off",
            format!("`sysctl -w net.mptcp.enabled=1` for --engine kernel, or {advice_other}"),
        ),
        Err(error) => Finding::limited(
            "kernel",
            format!("the kernel has no Multipath TCP ({error})"),
            format!("Linux 5.6 or newer with CONFIG_MPTCP for --engine kernel, or {advice_other}"),
        ),
    }
}

/// What the kernel's path manager makes of the paths: only the kernel's own engine is concerned.
pub(super) fn endpoints(manager: io::Result<KernelPaths>, usable: &[&Link]) -> Option<Finding> {
    if usable.len() < 2 {
        return None;
    }
    let manager = match manager {
        Ok(manager) => manager,
        Err(error) => {
            return Some(Finding::limited(
                "endpoints",
                format!("the kernel does not tell its path manager's settings ({error})"),
                "see `ip mptcp limits` and `ip mptcp endpoint` as root",
            ));
        }
    };
    let has_endpoint =
        |link: &&&Link| link.addresses.iter().any(|addr| manager.subflow_endpoints.contains(addr));
    let missing: Vec<&Link> = usable.iter().filter(|link| !has_endpoint(link)).copied().collect();
    // The first subflow leaves by the default route, so one interface needs no endpoint.
    if missing.len() > 1 {
        let commands = missing.iter().filter_map(|link| {
            let addr = link.addresses.first()?;
            Some(format!("`ip mptcp endpoint add {addr} dev {} subflow`", link.name))
        });
        let commands: Vec<String> = commands.collect();
        return Some(Finding::limited(
            "endpoints",
            "connections of the kernel's engine stay on one path: its path manager knows no address of the others",
            format!(
                "{} (a server says signal instead of subflow), or choose --engine tun, which needs no such settings",
                commands.join(" and ")
            ),
        ));
    }
    let wanted = u32::try_from(usable.len() - 1).unwrap_or(u32::MAX);
    if manager.subflows < wanted {
        return Some(Finding::limited(
            "endpoints",
            format!("the kernel allows {} more subflows for a connection than its first", manager.subflows),
            format!("`ip mptcp limits set subflows {wanted}`"),
        ));
    }
    Some(Finding::good("endpoints", "the kernel's path manager knows the paths"))
}

fn tun() -> Finding {
    tun_at("/dev/net/tun".as_ref())
}

pub(super) fn tun_at(device: &Path) -> Finding {
    match std::fs::OpenOptions::new().read(true).write(true).open(device) {
        Ok(_) => Finding::good("tun", "TUN devices are available"),
        // Its owner can, as root mostly is.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Finding::limited(
            "tun",
            format!("{} is there, and this user may not open it", device.display()),
            "run as root, or for `polypath run` without root `chmod 0666 /dev/net/tun`; else --engine udp and kernel do without",
        ),
        Err(error) => Finding::limited(
            "tun",
            format!("{} can't be used ({error})", device.display()),
            "`modprobe tun`, or pass the device into the container; but for `polypath run`, --engine udp and kernel do without",
        ),
    }
}

fn nft(is_admin: bool) -> Finding {
    match probe_nft() {
        Ok(()) => Finding::good("nft", "nft is available and works"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Finding::limited(
            "nft",
            "the program nft is missing, with which --engine tun translates addresses",
            "`apt install nftables` or the like",
        ),
        // It is there, and nobody without the capability may ask it anything.
        Err(_) if !is_admin => Finding::good("nft", "nft is available"),
        Err(error) => Finding::limited(
            "nft",
            format!("nft does not work: {error}"),
            "a kernel with nf_tables; --engine udp and kernel do without",
        ),
    }
}

/// Whether `/proc/sys` is mounted for reading only, as container engines do it.
fn are_variables_fixed() -> bool {
    let variable = "/proc/sys/net/ipv4/conf/all/forwarding";
    rustix::fs::access(variable, Access::WRITE_OK) == Err(Errno::ROFS)
}

fn permission(is_admin: bool, are_variables_fixed: bool) -> Finding {
    if is_admin && are_variables_fixed {
        Finding::limited(
            "permission",
            "this process may set up the network (CAP_NET_ADMIN), but /proc/sys is for reading only",
            "in a container, `--security-opt unmask=/proc/sys` of podman, `systempaths=unconfined` of docker; --engine udp and kernel do without",
        )
    } else if is_admin {
        Finding::good("permission", "this process may set up the network (CAP_NET_ADMIN)")
    } else {
        Finding::limited(
            "permission",
            "this process may not set up the network: it lacks CAP_NET_ADMIN",
            "run as root for --engine tun; --engine udp and kernel need no permission",
        )
    }
}

/// What killed processes have set up and nobody has taken down.
pub(super) fn leftovers(left: io::Result<Vec<LeftBehind>>) -> Vec<Finding> {
    match left {
        Ok(left) => left.iter().map(leftover).collect(),
        Err(error) => vec![Finding::limited(
            "leftovers",
            format!("can't tell whether killed processes have left anything ({error})"),
            "no start of --engine tun gets past it: mend what is wrong there",
        )],
    }
}

/// That of the units of the Debian package.
const OF_UNITS: &str = "/run/polypath-services";

fn leftover(left: &LeftBehind) -> Finding {
    let pids: Vec<String> = left.pids.iter().map(u32::to_string).collect();
    let text =
        format!("what a process that was killed has set up is still there (process {})", pids.join(", "));
    if !left.is_others {
        let advice = "the next start of any engine by this user removes it, such as `polypath run true`";
        return Finding::limited("leftovers", text, advice);
    }
    let directory = left.directory.display();
    // Its own user alone may undo what is on file there: the file says what is undone.
    let user = left.directory.strip_prefix("/run/user").ok().and_then(|below| below.iter().next());
    let advice = match user {
        Some(number) => format!(
            "the next start of any engine by user {} removes it, such as `polypath run true` in a session of theirs",
            number.display()
        ),
        None if left.directory == Path::new(OF_UNITS) => {
            "the next start of one of these services removes it: `systemctl restart polypath@NAME`".into()
        }
        // The unit may have its own name there, as %N.
        None => {
            let name = left.directory.file_name().unwrap_or_default().to_string_lossy();
            let service = name.strip_prefix("polypath-").unwrap_or(&name);
            format!(
                "the next start of the service with this directory removes it: `systemctl restart {service}`, or else `systemctl \
                 show -p Id,RuntimeDirectory '*.service'` tells which has {name}"
            )
        }
    };
    Finding::limited("leftovers", format!("{text}, on file in {directory}"), advice)
}

/// Whether a user without permissions can have a network of his own, as `polypath run` makes one.
pub(super) fn user_namespaces(variable: &dyn Fn(&str) -> Option<String>) -> Finding {
    let is = |name: &str, value: &str| variable(name).as_deref() == Some(value);
    let switch = if is("user/max_user_namespaces", "0") {
        Some("user.max_user_namespaces=15000")
    } else if is("kernel/unprivileged_userns_clone", "0") {
        Some("kernel.unprivileged_userns_clone=1")
    } else if is("kernel/apparmor_restrict_unprivileged_userns", "1") {
        Some("kernel.apparmor_restrict_unprivileged_userns=0")
    } else {
        None
    };
    match switch {
        None => Finding::good(
            "namespaces",
            "user namespaces are available: `polypath run` needs no root where /dev/net/tun is for all",
        ),
        Some(switch) => Finding::limited(
            "namespaces",
            "this system forbids user namespaces to users without permissions, so `polypath run` needs root",
            format!("`sysctl -w {switch}` as root"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_worth_nothing_where_variables_are_fixed() {
        let fixed = permission(true, true);
        assert!(fixed.level == super::super::Level::Limited && fixed.text.contains("/proc/sys"), "{fixed:?}");
        assert_eq!(permission(true, false).level, super::super::Level::Good);
        assert!(permission(false, true).text.contains("CAP_NET_ADMIN"));
    }
}
