//! `docs/defaults.md`, the documentation of each setting and the help of the command say what the code does.

use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::Command;

use polypath_lab::experiment::defaults as experiments;
use polypath_link::queue::QueueLimit;
use polypath_mptcp::path_manager::Limits;
use polypath_mptcp::{ConnectionConfig, HostConfig, JudgePaths, LiaOnSharedAccess};
use polypath_sim::scenario::defaults;
use polypath_stack::engine::Keepalive;
use polypath_units::Duration;
use polypath_wire::MptcpVersion;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A value as documentation writes it.
trait InWords {
    fn in_words(&self) -> String;
}

impl InWords for bool {
    fn in_words(&self) -> String {
        if *self { "on" } else { "off" }.into()
    }
}

/// Thousands stand apart from 10 000 on.
fn number(value: u64) -> String {
    let digits = value.to_string();
    if digits.len() < 5 {
        return digits;
    }
    let groups = digits.as_bytes().rchunks(3).rev();
    groups.map(String::from_utf8_lossy).collect::<Vec<_>>().join(" ")
}

macro_rules! numbers_in_words {
    ($($number:ty),*) => {$(
        impl InWords for $number {
            fn in_words(&self) -> String {
                number(u64::try_from(*self).expect("a number"))
            }
        }
    )*};
}

numbers_in_words!(u8, u16, u32, usize);

/// Those of 64 bits are bytes.
impl InWords for u64 {
    fn in_words(&self) -> String {
        let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
        let unit = units.into_iter().find(|(shift, _)| self.trailing_zeros() >= *shift && *self > 0);
        unit.map_or_else(|| number(*self), |(shift, unit)| format!("{} {unit}", self >> shift))
    }
}

impl InWords for Duration {
    fn in_words(&self) -> String {
        match self.as_millis() {
            millis if millis % 1000 == 0 => format!("{} s", millis / 1000),
            millis => format!("{millis} ms"),
        }
    }
}

impl InWords for Option<Duration> {
    fn in_words(&self) -> String {
        self.map_or_else(|| "none".into(), |span| span.in_words())
    }
}

impl InWords for RangeInclusive<u16> {
    fn in_words(&self) -> String {
        format!("{} to {}", number((*self.start()).into()), number((*self.end()).into()))
    }
}

impl InWords for QueueLimit {
    fn in_words(&self) -> String {
        match self {
            Self::Packets(packets) => format!("{} packets", number(*packets)),
            other => panic!("{other:?}"),
        }
    }
}

impl InWords for MptcpVersion {
    fn in_words(&self) -> String {
        if *self == Self::V0 { "0" } else { "1" }.into()
    }
}

impl InWords for JudgePaths {
    fn in_words(&self) -> String {
        let name = Self::ALL.into_iter().find(|(_, known)| known == self).expect("a name").0;
        format!("`{name}`")
    }
}

impl InWords for LiaOnSharedAccess {
    fn in_words(&self) -> String {
        match self {
            Self::WithDefault => "with the default congestion control",
            Self::Always => "always",
            Self::Never => "never",
        }
        .into()
    }
}

macro_rules! names_in_words {
    ($($policy:ty),*) => {$(
        impl InWords for $policy {
            fn in_words(&self) -> String {
                format!("`{self}`")
            }
        }
    )*};
}

impl InWords for polypath_tcp::LossDetection {
    fn in_words(&self) -> String {
        match self {
            Self::RackTlp => "RACK-TLP".into(),
            Self::RackPatient => "patient RACK-TLP".into(),
            Self::ByCount(threshold) => format!("{} duplicates", threshold.least),
        }
    }
}

impl InWords for polypath_tcp::ForwardRto {
    fn in_words(&self) -> String {
        match self {
            Self::WithoutTimestamps => "without timestamps",
            Self::Off => "off",
            Self::Basic => "basic",
            Self::Sack => "SACK",
        }
        .into()
    }
}

names_in_words!(
    polypath_congestion::Policy,
    polypath_mptcp::scheduler::Policy,
    polypath_mptcp::path_manager::Policy
);

/// The fields of a struct and their values in words. All of them: a new one is an error here until it is named.
macro_rules! settings {
    ($type:path, $value:expr; $($field:ident),* $(,)?; $($other:ident),* $(,)?) => {{
        let $type { $($field,)* $($other: _,)* } = $value;
        vec![$((stringify!($field), $field.in_words())),*]
    }};
}

