/// What tells of losses, and of losses that were none. The default is what current standards say; the rest is for comparison with
/// stacks of before.
///
/// Selective acknowledgments and timestamps have switches of their own: [`Config::sack`](crate::Config::sack) and
/// [`Config::timestamps`](crate::Config::timestamps). Where timestamps are on, a retransmission whose original arrived is seen by
/// them (Eifel, RFC 3522), and what it cost is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossRecovery {
    /// What tells that a segment is lost. Default [`LossDetection::RackTlp`].
    pub detection: LossDetection,
    /// Duplicates are reported to the peer, and what it reports is believed (RFC 2883, RFC 3708). Default on.
    pub duplicate_reports: bool,
    /// Whether a timeout is asked if it was spurious (RFC 5682). Default [`ForwardRto::WithoutTimestamps`].
    pub forward_rto: ForwardRto,
}

impl Default for LossRecovery {
    fn default() -> Self {
        Self {
            detection: LossDetection::RackTlp,
            duplicate_reports: true,
            forward_rto: ForwardRto::WithoutTimestamps,
        }
    }
}

/// What tells that a segment is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossDetection {
    /// Time (RFC 8985), with tail loss probes; three duplicate acknowledgments where there is no SACK (RFC 6582).
    RackTlp,
    /// Time, as before, but a segment is waited for as long as the slowest of late took, and a quarter longer: for one connection
    /// whose packets take several paths that differ. Where all take one path, losses are repaired later than need be.
    RackPatient,
    /// How many segments have overtaken it.
    ByCount(DuplicateThreshold),
}

/// A segment is lost when so many that left after it have arrived (RFC 6675 §4), or without SACK at as many duplicate
/// acknowledgments (RFC 6582). The number follows what the path is seen to reorder, as in Linux 2.6.32: a segment that arrives after
/// it was overtaken raises it to how many had done so, and a timeout takes it back to the least.
///
/// There are neither tail loss probes nor a reordering timer, and a retransmission that is lost waits for the timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DuplicateThreshold {
    /// The least, and what a connection begins with: Linux' `reordering`. At least 1; the standard's is 3.
    pub least: u8,
    /// Everything between segments that arrived counts as arrived, and what is missing there as lost: forward acknowledgment
    /// (Mathis and Mahdavi 1996). Until the path is seen to reorder.
    pub forward: bool,
}

impl DuplicateThreshold {
    /// The most that a threshold grows to, as in Linux 2.6.32.
    pub const MOST: u8 = 127;
}

impl Default for DuplicateThreshold {
    /// The standard's threshold, without forward acknowledgment.
    fn default() -> Self {
        Self { least: 3, forward: false }
    }
}

/// After a timeout, one segment leaves again, then new data, and what is acknowledged tells if the timeout was spurious (RFC 5682).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardRto {
    /// The basic form, where timestamps are off: they tell it at once.
    #[default]
    WithoutTimestamps,
    /// Never.
    Off,
    /// The basic form (RFC 5682 §2.1): cumulative acknowledgments alone tell.
    Basic,
    /// With SACK, selective acknowledgments tell as well (RFC 5682 §3.1); without, the basic form.
    Sack,
}
