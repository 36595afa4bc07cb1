/// How the names of proxies begin, as no interface can be called.
const PROXY: &str = "proxy/";

/// What an interface or a proxy did in a stretch of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Seconds since 1970 at its beginning.
    pub at_s: u64,
    /// Name of the interface, or one by which [`Row::proxy`] knows a proxy.
    pub interface: String,
    /// What it did.
    pub usage: Usage,
}

impl Row {
    /// The name of the proxy, if it is a proxy's row. What such a one sent went to servers, what it received went on to clients, and its
    /// subflows are those within.
    #[must_use]
    pub fn proxy(&self) -> Option<&str> {
        self.interface.strip_prefix(PROXY)
    }
}

/// How a proxy's rows are called.
pub(super) fn of_proxy(name: &str) -> String {
    format!("{PROXY}{name}")
}

/// What went over an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Payload sent, retransmissions included.
    pub sent_bytes: u64,
    /// Payload received in order.
    pub received_bytes: u64,
    /// Payload sent again.
    pub retransmitted_bytes: u64,
    /// Most subflows at once.
    pub subflows: u64,
    /// Round-trip times that were seen.
    pub round_trip: RoundTrip,
}

/// Round-trip times that were seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundTrip {
    /// How many.
    pub count: u64,
    /// Microseconds, their sum.
    pub sum_us: u64,
    /// The smallest.
    pub min_us: u64,
    /// The largest.
    pub max_us: u64,
}

impl RoundTrip {
    /// One that was seen.
    #[must_use]
    pub fn once(seconds: f64) -> Self {
        let us = (seconds.clamp(0.0, 1e6) * 1e6) as u64;
        Self { count: 1, sum_us: us, min_us: us, max_us: us }
    }

    /// Milliseconds, their mean.
    #[must_use]
    pub fn mean_ms(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_us as f64 / self.count as f64 / 1e3)
    }

    fn and(self, other: Self) -> Self {
        match (self.count, other.count) {
            (0, _) => other,
            (_, 0) => self,
            _ => Self {
                count: self.count.saturating_add(other.count),
                sum_us: self.sum_us.saturating_add(other.sum_us),
                min_us: self.min_us.min(other.min_us),
                max_us: self.max_us.max(other.max_us),
            },
        }
    }
}

/// A usage as the store has it.
pub(super) type Numbers = [u64; 8];

impl Usage {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            sent_bytes: self.sent_bytes.saturating_add(other.sent_bytes),
            received_bytes: self.received_bytes.saturating_add(other.received_bytes),
            retransmitted_bytes: self.retransmitted_bytes.saturating_add(other.retransmitted_bytes),
            subflows: self.subflows.max(other.subflows),
            round_trip: self.round_trip.and(other.round_trip),
        }
    }

    pub(super) fn to_numbers(self) -> Numbers {
        let RoundTrip { count, sum_us, min_us, max_us } = self.round_trip;
        let Self { sent_bytes, received_bytes, retransmitted_bytes, subflows, .. } = self;
        [sent_bytes, received_bytes, retransmitted_bytes, subflows, count, sum_us, min_us, max_us]
    }

    pub(super) fn from_numbers(numbers: Numbers) -> Self {
        let [sent_bytes, received_bytes, retransmitted_bytes, subflows, count, sum_us, min_us, max_us] =
            numbers;
        let round_trip = RoundTrip { count, sum_us, min_us, max_us };
        Self { sent_bytes, received_bytes, retransmitted_bytes, subflows, round_trip }
    }
}
