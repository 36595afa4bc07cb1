/// What became of data that was put in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Insertion {
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
