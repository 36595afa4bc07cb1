//! What the help of each command has besides its options' own: two examples, the names that options take, and one spelling for
//! what several commands have.

use clap::{Arg, Command, CommandFactory};
use polypath_config::{Policies, PolicyKind};
use polypath_congestion::Algorithms;
use polypath_mptcp::path_manager::PathManagers;
use polypath_mptcp::scheduler::Schedulers;
use polypath_units::named::Named;

use super::Polypath;

/// What examples stand below, in commands' own text, too.
const TITLE: &str = "Examples:";

/// Two lines for each command that has none in its own text. A test reads them as the command does.
const EXAMPLES: &[(&str, [&str; 2])] = &[
    (
        "polypath",
        ["polypath run -- curl -O http://example.org/file", "polypath doctor --peer example.org:443"],
    ),
    ("polypath bench", ["polypath bench sim", "polypath bench middleboxes --json"]),
    ("polypath bench attacks", ["polypath bench attacks", "polypath bench attacks --json"]),
    (
        "polypath bench backends",
        ["polypath bench backends --sets 5", "polypath bench backends --no-kernel --json"],
    ),
    (
        "polypath bench behaviour",
        [
            "polypath bench behaviour --out before.txt",
            "polypath bench behaviour --against before.txt --only soak",
        ],
    ),
    (
        "polypath bench disturbed",
        [
            "polypath bench disturbed --file-size 20MB",
            "polypath bench disturbed --only lie --repeats 3 --json",
        ],
    ),
    (
        "polypath bench emulate",
        ["polypath bench emulate --rates 10,100", "polypath bench emulate --delay 5ms --json"],
    ),
    (
        "polypath bench fetch",
        ["polypath bench fetch --only 20+10 --file-size 20MB", "polypath bench fetch --repeats 3 --json"],
    ),
    (
        "polypath bench fuzz",
        ["polypath bench fuzz --packets 100000", "polypath bench fuzz --seed 7 --trace run.txt"],
    ),
    (
        "polypath bench handover",
        [
            "polypath bench handover --repeats 3",
            "polypath bench handover --engines ours-tun,kernel-mptcp --json",
        ],
    ),
    (
        "polypath bench middleboxes",
        ["polypath bench middleboxes", "polypath bench middleboxes --only nat --trace packets.txt"],
    ),
    (
        "polypath bench never-slower",
        [
            "polypath bench never-slower --sets 100",
            "polypath bench never-slower --scheduler redundant --json",
        ],
    ),
    (
        "polypath bench proxy-crowd",
        [
            "polypath bench proxy-crowd",
            "polypath bench proxy-crowd --connections 500 --slow 100 --seconds 60 --json",
        ],
    ),
    (
        "polypath bench proxy",
        [
            "polypath bench proxy --systems polypath-tcp,nginx,haproxy",
            "polypath bench proxy --services socks --json",
        ],
    ),
    (
        "polypath bench rate",
        ["polypath bench rate --seconds 2", "polypath bench rate --bytes 1000 --concurrent 32 --json"],
    ),
    (
        "polypath bench sim",
        ["polypath bench sim", "polypath bench sim --connections 10 --congestion cubic --json"],
    ),
    (
        "polypath bench state",
        ["polypath bench state --connections 10000", "polypath bench state --runs 3 --json"],
    ),
    (
        "polypath bench throughput",
        ["polypath bench throughput --seconds 5", "polypath bench throughput --paths 1 --mtu 9000 --json"],
    ),
    ("polypath completions", ["polypath completions bash", "polypath completions fish"]),
    (
        "polypath cp",
        [
            "polypath cp -r photos polypath://example.org/",
            "polypath cp -C polypath://example.org/video.mkv .",
        ],
    ),
    (
        "polypath bench tunnel",
        [
            "polypath bench tunnel --peers target/tunnels/bin",
            "polypath bench tunnel --flavours --rounds 2 --json",
        ],
    ),
    ("polypath demo", ["polypath demo", "polypath demo --virtual --cut wifi@2s..5s --report demo.html"]),
    ("polypath disable", ["polypath disable nginx.service", "polypath disable --all"]),
    ("polypath doctor", ["polypath doctor", "polypath doctor --peer example.org:443 -I wlan0 --json"]),
    (
        "polypath emulate",
        ["polypath emulate links.toml", "polypath emulate links.toml --duration 30s --json"],
    ),
    (
        "polypath enable",
        ["polypath enable nginx.service", "polypath enable rsync.service --engine kernel --dry-run"],
    ),
    (
        "polypath get",
        [
            "polypath get http://example.org/video.mkv",
            "polypath get -C -I wlan0,wwan0 --engine udp polypath://example.org/file",
        ],
    ),
    ("polypath lab", ["polypath lab list", "polypath lab run experiments/low-bdp.toml"]),
    (
        "polypath lab compare",
        ["polypath lab compare results/old results/new", "polypath lab compare old new --threshold 0.1"],
    ),
    ("polypath lab list", ["polypath lab list", "polypath lab list experiments --json"]),
    (
        "polypath lab run",
        [
            "polypath lab run experiments/low-bdp.toml",
            "polypath lab run experiments/low-bdp.toml --full --jobs 4",
        ],
    ),
    (
        "polypath lab show",
        ["polypath lab show results/low-bdp", "polypath lab show results/low-bdp --worst 5"],
    ),
    ("polypath man", ["polypath man /usr/local/share/man/man1", "polypath man ."]),
    (
        "polypath path endpoint",
        ["polypath path endpoint change wwan0 backup", "polypath path endpoint add wlan0 priority 1"],
    ),
    (
        "polypath path limits",
        ["polypath path limits show", "polypath path limits set subflows 4 add_addr_accepted 4"],
    ),
    (
        "polypath path priority",
        ["polypath path priority wlan0 1", "polypath path priority 192.0.2.7 2 --all"],
    ),
    (
        "polypath path scheduler",
        ["polypath path scheduler show", "polypath path scheduler set redundant --pid 4711"],
    ),
    ("polypath path show", ["polypath path show", "polypath path show --json"]),
    ("polypath perf", ["polypath perf -s", "polypath perf -c example.org -t 30 -R"]),
    (
        "polypath preload",
        [
            "polypath preload -- rsync -a rsync://example.org/files files",
            "polypath preload --engine tcp -- ssh example.org",
        ],
    ),
    (
        "polypath proxy",
        [
            "polypath proxy --socks 1080 --transparent 8877 -I wlan0,wwan0",
            "polypath proxy --accept kernel --engine tcp --forward 0.0.0.0:443=192.0.2.1:443",
        ],
    ),
    ("polypath proxy down", ["polypath proxy down", "polypath proxy down --instance office"]),
    ("polypath proxy reload", ["polypath proxy reload", "polypath proxy reload --instance office"]),
    (
        "polypath proxy set",
        [
            "polypath proxy set video --rate 5mbit --host *.example.org --direction down",
            "polypath proxy set guests --client 10.0.0.0/24 --without budget",
        ],
    ),
    ("polypath proxy status", ["polypath proxy status", "polypath proxy status --instance office --json"]),
    ("polypath proxy unset", ["polypath proxy unset video", "polypath proxy unset guests --instance office"]),
    (
        "polypath reorder",
        [
            "polypath reorder received.pcapng --sequence mptcp --report reordering.html",
            "polypath reorder --tunnel polypath-vpn --duration 1min",
        ],
    ),
    (
        "polypath run",
        [
            "polypath run -- curl -O http://example.org/file",
            "polypath run -p 8080:80 -I eth0,eth1 --engine tun -- nginx",
        ],
    ),
    ("polypath schema", ["polypath schema scenario", "polypath schema proxy"]),
    (
        "polypath serve",
        [
            "polypath serve --listen 127.0.0.1:8080 --writable --quiet photos",
            "polypath serve --listen 8443 --tls-self-signed=cert.pem --limit-rate 40mbit photos",
        ],
    ),
    (
        "polypath sim",
        ["polypath sim examples/wifi-lte.toml", "polypath sim examples/wifi-lte.toml --seed 7 --quiet"],
    ),
    (
        "polypath stream",
        [
            "polypath stream https://example.org/film.mpd",
            "polypath stream -I wlan0,wwan0 --player mpv https://example.org/live.m3u8",
        ],
    ),
    ("polypath soak", ["polypath soak --count 1000", "polypath soak --seed 7 --trace packets.txt"]),
    (
        "polypath tunnel",
        ["polypath tunnel keygen server.toml --endpoint vpn.example.org", "polypath tunnel up laptop.toml"],
    ),
    (
        "polypath tunnel add-peer",
        [
            "polypath tunnel add-peer server.toml --label laptop --out laptop.toml",
            "polypath tunnel add-peer server.toml --label phone --wireguard --routes 0.0.0.0/0,::/0 --qr",
        ],
    ),
    ("polypath tunnel down", ["polypath tunnel down", "polypath tunnel down polypath-vpn"]),
    (
        "polypath tunnel keygen",
        ["polypath tunnel keygen server.toml --endpoint vpn.example.org", "polypath tunnel keygen"],
    ),
    ("polypath tunnel reload", ["polypath tunnel reload", "polypath tunnel reload polypath-vpn"]),
    ("polypath tunnel status", ["polypath tunnel status", "polypath tunnel status polypath-vpn --json"]),
    ("polypath tunnel up", ["polypath tunnel up server.toml", "polypath tunnel up laptop.toml --quiet"]),
];

