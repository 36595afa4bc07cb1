//! Random scenarios by the thousand: whatever the network does, bytes arrive, nothing stalls, nothing leaks.
//!
//! A scenario follows from its seed alone, so that a failure is replayed by its number.

mod describe;
mod scenario;
mod window_updates;

use std::fmt;

use polypath_config::Policies;
use polypath_units::{Duration, Instant};

use crate::conversation::Ends;
use crate::network::Network;
use crate::trace::TraceOutputs;

use scenario::Ending;
pub use scenario::SoakScenario;

/// A scenario that went as it must.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Virtual time until both ends were done.
    pub finished_at: Instant,
    /// Bytes that arrived, both directions together.
    pub received_bytes: u64,
    /// Packets that arrived, over all links.
    pub packets: u64,
    /// Hash of the trace, if it was asked for.
    pub trace_hash: Option<u64>,
}

/// A scenario that went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The seed that replays it.
    pub seed: u64,
    /// When it was noticed.
    pub(crate) at: Instant,
    /// What went wrong.
    pub kind: FailureKind,
    /// Details in words.
    pub(crate) details: String,
}

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// Nothing arrived and nothing ended for longer than [`STALL_BOUND`].
    Stall,
    /// A byte was not the one that was sent.
    WrongByte,
    /// Bytes were lost, or the connection did not end in order, though nobody aborted it.
    Incomplete,
    /// A host still holds something after everything was over.
    Leak,
    /// Two runs of one seed differ.
    NotDeterministic,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {:?} at {}: {}", self.seed, self.kind, self.at, self.details)
    }
}

impl std::error::Error for Failure {}

/// The longest time without progress that is no stall: keep-alive and the time without subflows take 150 s
/// together, and a backed-off timer adds to it.
pub const STALL_BOUND: Duration = Duration::from_secs(240);

/// TIME-WAIT and orphans are gone this long after the end.
const LINGER: Duration = Duration::from_secs(400);

/// Between two looks at the progress.
const STEP: Duration = Duration::from_secs(2);

/// Runs the scenario of `seed`.
///
/// # Errors
/// What went wrong.
pub fn run(seed: u64, policies: &Policies) -> Result<Outcome, Failure> {
    SoakScenario::from_seed(seed, policies).run(false)
}

/// Runs the scenario of `seed` twice and compares the traces.
///
/// # Errors
/// What went wrong.
pub fn run_twice(seed: u64, policies: &Policies) -> Result<Outcome, Failure> {
    let scenario = SoakScenario::from_seed(seed, policies);
    let [first, second] = [scenario.run(true)?, scenario.run(true)?];
    if first != second {
        let details = format!("{first:?} and {second:?}");
        return Err(Failure { seed, at: second.finished_at, kind: FailureKind::NotDeterministic, details });
    }
    Ok(first)
}

impl SoakScenario {
    /// Runs the scenario, with a hash of its trace if `hash`.
    ///
    /// # Errors
    /// What went wrong.
    pub fn run(&self, hash: bool) -> Result<Outcome, Failure> {
        self.run_traced(TraceOutputs { hash, ..TraceOutputs::default() })
    }

    /// Runs the scenario and records it.
    ///
    /// # Errors
    /// What went wrong.
    pub fn run_traced(&self, outputs: TraceOutputs) -> Result<Outcome, Failure> {
        let traced = outputs.hash || outputs.pcapng.is_some() || outputs.text.is_some();
        let (mut network, ends) = self.build(traced.then_some(outputs));
        let mut observer = Observer { scenario: self, ends, last_progress: (Instant::ZERO, 0) };
        let finished_at = loop {
            network.run_for(STEP);
            observer.check_bytes(&network)?;
            // An end that aborts early leaves the other without a connection.
            let never_accepted = network.host(ends.acceptor.node).connection(ends.acceptor.app).is_none();
            let acceptor_over = network.traffic(ends.acceptor).is_over() || never_accepted;
            if network.traffic(ends.opener).is_over() && acceptor_over {
                break network.now();
            }
            observer.check_progress(&network)?;
        };
        observer.check_end(&network)?;
        network.run_for(LINGER);
        observer.check_leaks(&network)?;
        let received = [ends.opener, ends.acceptor].map(|end| network.report(end).received_bytes);
        let outcome = Outcome {
            finished_at,
            received_bytes: received.iter().sum(),
            packets: network.delivered_packets(),
            trace_hash: network.trace_hash(),
        };
        if let Some(tracer) = network.take_tracer() {
            // What a trace could not write shows in the file.
            let _written = tracer.finish();
        }
        Ok(outcome)
    }
}

