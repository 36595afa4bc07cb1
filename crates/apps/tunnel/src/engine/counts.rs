//! What is counted of an end.

/// What belongs to no peer, in datagrams or packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineCounts {
    /// No message of the protocol, or no IP packet.
    pub malformed: u64,
    /// Of no session of ours.
    pub unknown_session: u64,
    /// Handshakes that were forged, or not for us.
    pub refused_handshakes: u64,
    /// Handshakes that came before.
    pub replayed_handshakes: u64,
    /// Handshakes of keys that no peer has.
    pub unknown_peers: u64,
    /// Cookies that were asked for, in a flood.
    pub cookies: u64,
    /// Packets for addresses that no peer has.
    pub no_peer: u64,
    /// Packets longer than the tunnel's MTU.
    pub too_long: u64,
}
