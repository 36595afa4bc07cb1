//! Which engine `--engine auto` is: a choice from what the host allows, and the words that tell it.

use polypath_netsetup::abilities::{Abilities, KernelMultipath};
use polypath_relay::Lack;

use super::interfaces::Asked;
use super::kernel_paths::{announced_paths, kernel_paths};
use super::words::{and, as_root};

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
    /// It takes connections: then its addresses are announced, and clients open the subflows.
    pub(super) listens: bool,
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
    /// Why it is not our own stack, and what to do about it.
    pub(super) obstacle: Option<String>,
}

/// Longer commands are not repeated.
const LONGEST_COMMAND: usize = 160;
/// Gives the command what it needs to set up the network, whoever runs it.
const SETCAP: &str = "sudo setcap cap_net_admin+ep \"$(command -v polypath)\"";
/// What comes with [`SETCAP`].
const SETCAP_WARNING: &str = "whoever may run that file may change the network then";
const CHMOD: &str = "sudo chmod 0666 /dev/net/tun";

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
        let without_way = without_way(&uplinks, wanted.asked);
        let line =
            format!("engine tun (our own stack){}{only}{without_way}", over_words(&uplinks, wanted.asked));
        return Choice { carrier: Carrier::Tun, line, obstacle: None };
    };
    let mut ways = Vec::new();
    let over = match multipath {
        Carrier::Kernel => {
            let (over, way) = if wanted.listens {
                announced_paths(abilities, wanted.asked)
            } else {
                kernel_paths(abilities, wanted.asked)
            };
            ways.extend(way);
            over
        }
        _ => {
            if abilities.kernel == KernelMultipath::Off {
                let command = as_root(abilities.is_root, "sysctl -w net.mptcp.enabled=1");
                ways.push(format!("for the kernel's Multipath TCP `{command}`"));
            }
            uplinks.first().map_or(String::new(), |first| format!(", over {first} only"))
        }
    };
    if let Some(command) = &obstacle.command {
        let over = over_words(&uplinks, wanted.asked);
        let warning = obstacle.warning();
        ways.push(format!("for our own stack{} `{command}`{warning}", over.trim_start_matches(',')));
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
    let (mut regular, backups) = asked.parted(uplinks);
    if regular.iter().any(|name| uplinks.contains(name)) {
        regular.retain(|name| uplinks.contains(name));
    }
    match (regular.as_slice(), backups.as_slice()) {
        ([], []) => String::new(),
        ([], backups) => format!(", over {}", and(backups)),
        (regular, []) => format!(", over {}", and(regular)),
        (regular, [backup]) => format!(", over {}, with {backup} as a backup", and(regular)),
        (regular, backups) => format!(", over {}, with {} as backups", and(regular), and(backups)),
    }
}

