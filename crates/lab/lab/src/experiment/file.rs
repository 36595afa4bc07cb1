//! The words of an experiment file. Field names are the keys; what a key means is said here and nowhere else.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use polypath_config::quantity::{Percent, Quantity, Rate, Size, Span, read};
use polypath_congestion::Algorithms;
use polypath_link::impairment::Impairments;
use polypath_link::middlebox::Middleboxes;
use polypath_link::queue::Disciplines;
use polypath_mptcp::path_manager::PathManagers;
use polypath_mptcp::scheduler::Schedulers;
use polypath_units::named::Kind;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use super::group::GroupFile;
use super::parameters::ParametersFile;

/// An experiment file.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct File {
    /// What the experiment is called in paths and results.
    pub(super) name: String,
    /// One line for people.
    pub(super) title: String,
    /// Which figure of which document it reproduces.
    pub(super) figure: Option<String>,
    /// The document that `figure` is of: its letter there, author, title, year.
    pub(super) document: Option<String>,
    /// What is asked, and how it is measured here.
    pub(super) description: Option<String>,
    /// How the paths are put together.
    #[serde(default)]
    pub(super) topology: TopologyFile,
    /// What differs between sets; needs `design`.
    pub(super) factors: Option<FactorsFile>,
    /// What plain TCP is like in each set: further columns of the design.
    pub(super) parameters: Option<ParametersFile>,
    /// How sets are chosen from the ranges of `factors`.
    pub(super) design: Option<DesignFile>,
    /// Sets that are given one by one.
    #[serde(default)]
    pub(super) sets: Vec<SetFile>,
    /// What is varied over all sets. Several sweeps combine to all pairs.
    #[serde(default)]
    pub(super) sweep: Vec<SweepFile>,
    /// What is sent.
    pub(super) traffic: TrafficFile,
    /// The connections of a shared topology.
    #[serde(default)]
    pub(super) flows: Vec<FlowFile>,
    /// What happens to paths of a shared topology.
    #[serde(default)]
    pub(super) events: Vec<EventFile>,
    /// What variants have unless they say otherwise.
    #[serde(default)]
    pub(super) defaults: PolicyFile,
    /// What is compared.
    pub(super) variants: Vec<VariantFile>,
    /// Plain TCP over each path, which is run besides.
    pub(super) baseline: Option<BaselineFile>,
    /// Runs of each set, with other seeds; their median counts. Default 1.
    pub(super) repeats: Option<usize>,
    /// By name; the first is the one that figures show.
    pub(super) metrics: Vec<String>,
    /// What is recorded over time besides; runs are shown over time then.
    pub(super) record: Option<RecordWord>,
    /// What the document found.
    #[serde(default)]
    pub(super) published: Vec<PublishedFile>,
    /// What is to be found here besides, for a reason of ours.
    #[serde(default)]
    pub(super) expected: Vec<ExpectedFile>,
    /// The short form. Default: there is the whole only.
    pub(super) reduced: Option<ReducedFile>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct TopologyFile {
    /// How they stand to each other. Default `parallel`.
    #[serde(default)]
    pub(super) kind: TopologyWord,
    /// Default 2, of a ring 3.
    pub(super) paths: Option<usize>,
    /// Queue discipline of each path, by name. Default drop-tail.
    #[schemars(extend("x-policy" = Disciplines::WHAT))]
    pub(super) discipline: Option<String>,
    /// What else happens to packets on each path, by name, such as `"gilbert-elliott:1%,10%"`.
    #[serde(default)]
    #[schemars(extend("x-policy" = Impairments::WHAT))]
    pub(super) impairments: Vec<String>,
    /// Middleboxes of each path, by name, from the host that opens connections to the other. A ring has none.
    #[serde(default)]
    #[schemars(extend("x-policy" = Middleboxes::WHAT))]
    pub(super) middleboxes: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum TopologyWord {
    /// Paths side by side between two hosts.
    #[default]
    Parallel,
    /// Three bottlenecks and three connections, each with a subflow over one of them and one over the other two.
    Ring,
    /// Paths that several connections share, each between hosts of its own: `flows` and `events`.
    Shared,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RecordWord {
    /// The congestion window of each path, of bulk transfers over parallel paths.
    CongestionWindow,
}

/// One value for all sets, or a range.
#[derive(Clone, Copy, Debug)]
pub(super) enum Factor<Q> {
    /// The same for all sets.
    Fixed(Q),
    /// From one value to another.
    Range { from: Q, to: Q, scale: ScaleWord },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ScaleWord {
    /// Equal differences.
    #[default]
    Linear,
    /// Equal ratios.
    Log,
}

/// A range of values.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RangeFile<Q> {
    /// The least.
    from: Q,
    /// The most.
    to: Q,
    /// How values stand between them. Default `linear`.
    #[serde(default)]
    scale: ScaleWord,
}

impl<Q: Copy> Factor<Q> {
    /// A range by equal ratios, of whose start this holds.
    pub(super) fn is_log_from(self, is_meant: impl Fn(Q) -> bool) -> bool {
        matches!(self, Self::Range { from, scale: ScaleWord::Log, .. } if is_meant(from))
    }
}

impl<'de, Q: Quantity + Deserialize<'de>> Deserialize<'de> for Factor<Q> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FactorVisitor<Q>(PhantomData<Q>);
        impl<'de, Q: Quantity + Deserialize<'de>> Visitor<'de> for FactorVisitor<Q> {
            type Value = Factor<Q>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}, or a range {{ from = …, to = … }}", Q::EXPECTED)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                read(text).map(Factor::Fixed).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let RangeFile { from, to, scale } = RangeFile::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Factor::Range { from, to, scale })
            }
        }
        deserializer.deserialize_any(FactorVisitor(PhantomData))
    }
}

