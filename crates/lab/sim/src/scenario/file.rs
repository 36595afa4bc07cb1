//! The words of a scenario file. Field names are the keys; what a key means is said here and nowhere else.

use std::net::IpAddr;

use serde::Deserialize;

use super::units::{Amount, Limit, Loss, Percent, Rate, Size, Span};

/// A scenario file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    /// What the run is called in results. Default: the file's name.
    pub(super) name: Option<String>,
    /// How long the run lasts at most, in simulated time.
    pub(super) duration: Span,
    /// Seed of everything random. Default 1.
    #[serde(default = "one")]
    pub(super) seed: u64,
    /// Time between two points of the time series. Default 100 ms.
    pub(super) sample_interval: Option<Span>,
    /// End systems.
    pub(super) hosts: Vec<HostFile>,
    /// Routers.
    #[serde(default)]
    pub(super) routers: Vec<RouterFile>,
    /// Links between two nodes each.
    pub(super) links: Vec<LinkFile>,
    /// What is transferred.
    pub(super) connections: Vec<ConnectionFile>,
    /// Where results go.
    #[serde(default)]
    pub(super) output: OutputFile,
}

fn one() -> u64 {
    1
}

/// An end system.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostFile {
    pub(super) name: String,
    /// One address for all its links. Without it, and without addresses at the links, a host that opens
    /// connections gets an address for each link, and any other host gets one in all.
    pub(super) address: Option<IpAddr>,
    /// What `ip mptcp endpoint` would list. Default: every address with `subflow fullmesh` if the host opens
    /// connections, else every address with `signal` if it has several.
    pub(super) endpoints: Option<Vec<EndpointFile>>,
    /// What `ip mptcp limits` would list. Default 8 and 8.
    #[serde(default)]
    pub(super) limits: LimitsFile,
}

/// `ip mptcp endpoint add ADDRESS FLAGS`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EndpointFile {
    pub(super) address: IpAddr,
    pub(super) port: Option<u16>,
    pub(super) flags: Vec<String>,
    /// The smaller, the more is it preferred. Default 0.
    pub(super) priority: Option<u8>,
    /// What may go over the address before it becomes a backup …
    pub(super) budget: Option<Size>,
    /// … or, with `hard`, before it is used no more. Default false.
    pub(super) hard: Option<bool>,
}

/// `ip mptcp limits set`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitsFile {
    pub(super) subflows: Option<u8>,
    pub(super) add_addr_accepted: Option<u8>,
}

/// A router.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RouterFile {
    pub(super) name: String,
    /// Static routes; they go before the shortest paths that are computed for everything else.
    #[serde(default)]
    pub(super) routes: Vec<RouteFile>,
}

/// `ip route add TO via VIA`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RouteFile {
    /// An address, or a prefix such as `"10.1.0.0/16"`.
    pub(super) to: String,
    /// The neighbour, by name.
    pub(super) via: String,
}

/// A link. What is said at the top holds for both directions unless `reverse` says otherwise.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LinkFile {
    pub(super) name: Option<String>,
    /// The names of the two nodes.
    pub(super) between: [String; 2],
    /// Their addresses on this link, in the same order.
    pub(super) addresses: Option<[IpAddr; 2]>,
    pub(super) rate: Option<Rate>,
    pub(super) delay: Option<Span>,
    pub(super) jitter: Option<Span>,
    pub(super) loss: Option<Loss>,
    pub(super) duplicate: Option<Percent>,
    pub(super) reorder: Option<Percent>,
    pub(super) limit: Option<Limit>,
    pub(super) mtu: Option<u16>,
    /// The direction from the second node to the first, where it differs.
    pub(super) reverse: Option<DirectionFile>,
    /// What happens when.
    #[serde(default)]
    pub(super) change: Vec<ChangeFile>,
    /// Middleboxes by name, from the first node to the second.
    #[serde(default)]
    pub(super) middleboxes: Vec<String>,
}

