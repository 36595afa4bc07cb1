//! What is under way on a path: congestion control, loss detection, pacing.
//!
//! Loss is found as QUIC does (RFC 9002 §6): by packets behind that were acknowledged, by time, and by silence. Delivery rates are
//! sampled as draft-ietf-ccwg-bbr §4.1 says.

use std::collections::VecDeque;

use polypath_congestion::{Ack, Config, Controller, FlowView, Flows, Policy, RateSample};
use polypath_units::{BitRate, Duration, Instant};

use super::least_rtt::LeastRtt;
use super::mtu::BASE_BYTES;
use super::overtaken::Overtaken;
use super::pacer::{Departed, Pacer};
use super::rate::{Ceiling, RateMeter};
use super::receiver::MOST_ACK_DELAY;
use super::standing_queue::StandingQueue;
use crate::frame::AckFrame;

/// Before the first sample (RFC 9002 §6.2.2).
const FIRST_RTT: Duration = Duration::from_millis(333);
/// The least that time thresholds are.
const GRANULARITY: Duration = Duration::from_millis(1);
/// A path is not taken for silent before this: both ends' processes may be kept from running for a while.
const LEAST_PATIENCE: Duration = Duration::from_millis(60);
/// What is under way beyond two round trips on a path whose rate was believed too high.
const LEAST_SLACK: Duration = Duration::from_millis(10);
/// Fewer packets would not keep a path going while acknowledgments are delayed.
const LEAST_WINDOW_PACKETS: u64 = 4;
/// Urgent packets may be so far ahead of the pacer, and of the window: they wait for nobody, unless they are a flood.
const URGENT_LEAD: Duration = Duration::from_millis(5);
const URGENT_BYTES: u64 = 12_000;
/// Packets leave at least so fast: a rate that was never measured, as of a path without any delay, must not stop it for ever.
const LEAST_RATE: BitRate = BitRate::from_kbps(10);
/// Packets whose fate is open: without any acknowledgment, the oldest ones that others control are taken for lost.
const MOST_SENT: usize = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    InFlight,
    /// Somebody else controls how much of it is under way. Only its loss says something of the path.
    Watched,
    /// Acknowledged, or taken for lost, or nothing that counts.
    Settled,
}

/// What becomes of a packet that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tracking {
    /// It asks for an acknowledgment, and takes room in the window.
    Counted,
    /// It asks for an acknowledgment, and others control it.
    Watched,
    /// Nobody asks what became of it.
    Untracked,
}

#[derive(Debug)]
struct Sent {
    bytes: u32,
    fate: Fate,
    app_limited: bool,
    sent_at: Instant,
    /// As they were when it left.
    first_sent_at: Instant,
    delivered_at: Instant,
    delivered: u64,
    lost: u64,
    in_flight: u64,
    /// For another path, should this one fall silent.
    contents: Option<Box<[u8]>>,
}

/// Numbers of a session begin at this number of the path.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    session: [u8; 3],
    first: u64,
}

/// What an acknowledgment or a moment brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AckOutcome {
    pub(crate) acked_bytes: u64,
    pub(crate) acked_packets: u64,
    pub(crate) lost_packets: u64,
    /// Taken for lost before, and not lost. As with those that are lost: what others control is not among them.
    pub(crate) late_packets: u64,
    /// What was in them, to be sent again.
    pub(crate) lost_contents: Vec<Box<[u8]>>,
    /// The round-trip time that the acknowledgment measured.
    pub(crate) rtt: Option<Duration>,
}

/// One direction of a path.
#[derive(Debug)]
pub(crate) struct PathSender {
    controller: Box<dyn Controller>,
    mss_bytes: u32,
    sent: VecDeque<Sent>,
    /// The path's number of the first of `sent`.
    base: u64,
    epochs: [Option<Epoch>; 2],
    in_flight_bytes: u64,
    delivered: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    lost: u64,
    app_limited_until: u64,
    round_end: u64,
    recovery_end: Option<u64>,
    largest_acked: Option<u64>,
    srtt: Option<Duration>,
    rtt_variation: Duration,
    min_rtt: LeastRtt,
    latest_rtt: Duration,
    standing_queue: StandingQueue,
    overtaken: Overtaken,
    meter: RateMeter,
    ceiling: Ceiling,
    pacer: Pacer,
    /// When the last packet left that asks for an acknowledgment.
    last_sent_at: Instant,
    last_acked_at: Instant,
    /// Silences in a row.
    silences: u32,
    window_limited: bool,
    /// Datagrams longer than what every path carries that were lost since the newest of those that came, and that one's number.
    long_lost: u32,
    long_arrived: Option<u64>,
    sent_packets: u64,
    lost_packets: u64,
    sent_bytes: u64,
}

