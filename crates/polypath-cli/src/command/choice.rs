//! Which engine `--engine auto` is: a choice from what the host allows, and the words that tell it.

use std::net::IpAddr;

use polypath_netsetup::abilities::{Abilities, KernelMultipath, TunAccess, Uplink};

use super::interfaces::Asked;

/// What carries the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carrier {
    /// Our own stack behind a TUN device.
    Tun,
    /// The kernel's Multipath TCP.
    Kernel,
    /// The kernel's plain TCP.
    Tcp,
}

/// What the choice is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    /// All peers, or the address at which it listens, are this machine's loopback.
    pub(super) is_local: bool,
    /// Why our own stack did not start, if that was tried.
    pub(super) failed: Option<&'a str>,
    /// What was typed, as a shell would read it.
    pub(super) command: &'a str,
    /// The command runs a program of the user's, who would not want it to be root's.
    pub(super) runs_program: bool,
    /// Which interfaces our own stack would use.
    pub(super) asked: &'a Asked,
}

/// What was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) carrier: Carrier,
    /// The choice and its reason, in one line.
    pub(super) line: String,
    /// Why it is not our own stack.
    pub(super) obstacle: Option<String>,
}

/// Longer commands are not repeated.
const LONGEST_COMMAND: usize = 160;
/// Gives the command what it needs to set up the network, whoever runs it.
const SETCAP: &str = "sudo setcap cap_net_admin+ep \"$(command -v polypath)\"";

/// The best engine that the host allows.
pub(super) fn choose(abilities: &Abilities, wanted: &Wanted<'_>) -> Choice {
    let uplinks: Vec<&str> = abilities.uplinks.iter().map(|uplink| uplink.name.as_str()).collect();
    let multipath = match abilities.kernel {
        KernelMultipath::On => Carrier::Kernel,
        _ => Carrier::Tcp,
    };
    if wanted.is_local {
        let line = format!("engine {}, within this machine", name(multipath));
        return Choice { carrier: multipath, line, obstacle: None };
    }
    let obstacle = obstacle(abilities, wanted);
    let Some(obstacle) = obstacle else {
        let is_only = uplinks.len() == 1 && wanted.asked == &Asked::default();
        let only = if is_only { ", the only uplink" } else { "" };
        let line = format!("engine tun (our own stack){}{only}", over_words(&uplinks, wanted.asked));
        return Choice { carrier: Carrier::Tun, line, obstacle: None };
    };
    let mut ways = Vec::new();
    let over = match multipath {
        Carrier::Kernel => {
            let (over, way) = kernel_paths(abilities, wanted.asked);
            ways.extend(way);
            over
        }
        _ => {
            if abilities.kernel == KernelMultipath::Off {
                let command = as_root(abilities, "sysctl -w net.mptcp.enabled=1");
                ways.push(format!("for the kernel's Multipath TCP `{command}`"));
            }
            uplinks.first().map_or(String::new(), |first| format!(", over {first} only"))
        }
    };
    if let Some(command) = &obstacle.command {
        let over = over_words(&uplinks, wanted.asked);
        ways.push(format!("for our own stack{} `{command}`", over.trim_start_matches(',')));
    }
    let what = match multipath {
        Carrier::Kernel => "engine kernel (its Multipath TCP)",
        _ => "engine tcp (the kernel's plain TCP)",
    };
    let ways = if ways.is_empty() { String::new() } else { format!("; {}", ways.join(", or ")) };
    let line = format!("{what}{over}, since {}{ways}", obstacle.reason);
    Choice { carrier: multipath, line, obstacle: Some(obstacle.in_words()) }
}

/// Over which interfaces our own stack goes: `, over wlan0, with wwan0 as a backup`.
fn over_words(uplinks: &[&str], asked: &Asked) -> String {
    let (regular, backups) = asked.parted(uplinks);
    match (regular.as_slice(), backups.as_slice()) {
        ([], []) => String::new(),
        ([], backups) => format!(", over {}", and(backups)),
        (regular, []) => format!(", over {}", and(regular)),
        (regular, [backup]) => format!(", over {}, with {backup} as a backup", and(regular)),
        (regular, backups) => format!(", over {}, with {} as backups", and(regular), and(backups)),
    }
}

pub(super) fn name(carrier: Carrier) -> &'static str {
    match carrier {
        Carrier::Tun => "tun",
        Carrier::Kernel => "kernel",
        Carrier::Tcp => "tcp",
    }
}

/// What our own stack lacks, and the command that brings it.
struct Obstacle {
    reason: String,
    command: Option<String>,
}

impl Obstacle {
    fn in_words(&self) -> String {
        match &self.command {
            Some(command) => format!("{}; expected `{command}` first", self.reason),
            None => self.reason.clone(),
        }
    }
}

