//! `polypath path`.

mod words;

use std::fmt::Write;
use std::io;

use clap::{Args, Subcommand};
use futures_util::future::join_all;
use polypath_control::{Answer, Ask, Change, EndpointReport, Flags, PathsReport, Peer};
use serde::Serialize;

use super::network::block_on;
use super::ss::{parse_pid, peers, silence};
use super::{Failure, complain, harmless, print_json, print_line};

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  polypath path endpoint change wwan0 backup\n  polypath path --all scheduler set redundant"
)]
pub(super) struct Arguments {
    /// The process whose stack is meant; none is needed where only one runs
    #[arg(long, value_name = "PID", value_parser = parse_pid, global = true, conflicts_with = "all")]
    pid: Option<u32>,
    /// All stacks of this user
    #[arg(long, global = true)]
    all: bool,
    /// Print JSON
    #[arg(short = 'J', long, global = true)]
    json: bool,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Show paths, limits and scheduler
    Show,
    /// Show or change paths: add|delete|change ADDRESS|INTERFACE|id N …, flush, show
    ///
    /// After add and change: dev NAME, id N, priority N, backup or nobackup, fullmesh or nofullmesh, subflow, signal, port N.
    /// Live connections follow: subflows of a deleted path end, but for the last one of a connection; those of a backup become
    /// backups; those of a path that is added again are opened. An address that is none of this host's can be announced: add
    /// ADDRESS signal. It holds until the stack ends.
    Endpoint {
        /// What to do, in the words of `ip mptcp endpoint`
        #[arg(value_name = "WORDS")]
        words: Vec<String>,
    },
    /// Show or change the limits of path managers: set subflows N add_addr_accepted N, show
    ///
    /// N is 0 to 255, and counts additional subflows. They hold for live connections too: what they allow now is opened, and what is
    /// there stays.
    #[command(alias = "limit")]
    Limits {
        /// What to do, in the words of `ip mptcp limits`
        #[arg(value_name = "WORDS")]
        words: Vec<String>,
    },
    /// Show or change the scheduler: set NAME, show
    ///
    /// Live connections change at once; what was given to a path stays there. Connections whose program brings settings of its
    /// own keep those when they are opened later.
    Scheduler {
        /// Either show, or set and a name
        #[arg(value_name = "WORDS")]
        words: Vec<String>,
    },
    /// Change which path handovers prefer, and which is joined first: the smaller, the better
    Priority {
        /// An interface or an address
        #[arg(value_name = "INTERFACE")]
        path: String,
        /// From 0 to 255
        #[arg(value_name = "N")]
        priority: u8,
    },
}

/// Which part is shown.
#[derive(Clone, Copy)]
enum Part {
    All,
    Endpoints,
    Limits,
    Scheduler,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (change, part) = match &arguments.what {
        What::Show => (None, Part::All),
        What::Endpoint { words } => (words::endpoint(words).map_err(Failure::input)?, Part::Endpoints),
        What::Limits { words } => (words::limits(words).map_err(Failure::input)?, Part::Limits),
        What::Scheduler { words } => {
            let change = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                [] | ["show"] => None,
                ["set", name] => Some(Change::Scheduler(name.into())),
                _ => return Err(Failure::input("scheduler: expected show, or set NAME")),
            };
            (change, Part::Scheduler)
        }
        What::Priority { path, priority } => {
            let flags = Flags { priority: Some(*priority), ..Flags::default() };
            (Some(Change::Change(words::target(path), flags)), Part::Endpoints)
        }
    };
    block_on(async {
        let stacks = stacks(arguments, change.is_some()).await?;
        match change {
            Some(change) => carry_out(&stacks, &change).await,
            None => show(arguments, &stacks, part),
        }
    })
}

