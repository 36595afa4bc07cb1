//! `polypath ss`.

mod filter;
mod rows;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;

use clap::Args;
use filter::Filter;
use futures_util::future::join_all;
use polypath_control::{ANSWER_LIMIT, Answer, Ask, Peer, find};
use polypath_system::{runtime_directories, runtime_directory};
use serde::Serialize;

use rows::{Shown, subject, subject_of_listener, table};

use super::network::block_on;
use super::{Failure, complain, harmless, print_json, print_line};

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  polypath ss -Mani\n  polypath ss -tni state established '( dport = :443 or dst 10.0.0.0/8 )'"
)]
pub(super) struct Arguments {
    /// Show Multipath TCP connections; plain TCP after a fallback is left out
    #[arg(short = 'M', long)]
    mptcp: bool,
    /// Show subflows, each with its interface
    #[arg(short = 't', long)]
    tcp: bool,
    /// Show listeners, too
    #[arg(short = 'a', long)]
    all: bool,
    /// Show listeners only
    #[arg(short = 'l', long)]
    listening: bool,
    /// IPv4 only
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,
    /// IPv6 only
    #[arg(short = '6', long)]
    ipv6: bool,
    /// Show what is known of each connection and its subflows
    #[arg(short = 'i', long)]
    info: bool,
    /// Show interfaces and the token of each connection
    #[arg(short = 'e', long)]
    extended: bool,
    /// Show how much waits in memory
    #[arg(short = 'm', long)]
    memory: bool,
    /// Show which process has the connection
    #[arg(short = 'p', long)]
    processes: bool,
    /// Leave the header out
    #[arg(short = 'H', long)]
    no_header: bool,
    /// Names of services are never looked up; accepted for the habit's sake
    #[arg(short = 'n', long)]
    numeric: bool,
    /// Retransmission timeouts are in what --info shows; accepted for the habit's sake
    #[arg(short = 'o', long)]
    options: bool,
    /// Show counters, as nstat does, instead of connections
    #[arg(short = 's', long)]
    summary: bool,
    /// Show counters that are zero, too
    #[arg(short = 'z', long, requires = "summary")]
    zeros: bool,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
    /// What to show, in the words of ss: state NAME, exclude NAME, dst ADDRESS[/LENGTH][:PORT], src …, dport = :PORT, sport >= :PORT,
    /// dev INTERFACE, joined by and, or, not and parentheses
    #[arg(value_name = "FILTER", conflicts_with = "summary")]
    filter: Vec<String>,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let filter = Filter::parse(&arguments.filter).map_err(Failure::input)?;
    let mut answers = block_on(ask(if arguments.summary { Ask::Counters } else { Ask::Connections }))?;
    let shown = arguments.shown(&filter);
    if arguments.json && arguments.summary {
        return print_json(&answers.iter().map(Counters::of).collect::<Vec<_>>());
    }
    if arguments.json {
        for answer in &mut answers {
            thin(&shown, &filter, answer);
        }
        return print_json(&answers);
    }
    if answers.is_empty() {
        complain("no stack of this user runs here; `ss -M` shows the kernel's connections");
    }
    let text =
        if arguments.summary { counters(arguments, &answers) } else { table(&shown, &filter, &answers) };
    if text.is_empty() { Ok(()) } else { print_line(text.trim_end()) }
}

impl Arguments {
    fn shown(&self, filter: &Filter) -> Shown {
        Shown {
            connections: self.mptcp || !self.tcp,
            subflows: self.tcp,
            listeners: self.all || self.listening || filter.names_states(),
            only_listeners: self.listening && !self.all,
            fallbacks: !self.mptcp || self.tcp,
            family: (self.ipv4 || self.ipv6).then_some(self.ipv4),
            header: !self.no_header,
            info: self.info,
            memory: self.memory,
            extended: self.extended,
            processes: self.processes,
        }
    }
}

