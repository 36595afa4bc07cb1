//! How much a path is asked for at once, and when.

use polypath_units::Duration;

use super::path::Path;

/// No request of a known file is shorter, but for the last ones.
const LEAST_BYTES: u64 = 16 << 10;
/// A path whose share of the rest is less is not asked any more.
const LEAST_SHARE_BYTES: u64 = 4 << 10;
/// The same in proportion to rates, by the document.
const LEAST_PROPORTIONAL_BYTES: f64 = 10_000.0;
/// What a request lasts less than its path needs for a round trip is a pause.
const SLACK: Duration = Duration::from_millis(20);

/// How many round trips what was asked for is to last, when more is asked for.
const ROUND_TRIPS: f64 = 1.25;
/// The same in slow start: what is known is a round trip old, and what is asked for comes a round trip later, at twice the rate each.
const GROWING_ROUND_TRIPS: f64 = 2.5;

/// The same if others wait for what comes later than hoped for.
const CAREFUL_ROUND_TRIPS: f64 = 0.7;

/// How large requests are.
#[derive(Clone, Debug, PartialEq)]
pub enum Sizing {
    /// By measured rate: each request takes `span`, but at least as long as one way of its path, and has `least_bytes` at least.
    Dynamic {
        /// How long a request takes.
        span: Duration,
        /// Whatever the rate is: what is around a request should be small beside it.
        least_bytes: u64,
        /// A path in slow start is asked for all that it may bring soon, so that it never pauses. What it brings later than hoped for, whoever
        /// takes the file in order waits for.
        is_eager: bool,
    },
    /// The same for all, in the order of the file (K §6.2): for comparison.
    Fixed {
        /// Of each request.
        segment_bytes: u64,
        /// How many are asked for before the first is answered: 1 is no pipelining, 2 the document's.
        pipelined: usize,
    },
    /// In proportion to the paths' measured rates, in the order of the file (K §6.3.2, dynamic subsegments): for comparison.
    Proportional {
        /// Of the requests of all paths in the mean; of each, before its rate is known.
        mean_bytes: u64,
        /// How many are asked for before the first is answered.
        pipelined: usize,
    },
}

impl Sizing {
    /// For files: few large requests.
    #[must_use]
    pub const fn for_files() -> Self {
        Self::Dynamic { span: Duration::from_millis(1000), least_bytes: 64 << 10, is_eager: true }
    }

    /// For whoever takes the file in order while it comes: little is held back.
    #[must_use]
    pub const fn in_order() -> Self {
        Self::Dynamic { span: Duration::from_millis(150), least_bytes: LEAST_BYTES, is_eager: false }
    }

    pub(super) const fn first_bytes(&self) -> Option<u64> {
        match self {
            Self::Dynamic { .. } => None,
            Self::Fixed { segment_bytes: bytes, .. } | Self::Proportional { mean_bytes: bytes, .. } => {
                Some(*bytes)
            }
        }
    }

    /// How long a request takes, where that is told.
    pub(super) const fn span(&self) -> Duration {
        match self {
            Self::Dynamic { span, .. } => *span,
            Self::Fixed { .. } | Self::Proportional { .. } => Duration::from_nanos(0),
        }
    }

    /// Not in pieces of one size. Others may be asked for what a path was asked for, and one path alone is asked for all.
    pub(super) const fn is_by_rate(&self) -> bool {
        matches!(self, Self::Dynamic { .. })
    }

    /// Whether a path is to be asked for more now.
    pub(super) fn is_due(&self, path: &Path) -> bool {
        match self {
            Self::Fixed { pipelined, .. } | Self::Proportional { pipelined, .. } => {
                path.in_flight() < *pipelined
            }
            Self::Dynamic { is_eager, .. } => match path.busy_for() {
                Some(busy) => {
                    let round_trips = match (path.is_growing(), is_eager) {
                        (false, _) => ROUND_TRIPS,
                        (true, true) => GROWING_ROUND_TRIPS,
                        (true, false) => CAREFUL_ROUND_TRIPS,
                    };
                    busy <= path.round_trip().mul_f64(round_trips) + SLACK
                }
                // The interleaved start.
                None => path.in_flight() < 2,
            },
        }
    }

    /// How long until the rest is there, if the paths share it and the path `at` is one of them.
    pub(super) fn rest_in(&self, paths: &[Path], at: usize, left_bytes: u64) -> Option<Duration> {
        let path = &paths[at];
        let rate = path.expected_rate().filter(|_| self.is_by_rate())?;
        let answers_in = path.answers_in().unwrap_or(path.round_trip());
        Some(shares(paths, at, rate, answers_in, left_bytes).ends_in)
    }

