//! What follows from a peer's misbehaviour is done here: see [`crate::misbehaviour`].

use super::{Connection, Context};
use crate::misbehaviour::{Consequence, Misbehaviour};

impl Connection {
    /// Somebody noticed something on the subflow at `position`.
    pub(super) fn answer(&mut self, cx: &mut Context<'_>, position: usize, misbehaviour: Misbehaviour) {
        let left = self.answer_partly(cx, position, misbehaviour);
        debug_assert_eq!(left, None, "whoever notices {misbehaviour:?} has more to do");
    }

    /// The same of what may lead to a fallback. That is left to whoever noticed, who has the bytes: it is returned.
    pub(super) fn answer_partly(
        &mut self,
        cx: &mut Context<'_>,
        position: usize,
        misbehaviour: Misbehaviour,
    ) -> Option<Consequence> {
        misbehaviour.count(cx.counters);
        match misbehaviour.consequence() {
            Consequence::Ignore | Consequence::Accept => {}
            Consequence::ForgetDataFin => self.stream.receive.forget_fin(),
            Consequence::Reset(error, reason) => self.reset_subflow(position, error, reason),
            Consequence::Close(reason) => self.fail(reason),
            left @ (Consequence::SendFail | Consequence::FallBack) => return Some(left),
        }
        None
    }
}
