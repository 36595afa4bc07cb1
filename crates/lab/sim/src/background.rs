//! Datagrams that take a path's room and do not care: a source that is on and off in turn, and a sink.

use std::collections::VecDeque;

use bytes::Bytes;
use polypath_units::{BitRate, Duration, Instant};
use polypath_wire::{Datagram, Endpoint, IpHeader, Packet, Payload, Transport};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use crate::network::Node;

/// Bytes of the headers of a UDP datagram over IPv4.
pub const HEADER_BYTES: u64 = 28;

/// Sends at a fixed rate for a while and then not for a while, by turns; how long each lasts follows a Pareto distribution, so
/// that many such sources together are as bursty over minutes as over seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OnOff {
    /// Rate while on, headers included.
    pub rate: BitRate,
    /// Length of a packet in bytes, headers included; more than [`HEADER_BYTES`].
    pub packet_bytes: u64,
    /// Mean time on.
    pub on: Duration,
    /// Mean time off; zero never stops.
    pub off: Duration,
    /// Shape of the distribution, above 1; below 2 its variance has no bound.
    pub shape: f64,
}

/// A host that sends as an [`OnOff`] says, and takes no packets.
#[derive(Debug)]
pub struct DatagramSource {
    plan: OnOff,
    from: Endpoint,
    to: Endpoint,
    random: ChaCha8Rng,
    payload: Payload,
    /// When the next packet leaves.
    next_at: Instant,
    /// When the present time on ends.
    on_until: Instant,
    stop: Instant,
    ready: VecDeque<Packet>,
}

impl DatagramSource {
    /// Sends from `start` until `stop`. It begins on.
    #[must_use]
    pub fn new(plan: OnOff, [from, to]: [Endpoint; 2], [start, stop]: [Instant; 2], seed: u64) -> Self {
        let payload_bytes = plan.packet_bytes.saturating_sub(HEADER_BYTES).max(1);
        let mut source = Self {
            plan,
            from,
            to,
            random: ChaCha8Rng::seed_from_u64(seed),
            payload: Payload::from(Bytes::from(vec![0; usize::try_from(payload_bytes).unwrap_or(1)])),
            next_at: start,
            on_until: start,
            stop,
            ready: VecDeque::new(),
        };
        source.on_until = start + source.span(plan.on);
        source
    }

    /// A span from a Pareto distribution of this mean.
    fn span(&mut self, mean: Duration) -> Duration {
        // Neither 0, which would have no end, nor 1.
        let place = ((self.random.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        let least = mean.as_secs_f64() * (self.plan.shape - 1.0) / self.plan.shape;
        // A day is as good as for ever, and fits.
        Duration::from_secs_f64((least / place.powf(1.0 / self.plan.shape)).min(86_400.0))
    }

    fn packet(&self) -> Packet {
        let datagram =
            Datagram { src_port: self.from.port, dst_port: self.to.port, payload: self.payload.clone() };
        Packet { ip: IpHeader::new(self.from.addr, self.to.addr), transport: Transport::Udp(datagram) }
    }
}

impl Node for DatagramSource {
    fn handle_packet(&mut self, _now: Instant, _packet: Packet) {}

    fn poll_transmit(&mut self, _now: Instant) -> Option<Packet> {
        self.ready.pop_front()
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        Some(self.next_at).filter(|at| *at < self.stop)
    }

    fn handle_timeout(&mut self, now: Instant) {
        while self.next_at <= now && self.next_at < self.stop {
            self.ready.push_back(self.packet());
            self.next_at += self.plan.rate.time_to_send(self.plan.packet_bytes);
            while self.next_at >= self.on_until && self.on_until < self.stop {
                let (off, on) = (self.span(self.plan.off), self.span(self.plan.on));
                self.next_at = self.next_at.max(self.on_until + off);
                self.on_until += off + on;
            }
        }
    }
}

/// A host that takes everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct DatagramSink;

impl Node for DatagramSink {
    fn handle_packet(&mut self, _now: Instant, _packet: Packet) {}

    fn poll_transmit(&mut self, _now: Instant) -> Option<Packet> {
        None
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _now: Instant) {}
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::network::{LinkSpec, NetworkBuilder};

    fn plan(off_ms: u64) -> OnOff {
        OnOff {
            rate: BitRate::from_mbps(8),
            packet_bytes: 1000,
            on: Duration::from_millis(200),
            off: Duration::from_millis(off_ms),
            shape: 1.9,
        }
    }

    fn endpoints() -> [Endpoint; 2] {
        [1, 2].map(|host| Endpoint::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)), 9))
    }

    /// When packets leave between 0 s and `until_s`.
    fn departures(plan: OnOff, until_s: u64, seed: u64) -> Vec<Instant> {
        let times = [Instant::ZERO, Instant::from_secs(until_s)];
        let mut source = DatagramSource::new(plan, endpoints(), times, seed);
        let mut departures = Vec::new();
        while let Some(at) = source.poll_timeout() {
            source.handle_timeout(at);
            while let Some(packet) = source.poll_transmit(at) {
                assert_eq!(packet.len_bytes() as u64, plan.packet_bytes);
                departures.push(at);
            }
        }
        departures
    }

    #[test]
    fn it_sends_its_rate_while_on_and_its_share_of_the_time() {
        // A packet a millisecond, a fifth of the time.
        let departures = departures(plan(800), 2000, 1);
        let share = departures.len() as f64 / 2_000_000.0;
        assert!((0.15..0.25).contains(&share), "{share}");
        let gaps: Vec<f64> =
            departures.windows(2).map(|pair| pair[1].since(pair[0]).as_millis_f64()).collect();
        assert!(gaps.iter().all(|gap| *gap > 0.999_999));
        let pauses: Vec<f64> = gaps.iter().copied().filter(|gap| *gap > 1.5).collect();
        // No pause is shorter than the least of the distribution, 0.9/1.9 of the mean, and some are much longer.
        assert!(pauses.iter().all(|pause| *pause > 0.47 * 800.0), "{pauses:?}");
        let longest = pauses.iter().copied().fold(0.0, f64::max);
        assert!(longest > 4000.0, "{longest}");
        assert!((1500..2600).contains(&pauses.len()), "{}", pauses.len());
    }

    #[test]
    fn without_pauses_it_sends_all_the_time_and_equal_seeds_give_equal_traffic() {
        assert_eq!(departures(plan(0), 3, 1).len(), 3000);
        assert_eq!(departures(plan(800), 30, 5), departures(plan(800), 30, 5));
        assert_ne!(departures(plan(800), 30, 5), departures(plan(800), 30, 6));
    }

    #[test]
    fn its_packets_cross_a_network() {
        let mut builder = NetworkBuilder::new(1);
        let [from, to] = endpoints();
        let times = [Instant::from_secs(1), Instant::from_secs(2)];
        let source = DatagramSource::new(plan(0), [from, to], times, 1);
        let source = builder.custom("source", Box::new(source));
        let sink = builder.custom("sink", Box::new(DatagramSink));
        let mut wire = LinkSpec::new("wire", [source, sink], [Some(from.addr), Some(to.addr)]);
        wire.forward = Some(polypath_link::LinkConfig::default());
        let link = builder.link(wire);
        let mut network = builder.build();
        network.run_until(Instant::from_secs(1));
        assert!(network.channel_stats(link.forward()).delivered_packets <= 1);
        network.run_until(Instant::from_secs(5));
        assert_eq!(network.channel_stats(link.forward()).delivered_bytes, 1_000_000);
    }
}
