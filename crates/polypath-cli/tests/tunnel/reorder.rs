//! `polypath reorder` of a tunnel that runs, over paths of unequal delay.

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

use polypath_testbed::{Testbed, is_root_or_skip};
use serde_json::Value;

use super::hosts::{Hosts, command, echo, start};

/// The path of less delay carries a part of what TCP sends.
const LINKS: &str = r#"
[[links]]
name = "wifi"
between = ["client0", "server0"]
rate = "5mbit"
delay = "5ms"
limit = "100ms"
[[links]]
name = "lte"
between = ["client1", "server1"]
rate = "20mbit"
delay = "25ms"
limit = "100ms"
"#;

fn refused(folder: &Path, line: &str, code: i32) -> String {
    let output = command(folder, line).output().expect("it starts");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{line}: {message}");
    assert_eq!(message.trim_end().lines().count(), 1, "{message}");
    message
}

#[test]
fn what_the_paths_reorder_is_told_and_what_is_left_of_it() {
    if !is_root_or_skip("what a tunnel's paths reorder") {
        return;
    }
    let testbed = Testbed::with_middle(2).expect("namespaces");
    let middle = testbed.middle.as_ref().expect("a middle");
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("links.toml"), LINKS).expect("a file");
    let emulating = start(middle, &mut command(folder.path(), "polypath emulate --quiet links.toml"));
    let hosts = Hosts::on(testbed);
    let (server, laptop) = (hosts.server.path(), hosts.laptop.path());
    let none = refused(server, "polypath reorder --tunnel polypath-vpn", 1);
    assert!(none.contains("no tunnel named polypath-vpn runs"), "{none}");

    let (serving, calling) = (hosts.serve(), hosts.call());
    hosts.wait_for_paths(2);
    let silent = refused(server, "polypath reorder --tunnel polypath-vpn --duration 300ms", 1);
    assert!(silent.contains("polypath-vpn: no packet came from laptop"), "{silent}");
    let nobody = refused(server, "polypath reorder --tunnel polypath-vpn --peer phone", 2);
    assert!(nobody.contains("polypath-vpn: it has no peer phone; expected one of laptop"), "{nobody}");

    let mut stream = hosts.connect();
    let mut while_data_flows = |folder: &Path, line: &str| -> Output {
        let mut asking = command(folder, line);
        let mut asking = asking.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        while asking.try_wait().expect("a child").is_none() {
            echo(&mut stream, 500_000);
        }
        let output = asking.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{output:?}");
        output
    };
    let asked = "polypath reorder --tunnel polypath-vpn --duration 3s";
    let found = while_data_flows(server, &format!("{asked} --peer laptop --json"));
    let found: Value = serde_json::from_slice(&found.stdout).expect("JSON");
    let count = |what: &str, of: &str| found[what]["total"][of].as_u64().expect("a count");
    let (came, left) = (count("came", "packets"), count("handed_on", "packets"));
    assert!(came > 100 && left * 10 > came * 9, "{came} came, {left} left");
    let (came, left) = (count("came", "reordered"), count("handed_on", "reordered"));
    assert!(came > 0 && left * 10 < came, "{came} were reordered, and {left} when they were handed on");
    assert_eq!(found["came"]["flows"][0]["to"], "10.99.0.1:7000");
    let paths = found["paths"].as_array().expect("paths");
    assert_eq!(paths.len(), 2, "{paths:?}");
    for path in paths {
        assert!(path["packets"].as_u64() > Some(10), "{path}");
        assert_eq!(path["reordered"], 0, "each path keeps the order: {path}");
    }

    let told = while_data_flows(laptop, &format!("{asked} --report page.html"));
    let told = String::from_utf8(told.stdout).expect("text");
    for part in [
        "As they came over the paths: 10.99.0.1:7000 to 10.99.0.2:",
        "As they were handed on: ",
        "path0 from ",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let page = fs::read_to_string(laptop.join("page.html")).expect("the page");
    for part in ["As they were handed on", "Reorder density, as they came over the paths", "<svg"] {
        assert!(page.contains(part), "{part}");
    }
    drop((serving, calling, emulating));
}
