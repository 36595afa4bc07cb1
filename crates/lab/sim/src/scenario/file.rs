//! The words of a scenario file. Field names are the keys; what a key means is said here and nowhere else.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::Deserialize;

use polypath_config::quantity::{Amount, Limit, Loss, Percent, Rate, Size, Span};
use polypath_congestion::Algorithms;
use polypath_link::impairment::Impairments;
use polypath_link::middlebox::Middleboxes;
use polypath_link::queue::Disciplines;
use polypath_mptcp::path_manager::PathManagers;
use polypath_mptcp::scheduler::Schedulers;
use polypath_units::named::Kind;

/// A scenario file.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct File {
    /// What the run is called in results. Default: the file's name.
    pub(super) name: Option<String>,
    /// How long the run lasts at most, in simulated time.
    pub(super) duration: Span,
    /// Seed of everything random. Default 1.
    #[serde(default = "super::defaults::seed")]
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

/// An end system.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct HostFile {
    /// A name of its own.
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
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct EndpointFile {
    /// One of the addresses of the host's links.
    pub(super) address: IpAddr,
    /// The port that is announced with it. Default: that of the connection.
    pub(super) port: Option<u16>,
    /// Any of `signal`, `subflow`, `backup` and `fullmesh`.
    pub(super) flags: Vec<String>,
    /// The smaller, the more is it preferred. Default 0.
    pub(super) priority: Option<u8>,
    /// What may go over the address before it becomes a backup …
    pub(super) budget: Option<Size>,
    /// … or, with `hard`, before it is used no more. Default false.
    pub(super) hard: Option<bool>,
}

/// `ip mptcp limits set`.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct LimitsFile {
    /// Most additional subflows of a connection. Default 8.
    pub(super) subflows: Option<u8>,
    /// Most announced addresses of the peer that are taken up. Default 8.
    pub(super) add_addr_accepted: Option<u8>,
}

/// A router.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RouterFile {
    /// A name of its own.
    pub(super) name: String,
    /// Static routes; they go before the shortest paths that are computed for everything else.
    #[serde(default)]
    pub(super) routes: Vec<RouteFile>,
}

/// `ip route add TO via VIA`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RouteFile {
    /// An address, or a prefix such as `"10.1.0.0/16"`.
    pub(super) to: String,
    /// The neighbour, by name.
    pub(super) via: String,
}

/// A link. What is said at the top holds for both directions unless `reverse` says otherwise.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct LinkFile {
    /// A name of its own. Default: the names of both ends with a hyphen between them.
    pub(super) name: Option<String>,
    /// The names of the two nodes.
    pub(super) between: [String; 2],
    /// Their addresses on this link, in the same order.
    pub(super) addresses: Option<[IpAddr; 2]>,
    /// How fast it sends. Default: without limit.
    pub(super) rate: Option<Rate>,
    /// Propagation delay, one way. Default 0.
    pub(super) delay: Option<Span>,
    /// The delay varies by at most so much more or less, in order. Default 0.
    pub(super) jitter: Option<Span>,
    /// How packets get lost on the line. Default: none is.
    pub(super) loss: Option<Loss>,
    /// The share of packets that arrive twice. Default 0%.
    pub(super) duplicate: Option<Percent>,
    /// The share of packets that arrive 10 ms later than others, which overtake them. Default 0%.
    pub(super) reorder: Option<Percent>,
    /// How much may wait for the line. Default 1000 packets.
    pub(super) limit: Option<Limit>,
    /// Queue discipline by name. Default drop-tail.
    #[schemars(extend("x-policy" = Disciplines::WHAT))]
    pub(super) discipline: Option<String>,
    /// What else happens to packets, by name, such as `"loss:1%"`.
    #[schemars(extend("x-policy" = Impairments::WHAT))]
    pub(super) impairments: Option<Vec<String>>,
    /// Longest IP packet in bytes. Default: without limit.
    pub(super) mtu: Option<u16>,
    /// The direction from the second node to the first, where it differs.
    pub(super) reverse: Option<DirectionFile>,
    /// What happens when.
    #[serde(default)]
    pub(super) change: Vec<ChangeFile>,
    /// Middleboxes by name, from the first node to the second.
    #[serde(default)]
    #[schemars(extend("x-policy" = Middleboxes::WHAT))]
    pub(super) middleboxes: Vec<String>,
}

