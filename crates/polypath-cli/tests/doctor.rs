//! The doctor as people run it.

mod lab;

use std::net::TcpListener;
use std::process::Command;

use lab::Lab;
use polypath_testbed::Testbed;

fn doctor(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
    command.arg("doctor").args(arguments);
    command
}

#[test]
fn what_stands_in_the_way_is_said_with_what_to_do() {
    let Some(lab) = Lab::new_or_skip("polypath doctor") else { return };
    lab.add_default_routes();
    let listener = lab.testbed.server.run(|| TcpListener::bind((Testbed::server_v4(0), 0)));
    let at = listener.expect("a namespace").expect("a listener").local_addr().expect("its address");
    let good = lab.output(&mut doctor(&[]));
    let text = String::from_utf8_lossy(&good.stdout);
    assert_eq!((good.status.code(), good.stderr.len()), (Some(0), 0), "{text}");
    for part in ["This host\n", "Interface path0\n", "Interface path1\n", "  ✓ interface", "\n0 ✗, "] {
        assert!(text.contains(part), "\"{part}\" is not in\n{text}");
    }
    lab.cut(1);
    let cut = lab.output(&mut doctor(&["-I", "path1"]));
    let text = String::from_utf8_lossy(&cut.stdout);
    assert_eq!(cut.status.code(), Some(1), "{text}");
    assert!(text.contains("✗ interface") && text.contains("→ `ip link set path1 up`"), "{text}");
    assert!(!text.contains("path0"), "{text}");
    // Nothing listens any more.
    let absent = lab.output(&mut doctor(&["--json", "--peer", &at.to_string()]));
    assert_eq!(absent.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&absent.stdout).expect("JSON");
    assert_eq!(report["peer"][0]["level"], "blocked", "{report}");
    assert_eq!(report["paths"][1]["findings"][0]["advice"], "`ip link set path1 up`", "{report}");
}

#[test]
fn a_host_without_a_network_is_told_so() {
    let Some(lab) = Lab::new_or_skip("polypath doctor without a network") else { return };
    for path in ["path0", "path1"] {
        assert!(lab.output(Command::new("ip").args(["link", "del", path])).status.success());
    }
    let output = lab.output(&mut doctor(&[]));
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("no interface here could be a path; present are: lo"), "{text}");
    assert!(text.contains("→ connect a network: ") && !text.contains("stands below"), "{text}");
}

#[test]
fn mistakes_end_with_one_line() {
    let Some(lab) = Lab::new_or_skip("mistakes of polypath doctor") else { return };
    for (arguments, code, wanted) in [
        (&["--peer", "example.org"][..], 2, "expected a host and a port"),
        (&["-I", "path9"], 2, "there is no interface path9; present are: path0, path1"),
        (&["--peer", "nowhere.invalid:80"], 1, "can't find the host"),
    ] {
        let output = lab.output(&mut doctor(arguments));
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{message}");
        assert_eq!(message.trim_end().lines().count(), 1, "{message}");
        assert!(message.contains(wanted), "{message}");
    }
}