impl<Q: Quantity + JsonSchema> JsonSchema for Factor<Q> {
    fn schema_name() -> Cow<'static, str> {
        format!("{}Factor", Q::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (fixed, range) = (generator.subschema_for::<Q>(), generator.subschema_for::<RangeFile<Q>>());
        json_schema!({ "anyOf": [fixed, range], "description": "One value for all sets, or a range." })
    }
}

/// Of each path.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct FactorsFile {
    /// Of the transmitter, IP headers included.
    pub(super) rate: Factor<Rate>,
    /// Twice the propagation delay.
    pub(super) rtt: Factor<Span>,
    /// How long a full queue takes to empty; this, `queue-packets` or `queue-products` is needed.
    pub(super) queue: Option<Factor<Span>>,
    /// How many packets of 1500 bytes it holds.
    pub(super) queue_packets: Option<u32>,
    /// How many bandwidth-delay products it holds, the same for all paths of a set, and five packets besides (Kaspar 2011, eq. 3.1).
    pub(super) queue_products: Option<ProductsFile>,
    /// Default none.
    pub(super) loss: Option<Factor<Percent>>,
}

/// Bandwidth-delay products, by equal differences.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ProductsFile {
    /// The least.
    pub(super) from: f64,
    /// The most.
    pub(super) to: f64,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct DesignFile {
    /// The kind of design.
    pub(super) kind: DesignWord,
    /// How many sets, of WSP and Latin hypercubes.
    pub(super) sets: Option<usize>,
    /// How many levels, of full factorials and orthogonal arrays.
    pub(super) levels: Option<usize>,
    /// Default 1.
    #[serde(default = "super::defaults::seed")]
    pub(super) seed: u64,
    /// Designs of this kind with consecutive seeds, to see how much the choice of sets matters. Default 1.
    pub(super) designs: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum DesignWord {
    /// Points that fill the space evenly (Wootton, Sergent and Phan-Tan-Luu).
    Wsp,
    /// Each factor has one set in each of its equal parts.
    LatinHypercube,
    /// Every combination of levels.
    FullFactorial,
    /// Every combination of levels of any two factors, as often.
    OrthogonalArray,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct SetFile {
    /// What it is called in results.
    pub(super) name: String,
    /// As many as `topology.paths` says.
    pub(super) paths: Vec<PathFile>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct PathFile {
    /// Of the transmitter, IP headers included.
    pub(super) rate: Rate,
    /// Twice the propagation delay.
    pub(super) rtt: Span,
    /// How long a full queue takes to empty.
    pub(super) queue: Span,
    /// Probability that a packet is lost on the line. Default 0%.
    pub(super) loss: Option<Percent>,
    /// How the delay of each packet varies, of datagrams: "uniform:15ms" is at most so much more or less, "normal:5ms" has this standard deviation.
    /// Packets overtake each other, as with netem. Default: not at all.
    pub(super) jitter: Option<String>,
    /// It becomes another on the way, of paths side by side. Default: it stays.
    pub(super) change: Option<ChangeFile>,
}

/// A path goes on at another rate; its queue keeps its length in bytes.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ChangeFile {
    /// Counted from the opening of the connection.
    pub(super) after: Span,
    /// The new rate.
    pub(super) rate: Rate,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct SweepFile {
    /// `buffer`, `bytes`, `load`, `initial-path`, `loss`, `rate` or `segment`.
    pub(super) parameter: String,
    /// Its values, in the words that the parameter has elsewhere in the file.
    pub(super) values: Vec<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct TrafficFile {
    /// What kind it is.
    pub(super) kind: TrafficWord,
    /// How long, of bulk transfers, blocks, datagrams, and the movie of a stream.
    pub(super) duration: Option<Span>,
    /// How much, of a transfer or a download.
    pub(super) bytes: Option<Size>,
    /// When a transfer or an exchange is given up. Default 600 s.
    pub(super) timeout: Option<Span>,
    /// Size of a block.
    pub(super) block: Option<Size>,
    /// Rate of datagrams, or at which blocks are made; `unlimited` makes each when the send buffer has taken the one before …
    pub(super) rate: Option<BlockRate>,
    /// … or its share of the sum of the paths' rates.
    pub(super) load: Option<Percent>,
    /// Size of a request.
    pub(super) request: Option<Size>,
    /// Size of a response.
    pub(super) response: Option<Size>,
    /// How many requests.
    pub(super) count: Option<u64>,
    /// The rate at which a download is played while it comes; default the one at which it could be played for ever …
    pub(super) playback: Option<Rate>,
    /// … and how long after the first request that begins.
    pub(super) startup: Option<Span>,
    /// How much of a stream is held in advance of what is played; playing begins when so much is there.
    pub(super) held: Option<Span>,
    /// Length of a datagram's packet, headers of IP and UDP included.
    pub(super) packet: Option<Size>,
    /// Paths let so many bytes of datagrams pass at once, as a token bucket does. Default: each packet takes its time on the path's transmitter.
    pub(super) burst: Option<Size>,
    /// How often the sum of the paths' rates is shared out between them anew, at random, from the start on. Default: never.
    pub(super) redrawn: Option<Span>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum TrafficWord {
    /// As much as possible.
    Bulk,
    /// A fixed size.
    Transfer,
    /// Time-stamped blocks at a fixed rate.
    Blocks,
    /// Requests and responses in turn.
    Requests,
    /// One file by HTTP, in ranges over plain TCP of each path.
    Download,
    /// The document's sample movie in qualities that follow what comes, in ranges over plain TCP of each path.
    Stream,
    /// Packets of one length at a constant rate, by an aggregator at the network layer.
    Datagrams,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) enum BlockRate {
    /// Each when the send buffer has taken the one before.
    Unlimited,
    /// At this rate.
    At(Rate),
}

impl JsonSchema for BlockRate {
    fn schema_name() -> Cow<'static, str> {
        "BlockRate".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let description = format!("Expected is {}, or \"unlimited\".", Rate::EXPECTED);
        json_schema!({ "type": "string", "description": description })
    }
}

impl TryFrom<String> for BlockRate {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.trim() == "unlimited" {
            return Ok(Self::Unlimited);
        }
        read(&text).map(Self::At).map_err(|error| format!("{error}, or \"unlimited\""))
    }
}

/// A connection of a shared topology, or datagrams.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct FlowFile {
    /// What it is called in results.
    pub(super) name: String,
    /// The path of each of its addresses, by number from 1; a path that comes twice has two subflows.
    pub(super) paths: Vec<usize>,
    /// Plain TCP with this congestion control. Default: as the variant says.
    #[schemars(extend("x-policy" = Algorithms::WHAT))]
    pub(super) tcp: Option<String>,
    /// Datagrams by turns sent and not, without any congestion control; `rate` is that of the time on.
    pub(super) udp: Option<UdpFile>,
    /// Sends at this rate. Default: as fast as possible.
    pub(super) rate: Option<Rate>,
    /// Default: at once.
    pub(super) start: Option<Span>,
    /// Default: at the end.
    pub(super) stop: Option<Span>,
}

/// On and off by turns, for times from a Pareto distribution.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct UdpFile {
    /// Mean time on.
    pub(super) on: Span,
    /// Mean time off; zero sends all the time.
    pub(super) off: Span,
    /// Shape of the distribution. Default 1.5.
    pub(super) shape: Option<f64>,
    /// Length of a packet, headers included. Default 1000 bytes.
    pub(super) packet: Option<Size>,
}

/// A path of a shared topology changes; what is not named stays.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct EventFile {
    /// When, counted from the start.
    pub(super) at: Span,
    /// By number from 1.
    pub(super) path: usize,
    /// True cuts it, false brings it back.
    pub(super) down: Option<bool>,
    /// The interfaces of those that open connections go and come with it.
    #[serde(default)]
    pub(super) interface: bool,
    /// The new rate.
    pub(super) rate: Option<Rate>,
    /// The new probability of loss.
    pub(super) loss: Option<Percent>,
}

