//! What the network does to a connection that is already under way, and to one direction of it.

use std::net::TcpStream;
use std::time::Duration;

use polypath_stack::stack::StackStream;

use super::{Cell, Lab, MIB, close, eventually, exchange, has_optstrip, in_cells, in_cells_at_once};

/// Drops, or no longer drops, what the kernel sends and receives on a path.
fn block(lab: &Lab, path: u8, blocked: bool) {
    let program = if lab.cell.is_v6 { "ip6tables" } else { "iptables" };
    let verb = if blocked { "-A" } else { "-D" };
    for (chain, interface) in [("PREROUTING", "-i"), ("POSTROUTING", "-o")] {
        lab.kernel_runs(&format!("{program} -t mangle {verb} {chain} {interface} path{path} -j DROP"));
    }
}

/// Bytes that a path's subflows have carried, both ways.
pub(super) fn carried(lab: &Lab, ours: &StackStream, path: u8) -> u64 {
    let subflows = Lab::info(ours).subflows;
    let of_path = subflows.iter().filter(|subflow| subflow.tuple.local.addr == lab.cell.our_addr(path));
    of_path.map(|subflow| subflow.tcp.bytes_acked + subflow.tcp.bytes_received).sum()
}

/// Sends data both ways until a path has carried that much.
pub(super) async fn exchange_until_carried(
    lab: &Lab,
    ours: &mut StackStream,
    kernel: &TcpStream,
    path: u8,
    bytes: u64,
) {
    let started = std::time::Instant::now();
    while carried(lab, ours, path) < bytes {
        let info = Lab::info(ours).subflows;
        assert!(started.elapsed() < Duration::from_secs(30), "path {path} stays unused: {info:?}");
        exchange(ours, kernel, 4 * MIB, 4 * MIB).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn each_path_falls_silent_in_a_transfer_and_carries_data_again() {
    in_cells_at_once("each path silent for a while", Cell::without_checksum(), async |cell| {
        let lab = cell.lab();
        if !has_optstrip(&lab) {
            return;
        }
        let (mut ours, kernel) = lab.connect().await;
        lab.subflows(&ours, 2).await;
        for path in [1, 0] {
            let silence = async {
                tokio::time::sleep(Duration::from_millis(30)).await;
                block(&lab, path, true);
            };
            tokio::join!(exchange(&mut ours, &kernel, 64 * MIB, 64 * MIB), silence);
            let before = carried(&lab, &ours, path);
            exchange(&mut ours, &kernel, MIB, MIB).await;
            block(&lab, path, false);
            exchange_until_carried(&lab, &mut ours, &kernel, path, before + MIB).await;
        }
        lab.assert_clean();
    });
}

#[test]
fn options_that_are_stripped_in_one_direction_are_done_without() {
    in_cells("TCPOPTSTRIP in one direction", Cell::without_checksum(), async |cell| {
        let program = if cell.is_v6 { "ip6tables" } else { "iptables" };
        for flags in ["--tcp-flags SYN SYN", "--tcp-flags SYN NONE", ""] {
            for chain in ["PREROUTING", "POSTROUTING"] {
                let mut lab = cell.lab();
                if !has_optstrip(&lab) {
                    return;
                }
                lab.kernel_runs(&format!(
                    "{program} -t mangle -A {chain} -p tcp {flags} -j TCPOPTSTRIP --strip-options 30"
                ));
                let (mut ours, kernel) = lab.connect().await;
                exchange(&mut ours, &kernel, 2 * MIB, 2 * MIB).await;
                close(&mut lab, ours, kernel).await;
            }
        }
    });
}

#[test]
fn a_path_that_begins_to_strip_options_is_left() {
    in_cells("TCPOPTSTRIP on one path, later", Cell::all(), async |cell| {
        let program = if cell.is_v6 { "ip6tables" } else { "iptables" };
        let mut lab = cell.lab();
        if !has_optstrip(&lab) {
            return;
        }
        let (mut ours, kernel) = lab.connect().await;
        lab.subflows(&ours, 2).await;
        exchange(&mut ours, &kernel, 4 * MIB, 4 * MIB).await;
        for (chain, interface) in [("PREROUTING", "-i"), ("POSTROUTING", "-o")] {
            lab.kernel_runs(&format!(
                "{program} -t mangle -A {chain} {interface} path1 -p tcp -j TCPOPTSTRIP --strip-options 30"
            ));
        }
        exchange(&mut ours, &kernel, 32 * MIB, 32 * MIB).await;
        let others = |info: &polypath_mptcp::ConnectionInfo| {
            info.subflows.iter().filter(|subflow| subflow.established).count()
        };
        eventually(|| others(&Lab::info(&ours)) == 1, || format!("{:?}", Lab::info(&ours).subflows)).await;
        assert!(Lab::info(&ours).mptcp, "the other path keeps its options");
        close(&mut lab, ours, kernel).await;
    });
}
