use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use polypath_units::Duration;
use polypath_wire::MptcpVersion;

use crate::path_manager::{self, Limits, LocalEndpoint};
use crate::reception::JudgePaths;
use crate::{receive_window, scheduler};

/// Settings of one connection.
#[derive(Clone, Debug)]
pub struct ConnectionConfig {
    /// Speak Multipath TCP. Off, the connection is plain TCP. Default on.
    pub mptcp: bool,
    /// The version that a client asks for. A server answers in the version that it is asked for. Default 1. Where a server answers
    /// that in version 0, the connection falls back to TCP, since the SYN had no key; for the next ten minutes, connections to its
    /// address ask for version 0 (RFC 8684 §3.1).
    pub version: MptcpVersion,
    /// Ask for the DSS checksum (RFC 8684 §3.1, flag A): detects middleboxes that change data, costs a pass over it.
    /// Default off, as in Linux; it is on when either end asks.
    pub checksum: bool,
    /// Tell the peer not to open subflows to the initial address (flag C). Default off.
    pub no_join_initial: bool,
    /// Congestion control. Default `cubic`: each path is used as TCP would use it, which is no slower than TCP over the
    /// best of them even where losses are random. Coupled algorithms (`lia`, `olia`, `balia`) take no more than one TCP where
    /// paths meet in one bottleneck, and give up most of a lossy path (RFC 6356).
    pub congestion: polypath_congestion::Policy,
    /// A further subflow that shares the client's address with an earlier one shares its access link too: two of CUBIC would take twice
    /// their share of it. Whether it gets `lia`, coupled with all others, in place of `congestion`. Default: with the default congestion
    /// control, so that another one that is chosen holds for every subflow.
    pub lia_on_shared_access: LiaOnSharedAccess,
    /// Scheduler. Default `default`.
    pub scheduler: scheduler::Policy,
    /// Path manager. Default `endpoints`.
    pub path_manager: path_manager::Policy,
    /// Settings of each subflow, with a largest retransmission timeout of 60 s by default, since others carry on meanwhile. Its buffer
    /// sizes hold for the connection as a whole.
    pub tcp: Arc<polypath_tcp::Config>,
    /// A client opens the connection over all its `subflow` endpoints at once, unless it is bound to a port: whichever the peer
    /// answers first carries the initial subflow, the other handshakes are given up. So neither a dead path nor a slow one
    /// holds a connection up. Backups are asked when no other has answered for 1.5 seconds. Default on.
    pub race: bool,
    /// A subflow that joins begins with the window that slow start would have brought it to, had it begun with the connection: twice
    /// the initial window for each round trip of its own since then, four times at most, no more than the path is known to
    /// carry, and no more than a quarter of what either end can hold. Pacing spreads it over a round trip. The reason is the handshake,
    /// which takes two round trips more than TCP's (RFC 8684 §3.1, §3.2): where the path is the better one, all of a short transfer
    /// would be late by that. Only under a scheduler that [knows slow paths](crate::scheduler::Scheduler::knows_slow_paths), and not
    /// with a coupled algorithm, which is slow to give up a window that is too large for a path that others use. Default on.
    pub catch_up: bool,
    /// The receive window grows with what arrives, up to the receive buffer and the host's memory; off, it is the receive buffer
    /// from the start. Default on.
    pub receive_autotuning: bool,
    /// Most bytes that one mapping covers, 1–65 535. Default 65 535.
    pub max_mapping_bytes: u16,
    /// SYN retransmissions after which a client leaves MP_CAPABLE out: something on the path may drop SYNs with unknown
    /// options. Default 2.
    pub syn_retries_before_fallback: u8,
    /// Retransmission timeouts in a row after which a subflow is stale: its path manager hears of it, and while another
    /// subflow works, it is probed every second. With 0 none is ever stale. Default 4, as `net.mptcp.stale_loss_cnt` of Linux,
    /// which counts intervals without progress.
    pub stale_loss_count: u8,
    /// Whose choice of paths is judged by what the paths bring and hold up, and mended with MP_PRIO. Default `never`:
    /// it is rarely slower than the best path, but gains less where paths are alike.
    pub judge_paths: JudgePaths,
    /// How long a connection without any subflow waits for one. Default 60 s.
    pub no_subflow_timeout: Duration,
    /// ADD_ADDR is sent again if it is not echoed within this time, and then after twice as long each, eight times in all.
    /// Default 1 s.
    pub add_addr_timeout: Duration,
}

const DEFAULT_CONGESTION: polypath_congestion::Policy = polypath_congestion::CUBIC;

/// Whether a further subflow over the same access link gets `lia` in place of the connection's congestion control: see
/// [`ConnectionConfig::lia_on_shared_access`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LiaOnSharedAccess {
    /// Where the congestion control is the default one. Where a user has named that, it is [`Never`](Self::Never) that holds him to his word.
    #[default]
    WithDefault,
    /// Wherever the congestion control is uncoupled and does not steer recovery itself.
    Always,
    /// Every subflow has the congestion control of the connection.
    Never,
}

