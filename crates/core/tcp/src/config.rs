use alloc::boxed::Box;

use polypath_congestion::{self as congestion, Controller};
use polypath_units::Duration;

use crate::loss_recovery::LossRecovery;

/// Settings of a TCP connection. Every field has the default of current standards; sizes are in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Receive buffer: the most data that is kept for the application and for reassembly. Default 64 MiB.
    pub receive_buffer_bytes: u64,
    /// Send buffer: the most data that the application can have queued and unacknowledged. Default 64 MiB.
    pub send_buffer_bytes: u64,
    /// Path MTU at the start, in bytes. Default 1500.
    pub mtu_bytes: u16,
    /// Least path MTU that is believed. Default 552 (IPv4) as Linux; IPv6 never goes below 1280.
    pub min_mtu_bytes: u16,
    /// Largest payload handed out in one [`Segment`](polypath_wire::Segment): an aggregate of segments of the maximum segment
    /// size that a driver cuts. Zero means one segment at a time. Default 65 000 (below the 65 535 of an IP packet).
    pub max_aggregate_bytes: u32,
    /// Timestamps (RFC 7323). Default on.
    pub timestamps: bool,
    /// Selective acknowledgments (RFC 2018). Default on.
    pub sack: bool,
    /// What tells of losses, and of losses that were none. Default as current standards have it.
    pub loss_recovery: LossRecovery,
    /// Window scaling (RFC 7323). Default on; the shift follows from the receive buffer.
    pub window_scaling: bool,
    /// Initial window in segments (RFC 6928). Default 10.
    pub initial_window_packets: u32,
    /// Least slow-start threshold in segments. Default 2; 1 suits coupled algorithms over several subflows.
    pub min_ssthresh_packets: u32,
    /// Least retransmission timeout. Default 200 ms.
    pub min_rto: Duration,
    /// Largest retransmission timeout. Default 120 s.
    pub max_rto: Duration,
    /// Retransmission timeout before the first sample (RFC 6298 §2.1). Default 1 s.
    pub initial_rto: Duration,
    /// How often a SYN is retransmitted before the connection fails. Default 6.
    pub syn_retries: u8,
    /// How often a SYN/ACK is retransmitted. Default 5.
    pub syn_ack_retries: u8,
    /// How often data is retransmitted by timeout before the connection fails. Default 15.
    pub retries: u8,
    /// Delayed acknowledgment: the longest wait (RFC 9293 §3.8.6.3). Default 40 ms.
    pub delayed_ack: Duration,
    /// Every full-sized segment is acknowledged at once until this many have arrived ("quick-ack"). Default 16.
    pub quick_ack_packets: u32,
    /// Nagle's algorithm is off. Default on: what interactive programs over a library expect.
    pub no_delay: bool,
    /// Idle time before the first keep-alive probe; `None` sends none. Default none.
    pub keepalive_idle: Option<Duration>,
    /// Time between keep-alive probes. Default 75 s.
    pub keepalive_interval: Duration,
    /// Unanswered keep-alive probes after which the connection fails. Default 9.
    pub keepalive_probes: u8,
    /// The connection fails when data stays unacknowledged this long (RFC 5482), though the peer answers with its window closed, as in
    /// Linux; `None` leaves it to `retries`, and a peer that answers may keep its window closed. Default none.
    pub user_timeout: Option<Duration>,
    /// TIME-WAIT: 2 MSL. Default 60 s, as Linux.
    pub time_wait: Duration,
    /// FIN-WAIT-2 of a connection that nobody reads any more. Default 60 s.
    pub fin_wait_2: Duration,
    /// A connection that the application has let go of is reset when nothing of what it still has to deliver is acknowledged for
    /// this long, though the peer may answer all the time, with its window closed. Default 180 s, since a timeout that doubles each
    /// time finds out up to two minutes later that an outage of one is over; Linux gives up after 100 to 200 s.
    pub orphan_timeout: Duration,
    /// Pacing: segments are spread over the round trip. Default on.
    pub pacing: bool,
    /// Most data that pacing releases at once, in bytes: what the path's rate carries in a millisecond up to this, and two
    /// segments at least. Default 0: two segments; a driver with segmentation offload wants more.
    pub pacing_burst_bytes: u32,
    /// Path-MTU probing by black-hole detection (RFC 4821). Default on.
    pub mtu_probing: bool,
    /// Most gaps in the reassembly queue; data that would open another is dropped. Default 4096.
    pub max_reassembly_gaps: usize,
    /// Most challenge ACKs per second and connection (RFC 5961 §10). Default 10.
    pub challenge_acks_per_second: u32,
    /// Most acknowledgments in a row that answer empty segments which are not acceptable, or which acknowledge what was never
    /// sent. The next acceptable segment begins a new row. Two ends that disagree after a forged segment so fall silent.
    /// Default 10.
    pub challenge_acks_in_a_row: u32,
}

impl Config {
    /// A congestion control with these settings, for segments of that size.
    pub(crate) fn controller(&self, algorithm: &congestion::Policy, mss_bytes: u32) -> Box<dyn Controller> {
        algorithm.build_for(&congestion::Config {
            mss_bytes,
            initial_window_packets: self.initial_window_packets,
            min_ssthresh_packets: self.min_ssthresh_packets,
        })
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            receive_buffer_bytes: 64 << 20,
            send_buffer_bytes: 64 << 20,
            mtu_bytes: 1500,
            min_mtu_bytes: 552,
            max_aggregate_bytes: 65_000,
            timestamps: true,
            sack: true,
            loss_recovery: LossRecovery::default(),
            window_scaling: true,
            initial_window_packets: 10,
            min_ssthresh_packets: 2,
            min_rto: Duration::from_millis(200),
            max_rto: Duration::from_secs(120),
            initial_rto: Duration::from_secs(1),
            syn_retries: 6,
            syn_ack_retries: 5,
            retries: 15,
            delayed_ack: Duration::from_millis(40),
            quick_ack_packets: 16,
            no_delay: true,
            keepalive_idle: None,
            keepalive_interval: Duration::from_secs(75),
            keepalive_probes: 9,
            user_timeout: None,
            time_wait: Duration::from_secs(60),
            fin_wait_2: Duration::from_secs(60),
            orphan_timeout: Duration::from_secs(180),
            pacing: true,
            pacing_burst_bytes: 0,
            mtu_probing: true,
            max_reassembly_gaps: 4096,
            challenge_acks_per_second: 10,
            challenge_acks_in_a_row: 10,
        }
    }
}
