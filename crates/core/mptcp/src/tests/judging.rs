//! A receiver that judges the paths by which it is sent data.

use std::cell::RefCell;
use std::rc::Rc;
use std::vec;
use std::vec::Vec;

use polypath_units::Duration;
use polypath_wire::{MpJoin, MptcpOption};

use super::network::{Network, Way, client_addr, segment};
use crate::{ConnectionConfig, JudgePaths};

/// Path 0 and another; the client judges. Notes what MP_JOINs and MP_PRIOs of the client say, in order.
fn judging(delays_ms: &[u64], judge_paths: JudgePaths) -> (Network, Rc<RefCell<Vec<bool>>>) {
    let client = ConnectionConfig { judge_paths, race: false, ..ConnectionConfig::default() };
    let mut network = Network::new(delays_ms, client, ConnectionConfig::default(), 1);
    let said = Rc::new(RefCell::new(Vec::new()));
    let noted = said.clone();
    network.meddle = alloc::boxed::Box::new(move |way, packet| {
        if way == Way::ToServer {
            for option in segment(&packet).options.mptcp() {
                if let MptcpOption::Join(MpJoin::Syn { backup, .. }) | MptcpOption::Prio { backup, .. } =
                    option
                {
                    noted.borrow_mut().push(*backup);
                }
            }
        }
        vec![packet]
    });
    (network, said)
}

/// Bytes of data that came to the client over a path.
fn came_over(network: &Network, path: usize) -> usize {
    let mark = std::format!(" {path}< ");
    let lines = network.log.iter().filter(|line| line.contains(&mark) && line.contains("dss"));
    lines
        .filter_map(|line| line.split_whitespace().filter_map(|word| word.parse::<usize>().ok()).next())
        .sum()
}

#[test]
fn a_peer_of_our_kind_is_left_to_its_own_scheduler() {
    let (mut network, said) = judging(&[10, 30], JudgePaths::Foreign);
    let (_, received) = network.exchange(1000, 3_000_000, Duration::from_secs(30));
    assert_eq!(received.len(), 3_000_000);
    // It joined set aside, and was given free when the first mapping showed what the peer is.
    let said = said.borrow();
    assert!(said.first() == Some(&true) && said.last() == Some(&false), "{said:?}");
    assert_eq!(network.client.counters().paths_set_aside, 0);
    assert!(came_over(&network, 1) > 0, "{}", network.log.join("\n"));
}

#[test]
fn a_slow_path_beside_a_fast_one_is_joined_and_brings_nothing() {
    let (mut network, said) = judging(&[5, 200], JudgePaths::Always);
    let client = network.connect();
    network.run_until(network.now + Duration::from_millis(100));
    let server = network.accepted();
    let (mut sent, mut received) = (0, 0);
    // 100 Mbit/s for two seconds, and then what is on its way.
    for millisecond in 0..3000 {
        if millisecond < 2000 {
            let block = bytes::Bytes::from(vec![0; 12_500]);
            sent += network.server.send(server, block).expect("it lives");
        }
        network.run_until(network.now + Duration::from_millis(1));
        while let Some(data) = network.client.recv(client) {
            received += data.len();
        }
    }
    assert_eq!((sent, received), (25_000_000, 25_000_000));
    assert_eq!(*said.borrow(), [true], "it joined set aside, and that was all");
    let info = network.client.info(client).expect("it lives");
    let slow = info.subflows.iter().find(|subflow| subflow.tuple.local.addr == client_addr(1));
    let slow = slow.expect("it joined");
    let multipath = slow.multipath.as_ref().expect("our own stack tells");
    assert!(slow.established && multipath.set_aside && !multipath.backup, "{slow:?}");
    assert_eq!(slow.tcp.bytes_received, 0);
}

#[test]
fn without_judging_nothing_is_set_aside() {
    let (mut network, said) = judging(&[10, 30], JudgePaths::Never);
    let (_, received) = network.exchange(1000, 500_000, Duration::from_secs(30));
    assert_eq!((received.len(), said.borrow().as_slice()), (500_000, &[false][..]));
}

#[test]
fn what_a_tried_path_says_with_its_third_ack_is_said_twice() {
    let (mut network, _) = judging(&[10, 30], JudgePaths::Always);
    let acks = Rc::new(RefCell::new(Vec::new()));
    let noted = acks.clone();
    network.meddle = alloc::boxed::Box::new(move |way, packet| {
        let is_third = |option: &MptcpOption| matches!(option, MptcpOption::Join(MpJoin::Ack { .. }));
        let is_use = |option: &MptcpOption| matches!(option, MptcpOption::Prio { backup: false, .. });
        let segment = segment(&packet);
        if way == Way::ToServer && segment.options.mptcp().any(is_third) {
            noted.borrow_mut().push(segment.options.mptcp().any(is_use));
        }
        vec![packet]
    });
    network.connect();
    network.run_until(network.now + Duration::from_millis(200));
    assert_eq!(*acks.borrow(), [true, true]);
}
