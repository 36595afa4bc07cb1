/// How much state a host has; everything is zero when all connections are gone and nobody listens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Population {
    /// Connections, half-open ones and those included that have ended and are not released.
    pub connections: usize,
    /// Connections from outside whose handshake is under way.
    pub half_open: usize,
    /// TIME-WAIT records.
    pub time_waits: usize,
    /// Entries of the flow table: what connections have, and TIME-WAIT records.
    pub flows: usize,
    /// Timers of connections and of TIME-WAIT records.
    pub timers: usize,
    /// Listeners.
    pub listeners: usize,
}
