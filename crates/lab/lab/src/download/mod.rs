//! A download over several interfaces in the simulator: the schedule and the HTTP that ship, over plain TCP.
//!
//! Each path has a connection of its own to a server that knows nothing of the others (K §6.2).

mod client;
mod origin;
mod pairs;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use polypath_fetch::playback::History;
use polypath_fetch::schedule::Sizing;
use polypath_mptcp::{ConnectionConfig, HostConfig};
use polypath_sim::app::{App, Pattern};
use polypath_sim::topologies::{PathConfig, parallel_paths};
use polypath_units::{Duration, Instant};
use polypath_wire::Endpoint;

use self::client::{Client, PathConnection};
use self::origin::Origin;
pub use self::pairs::{Pair, Ranges, run_pairs};
use crate::run::{PathSet, Variant};

/// The server's port of the first path; each has its own.
const PORT: u16 = 8000;

/// What is downloaded, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Download {
    /// Bytes of the file.
    pub total_bytes: u64,
    /// How large requests are.
    pub sizing: Sizing,
    /// When it is given up.
    pub timeout: Duration,
}

/// What became of it.
#[derive(Clone, Debug)]
pub struct Downloaded {
    /// From the first SYN to the last byte; `None` if it was given up.
    pub took: Option<Duration>,
    /// When what came, came.
    pub history: History,
    /// Requests that were sent.
    pub requests: u64,
    /// Bytes of answers, by path, whether they were needed or not.
    pub path_bytes: Vec<u64>,
    /// Every byte was the right one.
    pub is_right: bool,
}

/// Downloads over these paths at once, by connections with congestion control CUBIC. Everything random follows from `seed`.
#[must_use]
pub fn run_download(set: &PathSet, download: &Download, seed: u64) -> Downloaded {
    let paths = set.paths.iter().enumerate();
    let paths =
        paths.map(|(number, path)| PathConfig::symmetric(format!("path {}", number + 1), set.link(path)));
    let variant = Variant::single_path(0, polypath_congestion::CUBIC);
    let connection = Arc::new(ConnectionConfig { mptcp: false, ..variant.connection(set) });
    let host = HostConfig { connection, ..HostConfig::default() };
    let (builder, net) = parallel_paths(seed, paths, host.clone(), host);
    let mut network = builder.build();
    let file = Pattern::new(seed);
    let round_trips = set.paths.iter().map(|path| path.rtt);
    let client = Rc::new(RefCell::new(Client::new(file, download.sizing.clone(), round_trips)));
    let end = Instant::ZERO + download.timeout;
    for path in 0..set.paths.len() {
        let remote = Endpoint::new(net.server_addr, PORT + path as u16);
        network.with_host(net.server, |_, host| {
            // A new host has its ports free.
            let _listener = host.stack.listen(remote);
        });
    }
    loop {
        // Not in the condition: it would be borrowed in the block.
        loop {
            let Some((path, number)) = client.borrow_mut().poll_connect() else { break };
            let remote = Endpoint::new(net.server_addr, PORT + path as u16);
            let origin = Origin::new(file, download.total_bytes);
            network.with_host(net.server, |_, host| host.accept(remote.port, App::Custom(Box::new(origin))));
            let app = PathConnection { client: client.clone(), path, number };
            network.with_host(net.client, |now, host| {
                let local = Endpoint::new(net.client_addrs[path], 0);
                let app = host.add(App::Custom(Box::new(app)));
                if let Ok(id) = host.stack.connect(now, local, remote, None) {
                    host.bind(id, app);
                }
            });
        }
        let Some(at) = network.next_event_at().filter(|at| *at <= end) else { break };
        network.run_until(at);
        if client.borrow().is_complete() {
            break;
        }
    }
    let client = client.borrow();
    let took = client.is_complete().then(|| network.now().since(Instant::ZERO));
    Downloaded {
        took,
        history: client.history().clone(),
        requests: client.requests(),
        path_bytes: client.path_bytes(),
        is_right: client.is_right(),
    }
}

#[cfg(test)]
mod tests;
