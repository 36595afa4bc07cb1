//! Every middlebox, everywhere: on the first subflow, on a joined one, on both, near the client and near the
//! server, with both wire versions, alone and in pairs. Whatever the box does, bytes arrive unchanged both
//! ways and the connection ends in order.
//!
//! One exception is the protocol's own: when a box that changes data is on the last path, the connection
//! becomes plain TCP, with an infinite mapping that reaches back to the change (RFC 8684 §3.7). Then, and
//! only then, what the box put in arrives in place of what it took out, exactly as plain TCP would deliver
//! it.

use std::fmt;
use std::sync::Arc;

use polypath_config::Policies;
use polypath_link::middlebox::{
    self, Chain, Direction, EditTarget, Middleboxes, Rewrite, RewriteLength, RewriteLengthConfig,
    RewritePayload, RewritePayloadConfig,
};
use polypath_link::{LinkConfig, QueueLimit};
use polypath_mptcp::{ConnectionConfig, HostConfig};
use polypath_units::{BitRate, Duration, Instant};
use polypath_wire::{Endpoint, MptcpVersion};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use crate::app::{Pattern, TrafficPlan, TrafficReport};
use crate::conversation::{Conversation, Ends};
use crate::network::{BoxPosition, Network};
use crate::topologies::{ParallelPaths, PathConfig, parallel_paths};
use crate::trace::TraceOutputs;

/// On which of the two paths the boxes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The path of the first subflow.
    First,
    /// The path of the subflow that joins.
    Joined,
    /// Both, each with boxes of its own.
    Both,
}

/// Boxes at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Boxes, from the client's end.
    pub(crate) boxes: Vec<middlebox::Policy>,
    /// On which paths.
    pub(crate) place: Place,
    /// At the client's end of the path, else at the server's.
    pub(crate) at_client: bool,
    /// Wire version.
    pub(crate) version: MptcpVersion,
    /// Seed of the boxes and hosts.
    pub seed: u64,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.place {
            Place::First => "first",
            Place::Joined => "joined",
            Place::Both => "both",
        };
        let side = if self.at_client { "client" } else { "server" };
        let version = if self.version == MptcpVersion::V0 { 0 } else { 1 };
        let boxes: Vec<&str> = self.boxes.iter().map(middlebox::Policy::name).collect();
        write!(f, "{} {place} {side} v{version}", boxes.join("+"))
    }
}

/// A case in which something did not arrive, or not unchanged, or did not end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The case.
    pub case: Case,
    /// What was found.
    pub(crate) details: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.case, self.details)
    }
}

/// What a case showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// When both ends were done.
    pub finished_at: Instant,
    /// Why the connection fell back to TCP, if it did.
    pub(crate) fell_back: Option<&'static str>,
    /// Hash of the trace, if it was asked for.
    pub trace_hash: Option<u64>,
}

/// Bytes that go each way.
const TRANSFER_BYTES: u64 = 300_000;

/// Pairs of boxes beside the single ones.
const PAIRS: usize = 72;

/// Where the late variants of the rewriting boxes strike: when the second subflow carries data too.
const LATE_OFFSET: u64 = 100_000;

/// A transfer takes a second; falling back after three lost SYNs takes seven, and proxies and losses some
/// more.
const TIME_LIMIT: Duration = Duration::from_secs(300);

/// The rewriting boxes a second time, late in the transfer.
const LATE: [middlebox::Policy; 2] = [
    middlebox::Policy::new("rewrite-payload-late", |_| {
        let target = late(LATE_OFFSET);
        Box::new(RewritePayload::new(RewritePayloadConfig { target, ..RewritePayloadConfig::default() }))
    }),
    middlebox::Policy::new("rewrite-length-late", |_| {
        // Apart, so that a pair of them does not edit the same bytes.
        let target = late(LATE_OFFSET + 5_000);
        Box::new(RewriteLength::new(RewriteLengthConfig { target, ..RewriteLengthConfig::default() }))
    }),
];

const fn late(offset: u64) -> EditTarget {
    EditTarget::Place { offset, len: 4 }
}

/// All cases: every box that these policies know at every place, and pairs that follow from a fixed seed.
pub fn cases(policies: &Policies) -> Vec<Case> {
    const PLACES: [Place; 3] = [Place::First, Place::Joined, Place::Both];
    const VERSIONS: [MptcpVersion; 2] = [MptcpVersion::V0, MptcpVersion::V1];
    let boxes: Vec<middlebox::Policy> = policies.all::<Middleboxes>().cloned().chain(LATE).collect();
    let mut cases = Vec::new();
    for known in &boxes {
        for place in PLACES {
            for at_client in [true, false] {
                for version in VERSIONS {
                    let seed = cases.len() as u64;
                    cases.push(Case { boxes: vec![known.clone()], place, at_client, version, seed });
                }
            }
        }
    }
    let mut random = ChaCha8Rng::seed_from_u64(0xb0c5);
    let mut pick = |count: usize| random.next_u32() as usize % count;
    for _ in 0..PAIRS {
        let first = pick(boxes.len());
        let second = (first + 1 + pick(boxes.len() - 1)) % boxes.len();
        cases.push(Case {
            boxes: vec![boxes[first].clone(), boxes[second].clone()],
            place: PLACES[pick(PLACES.len())],
            at_client: pick(2) == 0,
            version: VERSIONS[pick(VERSIONS.len())],
            seed: cases.len() as u64,
        });
    }
    cases
}

