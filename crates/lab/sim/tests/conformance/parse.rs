//! From the text of a case to its lines.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use polypath_mptcp::AddressId;
use polypath_mptcp::path_manager::LocalEndpoint;
use polypath_wire::{Endpoint, TcpFlags};

use crate::options;
use crate::script::{Action, Comparison, IcmpSpec, Line, PacketSpec, Script, SubflowSpec, When};
use crate::words::{Words, duration, range, when};

/// Reads a case; `given` names scripts beside the folder of the case.
pub(crate) fn read(path: &Path) -> Result<Script, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let head: String = text.lines().take_while(|line| line.starts_with('#')).collect::<Vec<_>>().join("\n");
    let sections = sections(&head);
    let mut lines = Vec::new();
    read_lines(path, &text, &mut lines)?;
    Ok(Script { sections, lines })
}

/// The sections that a text names: after `RFC N`, each `§…`.
fn sections(head: &str) -> Vec<String> {
    let mut rfc = String::new();
    let mut found = Vec::new();
    let mut words = head.split(|c: char| c.is_whitespace() || ",;:()".contains(c)).peekable();
    while let Some(word) = words.next() {
        if word == "RFC"
            && let Some(number) = words.peek().filter(|word| word.parse::<u16>().is_ok())
        {
            rfc = format!("RFC {number}");
        }
        if let Some(section) = word.strip_prefix('§') {
            found.push(format!("{rfc} §{}", section.trim_end_matches('.')));
        }
    }
    found
}

fn read_lines(path: &Path, text: &str, lines: &mut Vec<Line>) -> Result<(), String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for (index, text) in text.lines().enumerate() {
        let text = text.split('#').next().unwrap_or_default().trim();
        if text.is_empty() {
            continue;
        }
        let place = format!("{name}:{}", index + 1);
        if let Some(given) = text.strip_prefix("given ") {
            let file = path.with_file_name(format!("../given/{}.case", given.trim()));
            let given = fs::read_to_string(&file).map_err(|error| format!("{place}: {given}: {error}"))?;
            read_lines(&file, &given, lines)?;
            continue;
        }
        let line = line(text).map_err(|error| format!("{place}: {error}\n    {text}"))?;
        lines.push(Line { place, text: text.to_owned(), when: line.0, action: line.1 });
    }
    Ok(())
}

fn line(text: &str) -> Result<(When, Action), String> {
    let mut words = Words::new(text);
    let mut at = When::default();
    if let Some(word) = words.peek().and_then(|word| word.strip_prefix('+')) {
        at = when(word)?;
        words.next();
    }
    let verb = words.word("what happens")?;
    let action = match verb.as_str() {
        "<" => Action::Send(packet(&mut words)?),
        ">" => Action::Expect { packet: packet(&mut words)?, optional: false },
        ">?" => Action::Expect { packet: packet(&mut words)?, optional: true },
        "event" => Action::Event { name: words.rest(), absent: false },
        "no" if words.take("event") => Action::Event { name: words.rest(), absent: true },
        _ => command(&verb, &mut words)?,
    };
    words.end()?;
    if at.from != at.to && !matches!(action, Action::Expect { .. }) {
        return Err("only what is expected has a time from .. to".into());
    }
    Ok((at, action))
}

fn command(verb: &str, words: &mut Words) -> Result<Action, String> {
    Ok(match verb {
        "set" => Action::Set { name: words.word("a name")?, value: words.rest() },
        "endpoint" => Action::Endpoint(endpoint(words)?),
        "remove_endpoint" => Action::RemoveEndpoint(words.value("address")?),
        "subflow" => Action::Subflow(subflow(words)?),
        "listen" => Action::Listen,
        "connect" => Action::Connect,
        "write" => Action::Write(words.value("number of bytes")?),
        "read" => Action::Read { bytes: words.value("number of bytes")?, changed: words.take("changed") },
        "shutdown" => Action::Shutdown,
        "close" => Action::Close,
        "abort" => Action::Abort,
        "backup" => Action::Priority { subflow: words.rest(), backup: true },
        "regular" => Action::Priority { subflow: words.rest(), backup: false },
        "nothing" => Action::Nothing,
        "any" => Action::Any,
        "icmp" => Action::Icmp(icmp(words)?),
        _ => return Err(format!("`{verb}` is nothing that can happen")),
    })
}

