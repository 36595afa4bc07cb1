//! Over which uplinks connections of the kernel's Multipath TCP go, and the commands for the others.

use std::net::IpAddr;

use polypath_netsetup::abilities::{Abilities, Uplink};

use super::interfaces::Asked;
use super::words::{and, as_root};

/// Over which uplinks the kernel's connections go, and what to do for the others.
pub(super) fn kernel_paths(abilities: &Abilities, asked: &Asked) -> (String, Option<String>) {
    let (first, others) = match abilities.uplinks.split_first() {
        None => return (String::new(), None),
        Some((first, [])) => return (format!(", over {}, the only uplink", first.name), None),
        Some((first, others)) => (first, others),
    };
    let Some(known) = &abilities.kernel_paths else {
        let over = format!(", over {} and what `ip mptcp endpoint` has besides", first.name);
        return (over, None);
    };
    let has_endpoint =
        |uplink: &&Uplink| uplink.addresses.iter().any(|addr| known.subflow_endpoints.contains(addr));
    let (ready, missing): (Vec<&Uplink>, Vec<&Uplink>) = others.iter().partition(has_endpoint);
    let allowed = ready.iter().take(known.subflows as usize);
    let over: Vec<&str> =
        std::iter::once(first).chain(allowed.copied()).map(|link| link.name.as_str()).collect();
    let family = first.addresses.first().is_none_or(IpAddr::is_ipv4);
    let mut commands: Vec<String> = missing
        .iter()
        .filter_map(|uplink| {
            let alike = uplink.addresses.iter().find(|addr| addr.is_ipv4() == family);
            let addr = alike.or(uplink.addresses.first())?;
            let backup = if asked.backups.contains(&uplink.name) { " backup" } else { "" };
            Some(format!("ip mptcp endpoint add {addr} dev {} subflow{backup}", uplink.name))
        })
        .collect();
    if (known.subflows as usize) < others.len() {
        commands.push(format!("ip mptcp limits set subflows {}", others.len()));
    }
    let only = if over.len() == 1 { " only" } else { "" };
    let over_words = format!(", over {}{only}", and(&over));
    if commands.is_empty() {
        return (over_words, None);
    }
    let unused: Vec<&str> =
        others.iter().map(|uplink| uplink.name.as_str()).filter(|name| !over.contains(name)).collect();
    let commands: Vec<String> = commands.iter().map(|command| as_root(abilities.is_root, command)).collect();
    (over_words, Some(format!("for {} too `{}`", and(&unused), commands.join(" && "))))
}

/// As [`kernel_paths`] of a server, whose clients open subflows to what it announces.
pub(super) fn announced_paths(abilities: &Abilities, asked: &Asked) -> (String, Option<String>) {
    let (first, others) = match abilities.uplinks.split_first() {
        None => return (String::new(), None),
        Some((first, [])) => return (format!(", over {}, the only uplink", first.name), None),
        Some((first, others)) => (first, others),
    };
    let known = abilities.kernel_paths.as_ref();
    let is_announced = |addr: &IpAddr| known.is_some_and(|manager| manager.signal_endpoints.contains(addr));
    let (ready, missing): (Vec<&Uplink>, Vec<&Uplink>) =
        others.iter().partition(|uplink| uplink.addresses.iter().any(is_announced));
    let mut commands: Vec<String> = missing
        .iter()
        .filter_map(|uplink| {
            let addr = uplink.addresses.first()?;
            let backup = if asked.backups.contains(&uplink.name) { " backup" } else { "" };
            Some(format!("ip mptcp endpoint add {addr} dev {} signal{backup}", uplink.name))
        })
        .collect();
    let (over, unused, unless) = match known {
        None => {
            let names: Vec<&str> = others.iter().map(|uplink| uplink.name.as_str()).collect();
            (format!("{} and what `ip mptcp endpoint` has as signal", first.name), names, ", unless it has,")
        }
        Some(manager) => {
            // Of subflows that clients open, the limit lets in as many, too.
            let allowed = ready.iter().copied().take(manager.subflows as usize);
            let over: Vec<&str> =
                std::iter::once(first).chain(allowed).map(|uplink| uplink.name.as_str()).collect();
            if (manager.subflows as usize) < others.len() {
                commands.push(format!("ip mptcp limits set subflows {}", others.len()));
            }
            let names = others.iter().map(|uplink| uplink.name.as_str());
            let unused = names.filter(|name| !over.contains(name)).collect();
            let only = if over.len() == 1 { " only" } else { "" };
            (format!("{}{only}", and(&over)), unused, "")
        }
    };
    let commands: Vec<String> = commands.iter().map(|command| as_root(abilities.is_root, command)).collect();
    let way = format!("for {} too{unless} `{}`", and(&unused), commands.join(" && "));
    (format!(", over {over}"), (!commands.is_empty()).then_some(way))
}

