//! The links of a scenario: its words turned into link settings.

use std::net::IpAddr;

use polypath_config::{FileError, Policies, Source};
use polypath_link::middlebox::{self, Chain};
use polypath_link::{Change, Jitter, LinkConfig, QueueLimit, Reordering};
use polypath_units::{Duration, Instant};

use super::check::Check;
use super::defaults;
use super::file::{ChangeFile, DirectionFile, LinkFile};
use crate::network::{End, NodeId};
use polypath_config::quantity::{Limit, Loss};

/// A link that makes sense.
#[derive(Clone, Debug)]
pub(super) struct LinkPlan {
    pub(super) name: String,
    pub(super) nodes: [usize; 2],
    pub(super) addrs: [Option<IpAddr>; 2],
    pub(super) forward: LinkConfig,
    pub(super) backward: LinkConfig,
    pub(super) boxes: Vec<middlebox::Policy>,
}

impl LinkPlan {
    pub(super) fn ends(&self) -> [End; 2] {
        [0, 1].map(|end| End { node: NodeId(self.nodes[end] as u32), addr: self.addrs[end] })
    }

    /// The link's middleboxes, if it has any.
    pub(super) fn chain(&self, seed: u64) -> Option<Chain> {
        let boxes = (1..).zip(&self.boxes).map(|(number, kind)| kind.build_for(&(seed ^ number << 32)));
        (!self.boxes.is_empty()).then(|| boxes.collect())
    }
}

impl Check<'_> {
    pub(super) fn links(&self) -> Result<Vec<LinkPlan>, FileError> {
        if self.file.links.is_empty() {
            return Err(self.wrong("links", "is empty; expected a link at least"));
        }
        let mut plans: Vec<LinkPlan> = Vec::new();
        for (index, file) in self.file.links.iter().enumerate() {
            let plan = self.link(index, file)?;
            if let Some(other) = plans.iter().position(|other| other.name == plan.name) {
                let message =
                    format!("\"{}\" is taken by links[{other}]; expected a name of its own", plan.name);
                return Err(self.wrong(format!("links[{index}].name"), message));
            }
            plans.push(plan);
        }
        Ok(plans)
    }

    fn link(&self, index: usize, file: &LinkFile) -> Result<LinkPlan, FileError> {
        let key = |field: &str| format!("links[{index}].{field}");
        let mut nodes = [0; 2];
        for (end, name) in file.between.iter().enumerate() {
            nodes[end] = self.node(&key(&format!("between[{end}]")), name)?;
        }
        if nodes[0] == nodes[1] {
            return Err(self.wrong(key("between"), "has the same node twice; expected two nodes"));
        }
        let addrs = match file.addresses {
            Some(addresses) => addresses.map(Some),
            None => [0, 1].map(|end| self.default_address(nodes[end], index, end)),
        };
        if let [Some(first), Some(second)] = addrs
            && first.is_ipv4() != second.is_ipv4()
        {
            return Err(
                self.wrong(key("addresses"), "are of two families; expected two IPv4 or two IPv6 addresses")
            );
        }
        let Directions { forward, backward, boxes } = directions(
            self.source,
            self.policies,
            &format!("links[{index}]"),
            file,
            Some(self.file.duration.0),
        )?;
        let default_name = || format!("{}-{}", file.between[0], file.between[1]);
        Ok(LinkPlan {
            name: file.name.clone().unwrap_or_else(default_name),
            nodes,
            addrs,
            forward,
            backward,
            boxes,
        })
    }
}

/// What a link does to packets, whatever it is between.
pub(super) struct Directions {
    pub(super) forward: LinkConfig,
    pub(super) backward: LinkConfig,
    pub(super) boxes: Vec<middlebox::Policy>,
}