impl PathSender {
    pub(crate) fn new(now: Instant, policy: &Policy, mss_bytes: u32) -> Self {
        let config = Config { mss_bytes, ..Config::default() };
        Self {
            controller: policy.build_for(&config),
            mss_bytes,
            sent: VecDeque::new(),
            base: 0,
            epochs: [None; 2],
            in_flight_bytes: 0,
            delivered: 0,
            delivered_at: now,
            first_sent_at: now,
            lost: 0,
            app_limited_until: 0,
            round_end: 0,
            recovery_end: None,
            largest_acked: None,
            srtt: None,
            rtt_variation: Duration::ZERO,
            min_rtt: LeastRtt::default(),
            latest_rtt: Duration::ZERO,
            standing_queue: StandingQueue::default(),
            overtaken: Overtaken::default(),
            meter: RateMeter::default(),
            ceiling: Ceiling::default(),
            pacer: Pacer::new(now),
            last_sent_at: now,
            last_acked_at: now,
            silences: 0,
            window_limited: false,
            long_lost: 0,
            long_arrived: None,
            sent_packets: 0,
            lost_packets: 0,
            sent_bytes: 0,
        }
    }

    /// A packet leaves. `contents` come back from [`PathSender::give_up`].
    pub(crate) fn handle_sent(
        &mut self,
        now: Instant,
        session: [u8; 3],
        number: u32,
        bytes: usize,
        tracking: Tracking,
        contents: Option<Box<[u8]>>,
    ) {
        if self.epochs[0].is_none() {
            // A path that was there before left the session's numbers where they are.
            self.base = number.into();
        }
        let next = self.base + self.sent.len() as u64;
        if self.epochs[0].is_none_or(|epoch| epoch.session != session) {
            self.epochs =
                [Some(Epoch { session, first: next - u64::from(number).min(next) }), self.epochs[0]];
        }
        self.sent_packets += 1;
        self.sent_bytes += bytes as u64;
        if self.sent.len() >= MOST_SENT
            && let Some(front) = self.sent.front_mut()
            && front.fate == Fate::Watched
        {
            front.fate = Fate::Settled;
            self.lost_packets += 1;
            self.forget_settled();
        }
        if tracking == Tracking::Counted {
            if self.in_flight_bytes == 0 {
                (self.first_sent_at, self.delivered_at) = (now, now);
                self.meter.handle_start(now, self.delivered);
                self.last_acked_at = self.last_acked_at.max(now);
            }
            self.in_flight_bytes += bytes as u64;
            self.last_sent_at = now;
            if self.pacer.handle_sent(now, bytes as u64, self.pacing_rate()) == Departed::TooLate {
                // The path could not show what it can carry.
                self.mark_app_limited(now);
            }
        }
        self.sent.push_back(Sent {
            bytes: bytes as u32,
            fate: match tracking {
                Tracking::Counted => Fate::InFlight,
                Tracking::Watched => Fate::Watched,
                Tracking::Untracked => Fate::Settled,
            },
            app_limited: self.delivered < self.app_limited_until,
            sent_at: now,
            first_sent_at: self.first_sent_at,
            delivered_at: self.delivered_at,
            delivered: self.delivered,
            lost: self.lost,
            in_flight: self.in_flight_bytes,
            contents,
        });
        self.forget_settled();
    }

    /// The rate at which packets leave.
    pub(crate) fn pacing_rate(&self) -> BitRate {
        let rate = self.believed_rate();
        self.ceiling.rate().map_or(rate, |ceiling| ceiling.min(rate)).max(LEAST_RATE)
    }

    fn believed_rate(&self) -> BitRate {
        self.controller.pacing_rate().unwrap_or_else(|| {
            let rate = BitRate::from_bytes_over(self.controller.window_bytes(), self.srtt());
            let factor = if self.controller.in_slow_start() { 2.0 } else { 1.2 };
            BitRate::from_bps((rate.as_bps() as f64 * factor) as u64)
        })
    }

    /// Bytes that the window lets go now.
    pub(crate) fn window_left_bytes(&self) -> u64 {
        self.window_bytes().saturating_sub(self.in_flight_bytes)
    }

