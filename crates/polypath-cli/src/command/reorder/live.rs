//! What comes out of a tunnel that runs.

use polypath_units::Duration;
use serde::Serialize;

use crate::command::Failure;
use crate::command::tunnel::recording::{PathLine, Taken, take};
use crate::reorder::{FlowFigures, Live, Outcome};

/// What was found.
#[derive(Debug, Serialize)]
pub(super) struct Found {
    pub(super) tunnel: String,
    pub(super) peer: String,
    pub(super) seconds: f64,
    /// Packets in no order, which are in no figures.
    pub(super) without_number: u64,
    /// For so many records there was no room.
    pub(super) missed: u64,
    /// Packets as they came over all paths.
    pub(super) came: Outcome,
    /// The same as they were handed on.
    pub(super) handed_on: Outcome,
    pub(super) paths: Vec<PathFound>,
    /// Why it ended before its time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) broken: Option<String>,
}

/// The datagrams of a path.
#[derive(Debug, Serialize)]
pub(super) struct PathFound {
    pub(super) number: usize,
    pub(super) interface: Option<String>,
    pub(super) remote: Option<String>,
    #[serde(flatten)]
    pub(super) figures: FlowFigures,
}

impl Found {
    fn new(tunnel: &str, taken: Taken, live: Live) -> Self {
        let Taken { peer, seconds, missed, without_number, paths: lines, broken } = taken;
        let outcome = live.finish();
        let path = |(id, figures): (polypath_tunnel::PathId, FlowFigures)| {
            let line = lines.iter().find(|line| usize::from(line.number) == id.index());
            let PathLine { interface, remote, .. } = line.cloned().unwrap_or_default();
            PathFound {
                number: id.index(),
                interface,
                remote: Some(remote).filter(|it| !it.is_empty()),
                figures,
            }
        };
        let paths = outcome.paths.into_iter().map(path).collect();
        let (tunnel, came, handed_on) = (tunnel.to_owned(), outcome.came, outcome.handed_on);
        let mut found =
            Self { tunnel, peer, seconds, without_number, missed, came, handed_on, paths, broken };
        if missed > 0 {
            let note =
                format!("For {missed} packets and datagrams there was no room in time: they count as lost.");
            found.came.notes.push(note);
        }
        found
    }

    /// Why there are no figures.
    fn nothing(&self) -> Failure {
        let Self { tunnel, peer, seconds, without_number, broken, .. } = self;
        if let Some(broken) = broken {
            return Failure::Run(broken.clone());
        }
        let message = match without_number {
            0 => format!("{tunnel}: no packet came from {peer} in {seconds:.0} s"),
            packets => format!(
                "{tunnel}: {packets} packets came from {peer} in {seconds:.0} s, all of them without a number: they are urgent, or a \
                 rule pins them to a path"
            ),
        };
        Failure::Run(message)
    }
}

pub(super) async fn find(
    tunnel: &str,
    peer: Option<&str>,
    duration: Duration,
    window: u32,
) -> Result<Found, Failure> {
    let mut live = Live::new(window);
    let taken = take(tunnel, peer, duration.into(), &mut live).await?;
    let found = Found::new(tunnel, taken, live);
    if found.came.total.figures.received == 0 { Err(found.nothing()) } else { Ok(found) }
}
