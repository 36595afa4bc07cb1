//! Which repair packets are sent.

use std::collections::VecDeque;

use cu_fec::{DensityThreshold, EncodingSymbolId, RepairParameters, RlcEncoder};
use polypath_units::{Duration, Instant};

use super::{ENCODING_WINDOW, SYMBOL_BYTES, config, fill};
use crate::frame::{Esi, RepairHeader};

/// A packet waits no longer for one that repairs it. A voice has a packet each 20 ms: two of them share one.
const MOST_WAIT: Duration = Duration::from_millis(25);
/// Paths that lose less are left alone.
const LEAST_LOSS: f64 = 0.001;
/// Repair packets have at most this share of the bytes of what they repair.
const MOST_OVERHEAD: f64 = 0.5;
/// What was left of that share is for bursts, up to so many long packets.
const MOST_SAVED_BYTES: f64 = (4 * SYMBOL_BYTES) as f64;

/// Repair packets for each source packet on a path that loses so much: what is lost on average of as many as one covers, and of them
/// themselves, and three deviations more. Of random losses from 0.5 to 10 % less than one packet in 3000 is left then.
fn repairs_for(loss: f64) -> f64 {
    if loss < LEAST_LOSS {
        return 0.0;
    }
    let deviation = (loss / ENCODING_WINDOW as f64).sqrt();
    ((loss + 3.0 * deviation) / (1.0 - loss).max(0.5)).min(MOST_OVERHEAD)
}

/// A source packet that the next repair packet covers.
#[derive(Clone, Copy, Debug)]
struct Covered {
    path: usize,
    len_bytes: usize,
}

pub(crate) struct FecSender {
    coder: Box<RlcEncoder<SYMBOL_BYTES, ENCODING_WINDOW>>,
    symbol: Box<[u8; SYMBOL_BYTES]>,
    covered: VecDeque<Covered>,
    /// Makes each repair packet another combination.
    key: u16,
    /// Repair packets that the loss asks for.
    owed: f64,
    left_bytes: f64,
    /// When the first packet left that no repair packet covers.
    waits_since: Option<Instant>,
}

impl FecSender {
    pub(crate) fn new() -> Option<Self> {
        let coder = RlcEncoder::new(config(ENCODING_WINDOW).ok()?, EncodingSymbolId::new(0)).ok()?;
        Some(Self {
            coder: Box::new(coder),
            symbol: Box::new([0; SYMBOL_BYTES]),
            covered: VecDeque::new(),
            key: 0,
            owed: 0.0,
            left_bytes: SYMBOL_BYTES as f64,
            waits_since: None,
        })
    }

    /// Whether packets on a path that loses so much are protected, if they have this length with their header.
    pub(crate) fn protects(loss: f64, len_bytes: usize) -> bool {
        loss >= LEAST_LOSS && len_bytes <= SYMBOL_BYTES
    }

    /// The number of the next source packet.
    pub(crate) fn next_esi(&self) -> Esi {
        Esi::new(self.coder.next_esi().get() as u16)
    }

    /// The packet with [`FecSender::next_esi`] leaves over a path that loses so much.
    pub(crate) fn handle_sent(&mut self, now: Instant, frame: &[u8], path: usize, loss: f64) {
        if fill(&mut self.symbol, frame, &[]).is_none() || self.coder.push_source(&self.symbol[..]).is_err() {
            return;
        }
        if self.covered.len() == ENCODING_WINDOW {
            self.covered.pop_front();
        }
        self.covered.push_back(Covered { path, len_bytes: frame.len() });
        self.owed = (self.owed + repairs_for(loss)).min(ENCODING_WINDOW as f64);
        self.left_bytes = (self.left_bytes + frame.len() as f64 * MOST_OVERHEAD).min(MOST_SAVED_BYTES);
        self.waits_since.get_or_insert(now);
    }

