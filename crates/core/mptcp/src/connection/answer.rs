//! What follows from a peer's misbehaviour is done here: see [`crate::misbehaviour`].

use polypath_wire::Payload;

use super::{Connection, Context};
use crate::misbehaviour::{Consequence, Misbehaviour};

impl Connection {
    /// Somebody noticed something on the subflow at `position`.
    pub(super) fn answer(&mut self, cx: &mut Context<'_>, position: usize, misbehaviour: Misbehaviour) {
        self.answer_with(cx, position, misbehaviour, Payload::EMPTY);
    }

    /// The same of somebody who has `bytes` in hand, the next of the subflow, which are data if the connection falls back.
    pub(super) fn answer_with(
        &mut self,
        cx: &mut Context<'_>,
        position: usize,
        misbehaviour: Misbehaviour,
        bytes: Payload,
    ) {
        misbehaviour.count(cx.counters);
        match misbehaviour.consequence() {
            Consequence::Ignore | Consequence::Accept => {}
            Consequence::ForgetDataFin => self.stream.receive.forget_fin(),
            Consequence::SendFail => self.send_fail(cx, position),
            Consequence::FallBack => self.infinite_from_here(cx, position, bytes),
            Consequence::Reset(error, reason) => self.reset_subflow(position, error, reason),
            Consequence::Close(reason) => self.fail(reason),
        }
    }
}
