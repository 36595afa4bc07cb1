//! What a stack says of itself at one moment.

/// A running stack.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StackSample {
    /// What tells it from all others while it runs, such as the path of its control socket.
    pub source: String,
    /// Name of its program.
    pub program: String,
    /// Connections now.
    pub connections: u64,
    /// By the number of the path.
    pub paths: Vec<PathSample>,
    /// Connections that fell back to TCP, by cause.
    pub fallbacks: Vec<(String, u64)>,
    /// Counters by the kernel's names.
    pub counters: Vec<(String, u64)>,
}

/// A path of a stack.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PathSample {
    /// Name of its interface, if it is known.
    pub interface: Option<String>,
    /// What went over it since the stack's start.
    pub counted: Counted,
    /// What it is like.
    pub now: PathNow,
}

/// Numbers that only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Payload sent, retransmissions included.
    pub sent_bytes: u64,
    /// Payload received in order.
    pub received_bytes: u64,
    /// Payload sent again.
    pub retransmitted_bytes: u64,
    /// Segments sent again.
    pub retransmitted_segments: u64,
    /// Subflows that became ready for data.
    pub subflows: u64,
}

/// The subflows of a path that are ready for data, together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathNow {
    /// How many there are.
    pub subflows: u64,
    /// Seconds of smoothed round-trip time, their mean.
    pub round_trip_s: Option<f64>,
    /// Congestion windows, their sum.
    pub window_bytes: u64,
    /// Bytes per second that arrived lately, their sum.
    pub delivered_bytes_per_s: f64,
}

impl Counted {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.zip(other, u64::saturating_add)
    }

    /// What came since `before`; nothing where a number went back.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        self.zip(before, u64::saturating_sub)
    }

    fn zip(self, other: Self, by: fn(u64, u64) -> u64) -> Self {
        Self {
            sent_bytes: by(self.sent_bytes, other.sent_bytes),
            received_bytes: by(self.received_bytes, other.received_bytes),
            retransmitted_bytes: by(self.retransmitted_bytes, other.retransmitted_bytes),
            retransmitted_segments: by(self.retransmitted_segments, other.retransmitted_segments),
            subflows: by(self.subflows, other.subflows),
        }
    }

    /// Some number is smaller than it was.
    pub(crate) fn went_back(self, before: Self) -> bool {
        self.plus(Self::default()) != self.zip(before, u64::max)
    }
}

impl PathNow {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let weight = |now: &Self| now.round_trip_s.map_or(0.0, |_| now.subflows.max(1) as f64);
        let whole = weight(&self) + weight(&other);
        let sum = |now: &Self| now.round_trip_s.unwrap_or(0.0) * weight(now);
        Self {
            subflows: self.subflows.saturating_add(other.subflows),
            round_trip_s: (whole > 0.0).then(|| (sum(&self) + sum(&other)) / whole),
            window_bytes: self.window_bytes.saturating_add(other.window_bytes),
            delivered_bytes_per_s: self.delivered_bytes_per_s + other.delivered_bytes_per_s,
        }
    }
}
