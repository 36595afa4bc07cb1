use alloc::string::String;
use alloc::vec::Vec;

use polypath_units::Duration;

use super::super::testing::*;
use super::*;
use crate::testing::segment_of;

#[test]
fn every_box_is_known_by_its_own_name() {
    assert_eq!(Policy::ALL.len(), 16);
    for kind in Policy::ALL {
        assert_eq!(named(&kind.name().to_uppercase(), 1).name(), kind.name());
        assert_eq!(alloc::format!("{kind:?}"), kind.name());
    }
    let error = "nut".parse::<Policy>().unwrap_err();
    assert!(
        alloc::format!("{error}").starts_with("no middlebox \"nut\"; expected one of nat, strip-"),
        "{error}"
    );
}

fn named(name: &str, seed: u64) -> Box<dyn Middlebox> {
    Policy::by_name(name).unwrap().build_for(&seed)
}

/// A conversation of a few hundred segments through a chain; everything that comes out, in words.
fn conversation(chain: &mut Chain, seed: u64) -> (usize, String) {
    let mut dice = crate::random::Random::new(seed);
    let mut out = Outputs::new();
    let mut now = polypath_units::Instant::from_secs(1);
    let mut log = String::new();
    let mut count = 0;
    let mut listen = |now, out: &mut Outputs| {
        while let Some((direction, packet)) = out.pop() {
            count += 1;
            log += &alloc::format!("{now} {direction:?} {packet:?}\n");
        }
    };
    let mut seqs = [101, 501];
    chain.handle_packet(now, Direction::Forward, syn(100), &mut out);
    chain.handle_packet(now, Direction::Backward, turned(syn_ack(500, 101)), &mut out);
    for _ in 0..300 {
        now += Duration::from_micros(u64::from(dice.u32() % 2000));
        while let Some(at) = chain.poll_timeout().filter(|at| *at <= now) {
            chain.handle_timeout(at, &mut out);
            listen(at, &mut out);
            assert!(chain.poll_timeout().is_none_or(|next| next > at), "no progress");
        }
        let side = dice.u32() as usize % 2;
        let len = [0, 100, 1400][dice.u32() as usize % 3];
        let packet = with_dss(seg(seqs[side], seqs[1 - side], len), seqs[side], len as u16);
        seqs[side] += len as u32;
        let (direction, packet) =
            if side == 0 { (Direction::Forward, packet) } else { (Direction::Backward, turned(packet)) };
        chain.handle_packet(now, direction, packet, &mut out);
        listen(now, &mut out);
    }
    (count, log)
}

#[test]
fn the_seed_decides_what_every_box_does() {
    for name in Policy::names() {
        let run = |seed| conversation(&mut Chain::from(named(name, seed)), 9);
        assert_eq!(run(1), run(1), "{name}");
        let random = ["nat", "randomize-isn", "reorder", "duplicate"].contains(&name);
        assert_eq!(run(1) != run(2), random, "{name}");
    }
}

#[test]
fn every_pair_of_boxes_gets_along() {
    for first in Policy::names() {
        for second in Policy::names() {
            let mut chain: Chain = [first, second].into_iter().map(|name| named(name, 3)).collect();
            assert_eq!(chain.len(), 2);
            let (count, _) = conversation(&mut chain, 5);
            assert!(count > 0, "{first} {second}");
        }
    }
}

#[test]
fn forward_packets_meet_the_first_box_first_and_backward_ones_the_last() {
    // The options of a SYN/ACK that is mirrored behind a stripping box are gone; before it, they are back.
    for (order, expected) in
        [(["mirror-synack", "strip-mptcp-synack"], 1), (["strip-mptcp-synack", "mirror-synack"], 0)]
    {
        let mut chain: Chain = order.into_iter().map(|name| named(name, 1)).collect();
        let mut out = Outputs::new();
        let now = polypath_units::Instant::ZERO;
        chain.handle_packet(now, Direction::Forward, syn(100), &mut out);
        assert_eq!(out.pop().unwrap().0, Direction::Forward);
        chain.handle_packet(now, Direction::Backward, turned(syn_ack(500, 101)), &mut out);
        let (direction, packet) = out.pop().unwrap();
        assert_eq!(direction, Direction::Backward);
        assert_eq!(segment_of(&packet).options.mptcp().count(), expected);
        assert!(out.is_empty());
    }
}

#[test]
fn a_chain_cuts_aggregates_and_an_empty_one_passes_everything() {
    let mut chain = Chain::new();
    assert!(chain.is_empty());
    let mut out = Outputs::new();
    let mut aggregate = seg(101, 501, 2500);
    let polypath_wire::Transport::Tcp(segment) = &mut aggregate.transport else { unreachable!() };
    segment.segment_size = 1000;
    chain.handle_packet(polypath_units::Instant::ZERO, Direction::Backward, turned(aggregate), &mut out);
    let lens: Vec<usize> =
        core::iter::from_fn(|| out.pop()).map(|(_, packet)| segment_of(&packet).payload.len()).collect();
    assert_eq!(lens, [1000, 1000, 500]);
    assert_eq!(chain.poll_timeout(), None);
}