/// Runs one case, and records it if there is somewhere to.
///
/// # Errors
/// What did not arrive or did not end.
pub fn run_traced(case: &Case, outputs: Option<TraceOutputs>) -> Result<Outcome, Failure> {
    let (mut network, net, ends) = build(case, outputs);
    let over =
        |network: &Network| [ends.opener, ends.acceptor].iter().all(|end| network.traffic(*end).is_over());
    while network.now() < Instant::ZERO + TIME_LIMIT && !over(&network) {
        network.run_for(Duration::from_millis(500));
    }
    let finished_at = network.now();
    let reports = [ends.opener, ends.acceptor].map(|end| network.report(end).clone());
    let failure = |details: String| Err(Failure { case: case.clone(), details });
    let fell_back = reports[0].fell_back.or(reports[1].fell_back);
    let directions = [Direction::Backward, Direction::Forward];
    for ((name, report), direction) in ["client", "server"].iter().zip(&reports).zip(directions) {
        if !report.closed.is_some_and(|(_, in_order, _)| in_order) {
            let kept = Vec::new();
            return failure(format!("{name} did not end: {:?}", TrafficReport { kept, ..report.clone() }));
        }
        let stream = 2 * case.seed + u64::from(direction == Direction::Backward);
        let sent = Pattern::new(stream).to_vec(TRANSFER_BYTES);
        let rewrites = if fell_back.is_some() { rewrites(&network, &net, direction) } else { Vec::new() };
        if let Err(offset) = compare(&sent, &report.kept, &rewrites) {
            let received = report.received_bytes;
            return failure(format!("{name} received a wrong byte at offset {offset} of {received}"));
        }
    }
    network.run_for(TIME_LIMIT);
    for (name, node) in [("client", net.client), ("server", net.server)] {
        let stack = &network.host(node).stack;
        if stack.population().connections + stack.population().flows + stack.token_count() > 0 {
            return failure(format!("{name} still has {} flows", stack.population().flows));
        }
    }
    let trace_hash = network.trace_hash();
    if let Some(tracer) = network.take_tracer() {
        // What a trace could not write shows in the file.
        let _written = tracer.finish();
    }
    Ok(Outcome { finished_at, fell_back, trace_hash })
}

/// What boxes have changed in the streams of a direction.
fn rewrites(network: &Network, net: &ParallelPaths, direction: Direction) -> Vec<Rewrite> {
    let chains = net.links.iter().filter_map(|link| network.middleboxes(*link));
    let rewrites = chains.flat_map(Chain::boxes).flat_map(|middlebox| middlebox.rewrites());
    rewrites.filter(|rewrite| rewrite.direction == direction).cloned().collect()
}

/// Checks that `received` is `sent`, or `sent` with some of `rewrites` done.
fn compare(sent: &[u8], received: &[u8], rewrites: &[Rewrite]) -> Result<(), usize> {
    let (mut from, mut at) = (0, 0);
    while from < sent.len() {
        // A rewrite knows its place in its subflow's stream; its place in the connection's is where its bytes
        // are. They are few, but random.
        let done = rewrites.iter().find(|rewrite| {
            let (there, here) = (&sent[from..], received.get(at..).unwrap_or(&[]));
            !rewrite.removed.is_empty()
                && there.starts_with(&rewrite.removed)
                && here.starts_with(&rewrite.inserted)
                && !here.starts_with(&rewrite.removed)
        });
        match done {
            Some(rewrite) => {
                from += rewrite.removed.len();
                at += rewrite.inserted.len();
            }
            None if received.get(at) == Some(&sent[from]) => {
                from += 1;
                at += 1;
            }
            None => return Err(at),
        }
    }
    if at == received.len() { Ok(()) } else { Err(at) }
}

/// The box is one that changes data, or somebody else's.
fn may_rewrite(known: &middlebox::Policy) -> bool {
    known.name().starts_with("rewrite") || middlebox::Policy::by_name(known.name()).is_none()
}