/// How a variant sends.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct PolicyFile {
    /// Which path gets data, by name. Default `default`.
    #[schemars(extend("x-policy" = Schedulers::WHAT))]
    pub(super) scheduler: Option<String>,
    /// How each path's rate follows from acknowledgments and losses, by name. Default `cubic`.
    #[schemars(extend("x-policy" = Algorithms::WHAT))]
    pub(super) congestion: Option<String>,
    /// Which paths are opened, and which one takes over, by name. Default `endpoints`.
    #[schemars(extend("x-policy" = PathManagers::WHAT))]
    pub(super) path_manager: Option<String>,
    /// `recommended` (2 · Σ rate · longest round trip, which never limits), `stack` (what the stack does by itself) or a
    /// size. Default `recommended`.
    pub(super) buffer: Option<String>,
    /// Size of the send buffer. Default: large enough that the receive buffer alone limits.
    pub(super) send_buffer: Option<Size>,
    /// `first`, `second` and so on by number ("1", "2"), `best`, `worst` or `random`. Default `first`.
    pub(super) initial_path: Option<String>,
    /// Try all paths at once when a connection is opened. Default: as the stack does.
    pub(super) race: Option<bool>,
    /// Let the receive window grow up to the buffer; false gives all of it from the start, to plain TCP of the baseline too.
    /// Default: as the stack does.
    pub(super) autotuning: Option<bool>,
    /// Requests of a download have a fixed size, and so many of a path are answered or wait: 1 is no pipelining. Default: sizes by
    /// measured rates.
    pub(super) in_flight: Option<usize>,
    /// The fixed size.
    pub(super) segment: Option<Size>,
    /// Requests of a download are for whoever takes the file in order: little is held back. Default false.
    pub(super) in_order: Option<bool>,
    /// Requests of a fixed size are shared out by the paths' rates: on average they have that size. Default false.
    pub(super) proportional: Option<bool>,
    /// In which quality the segments of a stream come, by name: `robust-mpc`,
    /// `bola` or `measured-speed`. Default `robust-mpc`.
    pub(super) adaptation: Option<String>,
    /// What gives the packets of a stream of datagrams to paths, by name: `nama`, `nama-dithered`, `equalized-round-robin`,
    /// `delayed-round-robin`, `send-vector`, `tunnel` or `round-robin`. Default `nama`. With other traffic, what carries the packets of
    /// a plain TCP, which are of 1400 bytes at most: `tunnel:1400` makes datagrams that fit into 1500. Default: nothing does.
    pub(super) aggregator: Option<String>,
    /// How plain TCP finds and repairs losses: `stack`, `patient`, `newreno`, `sack`, `eifel`, `eifel-sack`, `linux-2.6.32`, `tuned`,
    /// `r30-tuned` or `r50-tuned`. Default `stack`.
    pub(super) flavour: Option<String>,
    /// Longest packet that a host sends or takes, headers included, from 576 to 1500 bytes; plain TCP of the baseline, too. Default 1500 bytes.
    pub(super) mtu: Option<Size>,
}

