//! Carries out operations.

use std::net::{IpAddr, Ipv4Addr};

use polypath_mptcp::SubflowId;
use polypath_mptcp::path_manager::LocalEndpoint;
use polypath_units::{Duration, Instant};
use polypath_wire::{
    Endpoint, FourTuple, IcmpMessage, IpHeader, MpCapable, MpCapableKeys, MpJoin, MptcpOption, Packet,
    Payload, Segment, SeqNumber, TcpFlags, TcpOption, Transport,
};

use super::failure::{Finding, FindingKind};
use super::forge::Forgery;
use super::invariants::{self, most_packets_after_one};
use super::op::{Join, Op, Pace};
use super::setup::{PORT, Side, Strength, server_addr};
use super::world::World;

/// Applications that one run has: beyond, connections are not opened.
const MOST_APPLICATIONS: usize = 12;
/// Steps beyond this are not taken: timers may be minutes away.
const MOST_STEPS_TAKE: Duration = Duration::from_secs(1);
/// What a packet causes that the network delivers twice: an answer, and an answer to that.
const PACKETS_OF_DUPLICATE: u64 = 2;
/// What further subflows take, those that are refused too: an injection may bring the word that lets them be opened.
const PACKETS_OF_SUBFLOWS: u64 = 50;
/// How long hosts are given to come to rest, and how long what follows an injection is counted.
const REST: Duration = Duration::from_secs(2);

impl World {
    pub(super) fn apply(&mut self, op: Op) -> Result<(), Finding> {
        self.carry_out(op)?;
        invariants::after_step(&self.hosts, &self.applications, Side::Client)?;
        invariants::after_step(&self.hosts, &self.applications, Side::Server)
    }

    fn carry_out(&mut self, op: Op) -> Result<(), Finding> {
        if let Some(log) = &mut self.log {
            log.push(format!("{} -- {op:?}", self.now));
        }
        match op {
            Op::Wait(span) => self.run_until(self.now + span),
            Op::Steps(count) => {
                let until = self.now + MOST_STEPS_TAKE;
                (0..count).try_for_each(|_| self.step(until).map(|_happened| ()))
            }
            Op::Connect { link, server_addr } if self.applications.len() < MOST_APPLICATIONS => {
                self.connect(link, server_addr)
            }
            Op::Connect { .. } => Ok(()),
            Op::Faults(faults) => {
                self.network.set_faults(faults);
                Ok(())
            }
            Op::DropNext { from, kind, count } => {
                self.network.drop_next(from, kind, count);
                Ok(())
            }
            Op::Cut { link, lasts } => {
                self.network.cut(self.now, link, lasts);
                Ok(())
            }
            Op::Replay { back, count } => {
                self.network.replay(self.now, back, count);
                Ok(())
            }
            Op::RemoveEndpoint { side, number } => self.change_endpoint(side, number, false),
            Op::AddEndpoint { side, number } => self.change_endpoint(side, number, true),
            Op::Flip { .. }
            | Op::Forge { .. }
            | Op::ForgeAtRest(_)
            | Op::Flood { .. }
            | Op::Complete { .. }
            | Op::Icmp { .. } => self.attack(op),
            op => self.command(op),
        }
    }

    /// What applications do.
    fn command(&mut self, op: Op) -> Result<(), Finding> {
        let (Op::Write { end, .. }
        | Op::Read { end, .. }
        | Op::Shutdown { end }
        | Op::Abort { end }
        | Op::Release { end }
        | Op::SetBackup { end, .. }) = op
        else {
            return Ok(());
        };
        let live = |world: &Self| -> Vec<usize> {
            let all = world.applications.iter().enumerate();
            all.filter(|(_, application)| !application.released).map(|(number, _)| number).collect()
        };
        let live = live(self);
        let Some(number) = live.get(usize::from(end) % live.len().max(1)).copied() else { return Ok(()) };
        let now = self.now;
        let application = &mut self.applications[number];
        let (side, id) = (application.side, application.id);
        match op {
            Op::Write { bytes, .. } if !application.wants_shutdown => application.to_write_bytes += bytes,
            Op::Read { pace, .. } => {
                application.pace = pace;
                let is_slow = matches!(pace, Pace::Slow(_));
                application.next_read = if is_slow { now } else { Instant::FAR_FUTURE };
            }
            Op::Shutdown { .. } => application.wants_shutdown = true,
            Op::Abort { .. } => {
                application.aborted = true;
                self.host(side).abort(now, id);
            }
            Op::SetBackup { subflow, backup, .. } => {
                self.host(side).set_backup(now, id, SubflowId(subflow), backup)
            }
            Op::Release { .. } => return self.release(number),
            _ => {}
        }
        self.work(number)?;
        self.flush(side)
    }

