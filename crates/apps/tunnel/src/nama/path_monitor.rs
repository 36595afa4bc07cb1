use std::collections::VecDeque;

use polypath_units::{BitRate, Duration, Instant};

use crate::nama::message::{Answer, Message, Seen, TrainPacket};

/// How a path monitor looks at its paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonitorSettings {
    /// How often each path is probed. The document has 200 ms.
    pub probe_interval: Duration,
    /// Over how long a time rates are measured. The document does not say: with a second, losses are those of its Table 4.2; with less, there are fewer.
    /// Not less than the probe interval counts.
    pub rate_window: Duration,
    /// How often packets are sent back to back over a path that has no traffic; the document does not say.
    pub train_interval: Duration,
    /// How many. "Several" in the document.
    pub train_packets: u8,
    /// How much an estimate of the delay follows the last probe: one part in so many. The document does not say; TCP's round-trip time has 8 (RFC 6298 §2).
    pub delay_weight: u64,
    /// After so many probes without an answer nobody is held for the sake of a path.
    pub lost_after: u32,
}

impl Default for MonitorSettings {
    fn default() -> Self {
        Self {
            probe_interval: Duration::from_millis(200),
            rate_window: Duration::from_secs(1),
            train_interval: Duration::from_secs(1),
            train_packets: 4,
            delay_weight: 8,
            lost_after: 10,
        }
    }
}

/// What the sender knows of its paths: how much arrives over each, and how long that takes (Kaspar 2011, 4.2.1).
///
/// Each path is probed by turns of 200 ms; half of the time until the answer is the path's delay. Answers say how much arrived over each path, which is its
/// rate. A path over which nothing arrives while others have traffic is tried by packets that leave back to back.
#[derive(Clone, Debug)]
pub(super) struct PathMonitor {
    settings: MonitorSettings,
    paths: Vec<Path>,
    next_probe: Instant,
    probes: u32,
    /// What leaves next.
    waiting: VecDeque<(usize, Message)>,
    /// What answers said, the oldest first.
    reports: VecDeque<Report>,
    /// How often rates were measured.
    measurements: u64,
}

#[derive(Clone, Debug)]
struct Path {
    delay: Option<Duration>,
    /// What arrived in the window.
    measured: BitRate,
    /// What the last train said. Zero if there is none, and once there is traffic.
    tried: BitRate,
    /// Probes that were not answered: number and time.
    asked: VecDeque<(u32, Instant)>,
    next_train: Instant,
    /// The last train that was sent, and the last one that was heeded.
    train: u32,
    heeded_train: u32,
}

#[derive(Clone, Debug)]
struct Report {
    at_micros: u64,
    received_bytes: Vec<u64>,
}

impl PathMonitor {
    /// One of so many paths, which are probed from `now` on.
    pub(super) fn new(settings: MonitorSettings, paths: usize, now: Instant) -> Self {
        let path = Path {
            delay: None,
            measured: BitRate::ZERO,
            tried: BitRate::ZERO,
            asked: VecDeque::new(),
            next_train: now,
            train: 0,
            heeded_train: 0,
        };
        let paths = vec![path; paths];
        Self {
            settings,
            paths,
            next_probe: now,
            probes: 0,
            waiting: VecDeque::new(),
            reports: VecDeque::new(),
            measurements: 0,
        }
    }

    /// What arrives over each path. None before that is known.
    pub(super) fn rates(&self) -> Option<impl Iterator<Item = BitRate>> {
        self.has_rates().then(|| self.paths.iter().map(Path::rate))
    }

    /// How often rates were measured.
    pub(super) const fn measurements(&self) -> u64 {
        self.measurements
    }

    const fn has_rates(&self) -> bool {
        self.measurements > 0
    }

    /// The one-way delay of each path, if it is known and the path answers.
    pub(super) fn delays(&self) -> impl Iterator<Item = Option<Duration>> {
        self.paths.iter().map(|path| path.delay)
    }

