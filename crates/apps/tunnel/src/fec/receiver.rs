//! Packets that are rebuilt.

use cu_fec::{DensityThreshold, EncodingSymbolId, Error, RepairPayloadId, RlcDecoder};

use super::{ENCODING_WINDOW, SYMBOL_BYTES, config, fill};
use crate::frame::{DATA_HEADER_BYTES, DataHeader, Esi, RepairHeader};

/// Source packets that are remembered: those of a repair packet, and those that overtook it on another path.
const WINDOW: u32 = u128::BITS;
/// When the window is full, so many stay.
const KEPT: u32 = WINDOW / 2;
/// Repair packets that wait for others.
const EQUATIONS: usize = 16;
/// One costs as much as some ten other packets. An honest peer sends fewer repair packets than others; more than so many ahead of them are
/// not looked at.
const MOST_AHEAD: u32 = 32;

type Coder = RlcDecoder<SYMBOL_BYTES, { WINDOW as usize }, EQUATIONS>;

/// What became of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FecOutcome {
    /// Packets that were rebuilt.
    pub(crate) rebuilt: u64,
    /// Packets that are not waited for any more: too few repair packets came.
    pub(crate) missing: u64,
}

/// What came of late: its memory is the same whatever a peer sends.
pub(crate) struct FecReceiver {
    coder: Box<Coder>,
    symbol: Box<[u8; SYMBOL_BYTES]>,
    /// The first number of the window.
    base: u32,
    /// Behind the newest number.
    end: u32,
    /// Numbers from `base` on that came, or were rebuilt.
    came: u128,
    repairs_left: u32,
}

impl FecReceiver {
    /// Before the first packet, which has this number.
    pub(crate) fn new(first: Esi) -> Option<Self> {
        // Those just before it may be lost. Numbers of 16 bits are continued from here.
        let base = u32::from(first.bits()).saturating_sub(ENCODING_WINDOW as u32);
        Some(Self {
            coder: Self::coder(base)?,
            symbol: Box::new([0; SYMBOL_BYTES]),
            base,
            end: base,
            came: 0,
            repairs_left: MOST_AHEAD,
        })
    }

    fn coder(base: u32) -> Option<Box<Coder>> {
        let mut coder = Box::new(Coder::new(config(WINDOW as usize).ok()?, EQUATIONS).ok()?);
        coder.discard_before(EncodingSymbolId::new(base)).ok()?;
        Some(coder)
    }

    /// A source packet came. `rebuilt` gets the frames of others that are known by it.
    pub(crate) fn handle_source(
        &mut self,
        esi: Esi,
        header: &DataHeader,
        packet: &[u8],
        rebuilt: &mut impl FnMut(&[u8]),
    ) -> FecOutcome {
        let mut outcome = FecOutcome::default();
        let number = self.number(esi);
        self.advance(number.wrapping_add(1), &mut outcome);
        let Some(bit) = self.bit(number) else { return outcome };
        let mut written = [0; DATA_HEADER_BYTES];
        DataHeader::new(header.order, header.flow, header.sequence).write(&mut written);
        if fill(&mut self.symbol, &written, packet).is_none() {
            return outcome;
        }
        self.repairs_left = (self.repairs_left + 1).min(MOST_AHEAD);
        self.came |= bit;
        match self.coder.receive_source(EncodingSymbolId::new(number), &self.symbol[..]) {
            Ok(report) if report.recovered() > 0 => self.take_rebuilt(rebuilt, &mut outcome),
            Ok(_) => {}
            Err(error) => self.handle_error(error),
        }
        outcome
    }

    /// A repair packet came.
    pub(crate) fn handle_repair(
        &mut self,
        header: &RepairHeader,
        combination: &[u8],
        rebuilt: &mut impl FnMut(&[u8]),
    ) -> FecOutcome {
        let mut outcome = FecOutcome::default();
        let (first, count) = (self.number(header.first), u32::from(header.count));
        if count > ENCODING_WINDOW as u32 || self.repairs_left == 0 {
            return outcome;
        }
        self.advance(first.wrapping_add(count), &mut outcome);
        let covered = (0..count).map(|offset| self.bit(first.wrapping_add(offset)));
        // `None` if a part of it is forgotten: then it is of no use.
        let Some(covered) = covered.sum::<Option<u128>>() else { return outcome };
        let is_needed = self.came & covered != covered;
        if !is_needed || fill(&mut self.symbol, &[], combination).is_none() {
            return outcome;
        }
        let first = EncodingSymbolId::new(first);
        let id = RepairPayloadId::new(header.key, DensityThreshold::FULL, count as u16, first);
        let Ok(id) = id else { return outcome };
        self.repairs_left -= 1;
        match self.coder.receive_repair(id, &self.symbol[..]) {
            Ok(report) if report.recovered() > 0 => self.take_rebuilt(rebuilt, &mut outcome),
            Ok(_) => {}
            Err(error) => self.handle_error(error),
        }
        outcome
    }