/// One direction of a link.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DirectionFile {
    pub(super) rate: Option<Rate>,
    pub(super) delay: Option<Span>,
    pub(super) jitter: Option<Span>,
    pub(super) loss: Option<Loss>,
    pub(super) duplicate: Option<Percent>,
    pub(super) reorder: Option<Percent>,
    pub(super) limit: Option<Limit>,
    pub(super) mtu: Option<u16>,
}

impl LinkFile {
    /// The direction from the first node to the second.
    pub(super) fn forward(&self) -> DirectionFile {
        let Self { rate, delay, jitter, loss, duplicate, reorder, limit, mtu, .. } = *self;
        DirectionFile { rate, delay, jitter, loss, duplicate, reorder, limit, mtu }
    }

    /// The direction from the second node to the first.
    pub(super) fn backward(&self) -> DirectionFile {
        let forward = self.forward();
        let Some(reverse) = self.reverse else { return forward };
        DirectionFile {
            rate: reverse.rate.or(forward.rate),
            delay: reverse.delay.or(forward.delay),
            jitter: reverse.jitter.or(forward.jitter),
            loss: reverse.loss.or(forward.loss),
            duplicate: reverse.duplicate.or(forward.duplicate),
            reorder: reverse.reorder.or(forward.reorder),
            limit: reverse.limit.or(forward.limit),
            mtu: reverse.mtu.or(forward.mtu),
        }
    }
}

/// A change of a link at a moment; what is not named stays.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChangeFile {
    pub(super) at: Span,
    pub(super) rate: Option<Rate>,
    pub(super) delay: Option<Span>,
    pub(super) jitter: Option<Span>,
    pub(super) loss: Option<Loss>,
    pub(super) limit: Option<Limit>,
    /// True cuts the link, false brings it back.
    pub(super) down: Option<bool>,
}

/// Which way data goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum DirectionWord {
    /// From the host that opened the connection.
    #[default]
    Upload,
    /// To the host that opened the connection.
    Download,
    /// Both ways at once.
    Both,
}

/// A connection and its traffic.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConnectionFile {
    pub(super) name: Option<String>,
    /// The host that opens it.
    pub(super) from: String,
    /// The host that accepts it.
    pub(super) to: String,
    /// Default 80.
    pub(super) port: Option<u16>,
    /// The address to connect from, which is that of the first path. Default: that of the host's first link.
    pub(super) local: Option<IpAddr>,
    #[serde(default)]
    pub(super) direction: DirectionWord,
    /// How much. Default unlimited.
    pub(super) bytes: Option<Amount>,
    /// Write blocks of this size, each with a timestamp, instead of as fast as possible …
    pub(super) block: Option<Size>,
    /// … at this rate.
    pub(super) block_rate: Option<Rate>,
    /// When to connect. Default at once.
    pub(super) start: Option<Span>,
    /// When to stop sending. Default at the end.
    pub(super) stop: Option<Span>,
    /// False for plain TCP. Default true.
    pub(super) mptcp: Option<bool>,
    /// 0 or 1. Default 1.
    pub(super) version: Option<u8>,
    /// DSS checksums. Default off.
    pub(super) checksum: Option<bool>,
    pub(super) scheduler: Option<String>,
    pub(super) congestion: Option<String>,
    pub(super) path_manager: Option<String>,
    pub(super) receive_buffer: Option<Size>,
    pub(super) send_buffer: Option<Size>,
}

/// Where results go; paths are relative to the current directory.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OutputFile {
    /// Results in JSON.
    pub(super) json: Option<std::path::PathBuf>,
    /// Packets in pcapng.
    pub(super) pcap: Option<std::path::PathBuf>,
    /// Packets in text, one a line.
    pub(super) trace: Option<std::path::PathBuf>,
    /// A report in HTML.
    pub(super) report: Option<std::path::PathBuf>,
}
