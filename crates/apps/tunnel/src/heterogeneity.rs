//! What a difference in delay does to a stream that two paths carry in turn (Kaspar 2011, 4.1.1).
//!
//! ```
//! # mod polypath { pub use polypath_tunnel as tunnel; pub use polypath_units as units; }
//! use polypath::tunnel::heterogeneity::{critical_bitrate, expected_displacement};
//! use polypath::units::{BitRate, Duration};
//!
//! // A cellular network and a wireless LAN, packets of 1480 bytes.
//! let (slow, fast) = (Duration::from_millis(80), Duration::from_millis(43));
//! assert_eq!(critical_bitrate(1480, slow, fast), Some(BitRate::from_kbps(320)));
//! // At 2 Mbit/s, each packet of the slow path comes after three of the fast one that were sent later.
//! assert_eq!(expected_displacement(BitRate::from_mbps(2), 1480, slow, fast).round(), 3.0);
//! ```

use polypath_units::{BitRate, Duration};

/// The rate of a stream above which packets of the faster path overtake those of the slower one: *s*/|*d*₁ − *d*₂| (Kaspar 2011, eq. 4.1).
///
/// None if the delays are the same: then no rate is too high.
#[must_use]
pub fn critical_bitrate(packet_bytes: u32, delay: Duration, other_delay: Duration) -> Option<BitRate> {
    let difference = difference(delay, other_delay);
    (!difference.is_zero()).then(|| BitRate::from_bytes_over(u64::from(packet_bytes), difference))
}

/// By how many positions packets are displaced if two paths take them in turn: *B*/(2*s*)·|*d*₁ − *d*₂| (Kaspar 2011, eq. 4.2).
///
/// That many packets does the slower path carry during the difference. Those of the slower path are late by as many, those of the faster one early. Zero for
/// empty packets.
#[must_use]
pub fn expected_displacement(
    rate: BitRate,
    packet_bytes: u32,
    delay: Duration,
    other_delay: Duration,
) -> f64 {
    if packet_bytes == 0 {
        return 0.0;
    }
    let bits = f64::from(packet_bytes) * 8.0;
    rate.as_bps() as f64 / (2.0 * bits) * difference(delay, other_delay).as_secs_f64()
}

fn difference(delay: Duration, other: Duration) -> Duration {
    delay.max(other).saturating_sub(delay.min(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_one_delay_do_not_reorder() {
        let delay = Duration::from_millis(80);
        assert_eq!(critical_bitrate(1480, delay, delay), None);
        assert_eq!(expected_displacement(BitRate::from_mbps(2), 1480, delay, delay), 0.0);
        assert_eq!(expected_displacement(BitRate::from_mbps(2), 0, delay, Duration::ZERO), 0.0);
    }

    /// Kaspar 2011, Fig. 4.7(b): 6 Mbit/s over 10 and 50 ms, about ten positions.
    #[test]
    fn either_path_may_be_the_slower_one() {
        let (fast, slow) = (Duration::from_millis(10), Duration::from_millis(50));
        for (delay, other) in [(fast, slow), (slow, fast)] {
            assert_eq!(expected_displacement(BitRate::from_mbps(6), 1480, delay, other).round(), 10.0);
        }
    }
}
