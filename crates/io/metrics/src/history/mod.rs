//! What interfaces have carried, kept over restarts.
//!
//! Rows of ten seconds are kept for two days, rows of five minutes for a year: about 10 MB for an interface that is always in use.

mod recorder;
mod row;
mod store;

pub use recorder::Recorder;
pub use row::{RoundTrip, Row, Usage};
pub use store::{History, HistoryError, Resolution, read};
