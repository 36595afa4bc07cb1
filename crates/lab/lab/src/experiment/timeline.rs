//! The connections and events of a shared topology.

use std::sync::Arc;

use polypath_config::{FileError, Policies, Source};
use polypath_sim::background::{HEADER_BYTES, OnOff};
use polypath_units::Duration;

use super::file::{File, FlowFile, UdpFile};
use super::{Topology, Traffic, defaults};
use crate::run::{Flow, PathEvent, Timeline};

/// Most connections of a timeline: their numbers are parts of addresses.
const MOST_FLOWS: usize = 200;

pub(super) fn topology(
    source: Source<'_>,
    file: &File,
    traffic: &Traffic,
    paths: usize,
    policies: &Policies,
) -> Result<Topology, FileError> {
    let Traffic::Bulk { duration } = *traffic else {
        return Err(
            source.wrong("traffic.kind", "flows say what they send; expected \"bulk\" with a duration")
        );
    };
    if !(1..=MOST_FLOWS).contains(&file.flows.len()) {
        let message = format!("{} flows; expected 1 to {MOST_FLOWS} [[flows]]", file.flows.len());
        return Err(source.wrong("flows", message));
    }
    let path = |key: String, number: usize| match number {
        number if (1..=paths).contains(&number) => Ok(number - 1),
        _ => Err(source.wrong(key, format!("no path {number}; expected a number from 1 to {paths}"))),
    };
    let within = |key: String, at: Duration| match at {
        at if at <= duration => Ok(at),
        at => Err(source.wrong(
            key,
            format!("{at:?} is after the end; expected at most traffic.duration, which is {duration:?}"),
        )),
    };
    let mut flows = Vec::new();
    for (index, flow) in file.flows.iter().enumerate() {
        let key = |part: &str| format!("flows[{index}].{part}");
        if flow.paths.is_empty() {
            return Err(source.wrong(key("paths"), "a connection needs a path; expected [1] or [1, 2]"));
        }
        let tcp = flow.tcp.as_deref().map(|name| source.policy(key("tcp"), name, policies)).transpose()?;
        let datagrams = flow.udp.map(|udp| datagrams(source, &key, flow, udp)).transpose()?;
        let paths = flow.paths.iter().map(|number| path(key("paths"), *number));
        flows.push(Flow {
            name: flow.name.clone(),
            paths: paths.collect::<Result<_, _>>()?,
            tcp,
            datagrams,
            rate: flow.rate.map(|rate| rate.0),
            start: within(key("start"), flow.start.map_or(Duration::ZERO, |span| span.0))?,
            stop: flow.stop.map(|span| within(key("stop"), span.0)).transpose()?,
        });
    }
    let mut events = Vec::new();
    for (index, event) in file.events.iter().enumerate() {
        let key = |part: &str| format!("events[{index}].{part}");
        if event.interface && event.down.is_none() {
            let message = "of a path that neither goes nor comes; expected down = true or false beside it";
            return Err(source.wrong(key("interface"), message));
        }
        events.push(PathEvent {
            at: within(key("at"), event.at.0)?,
            path: path(key("path"), event.path)?,
            down: event.down,
            interface: event.interface,
            rate: event.rate.map(|rate| rate.0),
            loss: event.loss.map(|loss| loss.0),
        });
    }
    Ok(Topology::Shared(Arc::new(Timeline { flows, events, duration })))
}

/// An Ethernet's; what is larger would not cross a path whole.
const MOST_PACKET_BYTES: u64 = 1500;

fn datagrams(
    source: Source<'_>,
    key: &dyn Fn(&str) -> String,
    flow: &FlowFile,
    udp: UdpFile,
) -> Result<OnOff, FileError> {
    let wrong = |part: &str, message: &str| Err(source.wrong(key(part), message));
    let (shape, packet_bytes) =
        (udp.shape.unwrap_or(defaults::SHAPE), udp.packet.map_or(defaults::PACKET_BYTES, |size| size.0));
    let Some(rate) = flow.rate else {
        return wrong("udp", "no rate; expected rate = \"2mbit\" beside it");
    };
    if flow.tcp.is_some() {
        return wrong("udp", "is TCP, too; expected one of them");
    }
    if flow.paths.len() != 1 {
        return wrong("paths", "datagrams go one way; expected one path");
    }
    if udp.on.0.is_zero() {
        return wrong("udp.on", "never sends; expected a time above zero");
    }
    if !(shape > 1.0 && shape.is_finite()) {
        return wrong("udp.shape", "has no mean; expected a number above 1");
    }
    if !(HEADER_BYTES + 1..=MOST_PACKET_BYTES).contains(&packet_bytes) {
        return wrong("udp.packet", "does not fit a packet; expected 29B to 1500B, headers included");
    }
    Ok(OnOff { rate: rate.0, packet_bytes, on: udp.on.0, off: udp.off.0, shape })
}
