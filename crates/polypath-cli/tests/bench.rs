//! The comparisons with the kernel in tiny sizes: they run to their end and say what their help promises. How fast
//! anything was is no business of a test.

use std::process::Command;

use polypath_testbed::is_root_or_skip;
use serde_json::Value;

/// Runs `polypath bench` with these arguments and `--json`; nothing if the machine can't.
fn bench(arguments: &[&str]) -> Option<Value> {
    if !is_root_or_skip(arguments[0]) {
        return None;
    }
    if std::fs::read_to_string("/proc/sys/net/mptcp/enabled").is_ok_and(|text| text.trim() == "1") {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
        let output = command.arg("bench").args(arguments).arg("--json").output().expect("the command runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return Some(serde_json::from_slice(&output.stdout).expect("JSON"));
    }
    eprintln!("SKIPPED {}: this kernel's Multipath TCP is absent or switched off", arguments[0]);
    None
}

/// Rows or runs of a result.
fn list<'a>(result: &'a Value, name: &str) -> &'a Vec<Value> {
    result[name].as_array().unwrap_or_else(|| panic!("{name} in {result}"))
}

#[track_caller]
fn is_positive(value: &Value, name: &str) {
    assert!(value[name].as_f64().is_some_and(|number| number > 0.0), "{name} in {value}");
}

#[test]
fn throughput_has_a_row_for_each_engine_and_a_ratio() {
    let engines = ["ours-tun", "kernel-mptcp", "kernel-tcp"];
    let arguments = ["throughput", "--rounds", "2", "--seconds", "0.2", "--engines", &engines.join(",")];
    let Some(result) = bench(&arguments) else { return };
    is_positive(&result, "ratio_to_kernel_mptcp");
    is_positive(&result, "ratio_to_best_kernel_mptcp");
    let rows = list(&result, "rows");
    assert_eq!(rows.iter().map(|row| &row["contender"]).collect::<Vec<_>>(), engines);
    for row in rows {
        is_positive(&row["gbit_per_s"], "median");
        is_positive(&row["ratio_to_kernel_mptcp"], "median");
    }
    let runs = list(&result, "runs");
    assert_eq!(runs.len(), 6);
    for run in runs {
        is_positive(run, "bytes");
        let shares: f64 = list(run, "path_shares").iter().filter_map(Value::as_f64).sum();
        assert!((shares - 1.0).abs() < 1e-6, "{run}");
    }
}

#[test]
fn rate_has_a_row_for_each_engine_and_size() {
    let arguments =
        ["rate", "--rounds", "1", "--seconds", "0.2", "--bytes", "1000,30000", "--concurrent", "4"];
    let Some(result) = bench(&arguments) else { return };
    let rows = list(&result, "rows");
    assert_eq!(rows.len(), 6);
    for row in rows {
        is_positive(&row["requests_per_s"], "median");
        is_positive(&row["ratio_to_kernel_tcp"], "median");
        assert_eq!(row["failures"], 0, "{row}");
    }
}

#[test]
fn handover_tells_of_gaps_and_loses_no_transfer() {
    let Some(result) = bench(&["handover", "--repeats", "1", "--seconds", "0.4"]) else { return };
    assert_eq!(list(&result, "rows").len(), 8);
    for run in list(&result, "runs") {
        assert_eq!(run["failure"], Value::Null, "{run}");
        is_positive(run, "mbit_per_s");
        is_positive(run, "longest_gap_ms");
    }
}