    /// A probe is answered, over the path that it took.
    pub(super) fn handle_answer(&mut self, now: Instant, path: usize, answer: &Answer) {
        if answer.paths.len() != self.paths.len() {
            return;
        }
        if let Some(path) = self.paths.get_mut(path) {
            path.handle_answer(now, answer.number, self.settings.delay_weight);
        }
        let seen = answer.paths.iter().zip(&mut self.paths);
        for (Seen { train, train_bps, .. }, path) in seen {
            if *train > path.heeded_train && *train == path.train {
                path.heeded_train = *train;
                path.tried = BitRate::from_bps(*train_bps);
            }
        }
        self.note_received(answer);
    }

    /// Measures rates since the report that is as old as the window, or the oldest there is.
    fn note_received(&mut self, answer: &Answer) {
        let received_bytes = answer.paths.iter().map(|seen| seen.received_bytes).collect();
        let report = Report { at_micros: answer.at_micros, received_bytes };
        let interval = self.settings.probe_interval.as_micros();
        // Half an interval, as probes and answers are under way for different times.
        let is_next = |last: &Report| report.at_micros.saturating_sub(last.at_micros) * 2 > interval;
        if !self.reports.back().is_none_or(is_next) {
            return;
        }
        let window = self.settings.rate_window.max(self.settings.probe_interval).as_micros();
        let age = |old: &Report| report.at_micros.saturating_sub(old.at_micros);
        while self.reports.get(1).is_some_and(|second| age(second) + interval / 2 >= window) {
            self.reports.pop_front();
        }
        if let Some(oldest) = self.reports.front() {
            let span = Duration::from_micros(age(oldest));
            let received = report.received_bytes.iter().zip(&oldest.received_bytes);
            let received: Vec<u64> = received.map(|(new, old)| new.saturating_sub(*old)).collect();
            // Without any traffic, nothing is learnt.
            if received.iter().any(|bytes| *bytes > 0) {
                for (path, bytes) in self.paths.iter_mut().zip(received) {
                    path.measured = BitRate::from_bytes_over(bytes, span);
                    if bytes > 0 {
                        path.tried = BitRate::ZERO;
                    }
                }
                self.measurements += 1;
            }
        }
        self.reports.push_back(report);
    }

    /// The next message, and its path.
    pub(super) fn poll_transmit(&mut self, now: Instant) -> Option<(usize, Message)> {
        if self.next_probe <= now {
            self.probe(now);
        }
        self.waiting.pop_front()
    }

    /// When there is another message.
    pub(super) fn poll_timeout(&self) -> Instant {
        if self.waiting.is_empty() { self.next_probe } else { Instant::ZERO }
    }

    fn probe(&mut self, now: Instant) {
        self.next_probe = now + self.settings.probe_interval;
        self.probes = self.probes.wrapping_add(1);
        let number = self.probes;
        let has_rates = self.has_rates();
        for (place, path) in self.paths.iter_mut().enumerate() {
            self.waiting.push_back((place, Message::Probe { number }));
            path.asked.push_back((number, now));
            if path.asked.len() > self.settings.lost_after as usize {
                path.asked.pop_front();
                path.delay = None;
            }
            if has_rates && path.measured == BitRate::ZERO && path.next_train <= now {
                // The last one did not come.
                if path.heeded_train != path.train {
                    path.tried = BitRate::ZERO;
                }
                path.next_train = now + self.settings.train_interval;
                path.train += 1;
                let count = self.settings.train_packets;
                for index in 0..count {
                    let packet = TrainPacket { train: path.train, place: index, count };
                    self.waiting.push_back((place, Message::Train(packet)));
                }
            }
        }
    }
}

impl Path {
    /// What is measured with traffic on the path is worth more than a train.
    const fn rate(&self) -> BitRate {
        if self.measured.as_bps() > 0 { self.measured } else { self.tried }
    }

