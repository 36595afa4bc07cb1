//! Namespaces, helpers and processes of one run.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Child, Command, Stdio};

use polypath_congestion as congestion;
use polypath_system::{Namespace, Netlink};
use polypath_testbed::{Side, Testbed};
use serde::Serialize;

use super::outcome::Outcome;
use super::peer::{Assignment, Role};
use super::timed::Settings;
use super::{BenchError, Contender};

/// Most time that setting up and winding down may take, on top of the time of the run itself.
const GRACE_S: f64 = 20.0;

/// What a run is made over.
#[derive(Clone, Debug)]
pub(super) struct Ground {
    pub(super) contender: Contender,
    pub(super) paths: u8,
    pub(super) mtu_bytes: Option<u16>,
    /// Of our engines; theirs if not given.
    pub(super) congestion: Option<congestion::Policy>,
    /// The path that the connection is opened over.
    pub(super) initial_path: u8,
}

impl Ground {
    /// With nothing changed.
    pub(super) fn of(contender: Contender, paths: u8) -> Self {
        Self { contender, paths, mtu_bytes: None, congestion: None, initial_path: 0 }
    }
}

/// Two hosts that are ready for a contender.
#[derive(Debug)]
pub(super) struct Hosts {
    pub(super) testbed: Testbed,
    /// Of our engines; theirs, with the congestion control of the ground, if not given.
    pub(super) settings: Option<Settings>,
    ground: Ground,
}

impl Hosts {
    /// Joined directly.
    pub(super) fn direct(ground: Ground) -> Result<Self, BenchError> {
        Self::prepare(Testbed::new(ground.paths).map_err(BenchError::Namespaces)?, ground)
    }

    /// Joined through a third namespace.
    pub(super) fn with_middle(ground: Ground) -> Result<Self, BenchError> {
        Self::prepare(Testbed::with_middle(ground.paths).map_err(BenchError::Namespaces)?, ground)
    }

    fn prepare(testbed: Testbed, ground: Ground) -> Result<Self, BenchError> {
        let hosts = Self { testbed, settings: None, ground };
        let ground = &hosts.ground;
        for side in [Side::Client, Side::Server] {
            let namespace = hosts.testbed.namespace(side);
            // So that fresh connections in a row do not run out of ports, whatever carries them.
            namespace.set_variable("net/ipv4/ip_local_port_range", "1024 65535")?;
            if let Some(mtu_bytes) = ground.mtu_bytes {
                namespace.run(|| {
                    let netlink = Netlink::new()?;
                    (0..ground.paths)
                        .try_for_each(|path| netlink.set_mtu(&Testbed::interface(path), mtu_bytes.into()))
                })??;
            }
            if matches!(ground.contender, Contender::KernelMptcp | Contender::Iperf3Mptcp) {
                hosts.set_up_path_manager(side)?;
            }
        }
        Ok(hosts)
    }

    /// The server announces its other addresses, and the client's routes lead each over its own path.
    fn set_up_path_manager(&self, side: Side) -> Result<(), BenchError> {
        let namespace = self.testbed.namespace(side);
        run_ip(namespace, &["mptcp", "limits", "set", "subflows", "8", "add_addr_accepted", "8"])?;
        for path in 0..self.ground.paths {
            if side == Side::Server && path != self.ground.initial_path {
                let addr = Testbed::server_v4(path).to_string();
                let device = Testbed::interface(path);
                run_ip(namespace, &["mptcp", "endpoint", "add", &addr, "dev", &device, "signal"])?;
            }
        }
        Ok(())
    }

    /// Starts this program again in the namespace of its side; a server is ready when this returns.
    pub(super) fn start(&self, role: Role, limit_s: f64) -> Result<Peer, BenchError> {
        let path = |side| {
            let namespace: &Namespace = self.testbed.namespace(side);
            format!("/proc/{}/fd/{}", std::process::id(), namespace.as_fd().as_raw_fd())
        };
        let assignment = Assignment {
            contender: self.ground.contender,
            role,
            paths: self.ground.paths,
            mtu_bytes: self.ground.mtu_bytes,
            congestion: self.ground.congestion.as_ref().map(|algorithm| algorithm.to_string()),
            settings: self.settings.clone(),
            initial_path: self.ground.initial_path,
            namespaces: [path(Side::Client), path(Side::Server)],
            limit_s: limit_s + GRACE_S,
        };
        let assignment = serde_json::to_string(&assignment).map_err(std::io::Error::other)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench", "peer", &assignment]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.testbed.namespace(role.side()).run(|| command.spawn())??;
        let output = child.stdout.take().map(BufReader::new);
        let output = output.ok_or_else(|| std::io::Error::other("a child process without output"))?;
        let mut peer = Peer { contender: self.ground.contender, role, child, output };
        if role.side() == Side::Server {
            peer.wait_until_ready()?;
        }
        Ok(peer)
    }

