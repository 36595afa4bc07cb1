//! How far a subflow's handshake is: every transition in one place (RFC 8684 §3.1, §3.2, §3.7).

/// How far a subflow's handshake is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Client: SYN with MP_CAPABLE sent.
    CapableSyn,
    /// Server: SYN/ACK with MP_CAPABLE sent; the third ACK is awaited.
    CapableSynAck,
    /// Client: third ACK sent; the first DSS is awaited.
    CapableAck,
    /// Client: SYN with MP_JOIN sent.
    JoinSyn,
    /// Server: SYN/ACK with MP_JOIN sent; the third ACK is awaited.
    JoinSynAck,
    /// Client: third ACK sent; the fourth is awaited, and no data may leave before it (RFC 8684 §3.2).
    JoinAck,
    /// Multipath TCP.
    Established,
    /// TCP, from the start or after a fallback.
    Plain,
}

impl Stage {
    /// Each of them.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 8] = [
        Self::CapableSyn,
        Self::CapableSynAck,
        Self::CapableAck,
        Self::JoinSyn,
        Self::JoinSynAck,
        Self::JoinAck,
        Self::Established,
        Self::Plain,
    ];

    // ---- transitions

    /// The peer's key came with MP_CAPABLE: a server knows that the client has both, a client has yet to hear (RFC 8684 §3.1).
    pub(crate) fn handle_capable(&mut self) {
        match self {
            Self::CapableSyn => *self = Self::CapableAck,
            Self::CapableSynAck => *self = Self::Established,
            _ => {}
        }
    }

    /// Something came that only a server sends which has both keys: mostly the first DSS.
    pub(crate) fn handle_confirmation(&mut self) {
        if *self == Self::CapableAck {
            *self = Self::Established;
        }
    }

    /// The SYN/ACK of our MP_JOIN came, with the HMAC that it must have.
    pub(crate) fn handle_join_syn_ack(&mut self) {
        if *self == Self::JoinSyn {
            *self = Self::JoinAck;
        }
    }

    /// The third ACK of an MP_JOIN came, with the HMAC that it must have; or the fourth.
    pub(crate) fn handle_join_ack(&mut self) {
        if matches!(self, Self::JoinSynAck | Self::JoinAck) {
            *self = Self::Established;
        }
    }

    /// The connection falls back, on this subflow.
    pub(crate) fn handle_fallback(&mut self) {
        if !self.is_joining() {
            *self = Self::Plain;
        }
    }

    // ---- what holds

    /// Data may be scheduled.
    #[inline]
    pub(crate) const fn carries_data(self) -> bool {
        matches!(self, Self::CapableAck | Self::Established | Self::Plain)
    }

    /// MP_JOIN is not complete.
    #[inline]
    pub(crate) const fn is_joining(self) -> bool {
        matches!(self, Self::JoinSyn | Self::JoinSynAck | Self::JoinAck)
    }
}
