use core::ops::RangeInclusive;

use alloc::sync::Arc;

use polypath_congestion as congestion;

use crate::Config;

/// Settings of a [`super::Host`].
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Settings of its connections, shared by all.
    pub connection: Arc<Config>,
    /// Congestion control of its connections. Default `cubic` (RFC 9438).
    pub congestion: congestion::Policy,
    /// Local ports of connections that don't name one. Default 32 768 to 60 999, as Linux.
    pub ephemeral_ports: RangeInclusive<u16>,
    /// Most connections at a time, half-open and closed ones that the application still holds included.
    /// Beyond them SYNs are dropped and `connect` fails. Default 1 048 576.
    pub max_connections: usize,
    /// Most TIME-WAIT records; a connection beyond them goes without (as Linux's `tcp_max_tw_buckets`). About
    /// 170 bytes each, index and timer included. Default 262 144.
    pub max_time_wait: usize,
    /// Most answers without a connection (resets, SYN/ACKs with a cookie, acknowledgments in TIME-WAIT) that wait to be sent,
    /// about 400 bytes each; further ones are dropped. Default 1024.
    pub max_replies: usize,
    /// About how many resets a second answer segments that belong to no connection, a quarter of them to one source
    /// ([`crate::ReplyLimit`]). Default 10 000.
    pub resets_per_second: u32,
    /// About how many challenge ACKs a second leave the host (RFC 5961 §10), a quarter of them to one source
    /// ([`crate::ReplyLimit`]): forged segments to many connections cause no more. Keep-alive and window probes are answered under the
    /// same bound. Default 50 000.
    pub challenge_acks_per_second: u32,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self {
            connection: Arc::new(Config::default()),
            congestion: polypath_congestion::CUBIC,
            ephemeral_ports: 32_768..=60_999,
            max_connections: 1 << 20,
            max_time_wait: 1 << 18,
            max_replies: 1024,
            resets_per_second: 10_000,
            challenge_acks_per_second: 50_000,
        }
    }
}
