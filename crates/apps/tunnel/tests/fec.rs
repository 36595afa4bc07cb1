//! Packets that are lost, and rebuilt from repair packets.

mod network;

use network::{Delivered, Network, PathConfig, address, engine_with, numbers, packet};
use polypath_tunnel::{FlowPolicy, LocalId, PathSettings, PeerCounts, Rule, Rules};
use polypath_units::{Duration, Instant};

/// Until then the ends have found to each other, and each path's loss is known.
const BEGIN: Instant = Instant::from_secs(12);
const PORT: u16 = 5_000;

/// Two ends; packets from the first to the second are carried so.
fn network(paths: &[PathConfig], policy: FlowPolicy, fec: bool) -> Network {
    let rule = Rule { ports: Some(PORT..=PORT), fec, ..Rule::all(policy) };
    let mut network = Network::new(paths);
    let (mut engine, peer) = engine_with(1, 2, 11, Rules::new(vec![rule]));
    for at in 0..paths.len() {
        let local = LocalId(at as u16);
        engine.add_path(network.now, peer, local, address(1, at), PathSettings::default()).unwrap();
    }
    network.ends[0] = engine;
    network.peers[0] = peer;
    network
}

fn lossy(loss: f64) -> [PathConfig; 2] {
    [PathConfig { loss, ..PathConfig::new(20, 20) }, PathConfig { loss, ..PathConfig::new(10, 30) }]
}

/// What a flow saw.
#[derive(Debug)]
struct Seen {
    lost: f64,
    /// Of those that came, from when they entered.
    p50: Duration,
    p99: Duration,
    p999: Duration,
    /// Of what was carried, the share of repair packets.
    overhead: f64,
    counts: [PeerCounts; 2],
}

/// Packets of 200 bytes at this spacing, of which those after the first ten seconds count.
fn run(network: &mut Network, spacing: Duration, seconds: u64) -> Seen {
    let first = Instant::from_secs(2);
    let count = (Duration::from_secs(seconds + 10).as_nanos() / spacing.as_nanos()) as u32;
    let sent_at = |number: u32| first + spacing * u64::from(number);
    for number in 0..count {
        network.send_at(sent_at(number), 0, packet(1, 2, PORT, number, 200));
    }
    network.run_until(sent_at(count) + Duration::from_secs(3));
    let came: Vec<(u32, &Delivered)> =
        numbers(&network.delivered[1]).into_iter().zip(&network.delivered[1]).collect();
    let mut once: Vec<u32> = came.iter().map(|(number, _)| *number).collect();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), came.len(), "one came twice");
    let mut delays: Vec<Duration> = came
        .iter()
        .filter(|(number, _)| sent_at(*number) >= BEGIN)
        .map(|(number, one)| one.at.since(sent_at(*number)))
        .collect();
    delays.sort_unstable();
    let wanted = (0..count).filter(|&number| sent_at(number) >= BEGIN).count();
    let part = |part: f64| delays[((delays.len() - 1) as f64 * part) as usize];
    let counts = [0, 1].map(|end| {
        network.ends[end].peer_status(network.now, network.peers[end]).map(|status| status.counts).unwrap()
    });
    Seen {
        lost: 1.0 - delays.len() as f64 / wanted as f64,
        p50: part(0.5),
        p99: part(0.99),
        p999: part(0.999),
        overhead: counts[0].repairs_sent as f64 / counts[0].sent as f64,
        counts,
    }
}

const CALL: Duration = Duration::from_millis(20);
const GAME: Duration = Duration::from_millis(5);

/// `POLYPATH_PRINT=1 cargo test -p polypath-tunnel --no-default-features --test fec -- --nocapture` says what was seen.
fn print(case: &str, seen: &Seen) {
    if std::env::var_os("POLYPATH_PRINT").is_some() {
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        eprintln!(
            "{case}: {:.2} % lost, 50 / 99 / 99.9 % within {:.0} / {:.0} / {:.0} ms, {:.0} % repair packets, {} sent again",
            seen.lost * 100.0,
            ms(seen.p50),
            ms(seen.p99),
            ms(seen.p999),
            seen.overhead * 100.0,
            seen.counts[0].sent_again,
        );
    }
}

