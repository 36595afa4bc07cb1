//! What interfaces are for.

use std::fs;

use polypath_system::Netlink;
use polypath_testbed::{Testbed, is_root_or_skip};
use serde_json::Value;

use super::hosts::{Hosts, append, command, echo, must, path_over, status, until};

#[test]
fn a_daily_budget_survives_a_kill() {
    if !is_root_or_skip("a tunnel with a budget") {
        return;
    }
    let hosts = Hosts::new();
    let folder = hosts.laptop.path();
    append(folder, "laptop.toml", "[uplinks]\ninterfaces = [\"path0\", \"path1,budget=1MB/day\"]\n");
    let (serving, calling) = (hosts.serve(), hosts.call());
    hosts.wait_for_paths(2);
    let left = |status: &Value| status[0]["budgets"][0]["left_bytes"].as_u64().expect("a budget");
    assert!(left(&status(folder)) > 900_000, "{}", status(folder));
    hosts.set_up(0, false);
    let mut stream = hosts.connect();
    echo(&mut stream, 600_000);
    until("the budget's end", || (path_over(&status(folder), "path1")["state"] == "backup").then_some(()));
    assert_eq!(left(&status(folder)), 0);
    // It is the only one, and goes on as a backup.
    echo(&mut stream, 10_000);

    calling.kill();
    hosts.set_up(0, true);
    let calling = hosts.call();
    hosts.wait_for_paths(1);
    let status = status(folder);
    assert_eq!(left(&status), 0);
    assert_eq!(path_over(&status, "path0")["state"], "used");
    until("the other path", || {
        (path_over(&super::hosts::status(folder), "path1")["state"] == "backup").then_some(())
    });
    let words = must(&mut command(folder, "polypath tunnel status"));
    assert!(words.contains("path1: 0 B of 1.0 MB/day left"), "{words}");
    drop((serving, calling));
}

#[test]
fn what_goes_just_before_the_end_is_of_the_budget() {
    if !is_root_or_skip("a tunnel with budgets that ends") {
        return;
    }
    let hosts = Hosts::new();
    let folder = hosts.laptop.path();
    let budgets = "[uplinks]\ninterfaces = [\"path0,budget=9MB/day\", \"path1,budget=9MB/day\"]\n";
    append(folder, "laptop.toml", budgets);
    let (serving, calling) = (hosts.serve(), hosts.call());
    hosts.wait_for_paths(2);
    echo(&mut hosts.connect(), 600_000);
    must(&mut command(folder, "polypath tunnel down"));
    let kept = fs::read_to_string(folder.join("state/tunnel-polypath-vpn-budgets.json")).expect("a file");
    let kept: Value = serde_json::from_str(&kept).expect("JSON");
    let used = |path: &str| kept["used_bytes"][path].as_u64().unwrap_or(0);
    assert!(used("path0") + used("path1") > 1_200_000, "{kept}");
    drop((serving, calling));
}

#[test]
fn a_metered_uplink_carries_data_when_the_other_fails() {
    if !is_root_or_skip("a tunnel over a metered uplink") {
        return;
    }
    let hosts = Hosts::new();
    let folder = hosts.laptop.path();
    append(folder, "laptop.toml", "[uplinks]\ninterfaces = [\"path0\", \"path1,metered\"]\n");
    let (serving, calling) = (hosts.serve(), hosts.call());
    hosts.wait_for_paths(1);
    until("the backup", || (path_over(&status(folder), "path1")["state"] == "backup").then_some(()));
    let mut stream = hosts.connect();
    echo(&mut stream, 100_000);
    let bytes = || path_over(&status(folder), "path1")["sent_bytes"].as_u64().expect("a count");
    let before = bytes();
    assert!(before < 50_000, "{before} bytes over it while the other works");
    hosts.set_up(0, false);
    echo(&mut stream, 500_000);
    assert!(bytes() > before + 500_000, "it carries the data");
    let words = must(&mut command(folder, "polypath tunnel status"));
    assert!(words.contains("backup, ") && words.contains(", MTU 14"), "{words}");
    drop((serving, calling));
}

#[test]
fn an_uplink_that_comes_back_under_ever_new_names_is_used() {
    if !is_root_or_skip("an uplink that is replugged") {
        return;
    }
    let hosts = Hosts::new();
    let folder = hosts.laptop.path();
    let (serving, calling) = (hosts.serve(), hosts.call());
    hosts.wait_for_paths(2);
    let mut stream = hosts.connect();
    let mut name = Testbed::interface(1);
    // An end has eight numbers for paths.
    for number in 0..10 {
        let other = format!("usb{number}");
        let replug = || {
            let netlink = Netlink::new()?;
            netlink.set_down(&name)?;
            netlink.rename(&name, &other)?;
            netlink.set_up(&other)
        };
        hosts.testbed.client.run(replug).expect("the namespace").expect("it is replugged");
        until("the new path", || (path_over(&status(folder), &other)["state"] == "used").then_some(()));
        echo(&mut stream, 10_000);
        name = other;
    }
    drop((serving, calling));
}
