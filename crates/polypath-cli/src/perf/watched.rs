//! A data connection, and what was seen of it so far.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use polypath_stack::engine::StreamInfo;

use super::datagram::Arrivals;
use super::flow::{Flow, canonical};
use super::report::{Carried, Datagrams, Path, PathInterval, Received, SenderState, StreamInterval, rate};
use super::totals::{FlowResult, SenderTotal};

/// A flow and what was seen of it.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) flow: Flow,
    is_udp: bool,
    /// At the last report.
    bytes: u64,
    retransmits: u64,
    arrivals: Arrivals,
    paths: BTreeMap<(SocketAddr, SocketAddr), u64>,
    /// When counting began.
    bytes_before: u64,
    retransmits_before: u64,
    arrivals_before: Arrivals,
    /// What a sender over TCP has seen, if its engine tells.
    seen: Option<SenderTotal>,
    rtt_sum: u64,
    rtt_count: u64,
}

/// Of all subflows together.
fn sender_state(info: &StreamInfo) -> Option<SenderState> {
    let tcp = || info.subflows.iter().map(|subflow| &subflow.tcp);
    let fastest = tcp().min_by_key(|tcp| tcp.srtt)?;
    Some(SenderState {
        retransmits: tcp().map(|tcp| tcp.retransmits).fold(0, u64::saturating_add),
        snd_cwnd: tcp().map(|tcp| tcp.cwnd_bytes).fold(0, u64::saturating_add),
        snd_wnd: tcp().map(|tcp| tcp.peer_window_bytes).max().unwrap_or(0),
        rtt: fastest.srtt.as_micros(),
        rttvar: fastest.rttvar.as_micros(),
        pmtu: tcp().map(|tcp| u64::from(tcp.pmtu_bytes)).min().unwrap_or(0),
        reorder: tcp().any(|tcp| tcp.reordering_seen).into(),
    })
}

impl Watched {
    pub(super) fn new(flow: Flow, is_udp: bool) -> Self {
        Self {
            flow,
            is_udp,
            bytes: 0,
            retransmits: 0,
            arrivals: Arrivals::default(),
            paths: BTreeMap::new(),
            bytes_before: 0,
            retransmits_before: 0,
            arrivals_before: Arrivals::default(),
            seen: None,
            rtt_sum: 0,
            rtt_count: 0,
        }
    }

    /// From now on, what comes counts.
    pub(super) fn begin_to_count(&mut self) {
        self.sample(self.flow.info().as_ref());
        self.bytes = self.flow.bytes();
        self.arrivals = self.flow.arrivals();
        (self.bytes_before, self.retransmits_before) = (self.bytes, self.retransmits);
        self.arrivals_before = self.arrivals;
        (self.seen, self.rtt_sum, self.rtt_count) = (None, 0, 0);
    }

    /// Looks at windows and round-trip times, if nobody will ask for an interval.
    pub(super) fn look(&mut self) {
        self.sample(self.flow.info().as_ref());
    }

    /// Retransmissions since the last time, window and round-trip time.
    fn sample(&mut self, info: Option<&StreamInfo>) -> Option<SenderState> {
        if !self.flow.sends {
            return None;
        }
        let now = sender_state(info?)?;
        // A subflow that has gone took its number with it.
        let retransmits = now.retransmits.saturating_sub(self.retransmits);
        self.retransmits = self.retransmits.max(now.retransmits);
        let seen = self.seen.get_or_insert_default();
        seen.reorder = seen.reorder.max(now.reorder);
        seen.max_snd_cwnd = seen.max_snd_cwnd.max(now.snd_cwnd);
        seen.max_snd_wnd = seen.max_snd_wnd.max(now.snd_wnd);
        if now.rtt > 0 {
            seen.max_rtt = seen.max_rtt.max(now.rtt);
            seen.min_rtt = if self.rtt_count == 0 { now.rtt } else { seen.min_rtt.min(now.rtt) };
            self.rtt_sum += now.rtt;
            self.rtt_count += 1;
            seen.mean_rtt = self.rtt_sum / self.rtt_count;
        }
        Some(SenderState { retransmits, ..now })
    }

    pub(super) fn interval(&mut self, start: f64, end: f64, omitted: bool) -> StreamInterval {
        let total = self.flow.bytes();
        let bytes = total - self.bytes;
        self.bytes = total;
        let info = self.flow.info();
        let seconds = end - start;
        StreamInterval {
            socket: self.flow.socket(),
            carried: Carried::new(start, end, bytes),
            tcp: self.sample(info.as_ref()),
            datagrams: self.is_udp.then(|| self.datagrams()),
            omitted,
            sender: self.flow.sends,
            paths: info.map(|info| self.paths(&info, seconds)).unwrap_or_default(),
        }
    }

    /// Since the last report.
    fn datagrams(&mut self) -> Datagrams {
        let (now, last) = (self.flow.arrivals(), self.arrivals);
        self.arrivals = now;
        let packets = now.packets.saturating_sub(last.packets);
        let lost = now.lost.saturating_sub(last.lost);
        Datagrams { received: (!self.flow.sends).then(|| Received::new(now.jitter, lost, packets)), packets }
    }

    fn paths(&mut self, info: &StreamInfo, seconds: f64) -> Vec<PathInterval> {
        let sends = self.flow.sends;
        let mut carried = BTreeMap::new();
        let mut paths = Vec::new();
        for subflow in &info.subflows {
            let (local, remote) = (subflow.tuple.local.into(), subflow.tuple.remote.into());
            let total = if sends { subflow.tcp.bytes_acked } else { subflow.tcp.bytes_received };
            let before = self.paths.get(&(local, remote)).copied().unwrap_or(0);
            let bytes = total.saturating_sub(before);
            carried.insert((local, remote), total);
            paths.push(PathInterval {
                local: canonical(local),
                remote: canonical(remote),
                bytes,
                bits_per_second: rate(bytes, seconds),
                rtt: subflow.tcp.srtt.as_micros(),
                snd_cwnd: subflow.tcp.cwnd_bytes,
                retransmits: subflow.tcp.retransmits,
            });
        }
        self.paths = carried;
        paths
    }

    pub(super) fn result(&self, seconds: f64) -> FlowResult {
        let info = self.flow.info().unwrap_or_default();
        let (arrivals, before) = (self.flow.arrivals(), self.arrivals_before);
        let retransmits = self.retransmits - self.retransmits_before;
        FlowResult {
            id: self.flow.id(),
            socket: self.flow.socket(),
            bytes: self.flow.bytes() - self.bytes_before,
            seconds,
            tcp: self.seen.map(|seen| SenderTotal { retransmits, ..seen }),
            packets: arrivals.packets,
            lost: arrivals.lost,
            out_of_order: arrivals.out_of_order.saturating_sub(before.out_of_order),
            omitted_packets: before.packets,
            omitted_lost: before.lost,
            jitter: arrivals.jitter,
            paths: info.subflows.iter().map(Path::from).collect(),
            is_multipath: info.is_multipath,
        }
    }
}