    fn window_bytes(&self) -> u64 {
        let window_bytes = self.controller.window_bytes();
        let Some(rate) = self.ceiling.rate() else { return window_bytes };
        // As much as BBR has, and what a path whose delay varies needs to be full.
        let span = self.min_rtt.least() * 2 + (self.rtt_variation * 4).max(LEAST_SLACK);
        window_bytes.min(rate.bytes_in(span).max(LEAST_WINDOW_PACKETS * u64::from(self.mss_bytes)))
    }

    /// Whether a packet may leave now.
    pub(crate) fn is_open(&self, now: Instant) -> bool {
        self.window_left_bytes() > 0 && self.pacer.next_at() <= now
    }

    /// When the next packet may leave, if the window lets it.
    pub(crate) fn paced_until(&self) -> Instant {
        self.pacer.next_at()
    }

    /// When the next urgent packet may leave, if not only an acknowledgment lets it.
    pub(crate) fn urgent_at(&self) -> Option<Instant> {
        if self.in_flight_bytes > self.controller.window_bytes() + URGENT_BYTES {
            return None;
        }
        // On slow paths one packet of others takes longer than the lead.
        let two = self.pacing_rate().time_to_send(2 * u64::from(self.mss_bytes));
        let next_at = self.pacer.next_at();
        Some(next_at - URGENT_LEAD.max(two).min(next_at.since(Instant::ZERO)))
    }

    /// There was more to send than the window allowed.
    pub(crate) fn mark_window_limited(&mut self) {
        self.window_limited = true;
    }

    /// There is nothing to send, though the window would allow it.
    ///
    /// With a queue in the path, it is the path that limits, and a rate that was believed too high, after a burst that the path let pass
    /// at once, is to be corrected.
    pub(crate) fn handle_idle(&mut self, now: Instant) {
        self.pacer.handle_idle(now);
        self.mark_app_limited(now);
    }

    /// It would let a packet go, and what waits is better off without it: that time is not made up for. One that carries something still
    /// shows its rate by that.
    pub(crate) fn handle_left_out(&mut self, now: Instant) {
        self.pacer.handle_idle(now);
        if self.in_flight_bytes == 0 && now.since(self.last_sent_at) >= self.srtt() {
            self.mark_app_limited(now);
        }
    }

    fn mark_app_limited(&mut self, now: Instant) {
        if self.queue_shows(now) {
            return;
        }
        self.app_limited_until = self.delivered + self.in_flight_bytes.max(1);
        self.window_limited = false;
    }

    /// It was full once.
    pub(crate) fn knows_rate(&self) -> bool {
        !self.controller.in_slow_start()
    }

    fn queue_shows(&self, now: Instant) -> bool {
        self.standing_queue.shows(now, self.min_rtt.least())
    }

    /// The peer's word on what came. An unknown session, and numbers that were never sent, are nothing.
    pub(crate) fn handle_ack(&mut self, now: Instant, ack: &AckFrame) -> AckOutcome {
        let Some(epoch) = self.epochs.iter().flatten().find(|epoch| epoch.session == ack.session) else {
            return AckOutcome::default();
        };
        let next = self.base + self.sent.len() as u64;
        let largest = epoch.first + u64::from(ack.largest);
        if largest >= next {
            return AckOutcome::default();
        }
        let was_full = self.window_left_bytes() == 0;
        let mut tally = Tally { in_flight_before: self.in_flight_bytes, ..Tally::default() };
        let mut high = largest;
        for range in &ack.ranges {
            let Some(low) = (high + 1).checked_sub(range.len.max(1).into()) else { break };
            for number in (low.max(self.base)..=high).rev() {
                self.settle(now, number, number == largest, &mut tally);
            }
            tally.late_packets += self.note_late(now, (low, high), largest);
            let Some(after) = low.checked_sub(u64::from(range.gap) + 1) else { break };
            high = after;
        }
        if tally.acked_bytes == 0 {
            // What does not count is a sign of life, too.
            if self.largest_acked.is_none_or(|before| before < largest) {
                self.silences = 0;
                self.last_acked_at = now;
                self.largest_acked = Some(largest);
                let mut lost = self.find_lost(now);
                let outcome = AckOutcome {
                    lost_packets: lost.packets,
                    lost_contents: std::mem::take(&mut lost.contents),
                    late_packets: tally.late_packets,
                    ..AckOutcome::default()
                };
                if lost.packets > 0 {
                    self.tell_controller(now, &tally, &lost);
                }
                self.forget_settled();
                return outcome;
            }
            return AckOutcome { late_packets: tally.late_packets, ..AckOutcome::default() };
        }
        self.silences = 0;
        self.last_acked_at = now;
        self.largest_acked = Some(self.largest_acked.map_or(largest, |before| before.max(largest)));
        if let Some(sent_at) = tally.largest_sent_at {
            let delay = Duration::from_micros(ack.delay_micros.into()).min(MOST_ACK_DELAY * 4);
            self.sample_rtt(now, now.since(sent_at), delay);
        }
        self.overtaken.forget(now);
        let mut lost = self.find_lost(now);
        let outcome = AckOutcome {
            acked_bytes: tally.acked_bytes,
            acked_packets: tally.acked_packets,
            lost_packets: lost.packets,
            late_packets: tally.late_packets,
            lost_contents: std::mem::take(&mut lost.contents),
            rtt: tally.largest_sent_at.map(|_| self.latest_rtt),
        };
        if self.in_flight_bytes == 0 {
            self.standing_queue.note_empty(now);
        }
        self.tell_controller(now, &tally, &lost);
        self.forget_settled();
        if was_full {
            // It was not we who were late.
            self.pacer.handle_idle(now);
        }
        outcome
    }

