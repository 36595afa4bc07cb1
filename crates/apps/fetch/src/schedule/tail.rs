//! When everything was asked for: who is free takes a part of what the slowest path still owes.

use std::ops::Range;

use polypath_units::Duration;

use super::path::Path;

/// Less is not worth a request.
const LEAST_BYTES: u64 = 8 << 10;
/// So much sooner the end has to be.
const LEAST_GAIN: Duration = Duration::from_millis(30);

/// Bytes at the end of what another path was asked for, which the path `at` brings sooner: as many as let both finish together.
pub(super) fn take_over(paths: &mut [Path], at: usize) -> Option<Range<u64>> {
    let from = paths[at].answers_in()?;
    let slowest = (0..paths.len())
        .filter(|other| *other != at && paths[*other].outstanding_bytes() > 0)
        .max_by_key(|other| ends_in(&paths[*other]))?;
    // As fast as the other one, until it is known.
    let rate = paths[at].expected_rate().or(paths[slowest].expected_rate())?;
    let slow = &mut paths[slowest];
    let slow_rate =
        slow.expected_rate().filter(|_| slow.is_open() && !slow.is_stalled()).unwrap_or(1.0).max(1.0);
    let gain = ends_in(slow).saturating_sub(from);
    if gain < LEAST_GAIN {
        return None;
    }
    let share = gain.as_secs_f64() * rate * slow_rate / (rate + slow_rate);
    let last = slow.last_needed_mut()?;
    let owed = last.needed_bytes();
    let mut bytes = (share as u64).min(owed);
    if owed - bytes < LEAST_BYTES {
        bytes = owed;
    }
    if bytes < LEAST_BYTES.min(owed) {
        return None;
    }
    let range = last.needed_end - bytes..last.needed_end;
    last.needed_end = range.start;
    Some(range)
}

/// How long until a path has brought what it owes. One that says nothing never does.
fn ends_in(path: &Path) -> Duration {
    if path.is_stalled() || !path.is_open() {
        return Duration::from_secs(3600);
    }
    path.busy_for().unwrap_or(Duration::from_secs(60))
}