/// What the value of an option is called, whichever command has it.
const VALUE_NAMES: &[(&str, &str)] = &[
    ("bytes", "BYTES"),
    ("concurrent", "N"),
    ("congestion", "NAME"),
    ("connections", "N"),
    ("count", "N"),
    ("engine", "NAME"),
    ("engines", "NAME"),
    ("jobs", "N"),
    ("megabytes", "MB"),
    ("mtu", "BYTES"),
    ("port", "PORT"),
    ("repeats", "N"),
    ("rounds", "N"),
    ("runs", "N"),
    ("scheduler", "NAME"),
    ("seconds", "SECONDS"),
    ("seed", "SEED"),
    ("seeds", "N"),
    ("sets", "N"),
    ("single-path-congestion", "NAME"),
    ("threads", "N"),
];

/// The short form of an option, whichever command has it: where ss, iperf3 and curl have one, theirs.
const SHORT_FORMS: &[(&str, char)] = &[("interface", 'I'), ("json", 'J'), ("listen", 'l'), ("quiet", 'q')];

/// The whole command.
pub(super) fn command(policies: &Policies) -> Command {
    dress(Polypath::command(), "polypath", policies)
}

fn dress(command: Command, path: &str, policies: &Policies) -> Command {
    let command = command.mut_args(|arg| spell(arg, policies)).mut_subcommands(|inner| {
        let path = format!("{path} {}", inner.get_name());
        dress(inner, &path, policies)
    });
    let long = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    if long.contains(TITLE) {
        return command.after_help(long);
    }
    let Some((_, examples)) = EXAMPLES.iter().find(|(of, _)| *of == path) else { return command };
    let header = command.get_styles().get_header();
    let examples = format!("{header}{TITLE}{header:#}\n  {}\n  {}", examples[0], examples[1]);
    if long.is_empty() {
        return command.after_help(examples);
    }
    command.after_long_help(format!("{long}\n\n{examples}")).after_help(examples)
}