    fn change_endpoint(&mut self, side: Side, number: u8, adds: bool) -> Result<(), Finding> {
        let now = self.now;
        let endpoints = &self.setup.hosts[side.index()].endpoints;
        let endpoint: LocalEndpoint = endpoints[usize::from(number) % endpoints.len()];
        let host = self.host(side);
        if adds {
            host.add_endpoint(now, endpoint);
        } else if host.config().endpoints.len() > 1 {
            host.remove_endpoint(now, endpoint.addr);
        }
        // A path manager may move to another address, from which the peer takes no subflow.
        self.setup.fair = false;
        self.flush(side)
    }

    // ---- attackers

    fn attack(&mut self, op: Op) -> Result<(), Finding> {
        match op {
            _ if self.setup.strength == Strength::None => Ok(()),
            Op::Flip { packet, bits } if self.setup.strength == Strength::OnPath => {
                self.network.flip(packet, bits);
                Ok(())
            }
            Op::Forge { forgery, count } => (0..count).try_for_each(|_| self.inject(&forgery)),
            Op::ForgeAtRest(forgery) => self.inject_at_rest(&forgery),
            Op::Flood { count, join, capable } => {
                (0..count).for_each(|number| self.stranger_syn(number, join, capable));
                self.arrivals_now()
            }
            Op::Complete { data_bytes } => self.complete(data_bytes),
            Op::Icmp { flow, mtu, exact } => self.icmp(flow, mtu, exact),
            _ => Ok(()),
        }
    }

    /// What an attacker sends arrives before anything else.
    fn arrivals_now(&mut self) -> Result<(), Finding> {
        while self.network.next_arrival().is_some_and(|at| at <= self.now) {
            self.step(self.now)?;
        }
        Ok(())
    }

    fn most_window_bytes(&self) -> u32 {
        let buffers = self.setup.hosts.iter().map(|host| host.connection.tcp.receive_buffer_bytes);
        buffers.max().unwrap_or_default() as u32
    }

    fn inject(&mut self, forgery: &Forgery) -> Result<(), Finding> {
        let (strength, most_window_bytes) = (self.setup.strength, self.most_window_bytes());
        let packet = forgery.packet(&self.sniffer, strength, most_window_bytes, |_| true);
        let Some(packet) = packet else { return Ok(()) };
        let to = if self.is_client(packet.ip.dst) { Side::Client } else { Side::Server };
        self.network.insert(self.now, to, packet);
        self.arrivals_now()
    }

    fn is_client(&self, addr: IpAddr) -> bool {
        self.setup.hosts[0].endpoints.iter().any(|endpoint| endpoint.addr == addr)
    }

    /// Lets the hosts come to rest, injects, and counts what follows.
    fn inject_at_rest(&mut self, forgery: &Forgery) -> Result<(), Finding> {
        self.run_until(self.now + REST)?;
        let is_at_rest = !self.next_happens_before(self.now + REST) && !self.data_waits();
        let (before, subflows_before) = (self.packets, self.established_subflows);
        let duplicated_before = self.network.duplicated_packets();
        self.inject(forgery)?;
        if !is_at_rest {
            return Ok(());
        }
        self.run_until(self.now + REST)?;
        let established = self.established_subflows - subflows_before;
        let duplicated = self.network.duplicated_packets() - duplicated_before;
        let most = most_packets_after_one(self.setup.strength)
            + PACKETS_OF_DUPLICATE * duplicated
            + if established > 0 { PACKETS_OF_SUBFLOWS } else { 0 };
        let sent = self.packets - before;
        if sent > most {
            let details = format!("{sent} packets followed one: {forgery:?}");
            return Err(Finding::new(FindingKind::Storm, details));
        }
        Ok(())
    }

