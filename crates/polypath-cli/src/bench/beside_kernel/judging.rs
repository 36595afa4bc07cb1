//! The kernel's sender and paths that would hold up the rest.

use std::time::Duration;

use polypath_mptcp::{ConnectionConfig, JudgePaths, SubflowInfo};
use polypath_stack::stack::default_connection;
use polypath_testbed::{Side, is_root_or_skip};

use super::scene::{AccessLink, Scene, Way};

const LIMIT: Duration = Duration::from_secs(60);

/// What our receiver's subflows and counters are after so many bytes from the kernel.
fn receive(links: &[AccessLink], bytes: u64) -> (Vec<SubflowInfo>, polypath_mptcp::Counters, Vec<String>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let scene = Scene::new(links, "cubic").expect("namespaces");
        let judging = ConnectionConfig { judge_paths: JudgePaths::Foreign, ..default_connection() };
        let seen = scene.by_us(judging, Way::Receive, bytes, LIMIT, |stack| {
            let subflows = stack.connections().into_iter().flat_map(|(_, info)| info.subflows.clone());
            (subflows.collect(), stack.counters(), stack.paths_set_aside())
        });
        let (transfer, seen) = seen.await.expect("a transfer");
        assert_eq!(transfer.bytes, bytes);
        seen
    })
}

#[test]
fn the_kernel_leaves_a_path_alone_that_joins_set_aside() {
    if !is_root_or_skip("a slow path beside a fast one") {
        return;
    }
    let fast = AccessLink { mbit_per_s: 50.0, rtt_ms: 10.0, queue_ms: 50.0 };
    let slow = AccessLink { mbit_per_s: 2.0, rtt_ms: 300.0, queue_ms: 100.0 };
    let (subflows, counters, names) = receive(&[fast, slow], 5_000_000);
    let of_slow = Side::Client.stack_v4(1);
    let slow = subflows.iter().find(|subflow| subflow.tuple.local.addr == of_slow).expect("it joined");
    let is_aside = slow.multipath.as_ref().is_some_and(|multipath| multipath.set_aside);
    assert!(is_aside && slow.tcp.bytes_received == 0, "{slow:?}");
    assert_eq!((counters.paths_tried, names), (0, vec![of_slow.to_string()]));
}

#[test]
fn a_path_that_is_no_slower_brings_its_part() {
    if !is_root_or_skip("two paths of a kind") {
        return;
    }
    let link = AccessLink { mbit_per_s: 20.0, rtt_ms: 30.0, queue_ms: 50.0 };
    let (subflows, counters, names) = receive(&[link, link], 10_000_000);
    assert!(counters.paths_tried >= 1, "{counters:?}");
    let brought: Vec<u64> = subflows.iter().map(|subflow| subflow.tcp.bytes_received).collect();
    // How the kernel divides is its own affair, and on a busy machine uneven: a path that is judged slow would bring nothing.
    assert!(brought.len() == 2 && brought.iter().all(|bytes| *bytes > 250_000), "{brought:?}");
    assert_eq!(names, Vec::<String>::new());
}

#[test]
fn a_thin_path_that_won_the_first_handshake_is_closed() {
    if !is_root_or_skip("a broad path beside a thin one with a short round trip") {
        return;
    }
    let thin = AccessLink { mbit_per_s: 1.5, rtt_ms: 4.0, queue_ms: 150.0 };
    let broad = AccessLink { mbit_per_s: 40.0, rtt_ms: 16.0, queue_ms: 200.0 };
    let (subflows, _, names) = receive(&[thin, broad], 5_000_000);
    let (of_thin, of_broad) = (Side::Client.stack_v4(0), Side::Client.stack_v4(1));
    assert_eq!(names, [of_thin.to_string()]);
    let broad = subflows.iter().find(|subflow| subflow.tuple.local.addr == of_broad).expect("it joined");
    // The rest came over the thin one, in the beginning.
    assert!(broad.tcp.bytes_received > 4_700_000, "{broad:?}");
}