    /// When the next repair packet is due, whatever comes.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        self.waits_since.map(|since| since + MOST_WAIT)
    }

    /// How many of the packets that the next repair packet covers took this path.
    pub(crate) fn covered_on(&self, path: usize) -> usize {
        self.covered.iter().filter(|covered| covered.path == path).count()
    }

    /// Length of the next repair packet.
    pub(crate) fn repair_bytes(&self) -> usize {
        RepairHeader::BYTES + self.symbol_bytes()
    }

    fn symbol_bytes(&self) -> usize {
        self.covered.iter().map(|covered| covered.len_bytes).max().unwrap_or(0)
    }

    /// The frame of a repair packet, if one is due.
    pub(crate) fn poll_repair(&mut self, now: Instant) -> Option<Box<[u8]>> {
        let is_due = self.due_at().is_some_and(|at| at <= now);
        if !is_due && self.owed < 1.0 {
            return None;
        }
        let symbol_bytes = self.symbol_bytes();
        self.owed = (self.owed - 1.0).max(0.0);
        self.waits_since = None;
        if self.left_bytes < symbol_bytes as f64 {
            return None;
        }
        let parameters = RepairParameters::new(self.key, DensityThreshold::FULL);
        let id = self.coder.encode_repair(parameters, &mut self.symbol[..]).ok()?;
        self.key = self.key.wrapping_add(1);
        self.left_bytes -= symbol_bytes as f64;
        let header = RepairHeader {
            first: Esi::new(id.first_source_esi().get() as u16),
            count: id.source_symbols() as u8,
            key: id.repair_key(),
        };
        let mut frame = vec![0; RepairHeader::BYTES + symbol_bytes];
        header.write(&mut frame);
        frame[RepairHeader::BYTES..].copy_from_slice(&self.symbol[..symbol_bytes]);
        Some(frame.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Repair packets and their bytes for a flow of packets of one length.
    fn run(loss: f64, packets: u64, spacing: Duration, len_bytes: usize) -> (usize, usize) {
        let mut sender = FecSender::new().unwrap();
        let (mut count, mut bytes) = (0, 0);
        for number in 0..packets {
            let now = Instant::from_secs(1) + spacing * number;
            let due = sender.due_at().filter(|&at| at <= now);
            for at in due.into_iter().chain([now]) {
                if at == now {
                    sender.handle_sent(now, &vec![1; len_bytes], 0, loss);
                }
                while let Some(repair) = sender.poll_repair(at) {
                    assert_eq!(repair.len(), RepairHeader::BYTES + len_bytes);
                    count += 1;
                    bytes += repair.len() - RepairHeader::BYTES;
                }
            }
        }
        (count, bytes)
    }

    #[test]
    fn there_are_as_many_as_the_loss_asks_for() {
        let spacing = Duration::from_micros(100);
        for (loss, expected) in [(0.002, 28..=30), (0.02, 108..=110), (0.1, 324..=327), (0.5, 499..=501)] {
            let (count, _) = run(loss, 1_000, spacing, 1_405);
            assert!(expected.contains(&count), "{loss}: {count}");
        }
    }

    #[test]
    fn slow_flows_have_one_for_two_packets_and_no_more_than_half_the_bytes() {
        let (count, bytes) = run(0.02, 1_000, Duration::from_millis(20), 205);
        assert!((490..=510).contains(&count), "{count}");
        let (_, lone) = run(0.02, 1_000, Duration::from_millis(200), 205);
        for bytes in [bytes, lone] {
            assert!(bytes <= 1_000 * 205 / 2 + SYMBOL_BYTES, "{bytes}");
        }
    }

    #[test]
    fn what_loses_nothing_is_left_alone() {
        assert!(!FecSender::protects(0.0, 100) && FecSender::protects(0.01, 100));
        assert!(!FecSender::protects(0.01, SYMBOL_BYTES + 1));
        assert_eq!(repairs_for(0.0005), 0.0);
    }

    #[test]
    fn the_last_packets_of_a_flow_are_covered_too() {
        let mut sender = FecSender::new().unwrap();
        let now = Instant::from_secs(1);
        sender.handle_sent(now, &[7; 100], 3, 0.01);
        assert_eq!(sender.poll_repair(now), None);
        assert_eq!((sender.covered_on(3), sender.covered_on(1)), (1, 0));
        let at = sender.due_at().unwrap();
        assert!(sender.poll_repair(at).is_some());
        assert_eq!((sender.due_at(), sender.poll_repair(at)), (None, None));
    }
}
