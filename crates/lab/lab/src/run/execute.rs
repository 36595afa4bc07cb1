//! All runs of an experiment, on all cores.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use super::{Backend, BackendError, Outcome};
use crate::experiment::{Experiment, Job, RunKey};
use crate::result::{Store, StoreError};

/// What an execution tells while it goes on.
pub trait Progress {
    /// So many runs are done, and so many of the bytes that are to be sent in all.
    fn at(&mut self, done_runs: usize, runs: usize, done_cost: u64, cost: u64);
}

/// Tells nobody.
impl Progress for () {
    fn at(&mut self, _done_runs: usize, _runs: usize, _done_cost: u64, _cost: u64) {}
}

/// Why an execution ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecuteError {
    /// A result can't be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The backend can't carry a run.
    #[error("set {}, {variant}: {error}", set + 1)]
    Backend {
        /// Number of the set.
        set: usize,
        /// Name of the variant.
        variant: String,
        /// Why.
        error: BackendError,
    },
}

/// A run that ended.
struct Done {
    cost: u64,
    key: RunKey,
    outcome: Result<Outcome, ExecuteError>,
    /// Says that it is stored; dropped when it can't be, which wakes who waits.
    stored: mpsc::Sender<()>,
}

fn refused(job: &Job, error: BackendError) -> ExecuteError {
    ExecuteError::Backend { set: job.key.set, variant: job.variant.name.clone(), error }
}

/// Whether the backend can carry all runs of an experiment, as far as it knows before.
///
/// # Errors
/// The first run that it can't carry.
pub fn check(experiment: &Experiment, backend: &dyn Backend) -> Result<(), ExecuteError> {
    let mut jobs = (0..experiment.run_count()).map(|index| experiment.job(index));
    jobs.try_for_each(|job| backend.check(&job).map_err(|error| refused(&job, error)))
}

/// Runs what the store does not have yet, the longest first, and stores each run as it ends.
///
/// True if everything is done; false if `stop` came first, which ends after the runs that are under way.
///
/// # Errors
/// If the backend can't carry a run, or a result can't be stored.
pub fn execute(
    experiment: &Experiment,
    backend: &dyn Backend,
    store: &mut Store,
    threads: NonZeroUsize,
    stop: &AtomicBool,
    progress: &mut dyn Progress,
) -> Result<bool, ExecuteError> {
    let runs = experiment.run_count();
    let mut jobs: Vec<(u64, Job)> =
        (0..runs).map(|index| experiment.job(index)).map(|job| (job.cost(), job)).collect();
    let cost: u64 = jobs.iter().map(|(cost, _)| cost).sum();
    jobs.retain(|(_, job)| !store.has(job.key));
    let mut done_cost = cost - jobs.iter().map(|(cost, _)| cost).sum::<u64>();
    let mut done_runs = runs - jobs.len();
    // No core waits at the end for another that began something long.
    jobs.sort_by_key(|(cost, job)| (std::cmp::Reverse(*cost), job.key));
    progress.at(done_runs, runs, done_cost, cost);

    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel::<Done>();
        for _ in 0..threads.get().min(jobs.len()) {
            let (sender, jobs, next, failed) = (sender.clone(), &jobs, &next, &failed);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed)
                    && !failed.load(Ordering::Relaxed)
                    && let Some((cost, job)) = jobs.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let outcome = backend.run(job).map_err(|error| refused(job, error));
                    // The only sender goes along: if it is lost, this does not wait for ever.
                    let (stored, is_stored) = mpsc::channel();
                    let done = Done { cost: *cost, key: job.key, outcome, stored };
                    // Nothing new begins before this is safe, so that a kill loses one run a thread at most.
                    if sender.send(done).is_err() || is_stored.recv().is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for done in receiver {
            let added = done.outcome.and_then(|outcome| Ok(store.add(done.key, outcome)?));
            added.inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
            // Who waits for it is there, or has no more to do.
            let _ = done.stored.send(());
            done_runs += 1;
            done_cost += done.cost;
            progress.at(done_runs, runs, done_cost, cost);
        }
        Ok(done_runs == runs)
    })
}

#[cfg(test)]
mod tests {
    use polypath_config::Policies;

    use super::*;
    use crate::experiment::Form;

    const TEXT: &str = r#"
name = "one"
title = "One set"
repeats = 6
metrics = ["goodput"]
[[sets]]
name = "one"
paths = [{ rate = "1mbit", rtt = "20ms", queue = "50ms" }, { rate = "1mbit", rtt = "20ms", queue = "50ms" }]
[traffic]
kind = "bulk"
duration = "1s"
[[variants]]
name = "LIA"
"#;

    /// Can do nothing.
    struct Broken;

    impl Backend for Broken {
        fn check(&self, _job: &Job) -> Result<(), BackendError> {
            Ok(())
        }

        fn run(&self, _job: &Job) -> Result<Outcome, BackendError> {
            Err(BackendError::Failed("broken".into()))
        }
    }

    #[test]
    fn an_error_ends_all_threads() {
        let experiment = Experiment::parse("one.toml", TEXT, Form::Full, &Policies::default()).unwrap();
        let out = tempfile::tempdir().unwrap();
        let mut store = Store::open(out.path(), &experiment, "1").unwrap();
        let (three, never) = (NonZeroUsize::new(3).unwrap(), AtomicBool::new(false));
        let error = execute(&experiment, &Broken, &mut store, three, &never, &mut ()).unwrap_err();
        assert_eq!(error.to_string(), "set 1, LIA: broken");
        assert!(store.runs().is_empty());
    }
}
