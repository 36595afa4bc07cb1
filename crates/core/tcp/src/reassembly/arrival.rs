/// What became of arrived data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It continued the stream.
    InOrder,
    /// It continued the stream and closed a gap, or part of one.
    FilledGap,
    /// It lies behind a gap.
    OutOfOrder,
    /// All of it had arrived before.
    Duplicate,
    /// It would open one gap too many.
    TooManyGaps,
}
