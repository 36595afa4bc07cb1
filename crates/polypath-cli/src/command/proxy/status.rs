//! Proxies that run are looked at, changed and ended.

use std::fmt::Write;
use std::time::Duration;

use super::super::control_socket::Sockets;
use super::super::words::{amount, count};
use super::super::{Failure, complain, harmless, print_json, print_line};
use super::report::{LimitReport, ProxyReport, SideReport};
use super::throttle::Change;

/// Those of proxies.
pub(super) const PROXIES: Sockets = Sockets("proxy");

pub(super) fn status(name: Option<&str>, is_json: bool) -> Result<(), Failure> {
    let asked = match name {
        Some(name) => vec![name.to_owned()],
        None => PROXIES.names().map_err(Failure::run)?,
    };
    let mut reports: Vec<ProxyReport> = Vec::new();
    for one in &asked {
        // One that ends just now says nothing.
        let answer = PROXIES.ask(one, "status").map_err(Failure::run)?;
        if let Some(answer) = answer.filter(|text| !text.is_empty()) {
            reports.push(serde_json::from_str(&answer).map_err(Failure::run)?);
        }
    }
    if let (Some(name), true) = (name, reports.is_empty()) {
        return Err(PROXIES.missing(name));
    }
    if is_json {
        return print_json(&reports);
    }
    if reports.is_empty() {
        return print_line("no proxy runs");
    }
    reports.iter().try_for_each(|report| print_line(words(report).trim_end()))
}

/// Has the one that is meant do something, and prints what it says.
fn tell(name: Option<&str>, question: &str) -> Result<(), Failure> {
    let running = PROXIES.names().map_err(Failure::run)?;
    let name = PROXIES.meant(name, &running)?;
    print_line(&harmless(&PROXIES.tell(name, question)?))
}

pub(super) fn set(name: Option<&str>, change: &Change) -> Result<(), Failure> {
    // What stays of the limit is known to the proxy alone, which says what is wrong with the whole.
    let question = change.question().map_err(Failure::run)?;
    tell(name, &format!("set {question}"))
}

pub(super) fn unset(name: Option<&str>, limit: &str) -> Result<(), Failure> {
    tell(name, &format!("unset {limit}"))
}

pub(super) fn reload(name: Option<&str>) -> Result<(), Failure> {
    let running = PROXIES.names().map_err(Failure::run)?;
    let name = PROXIES.meant(name, &running)?;
    let said = PROXIES.tell(name, "reload")?;
    said.lines().try_for_each(|line| print_line(&harmless(line)))
}

pub(super) fn down(asked: Option<&str>) -> Result<(), Failure> {
    let running = PROXIES.names().map_err(Failure::run)?;
    let name = PROXIES.meant(asked, &running)?;
    match PROXIES.ask(name, "down").map_err(Failure::run)? {
        Some(answer) => {
            // Those within have their time.
            let seconds = answer.trim().parse().unwrap_or(0);
            if let Some(line) = waited_for(name, asked).filter(|_| seconds > 0) {
                complain(&line);
            }
            PROXIES.wait_for_end(name, Duration::from_secs(seconds))
        }
        None if running.iter().any(|left| left == name) => {
            PROXIES.remove(name).map_err(Failure::run)?;
            complain(&format!("{name} had been killed; its socket is removed"));
            Ok(())
        }
        None => Err(PROXIES.missing(name)),
    }
}

/// For how many one waits that was told to end, by this name if it was asked for by one, and how long. It may have ended since, which says nothing.
fn waited_for(name: &str, asked: Option<&str>) -> Option<String> {
    let answer = PROXIES.ask(name, "status").ok()??;
    let report: ProxyReport = serde_json::from_str(&answer).ok()?;
    let (within, seconds) = (report.connections.len() as u64, report.ending_within_seconds?.ceil());
    let within = (within > 0).then(|| count(within, "connection"))?;
    let instance = asked.map_or(String::new(), |asked| format!(" --instance {asked}"));
    Some(format!(
        "{name} waits for {within} to finish, for {seconds} s at most; another `polypath proxy down{instance}` ends it at once"
    ))
}

/// A report for people.
fn words(report: &ProxyReport) -> String {
    let mut text = format!("{}: process {}", harmless(&report.name), report.pid);
    if let Some(seconds) = report.ending_within_seconds.map(f64::ceil) {
        let _ = write!(text, ", ending: nobody enters, and those within have {seconds} s at most");
    }
    text.push('\n');
    for listener in &report.listeners {
        let target = listener.target.as_ref().map_or(String::new(), |target| format!(" to {target}"));
        let tls = listener.tls.as_ref().map_or(String::new(), |tls| format!(" {tls}"));
        let intercepted = listener.intercepted.as_ref().map_or(String::new(), |of| format!(", {of}"));
        let _ = writeln!(
            text,
            "  {} at {}{}{target}{}",
            listener.protocol,
            listener.address,
            harmless(&tls),
            harmless(&intercepted)
        );
    }
    let limits = report.memory_line().into_iter().chain(report.limits.iter().map(LimitReport::line));
    limits.for_each(|line| _ = writeln!(text, "  {line}"));
    report.warnings.iter().for_each(|line| _ = writeln!(text, "  warning: {}", harmless(line)));
    for connection in &report.connections {
        let _ = write!(text, "\n  {} {}", connection.protocol, connection.client);
        if let Some(user) = &connection.user {
            let _ = write!(text, " {}", harmless(user));
        }
        if let Some(target) = &connection.target {
            let _ = write!(text, " to {}", harmless(target));
        }
        if let Some(server) =
            connection.server.as_ref().filter(|server| connection.target.as_ref() != Some(*server))
        {
            let _ = write!(text, " ({server})");
        }
        let (up, down) = (amount(connection.to_server_bytes), amount(connection.to_client_bytes));
        let _ = writeln!(text, ": {up} up, {down} down, {:.0} s", connection.age_seconds);
        for (who, side) in [("client", &connection.client_side), ("server", &connection.server_side)] {
            if let Some(side) = side {
                say_side(&mut text, who, side);
            }
        }
    }
    text
}

fn say_side(text: &mut String, who: &str, side: &SideReport) {
    let _ = writeln!(text, "    {who}: {}", side.transport);
    for path in &side.paths {
        let interface = path.interface.as_ref().map_or(String::new(), |name| format!("{} ", harmless(name)));
        let (sent, received) = (amount(path.sent_bytes), amount(path.received_bytes));
        let _ = write!(
            text,
            "      {interface}{} to {}: {sent} sent, {received} received",
            path.local, path.remote
        );
        let _ = match path.rcv_rtt_seconds {
            Some(seconds) => write!(text, ", RTT {:.1} ms as a receiver", seconds * 1e3),
            None => write!(text, ", RTT {:.1} ms", path.srtt_seconds * 1e3),
        };
        if path.retransmissions > 0 {
            let _ = write!(text, ", {} sent again", path.retransmissions);
        }
        if path.is_backup {
            text.push_str(", backup");
        }
        for limit in &path.limits {
            let _ = write!(text, ", limit {}", harmless(limit));
        }
        text.push('\n');
    }
}
