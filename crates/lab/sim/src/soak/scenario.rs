//! What is random about a soak scenario.

use std::sync::Arc;

use polypath_config::{Policies, PolicyKind};
use polypath_congestion::{self as congestion, Algorithms};
use polypath_link::middlebox::Chain;
use polypath_link::{Change, Jitter, LinkConfig, Loss, OnDown, QueueLimit, Reordering};
use polypath_mptcp::path_manager::{self, PathManagers};
use polypath_mptcp::scheduler::{self, Schedulers};
use polypath_mptcp::{ConnectionConfig, HostConfig, LiaOnSharedAccess};
use polypath_units::named::Named;
use polypath_units::{BitRate, Duration, Instant};
use polypath_wire::{Endpoint, MptcpVersion};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::window_updates::LoseWindowUpdates;
use crate::conversation::{Conversation, Ends};
use crate::network::{BoxPosition, Network};
use crate::topologies::{PathConfig, parallel_paths};
use crate::trace::TraceOutputs;

/// A random scenario; a function of its seed.
#[derive(Clone, Debug)]
pub struct SoakScenario {
    /// The seed.
    pub(super) seed: u64,
    /// One to four paths.
    pub(super) paths: Vec<PathPlan>,
    /// What the client sends.
    pub(super) up_bytes: u64,
    /// What the server sends.
    pub(super) down_bytes: u64,
    /// Send buffers of both ends: 4 KB to 16 MB.
    pub(super) window_bytes: u64,
    /// Receive buffers of both ends: the same, or in one case of three 4 KB to 64 KB.
    pub(super) receive_bytes: u64,
    /// Share of window updates that are lost, in one case of three: up to 0.95.
    pub(super) lost_window_updates: f64,
    /// Wire version.
    pub(super) version: MptcpVersion,
    /// DSS checksums.
    pub(super) checksum: bool,
    /// Segments leave as aggregates, as behind segmentation offload.
    pub(super) aggregates: bool,
    /// Scheduler.
    pub(super) scheduler: scheduler::Policy,
    /// Congestion control.
    pub(super) congestion: congestion::Policy,
    /// Path manager, of both ends.
    pub(super) path_manager: path_manager::Policy,
    /// How the connection ends.
    pub(super) ending: Ending,
}

/// One path of a random scenario.
#[derive(Clone, Debug)]
pub(super) struct PathPlan {
    /// 0.5 to 100 Mbit/s.
    pub(super) rate: BitRate,
    /// One way; 0 to 100 ms.
    pub(super) delay: Duration,
    /// 0 to 20 ms.
    pub(super) jitter: Duration,
    /// Packets of different delay overtake each other.
    pub(super) any_order: bool,
    /// Loss in each direction: 0 to 5 %.
    pub(super) loss: f64,
    /// Duplication: 0 to 2 %.
    pub(super) duplicate: f64,
    /// Reordering: 0 to 2 %.
    pub(super) reorder: f64,
    /// Queue: 5 to 500 ms.
    pub(super) queue: Duration,
    /// When the path is down.
    pub(super) cuts: Vec<Cut>,
    /// A cut drops what is under way; else it is held until the path is back.
    pub(super) flush: bool,
}

/// A time without a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// From …
    pub(super) from: Instant,
    /// … for so long.
    pub(super) lasts: Duration,
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Each end closes after its last byte.
    Orderly,
    /// Both ends stop and close at a moment, whatever has been sent by then.
    Stop {
        /// The moment.
        at: Instant,
    },
    /// One end aborts at a moment.
    Abort {
        /// The moment.
        at: Instant,
        /// The client does, else the server.
        client: bool,
    },
}

impl Ending {
    /// True if one end aborts.
    pub(super) fn is_abort(self) -> bool {
        matches!(self, Self::Abort { .. })
    }
}

/// Congestion controls that came when seeds had names and records: what a seed draws stays what it was. Tests set these themselves.
pub(super) const NOT_DRAWN: [&str; 10] =
    ["bic", "htcp", "hybla", "illinois", "lp", "scalable", "vegas", "veno", "westwood", "yeah"];

