//! iperf3's datagrams, without a socket: the words that open a stream, the header of each datagram, and what a receiver
//! finds out from it.

use std::time::Duration;

/// What a client sends to open a stream, and what the server answers.
pub(super) const HELLO: [u8; 4] = *b"9876";
pub(super) const WELCOME: [u8; 4] = *b"6789";
/// The same before version 3.10: the numbers 123456789 and 987654321.
const OLD_HELLO: [u8; 4] = 123_456_789_u32.to_le_bytes();
const OLD_WELCOME: [u8; 4] = 987_654_321_u32.to_le_bytes();

/// The answer to a word that opens a stream; none if it is another word.
pub(super) fn answer(word: &[u8]) -> Option<[u8; 4]> {
    let known = [(HELLO, WELCOME), (OLD_HELLO, OLD_WELCOME)];
    known.iter().find(|(hello, _)| word == hello).map(|(_, welcome)| *welcome)
}

/// Whether this is a server's answer.
pub(super) fn is_welcome(word: &[u8]) -> bool {
    word == WELCOME || word == OLD_WELCOME
}

/// What is at the beginning of each datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// By the sender's clock, whatever that counts from.
    pub(super) sent: Duration,
    /// From 1.
    pub(super) number: u64,
}

impl Header {
    /// Writes it to the beginning of a datagram of at least 16 bytes.
    pub(super) fn write(self, datagram: &mut [u8], is_wide: bool) {
        let seconds = self.sent.as_secs() as u32;
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&seconds.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.sent.subsec_micros().to_be_bytes());
        let length = if is_wide {
            bytes[8..].copy_from_slice(&self.number.to_be_bytes());
            16
        } else {
            bytes[8..12].copy_from_slice(&(self.number as u32).to_be_bytes());
            12
        };
        datagram[..length].copy_from_slice(&bytes[..length]);
    }

    /// None for what is too short or makes no sense.
    pub(super) fn read(datagram: &[u8], is_wide: bool) -> Option<Self> {
        let word = |at: usize| datagram.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
        let (seconds, micros) = (word(0)?, word(4)?);
        let number = if is_wide { u64::from(word(8)?) << 32 | u64::from(word(12)?) } else { word(8)?.into() };
        let sent =
            Duration::new(seconds.into(), micros.checked_mul(1000).filter(|nanos| *nanos < 1_000_000_000)?);
        Some(Self { sent, number })
    }
}

/// What a receiver knows of a stream. Numbers count from its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Arrivals {
    /// The highest number seen: so many were sent, as far as is known here.
    pub(super) packets: u64,
    /// Missing so far.
    pub(super) lost: u64,
    /// Came after one with a higher number.
    pub(super) out_of_order: u64,
    /// Seconds (RFC 3550 §6.4.1).
    pub(super) jitter: f64,
    /// Time that the last one was under way, by two clocks that need not agree.
    transit: Option<f64>,
}

impl Arrivals {
    /// One arrived. Says whether it counts: a number from a hostile sender is far ahead of the others.
    pub(super) fn add(&mut self, header: Header, arrived: Duration) -> bool {
        if header.number == 0 || header.number > self.packets.saturating_add(MAX_GAP) {
            return false;
        }
        if header.number > self.packets {
            self.lost += header.number - self.packets - 1;
            self.packets = header.number;
        } else {
            // It was taken for lost.
            self.out_of_order += 1;
            self.lost = self.lost.saturating_sub(1);
        }
        let transit = arrived.as_secs_f64() - header.sent.as_secs_f64();
        if let Some(last) = self.transit {
            self.jitter += ((transit - last).abs() - self.jitter) / 16.0;
        }
        self.transit = Some(transit);
        true
    }
}

/// Datagrams that may be missing in a row: minutes at a high rate.
const MAX_GAP: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_go_as_they_came() {
        let header = Header { sent: Duration::new(7, 123_456_000), number: 0x1_0000_0002 };
        let mut datagram = [0xff; 20];
        header.write(&mut datagram, true);
        assert_eq!(Header::read(&datagram, true), Some(header));
        header.write(&mut datagram, false);
        assert_eq!(Header::read(&datagram, false), Some(Header { number: 2, ..header }));
        assert_eq!(datagram[16..], [0xff; 4]);
        assert_eq!(Header::read(&datagram[..11], false), None);
        assert_eq!(Header::read(&[0xff; 16], false), None);
    }

    #[test]
    fn losses_and_order_are_counted_as_they_come() {
        let mut arrivals = Arrivals::default();
        let at = |number: u64, millis: u64| {
            (Header { sent: Duration::from_millis(number), number }, Duration::from_millis(100 + millis))
        };
        for (number, millis) in [(1, 1), (2, 2), (5, 5), (4, 6), (6, 8)] {
            let (header, arrived) = at(number, millis);
            assert!(arrivals.add(header, arrived));
        }
        assert_eq!((arrivals.packets, arrivals.lost, arrivals.out_of_order), (6, 1, 1));
        // Transit times in ms: 100, 100, 100, 102, 102.
        assert!((arrivals.jitter - 0.002 / 16.0 * (15.0 / 16.0)).abs() < 1e-9, "{}", arrivals.jitter);
        let (wild, arrived) = at(u64::MAX, 9);
        assert!(!arrivals.add(wild, arrived) && arrivals.packets == 6);
    }

    #[test]
    fn streams_are_opened_by_four_words() {
        assert_eq!(answer(b"9876"), Some(*b"6789"));
        assert_eq!(answer(&OLD_HELLO), Some(OLD_WELCOME));
        assert_eq!(answer(b"GET "), None);
        assert!(is_welcome(b"6789") && is_welcome(&OLD_WELCOME) && !is_welcome(b"9876"));
        // As the programs write them on a machine of this byte order.
        assert_eq!((0x3637_3839_u32.to_le_bytes(), 0x3938_3736_u32.to_le_bytes()), (HELLO, WELCOME));
    }
}
