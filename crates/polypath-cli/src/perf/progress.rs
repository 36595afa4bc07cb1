use super::report::{Interval, Start};

/// What a caller is told while a measurement runs.
#[derive(Debug)]
#[non_exhaustive]
pub(crate) enum Progress<'a> {
    /// The connections are open and data begins to flow.
    Started(&'a Start),
    /// An interval is over.
    Interval(&'a Interval),
}
