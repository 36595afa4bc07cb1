//! The paths of a stream under way.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use url::Url;

use super::line::{Line, LineId};
use super::trust::Facts;
use crate::answer::AskedRange;
use crate::download::Dial;
use crate::download::asking::RequestFields;
use crate::download::path::Told;
use crate::manifest::ByteRange;
use crate::schedule::{PathId, RequestId};
use crate::stream::UnitNumber;

/// Servers beside the first one to which a path has connections that wait.
const MOST_OTHER_SERVERS: usize = 4;
/// So many of the latest redirections are remembered.
const MOST_REDIRECTIONS: usize = 16;

/// What an answer is for.
#[derive(Clone, Debug)]
pub(super) enum Purpose {
    /// A part of a unit.
    Unit(UnitNumber),
    /// To see whether the path says what is known.
    Probe(Box<Facts>),
}

/// What a path was asked for.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) purpose: Purpose,
    /// As the manifest has it.
    pub(super) url: Url,
    /// Where it is asked for, behind redirections.
    at: Url,
    pub(super) redirections: usize,
    /// In the file that the segment is, or is a part of.
    pub(super) range: AskedRange,
    /// The place of the segment in that file, if it is a part of one.
    part: Option<ByteRange>,
    /// The place in the segment of the next byte that comes; none if what comes is of no use.
    pub(super) next: Option<u64>,
    /// Where the answer ends in the segment, once it says.
    pub(super) end: Option<u64>,
    /// On which line it was asked for; none while that has no connection.
    line: Option<usize>,
    /// The answer sends elsewhere: it is asked there when it is over.
    elsewhere: Option<Url>,
}

impl Asked {
    pub(super) fn new(purpose: Purpose, url: Url, range: AskedRange, part: Option<ByteRange>) -> Self {
        let offset = part.map_or(0, ByteRange::first);
        let next = matches!(purpose, Purpose::Unit(_)).then(|| range.first - offset);
        let at = url.clone();
        let (redirections, end, line, elsewhere) = (0, None, None, None);
        Self { purpose, url, at, redirections, range, part, next, end, line, elsewhere }
    }

    /// Of a part of a file, the manifest says how long it is.
    pub(super) const fn is_part(&self) -> bool {
        self.part.is_some()
    }

    /// Where the segment begins in its file.
    pub(super) fn offset(&self) -> u64 {
        self.part.map_or(0, ByteRange::first)
    }

    /// Where it is asked for, behind redirections.
    pub(super) const fn at(&self) -> &Url {
        &self.at
    }
}

/// A path: connections over one way.
pub(super) struct Path {
    pub(super) id: PathId,
    number: usize,
    pub(super) name: String,
    way: Arc<dyn Dial>,
    fields: RequestFields,
    events: mpsc::Sender<Told>,
    /// To the server of the manifest's segments.
    home: Line,
    /// To where that server sends.
    others: Vec<Line>,
    next_line: usize,
    pub(super) asked: HashMap<RequestId, Asked>,
    redirections: VecDeque<(Url, Url)>,
    pub(super) round_trip: Option<Duration>,
    /// It brings parts of the stream now.
    pub(super) is_used: bool,
    pub(super) probed_at: Option<Instant>,
    /// It was told that it is used, or why it is not.
    pub(super) was_told: bool,
    pub(super) bytes: u64,
    /// Why it last had none.
    pub(super) cause: Option<String>,
}

