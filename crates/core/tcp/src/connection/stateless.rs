//! A handshake that holds nothing between SYN and third ACK (RFC 4987 §3.6).
//!
//! [`stateless_syn_ack`] answers the SYN, [`Connection::resume`] goes on from the acknowledgment. What lies between is in the
//! numbers that the peer sends back; see [`crate::SynCookies`].

use core::fmt::Debug;

use polypath_units::Instant;
use polypath_wire::{FourTuple, Segment, SeqNumber, TcpFlags, TcpOption, Timestamps};

use super::path_mtu::PathMtu;
use super::{Config, Connection, Setup, State, scale_for};

/// The SYN/ACK that a connection with these settings would send, but that our numbers are the caller's: `isn`, and
/// `timestamp` where both ends have timestamps. `window_bytes` is what the connection would advertise.
#[must_use]
pub fn stateless_syn_ack(
    config: &Config,
    tuple: &FourTuple,
    syn: &Segment,
    isn: SeqNumber,
    timestamp: u32,
    window_bytes: u64,
) -> Segment {
    let mut segment = Segment {
        seq: isn,
        ack: syn.seq.add(1),
        flags: TcpFlags::SYN.with(TcpFlags::ACK),
        window: stateless_window(window_bytes),
        ..Segment::default()
    };
    let options = &mut segment.options;
    options.rest.reserve_exact(4);
    let mtu = PathMtu::new(config.mtu_bytes, config.min_mtu_bytes, tuple.local.addr.is_ipv6());
    options.rest.push(TcpOption::Mss(mtu.own_mss_bytes()));
    if config.sack && syn.options.sack_permitted() {
        options.rest.push(TcpOption::SackPermitted);
    }
    if config.window_scaling && syn.options.window_scale().is_some() {
        options.rest.push(TcpOption::WindowScale(scale_for(config.receive_buffer_bytes)));
    }
    if config.timestamps {
        options.timestamps =
            syn.options.timestamps.map(|theirs| Timestamps { value: timestamp, echo: theirs.value });
    }
    segment
}

/// The window of a SYN/ACK, which is never scaled (RFC 7323 §2.2).
fn stateless_window(window_bytes: u64) -> u16 {
    u16::try_from(window_bytes).unwrap_or(u16::MAX)
}

impl<M: Copy + PartialEq + Debug + Default> Connection<M> {
    /// A connection whose SYN/ACK left as [`stateless_syn_ack`] with `setup.isn` and `window_bytes`. `syn` is what is known of
    /// the SYN. The third ACK comes next, through [`Connection::handle_segment`].
    #[must_use]
    pub fn resume(now: Instant, setup: Setup, syn: &Segment, window_bytes: u64) -> Self {
        let mut connection = Self::accept(now, setup, syn);
        connection.handshake.resume();
        connection.send.handle_syn_sent();
        connection.receive.resume(stateless_window(window_bytes));
        connection
    }

    /// True until the third ACK of a connection from outside.
    #[must_use]
    pub fn is_half_open(&self) -> bool {
        self.state() == State::SynReceived
    }
}
