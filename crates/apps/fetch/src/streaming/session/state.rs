//! What is known of a stream under way, and what becomes of paths that are of no use.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use polypath_units::Instant;
use tokio::sync::mpsc;
use tokio::time;
use url::Url;

use crate::download::Dial;
use crate::download::asking::RequestFields;
use crate::download::path::Told as PathTold;
use crate::manifest::{Presentation, Resource};
use crate::schedule::RequestId;
use crate::stream::{State, Stream, UnitNumber};
use crate::streaming::error::StreamError;
use crate::streaming::inits::Inits;
use crate::streaming::options::{Options, Summary, Told};
use crate::streaming::paths::Path;
use crate::streaming::small::{Fetcher, Small};
use crate::streaming::source::Source;
use crate::streaming::trust::{Facts, Trust};
use crate::streaming::units::{Place, Units};

/// A segment that the server refuses so often can't be had.
const MOST_REFUSALS: u32 = 5;
/// How long a path is left alone that was refused something.
pub(super) const PAUSE_AFTER_REFUSAL: Duration = Duration::from_millis(400);
/// A segment that begins anew so often is never the same.
const MOST_RESTARTS: u32 = 3;

/// What became of something that a player needs before segments.
pub(super) type InitTold = (Resource, Result<Small, StreamError>);

/// What came of a unit that is not complete.
#[derive(Debug, Default)]
pub(super) struct Coming {
    pub(super) bytes: BytesMut,
    pub(super) facts: Option<Facts>,
    /// The paths that brought something of it.
    pub(super) by: Vec<usize>,
}

/// A stream under way.
pub(in crate::streaming) struct Session<'o> {
    pub(super) options: &'o Options,
    pub(super) fields: RequestFields,
    pub(super) ways: Vec<Arc<dyn Dial>>,
    pub(super) source: Option<Source>,
    pub(super) presentation: Arc<Presentation>,
    /// Of the first segment: all paths connect to its server.
    pub(super) server: Url,
    pub(super) units: Units,
    pub(super) stream: Stream,
    pub(super) trust: Trust,
    pub(super) paths: Vec<Path>,
    pub(super) probes: u64,
    pub(super) coming: BTreeMap<UnitNumber, Coming>,
    /// How often a unit was refused, by path.
    pub(super) refused: HashMap<UnitNumber, HashMap<usize, u32>>,
    pub(super) restarts: HashMap<UnitNumber, u32>,
    /// What is complete, in order, and may wait for what a player needs before it.
    pub(super) complete: VecDeque<(Place, usize, Bytes)>,
    pub(super) inits: Inits,
    pub(super) init_told: mpsc::UnboundedSender<InitTold>,
    pub(super) began: time::Instant,
    pub(super) last_progress: time::Instant,
    /// When the manifest last had something new.
    pub(super) last_new: time::Instant,
    /// A path could be asked, and nobody waits for anything.
    pub(super) is_idle: bool,
    pub(super) state: State,
    pub(super) summary: Summary,
}