impl ConnectionConfig {
    /// A further subflow over the same access link gets `lia`, if its own congestion control is uncoupled.
    pub(crate) fn couples_shared_access(&self) -> bool {
        match self.lia_on_shared_access {
            LiaOnSharedAccess::WithDefault => self.congestion == DEFAULT_CONGESTION,
            LiaOnSharedAccess::Always => true,
            LiaOnSharedAccess::Never => false,
        }
    }

    /// How long the connection waits without a subflow: the user timeout, if there is one (RFC 5482), else
    /// [`no_subflow_timeout`](Self::no_subflow_timeout).
    pub(crate) fn patience_without_subflow(&self) -> Duration {
        self.tcp.user_timeout.unwrap_or(self.no_subflow_timeout)
    }
}

impl Default for ConnectionConfig {
    fn default() -> Self {
        Self {
            mptcp: true,
            version: MptcpVersion::V1,
            checksum: false,
            no_join_initial: false,
            congestion: DEFAULT_CONGESTION,
            lia_on_shared_access: LiaOnSharedAccess::default(),
            scheduler: scheduler::Policy::default(),
            path_manager: path_manager::Policy::default(),
            tcp: Arc::new(polypath_tcp::Config { max_rto: Duration::from_secs(60), ..Default::default() }),
            race: true,
            catch_up: true,
            receive_autotuning: true,
            max_mapping_bytes: u16::MAX,
            syn_retries_before_fallback: 2,
            stale_loss_count: 4,
            judge_paths: JudgePaths::default(),
            no_subflow_timeout: Duration::from_secs(60),
            add_addr_timeout: Duration::from_secs(1),
        }
    }
}

impl ConnectionConfig {
    /// The receive window of a connection that has received nothing.
    pub(crate) fn first_window_bytes(&self) -> u64 {
        let cap_bytes = self.tcp.receive_buffer_bytes;
        if self.receive_autotuning { receive_window::INITIAL_BYTES.min(cap_bytes) } else { cap_bytes }
    }
}

/// Settings of a host.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// What connections get unless they are given their own.
    pub connection: Arc<ConnectionConfig>,
    /// Local endpoints for the path manager.
    pub endpoints: Vec<LocalEndpoint>,
    /// Limits for the path manager.
    pub limits: Limits,
    /// Local ports of connections and subflows that don't name one. Default 49 152 to 65 535 (RFC 6335 §6).
    pub ephemeral_ports: RangeInclusive<u16>,
    /// Most connections; further SYNs are dropped. Default 1 048 576.
    pub max_connections: usize,
    /// Most half-open incoming connections per listener, about 3 KB each. Further SYNs, MP_CAPABLE included, are answered with a
    /// cookie ([`SynCookies`](polypath_tcp::SynCookies)), for which nothing is held. With 0 every SYN is. Default 4096.
    pub backlog: usize,
    /// Most of them from one source, which is an IPv4 network of 24 bits or an IPv6 network of 56 bits. Default 1024.
    pub backlog_per_source: usize,
    /// Most half-open incoming subflows of a connection, about 2 KB each. Further MP_JOINs are answered without holding anything
    /// if their sender has timestamps; otherwise they take the place of the oldest. Default 8.
    pub max_half_open_joins: usize,
    /// Most TIME-WAIT records, about 170 bytes each; a subflow beyond them goes without. Default 262 144.
    pub max_time_wait: usize,
    /// Most answers without a connection (resets, SYN/ACKs with a cookie, acknowledgments in TIME-WAIT) that wait to be sent,
    /// about 400 bytes each; further ones are dropped. Default 1024.
    pub max_replies: usize,
    /// About how many resets a second answer segments that belong to no connection, a quarter of them to one source
    /// ([`ReplyLimit`](polypath_tcp::ReplyLimit)). Default 10 000.
    pub resets_per_second: u32,
    /// About how many challenge ACKs a second leave the host (RFC 5961 §10), a quarter of them to one source
    /// ([`ReplyLimit`](polypath_tcp::ReplyLimit)): forged segments to many connections cause no more. Keep-alive and window probes are answered under the
    /// same bound. Default 50 000.
    pub challenge_acks_per_second: u32,
    /// About how many HMACs a second are computed for third ACKs of joins that were held nowhere, a quarter of them for one source:
    /// two for each, and for each 32 768 connections. Beyond that they are dropped, and clients repeat them. Default 100 000, a tenth
    /// of a second's work or so.
    pub join_hmacs_per_second: u32,
    /// Most memory that the receive windows of all connections may promise together, beyond 256 KiB for each. What was promised once
    /// is taken later, too, so that peers who go by old windows can make it twice as much. Default 1 GiB.
    pub receive_memory_bytes: u64,
    /// Most addresses of a peer that are remembered. Default 16.
    pub max_announced_addresses: usize,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self {
            connection: Arc::new(ConnectionConfig::default()),
            endpoints: Vec::new(),
            limits: Limits::default(),
            ephemeral_ports: 49_152..=65_535,
            max_connections: 1 << 20,
            backlog: 4096,
            backlog_per_source: 1024,
            max_half_open_joins: 8,
            max_time_wait: 1 << 18,
            max_replies: 1024,
            resets_per_second: 10_000,
            challenge_acks_per_second: 50_000,
            join_hmacs_per_second: 100_000,
            receive_memory_bytes: 1 << 30,
            max_announced_addresses: 16,
        }
    }
}