impl Path {
    /// One that connects to the server of a URL.
    pub(super) fn new(
        (id, number): (PathId, usize),
        way: Arc<dyn Dial>,
        url: &Url,
        fields: &RequestFields,
        events: mpsc::Sender<Told>,
    ) -> Self {
        let name = way.name().to_string();
        let line = LineId { path: number, line: 0 };
        let home = Line::new(line, way.clone(), fields.asking(url), events.clone());
        Self {
            id,
            number,
            name,
            way,
            fields: fields.clone(),
            events,
            home,
            others: Vec::new(),
            next_line: 1,
            asked: HashMap::new(),
            redirections: VecDeque::new(),
            round_trip: None,
            is_used: false,
            probed_at: None,
            was_told: false,
            bytes: 0,
            cause: None,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.home.connection.is_some()
    }

    /// It was asked for a part of the stream.
    pub(super) fn owes(&self) -> bool {
        self.asked.values().any(|asked| matches!(asked.purpose, Purpose::Unit(_)))
    }

    pub(super) fn is_probed(&self) -> bool {
        self.asked.values().any(|asked| matches!(asked.purpose, Purpose::Probe(_)))
    }

    /// A line, if it is still there.
    pub(super) fn line_mut(&mut self, number: usize) -> Option<&mut Line> {
        let lines = std::iter::once(&mut self.home).chain(&mut self.others);
        lines.into_iter().find(|line| line.number == number)
    }

    /// What an answer on a line is for; none if it is of no use any more.
    pub(super) fn asked_on(&mut self, line: usize, id: RequestId) -> Option<&mut Asked> {
        self.asked.get_mut(&id).filter(|asked| asked.line == Some(line) && asked.elsewhere.is_none())
    }

    /// Whether something waits for answers on a line, or for its connection.
    pub(super) fn waits_for(&self, number: usize) -> bool {
        let of_line = |asked: &Asked| asked.line == Some(number) || asked.line.is_none();
        self.asked.values().any(of_line)
    }

    pub(super) fn ask(&mut self, id: RequestId, mut asked: Asked) {
        if let Some((_, to)) = self.redirections.iter().find(|(from, _)| *from == asked.url) {
            asked.at = to.clone();
        }
        self.asked.insert(id, asked);
        self.send(id);
    }

    /// An answer sends elsewhere.
    pub(super) fn redirect(&mut self, id: RequestId, to: Url) {
        let Some(asked) = self.asked.get_mut(&id) else { return };
        asked.redirections += 1;
        self.redirections.retain(|(from, _)| *from != asked.url);
        self.redirections.push_back((asked.url.clone(), to.clone()));
        if self.redirections.len() > MOST_REDIRECTIONS {
            self.redirections.pop_front();
        }
        asked.elsewhere = Some(to);
    }

    /// It is somewhere else now than where it was sent to.
    pub(super) fn forget_redirection(&mut self, url: &Url) {
        self.redirections.retain(|(from, _)| from != url);
    }

    /// Nothing more comes of an answer. True if it was the last one to the request.
    pub(super) fn end(&mut self, line: usize, id: RequestId) -> bool {
        let Some(asked) = self.asked.get_mut(&id).filter(|asked| asked.line == Some(line)) else {
            return false;
        };
        match asked.elsewhere.take() {
            Some(to) => {
                (asked.at, asked.line) = (to, None);
                self.send(id);
                false
            }
            None => self.asked.remove(&id).is_some(),
        }
    }

    /// A line has a connection: what waits for it is asked now.
    pub(super) fn handle_opened(&mut self) {
        let waits = self.asked.iter().filter(|(_, asked)| asked.line.is_none() && asked.elsewhere.is_none());
        let mut waiting: Vec<RequestId> = waits.map(|(id, _)| *id).collect();
        waiting.sort_unstable();
        waiting.into_iter().for_each(|id| self.send(id));
    }

    fn send(&mut self, id: RequestId) {
        let Some(at) = self.asked.get(&id).map(|asked| asked.at.clone()) else { return };
        let is_there = |line: &Line| line.server.origin() == at.origin();
        if !is_there(&self.home) && !self.others.iter().any(is_there) {
            // One that is in use stays, so there are never more than there are requests.
            if self.others.len() >= MOST_OTHER_SERVERS
                && let Some(idle) = self.others.iter().position(|line| !self.waits_for(line.number))
            {
                self.others.remove(idle);
            }
            let id = LineId { path: self.number, line: self.next_line };
            self.next_line += 1;
            let asking = self.fields.asking(&at);
            self.others.push(Line::new(id, self.way.clone(), asking, self.events.clone()));
        }
        let line = std::iter::once(&self.home).chain(&self.others).find(|line| is_there(line));
        let (Some(line), Some(asked)) = (line, self.asked.get_mut(&id)) else { return };
        if line.connection.is_some() {
            asked.line = Some(line.number);
            line.ask(id, &at, asked.range.to_field());
        }
    }

    /// Its connections are given up for other ones.
    pub(super) fn renew(&mut self, pause: Duration) {
        self.asked.clear();
        self.is_used = false;
        self.others.clear();
        self.home.renew(pause);
    }

    /// Its connection is gone.
    pub(super) fn handle_lost(&mut self) {
        self.asked.clear();
        self.is_used = false;
        self.others.clear();
        self.home.connection = None;
    }
}
