//! An end that only receives, and paths on which nothing comes any more.

use alloc::boxed::Box;
use alloc::rc::Rc;
use core::cell::RefCell;
use std::vec::Vec;

use bytes::Bytes;
use polypath_units::Duration;
use polypath_wire::{FourTuple, Options, Packet, Payload, TcpFlags};

use super::network::{Network, Way, client_addr, pattern, segment, segment_mut};
use crate::{CloseReason, ConnectionConfig, ConnectionId, Event};

const TICK: Duration = Duration::from_millis(10);
const SECOND: Duration = Duration::from_secs(1);

/// A server that has always something to send to a client that reads it, past translators that may forget.
struct Download {
    network: Network,
    client: ConnectionId,
    server: ConnectionId,
    sent: usize,
    received: usize,
    /// The last packet that went to the server on each path.
    to_server: Rc<RefCell<Vec<Option<Packet>>>>,
}

impl Download {
    fn start(delays_ms: &[u64]) -> Self {
        Self::start_with(delays_ms, ConnectionConfig::default())
    }

    fn start_with(delays_ms: &[u64], client: ConnectionConfig) -> Self {
        let mut network = Network::new(delays_ms, client, ConnectionConfig::default(), 1);
        let to_server = Rc::new(RefCell::new(delays_ms.iter().map(|_| None).collect::<Vec<_>>()));
        let seen = to_server.clone();
        network.meddle = Box::new(move |way, packet| {
            let path = (0..).find(|path| [packet.ip.src, packet.ip.dst].contains(&client_addr(*path)));
            if let (Way::ToServer, Some(path)) = (way, path) {
                seen.borrow_mut()[path] = Some(packet.clone());
            }
            std::vec![packet]
        });
        let client = network.connect();
        network.run_until(network.now + SECOND);
        let server = network.accepted();
        Self { network, client, server, sent: 0, received: 0, to_server }
    }

    fn run_for(&mut self, time: Duration) {
        let end = self.network.now + time;
        while self.network.now < end {
            let block = Bytes::from(pattern(self.sent, 10_000));
            self.sent += self.network.server.send(self.server, block).expect("the connection lives");
            self.read();
        }
    }

    fn read(&mut self) {
        self.network.run_until(self.network.now + TICK);
        while let Some(data) = self.network.client.recv(self.client) {
            assert!(data.to_vec() == pattern(self.received, data.len()), "at {}", self.received);
            self.received += data.len();
        }
    }

    /// A translator has forgotten the flows of a path: what comes for them, it answers with a reset.
    fn forget(&mut self, path: usize) {
        let subflows = self.network.server.info(self.server).expect("the connection lives").subflows;
        let tuples: Vec<FourTuple> = subflows.iter().map(|subflow| subflow.tuple).collect();
        let tuple = *tuples
            .iter()
            .find(|tuple| tuple.remote.addr == client_addr(path))
            .expect("a subflow on the path");
        let mut reset = self.to_server.borrow()[path].clone().expect("something went there");
        let segment = segment_mut(&mut reset);
        segment.flags = TcpFlags::RST;
        segment.seq = self.network.last_acknowledged(tuple).expect("the server said something");
        segment.payload = Payload::EMPTY;
        segment.options = Options::default();
        self.network.server.handle_packet(self.network.now, reset);
        assert_eq!(self.on_server().len(), tuples.len() - 1, "{}", self.network.log.join("\n"));
    }

    /// The paths over which the server has subflows.
    fn on_server(&self) -> Vec<usize> {
        let info = self.network.server.info(self.server).expect("the connection lives");
        let path = |addr| (0..self.network.cut.len()).find(|path| client_addr(*path) == addr);
        let mut paths: Vec<usize> =
            info.subflows.iter().filter_map(|subflow| path(subflow.tuple.remote.addr)).collect();
        paths.sort_unstable();
        paths
    }

    /// All that was sent comes.
    fn finish(&mut self) {
        let end = self.network.now + SECOND * 5;
        while self.received < self.sent && self.network.now < end {
            self.read();
        }
        assert_eq!(self.received, self.sent, "{}", self.network.log.join("\n"));
    }

    /// What the client was told of its paths that stop and come back.
    fn told(&self) -> Vec<(bool, FourTuple)> {
        let told = self.network.client_events.iter().filter_map(|(_, event)| match event {
            Event::SubflowStale { tuple, .. } => Some((false, *tuple)),
            Event::SubflowRecovered { tuple, .. } => Some((true, *tuple)),
            _ => None,
        });
        told.collect()
    }
}

#[test]
fn a_subflow_that_only_the_peer_has_lost_is_opened_again() {
    for path in 0..2 {
        let mut download = Download::start(&[10, 20]);
        download.run_for(SECOND * 2);
        download.network.cut[path] = true;
        download.run_for(Duration::from_millis(300));
        download.forget(path);
        download.network.cut[path] = false;
        assert_eq!(download.on_server(), [1 - path]);
        download.run_for(SECOND * 5);
        assert_eq!(download.on_server(), [0, 1], "{}", download.network.log.join("\n"));
        download.finish();
    }
}

