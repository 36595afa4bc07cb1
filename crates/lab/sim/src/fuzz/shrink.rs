//! Makes a failing run shorter and plainer while it fails in the same way.

use super::{Case, Failure, RECORD_BYTES};

/// What is left of a failing run.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The run.
    pub case: Case,
    /// How it fails.
    pub failure: Failure,
    /// Runs that it took.
    pub runs: u32,
}

struct Shrinker {
    best: Case,
    failure: Failure,
    runs: u32,
    most_runs: u32,
}

/// Drops operations, then turns bytes to zero, which is always the plainest choice, in at most `most_runs` runs.
#[must_use]
pub fn shrink(case: &Case, failure: Failure, most_runs: u32) -> Shrunk {
    let mut shrinker = Shrinker { best: case.clone(), failure, runs: 0, most_runs };
    shrinker.best.operations.truncate(shrinker.failure.operations);
    if !shrinker.still_fails(shrinker.best.clone()) {
        shrinker.best = case.clone();
    }
    loop {
        let before = shrinker.best.clone();
        shrinker.drop_operations();
        shrinker.zero_setup();
        shrinker.zero_operations();
        if shrinker.best == before || shrinker.runs >= most_runs {
            break;
        }
    }
    Shrunk { case: shrinker.best, failure: shrinker.failure, runs: shrinker.runs }
}

impl Shrinker {
    /// Keeps a candidate if it fails in the same way.
    fn still_fails(&mut self, candidate: Case) -> bool {
        if self.runs >= self.most_runs {
            return false;
        }
        self.runs += 1;
        match candidate.run() {
            Err(failure) if failure.finding.kind == self.failure.finding.kind => {
                self.best = candidate;
                self.failure = failure;
                true
            }
            _ => false,
        }
    }

    fn drop_operations(&mut self) {
        let mut size = self.best.operations.len().div_ceil(2);
        while size > 0 {
            let mut at = 0;
            while at < self.best.operations.len() {
                let mut candidate = self.best.clone();
                let end = (at + size).min(candidate.operations.len());
                candidate.operations.drain(at..end);
                if !self.still_fails(candidate) {
                    at += size;
                }
            }
            size /= 2;
        }
    }

    fn zero_setup(&mut self) {
        for at in 0..self.best.setup.len() {
            if self.best.setup[at] != 0 {
                let mut candidate = self.best.clone();
                candidate.setup[at] = 0;
                self.still_fails(candidate);
            }
        }
    }

    fn zero_operations(&mut self) {
        for number in 0..self.best.operations.len() {
            for at in 1..RECORD_BYTES {
                if self.best.operations.get(number).is_some_and(|record| record[at] != 0) {
                    let mut candidate = self.best.clone();
                    candidate.operations[number][at] = 0;
                    self.still_fails(candidate);
                }
            }
        }
    }
}