    /// The number that is closest to the newest.
    fn number(&self, esi: Esi) -> u32 {
        let ahead = esi.bits().wrapping_sub(self.end as u16) as i16;
        self.end.wrapping_add_signed(ahead.into())
    }

    /// Its place in the window, if it is there.
    fn bit(&self, number: u32) -> Option<u128> {
        1_u128.checked_shl(number.wrapping_sub(self.base))
    }

    /// The window reaches to `end`, at least.
    fn advance(&mut self, end: u32, outcome: &mut FecOutcome) {
        if (end.wrapping_sub(self.end) as i32) <= 0 {
            return;
        }
        self.end = end;
        let over = end.wrapping_sub(self.base);
        if over <= WINDOW {
            return;
        }
        let gone = over - KEPT;
        let left = self.came.checked_shr(gone).unwrap_or(0);
        let came = self.came.count_ones() - left.count_ones();
        outcome.missing += u64::from(gone.min(WINDOW) - came);
        self.came = left;
        self.base = end.wrapping_sub(KEPT);
        if self.coder.discard_before(EncodingSymbolId::new(self.base)).is_err() {
            self.begin_anew();
        }
    }

    fn take_rebuilt(&mut self, rebuilt: &mut impl FnMut(&[u8]), outcome: &mut FecOutcome) {
        for offset in 0..WINDOW {
            let bit = 1 << offset;
            if self.came & bit == 0
                && let Some(symbol) = self.coder.symbol(EncodingSymbolId::new(self.base.wrapping_add(offset)))
            {
                self.came |= bit;
                outcome.rebuilt += 1;
                rebuilt(symbol);
            }
        }
    }

    fn handle_error(&mut self, error: Error) {
        // What contradicts itself stays, and would be in the way of all that follows.
        if matches!(error, Error::ConflictingSource | Error::InconsistentEquation) {
            self.begin_anew();
        }
    }

