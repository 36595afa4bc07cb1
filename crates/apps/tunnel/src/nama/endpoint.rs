use std::collections::VecDeque;

use bytes::Bytes;
use polypath_units::{BitRate, Duration, Instant};

use crate::aggregator::{Aggregator, Transmit};
use crate::nama::delay_equalizer::DelayEqualizer;
use crate::nama::message::Message;
use crate::nama::path_monitor::{MonitorSettings, PathMonitor};
use crate::nama::reception::Reception;
use crate::nama::rounding::Rounding;
use crate::split::{PathView, Split, Splitter};

/// Headers of a probe, which the document sends by TCP over IPv4; those of a train are counted with its padding.
const PROBE_HEADER_BYTES: u16 = 40;

/// What an end of NAMA has.
#[derive(Clone, Debug)]
pub struct NamaSettings {
    /// Which path the next packet takes.
    pub split: Split,
    /// Rates are those that are measured. Otherwise the splitter has what was known beforehand.
    pub follows_rates: bool,
    /// The splitter is a send vector with so many slots, whose rounding errors are made up for. The document does not do so.
    pub dithered_slots: Option<u16>,
    /// For how long packets of a path are held.
    pub equalizing: Equalizing,
    /// How many packets are held at most. The document does not say.
    pub most_held: usize,
    /// How paths are looked at.
    pub monitor: MonitorSettings,
    /// Length of the packets that are sent back to back, in bytes: that of a full packet of the document.
    pub train_packet_bytes: u16,
}

/// For how long packets of faster paths are held at the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Equalizing {
    /// Not at all.
    Off,
    /// By the delays that are measured (Kaspar 2011, 4.2.1).
    Measured,
    /// Packets of all but the slowest path for so long, whatever is measured (Kaspar 2011, 4.1.2).
    Assumed(Duration),
}

impl Default for NamaSettings {
    fn default() -> Self {
        Self {
            split: Split::ALL[0].clone(),
            follows_rates: true,
            dithered_slots: None,
            equalizing: Equalizing::Measured,
            most_held: 1000,
            monitor: MonitorSettings::default(),
            train_packet_bytes: 1480,
        }
    }
}

/// One end of network-layer adaptive multipath aggregation (Kaspar 2011, 4.2).
///
/// Packets go over paths as they are: where the document writes the path's address into them, the datagram is the packet itself. An end watches its paths
/// once it has sent a packet.
#[derive(Debug)]
pub struct Nama {
    settings: NamaSettings,
    splitter: Box<dyn Splitter>,
    /// As the splitter sees them.
    paths: Vec<PathView>,
    monitor: Option<PathMonitor>,
    rounding: Option<Rounding>,
    /// How many measurements were heeded.
    heeded: u64,
    equalizer: DelayEqualizer<Bytes>,
    reception: Reception,
    answers: VecDeque<(usize, Message)>,
    delivered: VecDeque<Bytes>,
}

impl Nama {
    /// One end. What is known of the paths beforehand is heeded as far as nothing is measured.
    #[must_use]
    pub fn new(settings: NamaSettings, paths: &[PathView]) -> Self {
        let mut equalizer = DelayEqualizer::new(settings.most_held);
        if let Equalizing::Assumed(difference) = settings.equalizing {
            let slowest = paths.iter().map(|path| path.delay).max();
            for (number, path) in paths.iter().enumerate() {
                let delay = if Some(path.delay) == slowest { difference } else { Duration::ZERO };
                equalizer.handle_delay(number, delay);
            }
        }
        let alike = PathView { rate: BitRate::from_mbps(1), delay: Duration::ZERO };
        Self {
            splitter: settings.split.build(),
            paths: if settings.follows_rates { vec![alike; paths.len()] } else { paths.to_vec() },
            monitor: None,
            rounding: settings.dithered_slots.map(|slots| Rounding::new(u64::from(slots), paths.len())),
            heeded: 0,
            equalizer,
            reception: Reception::new(paths.len()),
            answers: VecDeque::new(),
            delivered: VecDeque::new(),
            settings,
        }
    }