/// Watches a run.
struct Observer<'a> {
    scenario: &'a SoakScenario,
    ends: Ends,
    /// When something last changed, and to what.
    last_progress: (Instant, u64),
}

impl Observer<'_> {
    fn failure(&self, network: &Network, kind: FailureKind, details: String) -> Failure {
        Failure { seed: self.scenario.seed, at: network.now(), kind, details }
    }

    fn check_bytes(&self, network: &Network) -> Result<(), Failure> {
        for (name, end) in [("client", self.ends.opener), ("server", self.ends.acceptor)] {
            if let Some(mismatch) = network.report(end).mismatch {
                let details = format!("{name} received a wrong byte at stream offset {}", mismatch.offset);
                return Err(self.failure(network, FailureKind::WrongByte, details));
            }
        }
        Ok(())
    }

    /// Progress is a byte that arrived, or an end that opened, finished or closed.
    fn check_progress(&mut self, network: &Network) -> Result<(), Failure> {
        let mut progress = 0;
        for end in [self.ends.opener, self.ends.acceptor] {
            let report = network.report(end);
            let marks = [
                report.opened_at.is_some(),
                report.peer_finished_at.is_some(),
                report.closed.is_some(),
                report.aborted,
            ];
            progress += report.received_bytes + marks.into_iter().filter(|mark| *mark).count() as u64;
        }
        // A planned abort is something to wait for.
        let waits = self.scenario.next_planned(network.now());
        if progress != self.last_progress.1 || waits {
            self.last_progress = (network.now(), progress);
        } else if network.now().since(self.last_progress.0) > STALL_BOUND {
            let details = format!("since {}; {}", self.last_progress.0, self.describe(network));
            return Err(self.failure(network, FailureKind::Stall, details));
        }
        Ok(())
    }

    fn check_end(&self, network: &Network) -> Result<(), Failure> {
        if self.scenario.ending.is_abort() {
            return Ok(());
        }
        let [opener, acceptor] = [self.ends.opener, self.ends.acceptor].map(|end| network.report(end));
        let in_order =
            [opener, acceptor].iter().all(|report| report.closed.is_some_and(|(_, in_order, _)| in_order));
        let arrived =
            opener.sent_bytes == acceptor.received_bytes && acceptor.sent_bytes == opener.received_bytes;
        let all_sent = matches!(self.scenario.ending, Ending::Stop { .. })
            || (opener.sent_bytes == self.scenario.up_bytes
                && acceptor.sent_bytes == self.scenario.down_bytes);
        if in_order && arrived && all_sent {
            return Ok(());
        }
        Err(self.failure(network, FailureKind::Incomplete, self.describe(network)))
    }

    fn check_leaks(&self, network: &Network) -> Result<(), Failure> {
        for (name, end) in [("client", self.ends.opener), ("server", self.ends.acceptor)] {
            let stack = &network.host(end.node).stack;
            let counts = [
                ("connections", stack.population().connections),
                ("flows", stack.population().flows),
                ("tokens", stack.token_count()),
                ("TIME-WAITs", stack.population().time_waits),
            ];
            if counts.iter().any(|(_, count)| *count > 0) {
                let details = format!("{name} still has {counts:?}; {}", self.describe(network));
                return Err(self.failure(network, FailureKind::Leak, details));
            }
        }
        Ok(())
    }

    fn describe(&self, network: &Network) -> String {
        let end = |end| {
            let report = network.report(end);
            let subflows = network.connection_info(end).map_or(0, |info| info.subflows.len());
            format!(
                "sent {} received {} opened {:?} finished {:?} closed {:?} subflows {subflows}",
                report.sent_bytes,
                report.received_bytes,
                report.opened_at,
                report.peer_finished_at,
                report.closed
            )
        };
        format!("client {}; server {}; {:?}", end(self.ends.opener), end(self.ends.acceptor), self.scenario)
    }
}

#[cfg(test)]
mod tests;