/// What several commands have is spelt the same in all of them.
fn spell(arg: Arg, policies: &Policies) -> Arg {
    let Some(long) = arg.get_long().map(str::to_string) else { return arg };
    let arg = match VALUE_NAMES.iter().find(|(of, _)| *of == long) {
        Some((_, name)) if takes_value(&arg) => arg.value_name(*name),
        _ => arg,
    };
    let arg = match value_name(&arg) {
        Some(name) if arg.get_value_delimiter() == Some(',') && !name.contains(',') => {
            arg.value_name(format!("{name}[,...]"))
        }
        _ => arg,
    };
    let arg = match SHORT_FORMS.iter().find(|(of, _)| *of == long) {
        Some((_, short)) => arg.short(*short),
        None => arg,
    };
    match long.as_str() {
        "scheduler" => with_names::<Schedulers>(arg, policies),
        "path-manager" => with_names::<PathManagers>(arg, policies),
        "congestion" | "congestion-control" | "single-path-congestion" => {
            with_names::<Algorithms>(arg, policies)
        }
        _ => arg,
    }
}

fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values()
}

fn value_name(arg: &Arg) -> Option<String> {
    if !takes_value(arg) {
        return None;
    }
    let of_id = || arg.get_id().as_str().to_uppercase();
    Some(arg.get_value_names().and_then(|names| names.first()).map_or_else(of_id, ToString::to_string))
}

