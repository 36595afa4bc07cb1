//! The handshake of a subflow that joins, as far as options know of it (RFC 8684 §3.2).

use polypath_units::{Duration, Instant};

/// First wait before the third ACK of MP_JOIN is sent again; doubles.
const RETRY: Duration = Duration::from_millis(250);

/// Where MP_PRIO goes with it, it is repeated at once: Linux looks for that only in what comes after it.
const REPEAT: Duration = Duration::from_millis(1);

/// After so many the subflow is given up.
const RETRIES: u8 = 4;

/// Nonces of both ends, and the third ACK, which is sent until it is answered.
#[derive(Debug)]
pub(crate) struct JoinHandshake {
    /// When the third ACK is sent again.
    retry_at: Instant,
    local_nonce: u32,
    remote_nonce: u32,
    retries: u8,
}

impl JoinHandshake {
    pub(super) const fn new() -> Self {
        Self { retry_at: Instant::FAR_FUTURE, local_nonce: 0, remote_nonce: 0, retries: 0 }
    }

    /// Our MP_JOIN has this nonce.
    pub(crate) fn begin(&mut self, local_nonce: u32) {
        self.local_nonce = local_nonce;
    }

    /// The nonce in the peer's MP_JOIN.
    pub(crate) fn handle_nonce(&mut self, remote_nonce: u32) {
        self.remote_nonce = remote_nonce;
    }

    /// The third ACK leaves.
    pub(crate) fn await_fourth_ack(&mut self, now: Instant) {
        self.retry_at = now + RETRY;
    }

    /// It leaves with MP_PRIO.
    pub(crate) fn repeat_at_once(&mut self, now: Instant) {
        self.retry_at = now + REPEAT;
    }

    /// It is to leave once more; false if that was often enough.
    pub(crate) fn retry(&mut self, now: Instant) -> bool {
        if self.retries >= RETRIES {
            return false;
        }
        self.retries += 1;
        self.retry_at = now + Duration::from_nanos(RETRY.as_nanos() << self.retries);
        true
    }

    /// It was answered, or the subflow ends.
    pub(crate) fn stop(&mut self) {
        self.retry_at = Instant::FAR_FUTURE;
    }

    #[inline]
    pub(crate) const fn next_timeout(&self) -> Instant {
        self.retry_at
    }

    /// Ours, and the peer's.
    pub(crate) const fn nonces(&self) -> (u32, u32) {
        (self.local_nonce, self.remote_nonce)
    }
}
