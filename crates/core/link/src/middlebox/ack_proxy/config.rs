use polypath_units::Duration;

/// Settings of an [`AckProxy`](super::AckProxy).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckProxyConfig {
    /// Most bytes that the box takes charge of, for each direction of a flow. Default 262 144.
    pub buffer_bytes: usize,
    /// Shortest retransmission timeout. Default 200 ms.
    pub min_rto: Duration,
}

impl Default for AckProxyConfig {
    fn default() -> Self {
        Self { buffer_bytes: 262_144, min_rto: Duration::from_millis(200) }
    }
}
