//! What came out of a run, in words.

use polypath_sim::scenario::{ConnectionResult, RunResult, StreamResult};

use super::beside::{Alone, comparison};
use super::stream::{longest_pause, megabytes};
use crate::command::harmless;
use crate::demo::{list, seconds};

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
    let ways =
        [(&opener, &acceptor, &connection.upload, true), (&acceptor, &opener, &connection.download, false)];
    for (from, to, stream, is_upload) in ways {
        let Some(stream) = stream.as_ref().filter(|stream| stream.planned_bytes != Some(0)) else { continue };
        lines.push(transfer(connection, from, to, stream));
        if stream.bytes > 0 {
            lines.extend(paths(stream));
        }
        lines.extend(comparison(stream, is_upload, alone));
        lines.push(pauses(connection, stream));
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
    let (Some(opened_s), Some(last_s)) = (connection.opened_at_s, stream.last_arrived_at_s) else {
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

fn pauses(connection: &ConnectionResult, stream: &StreamResult) -> String {
    match longest_pause(connection, stream) {
        Some((from_s, pause_s)) => {
            format!("  Longest pause: {}, from {} on.", seconds(pause_s), seconds(from_s))
        }
        None => "  No pause of a quarter of a second or more.".into(),
    }
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
            last_arrived_at_s: Some(1.0),
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
    fn plain_tcp_that_did_not_finish_is_no_measure() {
        let alone = |link: &str, download| {
            (link.to_string(), ConnectionResult { download: Some(download), ..connection() })
        };
        let broken = StreamResult { bytes: 600_000, completed_at_s: None, goodput_bps: 34e6, ..stream() };
        let slower = StreamResult { goodput_bps: 8e6, ..stream() };
        let mut dead = alone("wifi", broken.clone());
        dead.1.closed = Some("timed out".into());
        let text = said(&connection(), &[dead.clone(), alone("lte", slower.clone())]);
        let told =
            "Plain TCP over wifi did not finish: 0.6 MB of 2.0 MB arrived, the last at 1 s: timed out.";
        assert!(text.contains("That is 100 % faster than plain TCP over lte alone (8.0 Mbit/s)."), "{text}");
        assert!(text.contains(told), "{text}");
        let text = said(&connection(), &[dead.clone()]);
        assert!(text.contains(told) && !text.contains("That is"), "{text}");
        // Nor is a part of ours.
        let ours = ConnectionResult { download: Some(broken.clone()), ..connection() };
        let text = said(&ours, &[alone("lte", slower)]);
        assert!(
            text.contains("  Plain TCP over the best path alone, lte, brought all of it (8.0 Mbit/s)."),
            "{text}"
        );
        assert!(!text.contains("That is"), "{text}");
        // Without a plan, one that fell silent long before ours.
        let unlimited = StreamResult { planned_bytes: None, completed_at_s: None, ..stream() };
        let long = Series { time_s: vec![1.0, 2.0, 3.0], goodput_bps: vec![1e6, 1e6, 1e6] };
        let ours = StreamResult { series: long.clone(), last_arrived_at_s: Some(3.0), ..unlimited.clone() };
        let ours = ConnectionResult { download: Some(ours), ..connection() };
        let text = said(&ours, &[alone("wifi", unlimited.clone())]);
        assert!(text.contains("  Plain TCP over wifi stopped at 1 s, after 2.0 MB."), "{text}");
        let text = said(
            &ours,
            &[alone("wifi", StreamResult { series: long, last_arrived_at_s: Some(3.0), ..unlimited })],
        );
        assert!(text.contains("as fast as plain TCP over the best path alone, wifi"), "{text}");
    }

    #[test]
    fn what_arrived_before_the_first_sample_has_arrived() {
        let series = Series { time_s: vec![1.0], goodput_bps: vec![16e6] };
        let short = StreamResult {
            series,
            completed_at_s: Some(0.7),
            last_arrived_at_s: Some(0.7),
            subflows: Vec::new(),
            ..stream()
        };
        let text = said(&ConnectionResult { download: Some(short), ..connection() }, &[]);
        assert!(text.starts_with("server sent 2.0 MB to phone in 0.60 s: 16.0 Mbit/s."), "{text}");
        assert!(text.contains("No pause of a quarter of a second or more."), "{text}");
    }

    #[test]
    fn silence_behind_the_last_byte_is_a_pause_of_what_did_not_finish() {
        let series = Series {
            time_s: (1..=100).map(|tenth| f64::from(tenth) / 10.0).collect(),
            goodput_bps: [vec![8e6; 4], vec![0.0; 96]].concat(),
        };
        let cut = StreamResult {
            series,
            bytes: 400_000,
            completed_at_s: None,
            last_arrived_at_s: Some(0.4),
            ..stream()
        };
        let pause = |stream: StreamResult, closed: Option<(f64, &str)>| {
            let ended = ConnectionResult {
                closed: closed.map(|(_, why)| why.into()),
                closed_at_s: closed.map(|(at_s, _)| at_s),
                download: Some(stream),
                ..connection()
            };
            let text = said(&ended, &[]);
            text.lines().find(|line| line.contains("ause")).map(|line| line.trim().to_string())
        };
        let long = Some("Longest pause: 9.6 s, from 0.40 s on.".to_string());
        let unlimited = StreamResult { planned_bytes: None, ..cut.clone() };
        assert_eq!(pause(cut.clone(), None), long);
        assert_eq!(pause(unlimited.clone(), None), long);
        let timed_out = Some("Longest pause: 5.6 s, from 0.40 s on.".to_string());
        assert_eq!(pause(cut.clone(), Some((6.0, "timed out"))), timed_out);
        // It was told to stop.
        let none = Some("No pause of a quarter of a second or more.".to_string());
        assert_eq!(pause(unlimited, Some((0.5, "finished"))), none);
        let nothing = StreamResult { bytes: 0, last_arrived_at_s: None, ..cut };
        let nothing = StreamResult {
            series: Series { goodput_bps: vec![0.0; 100], ..nothing.series.clone() },
            ..nothing
        };
        assert_eq!(pause(nothing, None), Some("Longest pause: 9.9 s, from 0.10 s on.".to_string()));
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