type Settings = Vec<(&'static str, String)>;

fn connection() -> Settings {
    settings!(ConnectionConfig, ConnectionConfig::default();
        mptcp, version, checksum, no_join_initial, congestion, lia_on_shared_access, scheduler, path_manager, race,
        catch_up, receive_autotuning, max_mapping_bytes, syn_retries_before_fallback, stale_loss_count, judge_paths,
        no_subflow_timeout, add_addr_timeout; tcp)
}

fn host() -> Settings {
    settings!(HostConfig, HostConfig::default();
        ephemeral_ports, max_connections, backlog, backlog_per_source, max_half_open_joins, max_time_wait, max_replies,
        resets_per_second, challenge_acks_per_second, join_hmacs_per_second, receive_memory_bytes,
        max_announced_addresses; connection, endpoints, limits)
}

fn loss_recovery() -> Settings {
    settings!(polypath_tcp::LossRecovery, polypath_tcp::LossRecovery::default();
        detection, duplicate_reports, forward_rto;)
}

fn tcp_host() -> Settings {
    settings!(polypath_tcp::HostConfig, polypath_tcp::HostConfig::default();
        congestion, ephemeral_ports, max_connections, max_time_wait, max_replies, resets_per_second,
        challenge_acks_per_second; connection)
}

fn tcp_listener() -> Settings {
    settings!(polypath_tcp::ListenConfig, polypath_tcp::ListenConfig::default(); backlog, backlog_per_source;)
}

fn limits() -> Settings {
    settings!(Limits, Limits::default(); subflows, add_addr_accepted;)
}

fn tcp() -> Settings {
    settings!(polypath_tcp::Config, polypath_tcp::Config::default();
        receive_buffer_bytes, send_buffer_bytes, mtu_bytes, min_mtu_bytes, max_aggregate_bytes, timestamps, sack,
        window_scaling, initial_window_packets, min_ssthresh_packets, min_rto, max_rto, initial_rto, syn_retries,
        syn_ack_retries, retries, delayed_ack, quick_ack_packets, no_delay, keepalive_idle, keepalive_interval,
        keepalive_probes, user_timeout, time_wait, fin_wait_2, orphan_timeout, pacing, pacing_burst_bytes,
        mtu_probing, max_reassembly_gaps, challenge_acks_per_second, challenge_acks_in_a_row; loss_recovery)
}

fn scenario() -> Settings {
    vec![
        ("seed", defaults::SEED.to_string()),
        ("sample-interval", defaults::SAMPLE_INTERVAL.in_words()),
        ("port", defaults::FIRST_PORT.to_string()),
        ("limit", defaults::LIMIT.in_words()),
        ("receive-buffer", polypath_tcp::Config::default().receive_buffer_bytes.in_words()),
        ("send-buffer", polypath_tcp::Config::default().send_buffer_bytes.in_words()),
        ("REORDER_DELAY", defaults::REORDER_DELAY.in_words()),
    ]
}

fn experiment() -> Settings {
    vec![
        ("paths", experiments::PATHS.in_words()),
        ("repeats", experiments::REPEATS.in_words()),
        ("seed", experiments::SEED.in_words()),
        ("designs", experiments::DESIGNS.in_words()),
        ("timeout", experiments::TIMEOUT.in_words()),
        ("shape", experiments::SHAPE.to_string()),
        ("packet", experiments::PACKET_BYTES.in_words()),
    ]
}

/// Options of the command whose defaults are worth knowing: the command, the option, the default.
const OPTIONS: &[(&str, &str, &str)] = &[
    ("get", "--engine", "auto"),
    ("get", "--scheduler", "default"),
    ("get", "--path-manager", "endpoints"),
    ("get", "--congestion-control", "cubic, and lia for a further subflow over the same access link"),
    ("get", "--udp-port", "6824"),
    ("get", "--keepalive", "60"),
    ("serve", "--listen", "[::]:8077"),
    ("perf", "--port", "5201"),
    ("demo", "--scheduler", "default"),
    ("demo", "--congestion", "cubic, and lia for a further subflow over the same access link"),
    ("bench sim", "--congestion", "lia"),
    ("bench never-slower", "--scheduler", "default"),
];

/// First and second cell of each row of the table below a heading.
fn table<'a>(document: &'a str, heading: &str) -> Vec<(&'a str, &'a str)> {
    let heading = format!("## {heading}\n");
    let below = document.split_once(&heading).unwrap_or_else(|| panic!("no {heading}")).1;
    let lines = below.lines().skip_while(|line| !line.starts_with('|')).skip(2);
    let rows = lines.take_while(|line| line.starts_with('|')).map(|line| {
        let mut cells = line.trim_matches('|').split(" | ").map(str::trim);
        (cells.next().unwrap_or_default().trim_matches('`'), cells.next().unwrap_or_default())
    });
    rows.collect()
}

