//! The examples, as `examples/README.md` lists them: each is run, and says what it is to say.
//!
//! Those in C are run by the tests of the crate `polypath-capi`, and the policies of `examples/policies` by that crate's own.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::SystemTime;

/// The crates that have examples, and the examples that are run here.
const RUN: &[(&str, &str, &[&str])] = &[
    ("polypath", "crates/polypath", &["hello", "client", "server", "sans_io", "settings"]),
    ("polypath-sim", "crates/lab/sim", &["two_paths", "handover"]),
    ("polypath-lab", "crates/lab/lab", &["experiment"]),
];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn modified(file: &Path) -> Option<SystemTime> {
    file.metadata().ok()?.modified().ok()
}

/// The program of an example: `cargo test` of the whole workspace has built it; else it is built now.
fn example(name: &str) -> PathBuf {
    let (package, folder, _) = RUN
        .iter()
        .find(|(_, _, names)| names.contains(&name))
        .unwrap_or_else(|| panic!("no crate has the example {name}"));
    let source = workspace().join(folder).join("examples").join(format!("{name}.rs"));
    // Tests are in target/PROFILE/deps.
    let own = std::env::current_exe().expect("a test is a program");
    let built = own.ancestors().nth(2).expect("a profile's folder");
    let program = built.join("examples").join(name);
    if modified(&program) <= modified(&source) {
        let profile = match built.file_name().and_then(|name| name.to_str()) {
            Some("debug") => "dev",
            Some(profile) => profile,
            None => "dev",
        };
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--profile", profile, "--package", package, "--example", name]);
        cargo.arg("--target-dir").arg(built.parent().expect("a target folder")).current_dir(workspace());
        assert!(cargo.status().expect("cargo runs").success(), "{name} is built");
    }
    program
}

/// What an example prints.
fn said(name: &str, words: &[&str]) -> String {
    let output = Command::new(example(name)).args(words).output().expect("it runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Fails when it has ended already, which is as well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_client_reads_what_a_server_sends() {
    // Ports of this test alone.
    let (port, udp_port) = ("8000", "46931");
    let mut command = Command::new(example("server"));
    let server = command.args([port, udp_port]).stdout(Stdio::piped()).spawn().expect("it runs");
    let mut server = Running(server);
    let mut line = String::new();
    // Open to the end: it goes on to print.
    let mut out = BufReader::new(server.0.stdout.take().expect("a pipe"));
    out.read_line(&mut line).expect("it says that it listens");
    assert_eq!(line.trim(), "listening on port 8000");
    let text = said("client", &["127.0.0.1:8000", udp_port]);
    assert!(text.starts_with("8000000 bytes\n") && text.contains(" MB"), "{text}");
}

#[test]
fn an_engine_with_settings_tells_what_happens() {
    let text = said("settings", &[]);
    assert!(text.contains("Connected") && text.contains("hello over 1 subflow\n"), "{text}");
}

#[test]
fn two_hosts_driven_by_hand_use_both_paths() {
    let text = said("sans_io", &[]);
    assert!(text.contains("path from 10.0.1.1") && text.contains("40000000 bytes in "), "{text}");
    let last = text.lines().last().expect("a line");
    assert!(
        last.contains("10.0.0.1: ") && last.contains("10.0.1.1: ") && !last.contains(": 0.0 MB"),
        "{text}"
    );
}

#[test]
fn a_download_survives_a_handover() {
    let text = said("handover", &[]);
    assert!(text.ends_with("all 10000000 bytes arrived\n"), "{text}");
    let two = said("two_paths", &[]);
    assert!(two.contains("MB acknowledged"), "{two}");
}

#[test]
fn an_experiment_shows_a_gain_wherever_the_second_path_has_something_to_give() {
    let text = said("experiment", &[]);
    let gains = text.lines().skip(1).map(|line| {
        let gain = line.trim_end_matches(" %").rsplit(' ').next().expect("a number");
        gain.parse::<f64>().unwrap_or_else(|_| panic!("{line}"))
    });
    let gains: Vec<f64> = gains.collect();
    assert!(gains.len() == 3 && gains.iter().all(|gain| *gain > 5.0), "{text}");
}

#[test]
fn the_systemd_unit_is_well_formed() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        eprintln!("SKIPPING the systemd unit: systemd-analyze is missing");
        return;
    }
    let unit = workspace().join("examples/systemd/polypath-serve.service");
    let text = std::fs::read_to_string(unit).expect("the unit");
    assert!(text.contains("ExecStart=/usr/bin/polypath serve "));
    // It also looks whether the program is there, and whether it has a manual.
    let text = text.replace("/usr/bin/polypath", "/bin/true").replace("Documentation=man:polypath(1)\n", "");
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("polypath-serve.service");
    std::fs::write(&copy, text).expect("a file in the build's own folder");
    let output = Command::new("systemd-analyze").arg("verify").arg(&copy).output().expect("it runs");
    let error = String::from_utf8_lossy(&output.stderr);
    let about_it: Vec<&str> = error.lines().filter(|line| line.contains("polypath-serve")).collect();
    assert!(output.status.success() && about_it.is_empty(), "{error}");
}

#[test]
fn the_list_names_every_example() {
    let list = std::fs::read_to_string(workspace().join("examples/README.md")).expect("the list");
    for (package, _, names) in RUN {
        for name in *names {
            assert!(list.contains(&format!("-p {package} --example {name}")), "{name} is not listed");
        }
    }
    // Whatever else is there has a line that links to it.
    for entry in std::fs::read_dir(workspace().join("examples")).expect("the folder").flatten() {
        let name = entry.file_name().into_string().expect("a name in UTF-8");
        if name != "README.md" {
            assert!(list.contains(&format!("]({name}")), "{name} is not listed");
        }
    }
    for policy in ["largest", "steady", "latecomer"] {
        assert!(workspace().join(format!("examples/policies/src/{policy}.rs")).is_file(), "{policy}");
        assert!(list.contains(&format!("](policies/src/{policy}.rs)")), "{policy} is not listed");
    }
}