fn obstacle(abilities: &Abilities, wanted: &Wanted<'_>) -> Option<Obstacle> {
    let because = |reason: &str, command| Some(Obstacle { reason: reason.into(), command });
    if let Some(failed) = wanted.failed {
        return because(&format!("our own stack did not start: {failed}"), None);
    }
    if abilities.uplinks.is_empty() {
        return because("no interface is up with an address and a route", None);
    }
    let mut commands = Vec::new();
    let mut reasons = Vec::new();
    if !abilities.has_nft {
        reasons.push("the program nft is missing");
        commands.push(as_root(abilities, "apt-get install nftables"));
    }
    if abilities.tun == TunAccess::Missing {
        reasons.push("/dev/net/tun is missing");
        commands.push(as_root(abilities, "modprobe tun"));
    }
    let is_forbidden = abilities.tun == TunAccess::Forbidden;
    if !abilities.is_admin && abilities.is_root {
        // A container; what it may is decided where it is started.
        let reason = "this container may not change the network (start it with --cap-add=NET_ADMIN --device=/dev/net/tun)";
        return because(reason, None);
    }
    if !abilities.is_admin || is_forbidden {
        reasons.push(if abilities.is_admin {
            "this user may not open /dev/net/tun"
        } else {
            "this user may not change the network (CAP_NET_ADMIN)"
        });
        commands.push(as_administrator(wanted, is_forbidden));
    }
    if reasons.is_empty() {
        return None;
    }
    because(&reasons.join(" and "), Some(commands.join(" && ")))
}

fn as_administrator(wanted: &Wanted<'_>, needs_device: bool) -> String {
    match (wanted.runs_program || wanted.command.len() > LONGEST_COMMAND, needs_device) {
        (false, _) => format!("sudo {}", wanted.command),
        (true, false) => SETCAP.into(),
        (true, true) => format!("{SETCAP} && sudo chmod 0666 /dev/net/tun"),
    }
}

fn as_root(abilities: &Abilities, command: &str) -> String {
    if abilities.is_root { command.into() } else { format!("sudo {command}") }
}

/// Over which uplinks the kernel's connections go, and what to do for the others.
fn kernel_paths(abilities: &Abilities, asked: &Asked) -> (String, Option<String>) {
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
    let commands: Vec<String> = commands.iter().map(|command| as_root(abilities, command)).collect();
    (over_words, Some(format!("for {} too `{}`", and(&unused), commands.join(" && "))))
}

