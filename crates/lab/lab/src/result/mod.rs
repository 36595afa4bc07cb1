//! Results: a folder for each run of an experiment.
//!
//! | file | content |
//! |---|---|
//! | `manifest.json` | which experiment, in which form, by which build, and whether it is complete |
//! | `experiment.toml` | the experiment as it was run |
//! | `runs.jsonl` | finished runs, one a line, while the experiment goes on |
//! | `runs.parquet` | all runs, once it is complete |
//! | `series.parquet` | rates over time, if the experiment has a timeline |
//!
//! The folder's name ends in a part of the hash of experiment, form and build: another experiment, or another build,
//! gets another folder and never goes on with old results.

mod error;
mod parquet;
mod store;

pub use error::StoreError;
pub use store::{Manifest, Results, Store};