/// Peers are not on every machine; the relay is.
#[test]
fn tunnel_tells_all_of_the_relay_and_who_is_missing() {
    if !is_root_or_skip("tunnel") {
        return;
    }
    let systems = ["udp-relay", "wireguard-go"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
    command.args(["bench", "tunnel", "--rounds", "1", "--seconds", "0.4", "--json"]);
    // No program is found.
    command.args(["--systems", &systems.join(",")]).env("PATH", "");
    let output = command.output().expect("the command runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("SKIPPED wireguard-go: the program wireguard-go is not there"), "{said}");
    let result: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(result["throughput_ratio_to_wireguard"], Value::Null);
    assert!(result["skipped"]["wireguard-go"].is_string());
    let rows = list(&result, "rows");
    assert_eq!(rows.iter().map(|row| &row["system"]).collect::<Vec<_>>(), systems[..1]);
    is_positive(&rows[0]["gbit_per_s"], "median");
    for figure in ["tcp_share_of_sum", "latency_ms", "latency_under_load_ms"] {
        is_positive(&rows[0], figure);
    }
    is_positive(&rows[0]["stream"], "mbit_per_s");
    is_positive(&rows[0]["failover"], "gap_ms");
}

/// Our own proxy at one service, and none.
#[test]
fn proxy_tells_what_there_is_with_ours_and_without_and_who_is_missing() {
    if !is_root_or_skip("proxy") {
        return;
    }
    // No program is found but this one.
    let place = tempfile::tempdir().expect("a folder");
    let ip = ["/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip", "/bin/ip"];
    let Some(ip) = ip.into_iter().find(|ip| std::path::Path::new(ip).exists()) else {
        eprintln!("SKIPPED proxy: it needs ip");
        return;
    };
    std::os::unix::fs::symlink(ip, place.path().join("ip")).expect("a link");
    let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
    command.args(["bench", "proxy", "--rounds", "2", "--seconds", "0.05", "--json"]);
    command.args(["--systems", "direct,polypath-tcp,squid", "--services", "connect"]);
    command.env("PATH", place.path());
    let output = command.output().expect("the command runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("SKIPPED squid: the program squid is not there"), "{said}");
    let result: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(result["skipped"]["squid"].is_string());
    assert_eq!((&result["rounds"], &result["exchanges"]), (&2.into(), &50.into()));
    assert!(list(&result, "failures").is_empty(), "{result}");
    let rows = list(&result, "rows");
    assert_eq!(rows.len(), 13, "{result}");
    for row in rows {
        assert_eq!((&row["service"], &row["system"]), (&"connect".into(), &"polypath-tcp".into()));
        assert!(row["ours"].is_number() && row["peers"].is_object(), "{row}");
        assert_eq!((&row["bound"], &row["held"]), (&Value::Null, &Value::Null));
    }
    for figure in [
        "syn-delay-us-median",
        "first-byte-delay-us-p99",
        "echo-delay-us-median",
        "one-connection-gbit",
        "hundred-connections-gbit",
        "requests-1k-per-s",
        "requests-100k-per-s",
    ] {
        is_positive(&result["direct"][figure], "median");
    }
}

#[test]
fn a_proxy_that_does_not_exist_is_refused_with_a_list() {
    let output = Command::new(env!("CARGO_BIN_EXE_polypath"))
        .args(["bench", "proxy", "--systems", "relayd"])
        .output()
        .expect("the command runs");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("relayd") && message.contains("polypath-kernel"), "{message}");
    assert_eq!(message.trim_end().lines().count(), 1, "{message}");
}

/// The kernel's TCP through four tunnels side by side.
#[test]
fn tunnel_tells_what_a_flavour_of_tcp_has_over_each_path_and_over_both() {
    let arguments = ["tunnel", "--flavours", "--only", "no-sack", "--rounds", "1", "--seconds", "0.6"];
    let Some(result) = bench(&arguments) else { return };
    let rows = list(&result, "rows");
    assert_eq!(rows.iter().map(|row| &row["name"]).collect::<Vec<_>>(), ["no-sack"]);
    assert_eq!(rows[0]["variables"]["tcp_sack"], "0");
    is_positive(&rows[0]["wlan_mbit_per_s"], "median");
    for first in ["wlan_first", "hspa_first"] {
        is_positive(&rows[0][first]["mbit_per_s"], "median");
        assert!(rows[0][first]["benefit_over_tcp"]["median"].is_number(), "{result}");
    }
}

#[test]
fn a_flavour_that_does_not_exist_is_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_polypath"))
        .args(["bench", "tunnel", "--flavours", "--only", "nosuch"])
        .output()
        .expect("the command runs");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("nosuch") && message.trim_end().lines().count() == 1, "{message}");
}

#[test]
fn an_engine_that_does_not_exist_is_refused_with_a_list() {
    let output = Command::new(env!("CARGO_BIN_EXE_polypath"))
        .args(["bench", "throughput", "--engines", "quic"])
        .output()
        .expect("the command runs");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("quic") && message.contains("kernel-mptcp"), "{message}");
    assert_eq!(message.trim_end().lines().count(), 1, "{message}");
}

#[test]
fn emulate_measures_rates_delays_and_losses() {
    let Some(result) = bench(&["emulate", "--rates", "10,50", "--seconds", "0.3", "--delay", "5ms"]) else {
        return;
    };
    let rows = list(&result, "rows");
    assert_eq!(rows.len(), 2);
    for row in rows {
        for load in ["udp", "tcp"] {
            is_positive(&row[load], "mbit_per_s");
            is_positive(&row[load], "cpu_percent");
        }
        assert!(row["delay"]["packets"].as_u64() > Some(0), "{row}");
        // However late packets are, none can be early by more than the clock's grain.
        assert!(row["delay"]["min_ms"].as_f64() > Some(-1.0), "{row}");
        let below = &row["below_rate"];
        assert!(below["sent_packets"].as_u64() > below["lost_packets"].as_u64(), "{row}");
    }
}

#[test]
fn backends_tells_of_the_same_set_in_virtual_and_in_real_time() {
    let arguments = ["backends", "--sets", "2", "--only", "1", "--seconds", "1.5"];
    let Some(result) = bench(&arguments) else { return };
    let rows = list(&result, "rows");
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    assert_eq!((&row["set"], list(row, "paths").len()), (&1.into(), 2));
    is_positive(&row["sim_mbit_per_s"], "median");
    is_positive(row, "ratio");
    let capacity = row["capacity_mbit_per_s"].as_f64().expect("a rate");
    for engine in ["netns_mbit_per_s", "kernel_mbit_per_s"] {
        is_positive(&row[engine], "median");
        // However busy the machine is, emulated links carry no more than their rates.
        assert!(row[engine]["max"].as_f64().is_some_and(|rate| rate < 1.02 * capacity), "{row}");
    }
}
