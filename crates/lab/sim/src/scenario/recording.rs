//! The connections of a running network over time, and what a run gives.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use polypath_mptcp::ConnectionConfig;
use polypath_units::{BitRate, Instant};
use polypath_wire::FourTuple;

use super::result::{ChannelResult, ConnectionResult, LinkResult, RunResult, StreamResult, SubflowResult};
use crate::app::TrafficReport;
use crate::conversation::{Ends, TrafficEnd};
use crate::network::{ChannelId, LinkId, Network, NetworkBuilder, NodeId};
use crate::recorder::{StreamRecorder, SubflowRecorder};

/// A connection that is recorded.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// What it is called in results.
    pub name: String,
    /// Its ends.
    pub ends: Ends,
    /// Settings of the end that opens it.
    pub config: Arc<ConnectionConfig>,
    /// When it is opened.
    pub start: Instant,
    /// Bytes in each direction that is used, if they are limited.
    pub planned_bytes: Option<u64>,
    /// The end that opens it sends.
    pub upload: bool,
    /// The end that accepts it sends.
    pub download: bool,
}

/// One direction of a connection over time.
#[derive(Debug, Default)]
struct Samples {
    stream: StreamRecorder,
    subflows: SubflowRecorder,
    /// All of it has arrived, and the sender knows.
    has_ended: bool,
}

impl Samples {
    fn sample(&mut self, network: &mut Network, since: Instant, sender: TrafficEnd, receiver: TrafficEnd) {
        let now = network.now();
        self.stream.sample(since, now, network.report(receiver).received_bytes);
        if let Some(info) = network.connection_info(sender) {
            self.subflows.see(&info);
            network.note_subflows(&info);
        }
        self.subflows.sample(since, now);
    }

    /// All of it has arrived, and the last that its sender hears of that is on its way.
    fn is_ending(&self, network: &Network, receiver: TrafficEnd) -> bool {
        !self.has_ended && network.report(receiver).peer_finished_at.is_some()
    }

    /// The subflows are gone soon, and with them what they have done.
    fn see_end(&mut self, network: &Network, sender: TrafficEnd) {
        let info = network.connection_info(sender).unwrap_or_default();
        self.subflows.see(&info);
        self.has_ended = info
            .subflows
            .iter()
            .all(|subflow| subflow.tcp.in_flight_bytes == 0 && subflow.tcp.lost_bytes == 0);
    }
}

#[derive(Debug)]
struct Running {
    what: Recorded,
    upload: Samples,
    download: Samples,
}

impl Running {
    /// The directions that are used, each with its sender and its receiver.
    fn used(&mut self) -> impl Iterator<Item = (&mut Samples, TrafficEnd, TrafficEnd)> {
        let Recorded { ends: Ends { opener, acceptor }, upload, download, .. } = self.what;
        let both =
            [(upload, &mut self.upload, opener, acceptor), (download, &mut self.download, acceptor, opener)];
        both.into_iter()
            .filter(|(is_used, ..)| *is_used)
            .map(|(_, samples, sender, receiver)| (samples, sender, receiver))
    }

    fn is_ending(&self, network: &Network) -> bool {
        let Recorded { ends: Ends { opener, acceptor }, upload, download, .. } = self.what;
        upload && self.upload.is_ending(network, acceptor)
            || download && self.download.is_ending(network, opener)
    }
}

/// Name of a link, and its rate in each direction at the start.
#[derive(Debug)]
struct Line {
    name: String,
    rates: [Option<BitRate>; 2],
}

/// A run that is recorded: its connections over time.
#[derive(Debug)]
pub struct Recording {
    lines: Vec<Line>,
    running: Vec<Running>,
    sampled_at: Instant,
}

impl Recording {
    /// Of a network that is about to be built.
    pub fn new(builder: &NetworkBuilder) -> Self {
        let lines = builder.lines().map(|(name, rates)| Line { name: name.to_string(), rates });
        Self { lines: lines.collect(), running: Vec::new(), sampled_at: Instant::ZERO }
    }

    /// Records a connection of it, too.
    pub fn add(&mut self, what: Recorded) {
        self.running.push(Running { what, upload: Samples::default(), download: Samples::default() });
    }

    /// Runs to `end`, as [`Network::run_until`] does, and looks at each stream when it ends.
    pub fn run_until(&mut self, network: &mut Network, end: Instant) {
        let Self { running, .. } = self;
        while network.run_until_or(end, |network| running.iter().any(|running| running.is_ending(network))) {
            for (samples, sender, receiver) in running.iter_mut().flat_map(Running::used) {
                if samples.is_ending(network, receiver) {
                    samples.see_end(network, sender);
                }
            }
        }
    }

    /// Looks at the connections now, if time has passed; gives the bytes that have arrived in all of them.
    pub fn sample(&mut self, network: &mut Network) -> u64 {
        let since = std::mem::replace(&mut self.sampled_at, network.now());
        let is_new = network.now() > since;
        let mut received_bytes = 0;
        for Running { what: Recorded { ends, .. }, upload, download } in &mut self.running {
            if is_new {
                upload.sample(network, since, ends.opener, ends.acceptor);
                download.sample(network, since, ends.acceptor, ends.opener);
            }
            for end in [ends.opener, ends.acceptor] {
                received_bytes += network.report(end).received_bytes;
            }
        }
        received_bytes
    }