/// The stacks that are meant; those that don't answer are named, and left out.
async fn stacks(arguments: &Arguments, changes: bool) -> Result<Vec<(Peer, Answer)>, Failure> {
    let peers = peers()?;
    let answers = join_all(peers.iter().map(|peer| peer.ask(Ask::Paths))).await;
    let mut stacks = Vec::new();
    for (peer, answer) in peers.into_iter().zip(answers) {
        match answer {
            // The kernel's connections are changed with `ip mptcp`.
            Ok(answer) if answer.paths.is_none() && answer.error.is_none() => {}
            Ok(answer) if arguments.pid.is_none_or(|pid| pid == answer.pid) => stacks.push((peer, answer)),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::TimedOut => complain(&silence(&peer)),
            // It is of an older version, or has ended.
            Err(_) => {}
        }
    }
    match (&stacks[..], arguments.pid) {
        ([], Some(pid)) => {
            Err(Failure::Input(format!("--pid {pid}: no stack of this user runs in that process")))
        }
        ([], None) => Err(Failure::run("no stack of this user runs here")),
        ([_, _, ..], None) if changes && !arguments.all => {
            let names = stacks.iter().map(|(_, answer)| format!("{}[{}]", answer.process, answer.pid));
            let names = names.collect::<Vec<_>>().join(", ");
            Err(Failure::Input(format!("several stacks run here: {names}; expected --pid PID or --all")))
        }
        _ => Ok(stacks),
    }
}

/// Changes the stacks one after another; what one refuses, others may do.
async fn carry_out(stacks: &[(Peer, Answer)], change: &Change) -> Result<(), Failure> {
    let mut refused = Vec::new();
    for (peer, answer) in stacks {
        if let Err(error) = peer.change(change.clone()).await {
            let who = if stacks.len() > 1 {
                format!("{}[{}]: ", answer.process, answer.pid)
            } else {
                String::new()
            };
            refused.push(format!("{who}{error}"));
        }
    }
    let last = refused.pop();
    refused.iter().for_each(|message| complain(message));
    last.map_or(Ok(()), |message| Err(Failure::Run(message)))
}

/// A stack as JSON.
#[derive(Serialize)]
struct Shown<'a> {
    process: &'a str,
    pid: u32,
    #[serde(flatten)]
    paths: &'a PathsReport,
}

fn show(arguments: &Arguments, stacks: &[(Peer, Answer)], part: Part) -> Result<(), Failure> {
    let known = stacks.iter().filter_map(|(_, answer)| {
        let paths = answer.paths.as_ref()?;
        Some(Shown { process: &answer.process, pid: answer.pid, paths })
    });
    let known: Vec<Shown<'_>> = known.collect();
    if arguments.json {
        return print_json(&known);
    }
    let mut text = String::new();
    for shown in &known {
        if matches!(part, Part::All) || known.len() > 1 {
            let _ = writeln!(text, "{}[{}]", harmless(shown.process), shown.pid);
        }
        let paths = shown.paths;
        if matches!(part, Part::All | Part::Endpoints) {
            for endpoint in &paths.endpoints {
                let _ = writeln!(text, "{}", line(endpoint));
            }
        }
        if matches!(part, Part::All | Part::Limits) {
            let _ =
                writeln!(text, "add_addr_accepted {} subflows {}", paths.add_addr_accepted, paths.subflows);
        }
        if matches!(part, Part::All | Part::Scheduler) {
            let _ = writeln!(text, "scheduler {}", harmless(&paths.scheduler));
        }
    }
    if text.is_empty() { Ok(()) } else { print_line(text.trim_end()) }
}

/// As `ip mptcp endpoint show` prints it.
fn line(endpoint: &EndpointReport) -> String {
    // Over a path that has carried nothing, it is not known yet.
    let address = endpoint.address.map_or("*".into(), |address| address.to_string());
    let mut line = format!("{address} id {}", endpoint.id);
    if let Some(port) = endpoint.port {
        let _ = write!(line, " port {port}");
    }
    for (is_set, word) in [
        (endpoint.subflow, "subflow"),
        (endpoint.signal, "signal"),
        (endpoint.backup, "backup"),
        (endpoint.fullmesh, "fullmesh"),
    ] {
        if is_set {
            let _ = write!(line, " {word}");
        }
    }
    if let Some(dev) = &endpoint.dev {
        let _ = write!(line, " dev {}", harmless(dev));
    }
    if endpoint.priority > 0 {
        let _ = write!(line, " priority {}", endpoint.priority);
    }
    line + if endpoint.deleted { " (deleted)" } else { "" }
}
