//! All metrics of one stream of packets, while they arrive.

use polypath_tunnel::reordering::{
    Arrival, ArrivalOrder, Extents, FreeRuns, LateTimes, NReordering, Order, ReorderBufferDensity,
    ReorderDensity, ReorderedRatio,
};

use super::figures::Figures;

/// Up to which *n* packets are told to be *n*-reordered.
pub(super) const MOST_N: usize = 128;
/// Among so many first packets the one is that the stream begins with.
const FIRST_PACKETS: usize = 64;

/// What is kept of a stream: no more than a window of it.
#[derive(Debug)]
pub(super) struct Metrics {
    window: u32,
    order: ArrivalOrder,
    ratio: ReorderedRatio,
    extents: Extents,
    late_times: LateTimes,
    free_runs: FreeRuns,
    n_reordering: NReordering,
    density: ReorderDensity,
    buffer: Buffer,
    /// The numbers that came, from the lowest to the highest; none before any.
    range: Option<(u64, u64)>,
}

/// The buffer of a receiver, which is known once the number is that the stream begins with.
#[derive(Debug)]
enum Buffer {
    Early(Vec<u64>),
    Known(ReorderBufferDensity),
}

impl Metrics {
    /// A packet that is later than by `window` others counts as lost.
    pub(super) fn new(window: u32) -> Self {
        Self {
            window,
            order: ArrivalOrder::new(window as usize),
            ratio: ReorderedRatio::default(),
            extents: Extents::default(),
            late_times: LateTimes::default(),
            free_runs: FreeRuns::default(),
            n_reordering: NReordering::new(MOST_N),
            density: ReorderDensity::new(window),
            buffer: Buffer::Early(Vec::new()),
            range: None,
        }
    }

    pub(super) fn handle_arrival(&mut self, arrival: Arrival) {
        let evaluated = self.order.handle_arrival(arrival);
        self.ratio.handle_arrival(&evaluated);
        self.extents.handle_arrival(&evaluated);
        self.late_times.handle_arrival(&evaluated);
        self.free_runs.handle_arrival(&evaluated);
        self.n_reordering.handle_arrival(&evaluated);
        // The densities see the same packets: what came too late for one is lost for all.
        if matches!(evaluated.order, Order::Duplicate | Order::TooLate) {
            return;
        }
        let sequence = arrival.sequence;
        let (lowest, highest) = self.range.unwrap_or((sequence, sequence));
        self.range = Some((lowest.min(sequence), highest.max(sequence)));
        self.density.handle_arrival(sequence);
        match &mut self.buffer {
            Buffer::Known(buffer) => buffer.handle_arrival(sequence),
            Buffer::Early(early) => {
                early.push(sequence);
                if early.len() >= FIRST_PACKETS {
                    self.buffer = Buffer::Known(begun(early, self.window));
                }
            }
        }
    }

    /// No more packets arrive.
    pub(super) fn finish(mut self) -> Figures {
        self.density.finish();
        let buffer = match self.buffer {
            Buffer::Known(buffer) => buffer,
            Buffer::Early(early) => begun(&early, self.window),
        };
        let threshold = i64::from(self.window);
        let displaced = (-threshold..=threshold).map(|by| (by, self.density.frequency(by)));
        let most = buffer.percentile(1.0).unwrap_or(0);
        let waiting = (0..=most).map(|packets| (packets as u64, buffer.frequency(packets)));
        let received = self.order.received();
        let numbers = self.range.map_or(0, |(lowest, highest)| (highest - lowest).saturating_add(1));
        Figures {
            received,
            lost: Some(numbers.saturating_sub(received)),
            duplicates: self.order.duplicates(),
            too_late: self.order.too_late(),
            reordered: self.ratio.reordered(),
            extents: self.extents.distribution().clone(),
            late_nanos: self.late_times.distribution().clone(),
            n_reordered: (1..=MOST_N).map(|n| self.n_reordering.count(n)).take_while(|it| *it > 0).collect(),
            free_runs: self.free_runs.runs(),
            in_order: self.free_runs.in_order(),
            sum_of_squares: self.free_runs.sum_of_squares(),
            displaced: displaced.filter(|(_, packets)| *packets > 0).collect(),
            displaced_beyond: self.density.discarded() + self.density.duplicates(),
            waiting: waiting.filter(|(_, arrivals)| *arrivals > 0).collect(),
        }
    }
}

/// The buffer of a stream whose first packets came in this order.
fn begun(early: &[u64], window: u32) -> ReorderBufferDensity {
    let mut buffer = ReorderBufferDensity::new(window as usize, early.iter().min().copied().unwrap_or(0));
    early.iter().for_each(|sequence| buffer.handle_arrival(*sequence));
    buffer
}
