//! What a fuzz target does, shared with the deterministic run in the tests: it panics where the contract of this crate is broken.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use polypath_units::{Duration, Instant};
use polypath_wire::{
    Endpoint, FourTuple, Payload, SackBlock, Segment, SeqNumber, TcpFlags, TcpOption, Timestamps, Transport,
};

use crate::{Config, Connection, Setup};

/// Rounds in which a peer that acknowledges all that it gets gets everything.
const HONEST_ROUNDS: u32 = 400;

/// A sender, and a peer that has got everything that was sent and says what the bytes tell it to.
struct Sender {
    now: Instant,
    tcp: Connection<()>,
    isn: SeqNumber,
    enqueued: usize,
    /// Stream offset after the last byte that left.
    sent_end: u64,
    timestamp: u32,
}

fn byte_at(offset: usize) -> u8 {
    (offset.wrapping_mul(2_654_435_761) >> 13) as u8
}

/// Acknowledgments with any selective blocks, any windows and any times: what is in flight is never more than what is outstanding,
/// a timer is set while something is outstanding, what leaves is what was queued, and a peer that is honest from then on gets
/// everything.
pub fn scoreboard(bytes: &[u8]) {
    let (setup, records) = bytes.split_at(bytes.len().min(4));
    let mut sender = Sender::new(&[setup, &[0; 4]].concat());
    for record in records.chunks(8) {
        let mut whole = [0; 8];
        whole[..record.len()].copy_from_slice(record);
        sender.apply(whole);
        sender.transmit();
        sender.check();
    }
    sender.finish();
}

impl Sender {
    fn new(setup: &[u8]) -> Self {
        let bit = |at: usize| setup[0] >> at & 1 == 1;
        let config = Config {
            sack: !bit(0),
            timestamps: bit(1),
            pacing: !bit(2),
            no_delay: !bit(3),
            max_aggregate_bytes: if bit(4) { 65_000 } else { 0 },
            initial_window_packets: 1 + u32::from(setup[1]),
            retries: u8::MAX,
            ..Config::default()
        };
        let now = Instant::from_secs(1);
        let isn = SeqNumber(u32::MAX - 20_000 * u32::from(setup[2] % 4));
        let tuple = FourTuple {
            local: Endpoint::new(Ipv4Addr::new(10, 0, 0, 1).into(), 40_000),
            remote: Endpoint::new(Ipv4Addr::new(10, 0, 0, 2).into(), 80),
        };
        let algorithms = polypath_congestion::Policy::ALL;
        let congestion = algorithms[usize::from(setup[3]) % algorithms.len()].clone();
        let setup = Setup { tuple, isn, timestamp_offset: 7, config: Arc::new(config), congestion };
        let mut sender =
            Self { now, tcp: Connection::connect(now, setup), isn, enqueued: 0, sent_end: 0, timestamp: 0 };
        sender.transmit();
        let mut answer = sender.segment(0);
        answer.flags = TcpFlags::SYN.with(TcpFlags::ACK);
        answer.seq = SeqNumber(0);
        answer.options.rest =
            Vec::from([TcpOption::Mss(1460), TcpOption::SackPermitted, TcpOption::WindowScale(8)]);
        answer.options.timestamps = Some(Timestamps { value: 1, echo: sender.timestamp });
        sender.now += Duration::from_millis(20);
        sender.hear(answer);
        sender
    }

    /// An acknowledgment of the first `offset` bytes of the stream.
    fn segment(&self, offset: u64) -> Segment {
        let mut segment = Segment {
            src_port: 80,
            dst_port: 40_000,
            seq: SeqNumber(1),
            ack: self.isn.add(1).add(offset as u32),
            flags: TcpFlags::ACK,
            window: u16::MAX,
            ..Segment::default()
        };
        segment.options.timestamps =
            Some(Timestamps { value: self.now.as_millis() as u32, echo: self.timestamp });
        segment
    }

    fn hear(&mut self, mut segment: Segment) {
        self.tcp.handle_segment(self.now, &mut segment, &mut ());
        while self.tcp.poll().is_some() {}
    }