fn with_and_without(loss: f64, spacing: Duration, seconds: u64, policy: FlowPolicy) -> [Seen; 2] {
    [true, false].map(|fec| {
        let seen = run(&mut network(&lossy(loss), policy, fec), spacing, seconds);
        print(&format!("{policy:?}, FEC {fec}, {} % loss, each {spacing}", loss * 100.0), &seen);
        assert_eq!(seen.counts[0].dropped, 0);
        assert!(seen.overhead <= if fec { 0.5 } else { 0.0 }, "{seen:?}");
        seen
    })
}

#[test]
fn what_random_loss_takes_is_rebuilt() {
    for (loss, spacing, seconds, most_overhead) in
        [(0.02, GAME, 60, 0.25), (0.1, GAME, 60, 0.4), (0.02, CALL, 120, 0.5), (0.1, CALL, 120, 0.5)]
    {
        let [with, without] = with_and_without(loss, spacing, seconds, FlowPolicy::LowLatency);
        assert!(without.lost > loss * 0.8 && with.lost <= loss / 40.0, "{with:?}");
        assert!(with.overhead <= most_overhead, "{with:?}");
        assert_eq!(with.p50.as_millis(), without.p50.as_millis());
    }
}

#[test]
fn flows_in_order_wait_less_for_what_was_lost() {
    for (loss, spacing) in [(0.02, GAME), (0.1, GAME), (0.02, CALL), (0.1, CALL)] {
        let [with, without] = with_and_without(loss, spacing, 60, FlowPolicy::Aggregate);
        assert_eq!((with.lost, without.lost), (0.0, 0.0));
        assert!(with.p99 + Duration::from_millis(10) < without.p99, "{with:?} {without:?}");
        assert!(with.p50.as_millis() <= without.p50.as_millis(), "{with:?} {without:?}");
    }
}

#[test]
fn where_nothing_is_lost_nothing_is_sent_for_it() {
    for policy in [FlowPolicy::LowLatency, FlowPolicy::Aggregate] {
        let seen = run(&mut network(&lossy(0.0), policy, true), GAME, 20);
        assert_eq!((seen.lost, seen.counts[0].repairs_sent), (0.0, 0));
    }
}

/// So many packets in a row, on the faster path, now and then.
#[test]
fn a_burst_is_rebuilt_by_what_the_other_path_brings() {
    let [with, without] = [true, false].map(|fec| {
        let mut network = network(&lossy(0.0), FlowPolicy::LowLatency, fec);
        let is_over = |at: Instant| at < Instant::from_secs(2) || at.as_micros() % 500_000 >= 16_000;
        network.filter = Some(Box::new(move |end, path, _, at| end == 1 || path == 1 || is_over(at)));
        run(&mut network, GAME, 60)
    });
    print("three or four lost in a row, FEC true", &with);
    print("three or four lost in a row, FEC false", &without);
    assert!(without.lost > 0.025 && with.lost < 0.001, "{with:?}");
}

#[test]
fn the_last_packet_before_a_pause_is_rebuilt_soon() {
    let mut network = network(&lossy(0.01), FlowPolicy::LowLatency, true);
    let first = Instant::from_secs(2);
    // Four packets, then nothing for 200 ms. Of each tenth time the last one is lost.
    let sent_at = |number: u32| {
        first + Duration::from_millis(200) * u64::from(number / 4) + GAME * u64::from(number % 4)
    };
    let is_lost = |number: u32| number % 40 == 39;
    let lost_at: Vec<Instant> = (0..2_000).filter(|&number| is_lost(number)).map(sent_at).collect();
    network.filter = Some(Box::new(move |end, _, bytes, at| {
        end == 1 || bytes.len() < 220 || lost_at.binary_search(&at).is_err()
    }));
    for number in 0..2_000 {
        network.send_at(sent_at(number), 0, packet(1, 2, PORT, number, 200));
    }
    network.run_until(sent_at(2_000) + Duration::from_secs(1));
    let came = numbers(&network.delivered[1]);
    let late: Vec<_> = (200..2_000)
        .filter(|&number| is_lost(number))
        .filter(|&lost| {
            let at = came.iter().position(|&number| number == lost);
            at.is_none_or(|at| network.delivered[1][at].at > sent_at(lost) + Duration::from_millis(60))
        })
        .collect();
    // The repair packet may be lost, too.
    assert!(late.len() <= 2, "{late:?} of 45");
}
