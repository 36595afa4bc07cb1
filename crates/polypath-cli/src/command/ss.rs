//! `polypath ss`.

use std::fmt::Write;
use std::io;
use std::path::Path;

use clap::Args;
use futures_util::future::join_all;
use polypath_control::{ANSWER_LIMIT, Answer, Ask, ConnectionReport, Peer, SubflowReport, find};
use polypath_system::runtime_directory;

use super::network::block_on;
use super::{Failure, complain, print_json, print_line};

#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// Show what is known of each connection and its subflows
    #[arg(short = 'i', long)]
    info: bool,
    /// Show counters, as nstat does, instead of connections
    #[arg(short = 's', long)]
    summary: bool,
    /// Show counters that are zero, too
    #[arg(short = 'z', long, requires = "summary")]
    zeros: bool,
    /// Show which process has the connection
    #[arg(short = 'p', long)]
    processes: bool,
    /// Leave the header out
    #[arg(short = 'H', long)]
    no_header: bool,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
    /// Multipath TCP only; plain TCP after a fallback is left out
    #[arg(short = 'M', long)]
    mptcp: bool,
    /// Names of services are never looked up; accepted for the habit's sake
    #[arg(short = 'n', long)]
    numeric: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut answers = block_on(ask(if arguments.summary { Ask::Counters } else { Ask::Connections }))?;
    if arguments.mptcp {
        for answer in &mut answers {
            answer.connections.retain(|connection| connection.is_multipath);
        }
    }
    if arguments.json {
        return print_json(&answers);
    }
    if answers.is_empty() {
        complain("no stack of this user runs here; `ss -M` shows the kernel's connections");
    }
    let text =
        if arguments.summary { counters(arguments, &answers) } else { connections(arguments, &answers) };
    if text.is_empty() { Ok(()) } else { print_line(text.trim_end()) }
}

/// Asks all stacks at once. One that ends meanwhile is left out.
async fn ask(what: Ask) -> Result<Vec<Answer>, Failure> {
    let peers = peers()?;
    let results = join_all(peers.iter().map(|peer| peer.ask(what))).await;
    let mut answers = Vec::new();
    for (peer, result) in peers.iter().zip(results) {
        match result {
            Ok(answer) => answers.push(answer),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => complain(&silence(peer)),
            Err(_) => {}
        }
    }
    Ok(answers)
}

/// What is said of a stack that does not answer.
pub(super) fn silence(peer: &Peer) -> String {
    format!("{}: no answer within {ANSWER_LIMIT:?}; is its process stopped?", peer.path().display())
}

/// The stacks of this user; root sees everybody's.
pub(super) fn peers() -> Result<Vec<Peer>, Failure> {
    let own = runtime_directory().map_err(Failure::run)?;
    let mut directories = vec![own.clone()];
    if own == Path::new("/run/polypath")
        && let Ok(users) = std::fs::read_dir("/run/user")
    {
        directories.extend(users.flatten().map(|user| user.path().join("polypath")));
    }
    let mut peers = Vec::new();
    for directory in directories {
        let found =
            find(&directory).map_err(|error| Failure::Run(format!("{}: {error}", directory.display())))?;
        peers.extend(found);
    }
    Ok(peers)
}

fn connections(arguments: &Arguments, answers: &[Answer]) -> String {
    let mut rows = Vec::new();
    if !arguments.no_header {
        let header = ["State", "Recv-Q", "Send-Q", "Local Address:Port", "Peer Address:Port"];
        let process = if arguments.processes { "Process" } else { "" };
        rows.push((header.map(String::from), process.to_string(), String::new()));
    }
    for answer in answers {
        for connection in &answer.connections {
            let end =
                |address: Option<std::net::SocketAddr>| address.map_or("*:*".into(), |it| it.to_string());
            let columns = [
                if connection.subflows.iter().any(|subflow| subflow.is_established) {
                    "ESTAB"
                } else {
                    "UNCONN"
                }
                .to_string(),
                connection.recv_q_bytes.to_string(),
                connection.send_q_bytes.to_string(),
                end(connection.local),
                end(connection.remote),
            ];
            let users = format!("users:((\"{}\",pid={}))", answer.process, answer.pid);
            let process = if arguments.processes { users } else { String::new() };
            let details = if arguments.info { details(connection) } else { String::new() };
            rows.push((columns, process, details));
        }
    }
    let width = |column: usize| rows.iter().map(|(columns, ..)| columns[column].len()).max().unwrap_or(0);
    let widths = [0, 1, 2, 3, 4].map(width);
    let mut text = String::new();
    for (columns, process, details) in &rows {
        let mut line = String::new();
        for (index, (column, width)) in columns.iter().zip(widths).enumerate() {
            // Addresses end where their ports line up.
            let _ =
                if index < 3 { write!(line, "{column:<width$} ") } else { write!(line, "{column:>width$} ") };
        }
        let _ = writeln!(text, "{}", (line + process).trim_end());
        text.push_str(details);
    }
    text
}

