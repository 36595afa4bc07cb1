//! Windows that are small, close, and open without a word.

use alloc::boxed::Box;
use alloc::sync::Arc;
use std::vec;

use polypath_units::Duration;

use super::network::{Network, Way, segment_mut};
use super::{MINUTE, VERSIONS, assert_exchanged, config, pattern};
use crate::ConnectionConfig;

/// The ways in which a connection can carry data.
fn modes() -> [ConnectionConfig; 3] {
    let plain = ConnectionConfig { mptcp: false, ..ConnectionConfig::default() };
    [config(VERSIONS[0], true), config(VERSIONS[1], false), plain]
}

fn with_tcp(
    mut config: ConnectionConfig,
    change: impl FnOnce(&mut polypath_tcp::Config),
) -> ConnectionConfig {
    change(Arc::make_mut(&mut config.tcp));
    config
}

#[test]
fn any_receive_buffer_lets_data_through() {
    for mode in modes() {
        for (mtu_bytes, buffers) in [(1500, [600, 1500, 4096, 20_000]), (65_535, [600, 4096, 20_000, 66_000])]
        {
            for receive_buffer_bytes in buffers {
                for loss_percent in [0, 5] {
                    let config = with_tcp(mode.clone(), |tcp| {
                        (tcp.mtu_bytes, tcp.receive_buffer_bytes) = (mtu_bytes, receive_buffer_bytes);
                    });
                    let mut network = Network::new(&[10, 25], config.clone(), config, receive_buffer_bytes);
                    network.loss_percent = loss_percent;
                    assert_exchanged(&mut network, 50_000, 30_000, MINUTE * 60);
                }
            }
        }
    }
}

/// Runs an upload against a receiver that does not read before the sender is stuck, with what tells of the window meddled with.
fn upload_to_a_sleeper(config: ConnectionConfig, lost: bool, seed: u64) -> Network {
    let small = with_tcp(config.clone(), |tcp| tcp.receive_buffer_bytes = 10_000);
    let mut network = Network::new(&[10, 25], config, small, seed);
    let client = network.connect();
    network.run_until(network.now + Duration::from_secs(2));
    let server = network.accepted();
    network.client.send(client, pattern(0, 30_000).into()).expect("it is open");
    network.run_until(network.now + Duration::from_secs(20));
    if lost {
        network.meddle = Box::new(|way, packet| if way == Way::ToClient { vec![] } else { vec![packet] });
    }
    let mut read = vec![];
    while let Some(data) = network.server.recv(server) {
        read.extend(data.to_vec());
    }
    assert!((1000..=10_000).contains(&read.len()), "the window is full: {}", read.len());
    network.flush();
    network.meddle = Box::new(|_, packet| vec![packet]);
    let end = network.now + MINUTE * 5;
    while read.len() < 30_000 && network.now < end && network.step() {
        while let Some(data) = network.server.recv(server) {
            read.extend(data.to_vec());
        }
    }
    assert!(read == pattern(0, 30_000), "{} bytes\n{}", read.len(), network.log.join("\n"));
    network
}

#[test]
fn a_lost_window_update_is_asked_for() {
    for mode in modes() {
        upload_to_a_sleeper(mode, true, 3);
    }
}

#[test]
fn a_window_that_opens_is_answered_with_a_whole_segment() {
    for mode in modes() {
        let mut config = mode;
        config.receive_autotuning = false;
        let plain = !config.mptcp;
        let network = upload_to_a_sleeper(config, false, 3);
        let is_data = |line: &&std::string::String| line.contains('>') && !line.contains(" 0");
        let small =
            network.log.iter().filter(is_data).filter(|line| line.split(' ').nth(3) == Some("1")).count();
        assert!(!plain || small == 0, "{}", network.log.join("\n"));
    }
}

#[test]
fn a_peer_that_opens_its_window_by_slivers_gets_all_data_and_no_storm() {
    for mode in modes() {
        let plain = !mode.mptcp;
        let unscaled = with_tcp(mode, |tcp| tcp.window_scaling = false);
        let mut network = Network::new(&[10], unscaled.clone(), unscaled, 9);
        let client = network.connect();
        network.run_until(network.now + Duration::from_secs(1));
        let server = network.accepted();
        network.meddle = Box::new(|way, mut packet| {
            if way == Way::ToClient {
                segment_mut(&mut packet).window = 100;
            }
            vec![packet]
        });
        // The first says what the window is from now on.
        network.client.send(client, pattern(0, 10).into()).expect("it is open");
        network.run_until(network.now + Duration::from_secs(1));
        network.client.send(client, pattern(10, 1000).into()).expect("it is open");
        let before = network.log.len();
        network.run_until(network.now + MINUTE);
        let mut read = vec![];
        while let Some(data) = network.server.recv(server) {
            read.extend(data.to_vec());
        }
        assert!(read == pattern(0, 1010), "{} bytes of {plain}\n{}", read.len(), network.log.join("\n"));
        assert!(network.log.len() - before < 100, "{}", network.log.join("\n"));
    }
}

/// What waited for more of the window is the subflow's after a fallback, and so is the timer.
#[test]
fn a_fallback_while_data_waits_for_more_window_leaves_no_timer_that_is_due_for_ever() {
    for version in VERSIONS {
        let small = with_tcp(config(version, false), |tcp| tcp.receive_buffer_bytes = 10_000);
        let mut network = Network::new(&[10], config(version, false), small, 3);
        let client = network.connect();
        network.run_until(network.now + Duration::from_secs(1));
        let server = network.accepted();
        // Six segments fit, and what is left of the window is less than one.
        network.client.send(client, pattern(0, 30_000).into()).expect("it is open");
        network.run_until(network.now + Duration::from_millis(100));
        network.meddle = Box::new(|way, mut packet| {
            if way == Way::ToClient {
                segment_mut(&mut packet).options.dss = None;
            }
            vec![packet]
        });
        network.server.send(server, pattern(0, 5).into()).expect("it is open");
        let (end, mut steps) = (network.now + MINUTE, 0);
        while network.now < end && network.step() {
            steps += 1;
            assert!(steps < 1000, "at {}\n{}", network.now, network.log.join("\n"));
        }
        assert!(super::fell_back(&network)[0].is_some(), "{}", network.log.join("\n"));
    }
}
