//! The scoreboard against one that walks a list.

use alloc::vec;

use proptest::prelude::*;

use super::super::*;
use super::reference;

#[derive(Clone, Debug)]
enum Happening {
    Push(u64),
    Sack(u64, u64),
    Acknowledge(u64),
    /// Reference: milliseconds ago, position; window in milliseconds.
    Detect(u64, u64, u64),
    LoseAll,
    LoseFront,
    /// Now is when what was not seen to arrive may be lost, if that shows later.
    TimeOut,
    LoseTimedOut,
    Unmark,
    Forget,
    Resend(u64),
    ProbeTail(u64),
    Wait(u64),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        6 => (1u64..30).prop_map(Happening::Push),
        8 => (0u64..1000, 1u64..60).prop_map(|(at, len)| Happening::Sack(at, len)),
        3 => (0u64..40).prop_map(Happening::Acknowledge),
        6 => (0u64..30, 0u64..1000, 0u64..30).prop_map(|(ago, at, window)| Happening::Detect(ago, at, window)),
        1 => Just(Happening::LoseAll),
        2 => Just(Happening::LoseFront),
        1 => Just(Happening::TimeOut),
        1 => Just(Happening::LoseTimedOut),
        1 => Just(Happening::Unmark),
        1 => Just(Happening::Forget),
        8 => (1u64..25).prop_map(Happening::Resend),
        2 => (1u64..25).prop_map(Happening::ProbeTail),
        4 => (0u64..10).prop_map(Happening::Wait),
    ]
}

#[derive(Default)]
struct Both {
    ours: Scoreboard,
    reference: reference::Scoreboard,
    una: u64,
    next: u64,
    now_ms: u64,
    timed_out_ms: u64,
    timed_out_at: u64,
}

impl Both {
    fn now(&self) -> Instant {
        Instant::from_millis(self.now_ms)
    }

    fn happens(&mut self, happening: &Happening) {
        let outstanding = self.next - self.una;
        match *happening {
            Happening::Push(len) => self.push(len),
            Happening::Sack(at, len) if outstanding > 0 => {
                let start = self.una + at % outstanding;
                self.sack(start, (start + len).min(self.next));
            }
            Happening::Acknowledge(len) => {
                self.una = (self.una + len).min(self.next);
                let (mut newly, mut expected) = (Newly::default(), reference::Newly::default());
                self.ours.acknowledge(self.una, &mut newly);
                self.reference.acknowledge(self.una, &mut expected);
                assert_same(&newly, &expected);
            }
            Happening::Detect(ago, at, window_ms) if outstanding > 0 => {
                let reference = (Instant::from_millis(self.now_ms - ago), self.una + at % (outstanding + 1));
                let (now, window) = (self.now(), Duration::from_millis(window_ms));
                let expected = self.reference.detect_losses(now, reference, window);
                assert_eq!(self.ours.detect_losses(now, reference, window), expected);
            }
            Happening::LoseAll => {
                self.ours.mark_all_lost();
                self.reference.mark_all_lost();
            }
            Happening::LoseFront => {
                assert_eq!(self.ours.mark_front_lost(999), self.reference.mark_front_lost(999));
            }
            Happening::TimeOut => {
                self.now_ms += 1;
                (self.timed_out_ms, self.timed_out_at) = (self.now_ms, self.next);
            }
            Happening::LoseTimedOut => {
                let (until, since) = (self.timed_out_at, Instant::from_millis(self.timed_out_ms));
                let expected = self.reference.mark_lost_before(until, since);
                assert_eq!(self.ours.mark_lost_before(until, since), expected);
            }
            Happening::Unmark => {
                self.ours.unmark_lost();
                self.reference.unmark_lost();
            }
            Happening::Forget => {
                self.ours.forget_sacks();
                self.reference.forget_sacks();
            }
            Happening::Resend(most) => {
                let (start, expected) = (self.ours.next_lost(), self.reference.next_lost());
                self.resend(start, expected, most);
            }
            Happening::ProbeTail(most) => {
                let (start, expected) = (self.ours.last_piece(most), self.reference.last_piece(most));
                self.resend(start, expected, most);
            }
            Happening::Wait(ms) => self.now_ms += ms,
            Happening::Sack(..) | Happening::Detect(..) => {}
        }
    }

    fn push(&mut self, len: u64) {
        let (start, now) = (self.next, self.now());
        self.next += len;
        self.ours.push(Sent::new(start, self.next, now, RateStart::NONE, Flags::NONE));
        self.reference.push(reference::Sent::new(start, self.next, now, RateStart::NONE, Flags::NONE));
    }

    fn sack(&mut self, start: u64, end: u64) {
        let (mut newly, mut expected) = (Newly::default(), reference::Newly::default());
        let high_sacked = self.ours.high_sacked();
        assert_eq!(high_sacked, self.reference.high_sacked());
        self.ours.sack((start, end), high_sacked, 1000, &mut newly);
        self.reference.sack((start, end), high_sacked, 1000, &mut expected);
        assert_same(&newly, &expected);
    }

    fn resend(&mut self, start: Option<u64>, expected: Option<(usize, u64)>, most: u64) {
        assert_eq!(start, expected.map(|(_, start)| start));
        let (Some(start), Some((at, _))) = (start, expected) else { return };
        assert_eq!(self.ours.piece_bytes(start), self.reference.piece_bytes(at));
        // At a moment of its own, as that is how the reference knows a retransmission.
        self.now_ms += 1;
        let ours = self.ours.resend(start, most, self.now(), RateStart::NONE).unwrap();
        let expected = self.reference.resend(at, most, self.now(), RateStart::NONE).unwrap();
        assert_eq!((ours.start, ours.end(), ours.flags), (expected.start, expected.end(), expected.flags));
        self.now_ms += 1;
    }

    fn assert_same(&self) {
        let (ours, reference) = (&self.ours, &self.reference);
        ours.check();
        assert_eq!(ours.sacked_bytes(), reference.sacked_bytes());
        assert_eq!(ours.lost_bytes(), reference.lost_bytes());
        assert_eq!(ours.has_resent(), reference.has_resent());
        assert_eq!(ours.sacked_pieces(), reference.sacked_pieces());
        let outstanding = self.next - self.una;
        assert_eq!(ours.pipe_bytes(outstanding), reference.pipe_bytes(outstanding));
        let front = ours.front().map(|front| (front.start, front.at, front.flags));
        assert_eq!(front, reference.front().map(|front| (front.start, front.at, front.flags)));
    }
}

fn assert_same(newly: &Newly, expected: &reference::Newly) {
    assert_eq!(
        (newly.bytes, newly.rtt_from, newly.original, newly.resent, newly.reordered),
        (expected.bytes, expected.rtt_from, expected.original, expected.resent, expected.reordered)
    );
    let (latest, expected) = (newly.latest, expected.latest);
    let is_resent = |flags: Flags| flags.has(Flags::EVER_RESENT);
    assert_eq!(
        latest.map(|latest| (latest.at, latest.end(), is_resent(latest.flags))),
        expected.map(|latest| (latest.at, latest.end(), is_resent(latest.flags)))
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 300 } else { 20_000 }))]

    #[test]
    fn whatever_happens_it_knows_what_a_list_would(happenings in prop::collection::vec(happening(), 1..120)) {
        let mut both = Both { now_ms: 1000, ..Both::default() };
        for happening in &happenings {
            both.happens(happening);
            both.assert_same();
        }
    }
}
