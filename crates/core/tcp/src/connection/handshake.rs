//! The SYN of this end, and what both SYNs agreed on.

use polypath_units::Instant;
use polypath_wire::{Options, TcpOption};

use super::timestamps::Timestamping;
use crate::config::Config;

/// What SYNs are for. Before the peer's came, what this end offers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handshake {
    /// Timestamps (RFC 7323 §3).
    timestamps: Timestamping,
    /// Selective acknowledgments (RFC 2018).
    sack: bool,
    /// Window scaling (RFC 7323 §2).
    scaling: bool,
    syn_is_due: bool,
    /// How often the SYN was sent.
    syns: u8,
}

impl Handshake {
    pub(super) const fn new(now: Instant, timestamp_offset: u32, config: &Config) -> Self {
        let timestamps = Timestamping::new(now, config.timestamps, timestamp_offset);
        Self { timestamps, sack: config.sack, scaling: config.window_scaling, syn_is_due: true, syns: 0 }
    }

    /// The peer's SYN came. Returns the shift of its windows, if both ends scale.
    pub(super) fn handle_syn(&mut self, now: Instant, theirs: &Options, config: &Config) -> Option<u8> {
        let shift = theirs.window_scale().filter(|_| config.window_scaling);
        // What was withdrawn once is not offered again.
        self.scaling &= shift.is_some();
        self.sack = config.sack && theirs.sack_permitted();
        self.timestamps.handle_syn(now, theirs.timestamps, config.timestamps);
        shift.map(|shift| shift.min(14))
    }

    /// The SYN/ACK left before there was a connection. When is not known, so that the third ACK is no sample of the round-trip
    /// time.
    pub(super) fn resume(&mut self) {
        self.syn_is_due = false;
        self.syns = 2;
    }

    /// The SYN is to leave, again perhaps.
    pub(super) fn send_syn(&mut self) {
        self.syn_is_due = true;
    }

    /// The SYN becomes a SYN/ACK, as both ends opened at once (RFC 9293 §3.5).
    pub(super) fn send_syn_ack(&mut self) {
        self.syn_is_due = true;
        self.syns = 0;
    }

    /// The SYN need not leave again.
    pub(super) fn cancel_syn(&mut self) {
        self.syn_is_due = false;
    }

    /// How often it left before, if the SYN is to leave now.
    pub(super) fn poll_syn(&mut self) -> Option<u8> {
        core::mem::take(&mut self.syn_is_due).then(|| {
            let before = self.syns;
            self.syns = before.saturating_add(1);
            before
        })
    }

    /// The options of a SYN that says what this end takes.
    pub(super) fn write_options(&self, options: &mut Options, mss: u16, shift: u8) {
        options.rest.push(TcpOption::Mss(mss));
        if self.sack {
            options.rest.push(TcpOption::SackPermitted);
        }
        if self.scaling {
            options.rest.push(TcpOption::WindowScale(shift));
        }
    }

    /// Both ends have selective acknowledgments.
    #[inline]
    pub(super) const fn has_sack(&self) -> bool {
        self.sack
    }

    /// Timestamps, if both ends have them.
    #[inline]
    pub(super) const fn timestamps(&self) -> &Timestamping {
        &self.timestamps
    }

    /// A segment came whose timestamp may become the echo; see [`Timestamping::handle_value`].
    #[inline]
    pub(super) fn handle_timestamp(&mut self, now: Instant, value: u32) {
        self.timestamps.handle_value(now, value);
    }

    /// The SYN was sent more than once, so that its answer measures nothing (RFC 6298 §3).
    pub(super) const fn is_ambiguous(&self) -> bool {
        self.syns > 1
    }
}
