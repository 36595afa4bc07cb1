//! One run that is looked at closely: its packets, and its connections over time.

use std::io;
use std::mem;

use polypath_sim::network::{Network, NetworkBuilder};
use polypath_sim::scenario::defaults::SAMPLE_INTERVAL;
use polypath_sim::scenario::{Recorded, Recording, RunResult};
use polypath_sim::trace::TraceOutputs;
use polypath_units::Instant;

/// What records a run. Nothing in the run changes by it.
#[derive(Debug, Default)]
pub struct Watch {
    outputs: TraceOutputs,
    recording: Option<Recording>,
    next: Instant,
    result: Option<io::Result<RunResult>>,
}

impl Watch {
    /// Records into these.
    #[must_use]
    pub fn new(outputs: TraceOutputs) -> Self {
        Self { outputs, ..Self::default() }
    }

    fn build(&mut self, builder: NetworkBuilder) -> Network {
        let tracer = builder.tracer(mem::take(&mut self.outputs));
        self.recording = Some(Recording::new(&builder));
        self.next = Instant::ZERO + SAMPLE_INTERVAL;
        let mut network = builder.build();
        match tracer {
            Ok(tracer) => network.set_tracer(Some(tracer)),
            Err(error) => self.result = Some(Err(error)),
        }
        network
    }

    fn add(&mut self, what: Recorded) {
        if let Some(recording) = &mut self.recording {
            recording.add(what);
        }
    }

    fn run_until(&mut self, network: &mut Network, end: Instant) {
        while self.next <= end {
            self.run_on(network, self.next);
            if let Some(recording) = &mut self.recording {
                recording.sample(network);
            }
            self.next += SAMPLE_INTERVAL;
        }
        self.run_on(network, end);
    }

    fn run_on(&mut self, network: &mut Network, end: Instant) {
        match &mut self.recording {
            Some(recording) => recording.run_until(network, end),
            None => network.run_until(end),
        }
    }

    fn finish(&mut self, network: &mut Network, seed: u64) {
        if let Some(recording) = self.recording.take() {
            let result = recording.finish(network, "run", seed);
            self.result.get_or_insert(result);
        }
    }

    /// The run as `sim` tells one.
    ///
    /// # Errors
    /// An output that can't be written.
    pub fn into_result(self) -> io::Result<RunResult> {
        self.result.unwrap_or_else(|| Err(io::Error::other("nothing was run")))
    }
}

/// A run that may be watched.
pub(crate) type MaybeWatched<'a> = Option<&'a mut Watch>;

/// The network, with its traces begun.
pub(crate) fn build(builder: NetworkBuilder, watch: &mut MaybeWatched<'_>) -> Network {
    match watch {
        None => builder.build(),
        Some(watch) => watch.build(builder),
    }
}

/// Records a connection, too.
pub(super) fn add(watch: &mut MaybeWatched<'_>, what: impl FnOnce() -> Recorded) {
    if let Some(watch) = watch {
        watch.add(what());
    }
}

/// Runs to `end`, as [`Network::run_until`] does.
pub(crate) fn run_until(network: &mut Network, end: Instant, watch: &mut MaybeWatched<'_>) {
    match watch {
        None => network.run_until(end),
        Some(watch) => watch.run_until(network, end),
    }
}

/// The run is over.
pub(crate) fn finish(network: &mut Network, seed: u64, watch: &mut MaybeWatched<'_>) {
    if let Some(watch) = watch {
        watch.finish(network, seed);
    }
}

#[cfg(test)]
mod tests {
    use polypath_config::Policies;

    use super::*;
    use crate::experiment::{Experiment, Form};

    const PARALLEL: &str = r#"
name = "parallel"
title = "Parallel paths"
metrics = ["goodput"]
[[sets]]
name = "one"
paths = [{ rate = "4mbit", rtt = "20ms", queue = "50ms", loss = "1%" }, { rate = "2mbit", rtt = "30ms", queue = "50ms" }]
[traffic]
kind = "bulk"
duration = "3s"
[[variants]]
name = "default"
"#;

    fn watched(text: &str) -> (RunResult, Vec<u8>) {
        use std::io::Write;
        use std::sync::{Arc, Mutex};
        #[derive(Clone, Default)]
        struct Kept(Arc<Mutex<Vec<u8>>>);
        impl Write for Kept {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.lock().expect("one thread").write(bytes)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let experiment =
            Experiment::parse("a.toml", text, Form::Full, &Policies::default()).expect("it makes sense");
        let job = experiment.job(0);
        let packets = Kept::default();
        let outputs =
            TraceOutputs { hash: true, text: Some(Box::new(packets.clone())), ..TraceOutputs::default() };
        let mut watch = Watch::new(outputs);
        let outcome = job.run_watched(&mut watch);
        // Bit for bit.
        assert_eq!(outcome, job.run());
        let packets = packets.0.lock().expect("one thread").clone();
        (watch.into_result().expect("room"), packets)
    }

    #[test]
    fn a_run_that_is_watched_gives_what_it_gives_unwatched() {
        let transfer = PARALLEL.replace("\"bulk\"\nduration = \"3s\"", "\"transfer\"\nbytes = \"1MB\"");
        let shared = PARALLEL.replace(
            "[[sets]]",
            "[topology]\nkind = \"shared\"\n[[flows]]\nname = \"TCP\"\npaths = [1]\ntcp = \"reno\"\n\
             [[flows]]\nname = \"MPTCP\"\npaths = [1, 2]\n[[sets]]",
        );
        let ring = PARALLEL
            .replace("[[sets]]", "[topology]\nkind = \"ring\"\n[[sets]]")
            .replace("paths = [{", "paths = [{ rate = \"4mbit\", rtt = \"20ms\", queue = \"50ms\" }, {");
        let windows = PARALLEL.replace("metrics", "record = \"congestion-window\"\nmetrics");
        for (text, connections) in [(PARALLEL, 1), (&windows, 1), (&transfer, 1), (&shared, 2), (&ring, 3)] {
            let (result, packets) = watched(text);
            assert_eq!(result.connections.len(), connections, "{text}");
            assert_ne!(result.trace_hash, "0000000000000000");
            assert!(packets.iter().filter(|byte| **byte == b'\n').count() > 100, "{text}");
            for connection in &result.connections {
                let stream = connection.upload.as_ref().expect("it sends");
                assert!(stream.intact && stream.bytes > 0 && !stream.subflows.is_empty(), "{text}");
                assert!(stream.series.time_s.len() > 5, "{text}");
            }
        }
    }
}
