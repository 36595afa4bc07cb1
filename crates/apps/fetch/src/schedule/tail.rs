//! When everything was asked for: who is free takes a part of what the slowest path still owes.

use std::ops::{Range, RangeInclusive};

use polypath_units::{Duration, Instant};

use super::path::Path;

/// Less is not worth a request.
const LEAST_BYTES: u64 = 8 << 10;
/// A slower path may need so much longer than it seems. If it needs less, it takes over in its turn; if it needs more, all wait for it.
const CAUTION: f64 = 1.1;
/// So much sooner the end has to be: half of what a path needs to begin, within these.
const LEAST_GAIN: RangeInclusive<Duration> = Duration::from_millis(4)..=Duration::from_millis(30);
/// What a path brings in so little time, it does not share.
const LEAST_SPAN: Duration = Duration::from_millis(10);

/// Bytes at the end of what another path was asked for, which the path `at` brings sooner, if it begins with it in `from`: as many as let
/// both finish together.
pub(super) fn take_over(now: Instant, paths: &mut [Path], at: usize, from: Duration) -> Option<Range<u64>> {
    let slowest = (0..paths.len())
        .filter(|other| *other != at && paths[*other].outstanding_bytes() > 0)
        .max_by_key(|other| paths[*other].ends_in())?;
    let (rate, own_round_trip) = (paths[at].likely_rate(), paths[at].round_trip());
    let slow = &mut paths[slowest];
    let is_slower = slow.likely_rate() < rate;
    let slow_rate = if slow.is_open() && !slow.is_stalled() { slow.likely_rate() } else { 1.0 };
    let (slow_rate, ends_in) = if is_slower {
        (slow_rate / CAUTION, slow.ends_in().mul_f64(CAUTION) + slow.round_trip() / 4)
    } else {
        (slow_rate, slow.ends_in())
    };
    // A packet was lost, and what is behind it waits: as long again, for all that is known.
    let gain = (ends_in + slow.silence(now)).saturating_sub(from);
    if gain < (from / 2).clamp(*LEAST_GAIN.start(), *LEAST_GAIN.end()) {
        return None;
    }
    let share = gain.as_secs_f64() * rate * slow_rate / (rate + slow_rate);
    let last = slow.last_needed_mut()?;
    let owed = last.needed_bytes();
    let mut bytes = (share as u64).min(owed);
    let is_little = owed as f64 <= rate * own_round_trip.max(LEAST_SPAN).as_secs_f64();
    if owed - bytes < LEAST_BYTES || is_little {
        bytes = owed;
    }
    if bytes < LEAST_BYTES.min(owed) {
        return None;
    }
    let range = last.needed_end - bytes..last.needed_end;
    last.needed_end = range.start;
    // It may be on its way already, behind what others were to bring.
    if paths[at].need_again(&range) { None } else { Some(range) }
}