    fn apply(&mut self, record: [u8; 8]) {
        let [kind, amount, window, rest @ ..] = record;
        match kind % 8 {
            0 => self.enqueue(1 + (usize::from(amount) << (window % 10))),
            1 => self.now += Duration::from_micros(1 + (u64::from(amount) << (window % 16))),
            2 => self.time_out(),
            _ => {
                let (una, next) = (self.tcp.acked_offset(), self.sent_end);
                let range = next.saturating_sub(una);
                let ack = match kind / 8 % 8 {
                    0..4 => una,
                    4 | 5 => una + range * u64::from(amount) / 256,
                    6 => una + range * u64::from(amount) / 128,
                    _ => una.saturating_sub(u64::from(amount) << 4),
                };
                let mut segment = self.segment(ack);
                segment.window = if window < 200 { u16::MAX } else { u16::from(window - 200) };
                for pair in rest.chunks_exact(2).take(usize::from(kind >> 6)) {
                    // Beyond what is outstanding at both ends, too.
                    let at = |byte: u8| una + (range + 4000) * u64::from(byte) / 256;
                    let start = at(pair[0]).saturating_sub(2000);
                    let end = start + 1 + range * u64::from(pair[1]) / 512;
                    let number = |offset: u64| self.isn.add(1).add(offset as u32);
                    segment.options.sack.push(SackBlock { start: number(start), end: number(end) });
                }
                self.hear(segment);
            }
        }
    }

    fn enqueue(&mut self, count: usize) {
        let data: Vec<u8> = (self.enqueued..self.enqueued + count).map(byte_at).collect();
        self.enqueued += count;
        self.tcp.enqueue(data.into(), ());
    }

    fn time_out(&mut self) {
        if let Some(at) = self.tcp.poll_timeout() {
            self.now = self.now.max(at);
            self.tcp.handle_timeout(self.now, &mut ());
        }
        while self.tcp.poll().is_some() {}
    }

    fn transmit(&mut self) {
        while let Some(packet) = self.tcp.poll_transmit(self.now, &mut ()) {
            let Transport::Tcp(segment) = packet.transport else { panic!("TCP sends TCP") };
            self.timestamp = segment.options.timestamps.map_or(0, |timestamps| timestamps.value);
            if segment.payload.is_empty() {
                continue;
            }
            let near = segment.seq.diff(self.isn.add(1).add(self.sent_end as u32));
            let offset = self.sent_end.checked_add_signed(near.into()).expect("no byte before the first");
            self.check_payload(offset as usize, &segment.payload);
            let end = offset + segment.payload.len() as u64;
            assert!(end <= self.enqueued as u64, "what was never queued left");
            self.sent_end = self.sent_end.max(end);
        }
    }

    fn check_payload(&self, offset: usize, payload: &Payload) {
        let sent = payload.slices().iter().flat_map(|slice| slice.iter().copied());
        for (at, byte) in sent.enumerate() {
            assert_eq!(byte, byte_at(offset + at), "another byte left at {}", offset + at);
        }
    }

    fn check(&self) {
        let info = self.tcp.info();
        let (acked, sent) = (self.tcp.acked_offset(), self.tcp.sent_offset());
        assert!(acked <= sent && sent <= self.tcp.enqueued_offset());
        let outstanding = sent - acked;
        assert!(info.sacked_bytes <= outstanding, "{} of {outstanding} selectively", info.sacked_bytes);
        assert!(info.lost_bytes <= outstanding, "{} of {outstanding} lost", info.lost_bytes);
        assert!(info.in_flight_bytes <= 2 * outstanding + 1, "{info:?}");
        let waits = self.tcp.enqueued_offset() > acked;
        assert!(!waits || self.tcp.poll_timeout().is_some(), "data waits without a timer: {info:?}");
    }

    /// The peer acknowledges all that has left, and opens its window.
    fn finish(&mut self) {
        for _ in 0..HONEST_ROUNDS {
            if self.tcp.acked_offset() == self.tcp.enqueued_offset() {
                return;
            }
            self.hear(self.segment(self.sent_end));
            self.transmit();
            self.check();
            self.time_out();
            self.transmit();
        }
        panic!("{} of {} bytes arrived", self.tcp.acked_offset(), self.enqueued);
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_core::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn whatever_is_acknowledged_the_sender_keeps_its_books() {
        for seed in 0..400 {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let mut bytes = std::vec![0; 4 + 8 * (1 + random.next_u32() as usize % 200)];
            random.fill_bytes(&mut bytes);
            scoreboard(&bytes);
        }
    }
}
