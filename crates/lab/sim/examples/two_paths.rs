//! The simulator as a library: two hosts with two paths between them, in the simulator.
//!
//! ```text
//! cargo run --release -p polypath-sim --example two_paths
//! ```

use polypath_link::{LinkConfig, QueueLimit};
use polypath_mptcp::HostConfig;
use polypath_sim::conversation::Conversation;
use polypath_sim::topologies::{PathConfig, parallel_paths};
use polypath_units::{BitRate, Duration, Instant};
use polypath_wire::Endpoint;

fn main() {
    let queue = QueueLimit::Delay(Duration::from_millis(50));
    let path = |name: &str, mbps: u64, one_way_ms: u64| {
        let link = LinkConfig::new(BitRate::from_mbps(mbps), Duration::from_millis(one_way_ms), queue);
        PathConfig::symmetric(name, link)
    };
    let paths = [path("fibre", 50, 5), path("cable", 30, 15)];

    // The client's path manager joins from each of its addresses by itself.
    let (builder, net) = parallel_paths(1, paths, HostConfig::default(), HostConfig::default());
    let mut network = builder.build();

    // 20 MB go from the server to the client over one connection.
    let (opener, acceptor) = Conversation::plans(1, None, Some(20_000_000));
    let ends = network.converse(Conversation {
        from: net.client,
        local: net.client_addrs[0],
        to: net.server,
        remote: Endpoint::new(net.server_addr, 80),
        start: Instant::ZERO,
        config: None,
        opener,
        acceptor,
    });

    for second in 1..=4 {
        network.run_for(Duration::from_secs(1));
        let server = network.host(net.server);
        let Some(info) = server.connection(ends.acceptor.app).and_then(|id| server.stack.info(id)) else {
            println!("{second} s: the connection is closed");
            continue;
        };
        for subflow in &info.subflows {
            println!(
                "{second} s: to {}: {:>5.2} MB acknowledged, cwnd {} kB, srtt {:.0} ms",
                subflow.tuple.remote.addr,
                subflow.tcp.bytes_acked as f64 / 1e6,
                subflow.tcp.cwnd_bytes / 1000,
                subflow.tcp.srtt.as_millis_f64()
            );
        }
    }
}