    fn settle(&mut self, now: Instant, number: u64, is_largest: bool, tally: &mut Tally) {
        let Some(sent) = self.sent.get_mut((number - self.base) as usize) else { return };
        let fate = std::mem::replace(&mut sent.fate, Fate::Settled);
        if fate == Fate::Settled {
            return;
        }
        sent.contents = None;
        let bytes = u64::from(sent.bytes);
        if tells_of_length(sent.bytes, number, self.long_arrived) {
            (self.long_lost, self.long_arrived) = (0, Some(number));
        }
        if fate == Fate::Watched {
            return;
        }
        self.in_flight_bytes -= bytes;
        self.delivered += bytes;
        self.delivered_at = now;
        tally.acked_bytes += bytes;
        tally.acked_packets += 1;
        if is_largest {
            tally.largest_sent_at = Some(sent.sent_at);
        }
        if tally
            .newest
            .as_ref()
            .is_none_or(|newest| sent.delivered > newest.prior_delivered || sent.sent_at > newest.sent_at)
        {
            tally.newest = Some(Newest {
                sent_at: sent.sent_at,
                prior_delivered: sent.delivered,
                prior_lost: sent.lost,
                tx_in_flight: sent.in_flight,
                app_limited: sent.app_limited,
                interval: sent.sent_at.since(sent.first_sent_at).max(now.since(sent.delivered_at)),
            });
            self.first_sent_at = self.first_sent_at.max(sent.sent_at);
        }
    }

    fn sample_rtt(&mut self, now: Instant, sample: Duration, delay: Duration) {
        let adjusted = sample.saturating_sub(delay);
        self.min_rtt.note(now, adjusted);
        self.standing_queue.note(now, adjusted);
        self.latest_rtt = adjusted;
        match self.srtt {
            None => (self.srtt, self.rtt_variation) = (Some(adjusted), adjusted / 2),
            Some(srtt) => {
                let difference = if srtt > adjusted { srtt - adjusted } else { adjusted - srtt };
                self.rtt_variation = (self.rtt_variation * 3 + difference) / 4;
                self.srtt = Some((srtt * 7 + adjusted) / 8);
            }
        }
    }

    /// What was taken for lost, and arrived all the same.
    fn note_late(&mut self, now: Instant, arrived: (u64, u64), largest: u64) -> u64 {
        let rtt = self.srtt();
        let late = self.overtaken.handle_arrived(now, arrived, largest, rtt);
        self.lost_packets = self.lost_packets.saturating_sub(late.packets);
        if late.counted_packets > 0 {
            self.lost = self.lost.saturating_sub(late.bytes);
            self.delivered += late.bytes;
            self.recovery_end = None;
            self.controller.on_spurious(now);
        }
        late.counted_packets
    }

