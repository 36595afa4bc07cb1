//! `polypath doctor`.

use std::fmt::Write;
use std::net::SocketAddr;

use clap::Args;
use polypath_netsetup::doctor::{DoctorError, Finding, Level, Options, Report, examine};
use polypath_system::Namespace;

use super::network::block_on_interruptibly;
use super::{Failure, print_json, print_line};

#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// A host, and a port where it accepts TCP connections: tries to reach it by each path
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_peer)]
    peer: Option<Peer>,
    /// Interfaces to look at; all that could be paths if none is named
    #[arg(short = 'I', long = "interface", value_name = "NAME", value_delimiter = ',')]
    interfaces: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Peer {
    host: String,
    port: u16,
}

fn parse_peer(text: &str) -> Result<Peer, String> {
    let expected = "expected a host and a port, such as example.org:443 or [2001:db8::1]:443";
    let (host, port) = text.rsplit_once(':').ok_or(expected)?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let port = port.parse().ok().filter(|port| *port != 0).ok_or(expected)?;
    match bare.unwrap_or(host) {
        host if host.is_empty() || bare.is_none() && host.contains(':') => Err(expected.to_string()),
        host => Ok(Peer { host: host.to_string(), port }),
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let options = Options {
        interfaces: arguments.interfaces.clone(),
        peer: match &arguments.peer {
            Some(peer) => block_on_interruptibly(addresses(peer))?,
            None => Vec::new(),
        },
    };
    let namespace = Namespace::current().map_err(Failure::run)?;
    let report = examine(&namespace, &options).map_err(|error| match error {
        DoctorError::NoSuchInterface { .. } => Failure::input(error),
        error => Failure::run(error),
    })?;
    if arguments.json {
        print_json(&report)?
    } else {
        print_line(text(&report).trim_end())?
    }
    // What is wrong has been said.
    if report.is_blocked() { Err(Failure::Exit(1)) } else { Ok(()) }
}

async fn addresses(peer: &Peer) -> Result<Vec<SocketAddr>, Failure> {
    let found = tokio::net::lookup_host((peer.host.as_str(), peer.port)).await;
    let found = found.map_err(|error| {
        Failure::Run(format!("can't find the host \"{}\": {error}; look at /etc/resolv.conf", peer.host))
    })?;
    Ok(found.collect())
}

fn text(report: &Report) -> String {
    let mut sections = vec![("This host".to_string(), &report.host)];
    sections
        .extend(report.paths.iter().map(|path| (format!("Interface {}", path.interface), &path.findings)));
    if !report.peer.is_empty() {
        sections.push(("The peer".to_string(), &report.peer));
    }
    let findings = || sections.iter().flat_map(|(_, findings)| findings.iter());
    let width = findings().map(|finding| finding.subject.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (title, findings) in &sections {
        let _ = writeln!(text, "{title}");
        findings.iter().for_each(|finding| text += &line(finding, width));
        text.push('\n');
    }
    let count = |level| findings().filter(|finding| finding.level == level).count();
    let (blocks, limits) = (count(Level::Blocked), count(Level::Limited));
    let verdict = if blocks == 0 { "nothing stands in the way" } else { "something stands in the way" };
    text + &format!("{blocks} ✗, {limits} !: {verdict}")
}

fn line(finding: &Finding, width: usize) -> String {
    let mark = match finding.level {
        Level::Good => '✓',
        Level::Limited => '!',
        Level::Blocked => '✗',
    };
    let mut line = format!("  {mark} {:width$}  {}\n", finding.subject, finding.text);
    if let Some(advice) = &finding.advice {
        let _ = writeln!(line, "    {:width$}  → {advice}", "");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_a_host_and_a_port() {
        let peer = |host: &str, port| Ok(Peer { host: host.to_string(), port });
        assert_eq!(parse_peer("example.org:443"), peer("example.org", 443));
        assert_eq!(parse_peer("[2001:db8::1]:80"), peer("2001:db8::1", 80));
        for wrong in ["example.org", "2001:db8::1:80", ":80", "[]:80", "example.org:0", "example.org:http"] {
            assert!(parse_peer(wrong).is_err(), "{wrong}");
        }
    }
}