/// A random number generator with the few shapes that scenarios need.
struct Dice(ChaCha8Rng);

impl Dice {
    /// Uniform in 0..1.
    fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Uniform in the logarithm.
    fn log_between(&mut self, low: f64, high: f64) -> f64 {
        (self.between(low.ln(), high.ln())).exp()
    }

    fn millis(&mut self, low: f64, high: f64) -> Duration {
        Duration::from_secs_f64(self.between(low, high) / 1e3)
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[(self.unit() * from.len() as f64) as usize].clone()
    }

    fn policy<K: PolicyKind>(&mut self, policies: &Policies) -> Named<K> {
        let known: Vec<Named<K>> =
            policies.all().filter(|policy| !NOT_DRAWN.contains(&policy.name())).cloned().collect();
        self.pick(&known)
    }

    /// 0 B in one case of ten, else 1 B to 20 MB.
    fn size(&mut self) -> u64 {
        if self.chance(0.1) { 0 } else { self.log_between(1.0, 20e6) as u64 }
    }
}

impl SoakScenario {
    /// The scenario of a seed.
    pub fn from_seed(seed: u64, policies: &Policies) -> Self {
        let mut dice = Dice(ChaCha8Rng::seed_from_u64(seed));
        let paths: Vec<PathPlan> =
            (0..dice.pick(&[1, 2, 2, 3, 4])).map(|_| PathPlan::random(&mut dice)).collect();
        let [up_bytes, down_bytes] = [dice.size(), dice.size()];
        let ending = match dice.unit() {
            ..0.7 => Ending::Orderly,
            0.7..0.85 => Ending::Stop { at: Instant::ZERO + dice.millis(1.0, 8000.0) },
            _ => Ending::Abort { at: Instant::ZERO + dice.millis(1.0, 8000.0), client: dice.chance(0.5) },
        };
        let window_bytes = dice.log_between(4096.0, 16.0 * 1_048_576.0) as u64;
        // Of their own, so that all else stays what it was for a seed.
        let mut windows = Dice(ChaCha8Rng::seed_from_u64(seed ^ 0x7769_6e64_6f77_7300));
        let receive_bytes = if windows.chance(1.0 / 3.0) {
            windows.log_between(4096.0, 65_536.0) as u64
        } else {
            window_bytes
        };
        let lost_window_updates = if windows.chance(1.0 / 3.0) { windows.between(0.05, 0.95) } else { 0.0 };
        Self {
            seed,
            receive_bytes,
            lost_window_updates,
            paths,
            up_bytes,
            down_bytes,
            window_bytes,
            version: dice.pick(&[MptcpVersion::V0, MptcpVersion::V1]),
            checksum: dice.chance(0.3),
            aggregates: dice.chance(0.3),
            scheduler: dice.policy::<Schedulers>(policies),
            congestion: dice.policy::<Algorithms>(policies),
            path_manager: dice.policy::<PathManagers>(policies),
            ending,
        }
    }

    /// Something that the plan sets for later is still to come.
    pub(super) fn next_planned(&self, now: Instant) -> bool {
        match self.ending {
            Ending::Orderly => false,
            Ending::Stop { at } | Ending::Abort { at, .. } => at > now,
        }
    }

    fn connection_config(&self) -> ConnectionConfig {
        let mut config = ConnectionConfig {
            version: self.version,
            checksum: self.checksum,
            scheduler: self.scheduler.clone(),
            path_manager: self.path_manager.clone(),
            congestion: self.congestion.clone(),
            // Connections with two congestion controls are of more interest here.
            lia_on_shared_access: LiaOnSharedAccess::Always,
            ..ConnectionConfig::default()
        };
        let mut tcp = (*config.tcp).clone();
        tcp.receive_buffer_bytes = self.receive_bytes;
        tcp.send_buffer_bytes = self.window_bytes;
        if !self.aggregates {
            tcp.max_aggregate_bytes = 0;
        }
        // An abort whose packet is lost is noticed by a silent peer no other way.
        tcp.keepalive_idle = Some(Duration::from_secs(20));
        tcp.keepalive_interval = Duration::from_secs(5);
        config.tcp = Arc::new(tcp);
        config
    }

