//! Time series of a running network, sampled at an interval.

use polypath_mptcp::{SubflowId, SubflowInfo};
use polypath_units::{BitRate, Duration, Instant};
use polypath_wire::FourTuple;

use crate::app::StackInfo;
use crate::scenario::{Series, SubflowResult, SubflowSeries};

/// A stream's goodput over time.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamRecorder {
    received_bytes: u64,
    series: Series,
}

impl StreamRecorder {
    /// So many bytes have arrived by `now`; the sample before was at `since`, and nothing had arrived at the start.
    pub(crate) fn sample(&mut self, since: Instant, now: Instant, received_bytes: u64) {
        let rate = BitRate::from_bytes_over(received_bytes - self.received_bytes, now.since(since));
        self.series.time_s.push(now.as_secs_f64());
        self.series.goodput_bps.push(rate.as_bps() as f64);
        self.received_bytes = received_bytes;
    }

    pub(crate) fn into_series(self) -> Series {
        self.series
    }
}

/// The subflows of a connection over time, as the sender of a stream sees them.
#[derive(Clone, Debug, Default)]
pub(crate) struct SubflowRecorder {
    subflows: Vec<Recorded>,
}

#[derive(Clone, Debug)]
struct Recorded {
    tuple: FourTuple,
    /// What it was like when it was last seen, if that was after the sample before.
    seen: Option<polypath_tcp::Info>,
    sampled_acked_bytes: u64,
    result: SubflowResult,
}

impl SubflowRecorder {
    /// What the subflows are like now. One that is gone by the next sample has this for its last point.
    pub(crate) fn see(&mut self, info: &StackInfo) {
        for subflow in &info.subflows {
            let known = self
                .subflows
                .iter()
                .position(|known| known.result.id == id_of(subflow).0 && known.tuple == subflow.tuple);
            let index = known.unwrap_or_else(|| {
                self.subflows.push(Recorded {
                    tuple: subflow.tuple,
                    seen: None,
                    sampled_acked_bytes: 0,
                    result: SubflowResult::default(),
                });
                self.subflows.len() - 1
            });
            let recorded = &mut self.subflows[index];
            let series = std::mem::take(&mut recorded.result.series);
            recorded.seen = Some(subflow.tcp.clone());
            recorded.result = SubflowResult { series, ..SubflowResult::from(subflow) };
        }
    }

    /// A point for each subflow that was seen since the sample before, which was at `since`.
    pub(crate) fn sample(&mut self, since: Instant, now: Instant) {
        for recorded in &mut self.subflows {
            let Some(tcp) = recorded.seen.take() else { continue };
            let acked_bytes = tcp.bytes_acked.saturating_sub(recorded.sampled_acked_bytes);
            let rate = BitRate::from_bytes_over(acked_bytes, now.since(since));
            let SubflowSeries { time_s, throughput_bps, cwnd_bytes, srtt_ms, in_flight_bytes } =
                &mut recorded.result.series;
            time_s.push(now.as_secs_f64());
            throughput_bps.push(rate.as_bps() as f64);
            cwnd_bytes.push(tcp.cwnd_bytes);
            srtt_ms.push(tcp.srtt.as_millis_f64());
            in_flight_bytes.push(tcp.in_flight_bytes);
            recorded.sampled_acked_bytes = tcp.bytes_acked;
        }
    }

    /// The subflows in the order of their first sight, each with both ends.
    pub(crate) fn into_results(self) -> impl Iterator<Item = (FourTuple, SubflowResult)> {
        self.subflows.into_iter().map(|recorded| (recorded.tuple, recorded.result))
    }
}

/// Plain TCP has one.
fn id_of(subflow: &SubflowInfo) -> SubflowId {
    subflow.multipath.as_ref().map_or(SubflowId::INITIAL, |multipath| multipath.id)
}

/// What is known at one moment: neither the link nor what it was over time.
impl From<&SubflowInfo> for SubflowResult {
    fn from(subflow: &SubflowInfo) -> Self {
        Self {
            id: id_of(subflow).0,
            local: subflow.tuple.local.to_string(),
            remote: subflow.tuple.remote.to_string(),
            link: None,
            sent_bytes: subflow.tcp.bytes_sent,
            acked_bytes: subflow.tcp.bytes_acked,
            retransmitted_packets: subflow.tcp.retransmits,
            series: SubflowSeries::default(),
        }
    }
}

/// The instants at which to sample a run.
pub(crate) fn sample_times(interval: Duration, end: Instant) -> impl Iterator<Item = Instant> {
    let count = end.as_nanos().div_ceil(interval.as_nanos().max(1));
    (1..=count).map(move |index| (Instant::ZERO + interval * index).min(end))
}
