//! Packets by the million from addresses that are not their senders'.

use std::net::Ipv4Addr;

use polypath_mptcp::path_manager::LocalEndpoint;
use polypath_mptcp::{ConnectionId, Event, HostConfig};
use polypath_tcp::flood::{capable_syn, packet, syn};
use polypath_units::{Duration, Instant};
use polypath_wire::{Endpoint, MpJoin, MptcpOption, Packet, Segment, SeqNumber, TcpFlags};

use super::Attack;
use super::stage::{ROUND_TRIP, Stage};
use crate::fuzz::{PORT, Side, client_addr, server_addr};

/// A million a second.
const PER_MILLISECOND: u32 = 1000;
/// How long, in milliseconds.
const FLOOD_MS: u32 = 1000;

fn server() -> Endpoint {
    Endpoint::new(server_addr(0), PORT)
}

/// One millisecond of a flood.
fn flood(stage: &mut Stage, ms: u32, packet: impl Fn(u32) -> Packet) -> u64 {
    let mut bytes = 0;
    for number in 0..PER_MILLISECOND {
        let packet = packet(ms * PER_MILLISECOND + number);
        bytes += packet.len_bytes() as u64;
        stage.inject(Side::Server, packet);
        // As a driver does: what is to be sent leaves after each batch.
        if number % 64 == 0 {
            stage.flush();
        }
    }
    stage.run_for(Duration::from_millis(1));
    bytes
}

fn round_trips(from: Instant, to: Option<Instant>) -> f64 {
    to.map_or(f64::INFINITY, |to| to.since(from).as_secs_f64() / ROUND_TRIP.as_secs_f64())
}

pub(super) fn syns() -> Vec<Attack> {
    let mut stage = Stage::new(1);
    let mut asked: Vec<(Instant, ConnectionId)> = Vec::new();
    let (mut received_bytes, mut most_held) = (0, 0);
    for ms in 0..FLOOD_MS {
        received_bytes += flood(&mut stage, ms, |number| capable_syn(number, server()));
        most_held = most_held.max(stage.server().population().connections);
        if ms % 25 == 0 && ms < 800 {
            let now = stage.now;
            asked.extend(stage.connect().map(|id| (now, id)));
        }
    }
    let when = |wanted: ConnectionId| {
        stage.events.iter().find_map(|(at, side, id, event)| {
            (*side == Side::Client && *id == wanted && *event == Event::Connected).then_some(*at)
        })
    };
    let slowest = asked.iter().map(|(at, id)| round_trips(*at, when(*id))).fold(0.0, f64::max);
    let fell_back = stage.events.iter().filter(|(.., event)| matches!(event, Event::FellBack(_))).count();
    let config = HostConfig::default();
    let honest = asked.len();
    let amplification = stage.to_strangers.bytes as f64 / received_bytes as f64;
    vec![
        Attack::at_most("syn-flood: slowest honest connect", "round trips", slowest, 2.0),
        Attack::at_most(
            "syn-flood: honest connects that fell back to TCP",
            "connections",
            fell_back as f64,
            0.0,
        ),
        Attack::at_most(
            "syn-flood: connections held",
            "connections",
            most_held as f64,
            (config.backlog + honest) as f64,
        ),
        Attack::at_most("syn-flood: bytes to victims for one of the attacker's", "bytes", amplification, 1.5),
    ]
}

pub(super) fn joins() -> Vec<Attack> {
    let mut stage = Stage::new(2);
    let now = stage.now;
    stage.client().remove_endpoint(now, client_addr(1));
    let Some((_, accepted)) = stage.connected() else { return vec![Attack::did_not_run("join-flood")] };
    let token = stage.server().info(accepted).map_or(0, |info| info.local_token);
    let join = |number: u32| {
        let join = MpJoin::Syn { backup: false, address_id: number as u8, token, nonce: number };
        syn(number, server(), MptcpOption::Join(join))
    };
    let mut asked = stage.now;
    let mut most_subflows = 0;
    for ms in 0..FLOOD_MS / 4 {
        if ms == 100 {
            asked = stage.now;
            stage.client().add_endpoint(asked, LocalEndpoint::subflow(client_addr(1), 2));
        }
        flood(&mut stage, ms, join);
        let held = stage.server().info(accepted).map_or(0, |info| info.subflows.len());
        most_subflows = most_subflows.max(held);
    }
    let joined = stage.events.iter().find_map(|(at, side, _, event)| {
        let is_join = *side == Side::Client && matches!(event, Event::SubflowEstablished { .. });
        (is_join && *at >= asked).then_some(*at)
    });
    let most = 2 + HostConfig::default().max_half_open_joins;
    vec![
        Attack::at_most("join-flood: an honest join", "round trips", round_trips(asked, joined), 2.0),
        Attack::at_most("join-flood: subflows held", "subflows", most_subflows as f64, most as f64),
    ]
}

pub(super) fn strays() -> Vec<Attack> {
    let mut stage = Stage::new(3);
    for ms in 0..FLOOD_MS {
        flood(&mut stage, ms, |number| {
            packet(
                number,
                server(),
                Segment { ack: SeqNumber(9), flags: TcpFlags::ACK, ..Segment::default() },
            )
        });
    }
    let answers = stage.to_strangers.packets;
    // The bound is drawn anew each second, up to half more, and a second may begin within the run.
    let bound = 3 * u64::from(HostConfig::default().resets_per_second);
    vec![Attack::at_most(
        "stray-acks: answers to a million in a second",
        "packets",
        answers as f64,
        bound as f64,
    )]
}

pub(super) fn announcements() -> Vec<Attack> {
    const NAME: &str = "announced addresses that cannot be right: packets to them";
    let nowhere = [[127, 0, 0, 1], [224, 0, 0, 1], [0, 0, 0, 0], [255, 255, 255, 255]];
    let Some(sent) = packets_to_announced(&nowhere) else { return vec![Attack::did_not_run(NAME)] };
    vec![Attack::at_most(NAME, "packets", sent as f64, 0.0)]
}

/// What a client sends to addresses that a server announces and that nobody has.
pub(super) fn packets_to_announced(addresses: &[[u8; 4]]) -> Option<u64> {
    let mut stage = Stage::new(4);
    let now = stage.now;
    for (number, addr) in addresses.iter().enumerate() {
        let endpoint = LocalEndpoint::signal(Ipv4Addr::from(*addr).into(), 100 + number as u8);
        stage.server().add_endpoint(now, endpoint);
    }
    stage.connected()?;
    stage.run_for(Duration::from_secs(60));
    Some(stage.to_strangers.packets)
}
