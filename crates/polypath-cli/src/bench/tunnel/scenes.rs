//! What is measured: one path as fast as the machine, and two emulated ones.

use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

use polypath_emulate::Emulation;
use polypath_link::Change;
use polypath_testbed::{Side, Testbed};
use serde::Serialize;

use super::datagrams::{Stream, round_trips_ms, stream};
use super::flow::Flow;
use super::system::{Given, System, Tunnel, inner};
use crate::bench::beside_kernel::scene::{AccessLink, emulated, neighbours_wait};
use crate::bench::host::MachineTime;
use crate::bench::outcome::monotonic_s;
use crate::bench::{BenchError, Spread};

/// Linux's default, whatever this machine has.
pub(super) const CONGESTION: &str = "cubic";
/// Part of a transfer at its begin that does not count: slow start.
const BEGIN: u32 = 5;
/// Between two measurements, for queues to become empty.
const REST: Duration = Duration::from_millis(500);

/// One system's throughput once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Throughput {
    /// Of one connection over virtual Ethernet.
    pub(crate) gbit_per_s: f64,
    /// User and system time of both of the tunnel's processes for 1e9 bytes of that connection.
    pub(crate) cpu_s_per_gb: f64,
    /// Busy time of the whole machine for them, the connection's ends and the kernel's interrupts included.
    pub(crate) machine_s_per_gb: f64,
}

/// What a path's loss did.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Failover {
    /// The longest time from the loss of the better path on without an arrival.
    pub(crate) gap_ms: f64,
    /// Whether the connection went on before the path came back.
    pub(crate) went_on: bool,
    /// Whether it lives at the end.
    pub(crate) survived: bool,
}

/// A tunnel over a pair of virtual Ethernet interfaces.
pub(super) struct OnePath {
    tunnel: Tunnel,
    testbed: Testbed,
}

impl OnePath {
    pub(super) fn start(system: System, program: &Path, folder: &Path) -> Result<Self, BenchError> {
        let testbed = Testbed::new(1).map_err(BenchError::Namespaces)?;
        Ok(Self { tunnel: Tunnel::start(system, program, &testbed, Given::alone(folder))?, testbed })
    }

    /// Of one connection, and what it costs.
    pub(super) fn throughput(&self, length: Duration) -> Result<Throughput, BenchError> {
        let ends = [&self.testbed.client, &self.testbed.server];
        let flow = Flow::start(ends, inner(Side::Server), CONGESTION)?;
        thread::sleep(length / BEGIN);
        let (from_s, cpu_from_s, machine_from) = (monotonic_s(), self.tunnel.cpu_s()?, MachineTime::now()?);
        thread::sleep(length);
        let (to_s, cpu_to_s, machine_to) = (monotonic_s(), self.tunnel.cpu_s()?, MachineTime::now()?);
        let gigabytes = flow.finish()?.bytes_between(from_s, to_s) as f64 / 1e9;
        Ok(Throughput {
            gbit_per_s: gigabytes * 8.0 / (to_s - from_s),
            cpu_s_per_gb: (cpu_to_s - cpu_from_s) / gigabytes,
            machine_s_per_gb: machine_to.since(machine_from).0 / gigabytes,
        })
    }
}

/// A tunnel over emulated access links: two, but where one is to be seen alone.
pub(super) struct TwoPaths {
    _tunnel: Tunnel,
    emulation: Emulation,
    testbed: Testbed,
    /// Of both paths, and of those that the tunnel uses.
    sum_mbit_per_s: f64,
    used_mbit_per_s: f64,
}

impl TwoPaths {
    /// Measurements that are told of.
    pub(super) const STEPS: u64 = 4;

