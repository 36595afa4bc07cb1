//! What both ends do between start and end.

use std::future::{Future, pending};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use polypath_system::CpuTime;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::Error;
use super::flow::{Flow, Pace};
use super::intervals::Intervals;
use super::parameters::{Amount, Direction, Parameters, Role};
use super::progress::Progress;
use super::quota::Quota;
use super::report::{Interval, Sum};
use super::totals::Results;
use super::watched::Watched;

#[derive(Debug)]
pub(super) struct Measurement {
    parameters: Parameters,
    flows: Vec<Watched>,
    tasks: JoinSet<(u32, bool, io::Result<()>)>,
    senders: Vec<AbortHandle>,
    intervals: Intervals,
    /// When counting began and ended, and since when the next report counts.
    counted_from: Instant,
    counted_until: Option<Instant>,
    reported_until: Instant,
    is_omitting: bool,
    cpu: CpuTime,
    quotas: Quotas,
    sending: usize,
    /// How long nothing may move, what had moved when that was looked at last, and when that was something new.
    progress_limit: Option<Duration>,
    carried: u64,
    moved_at: Instant,
}

/// What is left to do in each direction, seen from this end.
#[derive(Clone, Debug, Default)]
pub(super) struct Quotas {
    sent: Option<Arc<Quota>>,
    received: Option<Arc<Quota>>,
}

impl Quotas {
    fn new(parameters: &Parameters, role: Role) -> Self {
        let Some(bytes) = parameters.bytes() else { return Self::default() };
        let quota = || Some(Arc::new(Quota::new(bytes, parameters.omit.is_zero())));
        // The client decides when it is over. Its server may stop by itself where both know what has arrived.
        let may_stop = role == Role::Client || !parameters.is_udp() && parameters.omit.is_zero();
        let sends = |wanted: bool| {
            (0..parameters.connections()).any(|number| role.sends(parameters, number) == wanted)
        };
        Self { sent: quota().filter(|_| sends(true) && may_stop), received: quota().filter(|_| sends(false)) }
    }

    /// When the last of them was over, if all are.
    fn over_at(&self) -> Option<Instant> {
        let mut last = None;
        for quota in [&self.sent, &self.received].into_iter().flatten() {
            last = last.max(Some(quota.over_at()?));
        }
        last
    }

    /// Until all is sent and has arrived, as far as there is a limit.
    pub(super) async fn wait(&self) {
        for quota in [&self.sent, &self.received].into_iter().flatten() {
            quota.wait().await;
        }
    }
}

/// Data of a limited amount that is still under way.
#[derive(Debug)]
pub(super) struct Stragglers {
    quota: Option<Arc<Quota>>,
    flows: Vec<Flow>,
}

impl Stragglers {
    /// Until all has arrived, or nothing moves any more.
    pub(super) async fn wait(&self) {
        let Some(quota) = &self.quota else { return };
        let bytes = || self.flows.iter().map(Flow::bytes).fold(0, u64::wrapping_add);
        let mut before = bytes();
        while tokio::time::timeout(STRAGGLING, quota.wait()).await.is_err() {
            let now = bytes();
            if now == before {
                return;
            }
            before = now;
        }
    }
}

/// Times that progress is looked at until the limit is over.
const LOOKS: u32 = 4;
/// After the client has sent all: how long what is still under way may take to move on.
const STRAGGLING: Duration = Duration::from_millis(500);
/// How long nothing may move, however low a rate the client asked for.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// How long a program may take to read what has arrived at its host.
const READING: Duration = Duration::from_millis(20);

impl Measurement {
    /// Lets data flow.
    pub(super) fn start(parameters: &Parameters, role: Role, flows: Vec<Flow>) -> Self {
        let block: Arc<[u8]> = prepared(parameters.block_bytes()).into();
        let quotas = Quotas::new(parameters, role);
        let pace = Pace::from(parameters);
        let (mut tasks, mut senders) = (JoinSet::new(), Vec::new());
        for flow in flows.iter().cloned() {
            let (block, pace, quotas) = (Arc::clone(&block), pace.clone(), quotas.clone());
            let sends = flow.sends;
            let task = tasks.spawn(async move {
                let result = if flow.sends {
                    flow.send(&block, quotas.sent, &pace).await
                } else {
                    flow.receive(block.len(), quotas.received, &pace).await
                };
                (flow.socket(), flow.sends, result)
            });
            senders.extend(sends.then_some(task));
        }
        let now = Instant::now();
        let is_udp = parameters.is_udp();
        Self {
            parameters: parameters.clone(),
            sending: flows.iter().filter(|flow| flow.sends).count(),
            flows: flows.into_iter().map(|flow| Watched::new(flow, is_udp)).collect(),
            tasks,
            senders,
            intervals: Intervals::new(parameters),
            counted_from: now,
            counted_until: None,
            reported_until: now,
            is_omitting: !parameters.omit.is_zero(),
            cpu: CpuTime::of_process(),
            quotas,
            progress_limit: None,
            carried: 0,
            moved_at: now,
        }
    }

    pub(super) fn quotas(&self) -> Quotas {
        self.quotas.clone()
    }