impl Session<'_> {
    pub(super) fn now(&self) -> Instant {
        Instant::ZERO + self.began.elapsed().into()
    }

    pub(super) fn add_path(&mut self, way: Arc<dyn Dial>, events: mpsc::Sender<PathTold>) {
        let now = self.now();
        let id = self.stream.add_path(now);
        self.stream.handle_closed(now, id);
        self.trust.add_path();
        let number = self.paths.len();
        self.paths.push(Path::new((id, number), way, &self.server, &self.fields, events));
    }

    pub(super) fn fetcher(&self) -> Fetcher {
        Fetcher::new(self.fields.clone(), self.ways.clone(), self.options.silence)
    }

    /// A path is given another connection.
    pub(super) fn renew(&mut self, at: usize, pause: Duration) {
        let now = self.now();
        let was_idle = self.paths[at].is_used && !self.paths[at].owes();
        self.stream.handle_closed(now, self.paths[at].id);
        self.paths[at].renew(pause);
        self.note_lost(was_idle);
    }

    /// A path has no connection now. If it was used and owed nothing, that nothing came before is no silence.
    pub(super) fn note_lost(&mut self, was_idle: bool) {
        if was_idle && self.coming.is_empty() {
            self.last_progress = time::Instant::now();
        }
    }

    /// The server refuses something. It may give it the next time, or over another path; or the segment is left out of a live stream.
    pub(super) fn refuse(
        &mut self,
        at: usize,
        unit: UnitNumber,
        (url, cause): (Url, String),
        told: &mut impl FnMut(Told),
    ) -> Result<(), StreamError> {
        self.paths[at].cause = Some(format!("{}: {cause}", self.paths[at].name));
        self.trust.suspect(at);
        self.renew(at, PAUSE_AFTER_REFUSAL);
        let refusals = self.refused.entry(unit).or_default();
        *refusals.entry(at).or_default() += 1;
        if refusals.values().sum::<u32>() < MOST_REFUSALS {
            return Ok(());
        }
        let error = StreamError::Fetch { url: Box::new(url), cause };
        if !self.presentation.is_live() {
            return Err(error);
        }
        told(Told::LeftOut { cause: error.to_string() });
        let now = self.now();
        self.stream.leave_out(now, unit);
        Ok(())
    }

    /// A path brings something else than the server has: what it brought of segments that are not complete counts no more, and it is left
    /// alone for a while. The error is everybody's if no other path is left.
    pub(super) fn give_up(
        &mut self,
        at: usize,
        error: StreamError,
        told: &mut impl FnMut(Told),
    ) -> Result<(), StreamError> {
        let pause = self.trust.put_out(at);
        if self.trust.are_all_out() {
            return Err(error);
        }
        let path = &mut self.paths[at];
        let cause = format!("{}: {error}", path.name);
        path.cause = Some(cause.clone());
        // Whoever never heard of it hears why it brings nothing.
        if !std::mem::replace(&mut path.was_told, true) {
            told(Told::Notice(cause.clone()));
        }
        told(Told::Lost { path: at, cause });
        self.renew(at, pause.into());
        // What it refused says nothing of the server.
        self.refused.values_mut().for_each(|by| by.retain(|path, _| *path != at));
        let first = self.coming.iter().find(|(_, coming)| coming.by.contains(&at)).map(|(unit, _)| *unit);
        first.into_iter().for_each(|unit| self.restart_from(unit));
        Ok(())
    }

    /// A path says something else of a unit than another one did, or than it said itself.
    pub(super) fn resolve(
        &mut self,
        at: usize,
        unit: UnitNumber,
        error: StreamError,
        told: &mut impl FnMut(Told),
    ) -> Result<(), StreamError> {
        let restarts = self.restarts.entry(unit).or_default();
        *restarts += 1;
        if *restarts > MOST_RESTARTS {
            return Err(error);
        }
        let known = self.coming.get(&unit).and_then(|coming| coming.facts.clone());
        match known {
            Some(known) if known.by != at => match self.trust.loser(at, &known) {
                Some(loser) => self.give_up(loser, error, told)?,
                None => [at, known.by].into_iter().for_each(|path| self.trust.suspect(path)),
            },
            // It is another file now, or its server has two.
            _ => self.trust.suspect(at),
        }
        self.restart_from(unit);
        Ok(())
    }

    /// A path says something odd of a unit, of which nobody else said anything: it has to show again what it is worth. False if it did.
    pub(super) fn doubts(&mut self, at: usize, unit: UnitNumber) -> bool {
        let is_first = !self.restarts.contains_key(&unit) && self.paths.len() > 1;
        if is_first {
            self.restarts.insert(unit, 0);
            self.trust.suspect(at);
            self.renew(at, Duration::ZERO);
        }
        is_first
    }

    /// From a unit on, nothing is there that could be relied on.
    pub(super) fn restart_from(&mut self, unit: UnitNumber) {
        let now = self.now();
        self.stream.restart_from(now, unit);
        self.coming.retain(|of, _| *of < unit);
        for path in &mut self.paths {
            if path.is_used {
                path.renew(Duration::ZERO);
            }
        }
    }

    /// A number by which a path's answer is known that no part of the stream is asked by.
    pub(super) fn next_probe(&mut self) -> RequestId {
        self.probes += 1;
        RequestId::new(u64::MAX - self.probes)
    }
}
