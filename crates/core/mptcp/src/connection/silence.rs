//! Subflows on which the peer's data stops coming. An end that only receives learns nothing of a path that has died: nothing of its own is
//! outstanding there. If a translator on the way has forgotten the subflow, the peer may even have been told that it is gone.
//!
//! So the client, which is the end that can open another, asks such a subflow with a keep-alive probe (RFC 9293 §3.8.4). A peer that has
//! it answers, and the subflow is left alone until it has brought data again. One that has not resets it, and the path manager opens
//! another. A connection that was idle for a moment costs no probe: data must have come elsewhere meanwhile, or so much before that the
//! pause is a surprise.

use alloc::boxed::Box;
use alloc::vec::Vec;

use polypath_units::Instant;

use super::silence_watch::{Seen, SilenceWatch, Verdict};
use super::{Connection, Context};
use crate::identifiers::SubflowId;
use crate::subflow::Subflow;

impl Connection {
    /// Data came: from now on it is looked whether it goes on coming.
    #[inline]
    pub(super) fn watch_for_silence(&mut self, now: Instant) {
        if self.silence_watch.is_none() && self.stream.negotiation.is_client() {
            self.start_watch(now);
        }
    }

    fn start_watch(&mut self, now: Instant) {
        if self.may_watch() {
            self.silence_watch = Some(Box::new(SilenceWatch::new(now, &self.seen())));
        }
    }

    fn may_watch(&self) -> bool {
        self.stream.lifecycle.is_mptcp() && !self.stream.receive.is_finished()
    }

    fn seen(&self) -> Vec<Seen> {
        let used = self.subflows.iter().filter(|subflow| subflow.is_in_use());
        let see = |subflow: &Subflow| Seen {
            subflow: subflow.state.id,
            received_bytes: subflow.rx.offset(),
            heard_at: subflow.tcp.last_received_at(),
        };
        used.map(see).collect()
    }

    #[inline]
    pub(super) fn silence_timeout_at(&self) -> Instant {
        self.silence_watch.as_ref().map_or(Instant::FAR_FUTURE, |watch| watch.next_timeout())
    }

    pub(super) fn look_for_silence(&mut self, cx: &mut Context<'_>) {
        let Some(mut watch) = self.silence_watch.take_if(|watch| watch.next_timeout() <= cx.now) else {
            return;
        };
        if !self.may_watch() {
            return;
        }
        let verdicts = watch.look(cx.now, &self.seen());
        if !watch.is_over() {
            self.silence_watch = Some(watch);
        }
        for (id, verdict) in verdicts {
            self.follow_verdict(cx, id, verdict);
        }
    }

    fn follow_verdict(&mut self, cx: &mut Context<'_>, id: SubflowId, verdict: Verdict) {
        let Some(Subflow { tcp, state, .. }) = self.subflows.find_mut(id) else { return };
        if verdict == Verdict::Heard {
            if tcp.consecutive_timeouts() == 0 {
                self.recover_path(cx, id);
            }
            return;
        }
        tcp.request_probe();
        let tuple = tcp.tuple();
        let may_tell = self.stream.config.stale_loss_count > 0 && verdict == Verdict::ProbeAndTell;
        if may_tell && state.path.become_stale() {
            self.tell_stale(cx, id, tuple);
        }
    }
}