// Written out, since `flatten` and `deny_unknown_fields` do not go together.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct VariantFile {
    /// What it is called in results.
    pub(super) name: String,
    /// Which path gets data, by name. Default: as `defaults` say.
    #[schemars(extend("x-policy" = Schedulers::WHAT))]
    pub(super) scheduler: Option<String>,
    /// How each path's rate follows from acknowledgments and losses, by name. Default: as `defaults` say.
    #[schemars(extend("x-policy" = Algorithms::WHAT))]
    pub(super) congestion: Option<String>,
    /// Which paths are opened, and which one takes over, by name. Default: as `defaults` say.
    #[schemars(extend("x-policy" = PathManagers::WHAT))]
    pub(super) path_manager: Option<String>,
    /// `recommended`, `stack` or a size. Default: as `defaults` say.
    pub(super) buffer: Option<String>,
    /// Size of the send buffer. Default: as `defaults` say.
    pub(super) send_buffer: Option<Size>,
    /// A number, `first`, `best`, `worst` or `random`. Default: as `defaults` say.
    pub(super) initial_path: Option<String>,
    /// Try all paths at once when a connection is opened. Default: as the stack does.
    pub(super) race: Option<bool>,
    /// Let the receive window grow up to the buffer. Default: as the stack does.
    pub(super) autotuning: Option<bool>,
    /// So many requests of a fixed size of each path of a download. Default: as `defaults` say.
    pub(super) in_flight: Option<usize>,
    /// The fixed size. Default: as `defaults` say.
    pub(super) segment: Option<Size>,
    /// Requests of a download are for whoever takes the file in order. Default: as `defaults` say.
    pub(super) in_order: Option<bool>,
    /// Requests of a fixed size are shared out by the paths' rates. Default: as `defaults` say.
    pub(super) proportional: Option<bool>,
    /// In which quality the segments of a stream come, by name. Default: as `defaults` say.
    pub(super) adaptation: Option<String>,
    /// What gives the packets of a stream of datagrams to paths, or carries those of a plain TCP, by name. Default: as `defaults` say.
    pub(super) aggregator: Option<String>,
    /// How plain TCP finds and repairs losses. Default: as `defaults` say.
    pub(super) flavour: Option<String>,
    /// Longest packet that a host sends or takes. Default: as `defaults` say.
    pub(super) mtu: Option<Size>,
    /// Plain TCP whose packets are split over all paths by this splitter: `send-vector`, `smooth-weighted-round-robin` or
    /// `round-robin`. Acknowledgments return over the initial path. Default: packets of a connection stay on their path.
    pub(super) split: Option<String>,
    /// Plain TCP over the initial path.
    #[serde(default)]
    pub(super) single_path: bool,
    /// The variant that metrics of a difference compare it with.
    pub(super) reference: Option<String>,
}