    /// Takes for lost what packets behind it have overtaken, in numbers or time.
    fn find_lost(&mut self, now: Instant) -> Lost {
        let mut lost = Lost::default();
        let Some(largest) = self.largest_acked else { return lost };
        let patience = self.loss_patience();
        for (at, sent) in self.sent.iter_mut().enumerate() {
            let number = self.base + at as u64;
            if number >= largest {
                break;
            }
            if sent.fate == Fate::Settled {
                continue;
            }
            if largest - number < self.overtaken.packets() && now.since(sent.sent_at) < patience {
                break;
            }
            let fate = std::mem::replace(&mut sent.fate, Fate::Settled);
            self.lost_packets += 1;
            let tells = tells_of_length(sent.bytes, number, self.long_arrived);
            self.long_lost = self.long_lost.saturating_add(u32::from(tells));
            if fate == Fate::Watched {
                self.overtaken.handle_lost(number, 0, sent.sent_at);
                continue;
            }
            lost.contents.extend(sent.contents.take());
            self.in_flight_bytes -= u64::from(sent.bytes);
            self.lost += u64::from(sent.bytes);
            self.overtaken.handle_lost(number, sent.bytes, sent.sent_at);
            lost.packets += 1;
            lost.bytes += u64::from(sent.bytes);
            lost.last = number;
        }
        lost
    }

    fn loss_patience(&self) -> Duration {
        let rtt = self.srtt().max(self.latest_rtt);
        (rtt + rtt / 8).max(GRANULARITY).max(rtt + self.overtaken.wait() + self.overtaken.wait() / 4)
    }

    fn tell_controller(&mut self, now: Instant, tally: &Tally, lost: &Lost) {
        let flow = self.view();
        let flows = Flows::single(&flow);
        if lost.packets > 0 && self.recovery_end.is_none_or(|end| lost.last >= end) {
            self.recovery_end = Some(self.base + self.sent.len() as u64);
            self.controller.on_congestion(now, tally.in_flight_before, &flows);
        }
        let is_in_recovery = match (self.recovery_end, self.largest_acked) {
            (Some(end), Some(largest)) if largest + 1 >= end => {
                self.recovery_end = None;
                self.controller.on_recovery_end(now);
                false
            }
            (Some(_), _) => true,
            _ => false,
        };
        if is_in_recovery && !self.controller.steers_recovery() {
            return;
        }
        let round_ended =
            tally.newest.as_ref().is_some_and(|newest| newest.prior_delivered >= self.round_end);
        if round_ended {
            self.round_end = self.delivered;
        }
        let rate = tally.newest.as_ref().map(|newest| self.rate_sample(now, newest));
        if let Some(newest) = &tally.newest {
            self.meter.handle_delivered(now, newest.sent_at, self.delivered);
        }
        let latest = self.latest_rtt;
        let rtt = tally.largest_sent_at.map(|_| self.min_rtt.told_for(now, latest));
        self.controller.on_ack(
            &Ack {
                now,
                acked_bytes: tally.acked_bytes,
                in_flight_bytes: tally.in_flight_before,
                rtt,
                srtt: self.srtt(),
                min_rtt: self.min_rtt.least(),
                window_limited: self.window_limited,
                round_ended,
                rate,
            },
            &flows,
        );
        if let Some(newest) = &tally.newest {
            let delivered = (&self.meter, newest.sent_at, self.delivered, self.app_limited_until);
            self.ceiling.update(now, self.queue_shows(now), self.believed_rate(), delivered);
        }
    }

    fn rate_sample(&self, now: Instant, newest: &Newest) -> RateSample {
        let is_reliable = !newest.interval.is_zero() && newest.interval >= self.min_rtt.least();
        let bytes = self.delivered - newest.prior_delivered;
        let of_round_trip = BitRate::from_bytes_over(bytes, newest.interval);
        // Over more than a round trip, where that is short.
        let (mut delivery_rate, mut prior_delivered) = (of_round_trip, newest.prior_delivered);
        let mut app_limited = newest.app_limited;
        if let Some(longer) = self.meter.sample(now, newest.sent_at, self.delivered)
            && longer.since_delivered < prior_delivered
        {
            app_limited |= longer.since_delivered < self.app_limited_until;
            (delivery_rate, prior_delivered) = (longer.rate, longer.since_delivered);
        } else if !is_reliable {
            delivery_rate = BitRate::from_bps(0);
        }
        RateSample {
            delivery_rate,
            app_limited,
            prior_delivered_bytes: prior_delivered,
            delivered_bytes: self.delivered,
            tx_in_flight_bytes: newest.tx_in_flight,
            in_flight_bytes: self.in_flight_bytes,
            lost_bytes: self.lost.saturating_sub(newest.prior_lost),
            total_lost_bytes: self.lost,
        }
    }

