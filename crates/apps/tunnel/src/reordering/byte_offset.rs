use crate::reordering::arrival_order::{Evaluated, Order};
use crate::reordering::distribution::Distribution;

/// *Type-P-Packet-Byte-Offset-Stream* (RFC 4737 §4.4): how many bytes a receiver holds when a reordered packet comes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ByteOffsets {
    distribution: Distribution,
}

impl ByteOffsets {
    /// A packet arrived.
    pub fn handle_arrival(&mut self, evaluated: &Evaluated) {
        if let Some(bytes) = Self::of(evaluated) {
            self.distribution.note(bytes);
        }
    }

    /// *ByteOffset* of a packet: the payload of all that were sent after it and arrived before it (RFC 4737 §4.4.3). One in order has none.
    #[must_use]
    pub const fn of(evaluated: &Evaluated) -> Option<u64> {
        match evaluated.order {
            Order::Reordered { overtaken_by_bytes, .. } => Some(overtaken_by_bytes),
            _ => None,
        }
    }

    /// How often which offset occurred, in bytes.
    #[must_use]
    pub const fn distribution(&self) -> &Distribution {
        &self.distribution
    }
}