impl VariantFile {
    /// Its words, and those of `defaults` where it says nothing.
    pub(super) fn policy(&self, defaults: &PolicyFile) -> PolicyFile {
        let or = |own: &Option<String>, default: &Option<String>| own.clone().or_else(|| default.clone());
        PolicyFile {
            scheduler: or(&self.scheduler, &defaults.scheduler),
            congestion: or(&self.congestion, &defaults.congestion),
            path_manager: or(&self.path_manager, &defaults.path_manager),
            buffer: or(&self.buffer, &defaults.buffer),
            send_buffer: self.send_buffer.or(defaults.send_buffer),
            initial_path: or(&self.initial_path, &defaults.initial_path),
            race: self.race.or(defaults.race),
            autotuning: self.autotuning.or(defaults.autotuning),
            in_flight: self.in_flight.or(defaults.in_flight),
            segment: self.segment.or(defaults.segment),
            in_order: self.in_order.or(defaults.in_order),
            proportional: self.proportional.or(defaults.proportional),
            adaptation: or(&self.adaptation, &defaults.adaptation),
            aggregator: or(&self.aggregator, &defaults.aggregator),
            flavour: or(&self.flavour, &defaults.flavour),
            mtu: self.mtu.or(defaults.mtu),
        }
    }
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct BaselineFile {
    /// Its congestion control.
    #[schemars(extend("x-policy" = Algorithms::WHAT))]
    pub(super) congestion: String,
    /// What carries its packets over each path, by name. Default: nothing does.
    pub(super) aggregator: Option<String>,
}

/// A figure or a fact of the document, and how near to it ours is to be.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct PublishedFile {
    /// What the document says, in words.
    pub(super) text: String,
    /// Where it says so: document, year, and figure, table or section, such as "Paasch 2014, Fig. 4.18".
    pub(super) source: String,
    /// Which variant is looked at; none for a fact without a counterpart here.
    pub(super) variant: Option<String>,
    /// Default: the first metric.
    pub(super) metric: Option<String>,
    /// `min`, `p1`, `p5`, `p25`, `median`, `p75`, `p95`, `p99`, `max` or `mean`. Default `median`.
    pub(super) statistic: Option<String>,
    /// Which value of the sweep. Default: all of them.
    pub(super) at: Option<String>,
    /// Which set. Default: all of them.
    pub(super) set: Option<String>,
    /// Which sets, by the levels of their parameters: `{ sack = "on", reordering-min = ["50", "127"] }`. `most-loss` is what no path of a
    /// set exceeds. Default: all of them.
    #[serde(rename = "where")]
    pub(super) among: Option<GroupFile>,
    /// Sets whose number is taken off that of the others.
    pub(super) against: Option<GroupFile>,
    /// The published number, if there is one.
    pub(super) value: Option<f64>,
    /// From here on ours agrees with it.
    pub(super) at_least: Option<f64>,
    /// Up to here ours agrees with it.
    pub(super) at_most: Option<f64>,
    /// Why ours differs, when it does.
    pub(super) remark: Option<String>,
}