    fn handle_answer(&mut self, now: Instant, number: u32, weight: u64) {
        let Some(place) = self.asked.iter().position(|(asked, _)| *asked == number) else { return };
        let (_, at) = self.asked[place];
        // Those before it are lost, or late.
        self.asked.drain(..=place);
        let sample = now.since(at) / 2;
        self.delay = Some(match self.delay {
            None => sample,
            Some(delay) => (delay * weight.saturating_sub(1) + sample) / weight,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn monitor(settings: MonitorSettings) -> PathMonitor {
        PathMonitor::new(settings, 2, at(0))
    }

    /// Everything that leaves by then.
    fn leave(monitor: &mut PathMonitor, millis: u64) -> Vec<(usize, Message)> {
        std::iter::from_fn(|| monitor.poll_transmit(at(millis))).collect()
    }

    fn answer(number: u32, millis: u64, received_bytes: [u64; 2]) -> Answer {
        let seen = |received_bytes| Seen { received_bytes, ..Seen::default() };
        Answer { number, at_micros: millis * 1000, paths: received_bytes.map(seen).to_vec() }
    }

    fn kbps(monitor: &PathMonitor) -> Vec<u64> {
        monitor.rates().map(|rates| rates.map(|rate| rate.as_bps() / 1000).collect()).unwrap_or_default()
    }

    #[test]
    fn each_path_is_probed_five_times_a_second() {
        let mut monitor = monitor(MonitorSettings::default());
        for (millis, number) in [(0, 1), (200, 2), (400, 3)] {
            assert_eq!(monitor.poll_timeout(), at(millis));
            let probe = Message::Probe { number };
            assert_eq!(leave(&mut monitor, millis), [(0, probe.clone()), (1, probe)]);
            assert_eq!(leave(&mut monitor, millis + 199), []);
        }
    }

    #[test]
    fn half_of_the_round_trip_is_the_delay_and_one_sample_moves_it_by_an_eighth() {
        let mut monitor = monitor(MonitorSettings::default());
        let delays = |monitor: &PathMonitor| -> Vec<Option<u64>> {
            monitor.delays().map(|delay| delay.map(Duration::as_millis)).collect()
        };
        leave(&mut monitor, 0);
        monitor.handle_answer(at(160), 1, &answer(1, 80, [0, 0]));
        assert_eq!(delays(&monitor), [None, Some(80)]);
        leave(&mut monitor, 200);
        monitor.handle_answer(at(200), 1, &answer(2, 280, [0, 0]));
        assert_eq!(delays(&monitor), [None, Some(70)]);
        // An answer that nobody asked for, or that came before, says nothing.
        monitor.handle_answer(at(201), 1, &answer(2, 280, [0, 0]));
        monitor.handle_answer(at(201), 0, &answer(9, 280, [0, 0]));
        monitor.handle_answer(at(201), 7, &answer(2, 280, [0, 0]));
        assert_eq!(delays(&monitor), [None, Some(70)]);
    }

    #[test]
    fn a_path_that_does_not_answer_has_no_delay() {
        let mut monitor = monitor(MonitorSettings::default());
        leave(&mut monitor, 0);
        monitor.handle_answer(at(20), 0, &answer(1, 10, [0, 0]));
        for step in 1..=10 {
            assert_eq!(monitor.delays().next(), Some(Some(Duration::from_millis(10))), "{step}");
            leave(&mut monitor, 200 * step);
        }
        leave(&mut monitor, 2200);
        assert_eq!(monitor.delays().next(), Some(None));
        // It answers again.
        monitor.handle_answer(at(2230), 0, &answer(12, 2210, [0, 0]));
        assert_eq!(monitor.delays().next(), Some(Some(Duration::from_millis(15))));
    }

    #[test]
    fn rates_are_what_arrived_in_the_window() {
        let rate_window = Duration::from_millis(400);
        let mut monitor = monitor(MonitorSettings { rate_window, ..MonitorSettings::default() });
        assert_eq!(kbps(&monitor), []);
        monitor.handle_answer(at(10), 0, &answer(1, 5, [0, 0]));
        assert_eq!(kbps(&monitor), [], "one report is no rate");
        // The other path's answer comes at about the same time and counts for nothing.
        monitor.handle_answer(at(10), 1, &answer(1, 7, [9000, 9000]));
        monitor.handle_answer(at(210), 0, &answer(2, 205, [25_000, 50_000]));
        assert_eq!(kbps(&monitor), [1000, 2000]);
        monitor.handle_answer(at(410), 0, &answer(3, 405, [50_000, 150_000]));
        assert_eq!(kbps(&monitor), [1000, 3000], "over two intervals");
        monitor.handle_answer(at(610), 0, &answer(4, 605, [50_000, 250_000]));
        assert_eq!(kbps(&monitor), [500, 4000], "what is older is forgotten");
        // Nobody sends: what is known stays.
        monitor.handle_answer(at(810), 0, &answer(5, 805, [50_000, 250_000]));
        monitor.handle_answer(at(1010), 0, &answer(6, 1005, [50_000, 250_000]));
        assert_eq!(kbps(&monitor), [0, 2000]);
        // An older report, and one of another number of paths.
        monitor.handle_answer(at(1210), 1, &answer(3, 100, [9, 9]));
        monitor.handle_answer(at(1210), 1, &Answer { number: 7, at_micros: 9_000_000, paths: vec![] });
        assert_eq!(kbps(&monitor), [0, 2000]);
    }

    #[test]
    fn a_path_without_traffic_is_tried_by_a_train_each_second() {
        let rate_window = Duration::from_millis(400);
        let mut monitor = monitor(MonitorSettings { rate_window, ..MonitorSettings::default() });
        leave(&mut monitor, 0);
        monitor.handle_answer(at(0), 0, &answer(1, 0, [0, 0]));
        monitor.handle_answer(at(150), 0, &answer(1, 150, [0, 75_000]));
        assert_eq!(kbps(&monitor), [0, 4000]);
        let trains = |messages: &[(usize, Message)]| -> Vec<(usize, u32, u8)> {
            let of = |(path, message): &(usize, Message)| match message {
                Message::Train(packet) => Some((*path, packet.train, packet.place)),
                _ => None,
            };
            messages.iter().filter_map(of).collect()
        };
        assert_eq!(trains(&leave(&mut monitor, 200)), [(0, 1, 0), (0, 1, 1), (0, 1, 2), (0, 1, 3)]);
        for millis in (400..=1000).step_by(200) {
            assert_eq!(trains(&leave(&mut monitor, millis)), [], "{millis}");
        }
        // What the receiver says of it is the path's rate, until there is traffic.
        let mut told = answer(2, 900, [0, 500_000]);
        let mut next = |monitor: &mut PathMonitor, millis, bytes: [u64; 2], train| {
            for (path, bytes) in told.paths.iter_mut().zip(bytes) {
                path.received_bytes += bytes;
            }
            (told.at_micros, told.paths[0].train, told.paths[0].train_bps) =
                (millis * 1000, train, 2_000_000);
            monitor.handle_answer(at(millis), 0, &told);
            kbps(monitor)[0]
        };
        assert_eq!(next(&mut monitor, 1000, [0, 0], 1), 2000);
        // It is tried on: the weight may be too small for a slot.
        assert_eq!(trains(&leave(&mut monitor, 1200)).len(), 4);
        assert_eq!(next(&mut monitor, 1300, [0, 100_000], 2), 2000);
        assert_eq!(trains(&leave(&mut monitor, 2200)).len(), 4);
        // The third one did not come until the fourth left.
        assert_eq!(next(&mut monitor, 2300, [0, 100_000], 2), 2000);
        assert_eq!(trains(&leave(&mut monitor, 3200)).len(), 4);
        assert_eq!(next(&mut monitor, 3300, [0, 100_000], 2), 0);
        assert_eq!(next(&mut monitor, 3400, [0, 100_000], 4), 2000);
        // There is traffic, which says less.
        assert_eq!(next(&mut monitor, 3700, [25_000, 100_000], 4), 500);
        assert_eq!(trains(&leave(&mut monitor, 4200)).len(), 0);
        assert_eq!(next(&mut monitor, 4300, [0, 100_000], 4), 0);
    }
}
