//! Builds the network of a scenario, runs it, and collects what it gives.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use polypath_config::{FileError, FileErrorKind};
use polypath_units::Instant;

use super::plan::ConnectionPlan;
use super::recording::{Recorded, Recording};
use super::result::RunResult;
use super::{Progress, Scenario};
use crate::app::{SendPlan, TrafficPlan};
use crate::conversation::Conversation;
use crate::network::{BoxPosition, LinkId, LinkSpec, Network, NetworkBuilder, NodeId};
use crate::recorder::sample_times;
use crate::trace::TraceOutputs;

pub(super) fn run(scenario: &Scenario, progress: &mut dyn Progress) -> Result<RunResult, FileError> {
    let plan = &scenario.plan;
    let (mut network, mut recording) = build(scenario)?;
    for (index, connection) in (0..).zip(&plan.connections) {
        let ends = network.converse(conversation(index, connection));
        recording.add(Recorded {
            name: connection.name.clone(),
            ends,
            config: connection.config.clone(),
            start: connection.start,
            planned_bytes: Some(connection.bytes).filter(|bytes| *bytes != u64::MAX),
            upload: connection.upload,
            download: connection.download,
        });
    }
    let end = Instant::ZERO + plan.duration;
    for at in sample_times(plan.sample_interval, end) {
        recording.run_until(&mut network, at);
        let received_bytes = recording.sample(&mut network);
        progress.at(at, end, received_bytes);
        if recording.is_over(&network) {
            break;
        }
    }
    let result = recording.finish(&mut network, &plan.name, plan.seed);
    result.map_err(|error| unwritable(scenario, "output", None, &error))
}

/// The network, with its changes scheduled and its traces begun, and what records it.
pub(super) fn build(scenario: &Scenario) -> Result<(Network, Recording), FileError> {
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
    let recording = Recording::new(&builder);
    let mut network = builder.build();
    network.set_tracer(Some(tracer));
    Ok((network, recording))
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
