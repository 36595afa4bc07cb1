//! Forged segments into connections of honest hosts.

use polypath_mptcp::{ConnectionConfig, Event};
use polypath_units::Duration;
use polypath_wire::{MptcpVersion, Packet, TcpFlags};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::Attack;
use super::stage::{Stage, is_own, pattern};
use crate::fuzz::{ForgedOption, Forgery, Place, Side, Strength, Window, client_addr};

const VERSIONS: [MptcpVersion; 2] = [MptcpVersion::V1, MptcpVersion::V0];

/// No honest segment is that far ahead.
const MOST_WINDOW_BYTES: u32 = 64 << 20;

const FLAGS: [TcpFlags; 8] = [
    TcpFlags::ACK,
    TcpFlags::ACK.with(TcpFlags::PSH),
    TcpFlags::ACK.with(TcpFlags::FIN),
    TcpFlags::RST,
    TcpFlags::RST.with(TcpFlags::ACK),
    TcpFlags::SYN,
    TcpFlags::SYN.with(TcpFlags::ACK),
    TcpFlags::FIN,
];

fn options(place: Place) -> [ForgedOption; 16] {
    [
        ForgedOption::None,
        ForgedOption::DataAck(place),
        ForgedOption::Mapping { data: place, fin: false },
        ForgedOption::Mapping { data: place, fin: true },
        ForgedOption::Fin(place),
        ForgedOption::Infinite(place),
        ForgedOption::Capable,
        ForgedOption::Join,
        ForgedOption::AddAddr,
        ForgedOption::RemoveAddr,
        ForgedOption::Prio,
        ForgedOption::Fail(place),
        ForgedOption::Fastclose,
        ForgedOption::Reset,
        ForgedOption::Sack(place),
        ForgedOption::Unknown,
    ]
}

/// Every flag with every option, exact, old and beyond the window, with and without payload, towards either host.
fn forgeries() -> Vec<Forgery> {
    let mut all = Vec::new();
    for flags in FLAGS {
        for seq in [Place::Exact, Place::Old(1), Place::Old(100_000), Place::Ahead(7), Place::Edge(1)] {
            for ack in [Place::Exact, Place::Old(1), Place::Ahead(1), Place::Random(0xdead_beef)] {
                for option in options(seq) {
                    for (flow, payload_bytes) in [(0, 0), (1, 1), (2, 0), (3, 100)] {
                        let (window, timestamps, salt) = (Window::Same, Some(0), 0x51a7);
                        all.push(Forgery {
                            flow,
                            flags,
                            seq,
                            ack,
                            window,
                            payload_bytes,
                            timestamps,
                            option,
                            salt,
                        });
                    }
                }
            }
        }
    }
    all
}

fn receiver(packet: &Packet) -> Side {
    let is_to_client = (0..2).any(|number| packet.ip.dst == client_addr(number));
    if is_to_client { Side::Client } else { Side::Server }
}

/// Two hosts at rest, and one segment of somebody who sees everything; `None` if it could not be made.
fn packets_after(forgery: &Forgery, version: MptcpVersion) -> Option<u64> {
    let mut stage = Stage::with(ConnectionConfig::default(), version, 5);
    let (client, _) = stage.connected()?;
    stage.write(Side::Client, client, pattern(1000).into());
    stage.run_for(Duration::from_secs(5));
    let packet = forgery.packet(&stage.sniffer, Strength::OnPath, MOST_WINDOW_BYTES, is_own)?;
    let to = receiver(&packet);
    let before = stage.exchanged;
    stage.inject(to, packet);
    stage.run_for(Duration::from_secs(20));
    Some(stage.exchanged - before)
}

pub(super) fn into_idle_hosts() -> Vec<Attack> {
    const NAME: &str = "one forged segment into idle hosts: packets in 20 s";
    let forgeries = forgeries();
    let runs =
        VERSIONS.into_iter().flat_map(|version| forgeries.iter().map(move |forgery| (forgery, version)));
    let packets: Option<Vec<u64>> = runs.map(|(forgery, version)| packets_after(forgery, version)).collect();
    let most = packets.and_then(|packets| packets.into_iter().max());
    vec![most.map_or_else(
        || Attack::did_not_run(NAME),
        |most| Attack::at_most(NAME, "packets", most as f64, 40.0),
    )]
}

/// Somebody who knows the four-tuples, and whose guesses of sequence numbers are wrong: each lies outside of the window. Of all 2³²,
/// as many lie within as the window has bytes.
const MISSING: Strength = Strength::OffPath;
/// Somebody who sees every packet.
#[cfg(test)]
pub(super) const ON_PATH: Strength = Strength::OnPath;

/// An upload into which 200 segments are forged. True if all could be made, and it arrives whole.
pub(super) fn survives(seed: u64, strength: Strength) -> bool {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let version = VERSIONS[seed as usize % VERSIONS.len()];
    let mut stage = Stage::with(ConnectionConfig::default(), version, seed);
    let Some((client, _)) = stage.connected() else { return false };
    let data = pattern(200_000);
    let mut written = 0;
    for _ in 0..200 {
        written += stage.write(Side::Client, client, data[written..].to_vec().into());
        let place = match strength {
            Strength::OnPath => Place::Exact,
            _ => Place::Old(1 + random.next_u32() % (64 << 20)),
        };
        let all = options(place);
        let forgery = Forgery {
            flow: random.next_u32() as u8,
            flags: FLAGS[random.next_u32() as usize % 3],
            seq: place,
            ack: Place::Exact,
            window: Window::Same,
            payload_bytes: [0, 1, 1000][random.next_u32() as usize % 3],
            timestamps: Some(0),
            option: all[random.next_u32() as usize % all.len()],
            salt: random.next_u32() as u16,
        };
        let Some(packet) = forgery.packet(&stage.sniffer, strength, MOST_WINDOW_BYTES, is_own) else {
            return false;
        };
        stage.inject(receiver(&packet), packet);
        stage.run_for(Duration::from_millis(5));
    }
    let now = stage.now;
    stage.client().shutdown(now, client);
    stage.run_for(Duration::from_secs(10));
    let is_ended =
        stage.events.iter().any(|(_, side, _, event)| *side == Side::Server && *event == Event::PeerFinished);
    is_ended && stage.received() == data
}

pub(super) fn off_path() -> Vec<Attack> {
    const RUNS: u64 = 500;
    let broken = (0..RUNS).filter(|seed| !survives(*seed, MISSING)).count();
    vec![Attack::at_most(
        "200 forged segments outside of the window: uploads that they changed",
        "uploads of 500",
        broken as f64,
        0.0,
    )]
}
