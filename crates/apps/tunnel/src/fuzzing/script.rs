//! Bytes as a script of everything that may happen to two ends.

use polypath_units::Duration;

use super::pair::{OnWire, Pair, UPLINKS, peer_of, stranger};
use crate::PeerConfig;
use crate::key::PublicKey;
use crate::noise::{INITIATION_BYTES, RESPONSE_BYTES};
use crate::transmit::LocalId;

/// Bytes of a script that are looked at.
const MOST_BYTES: usize = 4_000;
/// Time in which two ends find to each other, whatever was before: keys end after three minutes.
const RECOVERS_SECS: u32 = 240;

struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> u8 {
        let Some((&byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        byte
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound
    }

    fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

/// A run of two ends: time, packets, paths that change, processes that restart, datagrams that are lost, doubled, changed on the way or
/// made up, and a peer that sends frames of its own making. Neither end panics, spins, holds more than it may or answers a stranger; and
/// afterwards packets pass.
pub fn engine(bytes: &[u8]) {
    let mut script = Script(&bytes[..bytes.len().min(MOST_BYTES)]);
    let mut pair = Pair::new();
    // Most scripts begin with keys.
    if script.byte() < 240 {
        pair.run_until(pair.now + Duration::from_secs(2), true);
    }
    let mut number = 0;
    while !script.0.is_empty() {
        step(&mut script, &mut pair, &mut number);
        pair.flush();
        pair.check();
    }
    recover(&mut pair);
}

fn step(script: &mut Script<'_>, pair: &mut Pair, number: &mut u32) {
    let now = pair.now;
    match script.below(17) {
        0 => pair.run_until(now + Duration::from_millis(script.byte().into()), false),
        1 => pair.run_until(now + Duration::from_millis(script.byte().into()), true),
        2 => pair.run_until(now + Duration::from_secs(script.byte().into()), script.byte() < 200),
        3 | 4 => {
            let (end, port, count) = (script.below(2), script.below(4), script.byte());
            let len_bytes = usize::from(script.byte()) * 6;
            for _ in 0..count {
                *number += 1;
                pair.send(end, port as u16, *number, len_bytes);
            }
        }
        5 => {
            let at = script.below(pair.wire.len().max(1));
            if let Some(one) = pair.wire.remove(at) {
                pair.deliver(&one);
            }
        }
        6 => {
            let at = script.below(pair.wire.len().max(1));
            pair.wire.remove(at);
        }
        7 => {
            let at = script.below(pair.seen.len().max(1));
            if let Some(one) = pair.seen.get(at).cloned() {
                let elsewhere = script.byte() >= 128;
                let from = if elsewhere { pair.address(1 - one.to, script.below(UPLINKS)) } else { one.from };
                pair.deliver(&OnWire { from, ..one });
            }
        }
        8 => forge(script, pair),
        9 => {
            let (to, uplink, count) = (script.below(2), script.below(UPLINKS), script.below(180));
            let bytes = script.bytes(count).to_vec();
            pair.deliver(&OnWire { to, uplink, from: stranger(), bytes });
        }
        10 => change_path(script, pair),
        11 => {
            let (end, uplink) = (script.below(2), script.below(UPLINKS));
            pair.mappings[end][uplink] += 1;
        }
        12 => change_end(script, pair),
        // An authentic peer sends what it likes.
        13..=15 => {
            let (end, path, count) = (script.below(2), script.below(16), script.below(120));
            let contents = script.bytes(count);
            let paths = pair.paths(end);
            let path = paths.get(path % paths.len().max(1)).copied();
            if let (Some(peer), Some(path)) = (pair.peer(end), path) {
                pair.ends[end].send_frame(now, peer, path, contents);
            }
        }
        _ => {
            let (end, count) = (script.below(2), script.below(60));
            let contents = script.bytes(count);
            if let Some(peer) = pair.peer(end) {
                pair.ends[end].send_plain(peer, contents);
            }
        }
    }
}

/// An end's process ends, or its peers are others.
fn change_end(script: &mut Script<'_>, pair: &mut Pair) {
    let end = script.below(2);
    match script.below(8) {
        0 => {
            pair.restart(end);
            if end == 0 {
                pair.add_path(end, 0);
            }
        }
        1 => pair.ends[end].leave(pair.now),
        2 => {
            pair.ends[end].set_peers(Vec::new());
        }
        3 => {
            let other = PeerConfig::new(PublicKey::from_bytes([script.byte(); 32]));
            pair.ends[end].set_peers(vec![peer_of(end), other]);
        }
        _ => {
            pair.ends[end].set_peers(vec![peer_of(end)]);
        }
    }
}

/// A stranger has changed, or cut, a datagram that passed by.
fn forge(script: &mut Script<'_>, pair: &mut Pair) {
    let (at, cut) = (script.below(pair.seen.len().max(1)), script.byte());
    let Some(mut one) = pair.seen.get(at).cloned() else { return };
    if cut < 64 {
        one.bytes.truncate(usize::from(cut) * one.bytes.len() / 64);
    } else {
        // The last proof of a handshake counts in a flood only: with another one it is as authentic as before.
        let is_handshake = [INITIATION_BYTES, RESPONSE_BYTES].contains(&one.bytes.len());
        let len = one.bytes.len() - if is_handshake { 16 } else { 0 };
        let place = (script.below(256) << 8 | script.below(256)) % len;
        one.bytes[place] ^= script.byte().max(1);
    }
    pair.deliver(&OnWire { from: stranger(), ..one });
}

fn change_path(script: &mut Script<'_>, pair: &mut Pair) {
    let (end, what, uplink) = (script.below(2), script.below(4), script.below(UPLINKS));
    let (now, paths, to) = (pair.now, pair.paths(end), pair.address(1 - end, uplink));
    let Some(peer) = pair.peer(end) else { return };
    let path = paths.get(script.below(paths.len().max(1))).copied();
    match (what, path) {
        (0, _) => pair.add_path(end, uplink),
        (1, Some(path)) => pair.ends[end].remove_path(now, peer, path),
        (2, Some(path)) => pair.ends[end].set_path_up(now, peer, path, script.byte() >= 128),
        (_, Some(path)) => pair.ends[end].move_path(now, peer, path, LocalId(uplink as u16), to),
        _ => {}
    }
}

/// All that was set is set right, and the network works.
fn recover(pair: &mut Pair) {
    for end in 0..2 {
        pair.ends[end].set_peers(vec![peer_of(end)]);
        let Some(peer) = pair.peer(end) else { continue };
        for path in pair.paths(end) {
            pair.ends[end].remove_path(pair.now, peer, path);
        }
    }
    pair.add_path(0, 0);
    pair.add_path(0, 1);
    // Ten packets in a row each way.
    let mut passed = 0;
    for second in 0..RECOVERS_SECS {
        pair.came = [0; 2];
        (0..2).for_each(|end| pair.send(end, 9, second, 600));
        pair.run_until(pair.now + Duration::from_secs(1), true);
        pair.check();
        passed = if pair.came.iter().all(|&came| came > 0) { passed + 1 } else { 0 };
        if passed == 10 {
            return;
        }
    }
    panic!("packets do not pass any more: {:?}", pair.came);
}