    /// Something is queued or under way: a word of an open window lets it go on. What an application wrote before it let go still
    /// goes out. A subflow owes what it sent even where another has delivered that (RFC 8684 §3.3.6): its next timeout may be far,
    /// and whatever makes the peer repeat an acknowledgment that was lost lets it go on before.
    fn data_waits(&self) -> bool {
        let is_owed = |tcp: &polypath_tcp::Info| {
            tcp.in_flight_bytes + tcp.lost_bytes + tcp.sacked_bytes + tcp.unsent_bytes > 0
        };
        self.applications.iter().any(|application| {
            let info = self.hosts[application.side.index()].info(application.id);
            let is_written = info.is_some_and(|info| {
                info.send_buffer_bytes > 0 || info.subflows.iter().any(|subflow| is_owed(&subflow.tcp))
            });
            is_written || application.to_write_bytes > 0 && !application.is_over()
        })
    }

    fn stranger_syn(&mut self, number: u8, join: Join, capable: bool) {
        let octets = (self.packets as u16).wrapping_add(number.into()).to_be_bytes();
        let local =
            Endpoint::new(Ipv4Addr::new(10, 9, octets[0], octets[1]).into(), 1000 + u16::from(number));
        let remote = Endpoint::new(server_addr(usize::from(number) % self.setup.server_addrs), PORT);
        let mut segment = Segment { flags: TcpFlags::SYN, window: 1000, ..Segment::default() };
        segment.seq = SeqNumber(u32::from(number) << 24);
        let token = match join {
            Join::No => None,
            Join::Right => self.sniffer.token(),
            Join::Wrong => Some(7),
        };
        if let Some(token) = token {
            let join = MpJoin::Syn { backup: false, address_id: number, token, nonce: 5 };
            segment.options.rest.push(TcpOption::Mptcp(MptcpOption::Join(join)));
        } else if capable {
            let (version, keys) =
                if number & 1 == 1 { (1, MpCapableKeys::None) } else { (0, MpCapableKeys::Sender(9)) };
            let capable = MpCapable { version, flags: MpCapable::HMAC, keys };
            segment.options.rest.push(TcpOption::Mptcp(MptcpOption::Capable(capable)));
        }
        let packet = Packet::tcp(FourTuple { local, remote }, segment);
        self.network.insert(self.now, Side::Server, packet);
    }

    /// The stranger that was answered last goes on as if it were a client.
    fn complete(&mut self, data_bytes: u8) -> Result<(), Finding> {
        let Some(tuple) = self.strangers.latest_syn_ack(|_| true) else { return Ok(()) };
        let server = self.strangers.direction(&tuple);
        let (Some(seq), Some(ack)) = (server.ack, server.next) else { return Ok(()) };
        let payload = Payload::from(vec![7; data_bytes.into()]);
        let mut segment =
            Segment { flags: TcpFlags::ACK, seq, ack, window: 1000, payload, ..Segment::default() };
        if let Some(receiver) = server.key {
            let keys = MpCapableKeys::Both { sender: 9, receiver };
            let capable = MpCapable { version: 1, flags: MpCapable::HMAC, keys };
            segment.options.rest.push(TcpOption::Mptcp(MptcpOption::Capable(capable)));
        }
        self.network.insert(self.now, Side::Server, Packet::tcp(tuple.reversed(), segment));
        self.arrivals_now()
    }

    /// Off the path, the sequence number in it is not that of anything in flight (RFC 5927 §4).
    fn icmp(&mut self, flow: u8, mtu: Option<u16>, exact: bool) -> Result<(), Finding> {
        let Some(flow) = self.sniffer.flow(flow, |_| true) else { return Ok(()) };
        let (own, peer) = (self.sniffer.direction(&flow), self.sniffer.direction(&flow.reversed()));
        let is_exact = exact && self.setup.strength == Strength::OnPath;
        let next = own.next.unwrap_or_default();
        let seq = if is_exact { peer.ack.unwrap_or(next) } else { next.add(1 << 30) };
        let message = match mtu {
            Some(mtu) => IcmpMessage::PacketTooBig { mtu, flow, seq },
            None => IcmpMessage::Unreachable { code: 1, flow, seq },
        };
        let ip = IpHeader::new(Ipv4Addr::new(10, 9, 9, 9).into(), flow.local.addr);
        let to = if self.is_client(flow.local.addr) { Side::Client } else { Side::Server };
        self.network.insert(self.now, to, Packet { ip, transport: Transport::Icmp(message) });
        self.arrivals_now()
    }
}