#[test]
fn a_connection_of_which_the_peer_has_lost_all_subflows_goes_on() {
    for delays in [&[10][..], &[10, 20]] {
        let mut download = Download::start(delays);
        download.run_for(SECOND * 2);
        let paths: Vec<usize> = (0..delays.len()).collect();
        paths.iter().for_each(|path| download.network.cut[*path] = true);
        download.run_for(Duration::from_millis(300));
        for path in &paths {
            download.forget(*path);
            download.network.cut[*path] = false;
        }
        download.run_for(SECOND * 6);
        assert_eq!(download.on_server(), paths, "{}", download.network.log.join("\n"));
        download.finish();
    }
}

/// A translator that has forgotten a flow, and drops what comes for it, which is not how connections begin.
#[test]
fn what_no_probe_gets_through_is_opened_anew() {
    for is_upload in [false, true] {
        let mut download = Download::start(&[10, 20]);
        download.run_for(SECOND * 2);
        let known = download.network.client.info(download.client).expect("it lives").subflows;
        let forgotten: Vec<u16> = known.iter().map(|subflow| subflow.tuple.local.port).collect();
        download.network.meddle = Box::new(move |way, packet| {
            let segment = segment(&packet);
            let port = if way == Way::ToServer { segment.src_port } else { segment.dst_port };
            let is_second = [packet.ip.src, packet.ip.dst].contains(&client_addr(1));
            if is_second && forgotten.contains(&port) { std::vec![] } else { std::vec![packet] }
        });
        if is_upload {
            let block = Bytes::from(pattern(0, 200_000));
            download.network.client.send(download.client, block).expect("room");
        }
        download.run_for(SECOND * 40);
        let subflows = download.network.client.info(download.client).expect("it lives").subflows;
        let paths: Vec<_> = subflows.iter().map(|subflow| subflow.tuple.local.addr).collect();
        assert_eq!(paths, [client_addr(0), client_addr(1)], "{subflows:?}");
        assert!(subflows[1].tuple.local.port != known[1].tuple.local.port);
        let start = download.network.log.len();
        download.run_for(SECOND);
        let on_second = download.network.log[start..].iter().filter(|line| line.contains(" 1<")).count();
        assert!(on_second > 10, "{}", download.network.log[start..].join("\n"));
        download.finish();
    }
}

#[test]
fn a_path_from_which_nothing_comes_is_told_and_so_is_its_return() {
    let mut download = Download::start(&[10, 20]);
    download.run_for(SECOND * 2);
    let id_of = |download: &Download| {
        let subflows = download.network.client.info(download.client).expect("it lives").subflows;
        subflows.iter().map(|subflow| subflow.tuple).collect::<Vec<_>>()
    };
    let before = id_of(&download);
    download.network.cut[1] = true;
    download.run_for(SECOND * 15);
    let lost = download.told();
    assert!(matches!(lost[..], [(false, tuple)] if tuple.local.addr == client_addr(1)), "{lost:?}");
    download.network.cut[1] = false;
    download.run_for(SECOND * 20);
    assert_eq!(download.told()[1..], [(true, lost[0].1)]);
    // It is the same subflow as before.
    assert_eq!(id_of(&download), before);
    download.finish();
}

#[test]
fn a_stale_loss_count_of_zero_means_never_here_too() {
    let config = ConnectionConfig { stale_loss_count: 0, ..ConnectionConfig::default() };
    let mut download = Download::start_with(&[10, 20], config);
    download.run_for(SECOND * 2);
    download.network.cut[1] = true;
    download.run_for(SECOND * 15);
    assert_eq!(download.told(), []);
}

#[test]
fn a_pause_after_little_costs_nothing_and_one_after_much_a_probe() {
    for (bytes, probes) in [(5_000, 0), (500_000, 1)] {
        let mut download = Download::start(&[10]);
        let mut sent = 0;
        while sent < bytes {
            let block = Bytes::from(pattern(sent, 5_000));
            sent += download.network.server.send(download.server, block).expect("the connection lives");
            download.read();
        }
        download.network.run_until(download.network.now + SECOND);
        let before = download.network.log.len();
        download.network.run_until(download.network.now + SECOND * 600);
        let log = &download.network.log[before..];
        // Each is answered.
        assert_eq!(log.len(), probes * 2, "{}", log.join("\n"));
        let closed: Vec<&CloseReason> = download
            .network
            .client_events
            .iter()
            .filter_map(|(_, event)| if let Event::Closed(reason) = event { Some(reason) } else { None })
            .collect();
        assert_eq!(closed, Vec::<&CloseReason>::new());
        assert_eq!(download.network.client.poll_timeout(), None, "nothing is waited for");
    }
}
