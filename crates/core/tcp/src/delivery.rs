//! What has been delivered, and how fast (draft-ietf-ccwg-bbr §4.1, formerly draft-cheng-iccrg-delivery-rate-estimation);
//! and the counters of OLIA.
//!
//! Each piece that leaves remembers how much had been delivered by then ([`RateStart`]). When it is acknowledged, what has
//! been delivered since, over the time that this took, is a sample of the path's bandwidth.

use polypath_congestion::RateSample;
use polypath_units::{BitRate, Duration, Instant};

use crate::bottleneck::{Acknowledged, Bottleneck};
use crate::rate_start::RateStart;
use crate::scoreboard::{Flags, Newly, Sent};

/// Delivery accounting of a connection, in bytes.
#[derive(Debug, Default)]
pub(crate) struct Delivery {
    delivered: u64,
    delivered_at: Instant,
    /// When the piece left that was acknowledged last.
    first_sent_at: Instant,
    /// What leaves before so much is delivered measures the application, not the path.
    app_limited_until: u64,
    /// The last reliable sample: bytes, and over how long.
    sample_bytes: u64,
    sample_span: Duration,
    bottleneck: Bottleneck,
    lost: u64,
    /// OLIA's ℓ₁ and ℓ₂.
    acked_since_loss: u64,
    acked_between_losses: u64,
    /// A round trip ends when this position is acknowledged.
    round_end: u64,
}

impl Delivery {
    pub(crate) fn new(now: Instant) -> Self {
        Self { delivered_at: now, first_sent_at: now, ..Self::default() }
    }

    /// A piece leaves after silence: samples start anew.
    pub(crate) fn restart(&mut self, now: Instant) {
        self.delivered_at = now;
        self.first_sent_at = now;
        self.bottleneck.restart(now, self.delivered);
    }

    /// What a piece remembers that leaves now and makes so many bytes in flight.
    #[inline]
    pub(crate) fn start(&self, now: Instant, in_flight_bytes: u64) -> RateStart {
        let sending = now.since(self.first_sent_at);
        RateStart::new(self.delivered_at, self.delivered, self.lost, in_flight_bytes, sending)
    }

    /// The application has no more to send, and the window would allow more than what is in flight.
    pub(crate) fn mark_app_limited(&mut self, in_flight_bytes: u64) {
        self.app_limited_until = self.delivered + in_flight_bytes.max(1);
    }

    pub(crate) fn is_app_limited(&self) -> bool {
        self.delivered < self.app_limited_until
    }

    pub(crate) fn count_lost(&mut self, bytes: u64) {
        self.lost += bytes;
    }

    /// A congestion event: OLIA's interval between losses ends.
    pub(crate) fn end_loss_interval(&mut self) {
        self.acked_between_losses = self.acked_since_loss;
        self.acked_since_loss = 0;
    }

    /// A round trip begins, and ends when this position is acknowledged.
    pub(crate) fn begin_round(&mut self, next: u64) {
        self.round_end = next;
    }

    /// Everything before `una` was acknowledged, and before `next` left. True if that ends a round trip; then another begins.
    #[inline]
    pub(crate) fn handle_round(&mut self, una: u64, next: u64) -> bool {
        let has_ended = una > self.round_end;
        if has_ended {
            self.round_end = next;
        }
        has_ended
    }

    /// OLIA's ℓ₂: acknowledged since the last loss.
    #[inline]
    pub(crate) const fn acked_since_loss(&self) -> u64 {
        self.acked_since_loss
    }

    /// OLIA's ℓ₁: acknowledged between the last two losses.
    #[inline]
    pub(crate) const fn acked_between_losses(&self) -> u64 {
        self.acked_between_losses
    }

    /// Counts what an acknowledgment delivered of what was in flight, and takes a sample.
    #[inline]
    pub(crate) fn count_delivered(
        &mut self,
        now: Instant,
        newly: &Newly,
        in_flight_bytes: u64,
        min_rtt: Duration,
    ) {
        self.delivered += newly.bytes;
        self.acked_since_loss += newly.bytes;
        if newly.bytes > 0 {
            self.delivered_at = now;
        }
        let Some(latest) = newly.latest else { return };
        self.first_sent_at = latest.at;
        let span = self.span(&latest, min_rtt);
        if let Some(span) = span {
            self.sample_bytes = latest.rate.delivered_until(self.delivered);
            self.sample_span = span;
        }
        self.bottleneck.on_acknowledged(
            now,
            &Acknowledged {
                delivered: self.delivered,
                in_flight_bytes,
                round_trip: self.delivered_at.since(latest.at),
                min_rtt,
                sample: span.map(|span| (self.sample_bytes, span)),
            },
        );
    }

    /// The interval of a sample that ends with the last delivery: the slower of sending and acknowledging, as either may
    /// come in bursts. What took less than the least round trip was acknowledged by the original of a spurious
    /// retransmission, and says nothing.
    fn span(&self, latest: &Sent, min_rtt: Duration) -> Option<Duration> {
        let acknowledging = self.delivered_at.since(latest.rate.delivered_at());
        let span = latest.rate.sending().max(acknowledging);
        (span >= min_rtt && !span.is_zero()).then_some(span)
    }

    /// The last reliable measurement.
    pub(crate) fn rate(&self) -> BitRate {
        BitRate::from_bytes_over(self.sample_bytes, self.sample_span)
    }

    /// What the bottleneck carries in bytes per second, if a queue stood before it.
    pub(crate) fn bottleneck_bytes_per_s(&self) -> Option<u64> {
        self.bottleneck.bytes_per_s()
    }

    /// What it carries by now, where what did not come since tells that it carries much less.
    #[inline]
    pub(crate) fn bottleneck_falls_to(
        &self,
        now: Instant,
        oldest_age: impl FnOnce() -> Duration,
        min_rtt: Duration,
    ) -> Option<u64> {
        self.bottleneck.falls_to(now, self.delivered, oldest_age, min_rtt)
    }

    /// What is under way was given to the path when it carried more.
    pub(crate) fn has_fallen(&self) -> bool {
        self.bottleneck.has_fallen(self.delivered)
    }

    /// The sample of the acknowledgment that was counted last, in which `latest` left last.
    pub(crate) fn sample(&self, latest: &Sent, min_rtt: Duration, in_flight_bytes: u64) -> RateSample {
        let is_reliable = self.span(latest, min_rtt).is_some();
        RateSample {
            delivery_rate: if is_reliable { self.rate() } else { BitRate::ZERO },
            app_limited: latest.flags.has(Flags::APP_LIMITED),
            prior_delivered_bytes: self.delivered - latest.rate.delivered_until(self.delivered),
            delivered_bytes: self.delivered,
            tx_in_flight_bytes: latest.rate.in_flight_bytes(),
            in_flight_bytes,
            lost_bytes: latest.rate.lost_until(self.lost),
            total_lost_bytes: self.lost,
        }
    }
}

#[cfg(test)]
mod tests;
