//! What a stream shows over time.

use polypath_sim::scenario::{ConnectionResult, StreamResult};

/// A pause that is worth a word.
const PAUSE_S: f64 = 0.25;

pub(super) fn megabytes(bytes: u64) -> String {
    let amount = bytes as f64 / 1e6;
    if bytes < 100_000 { format!("{:.1} kB", bytes as f64 / 1e3) } else { format!("{amount:.1} MB") }
}

/// Start and length of the longest time without data, as samples show it: between the first and the last of it, and after that for
/// as long as more was to come. Of a stream of which nothing came, all of that time.
pub(super) fn longest_pause(connection: &ConnectionResult, stream: &StreamResult) -> Option<(f64, f64)> {
    let mut pauses = Vec::new();
    let (mut since_s, mut last_s) = (0.0, None);
    for (at_s, bps) in stream.series.time_s.iter().zip(&stream.series.goodput_bps) {
        if *bps > 0.0 {
            pauses.extend(last_s.map(|last_s| (last_s, since_s - last_s)));
            last_s = Some(*at_s);
        }
        since_s = *at_s;
    }
    if let Some(end_s) = broken_off_at(connection, stream) {
        let last_s = stream.last_arrived_at_s.or(connection.opened_at_s);
        pauses.extend(last_s.map(|last_s| (last_s, end_s - last_s)));
    }
    let is_longer = |longest: Option<(f64, f64)>, pause: (f64, f64)| {
        longest.filter(|longest| longest.1 >= pause.1).or(Some(pause))
    };
    pauses.into_iter().filter(|(_, pause_s)| *pause_s >= PAUSE_S).fold(None, is_longer)
}

/// When a stream ended that was to go on: with its connection, or with the run.
fn broken_off_at(connection: &ConnectionResult, stream: &StreamResult) -> Option<f64> {
    let has_finished = stream.completed_at_s.is_some() || connection.closed.as_deref() == Some("finished");
    if has_finished { None } else { connection.closed_at_s.or(stream.series.time_s.last().copied()) }
}
