//! What carries the runs of an experiment: the simulator, or something else that gives the same outcomes.

use std::error::Error;

use super::Outcome;
use crate::experiment::Job;

/// Carries runs.
pub trait Backend: Sync {
    /// Says before anything starts whether it can carry a run.
    ///
    /// # Errors
    /// [`BackendError::Unfit`] if it can't.
    fn check(&self, job: &Job) -> Result<(), BackendError>;

    /// Carries a run.
    ///
    /// # Errors
    /// Why it can't, or why it failed.
    fn run(&self, job: &Job) -> Result<Outcome, BackendError>;
}

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// This backend can't carry such a run.
    #[error("{0}")]
    Unfit(String),
    /// The run failed.
    #[error("{0}")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
}

/// The simulator, which carries everything, in virtual time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Simulator;

impl Backend for Simulator {
    fn check(&self, _job: &Job) -> Result<(), BackendError> {
        Ok(())
    }

    fn run(&self, job: &Job) -> Result<Outcome, BackendError> {
        Ok(job.run())
    }
}
