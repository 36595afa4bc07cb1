//! What a tunnel that runs records of a peer: its packets as they came over all paths, the same as they were handed on, and each path alone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use polypath_tunnel::reordering::Arrival;
use polypath_tunnel::{PathId, Record, RecordedFlow, RecordedStream};

use super::counter::Counter;
use super::figures::Figures;
use super::flow::FlowId;
use super::metrics::Metrics;
use super::outcome::{EndedFlows, FlowFigures, Outcome};

/// Numbers of a flow begin again after so many bits.
const FLOW_BITS: u32 = 24;
const PATH_BITS: u32 = 32;
/// While keys are replaced, datagrams of both come.
const MOST_KEYS: usize = 2;

/// The figures of what is recorded, while it is.
#[derive(Debug)]
pub(crate) struct Live {
    window: u32,
    came: BTreeMap<RecordedFlow, Stream>,
    handed_on: BTreeMap<RecordedFlow, Stream>,
    paths: BTreeMap<PathId, PathStreams>,
    names: BTreeMap<RecordedFlow, FlowId>,
    shared: BTreeSet<RecordedFlow>,
    is_closed: bool,
}

/// What was found.
#[derive(Debug)]
pub(crate) struct LiveOutcome {
    /// As packets came over the paths.
    pub(crate) came: Outcome,
    /// As they were handed on.
    pub(crate) handed_on: Outcome,
    /// Datagrams of each path.
    pub(crate) paths: BTreeMap<PathId, FlowFigures>,
}

#[derive(Debug)]
struct Stream {
    counter: Counter,
    metrics: Metrics,
    highest: u64,
    is_closed: bool,
}

impl Stream {
    fn new(bits: u32, window: u32) -> Self {
        Self { counter: Counter::new(bits), metrics: Metrics::new(window), highest: 0, is_closed: false }
    }

    fn handle(&mut self, record: &Record) {
        // A number that has nothing to do with the others is of a peer that begins anew: the next one goes with it.
        let sequence = self.counter.unwrap(record.number.into());
        if let Some(sequence) = sequence.filter(|sequence| !self.is_closed || *sequence < self.highest) {
            self.highest = self.highest.max(sequence);
            let (at, payload_bytes) = (record.at, record.len_bytes);
            self.metrics.handle_arrival(Arrival { sequence, at, payload_bytes });
        }
    }

    fn finish(self) -> Figures {
        self.metrics.finish()
    }
}

/// A path by its keys: the last of them, and the figures of those before.
#[derive(Debug)]
struct PathStreams {
    recent: VecDeque<(u32, Stream)>,
    ended: FlowFigures,
}

impl PathStreams {
    fn new() -> Self {
        Self { recent: VecDeque::new(), ended: FlowFigures::none(false) }
    }

    fn of(&mut self, keys: u32, window: u32) -> Option<&mut Stream> {
        if !self.recent.iter().any(|(known, _)| *known == keys) {
            if self.recent.len() == MOST_KEYS {
                self.end_first();
            }
            self.recent.push_back((keys, Stream::new(PATH_BITS, window)));
        }
        self.recent.iter_mut().find(|(known, _)| *known == keys).map(|(_, stream)| stream)
    }

    fn end_first(&mut self) {
        if let Some((_, stream)) = self.recent.pop_front() {
            self.ended.absorb(&figures_of(None, stream.finish()));
        }
    }

    fn finish(mut self) -> FlowFigures {
        while !self.recent.is_empty() {
            self.end_first();
        }
        self.ended
    }
}

impl Live {
    /// A packet that is later than by `window` others counts as lost.
    pub(crate) fn new(window: u32) -> Self {
        let (came, handed_on, paths) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (names, shared) = (BTreeMap::new(), BTreeSet::new());
        Self { window, came, handed_on, paths, names, shared, is_closed: false }
    }

    /// A packet or datagram.
    pub(crate) fn handle(&mut self, record: &Record) {
        let (window, is_closed) = (self.window, self.is_closed);
        let begin = || Stream { is_closed, ..Stream::new(FLOW_BITS, window) };
        match record.stream {
            RecordedStream::Came(flow) => self.came.entry(flow).or_insert_with(begin).handle(record),
            RecordedStream::HandedOn(flow) => self.handed_on.entry(flow).or_insert_with(begin).handle(record),
            RecordedStream::Path { path, keys } => {
                let streams = self.paths.entry(path).or_insert_with(PathStreams::new);
                if let Some(stream) = streams.of(keys, window) {
                    stream.handle(record);
                }
            }
        }
    }