/// Of those that were asked for, which lead to their own networks at most, while others lead out.
fn without_way(uplinks: &[&str], asked: &Asked) -> String {
    let (regular, _) = asked.parted(uplinks);
    let (out, not): (Vec<&str>, Vec<&str>) = regular.into_iter().partition(|name| uplinks.contains(name));
    match not.as_slice() {
        [] => String::new(),
        _ if out.is_empty() => String::new(),
        [one] => format!("; {one} has no default route (`polypath doctor` tells what to do)"),
        several => format!("; {} have no default routes (`polypath doctor` tells what to do)", and(several)),
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
    /// No engine can do without it.
    is_of_all: bool,
}

impl Obstacle {
    fn in_words(&self) -> String {
        match &self.command {
            Some(command) => {
                format!("{}; expected `{command}` first{}, or --engine udp", self.reason, self.warning())
            }
            None if self.is_of_all => format!("{}; `polypath doctor` tells of each interface", self.reason),
            None => format!("{}; expected --engine udp", self.reason),
        }
    }

    fn warning(&self) -> String {
        let gives_away = self.command.as_ref().is_some_and(|command| command.contains(SETCAP));
        if gives_away { format!(" ({SETCAP_WARNING})") } else { String::new() }
    }
}

fn obstacle(abilities: &Abilities, wanted: &Wanted<'_>) -> Option<Obstacle> {
    let because = |reason: &str, command| Some(Obstacle { reason: reason.into(), command, is_of_all: false });
    if let Some(failed) = wanted.failed {
        return because(&format!("our own stack did not start: {failed}"), None);
    }
    let lacks = Lack::all(abilities);
    let reason = Lack::reason(abilities)?;
    if lacks.contains(&Lack::Capability) && abilities.is_root {
        // In a container no command mends it.
        return because(&reason, None);
    }
    let commands = commands(abilities, wanted, &lacks);
    let command = (!commands.is_empty()).then(|| commands.join(" && "));
    Some(Obstacle { reason, command, is_of_all: lacks.contains(&Lack::Uplink) })
}

/// What mends it, in this order.
fn commands(abilities: &Abilities, wanted: &Wanted<'_>, lacks: &[Lack]) -> Vec<String> {
    let mut commands = Vec::new();
    if lacks.contains(&Lack::Nft) {
        commands.push(as_root(abilities.is_root, "apt-get install nftables"));
    }
    if lacks.contains(&Lack::Device) {
        commands.push(as_root(abilities.is_root, "modprobe tun"));
    }
    let lacks_capability = lacks.contains(&Lack::Capability);
    let lacks_access = lacks.iter().any(|lack| matches!(lack, Lack::DeviceAccess(_)));
    // A program of the user's is not to be root's.
    let is_repeated = !wanted.runs_program && wanted.command.len() <= LONGEST_COMMAND;
    if is_repeated && (lacks_capability || lacks_access) {
        commands.push(format!("sudo {}", wanted.command));
        return commands;
    }
    if lacks_capability {
        commands.push(SETCAP.into());
    }
    if lacks_access {
        commands.push(CHMOD.into());
    }
    commands
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
    use std::net::IpAddr;

    use polypath_netsetup::abilities::{KernelPaths, TunAccess, Uplink};

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
            kernel_paths: Some(KernelPaths { subflows: 2, ..KernelPaths::default() }),
        }
    }

    static ALL: Asked = Asked { only: Vec::new(), backups: Vec::new(), budgets: Vec::new() };

    const WANTED: Wanted<'_> = Wanted {
        is_local: false,
        listens: false,
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
            (&["eth"], &[], "eth"),
            (&["wifi", "eth"], &[], "wifi; eth has no default route (`polypath doctor` tells what to do)"),
        ] {
            let choice = choose(&all(), &Wanted { asked: &asked(only, backups), ..WANTED });
            assert_eq!(choice.line, format!("engine tun (our own stack), over {over}"));
        }
        let user = Abilities { is_admin: false, ..all() };
        let line = choose(&user, &Wanted { asked: &asked(&[], &["lte"]), ..WANTED }).line;
        assert!(line.contains("add 192.0.2.2 dev lte subflow backup`"), "{line}");
    }

    #[test]
    fn what_keeps_the_stack_from_starting_comes_with_what_to_do() {
        let obstacle = |abilities: Abilities| choose(&abilities, &WANTED).obstacle.expect("an obstacle");
        let none = Abilities { uplinks: Vec::new(), ..all() };
        let expected =
            "no interface is up with an address and a route; `polypath doctor` tells of each interface";
        assert_eq!(obstacle(none), expected);
        let no_nft = obstacle(Abilities { has_nft: false, ..all() });
        assert!(no_nft.ends_with("; expected `apt-get install nftables` first, or --engine udp"), "{no_nft}");
        let container = obstacle(Abilities { is_admin: false, ..all() });
        assert!(container.ends_with("/dev/net/tun); expected --engine udp"), "{container}");
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
        let closed = Lack::all(&Abilities { is_admin: true, ..forbidden.clone() })[0];
        for (abilities, wanted, expected) in [
            (user(), WANTED, format!("{over} this user may not change the network (CAP_NET_ADMIN); for our own stack over wifi and lte `sudo polypath get http://a/b`")),
            (user(), program, format!("{over} this user may not change the network (CAP_NET_ADMIN); for our own stack over wifi and lte `{SETCAP}` ({SETCAP_WARNING})")),
            (forbidden.clone(), program, format!("{over} {closed} and this user may not change the network (CAP_NET_ADMIN); for our own stack over wifi and lte `{SETCAP} && {CHMOD}` ({SETCAP_WARNING})")),
            (Abilities { is_admin: true, ..forbidden.clone() }, program, format!("{over} {closed}; for our own stack over wifi and lte `{CHMOD}`")),
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
    fn a_server_announces_its_addresses() {
        let serving = Wanted { listens: true, ..WANTED };
        let line = choose(&Abilities { has_nft: false, ..all() }, &serving).line;
        let expected = "engine kernel (its Multipath TCP), over wifi only, since the program nft is missing; for lte too \
             `ip mptcp endpoint add 192.0.2.2 dev lte signal`";
        assert!(line.starts_with(expected), "{line}");
    }
}
