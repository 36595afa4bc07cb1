//! Our stack against the kernel's Multipath TCP (Linux, version 1): each scenario reads like the exchange that it is.
//!
//! Needs root: network namespaces, TUN devices, `ip mptcp`. The long ones run with `-- --include-ignored`, as
//! `make interop` does.

mod closing;
mod harness;
mod trouble;

use polypath_mptcp::AddressId;
use std::net::SocketAddr;
use std::panic::resume_unwind;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use harness::*;
use polypath_mptcp::path_manager::LocalEndpoint;
use polypath_mptcp::{CloseReason, ConnectionConfig, Event, SubflowError};
use polypath_stack::engine::ConnectOptions;
use polypath_testbed::{Side, Testbed, is_root_or_skip};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const MIB: u64 = 1 << 20;

/// Runs a scenario in each cell, one after the other.
fn in_cells(name: &str, cells: impl Iterator<Item = Cell>, scenario: impl AsyncFn(Cell)) {
    if !is_root_or_skip(name) {
        return;
    }
    let mut count = 0;
    for cell in cells {
        in_cell(name, cell, &scenario);
        count += 1;
    }
    println!("interop: {name}: {count} of {count} cells");
}

/// The same with all cells at once: for scenarios that mostly wait.
fn in_cells_at_once(name: &str, cells: impl Iterator<Item = Cell>, scenario: impl AsyncFn(Cell) + Sync) {
    if !is_root_or_skip(name) {
        return;
    }
    let scenario = &scenario;
    let count = std::thread::scope(|scope| {
        let threads: Vec<_> = cells.map(|cell| scope.spawn(move || in_cell(name, cell, scenario))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).count()
    });
    println!("interop: {name}: {count} of {count} cells");
}

