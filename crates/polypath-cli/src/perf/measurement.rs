//! What both ends do between start and stop.

use std::future::{Future, pending};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use polypath_system::CpuTime;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::flow::Flow;
use super::report::{
    Connected, FlowResult, Interval, Results, Role, StreamInterval, Subflow, Sum, rate, summary,
};
use super::{Amount, Direction, Error, Parameters, Progress};

/// A flow and what was seen of it.
#[derive(Debug)]
struct Watched {
    flow: Flow,
    /// At the last report.
    bytes: u64,
    retransmits: u64,
    /// When counting began.
    bytes_before: u64,
    retransmits_before: u64,
    has_retransmits: bool,
    max_cwnd: Option<u64>,
    rtts: Vec<u64>,
}

#[derive(Debug)]
pub(super) struct Measurement {
    parameters: Parameters,
    role: Role,
    flows: Vec<Watched>,
    tasks: JoinSet<(u32, bool, io::Result<()>)>,
    intervals: Vec<Interval>,
    /// When counting began, and since when the next report counts.
    counted_from: Instant,
    reported_until: Instant,
    is_omitting: bool,
    cpu: CpuTime,
    drained: Option<oneshot::Sender<()>>,
    receiving: usize,
    /// How long nothing may move, what had moved when that was looked at last, and when that was something new.
    progress_limit: Option<Duration>,
    carried: u64,
    moved_at: Instant,
}

/// Times that progress is looked at until the limit is over.
const LOOKS: u32 = 4;

impl Measurement {
    /// Lets data flow. The receiver is told when all that comes in has come to its end.
    pub(super) fn start(
        parameters: &Parameters,
        role: Role,
        flows: Vec<Flow>,
    ) -> (Self, oneshot::Receiver<()>) {
        let block: Arc<[u8]> = prepared(parameters.block_bytes).into();
        let budget = match parameters.amount {
            Amount::Time(_) => None,
            Amount::Bytes(bytes) => Some(Arc::new(AtomicU64::new(bytes))),
        };
        let mut tasks = JoinSet::new();
        for flow in flows.iter().cloned() {
            let (block, budget, rate_limit) = (Arc::clone(&block), budget.clone(), parameters.rate_limit);
            tasks.spawn(async move {
                let result = if flow.sends {
                    flow.send(&block, budget, rate_limit).await
                } else {
                    flow.receive(block.len()).await
                };
                (flow.number, flow.sends, result)
            });
        }
        let (drained, is_drained) = oneshot::channel();
        let now = Instant::now();
        let measurement = Self {
            parameters: parameters.clone(),
            role,
            receiving: flows.iter().filter(|flow| !flow.sends).count(),
            flows: flows.into_iter().map(Watched::new).collect(),
            tasks,
            intervals: Vec::new(),
            counted_from: now,
            reported_until: now,
            is_omitting: !parameters.omit.is_zero(),
            cpu: CpuTime::of_process(),
            drained: Some(drained),
            progress_limit: None,
            carried: 0,
            moved_at: now,
        };
        (measurement, is_drained)
    }

    /// Fails when nothing has moved for so long. A low rate that was asked for is no standstill.
    pub(super) fn limit_progress(&mut self, limit: Option<Duration>) {
        let between_blocks = match self.parameters.rate_limit {
            Some(rate) => {
                Duration::from_secs_f64(2.0 * self.parameters.block_bytes as f64 * 8.0 / rate as f64)
            }
            None => Duration::ZERO,
        };
        self.progress_limit = limit.map(|limit| limit.max(between_blocks));
    }

    fn look_for_progress(&mut self) -> Result<(), Error> {
        let carried = self.flows.iter().map(|watched| watched.flow.carried()).fold(0, u64::wrapping_add);
        if carried != self.carried {
            (self.carried, self.moved_at) = (carried, Instant::now());
        }
        match self.progress_limit {
            Some(limit) if self.moved_at.elapsed() >= limit => Err(Error::Stalled(limit)),
            _ => Ok(()),
        }
    }

