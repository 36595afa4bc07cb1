//! Builds the network of a scenario, runs it, and collects what it gives.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use polypath_config::{FileError, FileErrorKind};
use polypath_units::{BitRate, Instant};

use super::plan::{ConnectionPlan, Plan};
use super::result::{ChannelResult, ConnectionResult, LinkResult, RunResult, StreamResult};
use super::{Progress, Scenario};
use crate::app::{SendPlan, TrafficPlan, TrafficReport};
use crate::conversation::{Conversation, Ends, TrafficEnd};
use crate::network::{BoxPosition, ChannelId, LinkId, LinkSpec, Network, NetworkBuilder, NodeId};
use crate::recorder::{StreamRecorder, SubflowRecorder, sample_times};
use crate::trace::TraceOutputs;

/// A connection of a running scenario.
struct Running {
    ends: Ends,
    upload: StreamSamples,
    download: StreamSamples,
}

/// One direction of it over time.
#[derive(Default)]
struct StreamSamples {
    stream: StreamRecorder,
    subflows: SubflowRecorder,
}

impl StreamSamples {
    fn sample(&mut self, network: &mut Network, sender: TrafficEnd, receiver: TrafficEnd) {
        let now = network.now();
        self.stream.sample(now, network.report(receiver).received_bytes);
        if let Some(info) = network.connection_info(sender) {
            self.subflows.sample(now, &info);
            network.note_subflows(&info);
        }
    }
}

pub(super) fn run(scenario: &Scenario, progress: &mut dyn Progress) -> Result<RunResult, FileError> {
    let plan = &scenario.plan;
    let mut network = build(scenario)?;
    let mut running: Vec<Running> = (0..)
        .zip(&plan.connections)
        .map(|(index, connection)| Running {
            ends: network.converse(conversation(index, connection)),
            upload: StreamSamples::default(),
            download: StreamSamples::default(),
        })
        .collect();
    let end = Instant::ZERO + plan.duration;
    for at in sample_times(plan.sample_interval, end) {
        network.run_until(at);
        let mut received_bytes = 0;
        for Running { ends, upload, download } in &mut running {
            upload.sample(&mut network, ends.opener, ends.acceptor);
            download.sample(&mut network, ends.acceptor, ends.opener);
            for end in [ends.opener, ends.acceptor] {
                received_bytes += network.report(end).received_bytes;
            }
        }
        progress.at(at, end, received_bytes);
        let is_over = |end| network.traffic(end).is_over();
        if running.iter().all(|running| is_over(running.ends.opener) && is_over(running.ends.acceptor)) {
            break;
        }
    }
    finish(scenario, network, running)
}

/// The network, with its changes scheduled and its traces begun.
pub(super) fn build(scenario: &Scenario) -> Result<Network, FileError> {
    let plan = &scenario.plan;
    let mut builder = NetworkBuilder::new(plan.seed);
    for node in &plan.nodes {
        match &node.host {
            Some(config) => builder.host(&node.name, config.clone()),
            None => builder.router(&node.name),
        };
    }
    for link in &plan.links {
        let nodes = link.nodes.map(|node| NodeId(node as u32));
        let mut spec =
            LinkSpec::new(&link.name, nodes, link.addrs).with(link.forward.clone(), link.backward.clone());
        if let Some(chain) = link.chain(plan.seed) {
            spec = spec.with_boxes(BoxPosition::First, chain);
        }
        builder.link(spec);
    }
    for route in &plan.routes {
        builder.route(NodeId(route.node as u32), route.prefix, LinkId(route.link as u32));
    }
    let outputs = TraceOutputs {
        hash: true,
        pcapng: create(scenario, "output.pcap", plan.outputs.pcap.as_deref())?,
        qlog: create(scenario, "output.qlog", plan.outputs.qlog.as_deref())?,
        text: create(scenario, "output.trace", plan.outputs.trace.as_deref())?,
        snap_bytes: 0,
        comment: format!("{}, seed {}", plan.name, plan.seed),
    };
    let tracer =
        builder.tracer(outputs).map_err(|error| unwritable(scenario, "output.pcap", None, &error))?;
    let mut network = builder.build();
    network.set_tracer(Some(tracer));
    Ok(network)
}

fn create(scenario: &Scenario, key: &str, path: Option<&Path>) -> Result<Option<Box<dyn Write>>, FileError> {
    let Some(path) = path else { return Ok(None) };
    let file = fs::File::create(path).map_err(|error| unwritable(scenario, key, Some(path), &error))?;
    Ok(Some(Box::new(BufWriter::with_capacity(1 << 20, file))))
}

fn unwritable(scenario: &Scenario, key: &str, path: Option<&Path>, error: &io::Error) -> FileError {
    let path = path.map_or_else(String::new, |path| format!("{}: ", path.display()));
    FileError {
        file: scenario.path.display().to_string(),
        line: None,
        key: key.to_string(),
        kind: FileErrorKind::Output,
        message: format!("{path}can't be written ({error}); expected a place for a file"),
    }
}