/// On a runtime of its own.
fn in_cell(name: &str, cell: Cell, scenario: &impl AsyncFn(Cell)) {
    println!("interop: {name}: {cell}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(scenario(cell));
}

#[test]
fn data_flows_both_ways_over_both_paths() {
    in_cells("data both ways", Cell::all(), async |cell| {
        let mut lab = cell.lab();
        if cell.ours == Side::Server {
            lab.kernel_endpoint(1, cell.is_v6, "subflow");
        }
        let (mut ours, kernel) = lab.connect().await;
        lab.subflows(&ours, if cell.ours == Side::Client { 2 } else { 3 }).await;
        exchange(&mut ours, &kernel, 8 * MIB, 8 * MIB).await;
        let info = Lab::info(&ours);
        assert!(info.mptcp && info.checksum == cell.checksum);
        let busy =
            info.subflows.iter().filter(|subflow| subflow.tcp.bytes_acked + subflow.tcp.bytes_received > 0);
        assert!(busy.count() >= 2, "{:?}", info.subflows);
        lab.assert_clean();
        close(&mut lab, ours, kernel).await;
        lab.event("CLOSED", |event| *event == Event::Closed(CloseReason::Finished)).await;
    });
}

#[test]
fn any_size_arrives() {
    in_cells("sizes", Cell::without_checksum(), async |cell| {
        for size in [1, 2, 1427, 1428, 1429, 65_535, 65_536, 100_001] {
            let mut lab = cell.lab();
            let (mut ours, kernel) = lab.connect().await;
            exchange(&mut ours, &kernel, size, size).await;
            lab.assert_clean();
            close(&mut lab, ours, kernel).await;
        }
    });
}

/// As over slow paths, where no aggregate carries the mapping of all its segments.
#[test]
fn segments_without_a_mapping_of_their_own_are_placed() {
    in_cells("one mapping for many segments", Cell::without_checksum(), async |cell| {
        let mut choices = cell.choices();
        Arc::make_mut(&mut choices.connection.tcp).max_aggregate_bytes = 0;
        let mut lab = cell.lab_with(choices);
        let (mut ours, kernel) = lab.connect().await;
        lab.subflows(&ours, 2).await;
        for (to_kernel, to_us) in [(16 * MIB, 0), (0, 16 * MIB), (16 * MIB, 16 * MIB), (1, 1)] {
            exchange(&mut ours, &kernel, to_kernel, to_us).await;
        }
        lab.assert_clean();
        close(&mut lab, ours, kernel).await;
    });
}

#[test]
#[ignore = "takes a minute: make interop"]
fn four_gigabytes_arrive() {
    let cells = Cell::without_checksum().filter(|cell| !cell.is_v6);
    in_cells("4 GB", cells, async |cell| {
        let mut lab = cell.lab();
        let (mut ours, kernel) = lab.connect().await;
        // Past the wrap of 32-bit sequence numbers, whatever the first one was.
        exchange(&mut ours, &kernel, 4_300_000_000, 64 * MIB).await;
        exchange(&mut ours, &kernel, 64 * MIB, 4_300_000_000).await;
        lab.assert_clean();
        close(&mut lab, ours, kernel).await;
    });
}

#[test]
fn the_kernel_joins_from_its_second_address() {
    let cells = Cell::all().filter(|cell| cell.ours == Side::Server);
    in_cells("join by the kernel", cells, async |cell| {
        let mut choices = cell.choices();
        choices.endpoints.clear();
        let lab = cell.lab_with(choices);
        lab.kernel_endpoint(1, cell.is_v6, "subflow");
        let (mut ours, kernel) = lab.connect().await;
        let info = lab.subflows(&ours, 2).await;
        assert!(info.subflows.iter().any(|subflow| subflow.tuple.remote.addr == cell.kernel_addr(1)));
        assert_eq!(lab.stack.counters().mp_join_ack_rx, 1);
        exchange(&mut ours, &kernel, MIB, MIB).await;
        lab.assert_clean();
    });
}

#[test]
fn we_join_from_our_second_address() {
    let cells = Cell::all().filter(|cell| cell.ours == Side::Client);
    in_cells("join by us", cells, async |cell| {
        let lab = cell.lab();
        let (mut ours, kernel) = lab.connect().await;
        lab.subflows(&ours, 2).await;
        lab.counts("MPJoinAckRx", 1).await;
        exchange(&mut ours, &kernel, MIB, MIB).await;
        lab.assert_clean();
    });
}

#[test]
fn an_address_that_the_kernel_announces_is_echoed_joined_and_withdrawn() {
    let cells = Cell::all().filter(|cell| cell.ours == Side::Client);
    in_cells("ADD_ADDR and REMOVE_ADDR by the kernel", cells, async |cell| {
        let mut choices = cell.choices();
        choices.endpoints.truncate(1);
        let mut lab = cell.lab_with(choices);
        lab.kernel_endpoint(1, cell.is_v6, "signal");
        // No data: the ADD_ADDR alone tells that our keys have arrived.
        let (mut ours, kernel) = lab.connect_silently().await;
        lab.event("ANNOUNCED", |event| matches!(event, Event::Announced { id: AddressId(11), .. })).await;
        lab.counts("EchoAdd", 1).await;
        let info = lab.subflows(&ours, 2).await;
        assert!(info.subflows.iter().any(|subflow| subflow.tuple.remote.addr == cell.kernel_addr(1)));
        exchange(&mut ours, &kernel, MIB, MIB).await;
        lab.ip_mptcp("endpoint delete id 11");
        lab.event("REMOVED", |event| *event == Event::Removed { id: AddressId(11) }).await;
        lab.subflows(&ours, 1).await;
        exchange(&mut ours, &kernel, MIB, MIB).await;
        lab.assert_clean();
    });
}

#[test]
fn an_address_with_a_port_is_joined_at_that_port() {
    let cells = Cell::all().filter(|cell| cell.ours == Side::Client);
    in_cells("ADD_ADDR with port by the kernel", cells, async |cell| {
        let mut choices = cell.choices();
        choices.endpoints.truncate(1);
        let mut lab = cell.lab_with(choices);
        // Linux finds no room for an IPv6 address with a port beside timestamps.
        lab.kernel_variable("net/ipv4/tcp_timestamps", if cell.is_v6 { "0" } else { "1" });
        lab.kernel_endpoint(1, cell.is_v6, "signal port 9999");
        // Linux leaves it out while there is data, which takes the options' place.
        let (mut ours, kernel) = lab.connect_silently().await;
        let announced = lab.event("ANNOUNCED", |event| matches!(event, Event::Announced { .. })).await;
        assert!(matches!(announced, Event::Announced { remote, .. } if remote.port == 9999), "{announced:?}");
        let info = lab.subflows(&ours, 2).await;
        assert!(info.subflows.iter().any(|subflow| subflow.tuple.remote.port == 9999));
        exchange(&mut ours, &kernel, MIB, MIB).await;
        lab.assert_clean();
    });
}

#[test]
fn addresses_that_we_announce_are_echoed_joined_and_withdrawn() {
    let cells = Cell::all().filter(|cell| cell.ours == Side::Server);
    in_cells("ADD_ADDR and REMOVE_ADDR by us", cells, async |cell| {
        let lab = cell.lab();
        let (mut ours, kernel) = lab.connect().await;
        lab.counts("AddAddr", 1).await;
        let info = lab.subflows(&ours, 2).await;
        assert!(info.subflows.iter().any(|subflow| subflow.tuple.local.addr == cell.our_addr(1)));
        eventually(
            || lab.stack.counters().echo_add >= 1,
            || format!("our echo counter: {:?}", lab.stack.counters()),
        )
        .await;
        exchange(&mut ours, &kernel, MIB, MIB).await;
        lab.stack.remove_path(cell.our_addr(1));
        lab.counts("RmAddr", 1).await;
        lab.subflows(&ours, 1).await;
        exchange(&mut ours, &kernel, MIB, MIB).await;
        lab.assert_clean();
    });
}

#[test]
fn a_port_that_we_announce_is_joined() {
    let cells = Cell::without_checksum().filter(|cell| cell.ours == Side::Server);
    in_cells("ADD_ADDR with port by us", cells, async |cell| {
        let mut choices = cell.choices();
        choices.endpoints[1].port = Some(9999);
        let lab = cell.lab_with(choices);
        let at = SocketAddr::new(cell.our_addr(1), 9999);
        let _second = lab.stack.listen(at).expect("the port is free");
        let (mut ours, kernel) = lab.connect().await;
        lab.counts("PortAdd", 1).await;
        let info = lab.subflows(&ours, 2).await;
        assert!(info.subflows.iter().any(|subflow| subflow.tuple.local.port == 9999));
        exchange(&mut ours, &kernel, MIB, MIB).await;
        lab.assert_clean();
    });
}

#[test]
fn families_mix() {
    in_cells("a second path of the other family", Cell::without_checksum(), async |cell| {
        let mut choices = cell.choices();
        let make = if cell.ours == Side::Client { LocalEndpoint::subflow } else { LocalEndpoint::signal };
        choices.endpoints = vec![make(cell.our_addr(0), 1), make(cell.our_addr_in(1, !cell.is_v6), 2)];
        let lab = cell.lab_with(choices);
        lab.is_dual.set(true);
        // Each side needs the peer's address of the other family: the server announces it.
        if cell.ours == Side::Client {
            lab.kernel_endpoint(1, !cell.is_v6, "signal");
        }
        let (mut ours, kernel) = lab.connect().await;
        let info = lab.subflows(&ours, 2).await;
        let families: Vec<bool> =
            info.subflows.iter().map(|subflow| subflow.tuple.remote.addr.is_ipv6()).collect();
        assert!(families.contains(&true) && families.contains(&false), "{families:?}");
        exchange(&mut ours, &kernel, 4 * MIB, 4 * MIB).await;
        lab.assert_clean();
    });
}

#[test]
fn a_backup_of_the_kernel_stays_idle_until_it_is_no_backup() {
    let cells = Cell::without_checksum().filter(|cell| cell.ours == Side::Server);
    in_cells("backup and MP_PRIO by the kernel", cells, async |cell| {
        let mut choices = cell.choices();
        choices.endpoints.clear();
        let lab = cell.lab_with(choices);
        lab.kernel_endpoint(1, cell.is_v6, "subflow backup");
        let (mut ours, kernel) = lab.connect().await;
        let info = lab.subflows(&ours, 2).await;
        let second = |info: &polypath_mptcp::ConnectionInfo| {
            info.subflows
                .iter()
                .find(|subflow| subflow.tuple.remote.addr == cell.kernel_addr(1))
                .cloned()
                .expect("it")
        };
        assert!(second(&info).is_backup());
        exchange(&mut ours, &kernel, 4 * MIB, MIB).await;
        assert_eq!(second(&Lab::info(&ours)).tcp.bytes_acked, 0, "a backup carries nothing");
        lab.ip_mptcp("endpoint change id 11 nobackup");
        eventually(|| !second(&Lab::info(&ours)).is_backup(), || "MP_PRIO arrives".to_string()).await;
        exchange(&mut ours, &kernel, 16 * MIB, MIB).await;
        lab.assert_clean();
    });
}

#[test]
fn a_backup_of_ours_and_our_mp_prio_are_understood() {
    let cells = Cell::without_checksum().filter(|cell| cell.ours == Side::Client);
    in_cells("backup and MP_PRIO by us", cells, async |cell| {
        let mut choices = cell.choices();
        choices.endpoints[1] = choices.endpoints[1].backup();
        let lab = cell.lab_with(choices);
        let (mut ours, kernel) = lab.connect().await;
        let info = lab.subflows(&ours, 2).await;
        exchange(&mut ours, &kernel, MIB, 4 * MIB).await;
        let second =
            info.subflows.iter().find(|subflow| subflow.tuple.local.addr == cell.our_addr(1)).expect("it");
        assert!(second.is_backup());
        let number = second.multipath.as_ref().expect("our own stack tells").id;
        let received = |ours: &_| {
            let info = Lab::info(ours);
            info.subflows
                .iter()
                .find(|subflow| subflow.tuple == second.tuple)
                .map(|subflow| subflow.tcp.bytes_received)
        };
        // On a busy machine our acknowledgments may be so late that the kernel sends again, and that on the backup.
        let on_backup = received(&ours);
        let repeats = lab.counter("MPTCPRetrans");
        assert!(on_backup == Some(0) || repeats > 0, "{on_backup:?} bytes of the kernel's on a backup");
        ours.set_backup(number, false);
        lab.counts("MPPrioRx", 1).await;
        exchange(&mut ours, &kernel, MIB, 16 * MIB).await;
        lab.assert_clean();
    });
}

#[test]
fn an_abort_reaches_the_other_end_at_once() {
    in_cells("MP_FASTCLOSE", Cell::without_checksum(), async |cell| {
        let mut lab = cell.lab();
        let (mut ours, kernel) = lab.connect().await;
        exchange(&mut ours, &kernel, 1000, 1000).await;
        kernel_aborts(kernel);
        let error = ours.read(&mut [0; 8]).await.expect_err("the kernel has aborted");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        lab.event("CLOSED", |event| *event == Event::Closed(CloseReason::Reset)).await;
        drop(ours);
        // And the other way.
        let lab = cell.lab();
        let (mut ours, kernel) = lab.connect().await;
        exchange(&mut ours, &kernel, 1000, 1000).await;
        ours.abort();
        let read = joined(std::thread::spawn(move || std::io::Read::read(&mut &kernel, &mut [0; 8]))).await;
        assert_eq!(read.expect_err("we have aborted").kind(), std::io::ErrorKind::ConnectionReset);
        lab.counts("MPFastcloseRx", 1).await;
    });
}

#[test]
fn a_reset_of_a_subflow_says_why() {
    in_cells("RST reasons", Cell::without_checksum(), async |cell| {
        let mut lab = cell.lab();
        if cell.ours == Side::Client {
            // We may not join.
            lab.ip_mptcp("limits set subflow 0 add_addr_accepted 0");
        }
        let (mut ours, kernel) = lab.connect().await;
        match cell.ours {
            // What the kernel had joined is taken away from it.
            Side::Server => {
                lab.subflows(&ours, 2).await;
                lab.stack.remove_path(cell.our_addr(1));
                lab.counts("MPRstRx", 1).await;
            }
            Side::Client => {
                let closed = |event: &Event| matches!(event, Event::SubflowClosed { .. });
                let event = lab.event("SF_CLOSED", closed).await;
                let Event::SubflowClosed { error: Some(SubflowError::Reset(Some(_))), .. } = event else {
                    panic!("no reason: {event:?}");
                };
            }
        }
        exchange(&mut ours, &kernel, MIB, MIB).await;
    });
}

#[test]
fn one_half_ends_and_the_other_goes_on() {
    in_cells("half-close", Cell::all(), async |cell| {
        let mut lab = cell.lab();
        let (mut ours, kernel) = lab.connect().await;
        // The kernel ends its half first, and receives on.
        kernel.shutdown(std::net::Shutdown::Write).expect("ends its half");
        assert_eq!(ours.read(&mut [0; 8]).await.expect("the end"), 0);
        let receiving = kernel_receives(&kernel, 2, 2 * MIB);
        send(&mut ours, 2, 2 * MIB).await.expect("we send on");
        joined(receiving).await.expect("the kernel receives");
        close(&mut lab, ours, kernel).await;
        // We end ours first, and receive on.
        let mut lab = cell.lab();
        let (mut ours, kernel) = lab.connect().await;
        ours.shutdown().await.expect("we end our half");
        let sending = kernel_sends(&kernel, 1, 2 * MIB);
        receive(&mut ours, 1, 2 * MIB).await.expect("we receive on");
        joined(sending).await.expect("the kernel sends");
        lab.assert_clean();
        close(&mut lab, ours, kernel).await;
    });
}

#[test]
fn a_connection_that_was_idle_for_long_ends_in_order() {
    in_cells("late close", Cell::without_checksum(), async |cell| {
        let mut lab = cell.lab();
        let (mut ours, kernel) = lab.connect().await;
        exchange(&mut ours, &kernel, 1000, 1000).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        exchange(&mut ours, &kernel, 1000, 1000).await;
        close(&mut lab, ours, kernel).await;
        lab.event("CLOSED", |event| *event == Event::Closed(CloseReason::Finished)).await;
    });
}

fn has_optstrip(lab: &Lab) -> bool {
    let list = lab.in_kernel(|| Command::new("iptables").args(["-t", "mangle", "-L"]).output());
    let is_there = list.is_ok_and(|output| output.status.success());
    if !is_there {
        eprintln!("SKIPPED option stripping: iptables is missing (apt-get install iptables)");
    }
    is_there
}

#[test]
fn options_that_a_firewall_strips_are_done_without() {
    in_cells("TCPOPTSTRIP", Cell::without_checksum(), async |cell| {
        let program = if cell.is_v6 { "ip6tables" } else { "iptables" };
        for (what, flags) in
            [("SYN", "--tcp-flags SYN SYN"), ("data", "--tcp-flags SYN NONE"), ("everything", "")]
        {
            let mut lab = cell.lab();
            if !has_optstrip(&lab) {
                return;
            }
            for chain in ["PREROUTING", "POSTROUTING"] {
                lab.kernel_runs(&format!(
                    "{program} -t mangle -A {chain} -p tcp {flags} -j TCPOPTSTRIP --strip-options 30"
                ));
            }
            let (mut ours, kernel) = lab.connect().await;
            exchange(&mut ours, &kernel, 2 * MIB, 2 * MIB).await;
            assert!(!Lab::info(&ours).mptcp, "options stripped from {what}");
            close(&mut lab, ours, kernel).await;
        }
    });
}

#[test]
fn a_path_that_goes_down_and_comes_back_is_used_again() {
    in_cells("path down and up", Cell::without_checksum(), async |cell| {
        let lab = cell.lab();
        let (mut ours, kernel) = lab.connect().await;
        lab.subflows(&ours, 2).await;
        let set = |up: bool| {
            lab.in_kernel(move || {
                let netlink = polypath_system::Netlink::new()?;
                let link = Testbed::interface(1);
                if up { netlink.set_up(&link) } else { netlink.set_down(&link) }
            })
            .expect("the interface is there");
        };
        // Else the kernel forgets an IPv6 address with its interface.
        lab.kernel_variable("net/ipv6/conf/path1/keep_addr_on_down", "1");
        let sending = kernel_sends(&kernel, 1, 64 * MIB);
        let mut half = vec![0; 1];
        ours.read_exact(&mut half).await.expect("the first byte");
        set(false);
        let mut rest = 64 * MIB - 1;
        let mut buffer = vec![0; 256 * 1024];
        while rest > 0 {
            let got = ours.read(&mut buffer).await.expect("the path that is left carries on");
            assert!(got > 0);
            rest -= got as u64;
        }
        joined(sending).await.expect("the kernel sends");
        let before = trouble::carried(&lab, &ours, 1);
        exchange(&mut ours, &kernel, MIB, MIB).await;
        set(true);
        // The way to us went with it.
        let (to, gateway) = (cell.our_addr(1), cell.our_gateway(1));
        lab.kernel_runs(&format!("ip route replace {to} via {gateway} dev path1"));
        trouble::exchange_until_carried(&lab, &mut ours, &kernel, 1, before + MIB).await;
    });
}

/// A thousand connections at once, each with data both ways.
async fn many(cell: Cell, count: usize) {
    let lab = cell.lab();
    let mut streams = Vec::new();
    let (listener, kernel) = match cell.ours {
        Side::Client => (None, Some(lab.kernel_listener())),
        Side::Server => (Some(lab.listener()), None),
    };
    for _ in 0..count {
        match (&listener, &kernel) {
            (None, Some(kernel)) => {
                let to = SocketAddr::new(cell.kernel_addr(0), PORT);
                let ours =
                    lab.stack.connect(to, &ConnectOptions::default()).await.expect("the kernel accepts");
                streams.push((ours, kernel.accept().expect("a connection").0));
            }
            (Some(listener), None) => {
                let socket = lab.kernel_socket();
                let to = SocketAddr::new(cell.our_addr(0), PORT);
                let connecting =
                    tokio::task::spawn_blocking(move || socket.connect(&to.into()).map(|()| socket));
                let (ours, _) = listener.accept().await.expect("a connection");
                streams.push((ours, connecting.await.expect("a thread").expect("we accept").into()));
            }
            _ => unreachable!("one side listens"),
        }
    }
    let exchanges = streams.iter_mut().map(|(ours, kernel)| exchange(ours, kernel, 20_000, 20_000));
    futures_util::future::join_all(exchanges).await;
    assert_eq!(lab.stack.connections().len(), count);
    lab.assert_clean();
}

#[test]
fn a_hundred_connections_live_at_once() {
    in_cells("100 connections", Cell::without_checksum().filter(|cell| !cell.is_v6), async |cell| {
        many(cell, 100).await;
    });
}

#[test]
#[ignore = "takes a while: make interop"]
fn a_thousand_connections_live_at_once() {
    in_cells("1 000 connections", Cell::without_checksum(), async |cell| many(cell, 1000).await);
}

#[test]
fn without_multipath_tcp_at_either_end_it_is_tcp() {
    in_cells("plain TCP", Cell::without_checksum(), async |cell| {
        let choices = cell.choices();
        let plain = ConnectionConfig { mptcp: false, ..choices.connection.clone() };
        let mut lab = cell.lab_with(Choices { connection: plain, ..choices });
        let (mut ours, kernel) = lab.connect().await;
        exchange(&mut ours, &kernel, 4 * MIB, 4 * MIB).await;
        assert!(!Lab::info(&ours).mptcp);
        close(&mut lab, ours, kernel).await;
    });
}

#[test]
fn shutting_down_while_data_is_under_way_loses_nothing() {
    in_cells("close behind data", Cell::all(), async |cell| {
        let mut lab = cell.lab();
        let (mut ours, kernel) = lab.connect().await;
        let receiving = kernel_receives(&kernel, 2, 6 * MIB);
        send(&mut ours, 2, 6 * MIB).await.expect("we send");
        ours.shutdown().await.expect("we end our half");
        joined(receiving).await.expect("the kernel receives everything");
        lab.assert_clean();
        close(&mut lab, ours, kernel).await;
    });
}
