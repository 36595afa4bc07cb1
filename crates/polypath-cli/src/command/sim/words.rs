//! What came out of a run, in words.

use polypath_sim::scenario::{ConnectionResult, RunResult, StreamResult};

use super::Alone;
use crate::command::harmless;
use crate::demo::{faster, list, seconds};

/// A pause that is worth a word.
const PAUSE_S: f64 = 0.25;

/// The run and its connections, a sentence or more to a line; lines that belong to the one before begin with spaces.
pub(super) fn lines(result: &RunResult, alone: &[Alone]) -> Vec<String> {
    let mut lines = vec![format!(
        "{}: {} over {} in {} of simulated time, seed {}.",
        harmless(&result.name),
        count(result.connections.len(), "connection"),
        count(result.links.len(), "link"),
        seconds(result.simulated_s),
        result.seed
    )];
    let are_several = result.connections.len() > 1;
    for connection in &result.connections {
        if are_several {
            lines.push(format!("{}:", heading(connection)));
        }
        describe(&mut lines, connection, alone);
    }
    lines
}

/// Which of several connections follows.
fn heading(connection: &ConnectionResult) -> String {
    let (name, congestion) = (harmless(&connection.name), harmless(&connection.congestion));
    if connection.mptcp {
        format!("{name} (scheduler {}, congestion control {congestion})", harmless(&connection.scheduler))
    } else {
        format!("{name} (plain TCP, congestion control {congestion})")
    }
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn describe(lines: &mut Vec<String>, connection: &ConnectionResult, alone: &[Alone]) {
    let (opener, acceptor) = (harmless(&connection.from), harmless(&connection.to));
    if connection.opened_at_s.is_none() {
        let why = connection.closed.as_ref().map_or(String::new(), |why| format!(": {why}"));
        lines.push(format!("{opener} did not reach {acceptor}{why}."));
        return;
    }
    let ways = [
        (&opener, &acceptor, &connection.upload, "upload"),
        (&acceptor, &opener, &connection.download, "download"),
    ];
    for (from, to, stream, way) in ways {
        let Some(stream) = stream.as_ref().filter(|stream| stream.planned_bytes != Some(0)) else { continue };
        lines.push(transfer(connection, from, to, stream));
        if stream.bytes > 0 {
            lines.extend(paths(stream));
        }
        let beside: Vec<(&str, &StreamResult)> = alone
            .iter()
            .filter_map(|(link, connection)| {
                let stream = if way == "upload" { &connection.upload } else { &connection.download };
                Some((link.as_str(), stream.as_ref()?))
            })
            .collect();
        lines.extend(comparison(stream, &beside));
        lines.push(pauses(stream));
        lines.push(format!("  {}", intact(stream)));
    }
    if let Some(why) = &connection.fell_back {
        lines.push(format!("  It fell back to TCP: {why}."));
    } else if connection.mptcp && connection.closed_at_s.is_some() {
        let why = connection.closed.as_deref().filter(|why| *why != "finished");
        lines.extend(why.map(|why| format!("  It ended so: {why}.")));
    }
}

fn transfer(connection: &ConnectionResult, from: &str, to: &str, stream: &StreamResult) -> String {
    let over = if connection.mptcp { "" } else { " over plain TCP" };
    let arrived = megabytes(stream.bytes);
    let (Some(opened_s), Some(last_s)) = (connection.opened_at_s, last_arrival(stream)) else {
        return format!("Nothing of {from} arrived at {to}{over}.");
    };
    let rate = format!("{:.1} Mbit/s", stream.goodput_bps / 1e6);
    match (stream.completed_at_s, stream.planned_bytes) {
        (Some(at_s), _) => {
            format!("{from} sent {arrived} to {to}{over} in {}: {rate}.", seconds(at_s - opened_s))
        }
        (None, Some(planned)) => format!(
            "{from} sent {arrived} of {} to {to}{over}. NOT ALL ARRIVED: the last byte came at {}; until then {rate}.",
            megabytes(planned),
            seconds(last_s)
        ),
        (None, None) => {
            format!("{from} sent {arrived} to {to}{over} in {}: {rate}.", seconds(last_s - opened_s))
        }
    }
}

fn megabytes(bytes: u64) -> String {
    let amount = bytes as f64 / 1e6;
    if bytes < 100_000 { format!("{:.1} kB", bytes as f64 / 1e3) } else { format!("{amount:.1} MB") }
}

/// The end of the last interval in which something arrived.
fn last_arrival(stream: &StreamResult) -> Option<f64> {
    let mut rates = stream.series.time_s.iter().zip(&stream.series.goodput_bps);
    rates.rfind(|(_, bps)| **bps > 0.0).map(|(at_s, _)| *at_s)
}

/// How much went over which link, as far as the receiver has acknowledged it.
fn paths(stream: &StreamResult) -> Option<String> {
    let mut shares: Vec<(&str, u64)> = Vec::new();
    for subflow in &stream.subflows {
        let link = subflow.link.as_deref().unwrap_or(&subflow.remote);
        match shares.iter_mut().find(|(name, _)| *name == link) {
            Some((_, bytes)) => *bytes += subflow.acked_bytes,
            None => shares.push((link, subflow.acked_bytes)),
        }
    }
    let sum = shares.iter().map(|(_, bytes)| *bytes).sum::<u64>().max(1) as f64;
    let share = |(name, bytes): &(&str, u64)| {
        format!("{} {} ({:.0} %)", harmless(name), megabytes(*bytes), *bytes as f64 * 100.0 / sum)
    };
    match &shares[..] {
        [] => None,
        [(only, _)] => Some(format!("  All of it went over {}.", harmless(only))),
        _ => Some(format!("  Paths: {}.", shares.iter().map(share).collect::<Vec<_>>().join(", "))),
    }
}

/// Against the best of plain TCP over one path.
fn comparison(stream: &StreamResult, alone: &[(&str, &StreamResult)]) -> Option<String> {
    let (link, best) =
        alone.iter().max_by(|(_, one), (_, other)| one.goodput_bps.total_cmp(&other.goodput_bps))?;
    let mut text = format!(
        "  That is {} plain TCP over the best path alone, {} ({:.1} Mbit/s).",
        faster(stream.goodput_bps, best.goodput_bps),
        harmless(link),
        best.goodput_bps / 1e6
    );
    if let Some((_, pause_s)) = longest_pause(best) {
        text += &format!(" There nothing arrived for {}.", seconds(pause_s));
    }
    Some(text)
}

fn pauses(stream: &StreamResult) -> String {
    match longest_pause(stream) {
        Some((from_s, pause_s)) => {
            format!("  Longest pause: {}, from {} on.", seconds(pause_s), seconds(from_s))
        }
        None => "  No pause of a quarter of a second or more.".into(),
    }
}

/// Start and length of the longest time without data between the first and the last of it, as samples show it.
fn longest_pause(stream: &StreamResult) -> Option<(f64, f64)> {
    let mut longest: Option<(f64, f64)> = None;
    let mut last_s = None;
    for (at_s, bps) in stream.series.time_s.iter().zip(&stream.series.goodput_bps) {
        if *bps <= 0.0 {
            continue;
        }
        let interval_s = stream.series.time_s.first().copied().unwrap_or_default();
        if let Some(last_s) = last_s {
            let pause_s = at_s - interval_s - last_s;
            if pause_s >= PAUSE_S && longest.is_none_or(|(_, before_s)| pause_s > before_s) {
                longest = Some((last_s, pause_s));
            }
        }
        last_s = Some(*at_s);
    }
    longest
}

fn intact(stream: &StreamResult) -> String {
    let links: Vec<String> = {
        let resent = stream.subflows.iter().filter(|subflow| subflow.retransmitted_packets > 0);
        let name = |link: &Option<String>, remote: &String| harmless(link.as_ref().unwrap_or(remote));
        let mut names: Vec<String> = resent.map(|subflow| name(&subflow.link, &subflow.remote)).collect();
        names.dedup();
        names
    };
    let bytes = if stream.intact { "Every byte was the right one" } else { "BYTES ARRIVED DAMAGED" };
    let copies = copies(stream).map_or(String::new(), |bytes| {
        format!(" {} more arrived over several paths, or more than once.", megabytes(bytes))
    });
    if links.is_empty() {
        return format!("{bytes}, and no path sent a packet twice.{copies}");
    }
    let links: Vec<&str> = links.iter().map(String::as_str).collect();
    let packets = count(stream.retransmitted_packets as usize, "packet");
    let were = if stream.retransmitted_packets == 1 { "was" } else { "were" };
    format!("{bytes}; {packets} {were} sent again, over {}.{copies}", list(&links))
}

/// What all paths brought beyond the stream, if that is worth a word.
fn copies(stream: &StreamResult) -> Option<u64> {
    let acked: u64 = stream.subflows.iter().map(|subflow| subflow.acked_bytes).sum();
    let more = acked.saturating_sub(stream.bytes);
    (more > stream.bytes / 50).then_some(more)
}

#[cfg(test)]
mod tests {
    use polypath_sim::scenario::{Series, SubflowResult};

    use super::*;

    fn stream() -> StreamResult {
        let subflow = |link: &str, acked_bytes| SubflowResult {
            link: Some(link.into()),
            acked_bytes,
            ..SubflowResult::default()
        };
        StreamResult {
            planned_bytes: Some(2_000_000),
            bytes: 2_000_000,
            intact: true,
            completed_at_s: Some(1.0),
            goodput_bps: 16e6,
            series: Series {
                time_s: (1..=10).map(|tenth| f64::from(tenth) / 10.0).collect(),
                goodput_bps: vec![20e6, 20e6, 0.0, 0.0, 0.0, 20e6, 20e6, 20e6, 20e6, 40e6],
            },
            subflows: vec![subflow("wifi", 1_500_000), subflow("lte", 250_000), subflow("lte", 250_000)],
            ..StreamResult::default()
        }
    }

    fn connection() -> ConnectionResult {
        ConnectionResult {
            name: "phone to server".into(),
            from: "phone".into(),
            to: "server".into(),
            mptcp: true,
            congestion: "cubic".into(),
            scheduler: "default".into(),
            opened_at_s: Some(0.1),
            closed_at_s: None,
            closed: None,
            fell_back: None,
            upload: None,
            download: Some(stream()),
        }
    }

    fn said(connection: &ConnectionResult, alone: &[Alone]) -> String {
        let mut lines = Vec::new();
        describe(&mut lines, connection, alone);
        lines.join("\n")
    }

    #[test]
    fn a_transfer_is_told_with_its_paths_pauses_and_comparison() {
        let mut slower = stream();
        slower.goodput_bps = 8e6;
        let alone = [("wifi".to_string(), ConnectionResult { download: Some(slower), ..connection() })];
        let text = said(&connection(), &alone);
        for part in [
            "server sent 2.0 MB to phone in 0.90 s: 16.0 Mbit/s.",
            "Paths: wifi 1.5 MB (75 %), lte 0.5 MB (25 %).",
            "That is 100 % faster than plain TCP over the best path alone, wifi (8.0 Mbit/s).",
            "Longest pause: 0.30 s, from 0.20 s on.",
            "Every byte was the right one, and no path sent a packet twice.",
        ] {
            assert!(text.contains(part), "\"{part}\" is not in:\n{text}");
        }
    }

    #[test]
    fn what_went_wrong_is_said() {
        let fell_back = ConnectionResult { fell_back: Some("options were removed".into()), ..connection() };
        assert!(said(&fell_back, &[]).contains("It fell back to TCP: options were removed."));
        let unfinished = StreamResult { completed_at_s: None, bytes: 1_000_000, intact: false, ..stream() };
        let text = said(&ConnectionResult { download: Some(unfinished), ..connection() }, &[]);
        assert!(
            text.contains("1.0 MB of 2.0 MB to phone. NOT ALL ARRIVED") && text.contains("DAMAGED"),
            "{text}"
        );
        assert!(text.contains("1.0 MB more arrived over several paths"), "{text}");
        let unreached =
            ConnectionResult { opened_at_s: None, closed: Some("timed out".into()), ..connection() };
        assert_eq!(said(&unreached, &[]), "phone did not reach server: timed out.");
    }
}