    /// What is sent from now on does not count any more; what was sent before may still come.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
        let paths = self.paths.values_mut().flat_map(|path| path.recent.iter_mut().map(|(_, stream)| stream));
        let flows = self.came.values_mut().chain(self.handed_on.values_mut());
        flows.chain(paths).for_each(|stream| stream.is_closed = true);
    }

    /// What a flow is called.
    pub(crate) fn name(&mut self, flow: RecordedFlow, name: FlowId) {
        self.names.insert(flow, name);
    }

    /// Others have the same number.
    pub(crate) fn share(&mut self, flow: RecordedFlow) {
        self.shared.insert(flow);
    }

    /// No more comes.
    pub(crate) fn finish(self) -> LiveOutcome {
        let Self { window, came, handed_on, paths, names, shared, .. } = self;
        let outcome = |streams: BTreeMap<RecordedFlow, Stream>| {
            let mut ended = EndedFlows::new(false);
            for (flow, stream) in streams {
                ended.add(figures_of(names.get(&flow).copied(), stream.finish()));
            }
            let (total, flows, more_flows) = ended.finish();
            let (order, captures, notes) = ("the tunnel's numbers".into(), Vec::new(), Vec::new());
            Outcome { captures, order, total_is_one_stream: false, total, flows, more_flows, notes, window }
        };
        let (mut came, handed_on) = (outcome(came), outcome(handed_on));
        came.notes.push(
            "What the tunnel sent again in the place of something lost counts as late; what was handed on before \
             its turn came is late there, too."
                .into(),
        );
        if !shared.is_empty() {
            let streams = shared.len();
            came.notes.push(format!(
                "{streams} streams are of several flows each, which share a number: they are called by the first."
            ));
        }
        let paths = paths.into_iter().map(|(path, streams)| (path, streams.finish())).collect();
        LiveOutcome { came, handed_on, paths }
    }
}

fn figures_of(flow: Option<FlowId>, figures: Figures) -> FlowFigures {
    FlowFigures { flow, figures, retransmitted: None, undecided: None }
}

#[cfg(test)]
mod tests {
    use polypath_units::Instant;

    use super::*;

    const FLOW: RecordedFlow = RecordedFlow { is_copied: false, number: 3 };

    fn handle(live: &mut Live, stream: RecordedStream, numbers: impl IntoIterator<Item = u32>) {
        for (millis, number) in numbers.into_iter().enumerate() {
            live.handle(&Record { stream, number, len_bytes: 100, at: Instant::from_millis(millis as u64) });
        }
    }

    #[test]
    fn what_paths_reorder_and_what_is_left_of_it() {
        let mut live = Live::new(64);
        handle(&mut live, RecordedStream::Came(FLOW), [0xff_fffe, 0, 0xff_ffff, 1, 3, 3, 2]);
        handle(&mut live, RecordedStream::HandedOn(FLOW), [0xff_fffe, 0xff_ffff, 0, 1, 3]);
        let outcome = live.finish();
        let counts = |outcome: &Outcome| {
            let Figures { received, reordered, duplicates, lost, .. } = outcome.total.figures;
            (received, reordered, duplicates, lost)
        };
        assert_eq!(counts(&outcome.came), (6, 2, 1, Some(0)));
        assert_eq!(counts(&outcome.handed_on), (5, 0, 0, Some(1)));
    }

    #[test]
    fn what_is_under_way_at_the_end_is_not_lost() {
        let mut live = Live::new(64);
        handle(&mut live, RecordedStream::Came(FLOW), [0, 1, 3, 5]);
        live.close();
        handle(&mut live, RecordedStream::Came(FLOW), [6, 2, 7, 4]);
        let figures = live.finish().came.total.figures;
        assert_eq!((figures.received, figures.lost, figures.reordered), (6, Some(0), 2));
    }

    #[test]
    fn a_path_goes_on_with_new_keys() {
        let path = PathId::new(9).unwrap();
        let mut live = Live::new(64);
        for keys in 1..=4 {
            handle(&mut live, RecordedStream::Path { path, keys }, (0..50).filter(|number| *number != 7));
            handle(&mut live, RecordedStream::Path { path, keys: keys - 1 }, [50, 52, 51]);
        }
        let figures = &live.finish().paths[&path].figures;
        // The last of each but the newest, and of those before the first.
        let (received, lost) = (4 * 49 + 4 * 3, 4);
        assert_eq!((figures.received, figures.lost, figures.reordered), (received, Some(lost), 4));
    }
}
