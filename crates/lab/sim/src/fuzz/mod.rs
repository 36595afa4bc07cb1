//! A fuzzer of the state machines: two production hosts, a network that does what it should not, an attacker, applications that
//! come and go, in virtual time.
//!
//! A run follows from a byte string alone: [`Case::from_bytes`] reads a set-up and operations from it. A seed is only a way to make
//! one, and so is a coverage-guided fuzzer. [`shrink`] makes a byte string that fails shorter and plainer.

mod application;
mod apply;
mod failure;
mod forge;
mod invariants;
mod network;
mod op;
mod reader;
mod setup;
mod shrink;
mod sniffer;
#[cfg(test)]
mod tests;
mod world;

use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use polypath_units::Instant;
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

pub use failure::{Failure, Finding, FindingKind};
pub(crate) use forge::{ForgedOption, Forgery, Place, Window};
pub(crate) use op::{Op, RECORD_BYTES};
pub(crate) use setup::{PORT, Setup, Side, Strength, client_addr, server_addr};
pub use shrink::{Shrunk, shrink};
pub(crate) use sniffer::Sniffer;

use world::World;

/// Length of what describes hosts and paths.
const SETUP_BYTES: usize = 128;
/// Operations of the longest run that is made from a seed.
const MOST_OPERATIONS: u32 = 240;

/// A run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    setup: [u8; SETUP_BYTES],
    operations: Vec<[u8; RECORD_BYTES]>,
}

/// A run in which every invariant held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Packets that the hosts sent.
    pub packets: u64,
    /// Connection ends that came to their end.
    pub connections: u64,
    /// Bytes that applications read.
    pub read_bytes: u64,
    /// Virtual time at the end.
    pub(crate) at: Instant,
}

impl Case {
    /// The run of a byte string of any length.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let (first, rest) = bytes.split_at(bytes.len().min(SETUP_BYTES));
        let mut setup = [0; SETUP_BYTES];
        setup[..first.len()].copy_from_slice(first);
        let operations = rest.chunks(RECORD_BYTES).map(|record| {
            let mut whole = [0; RECORD_BYTES];
            whole[..record.len()].copy_from_slice(record);
            whole
        });
        Self { setup, operations: operations.collect() }
    }

    /// The run of a seed.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let count = 8 + random.next_u32() % MOST_OPERATIONS;
        let mut bytes = vec![0; SETUP_BYTES + RECORD_BYTES * count as usize];
        random.fill_bytes(&mut bytes);
        Self::from_bytes(&bytes)
    }

    #[cfg(test)]
    fn to_bytes(&self) -> Vec<u8> {
        self.setup.iter().chain(self.operations.iter().flatten()).copied().collect()
    }

    /// Hosts and paths.
    fn setup(&self) -> Setup {
        Setup::read(&self.setup)
    }

    /// What happens.
    fn operations(&self) -> impl Iterator<Item = Op> {
        self.operations.iter().map(Op::read)
    }

    /// Runs it.
    ///
    /// # Errors
    /// The first invariant that does not hold. A panic of the stack is one, where panics unwind.
    pub fn run(&self) -> Result<Outcome, Failure> {
        self.run_logged(false).0
    }

    /// Runs it, and writes one line for each packet, event and operation.
    pub fn run_traced(&self) -> (Result<Outcome, Failure>, Vec<String>) {
        self.run_logged(true)
    }

    fn run_logged(&self, logs: bool) -> (Result<Outcome, Failure>, Vec<String>) {
        let mut world = World::new(self.setup());
        world.log = logs.then(Vec::new);
        let mut done = 0;
        let result = catch_unwind(AssertUnwindSafe(|| self.drive(&mut world, &mut done)));
        let result = result.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
            Err(Finding::new(FindingKind::Panic, text))
        });
        let log = world.log.take().unwrap_or_default();
        let outcome = Outcome {
            packets: world.packets,
            connections: world.finished_connections,
            read_bytes: world.applications.iter().map(|application| application.read_bytes).sum(),
            at: world.now,
        };
        let failed = |finding| Failure { finding, at: world.now, operations: done };
        (result.map(|()| outcome).map_err(failed), log)
    }

    fn drive(&self, world: &mut World, done: &mut usize) -> Result<(), Finding> {
        world.connect(0, 0)?;
        for op in self.operations() {
            *done += 1;
            world.apply(op)?;
        }
        world.settle()
    }

    /// Set-up and operations, one a line, with the plain settings left out.
    #[must_use]
    pub fn describe_briefly(&self) -> String {
        let (own, plain) = (format!("{:#?}", self.setup()), format!("{:#?}", Setup::read(&[])));
        let plain: std::collections::BTreeSet<&str> = plain.lines().collect();
        let mut text = String::new();
        for line in own.lines().filter(|line| !plain.contains(line)) {
            text += line;
            text.push('\n');
        }
        self.describe_with(text)
    }

    fn describe_with(&self, mut text: String) -> String {
        for (number, op) in (1..).zip(self.operations()) {
            // Writing to a string does not fail.
            let _written = writeln!(text, "{number:4} {op:?}");
        }
        text
    }
}

/// Runs a byte string: what fuzz targets call.
///
/// # Panics
/// If an invariant does not hold that is not [expected](known).
pub fn host(bytes: &[u8]) {
    if let Err(failure) = Case::from_bytes(bytes).run()
        && known(&failure).is_none()
    {
        panic!("{failure}");
    }
}

/// Kinds of failure that are expected for now, with the reason. Empty is what it should be.
const KNOWN: &[(FindingKind, &str)] = &[];

/// Why a failure is expected, if it is.
#[must_use]
pub fn known(failure: &Failure) -> Option<&'static str> {
    KNOWN.iter().find(|(kind, _)| *kind == failure.finding.kind).map(|(_, reason)| *reason)
}