/// Checks the link at `place`, such as `links[1]`. Changes come before `end`, if there is one.
pub(super) fn directions(
    source: Source<'_>,
    policies: &Policies,
    place: &str,
    file: &LinkFile,
    end: Option<Duration>,
) -> Result<Directions, FileError> {
    let key = |field: &str| format!("{place}.{field}");
    let mut schedule = Vec::new();
    for (number, change) in file.change.iter().enumerate() {
        if end.is_some_and(|end| change.at.0 >= end) {
            let message = "is not before the end of the run; expected less than `duration`";
            return Err(source.wrong(key(&format!("change[{number}].at")), message));
        }
        let changes = changes(source, policies, &key(&format!("change[{number}]")), change)?;
        if changes.is_empty() {
            let message = "changes nothing; expected `rate`, `delay`, `loss`, `limit`, `down`, …";
            return Err(source.wrong(key(&format!("change[{number}]")), message));
        }
        let at = Instant::ZERO + change.at.0;
        schedule.extend(changes.into_iter().map(|change| (at, change)));
    }
    let boxes = source.policies(&key("middleboxes"), &file.middleboxes, policies)?;
    for (field, direction) in [("limit", file.forward()), ("reverse.limit", file.backward())] {
        if matches!(direction.limit, Some(Limit::Time(_))) && direction.rate.is_none() {
            let message = "is a time, but the link has no rate; expected bytes or packets, or a `rate`";
            return Err(source.wrong(key(field), message));
        }
    }
    let config = |place: &str, direction: &DirectionFile| -> Result<LinkConfig, FileError> {
        Ok(LinkConfig { schedule: schedule.clone(), ..link_config(source, policies, place, direction)? })
    };
    let backward_place = if file.reverse.is_some() { key("reverse") } else { place.to_string() };
    Ok(Directions {
        forward: config(place, &file.forward())?,
        backward: config(&backward_place, &file.backward())?,
        boxes,
    })
}

fn jitter(span: Duration) -> Jitter {
    Jitter::uniform(span)
}

fn loss(loss: Loss) -> polypath_link::Loss {
    match loss {
        Loss::Random(probability) => polypath_link::Loss::Random(probability),
        Loss::GilbertElliott { p, r, bad_loss, good_loss } => {
            polypath_link::Loss::GilbertElliott { p, r, bad_loss, good_loss }
        }
    }
}

fn queue(limit: Limit) -> QueueLimit {
    match limit {
        Limit::Bytes(bytes) => QueueLimit::Bytes(bytes),
        Limit::Packets(packets) => QueueLimit::Packets(packets),
        Limit::Time(span) => QueueLimit::Delay(span),
    }
}

/// What every link carries (RFC 791).
const MIN_MTU_BYTES: u16 = 68;

fn link_config(
    source: Source<'_>,
    policies: &Policies,
    place: &str,
    direction: &DirectionFile,
) -> Result<LinkConfig, FileError> {
    if let Some(mtu_bytes) = direction.mtu.filter(|bytes| *bytes < MIN_MTU_BYTES) {
        let message = format!("is {mtu_bytes}; expected {MIN_MTU_BYTES} bytes or more");
        return Err(source.wrong(format!("{place}.mtu"), message));
    }
    let mut config = LinkConfig {
        rate: direction.rate.map(|rate| rate.0),
        delay: direction.delay.map_or(Duration::ZERO, |delay| delay.0),
        duplicate: direction.duplicate.map_or(0.0, |share| share.0),
        mtu_bytes: direction.mtu.map(u32::from),
        ..LinkConfig::default()
    };
    if let Some(span) = direction.jitter {
        config.jitter = jitter(span.0);
    }
    if let Some(words) = direction.loss {
        config.loss = loss(words);
    }
    if let Some(share) = direction.reorder {
        config.reorder = Reordering { probability: share.0, extra_delay: defaults::REORDER_DELAY };
    }
    config.queue = direction.limit.map_or(defaults::LIMIT, queue);
    if let Some(name) = &direction.discipline {
        config.discipline = source.policy(format!("{place}.discipline"), name, policies)?;
    }
    if let Some(names) = &direction.impairments {
        config.impairments = source.policies(&format!("{place}.impairments"), names, policies)?;
    }
    Ok(config)
}

/// Settings first, so that a link that comes back comes back with them.
fn changes(
    source: Source<'_>,
    policies: &Policies,
    place: &str,
    file: &ChangeFile,
) -> Result<Vec<Change>, FileError> {
    let end = source.policies(&format!("{place}.end"), &file.end, policies)?;
    let begin = source.policies(&format!("{place}.begin"), &file.begin, policies)?;
    let named = end.into_iter().map(Change::End).chain(begin.into_iter().map(Change::Begin));
    let down = file.down.map(|down| if down { Change::Down } else { Change::Up });
    let changes = [
        file.rate.map(|rate| Change::Rate(Some(rate.0))),
        file.delay.map(|delay| Change::Delay(delay.0)),
        file.jitter.map(|span| Change::Jitter(jitter(span.0))),
        file.loss.map(|words| Change::Loss(loss(words))),
        file.limit.map(|limit| Change::Queue(queue(limit))),
    ];
    Ok(changes.into_iter().flatten().chain(named).chain(down).collect())
}
