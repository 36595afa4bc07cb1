//! A handover in the simulator: a phone leaves its WiFi in the middle of a download, and the download goes on over LTE.
//!
//! ```text
//! cargo run --release -p polypath-sim --example handover
//! ```

use polypath_link::{Change, LinkConfig, QueueLimit};
use polypath_mptcp::HostConfig;
use polypath_sim::conversation::Conversation;
use polypath_sim::topologies::{PathConfig, parallel_paths};
use polypath_units::{BitRate, Duration, Instant};
use polypath_wire::Endpoint;

const FILE_BYTES: u64 = 10_000_000;

fn main() {
    let queue = QueueLimit::Delay(Duration::from_millis(80));
    let path = |name: &str, mbps: u64, one_way_ms: u64| {
        let link = LinkConfig::new(BitRate::from_mbps(mbps), Duration::from_millis(one_way_ms), queue);
        PathConfig::symmetric(name, link)
    };
    let paths = [path("wifi", 40, 10), path("lte", 20, 30)];
    let (builder, net) = parallel_paths(1, paths, HostConfig::default(), HostConfig::default());
    let mut network = builder.build();

    // After a second, nothing comes through WiFi any more. Nobody is told; both ends have to find out.
    let wifi = net.links[0];
    network.schedule(Instant::ZERO + Duration::from_secs(1), move |network| {
        network.change(wifi.forward(), Change::Down);
        network.change(wifi.backward(), Change::Down);
    });

    let (opener, acceptor) = Conversation::plans(1, None, Some(FILE_BYTES));
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
    let step = Duration::from_millis(250);
    while network.report(ends.opener).received_bytes < FILE_BYTES {
        network.run_for(step);
        let carried = net.links.iter().map(|link| network.channel_stats(link.backward()).delivered_bytes);
        let carried: Vec<String> = carried.map(|bytes| format!("{:.1} MB", bytes as f64 / 1e6)).collect();
        println!(
            "{:>4.2} s: {:>4.1} MB here; wifi carried {}, lte {}",
            network.now().as_secs_f64(),
            network.report(ends.opener).received_bytes as f64 / 1e6,
            carried[0],
            carried[1]
        );
    }
    println!("all {FILE_BYTES} bytes arrived");
}