    /// The next request of the path `at`; `None` if the others finish sooner without it.
    pub(super) fn plan(&self, paths: &[Path], at: usize, left_bytes: u64) -> Option<Plan> {
        match self {
            Self::Fixed { segment_bytes, .. } => {
                Some(Plan { ahead_bytes: 0, bytes: *segment_bytes, is_limited: true })
            }
            Self::Proportional { mean_bytes, .. } => {
                Some(Plan { ahead_bytes: 0, bytes: proportional(paths, at, *mean_bytes), is_limited: true })
            }
            Self::Dynamic { span, least_bytes, is_eager } => {
                let path = &paths[at];
                // In slow start the rate is what is hoped for, and may be known better soon.
                let span = match (path.is_growing(), is_eager) {
                    (false, _) => (*span).max(path.round_trip() / 2),
                    (true, true) => (*span / 3).max(path.round_trip() * 2),
                    (true, false) => (*span / 3).max(path.round_trip() / 2),
                };
                dynamic(paths, at, left_bytes, span, *least_bytes)
            }
        }
    }
}

/// A request to come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// So far behind the first byte that nobody was asked for.
    pub(super) ahead_bytes: u64,
    pub(super) bytes: u64,
    /// Not a byte more.
    pub(super) is_limited: bool,
}

/// The share of a path in `mean_bytes` for each.
fn proportional(paths: &[Path], at: usize, mean_bytes: u64) -> u64 {
    let of_use = paths.iter().filter(|path| is_of_use(path));
    let rates: Option<Vec<f64>> = of_use.map(Path::known_rate).collect();
    let (Some(rates), Some(own)) = (rates, paths[at].known_rate()) else { return mean_bytes };
    let share = own / rates.iter().sum::<f64>().max(1.0);
    ((mean_bytes * rates.len() as u64) as f64 * share).max(LEAST_PROPORTIONAL_BYTES) as u64
}

fn dynamic(paths: &[Path], at: usize, left_bytes: u64, span: Duration, least_bytes: u64) -> Option<Plan> {
    let path = &paths[at];
    let Some(rate) = path.expected_rate() else {
        // Where the others are when its first byte is there.
        let ahead = others_until(paths, at, path.round_trip());
        return Some(Plan {
            ahead_bytes: ahead.min(left_bytes.saturating_sub(1)),
            bytes: least_bytes.min(left_bytes.div_ceil(2).max(LEAST_BYTES)),
            is_limited: true,
        });
    };
    let answers_in = path.answers_in().unwrap_or(path.round_trip());
    let wanted = (rate * span.as_secs_f64()) as u64;
    let wanted = wanted.max(least_bytes);
    let Shares { own_bytes: share, is_largest, .. } = shares(paths, at, rate, answers_in, left_bytes);
    // Whoever has the largest share takes the rest, if all are small.
    if share < LEAST_SHARE_BYTES && !is_largest {
        return None;
    }
    let share = share.max(LEAST_SHARE_BYTES);
    // The fastest path fills what is left before it; the others' last byte is to be there when that one comes to it.
    let is_fastest = paths.iter().filter_map(Path::expected_rate).all(|other| other <= rate);
    let lasts = if is_fastest {
        Duration::from_nanos(0)
    } else {
        Duration::from_secs_f64(wanted.min(share) as f64 / rate)
    };
    let ahead_bytes = others_until(paths, at, answers_in + lasts);
    Some(Plan {
        ahead_bytes: ahead_bytes.min(left_bytes.saturating_sub(share.min(wanted))),
        bytes: wanted.min(share),
        is_limited: share < 2 * wanted,
    })
}

/// Bytes that the other paths could bring of what nobody was asked for, until then.
fn others_until(paths: &[Path], at: usize, until: Duration) -> u64 {
    let each = paths.iter().enumerate().filter(|(other, path)| *other != at && is_of_use(path));
    let bytes = each.map(|(_, path)| {
        let from = path.answers_in().unwrap_or(path.round_trip());
        path.known_rate().unwrap_or(0.0) * until.saturating_sub(from).as_secs_f64()
    });
    bytes.sum::<f64>() as u64
}

fn is_of_use(path: &Path) -> bool {
    path.is_open() && !path.is_stalled()
}

/// How the rest is shared, if all finish at the same time and none begins before it can.
struct Shares {
    own_bytes: u64,
    /// No other brings more.
    is_largest: bool,
    /// Until the end.
    ends_in: Duration,
}

fn shares(paths: &[Path], at: usize, rate: f64, answers_in: Duration, left_bytes: u64) -> Shares {
    let others = paths.iter().enumerate().filter(|(other, path)| *other != at && is_of_use(path));
    let others =
        others.filter_map(|(_, path)| Some((path.answers_in()?.as_secs_f64(), path.expected_rate()?)));
    let own = answers_in.as_secs_f64();
    let mut known: Vec<(f64, f64)> = others.collect();
    known.push((own, rate));
    known.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (mut left, mut sum, mut end) = (left_bytes as f64, 0.0, own);
    for (index, (begins, rate)) in known.iter().enumerate() {
        sum += rate;
        let next = known.get(index + 1).map_or(f64::INFINITY, |next| next.0);
        let fits = sum * (next - begins);
        end = begins + left / sum;
        if fits >= left {
            break;
        }
        left -= fits;
    }
    let share = |begins: f64, rate: f64| (rate * (end - begins)).max(0.0);
    let own_share = share(own, rate);
    let is_largest = known.iter().all(|(begins, rate)| share(*begins, *rate) <= own_share);
    let ends_in = Duration::from_secs_f64(end.min(1e6));
    Shares { own_bytes: own_share.ceil() as u64, is_largest, ends_in }
}