/// What is to hold here, whatever the document says.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ExpectedFile {
    /// What it is, in words.
    pub(super) text: String,
    /// Why it is to hold.
    pub(super) reason: String,
    /// Which variant is looked at.
    pub(super) variant: String,
    /// Default: the first metric.
    pub(super) metric: Option<String>,
    /// `min`, `p1`, `p5`, `p25`, `median`, `p75`, `p95`, `p99`, `max` or `mean`. Default `median`.
    pub(super) statistic: Option<String>,
    /// Which value of the sweep. Default: all of them.
    pub(super) at: Option<String>,
    /// Which set. Default: all of them.
    pub(super) set: Option<String>,
    /// Which sets, by the levels of their parameters: `{ sack = "on", reordering-min = ["50", "127"] }`. `most-loss` is what no path of a
    /// set exceeds. Default: all of them.
    #[serde(rename = "where")]
    pub(super) among: Option<GroupFile>,
    /// Sets whose number is taken off that of the others.
    pub(super) against: Option<GroupFile>,
    /// What is to be reached; this or `at-most` is needed.
    pub(super) at_least: Option<f64>,
    /// What is not to be exceeded.
    pub(super) at_most: Option<f64>,
    /// Why it does not hold, when it does not.
    pub(super) remark: Option<String>,
}

/// What is different in the short form.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ReducedFile {
    /// Sets of each design.
    pub(super) sets: Option<usize>,
    /// Levels of each factor.
    pub(super) levels: Option<usize>,
    /// Designs with consecutive seeds.
    pub(super) designs: Option<usize>,
    /// How long, of bulk transfers, blocks and datagrams.
    pub(super) duration: Option<Span>,
    /// Runs of each set.
    pub(super) repeats: Option<usize>,
    /// At most so many values of each sweep, evenly chosen.
    pub(super) points: Option<usize>,
}