    /// The network, its cuts scheduled, and the connection in it.
    pub(super) fn build(&self, outputs: Option<TraceOutputs>) -> (Network, Ends) {
        let connection = Arc::new(self.connection_config());
        let host = HostConfig { connection, ..HostConfig::default() };
        let paths = (0..).zip(&self.paths).map(|(number, path)| {
            let mut config = PathConfig::symmetric(format!("path {number}"), path.link());
            if self.lost_window_updates > 0.0 {
                let mut chain = Chain::default();
                chain.push(Box::new(LoseWindowUpdates::new(self.lost_window_updates, self.seed + number)));
                config.boxes = Some((BoxPosition::Second, chain));
            }
            config
        });
        let (builder, net) = parallel_paths(self.seed, paths, host.clone(), host);
        // The outputs of tests are memory and files, whose errors show in the result.
        let tracer = outputs.and_then(|outputs| builder.tracer(outputs).ok());
        let mut network = builder.build();
        network.set_tracer(tracer);
        let (mut opener, mut acceptor) =
            Conversation::plans(self.seed % 1000, Some(self.up_bytes), Some(self.down_bytes));
        match self.ending {
            Ending::Orderly => {}
            Ending::Stop { at } => (opener.stop_at, acceptor.stop_at) = (Some(at), Some(at)),
            Ending::Abort { at, client: true } => opener.abort_at = Some(at),
            Ending::Abort { at, client: false } => acceptor.abort_at = Some(at),
        }
        let ends = network.converse(Conversation {
            from: net.client,
            local: net.client_addrs[0],
            to: net.server,
            remote: Endpoint::new(net.server_addr, 80),
            start: Instant::ZERO,
            config: None,
            opener,
            acceptor,
        });
        (network, ends)
    }
}

impl PathPlan {
    fn random(dice: &mut Dice) -> Self {
        let mut cuts = Vec::new();
        if dice.chance(0.25) {
            let mut at = Instant::ZERO + dice.millis(10.0, 6000.0);
            for _ in 0..dice.pick(&[1, 1, 2, 3]) {
                let lasts = dice.millis(50.0, 6000.0);
                cuts.push(Cut { from: at, lasts });
                at = at + lasts + dice.millis(500.0, 6000.0);
            }
        }
        let mut some =
            |probability: f64, most: f64| if dice.chance(probability) { dice.unit() * most } else { 0.0 };
        let (loss, duplicate, reorder, jitter) =
            (some(0.6, 0.05), some(0.2, 0.02), some(0.2, 0.02), some(0.3, 0.02));
        Self {
            rate: BitRate::from_bps(dice.log_between(0.5e6, 100e6) as u64),
            delay: dice.millis(0.0, 100.0),
            jitter: Duration::from_secs_f64(jitter),
            any_order: dice.chance(0.3),
            loss,
            duplicate,
            reorder,
            queue: Duration::from_secs_f64(dice.log_between(0.005, 0.5)),
            cuts,
            flush: dice.chance(0.7),
        }
    }

    fn link(&self) -> LinkConfig {
        let cuts = self.cuts.iter();
        LinkConfig {
            jitter: Jitter { keep_order: !self.any_order, ..Jitter::uniform(self.jitter) },
            on_down: if self.flush { OnDown::Flush } else { OnDown::Hold },
            loss: Loss::Random(self.loss),
            duplicate: self.duplicate,
            reorder: Reordering {
                probability: self.reorder,
                extra_delay: self.delay / 2 + Duration::from_millis(5),
            },
            schedule: cuts
                .flat_map(|cut| [(cut.from, Change::Down), (cut.from + cut.lasts, Change::Up)])
                .collect(),
            ..LinkConfig::new(self.rate, self.delay, QueueLimit::Delay(self.queue))
        }
    }
}