    /// Share of each path in the bytes that have arrived at the server.
    pub(super) fn path_shares(&self) -> Result<Vec<f64>, BenchError> {
        let table = self.testbed.server.run(|| std::fs::read_to_string("/proc/thread-self/net/dev"))??;
        let received = |path: u8| -> Option<f64> {
            let name = format!("{}:", Testbed::interface(path));
            let line = table.lines().find_map(|line| line.trim_start().strip_prefix(&name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        let bytes: Vec<f64> = (0..self.ground.paths).map(|path| received(path).unwrap_or(0.0)).collect();
        let total: f64 = bytes.iter().sum();
        Ok(bytes.iter().map(|bytes| if total > 0.0 { bytes / total } else { 0.0 }).collect())
    }
}

/// A process that was started; it is killed when it is dropped before it has finished.
#[derive(Debug)]
pub(super) struct Peer {
    contender: Contender,
    role: Role,
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Peer {
    fn wait_until_ready(&mut self) -> Result<(), BenchError> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if line.trim() == "ready" { Ok(()) } else { Err(self.failure()) }
    }

    fn failure(&mut self) -> BenchError {
        // It has nothing to wait for any more, so that its standard error ends.
        let _ = self.child.kill();
        let mut message = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            // A message that is no text is no help; the exit code is.
            let _ = stderr.read_to_string(&mut message);
        }
        let message = message.trim().trim_start_matches("polypath: ");
        let message = match (message, self.child.wait()) {
            ("", Ok(status)) => format!("ended with {status}"),
            (message, _) => message.to_string(),
        };
        let role = match self.role.side() {
            Side::Client => "client",
            Side::Server => "server",
        };
        BenchError::Peer { contender: self.contender, role, message }
    }

    /// Waits until it has done its work.
    pub(super) fn finish(mut self) -> Result<Outcome, BenchError> {
        if self.role.ends_when_told() {
            drop(self.child.stdin.take());
        }
        let mut text = String::new();
        self.output.read_to_string(&mut text)?;
        match serde_json::from_str(&text) {
            Ok(outcome) => {
                self.child.wait()?;
                Ok(outcome)
            }
            Err(_) => Err(self.failure()),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Fails when it has ended already, which is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs iproute2's `ip`: the kernel's path manager is spoken to through it alone.
pub(super) fn run_ip(namespace: &Namespace, arguments: &[&str]) -> Result<(), BenchError> {
    run_program(namespace, "ip", arguments)
}

fn run_program(namespace: &Namespace, program: &'static str, arguments: &[&str]) -> Result<(), BenchError> {
    let output = namespace.run(|| Command::new(program).args(arguments).stdin(Stdio::null()).output())?;
    let output = output.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            BenchError::Missing { program, purpose: "to set up the kernel's side", package: "iproute2" }
        }
        _ => error.into(),
    })?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    Err(BenchError::Refused { command: format!("{program} {}", arguments.join(" ")), message })
}

/// Of /proc/stat and /proc/PID/stat: the USER_HZ that Linux has on every architecture of today.
pub(super) const TICKS_PER_SECOND: f64 = 100.0;

/// Processor time of the whole machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct MachineTime {
    busy_s: f64,
    softirq_s: f64,
}

impl MachineTime {
    /// Until now, of all processors together.
    pub(super) fn now() -> Result<Self, BenchError> {
        let text = std::fs::read_to_string("/proc/stat")?;
        let line = text.lines().next().unwrap_or_default();
        let ticks: Vec<f64> = line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
        let at = |index: usize| ticks.get(index).copied().unwrap_or(0.0) / TICKS_PER_SECOND;
        // user, nice, system, (idle, iowait,) irq, softirq
        Ok(Self { busy_s: at(0) + at(1) + at(2) + at(5) + at(6), softirq_s: at(5) + at(6) })
    }

    /// Busy seconds since an earlier moment, and those of them in interrupts.
    pub(super) fn since(self, earlier: Self) -> (f64, f64) {
        (self.busy_s - earlier.busy_s, self.softirq_s - earlier.softirq_s)
    }
}

/// Processor seconds that a GB (1e9 bytes) cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct CpuPerGb {
    /// In the code of sender and receiver.
    pub user_s: f64,
    /// In the kernel on behalf of the two.
    pub system_s: f64,
    /// The whole machine's busy time, interrupts and everything else that it did included.
    pub machine_s: f64,
    /// Of that, interrupts, which belong to no process.
    pub interrupts_s: f64,
}