/// Leaves in an answer what a filter lets through.
fn thin(shown: &Shown, filter: &Filter, answer: &mut Answer) {
    let is_of_family = |is_v4: bool| shown.family.is_none_or(|wanted| wanted == is_v4);
    answer.listeners.retain(|listener| {
        let is_everywhere = listener.local.ip().is_unspecified();
        shown.listeners
            && (is_everywhere || is_of_family(listener.local.is_ipv4()))
            && filter.matches(&subject_of_listener(listener))
    });
    answer.connections.retain(|connection| {
        !shown.only_listeners
            && (shown.fallbacks || connection.is_multipath)
            && connection.remote.is_none_or(|remote| is_of_family(remote.is_ipv4()))
            && filter.matches(&subject(connection))
    });
}

/// Asks all stacks at once. One that ends meanwhile is left out.
async fn ask(what: Ask) -> Result<Vec<Answer>, Failure> {
    let peers = peers()?;
    let results = join_all(peers.iter().map(|peer| peer.ask(what))).await;
    let mut answers = Vec::new();
    for (peer, result) in peers.iter().zip(results) {
        match result {
            Ok(mut answer) => {
                disarm(&mut answer);
                answers.push(answer);
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => complain(&silence(peer)),
            Err(_) => {}
        }
    }
    Ok(answers)
}

/// Who started a stack chose its names, which do nothing to a terminal then.
pub(super) fn disarm(answer: &mut Answer) {
    let disarm = |text: &mut String| *text = harmless(text);
    disarm(&mut answer.process);
    answer.counters.iter_mut().for_each(|(name, _)| disarm(name));
    for connection in &mut answer.connections {
        disarm(&mut connection.scheduler);
        for subflow in &mut connection.subflows {
            disarm(&mut subflow.congestion);
            subflow.interface.iter_mut().for_each(disarm);
        }
    }
}

/// What is said of a stack that does not answer.
pub(super) fn silence(peer: &Peer) -> String {
    format!("{}: no answer within {ANSWER_LIMIT:?}; is its process stopped?", peer.path().display())
}

/// The stacks of this user; root sees everybody's.
pub(super) fn peers() -> Result<Vec<Peer>, Failure> {
    let own = runtime_directory().map_err(Failure::run)?;
    let mut peers = Vec::new();
    for directory in runtime_directories(&own) {
        match find(&directory) {
            Ok(found) => peers.extend(found),
            Err(error) if directory == own => {
                return Err(Failure::Run(format!("{}: {error}", directory.display())));
            }
            // Nobody else's directory keeps anybody from their own stacks.
            Err(error) => complain(&format!("{}: {error}; it is left out", directory.display())),
        }
    }
    Ok(peers)
}

/// The process that a user names; the system's own numbers are small.
pub(super) fn parse_pid(text: &str) -> Result<u32, String> {
    let pid = text.parse().ok().filter(|pid| *pid > 0);
    pid.ok_or_else(|| "expected the number of a process, such as 1234; `polypath ss -p` shows them".into())
}

/// The counters of a stack, by the names that `nstat` has for them.
#[derive(Serialize)]
struct Counters<'a> {
    process: &'a str,
    pid: u32,
    counters: BTreeMap<String, u64>,
}

impl<'a> Counters<'a> {
    fn of(answer: &'a Answer) -> Self {
        let counters = answer.counters.iter().map(|(name, value)| (name_of(name), *value)).collect();
        Self { process: &answer.process, pid: answer.pid, counters }
    }
}

fn name_of(counter: &str) -> String {
    format!("MPTcpExt{counter}")
}

/// As `nstat` prints them; the numbers of all stacks together.
fn counters(arguments: &Arguments, answers: &[Answer]) -> String {
    let mut sums: Vec<(&str, u64)> = Vec::new();
    for (name, value) in answers.iter().flat_map(|answer| &answer.counters) {
        match sums.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum = sum.saturating_add(*value),
            None => sums.push((name, *value)),
        }
    }
    let mut text = String::new();
    if !arguments.no_header {
        let _ = writeln!(text, "#polypath");
    }
    for (name, value) in sums.into_iter().filter(|(_, value)| arguments.zeros || *value > 0) {
        let _ = writeln!(text, "{:<32}{value:<19}0.0", name_of(name));
    }
    text
}