#[cfg(test)]
mod tests {
    use polypath_netsetup::abilities::{KernelMultipath, KernelPaths, TunAccess};

    use super::*;

    fn uplink((name, number): (&str, u8)) -> Uplink {
        Uplink { name: name.into(), addresses: vec![IpAddr::from([192, 0, 2, number])] }
    }

    fn addresses(last: &[u8]) -> Vec<IpAddr> {
        last.iter().map(|last| IpAddr::from([192, 0, 2, *last])).collect()
    }

    /// A host with two uplinks, whose kernel has these endpoints.
    fn host(subflows: u32, subflow_endpoints: &[u8], signal_endpoints: &[u8]) -> Abilities {
        Abilities {
            is_admin: true,
            is_root: true,
            tun: TunAccess::Open,
            has_nft: true,
            uplinks: ["wifi", "lte"].into_iter().zip(1..).map(uplink).collect(),
            kernel: KernelMultipath::On,
            kernel_paths: Some(KernelPaths {
                subflows,
                subflow_endpoints: addresses(subflow_endpoints),
                signal_endpoints: addresses(signal_endpoints),
            }),
        }
    }

    #[test]
    fn the_kernel_s_paths_are_those_of_its_path_manager() {
        let with = |subflows, endpoints: &[u8]| host(subflows, endpoints, &[]);
        assert_eq!(kernel_paths(&with(2, &[2]), &Asked::default()), (", over wifi and lte".into(), None));
        assert_eq!(kernel_paths(&with(2, &[1, 2]), &Asked::default()), (", over wifi and lte".into(), None));
        let limits = "for lte too `ip mptcp limits set subflows 1`";
        assert_eq!(
            kernel_paths(&with(0, &[2]), &Asked::default()),
            (", over wifi only".into(), Some(limits.into()))
        );
    }

    #[test]
    fn a_server_s_paths_are_those_that_it_announces() {
        let with = |subflows, signals: &[u8]| host(subflows, &[2], signals);
        let announced =
            |subflows, signals: &[u8]| announced_paths(&with(subflows, signals), &Asked::default());
        assert_eq!(announced(2, &[2]), (", over wifi and lte".into(), None));
        let endpoint = "for lte too `ip mptcp endpoint add 192.0.2.2 dev lte signal`";
        assert_eq!(announced(2, &[1]), (", over wifi only".into(), Some(endpoint.into())));
        let limits = "for lte too `ip mptcp limits set subflows 1`";
        assert_eq!(announced(0, &[2]), (", over wifi only".into(), Some(limits.into())));
        let unknown = Abilities { kernel_paths: None, ..with(2, &[]) };
        let (over, way) = announced_paths(&unknown, &Asked::default());
        assert_eq!(over, ", over wifi and what `ip mptcp endpoint` has as signal");
        assert!(way.is_some_and(|way| way.starts_with("for lte too, unless it has, `ip mptcp")));
    }
}
