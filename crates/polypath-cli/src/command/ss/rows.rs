//! The table of `ss`.

use std::fmt::Write;
use std::net::SocketAddr;

use polypath_control::{Answer, ConnectionReport, ListenerReport, SubflowReport};

use super::filter::{Filter, Subject};

/// More than any round trip takes.
const MOST_MILLISECONDS: f64 = 1e9;

/// What the table has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    /// A row for each connection.
    pub(super) connections: bool,
    /// A row for each subflow, and for each connection that is plain TCP.
    pub(super) subflows: bool,
    pub(super) listeners: bool,
    /// Listeners and nothing else.
    pub(super) only_listeners: bool,
    /// Connections that fell back to plain TCP.
    pub(super) fallbacks: bool,
    /// The family, by whether it is IPv4.
    pub(super) family: Option<bool>,
    pub(super) header: bool,
    pub(super) info: bool,
    pub(super) memory: bool,
    pub(super) extended: bool,
    pub(super) processes: bool,
}

/// A row: its columns, what stands behind them, and the lines below.
struct Row {
    kind: &'static str,
    columns: [String; 5],
    behind: String,
    below: String,
}

/// As `ss` prints it.
pub(super) fn table(shown: &Shown, filter: &Filter, answers: &[Answer]) -> String {
    let mut rows = Vec::new();
    if shown.header {
        let columns = ["State", "Recv-Q", "Send-Q", "Local Address:Port", "Peer Address:Port"];
        let behind = if shown.processes { "Process" } else { "" }.to_string();
        rows.push(Row { kind: "Netid", columns: columns.map(String::from), behind, below: String::new() });
    }
    for answer in answers {
        add_rows(shown, filter, answer, &mut rows);
    }
    // As in `ss`, the kind is told where there is more than one.
    let tells_kind = shown.connections && shown.subflows;
    let width = |column: usize| rows.iter().map(|row| row.columns[column].len()).max().unwrap_or(0);
    let widths = [0, 1, 2, 3, 4].map(width);
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        if tells_kind {
            let _ = write!(line, "{:<5} ", row.kind);
        }
        for (index, (column, width)) in row.columns.iter().zip(widths).enumerate() {
            // Addresses end where their ports line up.
            let _ =
                if index < 3 { write!(line, "{column:<width$} ") } else { write!(line, "{column:>width$} ") };
        }
        let _ = writeln!(text, "{}", (line + row.behind.trim()).trim_end());
        text.push_str(&row.below);
    }
    text
}

fn add_rows(shown: &Shown, filter: &Filter, answer: &Answer, rows: &mut Vec<Row>) {
    let users = format!("users:((\"{}\",pid={}))", answer.process, answer.pid);
    let process = || if shown.processes { users.clone() } else { String::new() };
    if shown.listeners {
        let listeners = answer.listeners.iter().filter(|listener| {
            let is_of_family =
                |is_v4| listener.local.ip().is_unspecified() || listener.local.is_ipv4() == is_v4;
            shown.family.is_none_or(is_of_family) && filter.matches(&subject_of_listener(listener))
        });
        rows.extend(listeners.map(|listener| Row { behind: process(), ..row_of_listener(listener) }));
    }
    if shown.only_listeners {
        return;
    }
    for connection in answer.connections.iter().filter(|it| shown.fallbacks || it.is_multipath) {
        let is_of_family = |at: Option<SocketAddr>| {
            shown.family.is_none_or(|is_v4| at.is_some_and(|at| at.is_ipv4() == is_v4))
        };
        if shown.connections && is_of_family(connection.remote) && filter.matches(&subject(connection)) {
            let extended = if shown.extended { extended(connection) } else { String::new() };
            let mut below = String::new();
            if shown.memory {
                // What is known of the memory: waiting for the application, for the peer, and for what comes before it.
                let queued = connection.recv_q_bytes.saturating_add(connection.reassembly_bytes);
                let _ = writeln!(below, "\t skmem:(r{queued},w{})", connection.send_q_bytes);
            }
            if shown.info {
                below += &details(connection);
            }
            let behind = format!("{} {extended}", process());
            rows.push(Row { behind, below, ..row(connection) });
        }
        for subflow in connection.subflows.iter().filter(|_| shown.subflows) {
            if is_of_family(Some(subflow.remote)) && filter.matches(&subject_of_subflow(subflow)) {
                let extended = if shown.extended { extended(connection) } else { String::new() };
                let below = if shown.info {
                    format!("\t {}{}\n", ulp(connection, subflow), numbers(subflow))
                } else {
                    String::new()
                };
                let behind = format!("{} {extended}", process());
                rows.push(Row { behind, below, ..row_of_subflow(subflow) });
            }
        }
    }
}

/// The connection, and all interfaces that it goes over.
pub(super) fn subject(connection: &ConnectionReport) -> Subject<'_> {
    let established = connection.subflows.iter().find(|subflow| subflow.is_established);
    let of_subflow = established.or(connection.subflows.first());
    Subject {
        state: of_subflow.map_or("closed", |subflow| &subflow.state),
        local: connection.local,
        remote: connection.remote,
        interfaces: connection.subflows.iter().filter_map(|subflow| subflow.interface.as_deref()).collect(),
    }
}

fn subject_of_subflow(subflow: &SubflowReport) -> Subject<'_> {
    Subject {
        state: &subflow.state,
        local: Some(subflow.local),
        remote: Some(subflow.remote),
        interfaces: subflow.interface.as_deref().into_iter().collect(),
    }
}

pub(super) fn subject_of_listener(listener: &ListenerReport) -> Subject<'_> {
    Subject { state: "listening", local: Some(listener.local), remote: None, interfaces: Vec::new() }
}

