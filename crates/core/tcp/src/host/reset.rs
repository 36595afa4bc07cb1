use alloc::vec::Vec;
use core::net::IpAddr;

use polypath_units::Instant;
use polypath_wire::{Segment, SeqNumber, TcpFlags};
use rand_core::Rng;
use siphasher::sip::SipHasher24;

use crate::listener::source_prefix;

/// The reset that answers a segment for which there is no connection (RFC 9293 §3.5.2, group 1); none for a
/// reset, so that two hosts can't reset each other for ever.
#[must_use]
pub fn reset_in_reply(segment: &Segment) -> Option<Segment> {
    if segment.flags.rst() {
        return None;
    }
    Some(if segment.flags.ack() {
        Segment { seq: segment.ack, flags: TcpFlags::RST, ..Segment::default() }
    } else {
        Segment {
            seq: SeqNumber(0),
            ack: segment.seq_end(),
            flags: TcpFlags::RST.with(TcpFlags::ACK),
            ..Segment::default()
        }
    })
}

/// Sources are counted in so many places; where two share one, they share its bound for that second.
const SOURCE_PLACES: usize = 256;

/// One source takes at most this part of a host's bound.
const SOURCE_PART: u64 = 4;

/// Bounds how often a host answers somebody that it has no connection with (RFC 5961 §7), or works for somebody.
///
/// Each second the bounds are drawn anew, between half and one and a half of what was asked for: from the answers to its own
/// segments nobody can count how many others got (CVE-2016-5696). One source takes a quarter of the host's bound, so that one who
/// floods from its own network takes nothing from others.
#[derive(Clone, Debug)]
pub struct ReplyLimit {
    per_second: u32,
    hash: SipHasher24,
    second: u64,
    /// Answers in this second: all, and by source.
    count: u64,
    by_source: Vec<u32>,
}

impl ReplyLimit {
    /// About `per_second` answers a second. The secret comes from `random`.
    #[must_use]
    pub fn new(per_second: u32, random: &mut impl Rng) -> Self {
        let hash = SipHasher24::new_with_keys(random.next_u64(), random.next_u64());
        Self { per_second, hash, second: 0, count: 0, by_source: Vec::new() }
    }

    /// True if `remote` may be answered now; then it is counted.
    #[must_use]
    pub(crate) fn allows(&mut self, now: Instant, remote: IpAddr) -> bool {
        self.allows_many(now, remote, 1)
    }

    /// Whether an answer may leave for what counts as so many answers. The last of a second may go beyond the bound.
    #[must_use]
    pub fn allows_many(&mut self, now: Instant, remote: IpAddr, count: u32) -> bool {
        let second = now.as_millis() / 1000;
        if self.second != second || self.by_source.is_empty() {
            self.second = second;
            self.count = 0;
            self.by_source.clear();
            self.by_source.resize(SOURCE_PLACES, 0);
        }
        let place = self.draw(!second, source_prefix(remote)) as usize % SOURCE_PLACES;
        let most = self.around(u64::from(self.per_second), SOURCE_PLACES as u64);
        let most_of_source = self.around(u64::from(self.per_second).div_ceil(SOURCE_PART), place as u64);
        let Some(of_source) = self.by_source.get_mut(place) else { return false };
        if self.count >= most || u64::from(*of_source) >= most_of_source {
            return false;
        }
        self.count += u64::from(count);
        *of_source = of_source.saturating_add(count);
        true
    }

    /// A number from half of `middle` to one and a half, another in each second and for each `what`.
    fn around(&self, middle: u64, what: u64) -> u64 {
        middle / 2 + self.draw(self.second + 1, what) % (middle + 1)
    }

    fn draw(&self, second: u64, what: u64) -> u64 {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&second.to_be_bytes());
        bytes[8..].copy_from_slice(&what.to_be_bytes());
        self.hash.hash(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use polypath_units::Duration;
    use rand_chacha::ChaCha8Rng;
    use rand_core::SeedableRng;

    use super::*;

    #[test]
    fn takes_its_numbers_from_the_segment() {
        let data = Segment { ack: SeqNumber(77), flags: TcpFlags::ACK, ..Segment::default() };
        let reset = reset_in_reply(&data).unwrap();
        assert_eq!((reset.seq, reset.flags), (SeqNumber(77), TcpFlags::RST));

        let syn = Segment { seq: SeqNumber(41), flags: TcpFlags::SYN, ..Segment::default() };
        let reset = reset_in_reply(&syn).unwrap();
        assert_eq!((reset.seq, reset.ack, reset.flags), (SeqNumber(0), SeqNumber(42), TcpFlags(0x14)));
        assert_eq!(reset_in_reply(&reset), None);
    }

    fn addr(network: u32) -> IpAddr {
        Ipv4Addr::from_bits(network << 8 | 1).into()
    }

    fn limit(per_second: u32) -> ReplyLimit {
        ReplyLimit::new(per_second, &mut ChaCha8Rng::seed_from_u64(3))
    }

    #[test]
    fn one_source_leaves_answers_for_others() {
        let mut limit = limit(1000);
        let now = Instant::from_secs(5);
        let flooded = (0..100_000).filter(|_| limit.allows(now, addr(1))).count();
        assert!((125..=375).contains(&flooded), "{flooded}");
        let others = (2..50).filter(|network| limit.allows(now, addr(*network))).count();
        assert!(others > 40, "{others} of 48: a few share its place");
        let all: usize = flooded + others + (50..100_000).filter(|at| limit.allows(now, addr(*at))).count();
        assert!((500..=1500).contains(&all), "{all}");
        assert!(limit.allows(now + Duration::from_secs(1), addr(1)));
    }

    /// Whoever counts its own answers in each second does not learn whether the host gave ten to another.
    #[test]
    fn the_bound_of_a_second_is_nobodys_to_know() {
        let counts = |others: u32| -> Vec<usize> {
            let mut limit = limit(100);
            let second = |second| {
                let now = Instant::from_secs(second);
                (0..others).for_each(|other| assert!(limit.allows(now, addr(1000 + other))));
                (0..2000).filter(|at| limit.allows(now, addr(*at % 200))).count()
            };
            (1..200).map(second).collect()
        };
        let spread = |counts: &[usize]| (*counts.iter().min().unwrap(), *counts.iter().max().unwrap());
        let (quiet, busy) = (counts(0), counts(10));
        let (least, most) = spread(&quiet);
        assert!(most - least > 80, "{least} to {most}");
        let mixed = quiet.iter().filter(|count| (**count as u32) < 100 - 10).count();
        assert!(mixed > 40, "quiet seconds look like busy ones: {mixed} of 199");
        let mixed = busy.iter().filter(|count| **count > 100).count();
        assert!(mixed > 40, "busy seconds look like quiet ones: {mixed} of 199");
    }

    #[test]
    fn none_are_none() {
        let mut limit = limit(0);
        assert!((0..1000).all(|second| !limit.allows(Instant::from_secs(second), addr(1))));
    }
}
