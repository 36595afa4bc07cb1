use alloc::collections::BTreeMap;
use core::net::IpAddr;

use polypath_units::{Duration, Instant};
use polypath_wire::{Endpoint, FourTuple, Packet, Transport};

use super::options::icmp_quote;
use super::{Direction, Middlebox, Outputs};
use crate::random::Random;

/// First port that a NAT gives out.
const FIRST_PORT: u16 = 1024;

/// Settings of a [`Nat`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NatConfig {
    /// The address that the outside sees. `None` (the default) leaves addresses as they are and changes ports
    /// only, for places where nobody routes another address to the box.
    pub public_addr: Option<IpAddr>,
    /// A mapping without packets for so long is gone. Default 2 h 4 min (RFC 5382 REQ-5).
    pub idle_timeout: Duration,
    /// At this time all mappings are lost at once, as when the box restarts. Default never.
    pub rebind_at: Option<Instant>,
}

impl Default for NatConfig {
    fn default() -> Self {
        Self { public_addr: None, idle_timeout: Duration::from_secs(7440), rebind_at: None }
    }
}

/// Network address and port translation for TCP, UDP, and ICMP errors about them. The client's side is
/// private.
///
/// A mapping is made by an outgoing packet and is for one pair of endpoints. Incoming packets without one are
/// dropped.
#[derive(Debug)]
pub struct Nat {
    config: NatConfig,
    /// Public ports by flow, as the client sees it.
    ports: BTreeMap<(Protocol, Endpoint, Endpoint), u16>,
    mappings: BTreeMap<u16, Mapping>,
    /// Where the search for a free port goes on when random picks are taken.
    next_port: usize,
    /// No mapping expires before.
    next_expiry: Instant,
    random: Random,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Protocol {
    Tcp,
    Udp,
}

#[derive(Clone, Copy, Debug)]
struct Mapping {
    protocol: Protocol,
    private: Endpoint,
    remote: Endpoint,
    public: Endpoint,
    last_used: Instant,
}

impl Nat {
    /// A NAT without mappings.
    pub fn new(config: NatConfig, seed: u64) -> Self {
        Self {
            config,
            ports: BTreeMap::new(),
            mappings: BTreeMap::new(),
            next_port: 0,
            next_expiry: Instant::ZERO,
            random: Random::new(seed),
        }
    }

    /// Loses all mappings: the next outgoing packet of each flow gets a new port.
    pub fn rebind(&mut self) {
        self.next_expiry = Instant::ZERO;
        self.ports.clear();
        self.mappings.clear();
    }

    /// Number of mappings, the expired included.
    pub fn mapping_count(&self) -> usize {
        self.mappings.len()
    }

    /// The public endpoint of an outgoing flow.
    fn translate_out(&mut self, now: Instant, key: (Protocol, Endpoint, Endpoint)) -> Option<Endpoint> {
        if let Some(port) = self.ports.get(&key).copied()
            && let Some(mapping) = self.mappings.get_mut(&port)
        {
            if now - mapping.last_used <= self.config.idle_timeout {
                mapping.last_used = now;
                return Some(mapping.public);
            }
            self.ports.remove(&key);
            self.mappings.remove(&port);
        }
        let port = self.free_port(now)?;
        let (protocol, private, remote) = key;
        let public = Endpoint::new(self.config.public_addr.unwrap_or(private.addr), port);
        self.ports.insert(key, port);
        self.mappings.insert(port, Mapping { protocol, private, remote, public, last_used: now });
        Some(public)
    }

    fn free_port(&mut self, now: Instant) -> Option<u16> {
        let count = usize::from(u16::MAX - FIRST_PORT) + 1;
        if self.mappings.len() >= count {
            self.forget_expired(now);
            if self.mappings.len() >= count {
                return None;
            }
        }
        let port_at = |step: usize| FIRST_PORT + (step % count) as u16;
        for _ in 0..8 {
            let port = port_at(self.random.u32() as usize);
            if !self.mappings.contains_key(&port) {
                return Some(port);
            }
        }
        let start = self.next_port;
        let step = (start..start + count).find(|step| !self.mappings.contains_key(&port_at(*step)))?;
        self.next_port = (step + 1) % count;
        Some(port_at(step))
    }

    fn forget_expired(&mut self, now: Instant) {
        if now <= self.next_expiry {
            return;
        }
        let idle_timeout = self.config.idle_timeout;
        self.mappings.retain(|_, mapping| now - mapping.last_used <= idle_timeout);
        let mappings = &self.mappings;
        self.ports.retain(|_, port| mappings.contains_key(port));
        let oldest = self.mappings.values().map(|mapping| mapping.last_used).min().unwrap_or(now);
        self.next_expiry = oldest + idle_timeout;
    }

