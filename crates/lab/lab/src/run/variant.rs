//! What is compared: a scheduler, a congestion control and buffers, or single-path TCP.

use std::sync::Arc;

use polypath_congestion as congestion;
use polypath_fetch::schedule::Sizing;
use polypath_fetch::stream::adaptation::AdaptationPolicy;
use polypath_mptcp::{ConnectionConfig, LiaOnSharedAccess, path_manager, scheduler};
use polypath_tunnel::aggregators::Aggregation;
use polypath_tunnel::split::Split;
use rand_core::{Rng, SeedableRng};

use super::carried::MTU_BYTES as CARRIED_MTU_BYTES;
use super::flavour::Flavour;
use super::path_set::PathSet;
use super::workload::Workload;

/// One way to send over a set of paths.
#[derive(Clone, Debug)]
pub struct Variant {
    /// What it is called in results.
    pub name: String,
    /// Over all paths, or over one.
    pub kind: VariantKind,
    /// Congestion control.
    pub congestion: congestion::Policy,
    /// Whether a further subflow over the same access link gets `lia` instead; see [`ConnectionConfig::lia_on_shared_access`].
    pub lia_on_shared_access: LiaOnSharedAccess,
    /// Scheduler.
    pub scheduler: scheduler::Policy,
    /// Path manager.
    pub path_manager: path_manager::Policy,
    /// Receive buffer.
    pub buffer: Buffer,
    /// Send buffer; if none, it is large enough that the receive buffer alone limits.
    pub send_buffer_bytes: Option<u64>,
    /// The path that the connection is opened over.
    pub initial: InitialPath,
    /// Try all paths at once, whichever is the initial one; see [`ConnectionConfig::race`].
    pub race: bool,
    /// The hosts have talked before, a megabyte's worth, so that they remember the paths. Of transfers and bulk only.
    pub acquainted: bool,
    /// Let the receive window grow up to the buffer; see [`ConnectionConfig::receive_autotuning`].
    pub autotuning: bool,
    /// How large the requests of a download or a stream are.
    pub sizing: Sizing,
    /// In which quality the segments of a stream are fetched.
    pub adaptation: AdaptationPolicy,
    /// What gives the packets of a stream of datagrams to paths.
    pub aggregation: Aggregation,
    /// How losses are found and repaired.
    pub flavour: Flavour,
    /// Which path the next packet takes, where single packets are split.
    pub splitter: Split,
    /// What carries the packets of a plain TCP, if anything does: over all paths if they are split, or over the initial one alone.
    pub carrier: Option<Aggregation>,
    /// Longest packet that its hosts send or take; an Ethernet's if none.
    pub mtu_bytes: Option<u16>,
}

/// How many paths a variant uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariantKind {
    /// Multipath TCP over all of them.
    Multipath,
    /// Plain TCP over the initial one.
    SinglePath,
    /// Plain TCP whose packets are split over all of them, one by one; acknowledgments return over the initial one.
    SplitPackets,
}

/// How large the buffers of a connection are, at either end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// 2 · Σ rate · longest round trip, with full queues (RFC 6182 §5.3): never the limit.
    Recommended,
    /// What the stack does unless it is told otherwise.
    Stack,
    /// So many bytes.
    Bytes(u64),
}

/// Which path a connection is opened over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitialPath {
    /// That of this number.
    Number(usize),
    /// The one that would finish the workload first, as far as its parameters tell.
    Best,
    /// The one that would finish it last.
    Worst,
    /// Any, by the seed.
    Random,
}

// Buffers below a few segments would measure nothing but themselves.
const LEAST_BUFFER_BYTES: u64 = 64 * 1024;

impl Variant {
    /// Multipath TCP with this scheduler and congestion control, buffers that are never the limit, opened over the
    /// first path.
    #[must_use]
    pub fn multipath(
        name: impl Into<String>,
        scheduler: scheduler::Policy,
        congestion: congestion::Policy,
    ) -> Self {
        Self {
            name: name.into(),
            kind: VariantKind::Multipath,
            congestion,
            lia_on_shared_access: LiaOnSharedAccess::default(),
            scheduler,
            path_manager: path_manager::Policy::default(),
            buffer: Buffer::Recommended,
            send_buffer_bytes: None,
            initial: InitialPath::Number(0),
            race: ConnectionConfig::default().race,
            acquainted: false,
            autotuning: ConnectionConfig::default().receive_autotuning,
            sizing: Sizing::for_files(),
            adaptation: AdaptationPolicy::default(),
            aggregation: Aggregation::default(),
            flavour: Flavour::default(),
            splitter: Split::default(),
            carrier: None,
            mtu_bytes: None,
        }
    }