    /// Each connection is over.
    pub(super) fn is_over(&self, network: &Network) -> bool {
        let is_over = |end| network.traffic(end).is_over();
        self.running
            .iter()
            .all(|Running { what, .. }| is_over(what.ends.opener) && is_over(what.ends.acceptor))
    }

    /// Looks a last time, ends the traces, and gives the results of the run with this name and seed.
    ///
    /// # Errors
    /// A trace that can't be written.
    pub fn finish(mut self, network: &mut Network, name: &str, seed: u64) -> io::Result<RunResult> {
        self.sample(network);
        let Self { lines, running, .. } = self;
        let now = network.now();
        let trace_hash = format!("{:016x}", network.trace_hash().unwrap_or_default());
        if let Some(tracer) = network.take_tracer() {
            tracer.finish()?;
        }
        let links = (0..).zip(&lines).map(|(index, line)| {
            let id = LinkId(index);
            LinkResult {
                name: line.name.clone(),
                forward: channel_result(network, id.forward(), line.rates[0], now),
                backward: channel_result(network, id.backward(), line.rates[1], now),
            }
        });
        let links = links.collect();
        let connections = running.into_iter().map(|running| connection_result(&lines, network, running));
        Ok(RunResult {
            name: name.to_string(),
            seed,
            simulated_s: now.as_secs_f64(),
            trace_hash,
            connections: connections.collect(),
            links,
        })
    }
}

fn channel_result(network: &Network, id: ChannelId, rate: Option<BitRate>, now: Instant) -> ChannelResult {
    let totals = network.channel_stats(id);
    let possible = rate.map(|rate| rate.bytes_in(now.since(Instant::ZERO)));
    let utilisation =
        possible.filter(|bytes| *bytes > 0).map(|bytes| totals.delivered_bytes as f64 / bytes as f64);
    ChannelResult { rate_bps: rate.map(BitRate::as_bps), totals, utilisation }
}

fn connection_result(lines: &[Line], network: &Network, running: Running) -> ConnectionResult {
    let Running { what, upload, download } = running;
    let Ends { opener: opening, acceptor: accepting } = what.ends;
    let [opener, acceptor] = [opening, accepting].map(|end| network.report(end));
    let upload = what
        .upload
        .then(|| stream_result(lines, &what, network, upload, (opening, accepting.node), acceptor));
    let download = what
        .download
        .then(|| stream_result(lines, &what, network, download, (accepting, opening.node), opener));
    ConnectionResult {
        name: what.name.clone(),
        from: network.node_name(opening.node).to_string(),
        to: network.node_name(accepting.node).to_string(),
        mptcp: what.config.mptcp,
        congestion: what.config.congestion.name().to_string(),
        scheduler: what.config.scheduler.name().to_string(),
        opened_at_s: opener.opened_at.map(Instant::as_secs_f64),
        closed_at_s: opener.closed.map(|(at, ..)| at.as_secs_f64()),
        closed: opener.closed.map(|(_, _, reason)| reason.to_string()),
        fell_back: opener.fell_back.or(acceptor.fell_back).map(str::to_string),
        upload,
        download,
    }
}

/// How many different links there are, if each subflow has one.
fn kinds(links: &[Option<LinkId>]) -> usize {
    let known: Option<BTreeSet<usize>> = links.iter().map(|link| link.map(LinkId::index)).collect();
    known.map_or(0, |known| known.len())
}

fn stream_result(
    lines: &[Line],
    what: &Recorded,
    network: &Network,
    samples: Samples,
    (sender, receiving): (TrafficEnd, NodeId),
    receiver: &TrafficReport,
) -> StreamResult {
    let Samples { stream, subflows, .. } = samples;
    let last = receiver.last_received_at;
    let complete = what.planned_bytes.is_some_and(|bytes| receiver.received_bytes >= bytes);
    let span = last.unwrap_or(what.start).since(what.start);
    let (tuples, mut subflows): (Vec<FourTuple>, Vec<SubflowResult>) = subflows.into_results().unzip();
    let at = |node, ends: &dyn Fn(&FourTuple) -> [IpAddr; 2]| -> Vec<Option<LinkId>> {
        let hops = tuples.iter().map(|tuple| {
            let [src, dst] = ends(tuple);
            network.next_hop(node, src, dst).map(ChannelId::link)
        });
        hops.collect()
    };
    let at_sender = at(sender.node, &|tuple| [tuple.local.addr, tuple.remote.addr]);
    let at_receiver = at(receiving, &|tuple| [tuple.remote.addr, tuple.local.addr]);
    // Where subflows part is what tells them from each other: a server's one link, or a way all have in common, does not.
    let links = if kinds(&at_receiver) > kinds(&at_sender) { at_receiver } else { at_sender };
    for (subflow, link) in subflows.iter_mut().zip(links) {
        subflow.link = link.map(|link| lines[link.index()].name.clone());
    }
    StreamResult {
        planned_bytes: what.planned_bytes,
        bytes: receiver.received_bytes,
        intact: receiver.mismatch.is_none(),
        last_arrived_at_s: last.map(Instant::as_secs_f64),
        completed_at_s: last.filter(|_| complete).map(Instant::as_secs_f64),
        goodput_bps: BitRate::from_bytes_over(receiver.received_bytes, span).as_bps() as f64,
        retransmitted_packets: subflows.iter().map(|subflow| subflow.retransmitted_packets).sum(),
        series: stream.into_series(),
        subflows,
        block_delays_ms: receiver
            .block_delays(network.report(sender))
            .map(polypath_units::Duration::as_millis_f64)
            .collect(),
    }
}