    fn mapping_in(&mut self, now: Instant, protocol: Protocol, public: Endpoint) -> Option<&mut Mapping> {
        let idle_timeout = self.config.idle_timeout;
        self.mappings.get_mut(&public.port).filter(|mapping| {
            mapping.protocol == protocol
                && mapping.public == public
                && now - mapping.last_used <= idle_timeout
        })
    }

    /// Translates an outgoing packet; false drops it.
    fn outgoing(&mut self, now: Instant, packet: &mut Packet) -> bool {
        if let Some((protocol, flow)) = ports_of(packet, Direction::Forward) {
            let Some(public) = self.translate_out(now, (protocol, flow.local, flow.remote)) else {
                return false;
            };
            packet.ip.src = public.addr;
            set_source_port(packet, public.port);
            return true;
        }
        // An error about an incoming packet quotes it as it was inside.
        if let Some((flow, _)) = icmp_quote(packet) {
            let Some(port) = self.ports.get(&(Protocol::Tcp, flow.remote, flow.local)) else { return false };
            let Some(mapping) = self.mappings.get(port) else { return false };
            flow.remote = mapping.public;
            if packet.ip.src == mapping.private.addr {
                packet.ip.src = mapping.public.addr;
            }
        }
        true
    }

    /// Translates an incoming packet; false drops it.
    fn incoming(&mut self, now: Instant, packet: &mut Packet) -> bool {
        if let Some((protocol, flow)) = ports_of(packet, Direction::Backward) {
            let Some(mapping) = self.mapping_in(now, protocol, flow.local) else { return false };
            if mapping.remote != flow.remote {
                return false;
            }
            mapping.last_used = now;
            packet.ip.dst = mapping.private.addr;
            let port = mapping.private.port;
            set_destination_port(packet, port);
            return true;
        }
        if let Some((flow, _)) = icmp_quote(packet) {
            let Some(mapping) = self.mapping_in(now, Protocol::Tcp, flow.local) else { return false };
            if mapping.remote != flow.remote {
                return false;
            }
            flow.local = mapping.private;
            packet.ip.dst = mapping.private.addr;
        }
        true
    }
}

impl Middlebox for Nat {
    fn name(&self) -> &'static str {
        "nat"
    }

    fn handle_packet(&mut self, now: Instant, direction: Direction, mut packet: Packet, out: &mut Outputs) {
        if self.config.rebind_at.is_some_and(|at| at <= now) {
            self.config.rebind_at = None;
            self.rebind();
        }
        let passes = match direction {
            Direction::Forward => self.outgoing(now, &mut packet),
            Direction::Backward => self.incoming(now, &mut packet),
        };
        if passes {
            out.push(direction, packet);
        }
    }
}

/// Protocol and flow, as the client sees it, of a packet with ports.
fn ports_of(packet: &Packet, direction: Direction) -> Option<(Protocol, FourTuple)> {
    let (protocol, src_port, dst_port) = match &packet.transport {
        Transport::Tcp(segment) => (Protocol::Tcp, segment.src_port, segment.dst_port),
        Transport::Udp(datagram) => (Protocol::Udp, datagram.src_port, datagram.dst_port),
        Transport::Icmp(_) => return None,
    };
    let at_sender = FourTuple {
        local: Endpoint::new(packet.ip.src, src_port),
        remote: Endpoint::new(packet.ip.dst, dst_port),
    };
    Some((protocol, if direction == Direction::Forward { at_sender } else { at_sender.reversed() }))
}

fn set_source_port(packet: &mut Packet, port: u16) {
    match &mut packet.transport {
        Transport::Tcp(segment) => segment.src_port = port,
        Transport::Udp(datagram) => datagram.src_port = port,
        Transport::Icmp(_) => {}
    }
}