    fn begin_anew(&mut self) {
        if let Some(coder) = Self::coder(self.end) {
            (self.coder, self.base, self.came) = (coder, self.end, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use polypath_units::{Duration, Instant};
    use proptest::prelude::*;

    use super::*;
    use crate::fec::FecSender;
    use crate::frame::{Frame, Order, Sequence};

    /// A frame of a packet, of a length that its number gives.
    fn frame(number: u32) -> Vec<u8> {
        let len = 20 + number as usize * 37 % 1_400;
        let mut frame = vec![number as u8; DATA_HEADER_BYTES + len];
        DataHeader::new(Order::FirstCopy, 3, Sequence::new(number)).write(&mut frame);
        frame
    }

    const SPACING: Duration = Duration::from_millis(5);

    enum Sent {
        Source(Esi, u32),
        Repair(Box<[u8]>),
    }

    /// What is sent for so many packets at that loss.
    fn sent(packets: u32, spacing: Duration, loss: f64) -> Vec<Sent> {
        let mut sender = FecSender::new().unwrap();
        let mut all = Vec::new();
        for number in 0..packets {
            let now = Instant::from_secs(1) + spacing * u64::from(number);
            let esi = sender.next_esi();
            sender.handle_sent(now, &frame(number), 0, loss);
            all.push(Sent::Source(esi, number));
            while let Some(repair) = sender.poll_repair(now) {
                all.push(Sent::Repair(repair));
            }
        }
        all
    }

    #[derive(Default)]
    struct End {
        receiver: Option<FecReceiver>,
        rebuilt: Vec<u32>,
        outcome: FecOutcome,
    }

    impl End {
        fn handle(&mut self, sent: &Sent) {
            let rebuilt = &mut self.rebuilt;
            let mut take = |bytes: &[u8]| {
                let Some(Frame::Data(header, _)) = Frame::parse(bytes) else { panic!("no frame") };
                let number = header.sequence.ahead_of(Sequence::default()) as u32;
                let frame = frame(number);
                assert_eq!(&bytes[..frame.len()], &frame[..]);
                assert!(bytes[frame.len()..].iter().all(|&byte| byte == 0));
                rebuilt.push(number);
            };
            let outcome = match sent {
                Sent::Source(esi, number) => {
                    let header = DataHeader::new(Order::FirstCopy, 3, Sequence::new(*number));
                    let header = DataHeader { time: Some(9), esi: Some(*esi), ..header };
                    let receiver = self.receiver.get_or_insert_with(|| FecReceiver::new(*esi).unwrap());
                    receiver.handle_source(*esi, &header, &frame(*number)[DATA_HEADER_BYTES..], &mut take)
                }
                Sent::Repair(bytes) => {
                    let Some(Frame::Repair(header)) = Frame::parse(bytes) else { panic!("no repair") };
                    let receiver =
                        self.receiver.get_or_insert_with(|| FecReceiver::new(header.first).unwrap());
                    receiver.handle_repair(&header, &bytes[RepairHeader::BYTES..], &mut take)
                }
            };
            self.outcome.rebuilt += outcome.rebuilt;
            self.outcome.missing += outcome.missing;
        }
    }

    fn source(number: u32) -> Sent {
        Sent::Source(Esi::new(number as u16), number)
    }

    #[test]
    fn a_burst_is_rebuilt_and_numbers_go_on_after_they_wrap() {
        let mut end = End::default();
        let lost = |number: u32| number % 4_000 / 3 == 1;
        for sent in sent(67_000, Duration::from_micros(100), 0.05) {
            match sent {
                Sent::Source(_, number) if lost(number) => {}
                _ => end.handle(&sent),
            }
        }
        let expected: Vec<_> = (0..67_000).filter(|&number| lost(number)).collect();
        end.rebuilt.sort_unstable();
        assert_eq!(end.rebuilt, expected);
        assert_eq!(end.outcome, FecOutcome { rebuilt: expected.len() as u64, missing: 0 });
    }

    #[test]
    fn what_too_few_repair_packets_came_for_is_counted() {
        let mut end = End::default();
        for sent in sent(1_000, SPACING, 0.02) {
            match sent {
                // Half of a window, of which the repair packets make up for a part at most.
                Sent::Source(_, number) if number % 500 < 10 => {}
                _ => end.handle(&sent),
            }
        }
        assert_eq!(end.outcome, FecOutcome { rebuilt: 0, missing: 20 });
    }

    #[test]
    fn repair_packets_that_nobody_needs_cost_nothing_and_a_flood_is_not_looked_at() {
        let mut end = End::default();
        let header = |first: u32, key| RepairHeader { first: Esi::new(first as u16), count: 16, key };
        end.handle(&source(20));
        let receiver = end.receiver.as_mut().unwrap();
        for key in 0..10_000 {
            let bytes = [key as u8; 40];
            receiver.handle_repair(&header(4 + u32::from(key) % 3, key), &bytes, &mut |_| ());
        }
        assert_eq!(receiver.repairs_left, 0);
        for number in 0..200 {
            end.handle(&source(100 + number));
        }
        let receiver = end.receiver.as_mut().unwrap();
        assert_eq!(receiver.repairs_left, MOST_AHEAD);
        receiver.handle_repair(&header(280, 1), &[1; 40], &mut |_| panic!("nothing is missing"));
        assert_eq!(receiver.repairs_left, MOST_AHEAD);
    }

    #[test]
    fn what_contradicts_itself_stands_in_the_way_of_nothing() {
        let mut end = End::default();
        for number in 0..40 {
            end.handle(&source(number));
        }
        // A repair packet about a packet that comes later with other contents.
        let forged = RepairHeader { first: Esi::new(38), count: 3, key: 5 };
        end.receiver.as_mut().unwrap().handle_repair(&forged, &[9; 700], &mut |_| ());
        end.handle(&source(40));
        let mut sender = FecSender::new().unwrap();
        for number in 0..80 {
            sender.handle_sent(Instant::from_secs(1), &frame(number), 0, 0.02);
            if number > 40 && number != 70 {
                end.handle(&source(number));
            }
        }
        let repair = sender.poll_repair(Instant::from_secs(2)).unwrap();
        end.rebuilt.clear();
        end.handle(&Sent::Repair(repair));
        assert_eq!(end.rebuilt, [70]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever is lost, doubled, or comes late: what is rebuilt is what was sent, and once.
        #[test]
        fn what_is_rebuilt_is_what_was_lost(fates in proptest::collection::vec((0..10_u8, 0..30_usize), 300)) {
            let all = sent(200, SPACING, 0.2);
            let mut order: Vec<_> = all.iter().zip(&fates).enumerate()
                .filter(|(_, (_, (fate, _)))| *fate >= 2)
                .flat_map(|(at, (sent, (fate, delay)))| {
                    let copies = if *fate == 9 { 2 } else { 1 };
                    (0..copies).map(move |copy| (at + delay * usize::from(fate % 3 == 0) + copy * 7, sent))
                })
                .collect();
            order.sort_by_key(|(at, _)| *at);
            let mut end = End::default();
            order.iter().for_each(|(_, sent)| end.handle(sent));
            let count = end.rebuilt.len();
            end.rebuilt.sort_unstable();
            end.rebuilt.dedup();
            prop_assert_eq!(end.rebuilt.len(), count);
            prop_assert_eq!(end.outcome.rebuilt, count as u64);
        }
    }
}