    fn view(&self) -> FlowView {
        FlowView {
            window_bytes: self.controller.window_bytes(),
            mss_bytes: self.mss_bytes,
            srtt: self.srtt.unwrap_or(Duration::ZERO),
            min_rtt: self.min_rtt.least(),
            in_slow_start: self.controller.in_slow_start(),
            ..FlowView::default()
        }
    }

    fn forget_settled(&mut self) {
        while self.sent.front().is_some_and(|sent| sent.fate == Fate::Settled) {
            self.sent.pop_front();
            self.base += 1;
        }
    }

    /// When to look again whether the path has fallen silent.
    pub(crate) fn silent_at(&self) -> Option<Instant> {
        let patience = self.silence_patience() * (1 << self.silences.min(6));
        (self.in_flight_bytes > 0).then(|| self.last_acked_at + patience)
    }

    /// A probe timeout (RFC 9002 §6.2.1).
    pub(crate) fn silence_patience(&self) -> Duration {
        match self.srtt {
            Some(srtt) => {
                (srtt + (self.rtt_variation * 4).max(GRANULARITY) + MOST_ACK_DELAY).max(LEAST_PATIENCE)
            }
            None => FIRST_RTT * 2,
        }
    }

    /// The path is silent. All that is under way counts as lost; the contents are for another path.
    pub(crate) fn give_up(&mut self, now: Instant) -> Vec<Box<[u8]>> {
        self.silences += 1;
        let before = self.in_flight_bytes;
        let mut contents = Vec::new();
        for (at, sent) in self.sent.iter_mut().enumerate() {
            let fate = std::mem::replace(&mut sent.fate, Fate::Settled);
            if fate == Fate::Settled {
                continue;
            }
            let number = self.base + at as u64;
            self.lost_packets += 1;
            let tells = tells_of_length(sent.bytes, number, self.long_arrived);
            self.long_lost = self.long_lost.saturating_add(u32::from(tells));
            if fate == Fate::InFlight {
                self.lost += u64::from(sent.bytes);
                contents.extend(sent.contents.take());
            }
        }
        self.in_flight_bytes = 0;
        self.forget_settled();
        let flow = self.view();
        self.controller.on_timeout(now, before, &Flows::single(&flow));
        // The next packet's acknowledgment ends it.
        self.recovery_end = Some(self.base + self.sent.len() as u64);
        self.last_acked_at = now;
        contents
    }

    /// Nothing that is under way is of use to another path any more.
    pub(crate) fn forget_contents(&mut self) {
        self.sent.iter_mut().for_each(|sent| sent.contents = None);
    }

    /// Packets that are under way, or behind one that is.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn held_packets(&self) -> usize {
        self.sent.len()
    }

    /// Long datagrams that were lost in a row.
    pub(crate) fn long_lost(&self) -> u32 {
        self.long_lost
    }

    /// Their length has come through.
    pub(crate) fn forget_long_lost(&mut self) {
        self.long_lost = 0;
    }

    pub(crate) fn silences(&self) -> u32 {
        self.silences
    }

    pub(crate) fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
    }

    /// Smoothed round-trip time, or a guess before the first sample.
    pub(crate) fn srtt(&self) -> Duration {
        self.srtt.unwrap_or(FIRST_RTT)
    }

    pub(crate) fn min_rtt(&self) -> Option<Duration> {
        self.srtt.map(|_| self.min_rtt.least())
    }

    pub(crate) fn last_sent_at(&self) -> Instant {
        self.last_sent_at
    }

    /// Packets, bytes, and packets taken for lost.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        (self.sent_packets, self.sent_bytes, self.lost_packets)
    }
}

/// Whether the fate of a packet tells how long they may be: it is long, and no long one behind it has come.
fn tells_of_length(bytes: u32, number: u64, arrived: Option<u64>) -> bool {
    bytes as usize > BASE_BYTES && arrived.is_none_or(|came| number > came)
}

#[derive(Default)]
struct Tally {
    in_flight_before: u64,
    acked_bytes: u64,
    acked_packets: u64,
    late_packets: u64,
    largest_sent_at: Option<Instant>,
    newest: Option<Newest>,
}

/// Of what an acknowledgment told, the packet that left last.
struct Newest {
    sent_at: Instant,
    prior_delivered: u64,
    prior_lost: u64,
    tx_in_flight: u64,
    app_limited: bool,
    interval: Duration,
}

#[derive(Default)]
struct Lost {
    packets: u64,
    contents: Vec<Box<[u8]>>,
    bytes: u64,
    last: u64,
}

#[cfg(test)]
mod tests;