/// One direction of a link.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct DirectionFile {
    /// How fast it sends. Default: as in the other direction.
    pub(super) rate: Option<Rate>,
    /// Propagation delay, one way. Default: as in the other direction.
    pub(super) delay: Option<Span>,
    /// The delay varies by at most so much more or less, in order. Default: as in the other direction.
    pub(super) jitter: Option<Span>,
    /// How packets get lost on the line. Default: as in the other direction.
    pub(super) loss: Option<Loss>,
    /// The share of packets that arrive twice. Default: as in the other direction.
    pub(super) duplicate: Option<Percent>,
    /// The share of packets that arrive 10 ms later than others, which overtake them. Default: as in the other direction.
    pub(super) reorder: Option<Percent>,
    /// How much may wait for the line. Default: as in the other direction.
    pub(super) limit: Option<Limit>,
    /// What decides about waiting packets, by name. Default: as in the other direction.
    #[schemars(extend("x-policy" = Disciplines::WHAT))]
    pub(super) discipline: Option<String>,
    /// What else happens to packets, by name, in this order.
    #[schemars(extend("x-policy" = Impairments::WHAT))]
    pub(super) impairments: Option<Vec<String>>,
    /// Longest IP packet in bytes. Default: as in the other direction.
    pub(super) mtu: Option<u16>,
}

impl LinkFile {
    /// The direction from the first node to the second.
    pub(super) fn forward(&self) -> DirectionFile {
        let Self { rate, delay, jitter, loss, duplicate, reorder, limit, mtu, .. } = *self;
        let (discipline, impairments) = (self.discipline.clone(), self.impairments.clone());
        DirectionFile { rate, delay, jitter, loss, duplicate, reorder, limit, discipline, impairments, mtu }
    }

    /// The direction from the second node to the first.
    pub(super) fn backward(&self) -> DirectionFile {
        let forward = self.forward();
        let Some(reverse) = self.reverse.clone() else { return forward };
        DirectionFile {
            rate: reverse.rate.or(forward.rate),
            delay: reverse.delay.or(forward.delay),
            jitter: reverse.jitter.or(forward.jitter),
            loss: reverse.loss.or(forward.loss),
            duplicate: reverse.duplicate.or(forward.duplicate),
            reorder: reverse.reorder.or(forward.reorder),
            limit: reverse.limit.or(forward.limit),
            discipline: reverse.discipline.or(forward.discipline),
            impairments: reverse.impairments.or(forward.impairments),
            mtu: reverse.mtu.or(forward.mtu),
        }
    }
}

/// A change of a link at a moment; what is not named stays.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ChangeFile {
    /// When, counted from the start.
    pub(super) at: Span,
    /// The new rate.
    pub(super) rate: Option<Rate>,
    /// The new propagation delay.
    pub(super) delay: Option<Span>,
    /// The new jitter.
    pub(super) jitter: Option<Span>,
    /// The new loss.
    pub(super) loss: Option<Loss>,
    /// The new limit of the queue.
    pub(super) limit: Option<Limit>,
    /// Impairments that begin, by name; one of a name that acts already begins again with its new numbers.
    #[serde(default)]
    #[schemars(extend("x-policy" = Impairments::WHAT))]
    pub(super) begin: Vec<String>,
    /// Impairments that end, by name.
    #[serde(default)]
    #[schemars(extend("x-policy" = Impairments::WHAT))]
    pub(super) end: Vec<String>,
    /// True cuts the link, false brings it back.
    pub(super) down: Option<bool>,
}

/// Which way data goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ConnectionFile {
    /// What it is called in results. Default: its two hosts.
    pub(super) name: Option<String>,
    /// The host that opens it.
    pub(super) from: String,
    /// The host that accepts it.
    pub(super) to: String,
    /// Port of the accepting host. Default 5001 for the first connection, 5002 for the second, and so on.
    pub(super) port: Option<u16>,
    /// The address to connect from, which is that of the first path. Default: that of the host's first link.
    pub(super) local: Option<IpAddr>,
    /// Which way data goes. Default `upload`.
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
    /// Which path gets data, by name. Default `default`.
    #[schemars(extend("x-policy" = Schedulers::WHAT))]
    pub(super) scheduler: Option<String>,
    /// How each path's rate follows from acknowledgments and losses, by name. Default `cubic`, and `lia` for a further subflow of one
    /// address; a name holds for every subflow.
    #[schemars(extend("x-policy" = Algorithms::WHAT))]
    pub(super) congestion: Option<String>,
    /// Which paths are opened, and which one takes over, by name. Default `endpoints`.
    #[schemars(extend("x-policy" = PathManagers::WHAT))]
    pub(super) path_manager: Option<String>,
    /// Most data that is kept for the application, at both ends. Default 64 MiB.
    pub(super) receive_buffer: Option<Size>,
    /// Most data that waits to be acknowledged, at both ends. Default 64 MiB.
    pub(super) send_buffer: Option<Size>,
}

/// Where results go; paths are relative to the current directory.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct OutputFile {
    /// Results in JSON.
    pub(super) json: Option<std::path::PathBuf>,
    /// Packets in pcapng.
    pub(super) pcap: Option<std::path::PathBuf>,
    /// Packets, events and the state of subflows in qlog.
    pub(super) qlog: Option<std::path::PathBuf>,
    /// Packets in text, one a line.
    pub(super) trace: Option<std::path::PathBuf>,
    /// A report in HTML.
    pub(super) report: Option<std::path::PathBuf>,
}