fn conversation(index: u64, plan: &ConnectionPlan) -> Conversation {
    let send = |sends: bool| match plan.blocks {
        _ if !sends => SendPlan::Bytes(0),
        Some((block_bytes, rate)) => {
            SendPlan::Blocks { block_bytes, rate: Some(rate), total_bytes: plan.bytes }
        }
        None => SendPlan::Bytes(plan.bytes),
    };
    let (opener, acceptor) = Conversation::plans(index, None, None);
    Conversation {
        from: NodeId(plan.from as u32),
        local: plan.local,
        to: NodeId(plan.to as u32),
        remote: plan.remote,
        start: plan.start,
        config: Some(plan.config.clone()),
        opener: TrafficPlan { send: send(plan.upload), stop_at: plan.stop, ..opener },
        acceptor: TrafficPlan { send: send(plan.download), stop_at: plan.stop, ..acceptor },
    }
}

fn finish(scenario: &Scenario, mut network: Network, running: Vec<Running>) -> Result<RunResult, FileError> {
    let plan = &scenario.plan;
    let now = network.now();
    let trace_hash = format!("{:016x}", network.trace_hash().unwrap_or_default());
    if let Some(tracer) = network.take_tracer() {
        tracer.finish().map_err(|error| unwritable(scenario, "output", None, &error))?;
    }
    let links = (0..).zip(&plan.links).map(|(index, link)| {
        let id = LinkId(index);
        LinkResult {
            name: link.name.clone(),
            forward: channel_result(&network, id.forward(), link.forward.rate, now),
            backward: channel_result(&network, id.backward(), link.backward.rate, now),
        }
    });
    let links = links.collect();
    let connections = plan.connections.iter().zip(running);
    let connections =
        connections.map(|(connection, running)| connection_result(plan, connection, &network, running));
    Ok(RunResult {
        name: plan.name.clone(),
        seed: plan.seed,
        simulated_s: now.as_secs_f64(),
        trace_hash,
        connections: connections.collect(),
        links,
    })
}

fn channel_result(network: &Network, id: ChannelId, rate: Option<BitRate>, now: Instant) -> ChannelResult {
    let totals = network.channel_stats(id);
    let possible = rate.map(|rate| rate.bytes_in(now.since(Instant::ZERO)));
    let utilisation =
        possible.filter(|bytes| *bytes > 0).map(|bytes| totals.delivered_bytes as f64 / bytes as f64);
    ChannelResult { rate_bps: rate.map(BitRate::as_bps), totals, utilisation }
}

fn connection_result(
    plan: &Plan,
    connection: &ConnectionPlan,
    network: &Network,
    running: Running,
) -> ConnectionResult {
    let Running { ends, upload, download } = running;
    let [opener, acceptor] = [ends.opener, ends.acceptor].map(|end| network.report(end));
    let upload =
        connection.upload.then(|| stream_result(plan, connection, network, upload, ends.opener, acceptor));
    let download = connection
        .download
        .then(|| stream_result(plan, connection, network, download, ends.acceptor, opener));
    let name = |node: usize| plan.nodes[node].name.clone();
    ConnectionResult {
        name: connection.name.clone(),
        from: name(connection.from),
        to: name(connection.to),
        mptcp: connection.config.mptcp,
        congestion: connection.config.congestion.name().to_string(),
        scheduler: connection.config.scheduler.name().to_string(),
        opened_at_s: opener.opened_at.map(Instant::as_secs_f64),
        closed_at_s: opener.closed.map(|(at, ..)| at.as_secs_f64()),
        closed: opener.closed.map(|(_, _, reason)| reason.to_string()),
        fell_back: opener.fell_back.or(acceptor.fell_back).map(str::to_string),
        upload,
        download,
    }
}

fn stream_result(
    plan: &Plan,
    connection: &ConnectionPlan,
    network: &Network,
    samples: StreamSamples,
    sender: TrafficEnd,
    receiver: &TrafficReport,
) -> StreamResult {
    let StreamSamples { stream, subflows } = samples;
    let planned_bytes = Some(connection.bytes).filter(|bytes| *bytes != u64::MAX);
    let last = receiver.last_received_at;
    let complete = planned_bytes.is_some_and(|bytes| receiver.received_bytes >= bytes);
    let span = last.unwrap_or(connection.start).since(connection.start);
    let subflows: Vec<_> = subflows
        .into_results()
        .map(|(tuple, mut result)| {
            let hop = network.next_hop(sender.node, tuple.local.addr, tuple.remote.addr);
            result.link = hop.map(|channel| plan.links[channel.link().index()].name.clone());
            result
        })
        .collect();
    StreamResult {
        planned_bytes,
        bytes: receiver.received_bytes,
        intact: receiver.mismatch.is_none(),
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