    fn is_watching(&self) -> bool {
        self.settings.follows_rates || self.settings.equalizing == Equalizing::Measured
    }

    /// What the monitor knows is what the splitter and the equalizer go by.
    fn follow(&mut self) {
        let Some(monitor) = &self.monitor else { return };
        if self.settings.follows_rates
            && let Some(rates) = monitor.rates()
        {
            let rates: Vec<BitRate> = rates.collect();
            let counts = match &mut self.rounding {
                // Once for each measurement.
                Some(_) if self.heeded == monitor.measurements() => None,
                Some(rounding) => rounding.counts(&rates),
                None => None,
            };
            let rates = match counts {
                Some(counts) => counts.into_iter().map(BitRate::from_kbps).collect(),
                None if self.rounding.is_some() => Vec::new(),
                None => rates,
            };
            self.heeded = monitor.measurements();
            for (path, rate) in self.paths.iter_mut().zip(rates) {
                path.rate = rate;
            }
        }
        if self.settings.equalizing == Equalizing::Measured {
            for (number, delay) in monitor.delays().enumerate() {
                match delay {
                    Some(delay) => self.equalizer.handle_delay(number, delay),
                    None => self.equalizer.handle_path_lost(number),
                }
            }
        }
    }

    fn encode(&self, (path, message): (usize, Message)) -> Transmit {
        let bytes = usize::from(self.settings.train_packet_bytes.saturating_sub(PROBE_HEADER_BYTES));
        Transmit { path, datagram: message.encode(bytes), header_bytes: PROBE_HEADER_BYTES }
    }
}

impl Aggregator for Nama {
    fn handle_packet(&mut self, now: Instant, packet: Bytes) {
        if self.monitor.is_none() && self.is_watching() {
            let settings = self.settings.monitor.clone();
            self.monitor = Some(PathMonitor::new(settings, self.paths.len(), now));
        }
        // Without a path that takes packets it is lost.
        if let Some(path) = self.splitter.choose(&self.paths) {
            self.equalizer.handle_packet(now, path, packet);
        }
    }

    fn handle_datagram(&mut self, now: Instant, path: usize, datagram: Bytes) {
        match Message::decode(&datagram) {
            None => {
                self.reception.handle_packet(path, datagram.len() as u64);
                self.delivered.push_back(datagram);
            }
            Some(Message::Probe { number }) => {
                self.answers.push_back((path, Message::Answer(self.reception.answer(now, number))));
            }
            Some(Message::Answer(answer)) => {
                if let Some(monitor) = &mut self.monitor {
                    monitor.handle_answer(now, path, &answer);
                    self.follow();
                }
            }
            Some(Message::Train(packet)) => {
                let bytes = datagram.len() as u64 + u64::from(PROBE_HEADER_BYTES);
                self.reception.handle_train(now, path, packet, bytes);
            }
        }
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        if let Some(answer) = self.answers.pop_front() {
            return Some(self.encode(answer));
        }
        if let Some(message) = self.monitor.as_mut().and_then(|monitor| monitor.poll_transmit(now)) {
            // It may have found that a path is lost.
            self.follow();
            return Some(self.encode(message));
        }
        let (path, datagram) = self.equalizer.poll_transmit(now)?;
        Some(Transmit { path, datagram, header_bytes: 0 })
    }

    fn poll_packet(&mut self, _now: Instant) -> Option<Bytes> {
        self.delivered.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let monitor = self.monitor.as_ref().map(PathMonitor::poll_timeout);
        let waiting = !self.answers.is_empty() || !self.delivered.is_empty();
        let waiting = waiting.then_some(Instant::ZERO);
        [monitor, self.equalizer.poll_timeout(), waiting].into_iter().flatten().min()
    }
}