#[test]
fn the_document_states_the_defaults() {
    let document = read("docs/defaults.md");
    for (heading, settings) in [
        ("A connection", connection()),
        ("A host", host()),
        ("Limits of path managers", limits()),
        ("TCP, and each subflow", tcp()),
        ("Loss recovery", loss_recovery()),
        ("A host of TCP alone", tcp_host()),
        ("A listener of TCP alone", tcp_listener()),
        ("Scenario files", scenario()),
        ("Experiment files", experiment()),
    ] {
        let expected: Vec<_> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
        assert_eq!(table(&document, heading), expected, "{heading}");
    }
    let expected: Vec<_> =
        OPTIONS.iter().map(|(command, option, default)| (format!("{command} {option}"), *default)).collect();
    let stated = table(&document, "The command");
    assert_eq!(
        stated.iter().map(|(option, default)| (option.to_string(), *default)).collect::<Vec<_>>(),
        expected
    );
}

/// What the comments above the fields of this name say, in the types of a source file.
fn comments_of(source: &str, field: &str) -> Vec<String> {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    // Keys of files are kebab-case.
    let field = field.replace('-', "_");
    let is_field = |line: &&str| {
        ["pub", "pub(super)"].iter().any(|public| line.starts_with(&format!("{public} {field}: ")))
    };
    let comments = (0..lines.len()).filter(|at| is_field(&lines[*at])).map(|at| {
        let comment = lines[..at].iter().rev().skip_while(|line| line.starts_with("#["));
        let comment = comment.take_while(|line| line.starts_with("///"));
        let words: Vec<&str> = comment.map(|line| line.trim_start_matches("///").trim()).collect();
        words.into_iter().rev().collect::<Vec<_>>().join(" ")
    });
    let comments: Vec<String> = comments.collect();
    assert!(!comments.is_empty(), "no field {field}");
    comments
}

#[test]
fn each_setting_states_its_default() {
    for (file, settings) in [
        ("crates/core/mptcp/src/config.rs", connection()),
        ("crates/core/mptcp/src/config.rs", host()),
        ("crates/core/mptcp/src/path_manager/mod.rs", limits()),
        ("crates/core/tcp/src/config.rs", tcp()),
        ("crates/core/tcp/src/host/config.rs", tcp_host()),
        ("crates/core/tcp/src/listener.rs", tcp_listener()),
        ("crates/lab/sim/src/scenario/file.rs", scenario()),
        ("crates/lab/lab/src/experiment/file.rs", experiment()),
    ] {
        let source = read(file);
        // In capitals is what has no key of its own.
        for (field, value) in settings.into_iter().filter(|(field, _)| field.to_uppercase() != *field) {
            let comments = comments_of(&source, field);
            let stated = comments.iter().flat_map(|comment| comment.split("Default").skip(1)).any(|after| {
                after
                    .trim_start_matches(':')
                    .trim()
                    .strip_prefix(&value)
                    .is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
            });
            assert!(stated, "{file}: {field} is {value}, and its comments say: {comments:?}");
        }
    }
}

/// What the help of a command says of an option.
fn help_of(command: &str, option: &str) -> String {
    let mut polypath = Command::new(env!("CARGO_BIN_EXE_polypath"));
    let output = polypath.args(command.split(' ')).arg("--help").output().expect("the command runs");
    let text = String::from_utf8(output.stdout).expect("text");
    // Possible values have a hyphen with a space behind it.
    let is_option = |line: &&str| line.trim_start().starts_with('-') && !line.trim_start().starts_with("- ");
    let of_option = |line: &&str| line.split_whitespace().any(|word| word.trim_end_matches(',') == option);
    let mut lines = text.lines().skip_while(|line| !(is_option(line) && of_option(line)));
    let first = lines.next().unwrap_or_else(|| panic!("{command} has no {option}"));
    let rest = lines.take_while(|line| !is_option(line));
    std::iter::once(first).chain(rest).flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

#[test]
fn help_states_the_defaults() {
    for (command, option, default) in OPTIONS {
        let help = help_of(command, option);
        assert!(help.contains(&format!("[default: {default}]")), "{command} {option}: {help}");
    }
    let keepalive = Keepalive::default().idle().expect("an idle time");
    assert!(
        OPTIONS
            .iter()
            .any(|(_, option, default)| *option == "--keepalive"
                && *default == keepalive.as_secs().to_string())
    );
    assert!(OPTIONS.contains(&("get", "--udp-port", &polypath_stack::udp::DEFAULT_PORT.to_string())));
}
