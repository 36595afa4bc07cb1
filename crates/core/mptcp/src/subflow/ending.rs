//! How a subflow ends, and what its RST says (RFC 8684 §3.6, §3.7).

use polypath_wire::{DataSeq, ResetReason};

use crate::event::SubflowError;

/// What is known of a subflow's end.
#[derive(Debug)]
pub(crate) struct Ending {
    /// Data sequence number of an MP_FAIL that the RST carries.
    fail: Option<DataSeq>,
    /// Carried by the RST that ends the subflow.
    reset_reason: Option<ResetReason>,
    /// Why the subflow is ending, once that is known.
    error: Option<SubflowError>,
    /// This end sent its FIN or RST, or is about to.
    is_ending: bool,
    /// The peer reset the subflow for a cause that will not pass (MP_TCPRST without its T bit).
    is_refused_for_good: bool,
}

impl Ending {
    pub(super) const fn new() -> Self {
        Self { fail: None, reset_reason: None, error: None, is_ending: false, is_refused_for_good: false }
    }

    // ---- what happened

    /// This end finishes it; true if it had not before.
    pub(crate) fn finish(&mut self) -> bool {
        !core::mem::replace(&mut self.is_ending, true)
    }

    /// This end gives it up, and says nothing.
    pub(crate) fn give_up(&mut self) {
        self.error = Some(SubflowError::Local);
        self.is_ending = true;
    }

    /// This end resets it, and says why.
    pub(crate) fn reset(&mut self, error: SubflowError, reason: ResetReason) {
        self.error = Some(error);
        self.reset_reason = Some(reason);
        self.is_ending = true;
    }

    /// The RST that is to come says that data from this number on could not be verified.
    pub(crate) fn set_fail(&mut self, data_seq: DataSeq) {
        self.fail = Some(data_seq);
    }

    /// The peer reset it and said why (MP_TCPRST).
    pub(crate) fn handle_reset(&mut self, flags: u8, reason: ResetReason) {
        self.is_refused_for_good = flags & 1 == 0;
        self.error.get_or_insert(SubflowError::Reset(Some(reason)));
    }

    // ---- what holds

    /// See [`Ending::finish`].
    #[inline]
    pub(crate) const fn is_ending(&self) -> bool {
        self.is_ending
    }

    /// Why, once that is known.
    pub(crate) const fn error(&self) -> Option<SubflowError> {
        self.error
    }

    /// What MP_FAIL on the RST says.
    pub(crate) const fn fail(&self) -> Option<DataSeq> {
        self.fail
    }

    /// What MP_TCPRST on the RST says.
    pub(crate) const fn reset_reason(&self) -> Option<ResetReason> {
        self.reset_reason
    }

    /// Another attempt may have more luck.
    pub(crate) const fn may_return(&self) -> bool {
        !self.is_refused_for_good
    }
}