fn build(case: &Case, outputs: Option<TraceOutputs>) -> (Network, ParallelPaths, Ends) {
    let mut config = ConnectionConfig {
        version: case.version,
        // Only the checksum tells that a box has changed data.
        checksum: case.boxes.iter().any(may_rewrite) || case.seed.is_multiple_of(3),
        ..ConnectionConfig::default()
    };
    let mut tcp = (*config.tcp).clone();
    // Aggregates in half of the cases: a box sees segments in any case, its hosts do not.
    if case.seed.is_multiple_of(2) {
        tcp.max_aggregate_bytes = 0;
    }
    config.tcp = Arc::new(tcp);
    let host = HostConfig { connection: Arc::new(config), ..HostConfig::default() };
    let position = if case.at_client { BoxPosition::First } else { BoxPosition::Second };
    let paths = [(20, 10, Place::First), (10, 20, Place::Joined)].map(|(mbps, delay_ms, place)| {
        let queue = QueueLimit::Delay(Duration::from_millis(100));
        let link = LinkConfig::new(BitRate::from_mbps(mbps), Duration::from_millis(delay_ms), queue);
        let has_boxes = case.place == place || case.place == Place::Both;
        let seed = case.seed << 8 | delay_ms;
        let boxes = (0..).zip(&case.boxes).map(|(number, known)| known.build_for(&(seed + (number << 5))));
        let chain: Option<Chain> = has_boxes.then(|| boxes.collect());
        let boxes = chain.map(|chain| (position, chain));
        PathConfig { boxes, ..PathConfig::symmetric(format!("{place:?}"), link) }
    });
    let (builder, net) = parallel_paths(case.seed, paths, host.clone(), host);
    let tracer = outputs.and_then(|outputs| builder.tracer(outputs).ok());
    let mut network = builder.build();
    network.set_tracer(tracer);
    let (opener, acceptor) = Conversation::plans(case.seed, Some(TRANSFER_BYTES), Some(TRANSFER_BYTES));
    let opener = TrafficPlan { keep: true, verify: false, ..opener };
    let acceptor = TrafficPlan { keep: true, verify: false, ..acceptor };
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
    (network, net, ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(case: &Case) -> Result<Outcome, Failure> {
        run_traced(case, None)
    }

    #[test]
    fn every_box_lets_every_byte_pass() {
        let cases = cases(&Policies::default());
        assert!(cases.len() >= 200);
        let failures: Vec<_> =
            cases.iter().filter_map(|case| run(case).err()).map(|it| it.to_string()).collect();
        assert!(failures.is_empty(), "\n{}", failures.join("\n"));
    }

    #[test]
    fn only_rewrites_excuse_a_difference() {
        let tuple = polypath_wire::FourTuple {
            local: Endpoint::new([10, 0, 0, 2].into(), 1),
            remote: Endpoint::new([10, 0, 0, 1].into(), 80),
        };
        let rewrite = Rewrite {
            flow: tuple,
            direction: Direction::Forward,
            stream_offset: 2,
            removed: vec![3, 4],
            inserted: vec![9, 9, 9],
        };
        let sent = [1, 2, 3, 4, 5, 6];
        assert_eq!(compare(&sent, &sent, &[]), Ok(()));
        assert_eq!(compare(&sent, &sent, std::slice::from_ref(&rewrite)), Ok(()));
        let changed = [1, 2, 9, 9, 9, 5, 6];
        assert_eq!(compare(&sent, &changed, &[]), Err(2));
        assert_eq!(compare(&sent, &changed, &[rewrite]), Ok(()));
        assert_eq!(compare(&sent, &sent[..5], &[]), Err(5));
        assert_eq!(compare(&sent[..5], &sent, &[]), Err(5));
    }

    /// Data that had gone over both paths was taken for the first copy of itself, so that the infinite mapping pointed
    /// behind what could not be verified, and the rest never came. Or a segment with an infinite mapping overtook the first
    /// one that had it, whose data was then skipped.
    #[test]
    fn a_length_that_changes_late_on_both_paths_behind_reordering_ends() {
        let name = "rewrite-length-late+reorder both client v0";
        let case = cases(&Policies::default())
            .into_iter()
            .find(|case| case.to_string() == name)
            .expect("a pair of boxes");
        // The first one with another schedule of the hosts, which later changes gave them.
        for more in [5_000, 41_000, 63_000, 78_000] {
            if let Err(failure) = run(&Case { seed: case.seed + more, ..case.clone() }) {
                panic!("seed +{more}: {failure}");
            }
        }
    }

    #[test]
    fn boxes_do_something() {
        // Without a box there is no fallback; with options stripped from the first SYN there is.
        let cases = cases(&Policies::default());
        let case = |name| {
            cases.iter().find(|case| case.boxes == [middlebox::Policy::by_name(name).unwrap()]).unwrap()
        };
        assert_eq!(run(case("nat")).unwrap().fell_back, None);
        assert!(run(case("strip-mptcp-syn")).unwrap().fell_back.is_some());
    }
}
