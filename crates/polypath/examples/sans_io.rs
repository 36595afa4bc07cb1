//! The protocol without sockets, clocks or tasks: two hosts, two paths, and a loop that carries packets between them. A
//! driver for other hardware, or a test, looks like this.
//!
//! ```text
//! cargo run -p polypath --example sans_io
//! ```

use std::collections::BTreeMap;
use std::net::IpAddr;

use bytes::Bytes;
use polypath::mptcp::path_manager::LocalEndpoint;
use polypath::mptcp::{Event, Host, HostConfig};
use polypath::units::{Duration, Instant};
use polypath::wire::{Endpoint, Packet};

const FILE_BYTES: usize = 40_000_000;

/// From then on, the first path loses everything. Nobody is told.
const FIRST_ENDS_MS: u64 = 230;

/// Packets on their way, by the time of their arrival: for the client, or for the server.
#[derive(Default)]
struct Wires {
    flying: BTreeMap<(Instant, u64), (bool, Packet)>,
    sent: u64,
}

impl Wires {
    /// Takes what a host sends.
    fn take(&mut self, now: Instant, host: &mut Host, to_client: bool, second: IpAddr) {
        while let Some(packet) = host.poll_transmit(now) {
            // The path is known by the client's address: 10 ms one way, and 30 ms.
            let is_second = packet.ip.src == second || packet.ip.dst == second;
            let delay = Duration::from_millis(if is_second { 30 } else { 10 });
            if !is_second && now > Instant::from_millis(FIRST_ENDS_MS) {
                continue;
            }
            self.sent += 1;
            self.flying.insert((now + delay, self.sent), (to_client, packet));
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client_addrs: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 1, 1].into()];
    let address = Endpoint::new([10, 9, 9, 9].into(), 80);
    let endpoints = (1..).zip(client_addrs).map(|(id, addr)| LocalEndpoint::subflow(addr, id));
    let mut client = Host::new(HostConfig { endpoints: endpoints.collect(), ..HostConfig::default() }, 1);
    let mut server = Host::new(HostConfig::default(), 2);
    let mut now = Instant::ZERO;
    server.listen(address)?;
    let id = client.connect(now, Endpoint::new(client_addrs[0], 0), address, None)?;

    let mut wires = Wires::default();
    let mut left = Bytes::from(vec![7; FILE_BYTES]);
    let mut received = 0;
    let mut carried = String::new();
    while received < FILE_BYTES {
        // 1. What applications should know, and what they do.
        while let Some((id, event)) = server.poll() {
            if matches!(event, Event::Accepted { .. } | Event::Writable) {
                // The host says how much it takes, and tells when there is room again.
                let taken = server.send(id, left.clone())?;
                left = left.slice(taken..);
            }
        }
        while let Some((id, event)) = client.poll() {
            match event {
                Event::Readable => {
                    while let Some(data) = client.recv(id) {
                        received += data.slices().iter().map(Bytes::len).sum::<usize>();
                    }
                }
                Event::SubflowEstablished { tuple, .. } => println!("{now}: path from {}", tuple.local.addr),
                _ => {}
            }
        }
        // 2. What hosts have to send.
        wires.take(now, &mut client, false, client_addrs[1]);
        wires.take(now, &mut server, true, client_addrs[1]);
        // 3. Time goes on to the next thing that happens: a packet arrives, or a host wants to be woken.
        let arrival = wires.flying.keys().next().map(|(at, _)| *at);
        let wake = [arrival, client.poll_timeout(), server.poll_timeout()].into_iter().flatten().min();
        now = wake.ok_or("nothing more happens")?.max(now);
        while let Some(entry) = wires.flying.first_entry().filter(|entry| entry.key().0 <= now) {
            let (to_client, packet) = entry.remove();
            if to_client {
                client.handle_packet(now, packet)
            } else {
                server.handle_packet(now, packet)
            };
        }
        client.handle_timeout(now);
        server.handle_timeout(now);
        if let Some(info) = client.info(id) {
            let share = |subflow: &polypath::SubflowInfo| {
                format!("{}: {:.1} MB", subflow.tuple.local.addr, subflow.tcp.bytes_received as f64 / 1e6)
            };
            carried = info.subflows.iter().map(share).collect::<Vec<_>>().join(", ");
        }
    }
    println!("{now}: {received} bytes in {} packets; {carried}", wires.sent);
    Ok(())
}