    /// Plain TCP over path number `path`, with buffers that are never the limit.
    #[must_use]
    pub fn single_path(path: usize, congestion: congestion::Policy) -> Self {
        Self {
            kind: VariantKind::SinglePath,
            initial: InitialPath::Number(path),
            ..Self::multipath(format!("path {}", path + 1), scheduler::Policy::default(), congestion)
        }
    }

    /// Plain TCP of this flavour over packet-level multipath, with buffers that are never the limit.
    #[must_use]
    pub fn split(name: impl Into<String>, flavour: Flavour, congestion: congestion::Policy) -> Self {
        Self {
            kind: VariantKind::SplitPackets,
            flavour,
            ..Self::multipath(name, scheduler::Policy::default(), congestion)
        }
    }

    /// Plain TCP whose packets this carries over all paths, with buffers that are never the limit.
    #[must_use]
    pub fn carried(name: impl Into<String>, carrier: Aggregation, congestion: congestion::Policy) -> Self {
        Self { carrier: Some(carrier), ..Self::split(name, Flavour::default(), congestion) }
    }

    /// The same over the initial path alone.
    #[must_use]
    pub fn alone(self) -> Self {
        Self { kind: VariantKind::SinglePath, ..self }
    }

    /// The same, opened over another path.
    #[must_use]
    pub(crate) fn opened_over(mut self, initial: InitialPath) -> Self {
        self.initial = initial;
        self
    }

    /// The same with other buffers.
    #[must_use]
    pub fn with_buffer(mut self, buffer: Buffer) -> Self {
        self.buffer = buffer;
        self
    }

    /// The number of the path that the connection is opened over.
    #[must_use]
    pub fn initial_path(&self, set: &PathSet, workload: &Workload, seed: u64) -> usize {
        let last = set.paths.len().saturating_sub(1);
        let times = set.paths.iter().map(|path| path.expected_time_s(workload.expected_bytes())).enumerate();
        match self.initial {
            InitialPath::Number(number) => number.min(last),
            InitialPath::Best => {
                times.min_by(|one, other| one.1.total_cmp(&other.1)).map_or(0, |(number, _)| number)
            }
            InitialPath::Worst => {
                times.max_by(|one, other| one.1.total_cmp(&other.1)).map_or(0, |(number, _)| number)
            }
            InitialPath::Random => {
                let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(seed ^ 0x696e_6974);
                (random.next_u64() % (last as u64 + 1)) as usize
            }
        }
    }

    /// The settings of a connection over `set`.
    #[must_use]
    pub fn connection(&self, set: &PathSet) -> ConnectionConfig {
        let mut connection = ConnectionConfig {
            mptcp: self.kind == VariantKind::Multipath,
            congestion: self.congestion.clone(),
            lia_on_shared_access: self.lia_on_shared_access,
            scheduler: self.scheduler.clone(),
            path_manager: self.path_manager.clone(),
            race: self.race,
            receive_autotuning: self.autotuning,
            ..ConnectionConfig::default()
        };
        let mut tcp = (*connection.tcp).clone();
        // Queues see segments as they see those of a real host behind its segmentation offload: one at a time.
        tcp.max_aggregate_bytes = 0;
        self.flavour.apply(&mut tcp);
        tcp.mtu_bytes = self.mtu_bytes.unwrap_or(tcp.mtu_bytes);
        if self.carrier.is_some() {
            tcp.mtu_bytes = tcp.mtu_bytes.min(CARRIED_MTU_BYTES);
        }
        let buffer_bytes = match self.buffer {
            Buffer::Recommended => Some(set.recommended_buffer_bytes().max(LEAST_BUFFER_BYTES)),
            Buffer::Bytes(bytes) => Some(bytes),
            Buffer::Stack => None,
        };
        if let Some(bytes) = buffer_bytes {
            tcp.receive_buffer_bytes = bytes;
            // What limits is the receiver, as in the document; a sender has room for what is under way besides.
            tcp.send_buffer_bytes = bytes.max(set.recommended_buffer_bytes()).max(LEAST_BUFFER_BYTES);
        }
        tcp.send_buffer_bytes = self.send_buffer_bytes.unwrap_or(tcp.send_buffer_bytes);
        connection.tcp = Arc::new(tcp);
        connection
    }
}