/// The lines below a connection, in the words of `ss -Mi` and `ss -ti`.
fn details(connection: &ConnectionReport) -> String {
    let mut text = String::from("\t ");
    let more = connection.subflows.len().saturating_sub(1);
    let total = connection.subflows.len();
    let _ = write!(text, "subflows:{more} subflows_total:{total} scheduler:{}", connection.scheduler);
    text.push_str(if connection.is_multipath { " remote_key" } else { " fallback" });
    if connection.csum_enabled {
        text.push_str(" csum_enabled");
    }
    let _ = writeln!(
        text,
        " version:{} token:{:08x} remote_token:{:08x} write_seq:{:x} snd_una:{:x} rcv_nxt:{:x}{}",
        connection.version,
        connection.token,
        connection.remote_token,
        connection.write_seq,
        connection.snd_una,
        connection.rcv_nxt,
        some("rcv_ooopack_bytes", connection.reassembly_bytes)
    );
    for subflow in &connection.subflows {
        let _ = writeln!(text, "\t {}", details_of_subflow(subflow));
    }
    text
}

fn details_of_subflow(subflow: &SubflowReport) -> String {
    let state = if subflow.is_established { "ESTAB" } else { "SYN" };
    let mss = u64::from(subflow.mss_bytes.max(1));
    let mut text = format!(
        "subflow:{} {state} {} {} locid:{} remid:{} {} rto:{} rtt:{}/{} minrtt:{} mss:{} pmtu:{} cwnd:{}",
        subflow.id,
        subflow.local,
        subflow.remote,
        subflow.local_id,
        subflow.remote_id,
        subflow.congestion,
        millis(subflow.rto_ms),
        millis(subflow.rtt_ms),
        millis(subflow.rttvar_ms),
        millis(subflow.minrtt_ms),
        subflow.mss_bytes,
        subflow.pmtu_bytes,
        subflow.cwnd_bytes / mss,
    );
    text += &some("ssthresh", subflow.ssthresh_bytes.map_or(0, |bytes| bytes / mss));
    for (name, value) in [
        ("bytes_sent", subflow.bytes_sent),
        ("bytes_retrans", subflow.bytes_retrans),
        ("bytes_acked", subflow.bytes_acked),
        ("bytes_received", subflow.bytes_received),
        ("data_segs_out", subflow.data_segs_out),
        ("unacked", subflow.in_flight_bytes.div_ceil(mss)),
        ("notsent", subflow.notsent_bytes),
        ("snd_wnd", subflow.snd_wnd_bytes),
    ] {
        text += &some(name, value);
    }
    if subflow.retrans > 0 {
        let _ = write!(text, " retrans:0/{}", subflow.retrans);
    }
    for (name, rate) in
        [("pacing_rate", subflow.pacing_rate_bps), ("delivery_rate", subflow.delivery_rate_bps)]
    {
        if rate > 0 {
            let _ = write!(text, " {name} {rate}bps");
        }
    }
    text += if subflow.is_backup { " backup" } else { "" };
    text += if subflow.is_set_aside { " set_aside" } else { "" };
    if subflow.held_up_ms >= 1.0 {
        let _ = write!(text, " held_up:{:.0}", subflow.held_up_ms);
    }
    text + if subflow.is_stale { " stale" } else { "" }
}

/// As `ss` does, zero is not worth a word.
fn some(name: &str, value: u64) -> String {
    if value == 0 { String::new() } else { format!(" {name}:{value}") }
}

/// Milliseconds with at most three digits after the point.
fn millis(value: f64) -> String {
    ((value * 1000.0).round() / 1000.0).to_string()
}

/// As `nstat` prints them; the numbers of all stacks together.
fn counters(arguments: &Arguments, answers: &[Answer]) -> String {
    let mut sums: Vec<(&str, u64)> = Vec::new();
    for (name, value) in answers.iter().flat_map(|answer| &answer.counters) {
        match sums.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum += value,
            None => sums.push((name, *value)),
        }
    }
    let mut text = String::new();
    if !arguments.no_header {
        let _ = writeln!(text, "#polypath");
    }
    for (name, value) in sums.into_iter().filter(|(_, value)| arguments.zeros || *value > 0) {
        let _ = writeln!(text, "{:<32}{value:<19}0.0", format!("MPTcpExt{name}"));
    }
    text
}