    pub(super) fn connected(flows: &[Flow]) -> Vec<Connected> {
        let connected = |flow: &Flow| Connected {
            socket: flow.id(),
            local_host: flow.local.ip().to_string(),
            local_port: flow.local.port(),
            remote_host: flow.remote.ip().to_string(),
            remote_port: flow.remote.port(),
        };
        flows.iter().map(connected).collect()
    }

    /// Reports until `until` is over, or a connection breaks.
    pub(super) async fn run(
        &mut self,
        until: impl Future<Output = Result<(), Error>>,
        progress: &mut impl FnMut(Progress<'_>),
    ) -> Result<(), Error> {
        let mut until = pin!(until);
        self.tell_if_drained();
        let omit_over = self.counted_from + self.parameters.omit;
        let mut next_report = self.next_report();
        let mut next_look = self.next_look();
        loop {
            tokio::select! {
                biased;
                result = &mut until => {
                    result?;
                    // A last interval that is a moment only says nothing, unless it is the first, too.
                    let rest = self.reported_until.elapsed();
                    let is_worth_a_line = self
                        .parameters
                        .interval
                        .is_some_and(|interval| rest > interval / 10 || self.intervals.is_empty());
                    if is_worth_a_line {
                        self.report(progress);
                    } else {
                        self.sample();
                    }
                    return Ok(());
                }
                () = sleep_until(omit_over), if self.is_omitting => {
                    if self.parameters.interval.is_some() && self.reported_until.elapsed() > Duration::from_millis(10) {
                        self.report(progress);
                    }
                    self.begin_to_count();
                    next_report = self.next_report();
                }
                () = sleep_or_never(next_report) => {
                    self.report(progress);
                    next_report = next_report.zip(self.parameters.interval).map(|(due, interval)| due + interval);
                }
                () = sleep_or_never(next_look) => {
                    self.look_for_progress()?;
                    next_look = self.next_look();
                }
                Some(ended) = self.tasks.join_next() => self.handle_end(ended)?,
            }
        }
    }

    fn next_look(&self) -> Option<Instant> {
        self.progress_limit.map(|limit| Instant::now() + limit / LOOKS)
    }

    fn next_report(&self) -> Option<Instant> {
        self.parameters.interval.map(|interval| self.reported_until + interval)
    }

    fn handle_end(
        &mut self,
        ended: Result<(u32, bool, io::Result<()>), tokio::task::JoinError>,
    ) -> Result<(), Error> {
        let (number, sends, result) =
            ended.map_err(|error| Error::lost("task of a data connection", io::Error::other(error)))?;
        let name = || format!("data connection {}", 5 + 2 * number);
        result.map_err(|error| Error::lost(name(), error))?;
        if matches!(self.parameters.amount, Amount::Time(_)) {
            return Err(Error::lost(name(), io::ErrorKind::UnexpectedEof.into()));
        }
        if !sends {
            self.receiving -= 1;
            self.tell_if_drained();
        }
        Ok(())
    }

    fn tell_if_drained(&mut self) {
        if self.receiving == 0
            && let Some(drained) = self.drained.take()
        {
            // Nobody waits at an end that only sends.
            let _ = drained.send(());
        }
    }

    fn begin_to_count(&mut self) {
        self.is_omitting = false;
        self.cpu = CpuTime::of_process();
        let now = Instant::now();
        (self.counted_from, self.reported_until) = (now, now);
        for watched in &mut self.flows {
            watched.sample();
            watched.bytes = watched.flow.bytes();
            (watched.bytes_before, watched.retransmits_before) = (watched.bytes, watched.retransmits);
            (watched.max_cwnd, watched.rtts) = (None, Vec::new());
        }
    }

    fn sample(&mut self) {
        for watched in &mut self.flows {
            watched.sample();
        }
    }

    fn report(&mut self, progress: &mut impl FnMut(Progress<'_>)) {
        let now = Instant::now();
        let start = (self.reported_until - self.counted_from).as_secs_f64();
        let end = (now - self.counted_from).as_secs_f64();
        self.reported_until = now;
        let is_omitting = self.is_omitting;
        let streams: Vec<_> =
            self.flows.iter_mut().map(|watched| watched.interval(start, end, is_omitting)).collect();
        let sum = |part: &[StreamInterval]| Sum {
            start,
            end,
            omitted: Some(is_omitting),
            sender: part.first().is_some_and(|stream| stream.sender),
            ..Sum::of(part.iter().map(|stream| (stream.seconds, stream.bytes, stream.retransmits)))
        };
        let (first, second) = streams.split_at(self.parameters.streams as usize);
        let is_both = self.parameters.direction == Direction::Both;
        let interval = Interval { sum: sum(first), sum_bidir_reverse: is_both.then(|| sum(second)), streams };
        progress(Progress::Interval(&interval));
        self.intervals.push(interval);
    }

    /// What this end saw. Data may still flow.
    pub(super) fn results(&self) -> Results {
        let elapsed = self.counted_from.elapsed().as_secs_f64();
        let cpu = CpuTime::of_process().since(self.cpu);
        let percent = |time: Duration| if elapsed > 0.0 { time.as_secs_f64() / elapsed * 100.0 } else { 0.0 };
        Results {
            cpu_user_percent: percent(cpu.user),
            cpu_system_percent: percent(cpu.system),
            congestion: self.flows.first().and_then(|watched| watched.flow.congestion()),
            flows: self.flows.iter().map(|watched| watched.result(elapsed)).collect(),
        }
    }

    pub(super) fn role(&self) -> Role {
        self.role
    }

    /// Ends the connections: nothing of a test by time disturbs the next.
    pub(super) async fn finish(mut self) -> Vec<Interval> {
        self.tasks.shutdown().await;
        for watched in self.flows {
            if matches!(self.parameters.amount, Amount::Time(_)) {
                watched.flow.abort();
            }
        }
        self.intervals
    }
}

impl Watched {
    fn new(flow: Flow) -> Self {
        Self {
            flow,
            bytes: 0,
            retransmits: 0,
            bytes_before: 0,
            retransmits_before: 0,
            has_retransmits: false,
            max_cwnd: None,
            rtts: Vec::new(),
        }
    }

    /// Retransmissions since the last time, window and round-trip time.
    fn sample(&mut self) -> (Option<u64>, Option<u64>, Option<u64>) {
        if !self.flow.sends {
            return (None, None, None);
        }
        let (retransmits, cwnd, rtt) = self.flow.info().as_ref().map(summary).unwrap_or((None, None, None));
        let more = retransmits.map(|total| {
            self.has_retransmits = true;
            // A subflow that has gone took its number with it.
            let more = total.saturating_sub(self.retransmits);
            self.retransmits = self.retransmits.max(total);
            more
        });
        self.max_cwnd = self.max_cwnd.max(cwnd);
        self.rtts.extend(rtt);
        (more, cwnd, rtt)
    }

    fn interval(&mut self, start: f64, end: f64, omitted: bool) -> StreamInterval {
        let total = self.flow.bytes();
        let bytes = total - self.bytes;
        self.bytes = total;
        let (retransmits, snd_cwnd, rtt) = self.sample();
        let seconds = end - start;
        StreamInterval {
            socket: self.flow.id(),
            start,
            end,
            seconds,
            bytes,
            bits_per_second: rate(bytes, seconds),
            retransmits,
            snd_cwnd,
            rtt,
            omitted,
            sender: self.flow.sends,
        }
    }

    fn result(&self, seconds: f64) -> FlowResult {
        let info = self.flow.info().unwrap_or_default();
        let count = self.rtts.len() as u64;
        FlowResult {
            bytes: self.flow.bytes() - self.bytes_before,
            seconds,
            retransmits: self.has_retransmits.then(|| self.retransmits - self.retransmits_before),
            max_cwnd: self.max_cwnd,
            max_rtt: self.rtts.iter().copied().max(),
            min_rtt: self.rtts.iter().copied().min(),
            mean_rtt: (count > 0).then(|| self.rtts.iter().sum::<u64>() / count),
            subflows: info.subflows.iter().map(Subflow::from).collect(),
            is_multipath: info.is_multipath,
        }
    }
}

async fn sleep_or_never(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => pending().await,
    }
}

/// Bytes that no link compresses.
fn prepared(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}
