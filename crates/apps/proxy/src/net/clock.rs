//! The time, as what has no clock of its own is told it.

use std::sync::LazyLock;
use std::time::Duration;

use polypath_units::Instant;

use crate::convert::CookiePeriod;

/// How long a cookie of a converter lasts, and once more.
const COOKIE_PERIOD: Duration = Duration::from_secs(3600);

/// Since some moment.
pub(super) fn now() -> Instant {
    static BEGUN: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
    Instant::from_nanos(u64::try_from(BEGUN.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

/// The span of time in which a converter gives the same cookies.
pub(super) fn cookie_period() -> CookiePeriod {
    CookiePeriod::of(Duration::from_nanos(now().as_nanos()), COOKIE_PERIOD)
}
