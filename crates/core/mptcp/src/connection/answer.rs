//! What follows from a peer's misbehaviour is done here: see [`crate::misbehaviour`].

use super::{Connection, Context};
use crate::misbehaviour::{Consequence, Misbehaviour};

impl Connection {
    /// Somebody noticed something on the subflow at `position`.
    pub(super) fn answer(&mut self, cx: &mut Context<'_>, position: usize, misbehaviour: Misbehaviour) {
        misbehaviour.count(cx.mib);
        match misbehaviour.consequence() {
            // To fall back takes the data as well, which the caller has.
            Consequence::Ignore | Consequence::Accept | Consequence::FallBack => {}
            Consequence::ForgetDataFin => self.stream.receive.forget_fin(),
            Consequence::SendFail => self.send_fail(cx.now, position),
            Consequence::Reset(error, reason) => self.reset_subflow(position, error, reason),
            Consequence::Close(reason) => self.fail(reason),
        }
    }
}