    pub(super) fn start(
        system: System,
        program: &Path,
        given: Given<'_>,
        lines: &[AccessLink],
    ) -> Result<Self, BenchError> {
        let testbed = Testbed::with_middle(lines.len() as u8).map_err(BenchError::Namespaces)?;
        let middle = testbed.middle.as_ref().ok_or_else(|| io::Error::other("nothing between the hosts"))?;
        let emulation = Emulation::start(middle, emulated(lines)).map_err(io::Error::from)?;
        testbed.make_neighbours(neighbours_wait(lines))?;
        let used = if system.has_all_paths() { lines } else { &lines[..1] };
        let sum = |lines: &[AccessLink]| lines.iter().map(|line| line.mbit_per_s).sum();
        Ok(Self {
            _tunnel: Tunnel::start(system, program, &testbed, given)?,
            emulation,
            sum_mbit_per_s: sum(lines),
            used_mbit_per_s: sum(used),
            testbed,
        })
    }

    /// Sets a variable at both hosts.
    pub(super) fn set_variable(&self, name: &str, value: &str) -> io::Result<()> {
        [&self.testbed.client, &self.testbed.server]
            .iter()
            .try_for_each(|host| host.set_variable(name, value))
    }

    /// Begins a transfer.
    pub(super) fn flow(&self, congestion: &str) -> io::Result<Flow> {
        // The server sends, as most servers do.
        let ends = [&self.testbed.server, &self.testbed.client];
        Flow::start(ends, inner(Side::Client), congestion)
    }

    fn round_trips_ms(&self, length: Duration) -> Result<f64, BenchError> {
        let ends = [&self.testbed.client, &self.testbed.server];
        let round_trips = round_trips_ms(ends, inner(Side::Server), length, false)?;
        let spread = Spread::of(round_trips);
        Ok(spread.ok_or_else(|| io::Error::other("no datagram came back"))?.median)
    }

    /// Median round trip through an idle tunnel.
    pub(super) fn latency_ms(&self, length: Duration) -> Result<f64, BenchError> {
        self.round_trips_ms(length)
    }

    /// Share of the sum of both paths' rates that one connection gets.
    pub(super) fn tcp_share(&self, length: Duration) -> Result<f64, BenchError> {
        let flow = self.flow(CONGESTION)?;
        thread::sleep(length / BEGIN);
        let from_s = monotonic_s();
        thread::sleep(length);
        let to_s = monotonic_s();
        let bits = flow.finish()?.bytes_between(from_s, to_s) as f64 * 8.0;
        thread::sleep(REST);
        Ok(bits / (to_s - from_s) / (self.sum_mbit_per_s * 1e6))
    }

    /// A stream of datagrams at a share of the rates of the paths in use.
    pub(super) fn stream(&self, share: f64, length: Duration) -> Result<Stream, BenchError> {
        let ends = [&self.testbed.server, &self.testbed.client];
        Ok(stream(ends, inner(Side::Client), self.used_mbit_per_s * share, length)?)
    }

    /// Median round trip beside a bulk transfer.
    pub(super) fn latency_under_load_ms(&self, length: Duration) -> Result<f64, BenchError> {
        let flow = self.flow(CONGESTION)?;
        thread::sleep(length / BEGIN);
        let median = self.round_trips_ms(length);
        flow.finish()?;
        thread::sleep(REST);
        median
    }

    /// The better path loses all packets for a while, without a word, in the middle of a transfer.
    pub(super) fn failover(&self, outage: Duration) -> Result<Failover, BenchError> {
        let flow = self.flow(CONGESTION)?;
        thread::sleep(outage);
        let lost_s = monotonic_s();
        self.emulation.change(0, Change::Down)?;
        thread::sleep(outage);
        let back_s = monotonic_s();
        self.emulation.change(0, Change::Up)?;
        // The kernel tries again later and later, after twice the outage at most.
        thread::sleep(2 * outage);
        let end_s = monotonic_s();
        let arrivals = flow.finish()?;
        // What was under way does not show that it goes on.
        let settled_s = lost_s.midpoint(back_s);
        Ok(Failover {
            gap_ms: arrivals.longest_gap_s(lost_s, end_s) * 1e3,
            went_on: arrivals.bytes_between(settled_s, back_s) > 0,
            survived: arrivals.bytes_between(back_s, end_s) > 0,
        })
    }
}