    /// Fails when nothing has moved for so long. A low rate that was asked for is no standstill.
    pub(super) fn limit_progress(&mut self, limit: Option<Duration>) {
        let between_blocks = match self.parameters.rate_limit {
            Some(rate) => {
                let bits = self.parameters.block_bytes() as f64 * 8.0 * f64::from(self.parameters.burst);
                Duration::try_from_secs_f64(2.0 * bits / rate as f64).unwrap_or(Duration::MAX)
            }
            None => Duration::ZERO,
        };
        self.progress_limit = limit.map(|limit| limit.max(between_blocks.min(LONGEST_PAUSE)));
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

    /// Reports until `until` is over, or a connection breaks.
    pub(super) async fn run(
        &mut self,
        until: impl Future<Output = Result<(), Error>>,
        progress: &mut impl FnMut(Progress<'_>),
    ) -> Result<(), Error> {
        let mut until = pin!(until);
        let omit_over = self.counted_from + self.parameters.omit;
        let mut next_report = self.next_report();
        let mut next_look = self.next_look();
        loop {
            tokio::select! {
                biased;
                result = &mut until => {
                    result?;
                    self.end(progress);
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

    fn end(&mut self, progress: &mut impl FnMut(Progress<'_>)) {
        // A last interval that is a moment only says nothing, unless it is the first, too.
        let rest = self.reported_until.elapsed();
        let is_worth_a_line = self
            .parameters
            .interval
            .is_some_and(|interval| rest > interval / 10 || self.intervals.is_empty());
        if is_worth_a_line {
            self.report(progress);
        } else {
            for watched in &mut self.flows {
                watched.look();
            }
        }
        self.counted_until = Some(self.quotas.over_at().unwrap_or_else(Instant::now));
    }

    fn next_look(&self) -> Option<Instant> {
        let limit = self.progress_limit?;
        Instant::now().checked_add(limit / LOOKS)
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
        let name = || format!("data connection {number}");
        result.map_err(|error| Error::lost(name(), error))?;
        if !sends {
            return Err(Error::lost(name(), io::ErrorKind::UnexpectedEof.into()));
        }
        self.sending -= 1;
        if self.sending == 0
            && let Some(quota) = &self.quotas.sent
        {
            quota.end();
        }
        Ok(())
    }

    fn begin_to_count(&mut self) {
        self.is_omitting = false;
        self.cpu = CpuTime::of_process();
        let now = Instant::now();
        (self.counted_from, self.reported_until) = (now, now);
        for watched in &mut self.flows {
            watched.begin_to_count();
        }
        for quota in [&self.quotas.sent, &self.quotas.received].into_iter().flatten() {
            quota.begin_to_count();
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
        let (first, second) = streams.split_at(self.parameters.streams as usize);
        let is_both = self.parameters.direction == Direction::Both;
        let interval = Interval {
            sum: Sum::of_interval(first),
            sum_bidir_reverse: is_both.then(|| Sum::of_interval(second)),
            streams,
        };
        progress(Progress::Interval(&interval));
        self.intervals.push(interval);
    }

    /// At the receiving end of an amount that the other end has sent: what is still under way belongs to it.
    pub(super) fn stragglers(&self) -> Stragglers {
        let quota = self.quotas.received.clone().filter(|_| !self.parameters.is_udp());
        Stragglers { quota, flows: self.flows.iter().map(|watched| watched.flow.clone()).collect() }
    }

    /// What this end saw. Data may still flow.
    pub(super) fn results(&self) -> Results {
        let until = self.counted_until.unwrap_or_else(Instant::now);
        let elapsed = (until - self.counted_from).as_secs_f64();
        let cpu = CpuTime::of_process().since(self.cpu);
        let percent = |time: Duration| if elapsed > 0.0 { time.as_secs_f64() / elapsed * 100.0 } else { 0.0 };
        Results {
            cpu_user_percent: percent(cpu.user),
            cpu_system_percent: percent(cpu.system),
            congestion: self.flows.first().and_then(|watched| watched.flow.congestion()),
            flows: self.flows.iter().map(|watched| watched.result(elapsed)).collect(),
        }
    }

    pub(super) fn intervals(&self) -> Vec<Interval> {
        self.intervals.clone().into_vec()
    }

    /// Nothing is sent any more; what comes is still received.
    pub(super) fn stop_sending(&mut self) {
        for sender in &self.senders {
            sender.abort();
        }
    }

    /// Until an amount that was sent has arrived: a server of iperf3 counts what it has read when it hears of the end.
    pub(super) async fn settle(&self) {
        let senders = || self.flows.iter().map(|watched| &watched.flow).filter(|flow| flow.sends);
        if self.parameters.bytes().is_none() || senders().next().is_none() {
            return;
        }
        let acked = || senders().map(Flow::acked).fold(0, u64::saturating_add);
        let sent = senders().map(Flow::bytes).fold(0, u64::saturating_add);
        let (mut last, mut moved_at) = (acked(), Instant::now());
        while last < sent && moved_at.elapsed() < STRAGGLING && !self.parameters.is_udp() {
            tokio::time::sleep(Duration::from_millis(2)).await;
            let now = acked();
            if now != last {
                (last, moved_at) = (now, Instant::now());
            }
        }
        tokio::time::sleep(READING).await;
    }

    /// Ends the connections: nothing of a test by time disturbs the next.
    pub(super) async fn finish(mut self) -> Vec<Interval> {
        self.tasks.shutdown().await;
        for watched in self.flows {
            if matches!(self.parameters.amount, Amount::Time(_)) {
                watched.flow.abort();
            }
        }
        self.intervals.into_vec()
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
