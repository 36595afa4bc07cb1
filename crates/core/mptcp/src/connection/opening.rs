//! How far the first handshake is trusted: other paths that race it, and a third ACK that may not have arrived.

use polypath_units::{Duration, Instant};

use crate::host::Rivals;

/// Time for the answer to each thing that is done.
const STEP: Duration = Duration::from_millis(500);
/// Probes that may go without a DSS or a sign of TCP, where data was taken. They take about a minute.
const MOST_PROBES: u32 = 10;
/// After the SYN/ACK, a connection of which the server knows nothing is given so long to get through after all: its path may only have
/// been cut for some seconds, which TCP alone would survive.
const GIVE_UP_AFTER: Duration = Duration::from_secs(10);

/// How doubtful it is that the path works. An idle server need not have said anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Doubt {
    #[default]
    None,
    /// The third ACK was sent again.
    SaidAgain,
    /// After it, a probe went out that every server answers.
    Probed,
    /// Other paths are asked.
    Asking,
    /// The server knows of no connection.
    Refused,
}

/// What is known of a handshake whose end was not heard.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    /// When the SYN/ACK came.
    since: Instant,
    /// The first handshake goes out over other paths too, and over which.
    race_at: Instant,
    rivals: Rivals,
    /// The initial subflow is to be confirmed by then.
    confirm_at: Instant,
    /// Probes that asked who has the data that was taken.
    probes: u32,
    doubt: Doubt,
    /// The third ACK leaves before data that could go with it, where another path is to join: the server's answer, which lets it
    /// join (RFC 8684 §3.1), does not wait until a thin path has carried a full segment.
    third_ack_goes_first: bool,
}

impl Opening {
    pub(super) const fn new() -> Self {
        Self {
            since: Instant::ZERO,
            race_at: Instant::FAR_FUTURE,
            rivals: Rivals::Regular,
            confirm_at: Instant::FAR_FUTURE,
            probes: 0,
            doubt: Doubt::None,
            third_ack_goes_first: false,
        }
    }

    // ---- other paths

    /// The paths that were asked have until then to answer, before these are asked too.
    pub(super) fn race_at(&mut self, at: Instant, rivals: Rivals) {
        (self.race_at, self.rivals) = (at, rivals);
    }

    /// They have not: who is asked now; once.
    pub(super) fn take_race(&mut self, now: Instant) -> Option<Rivals> {
        let is_due = self.race_at <= now;
        if is_due {
            self.race_at = Instant::FAR_FUTURE;
        }
        is_due.then_some(self.rivals)
    }

    /// One of them was answered.
    pub(super) fn end_race(&mut self) {
        self.race_at = Instant::FAR_FUTURE;
    }

    // ---- the third ACK

    /// It leaves. Where there is another path, a DSS is expected by then.
    pub(super) fn await_confirmation(&mut self, now: Instant, until: Option<Instant>) {
        self.begin_again_since(now);
        if let Some(until) = until {
            self.confirm_at = until;
            self.third_ack_goes_first = true;
        }
    }

    /// It goes before data; once.
    #[inline]
    pub(super) fn take_third_ack(&mut self) -> bool {
        core::mem::take(&mut self.third_ack_goes_first)
    }

    /// A DSS has come, or will not.
    pub(super) fn stop_waiting(&mut self) {
        self.confirm_at = Instant::FAR_FUTURE;
    }

    /// The time for a DSS has passed; once.
    pub(super) fn take_confirm(&mut self, now: Instant) -> bool {
        let is_due = self.confirm_at <= now;
        if is_due {
            self.confirm_at = Instant::FAR_FUTURE;
        }
        is_due
    }

    /// The next look is then.
    pub(super) fn wait_until(&mut self, at: Instant) {
        self.confirm_at = at;
    }

    /// The next look is soon.
    pub(super) fn wait(&mut self, now: Instant) {
        self.confirm_at = now + STEP;
    }

    /// When a connection of which the server knows nothing is given up.
    pub(super) fn give_up_at(&self) -> Instant {
        self.since + GIVE_UP_AFTER
    }

    // ---- doubt

    pub(super) const fn doubt(&self) -> Doubt {
        self.doubt
    }

    /// MP_JOINs may leave, to ask over other paths.
    #[inline]
    pub(super) const fn is_asking(&self) -> bool {
        matches!(self.doubt, Doubt::Asking | Doubt::Refused)
    }

    /// The third ACK is sent again.
    pub(super) fn say_again(&mut self, now: Instant) {
        self.doubt = Doubt::SaidAgain;
        self.wait(now);
    }

    /// A probe goes out.
    pub(super) fn probe(&mut self, now: Instant) {
        self.doubt = Doubt::Probed;
        self.wait(now);
    }

    /// Other paths are asked.
    pub(super) fn ask(&mut self) {
        self.doubt = Doubt::Asking;
    }

    /// Over another path the server said that it has no such connection.
    pub(super) fn handle_refusal(&mut self, now: Instant) {
        if self.doubt == Doubt::Asking {
            self.doubt = Doubt::Refused;
            self.confirm_at = now;
        }
    }

    /// One more probe asks who has the data that was taken; false if there were enough.
    pub(super) fn may_probe_for_data(&mut self) -> bool {
        self.probes += 1;
        self.probes <= MOST_PROBES
    }

    /// Nothing is known of another handshake.
    pub(super) fn begin_again(&mut self) {
        self.begin_again_since(Instant::ZERO);
    }

    fn begin_again_since(&mut self, since: Instant) {
        (self.since, self.doubt, self.probes) = (since, Doubt::None, 0);
    }

    // ---- timers

    #[inline]
    pub(super) fn next_timeout(&self) -> Instant {
        self.race_at.min(self.confirm_at)
    }

    /// The connection is over.
    pub(super) fn stop(&mut self) {
        self.race_at = Instant::FAR_FUTURE;
        self.confirm_at = Instant::FAR_FUTURE;
    }
}
