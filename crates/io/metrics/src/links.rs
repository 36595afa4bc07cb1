/// One direction of an emulated link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkSample {
    /// The interface at which packets enter it.
    pub interface: String,
    /// Bytes that entered it.
    pub received_bytes: u64,
    /// Bytes that came out.
    pub delivered_bytes: u64,
    /// Packets that did not, by cause.
    pub dropped_packets: Vec<(&'static str, u64)>,
}