fn endpoint(words: &mut Words) -> Result<LocalEndpoint, String> {
    let addr: IpAddr = words.value("address")?;
    let mut endpoint = LocalEndpoint::new(addr, 0);
    while let Some(word) = words.next() {
        match word.as_str() {
            "id" => endpoint.id = AddressId(words.value("identifier")?),
            "port" => endpoint.port = Some(words.value("port")?),
            "signal" => endpoint.signal = true,
            "subflow" => endpoint.subflow = true,
            "fullmesh" => endpoint.fullmesh = true,
            "backup" => endpoint.backup = true,
            _ => return Err(format!("`{word}` says nothing of an endpoint")),
        }
    }
    Ok(endpoint)
}

fn subflow(words: &mut Words) -> Result<SubflowSpec, String> {
    let name = words.word("a name")?;
    let (mut host, mut peer) = (None, None);
    while let Some(word) = words.next() {
        match word.as_str() {
            "host" => host = Some(end(&words.word("an address")?)?),
            "peer" => peer = Some(end(&words.word("an address")?)?),
            _ => return Err(format!("`{word}` is no end: host or peer")),
        }
    }
    let unknown = || String::from("a subflow has two ends: host and peer");
    Ok(SubflowSpec { name, host: host.ok_or_else(unknown)?, peer: peer.ok_or_else(unknown)? })
}

/// An address, with a port or without.
fn end(word: &str) -> Result<Endpoint, String> {
    if let Ok(addr) = word.parse() {
        return Ok(Endpoint::new(addr, 0));
    }
    let socket: std::net::SocketAddr = word.parse().map_err(|_| format!("`{word}` is no address"))?;
    Ok(socket.into())
}

fn icmp(words: &mut Words) -> Result<IcmpSpec, String> {
    let kind = words.word("a kind")?;
    let number = words.value("number")?;
    let seq = if words.take("about") { words.value("sequence number")? } else { 0 };
    match kind.as_str() {
        "unreachable" => Ok(IcmpSpec::Unreachable { code: number as u8, seq }),
        "too_big" => Ok(IcmpSpec::TooBig { mtu: number, seq }),
        _ => Err(format!("`{kind}` is no ICMP message: unreachable or too_big")),
    }
}

fn flags(word: &str) -> Result<TcpFlags, String> {
    let mut flags = TcpFlags::default();
    for letter in word.chars() {
        flags = flags.with(match letter {
            'S' => TcpFlags::SYN,
            'F' => TcpFlags::FIN,
            'R' => TcpFlags::RST,
            'P' => TcpFlags::PSH,
            '.' => TcpFlags::ACK,
            'U' => TcpFlags::URG,
            'E' => TcpFlags::ECE,
            'W' => TcpFlags::CWR,
            '-' => TcpFlags::default(),
            _ => return Err(format!("`{word}` are no flags")),
        });
    }
    Ok(flags)
}

fn packet(words: &mut Words) -> Result<PacketSpec, String> {
    let mut packet = PacketSpec::default();
    if let Some(name) = words.peek().and_then(|word| word.strip_suffix(':')).map(str::to_owned) {
        packet.subflow = name;
        words.next();
    }
    packet.flags = flags(&words.word("flags")?)?;
    while let Some(word) = words.next() {
        if let Some((start, end)) = range(&word) {
            packet.seq = Some(start);
            packet.payload_bytes = u32::try_from(end - start).map_err(|_| "the range is empty")?;
            continue;
        }
        match word.as_str() {
            "seq" => packet.seq = Some(words.value("sequence number")?),
            "ack" => packet.ack = Some(words.value("acknowledgment number")?),
            "win" => packet.window = Some(window(words)?),
            "urg" => packet.urgent = Some(words.value("urgent pointer")?),
            "new" => packet.new = true,
            "corrupt" => packet.corrupt = true,
            "bytes" => packet.stream_from = Some(words.value("place in the stream")?),
            _ => packet.options.push(options::option(&word, words)?),
        }
    }
    Ok(packet)
}

fn window(words: &mut Words) -> Result<(Comparison, u32), String> {
    let comparison = if words.take(">=") {
        Comparison::AtLeast
    } else if words.take("<=") {
        Comparison::AtMost
    } else {
        Comparison::Equal
    };
    Ok((comparison, words.value("window")?))
}

/// A time in the value of a `set` line.
pub(crate) fn time(value: &str) -> Result<polypath_units::Duration, String> {
    duration(value)
}