fn row(connection: &ConnectionReport) -> Row {
    let end = |address: Option<SocketAddr>| address.map_or("*:*".into(), |it| it.to_string());
    let columns = [
        state(subject(connection).state).to_string(),
        connection.recv_q_bytes.to_string(),
        connection.send_q_bytes.to_string(),
        end(connection.local),
        end(connection.remote),
    ];
    Row { kind: "mptcp", columns, behind: String::new(), below: String::new() }
}

fn row_of_subflow(subflow: &SubflowReport) -> Row {
    let columns = [
        state(&subflow.state).to_string(),
        "0".to_string(),
        subflow.in_flight_bytes.saturating_add(subflow.notsent_bytes).to_string(),
        at_interface(subflow),
        subflow.remote.to_string(),
    ];
    Row { kind: "tcp", columns, behind: String::new(), below: String::new() }
}

fn row_of_listener(listener: &ListenerReport) -> Row {
    let SocketAddrParts { addr, port } = parts(listener.local);
    let columns = [
        "LISTEN".to_string(),
        listener.waiting.to_string(),
        listener.most_waiting.to_string(),
        format!("{addr}:{port}"),
        "*:*".to_string(),
    ];
    Row { kind: "mptcp", columns, behind: String::new(), below: String::new() }
}

struct SocketAddrParts {
    addr: String,
    port: String,
}

/// All addresses and all ports are stars, as in `ss`.
fn parts(local: SocketAddr) -> SocketAddrParts {
    let addr = match local {
        _ if local.ip().is_unspecified() => "*".into(),
        SocketAddr::V4(local) => local.ip().to_string(),
        SocketAddr::V6(local) => format!("[{}]", local.ip()),
    };
    let port = if local.port() == 0 { "*".into() } else { local.port().to_string() };
    SocketAddrParts { addr, port }
}

/// `10.0.0.1%wifi:40000`, as `ss` writes the interface of a socket.
fn at_interface(subflow: &SubflowReport) -> String {
    let Some(interface) = &subflow.interface else { return subflow.local.to_string() };
    match subflow.local {
        SocketAddr::V4(local) => format!("{}%{interface}:{}", local.ip(), local.port()),
        SocketAddr::V6(local) => format!("[{}]%{interface}:{}", local.ip(), local.port()),
    }
}

/// As the first column of `ss` has it.
fn state(name: &str) -> &str {
    match name {
        "established" => "ESTAB",
        "syn-sent" => "SYN-SENT",
        "syn-recv" => "SYN-RECV",
        "fin-wait-1" => "FIN-WAIT-1",
        "fin-wait-2" => "FIN-WAIT-2",
        "time-wait" => "TIME-WAIT",
        "close-wait" => "CLOSE-WAIT",
        "last-ack" => "LAST-ACK",
        "listening" => "LISTEN",
        "closing" => "CLOSING",
        _ => "UNCONN",
    }
}

/// Which connection a subflow belongs to, as `ss -tei` tells of the kernel's.
fn ulp(connection: &ConnectionReport, subflow: &SubflowReport) -> String {
    if !connection.is_multipath {
        return String::new();
    }
    let (token, id) = (connection.token, subflow.local_id);
    format!(
        "tcp-ulp-mptcp token:{:08x}(id:{}) loc_token:{token:08x}(id:{id}) ",
        connection.remote_token, subflow.remote_id
    )
}

/// Interfaces and the token, on the line itself.
fn extended(connection: &ConnectionReport) -> String {
    let mut names: Vec<&str> = subject(connection).interfaces;
    names.sort_unstable();
    names.dedup();
    let names = if names.is_empty() { String::new() } else { format!("dev:{} ", names.join(",")) };
    format!("{names}token:{:08x}", connection.token)
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
    format!(
        "subflow:{} {} {} {} locid:{} remid:{} {}",
        subflow.id,
        state(&subflow.state),
        at_interface(subflow),
        subflow.remote,
        subflow.local_id,
        subflow.remote_id,
        numbers(subflow)
    )
}

fn numbers(subflow: &SubflowReport) -> String {
    let mss = u64::from(subflow.mss_bytes.max(1));
    let mut text = format!(
        "{} rto:{} rtt:{}/{} minrtt:{} mss:{} pmtu:{} cwnd:{}",
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
    if subflow.rcv_rtt_ms > 0.0 {
        let _ = write!(text, " rcv_rtt:{}", millis(subflow.rcv_rtt_ms));
    }
    text += if subflow.is_backup { " backup" } else { "" };
    text += if subflow.is_set_aside { " set_aside" } else { "" };
    if subflow.held_up_ms >= 1.0 {
        let _ = write!(text, " held_up:{:.0}", subflow.held_up_ms.min(MOST_MILLISECONDS));
    }
    text + if subflow.is_stale { " stale" } else { "" }
}

/// As `ss` does, zero is not worth a word.
fn some(name: &str, value: u64) -> String {
    if value == 0 { String::new() } else { format!(" {name}:{value}") }
}

/// Milliseconds with at most three digits after the point. A stack says what it likes: no more than eleven days are shown.
fn millis(value: f64) -> String {
    let value = if value.is_nan() { 0.0 } else { value.clamp(0.0, MOST_MILLISECONDS) };
    ((value * 1000.0).round() / 1000.0).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_that_cannot_be_stay_in_their_columns() {
        for (value, shown) in [(0.0625, "0.063"), (-1e300, "0"), (1e300, "1000000000"), (f64::NAN, "0")] {
            assert_eq!(millis(value), shown);
        }
    }
}
