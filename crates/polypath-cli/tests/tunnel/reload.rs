//! A running tunnel that takes its file again.

use std::fs;

use polypath_testbed::is_root_or_skip;

use super::hosts::{Hosts, append, command, echo, must};

#[test]
fn a_reload_says_what_has_changed() {
    if !is_root_or_skip("a tunnel that takes its file again") {
        return;
    }
    let hosts = Hosts::new();
    let folder = hosts.laptop.path();
    let (serving, calling) = (hosts.serve(), hosts.call());
    hosts.wait_for_paths(2);
    let mut stream = hosts.connect();
    echo(&mut stream, 10_000);
    let reload = || must(&mut command(folder, "polypath tunnel reload"));
    let change = |from: &str, to: &str| {
        let file = folder.join("laptop.toml");
        let text = fs::read_to_string(&file).expect("a file");
        fs::write(&file, text.replace(from, to)).expect("a file");
    };
    assert_eq!(reload(), "nothing has changed\n");
    append(folder, "laptop.toml", "[[rules]]\nports = \"5000\"\npolicy = \"redundant\"\n");
    assert_eq!(reload(), "rules[0] is new\n");
    change("\"redundant\"", "\"low-latency\"");
    append(folder, "laptop.toml", "[uplinks]\ninterfaces = [\"path0\", \"path1,backup\"]\n");
    assert_eq!(reload(), "rules[0] has changed\nuplink path0 is new\nuplink path1 is new\n");
    change("path1,backup", "path1,metered");
    assert_eq!(reload(), "uplink path1 has changed\n");
    echo(&mut stream, 10_000);
    drop((serving, calling));
}