fn set_destination_port(packet: &mut Packet, port: u16) {
    match &mut packet.transport {
        Transport::Tcp(segment) => segment.dst_port = port,
        Transport::Udp(datagram) => datagram.dst_port = port,
        Transport::Icmp(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use polypath_wire::{IcmpMessage, IpHeader, SeqNumber};

    use super::super::testing::*;
    use super::*;
    use crate::testing::{CLIENT, FLOW, SERVER, datagram, segment_of};

    const PUBLIC: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    fn nat(config: NatConfig) -> Path<Nat> {
        Path::new(Nat::new(NatConfig { public_addr: Some(PUBLIC), ..config }, 5))
    }

    /// The client sends; the endpoint that the server sees.
    fn seen(path: &mut Path<Nat>, packet: Packet) -> Endpoint {
        path.client(packet)[0].receiver_tuple().unwrap().remote
    }

    fn answer_to(public: Endpoint) -> Packet {
        Packet::tcp(FourTuple { local: SERVER, remote: public }, segment_of(&syn_ack(500, 101)).clone())
    }

    #[test]
    fn the_outside_sees_one_address_and_answers_find_back() {
        let mut path = nat(NatConfig::default());
        let public = seen(&mut path, syn(100));
        assert_eq!(public.addr, PUBLIC);
        assert_ne!(public.port, CLIENT.port);
        assert_eq!(seen(&mut path, seg(101, 501, 5)), public, "the mapping stays");
        let back = path.pass(Direction::Backward, answer_to(public));
        assert_eq!(back[0].receiver_tuple(), Some(FLOW));
        let public = path.client(datagram(7, 100));
        assert_eq!(public[0].ip.src, PUBLIC);
    }

    #[test]
    fn what_nobody_asked_for_is_dropped() {
        let mut path = nat(NatConfig::default());
        let public = seen(&mut path, syn(100));
        let elsewhere = Endpoint { port: public.port ^ 1, ..public };
        assert_eq!(path.pass(Direction::Backward, answer_to(elsewhere)), []);
        let mut stranger = answer_to(public);
        stranger.ip.src = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9));
        assert_eq!(path.pass(Direction::Backward, stranger), []);
        assert_eq!(path.pass(Direction::Backward, turned(syn(900))), []);
    }

    #[test]
    fn an_idle_mapping_expires_and_a_new_one_has_another_port() {
        let mut path = nat(NatConfig { idle_timeout: Duration::from_secs(60), ..NatConfig::default() });
        let public = seen(&mut path, syn(100));
        path.wait(Duration::from_secs(60));
        assert_eq!(path.pass(Direction::Backward, answer_to(public)).len(), 1);
        path.wait(Duration::from_secs(61));
        assert_eq!(path.pass(Direction::Backward, answer_to(public)), []);
        assert_ne!(seen(&mut path, seg(101, 501, 5)), public);
        assert_eq!(path.middlebox.mapping_count(), 1);
    }

    #[test]
    fn a_restart_changes_the_mapping_in_the_middle_of_a_flow() {
        let mut path = nat(NatConfig { rebind_at: Some(Instant::from_secs(10)), ..NatConfig::default() });
        let public = seen(&mut path, syn(100));
        path.wait(Duration::from_secs(20));
        assert_eq!(path.pass(Direction::Backward, answer_to(public)), []);
        let second = seen(&mut path, seg(101, 501, 5));
        assert_ne!(second, public);
        assert_eq!(seen(&mut path, seg(106, 501, 5)), second);
    }

    #[test]
    fn errors_are_translated_with_what_they_quote() {
        let mut path = nat(NatConfig::default());
        let public = seen(&mut path, seg(101, 501, 1400));
        let about = |flow| Packet {
            ip: IpHeader::new(SERVER.addr, PUBLIC),
            transport: Transport::Icmp(IcmpMessage::PacketTooBig { mtu: 1300, flow, seq: SeqNumber(101) }),
        };
        let quoted = FourTuple { local: public, remote: SERVER };
        let passed = path.pass(Direction::Backward, about(quoted));
        let expected = IcmpMessage::PacketTooBig { mtu: 1300, flow: FLOW, seq: SeqNumber(101) };
        assert_eq!(passed[0].transport, Transport::Icmp(expected));
        assert_eq!(passed[0].ip.dst, CLIENT.addr);
        let unknown = FourTuple { local: Endpoint { port: 1, ..public }, ..quoted };
        assert_eq!(path.pass(Direction::Backward, about(unknown)), []);
    }

    #[test]
    fn without_an_address_of_its_own_it_changes_ports_only() {
        let mut path = Path::new(Nat::new(NatConfig::default(), 5));
        let public = seen(&mut path, syn(100));
        assert_eq!(public.addr, CLIENT.addr);
        assert_ne!(public.port, CLIENT.port);
        assert_eq!(path.pass(Direction::Backward, answer_to(public))[0].receiver_tuple(), Some(FLOW));
    }

    #[test]
    fn every_port_is_given_out_once_and_then_no_more() {
        let mut path = nat(NatConfig::default());
        let from = |port: u16| {
            let flow = FourTuple { local: Endpoint::new(CLIENT.addr, port), remote: SERVER };
            Packet::tcp(flow, segment_of(&plain_syn(1)).clone())
        };
        let other = |port: u16| {
            let mut packet = from(port);
            packet.ip.src = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
            packet
        };
        let passed = (0..=u16::MAX).filter(|port| !path.client(from(*port)).is_empty()).count();
        assert_eq!(passed, 65_536 - usize::from(FIRST_PORT));
        assert_eq!(path.client(other(1)), []);
        path.wait(Duration::from_secs(8000));
        assert_eq!(path.client(other(1)).len(), 1);
        assert_eq!(path.middlebox.mapping_count(), 1);
    }
}