/// Tells which policies there are, as clap does of choices that it knows itself.
fn with_names<K: PolicyKind>(arg: Arg, policies: &Policies) -> Arg {
    let names: Vec<&str> = policies.all::<K>().map(Named::name).collect();
    let text = arg.get_help().map(ToString::to_string).unwrap_or_default();
    arg.help(format!("{text} [possible values: {}]", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clap::FromArgMatches;

    use super::*;

    /// What these take is of another kind in each command: one value or two, a file or a folder, a host or what runs there.
    const OWN_VALUES: &[&str] = &["delay", "listen", "only", "out", "output", "path", "peer", "user"];

    /// Commands in the words of other programs: iperf3, ss and top.
    const IN_OTHERS_WORDS: &[&str] = &["polypath perf", "polypath ss", "polypath top"];

    /// An option that is spelt as another program spells it; those of engines and of live views are ours, those of downloads in ranges curl's.
    fn is_others(path: &str, arg: &Arg) -> bool {
        matches!(arg.get_help_heading(), Some("Ranges" | "HTTP"))
            || IN_OTHERS_WORDS.contains(&path)
                && !matches!(arg.get_help_heading(), Some("Engine" | "Live view"))
    }

    /// All commands that are shown, each with all the words that call it.
    fn commands() -> Vec<(String, Command)> {
        let mut found = vec![("polypath".to_string(), command(&Policies::default()))];
        let mut at = 0;
        while let Some((path, command)) = found.get(at).cloned() {
            let inner = command.get_subcommands().filter(|inner| !inner.is_hide_set());
            found.extend(inner.map(|inner| (format!("{path} {}", inner.get_name()), inner.clone())));
            at += 1;
        }
        found
    }

    /// The words of a line, where a group in single quotes is one.
    fn words(line: &str) -> Vec<String> {
        let parts = line.split('\'').enumerate();
        parts
            .flat_map(|(index, part)| match index % 2 {
                0 => part.split_whitespace().map(str::to_string).collect(),
                _ => vec![part.to_string()],
            })
            .collect()
    }

    #[test]
    fn every_command_ends_its_help_with_two_examples_that_it_understands() {
        let commands = commands();
        for (path, command) in &commands {
            let help = command.clone().render_long_help().to_string();
            let (_, examples) = help.rsplit_once(TITLE).unwrap_or_else(|| {
                panic!("{path} has no examples; expected two in EXAMPLES of command/help.rs")
            });
            let examples: Vec<&str> = examples.trim().lines().map(str::trim).collect();
            assert!(examples.len() >= 2, "{path}: {examples:?}");
            for example in examples {
                assert!(example.starts_with(path.as_str()), "{path}: {example}");
                let matches = super::command(&Policies::default()).try_get_matches_from(words(example));
                let matches = matches.unwrap_or_else(|error| panic!("{example}: {error}"));
                assert!(Polypath::from_arg_matches(&matches).is_ok(), "{example}");
            }
        }
        #[cfg(feature = "full")]
        for (of, _) in EXAMPLES {
            assert!(commands.iter().any(|(path, _)| path == of), "{of} is no command");
        }
    }

    #[test]
    fn an_option_is_spelt_the_same_in_every_command() {
        let mut spelt: BTreeMap<String, BTreeMap<_, Vec<String>>> = BTreeMap::new();
        for (path, command) in commands() {
            for arg in command.get_arguments().filter(|arg| !is_others(&path, arg)) {
                let Some(long) = arg.get_long() else { continue };
                let value = value_name(arg).filter(|_| !OWN_VALUES.contains(&long));
                let value = value.map(|name| name.trim_end_matches("[,...]").to_string());
                let spelling = (arg.get_short(), value);
                spelt.entry(long.into()).or_default().entry(spelling).or_default().push(path.clone());
            }
        }
        let differing: Vec<_> = spelt.iter().filter(|(_, spellings)| spellings.len() > 1).collect();
        assert!(differing.is_empty(), "{differing:#?}");
    }

    #[test]
    fn json_is_a_flag_and_choices_are_listed() {
        for (path, command) in commands() {
            for arg in command.get_arguments() {
                let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(!help.is_empty(), "{path} {}: no help", arg.get_id());
                assert!(!arg.is_hide_possible_values_set(), "{path} {}: choices are hidden", arg.get_id());
                if arg.get_long() == Some("json") {
                    let as_others = help.starts_with("Print") && help.contains("JSON");
                    assert!(as_others && !takes_value(arg) && arg.get_short() == Some('J'), "{path}: {help}");
                }
                if matches!(arg.get_long(), Some("scheduler" | "path-manager")) {
                    assert!(help.contains("[possible values: "), "{path}: {help}");
                }
            }
        }
    }
}