/// `wifi, lte and eth0`.
pub(super) fn and(names: &[&str]) -> String {
    match names.split_last() {
        None => String::new(),
        Some((last, [])) => (*last).to_string(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

/// What was typed, for a shell. Where `sudo` would not find the command, with the place where it is.
pub(super) fn typed() -> String {
    let mut words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let program = words.next().unwrap_or_default();
    let quoted = |word: String| shlex::try_quote(&word).map(|word| word.into_owned()).unwrap_or(word.clone());
    let place = std::env::current_exe().ok();
    let folder = place.as_deref().and_then(std::path::Path::parent);
    let is_usual = folder.is_some_and(|folder| {
        ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
            .iter()
            .any(|usual| folder == std::path::Path::new(usual))
    });
    let program = match program.contains('/') {
        false if !is_usual => "\"$(command -v polypath)\"".to_string(),
        _ => quoted(program),
    };
    std::iter::once(program).chain(words.map(quoted)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use polypath_netsetup::abilities::KernelPaths;

    use super::*;

    /// Two uplinks, everything there and everything allowed.
    fn all() -> Abilities {
        let uplink = |name: &str, number| Uplink {
            name: name.into(),
            addresses: vec![IpAddr::from([192, 0, 2, number])],
        };
        Abilities {
            is_admin: true,
            is_root: true,
            tun: TunAccess::Open,
            has_nft: true,
            uplinks: vec![uplink("wifi", 1), uplink("lte", 2)],
            kernel: KernelMultipath::On,
            kernel_paths: Some(KernelPaths { subflows: 2, subflow_endpoints: Vec::new() }),
        }
    }

    static ALL: Asked = Asked { only: Vec::new(), backups: Vec::new(), hard_budgets: Vec::new() };

    const WANTED: Wanted<'_> = Wanted {
        is_local: false,
        failed: None,
        command: "polypath get http://a/b",
        runs_program: false,
        asked: &ALL,
    };

    fn asked(only: &[&str], backups: &[&str]) -> Asked {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_string()).collect();
        Asked { only: owned(only), backups: owned(backups), ..ALL.clone() }
    }

    #[test]
    fn our_own_stack_is_taken_where_everything_is_there() {
        let choice = choose(&all(), &WANTED);
        assert_eq!(
            choice,
            Choice {
                carrier: Carrier::Tun,
                line: "engine tun (our own stack), over wifi and lte".into(),
                obstacle: None
            }
        );
        let mut one = all();
        one.uplinks.truncate(1);
        assert_eq!(choose(&one, &WANTED).line, "engine tun (our own stack), over wifi, the only uplink");
    }

    #[test]
    fn what_was_asked_for_is_told() {
        for (only, backups, over) in [
            (&["wifi"][..], &[][..], "wifi"),
            (&[], &["lte"], "wifi, with lte as a backup"),
            (&["wifi", "lte"], &["lte"], "wifi, with lte as a backup"),
            (&["wifi"], &["lte", "eth"], "wifi, with lte and eth as backups"),
            (&["lte"], &["lte"], "lte"),
        ] {
            let choice = choose(&all(), &Wanted { asked: &asked(only, backups), ..WANTED });
            assert_eq!(choice.line, format!("engine tun (our own stack), over {over}"));
        }
        let user = Abilities { is_admin: false, ..all() };
        let line = choose(&user, &Wanted { asked: &asked(&[], &["lte"]), ..WANTED }).line;
        assert!(line.contains("add 192.0.2.2 dev lte subflow backup`"), "{line}");
    }

    #[test]
    fn loopback_is_the_kernel_s() {
        let choice = choose(&all(), &Wanted { is_local: true, ..WANTED });
        assert_eq!(
            (choice.carrier, choice.line.as_str()),
            (Carrier::Kernel, "engine kernel, within this machine")
        );
    }

    #[test]
    fn what_is_missing_is_named_with_the_command_that_brings_it() {
        let user = || Abilities { is_admin: false, is_root: false, kernel_paths: None, ..all() };
        let forbidden = Abilities { tun: TunAccess::Forbidden, ..user() };
        let program = Wanted { runs_program: true, ..WANTED };
        let over =
            "engine kernel (its Multipath TCP), over wifi and what `ip mptcp endpoint` has besides, since";
        let lte = "for lte too `ip mptcp endpoint add 192.0.2.2 dev lte subflow`";
        for (abilities, wanted, expected) in [
            (user(), WANTED, format!("{over} this user may not change the network (CAP_NET_ADMIN); for our own stack over wifi and lte `sudo polypath get http://a/b`")),
            (user(), program, format!("{over} this user may not change the network (CAP_NET_ADMIN); for our own stack over wifi and lte `{SETCAP}`")),
            (forbidden, program, format!("{over} this user may not change the network (CAP_NET_ADMIN); for our own stack over wifi and lte `{SETCAP} && sudo chmod 0666 /dev/net/tun`")),
            (Abilities { has_nft: false, ..user() }, WANTED, format!("{over} the program nft is missing and this user may not change the network (CAP_NET_ADMIN); for our own stack over wifi and lte `sudo apt-get install nftables && sudo polypath get http://a/b`")),
            (Abilities { has_nft: false, ..all() }, WANTED, format!("engine kernel (its Multipath TCP), over wifi only, since the program nft is missing; {lte}, or for our own stack over wifi and lte `apt-get install nftables`")),
            (Abilities { is_admin: false, ..all() }, WANTED, format!("engine kernel (its Multipath TCP), over wifi only, since this container may not change the network (start it with --cap-add=NET_ADMIN --device=/dev/net/tun); {lte}")),
            (Abilities { has_nft: false, kernel: KernelMultipath::Off, ..all() }, WANTED, "engine tcp (the kernel's plain TCP), over wifi only, since the program nft is missing; for the kernel's Multipath TCP `sysctl -w net.mptcp.enabled=1`, or for our own stack over wifi and lte `apt-get install nftables`".into()),
            (Abilities { uplinks: Vec::new(), ..all() }, WANTED, "engine kernel (its Multipath TCP), since no interface is up with an address and a route".into()),
            (all(), Wanted { failed: Some("no places"), ..WANTED }, format!("engine kernel (its Multipath TCP), over wifi only, since our own stack did not start: no places; {lte}")),
        ] {
            assert_eq!(choose(&abilities, &wanted).line, expected);
        }
    }

    #[test]
    fn the_kernel_s_paths_are_those_of_its_path_manager() {
        let with = |subflows, endpoints: &[u8]| Abilities {
            kernel_paths: Some(KernelPaths {
                subflows,
                subflow_endpoints: endpoints.iter().map(|last| IpAddr::from([192, 0, 2, *last])).collect(),
            }),
            ..all()
        };
        assert_eq!(kernel_paths(&with(2, &[2]), &ALL), (", over wifi and lte".into(), None));
        assert_eq!(kernel_paths(&with(2, &[1, 2]), &ALL), (", over wifi and lte".into(), None));
        let limits = "for lte too `ip mptcp limits set subflows 1`";
        assert_eq!(kernel_paths(&with(0, &[2]), &ALL), (", over wifi only".into(), Some(limits.into())));
    }

    #[test]
    fn names_are_joined_as_people_do() {
        assert_eq!(and(&[]), "");
        assert_eq!(and(&["a"]), "a");
        assert_eq!(and(&["a", "b", "c"]), "a, b and c");
    }
}
