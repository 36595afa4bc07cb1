//! Schedulers: which subflow sends next, and which data. One policy a file.
//!
//! A scheduler sees numbers and returns a decision; it never touches packets. It is asked again after each decision,
//! until it answers `None` or nothing is left to send.

mod lowest_rtt;
mod round_robin;

use alloc::boxed::Box;
use core::fmt;

use polypath_units::{Duration, Instant};
use polypath_wire::DataSeq;

/// A scheduling policy, one instance a connection.
pub trait Scheduler: fmt::Debug + Send {
    /// The name by which users choose it.
    fn name(&self) -> &'static str;

    /// Picks a subflow, then the data for it. `None` waits for the next acknowledgment, write or timer.
    fn select(&mut self, view: &View<'_>) -> Option<Decision>;
}

/// The connection as a scheduler sees it.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The current time.
    pub now: Instant,
    /// The subflows that may carry data, in order of establishment. Those in `active` terms only: established, not
    /// closing, and not a backup while a regular subflow works.
    pub subflows: &'a [SubflowView],
    /// Bytes never sent before that the send window allows.
    pub new_bytes: u64,
    /// Bytes never sent before, whatever the window.
    pub unsent_bytes: u64,
    /// Bytes that wait for reinjection: another subflow timed out on them, or died.
    pub reinjection_bytes: u64,
    /// First byte that is not data-acknowledged.
    pub data_una: DataSeq,
    /// First byte never sent.
    pub data_next: DataSeq,
    /// The peer's receive window, not the network, keeps new data back.
    pub window_limited: bool,
    /// Id of the subflow that holds `data_una`, if one does.
    pub holder_of_una: Option<u8>,
    /// Id of the subflow that lost the data at the front of the reinjection queue; it is not asked to carry it again
    /// while another can.
    pub reinjection_from: Option<u8>,
}

/// One subflow as a scheduler sees it.
#[derive(Clone, Copy, Debug)]
pub struct SubflowView {
    /// Stable identifier within the connection.
    pub id: u8,
    /// Smoothed round-trip time; zero before the first sample.
    pub srtt: Duration,
    /// Least round-trip time.
    pub min_rtt: Duration,
    /// Congestion window in bytes.
    pub window_bytes: u64,
    /// Slow-start threshold in bytes.
    pub ssthresh_bytes: u64,
    /// Bytes in flight.
    pub in_flight_bytes: u64,
    /// Bytes handed to the subflow that have not left yet.
    pub unsent_bytes: u64,
    /// Bytes that could leave now.
    pub room_bytes: u64,
    /// Payload of a full segment.
    pub segment_bytes: u32,
    /// Either end made it a backup.
    pub backup: bool,
    /// Retransmission timeouts since the last progress; above zero the path may be dead.
    pub timeouts: u8,
}

/// Which subflow, which data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Index into [`View::subflows`].
    pub subflow: usize,
    /// The data.
    pub data: Data,
    /// At most this many bytes; `u64::MAX` for as much as the subflow has room for.
    pub limit_bytes: u64,
    /// Halves the window of this subflow (index into [`View::subflows`]): penalization, Paasch 4.2.1.
    pub penalize: Option<Penalty>,
}

/// A halved congestion window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Penalty {
    /// Index into [`View::subflows`].
    pub subflow: usize,
    /// Also lower the slow-start threshold.
    pub ssthresh: bool,
}

/// Which data a subflow sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// What was never sent.
    New,
    /// The front of the reinjection queue.
    Reinjection,
    /// A copy of sent, unacknowledged data from here on: opportunistic retransmission, redundancy.
    Copy(DataSeq),
}

impl Decision {
    /// As much of `data` as the subflow at index `subflow` has room for.
    #[must_use]
    pub const fn send(subflow: usize, data: Data) -> Self {
        Self { subflow, data, limit_bytes: u64::MAX, penalize: None }
    }
}

impl View<'_> {
    /// What most policies want to send next through the subflow at `index`: reinjections first, then new data.
    #[must_use]
    pub fn next_data(&self, index: usize) -> Option<Data> {
        let id = self.subflows.get(index)?.id;
        if self.reinjection_bytes > 0 && (self.reinjection_from != Some(id) || self.subflows.len() == 1) {
            Some(Data::Reinjection)
        } else if self.new_bytes > 0 {
            Some(Data::New)
        } else {
            None
        }
    }
}

impl SubflowView {
    /// Room for a full segment, and no sign of a dead path.
    #[must_use]
    pub fn is_available(&self) -> bool {
        self.room_bytes >= u64::from(self.segment_bytes) && self.timeouts == 0
    }
}

/// A policy by name. A new one is one file and one line in [`Policy::ALL`].
#[derive(Clone, Copy)]
pub struct Policy {
    /// The name by which users choose it.
    pub name: &'static str,
    build: fn() -> Box<dyn Scheduler>,
}

impl Policy {
    /// All policies; the first is the default.
    pub const ALL: &'static [Self] = &[
        Self { name: "lowest-rtt", build: || Box::new(lowest_rtt::LowestRtt) },
        Self { name: "round-robin", build: || Box::new(round_robin::RoundRobin::default()) },
    ];

    /// The policy of this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|policy| policy.name == name)
    }

    /// A new instance.
    #[must_use]
    pub fn build(self) -> Box<dyn Scheduler> {
        (self.build)()
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::ALL[0]
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn subflow(id: u8, srtt_ms: u64, room_packets: u64) -> SubflowView {
        SubflowView {
            id,
            srtt: Duration::from_millis(srtt_ms),
            min_rtt: Duration::from_millis(srtt_ms),
            window_bytes: 14_600,
            ssthresh_bytes: u64::MAX,
            in_flight_bytes: 0,
            unsent_bytes: 0,
            room_bytes: room_packets * 1460,
            segment_bytes: 1460,
            backup: false,
            timeouts: 0,
        }
    }

    pub(crate) fn view(subflows: &[SubflowView]) -> View<'_> {
        View {
            now: Instant::ZERO,
            subflows,
            new_bytes: 100_000,
            unsent_bytes: 100_000,
            reinjection_bytes: 0,
            data_una: DataSeq(0),
            data_next: DataSeq(0),
            window_limited: false,
            holder_of_una: None,
            reinjection_from: None,
        }
    }

    #[test]
    fn every_policy_is_found_by_its_name() {
        for policy in Policy::ALL {
            assert_eq!(Policy::by_name(policy.name), Some(*policy));
            assert_eq!(policy.build().name(), policy.name);
        }
        assert_eq!(Policy::by_name("fastest"), None);
    }

    #[test]
    fn lost_data_is_not_offered_to_the_subflow_that_lost_it() {
        let subflows = [subflow(3, 10, 1), subflow(5, 20, 1)];
        let mut view = view(&subflows);
        view.reinjection_bytes = 1460;
        view.reinjection_from = Some(3);
        assert_eq!(view.next_data(0), Some(Data::New));
        assert_eq!(view.next_data(1), Some(Data::Reinjection));
    }
}
