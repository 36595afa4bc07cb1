//! What the samples of a stream show.

use polypath_sim::scenario::StreamResult;

/// A pause that is worth a word.
const PAUSE_S: f64 = 0.25;

pub(super) fn megabytes(bytes: u64) -> String {
    let amount = bytes as f64 / 1e6;
    if bytes < 100_000 { format!("{:.1} kB", bytes as f64 / 1e3) } else { format!("{amount:.1} MB") }
}

/// The end of the last interval in which something arrived.
pub(super) fn last_arrival(stream: &StreamResult) -> Option<f64> {
    let mut rates = stream.series.time_s.iter().zip(&stream.series.goodput_bps);
    rates.rfind(|(_, bps)| **bps > 0.0).map(|(at_s, _)| *at_s)
}

/// Start and length of the longest time without data between the first and the last of it, as samples show it.
pub(super) fn longest_pause(stream: &StreamResult) -> Option<(f64, f64)> {
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
