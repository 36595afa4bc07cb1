//! Real programs under `polypath run`, unmodified, over two paths: both carry, and either may fail midway.

mod lab;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use lab::fates::{self, FILE_BYTES};
use lab::servers::{nginx, on_mptcp, same_files, sshd};
use lab::{Lab, Running, has_or_skip};

/// What carries the programs' connections.
const ENGINES: [&str; 2] = ["kernel", "tun"];

/// Runs a program under `polypath run`, as [`fates::survives`] does.
fn survives(
    what: &str,
    programs: &[&str],
    set_up: impl Fn(&Lab) -> (Running, Vec<String>),
    check: impl Fn(&Lab, &Output),
) {
    for engine in ENGINES {
        let start = |lab: &Lab, command: &[String]| {
            let words: Vec<&dyn AsRef<OsStr>> = command.iter().map(|word| word as _).collect();
            (None, lab.start(&mut lab.polypath(&["--engine", engine], &words)))
        };
        fates::survives(&format!("{what}, {engine}"), programs, start, &set_up, &check);
    }
}

#[test]
fn curl_from_nginx() {
    survives(
        "curl",
        &["curl", "nginx"],
        |lab| {
            lab.file("file", FILE_BYTES);
            let to = lab.folder().join("copy").display().to_string();
            let command = ["curl", "-sS", "--fail", "-o", &to, "http://10.77.0.2/file"];
            (nginx(lab), command.map(String::from).to_vec())
        },
        |lab, _| same_files(&lab.folder().join("file"), &lab.folder().join("copy")),
    );
}

#[test]
fn curl_fetches_as_browsers_do() {
    // Six connections, many objects of all sizes, connections used again.
    const OBJECTS: usize = 96;
    survives(
        "parallel HTTP",
        &["curl", "nginx"],
        |lab| {
            for index in 0..OBJECTS {
                // 1 KB to 430 KB, 16 MB in all.
                lab.file(&format!("object{index}"), 1024 + index * index * 46 + index * 1000);
            }
            let to = lab.folder().join("page-#1").display().to_string();
            let url = format!("http://10.77.0.2/object[0-{}]", OBJECTS - 1);
            let command = ["curl", "-sS", "--fail", "-Z", "--parallel-max", "6", "-o", &to, &url];
            (nginx(lab), command.map(String::from).to_vec())
        },
        |lab, _| {
            for index in 0..OBJECTS {
                let of = |name: &str| lab.folder().join(format!("{name}{index}"));
                same_files(&of("object"), &of("page-"));
            }
        },
    );
}

const GO_CLIENT: &str = r#"package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	response, err := http.Get(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	file, err := os.Create(os.Args[2])
	if err == nil {
		_, err = io.Copy(file, response.Body)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
"#;

/// A static program: it makes its system calls itself, so that no preloaded library could change them.
fn build_go_client(folder: &Path) -> PathBuf {
    let (source, program) = (folder.join("client.go"), folder.join("client"));
    fs::write(&source, GO_CLIENT).unwrap();
    let mut build = Command::new("go");
    build.arg("build").arg("-o").arg(&program).arg(&source).current_dir(folder);
    let output =
        build.env("CGO_ENABLED", "0").env("GOFLAGS", "").env("GOTOOLCHAIN", "local").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    program
}

#[test]
fn static_go_client_from_nginx() {
    let folder = tempfile::tempdir().unwrap();
    if !has_or_skip("go", "Go") {
        return;
    }
    let client = build_go_client(folder.path()).display().to_string();
    survives(
        "Go",
        &["go", "nginx"],
        |lab| {
            lab.file("file", FILE_BYTES);
            let to = lab.folder().join("copy").display().to_string();
            (nginx(lab), vec![client.clone(), "http://10.77.0.2/file".to_string(), to])
        },
        |lab, _| same_files(&lab.folder().join("file"), &lab.folder().join("copy")),
    );
}

fn iperf3(what: &str, options: &[&str]) {
    survives(
        what,
        &["iperf3"],
        |lab| {
            // Not the one-off server: the look whether it listens is a connection too.
            let server = lab.serve(on_mptcp("iperf3").arg("-s"), 5201);
            let bytes = FILE_BYTES.to_string();
            let mut command = vec!["iperf3", "-c", "10.77.0.2", "-J", "-n", &bytes];
            command.extend(options);
            (server, command.into_iter().map(String::from).collect())
        },
        |_, output| {
            let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report");
            // A sender ends when all is written; what is then still on its way does not count.
            let received = report["end"]["sum_received"]["bytes"].as_u64().expect("bytes received");
            assert!(received > FILE_BYTES as u64 / 3, "{received} bytes");
        },
    );
}

#[test]
fn iperf3_sends() {
    iperf3("iperf3", &[]);
}

#[test]
fn iperf3_receives() {
    iperf3("iperf3 -R", &["-R"]);
}

#[test]
fn rsync_sends_a_file() {
    survives(
        "rsync",
        &["rsync"],
        |lab| {
            let file = lab.file("file", FILE_BYTES).display().to_string();
            let module = lab.folder().join("module");
            fs::create_dir(&module).unwrap();
            let configuration = lab.folder().join("rsyncd.conf");
            let module = format!(
                "use chroot = no\nuid = root\ngid = root\n[files]\npath = {}\nread only = no\n",
                module.display()
            );
            fs::write(&configuration, module).unwrap();
            let configuration = format!("--config={}", configuration.display());
            let server = lab.serve(
                on_mptcp("rsync").args(["--daemon", "--no-detach", "--port=873", &configuration]),
                873,
            );
            let command = ["rsync", "--whole-file", &file, "rsync://10.77.0.2/files/"];
            (server, command.map(String::from).to_vec())
        },
        |lab, _| same_files(&lab.folder().join("file"), &lab.folder().join("module/file")),
    );
}

#[test]
fn ssh_copies_its_input() {
    survives(
        "ssh",
        &["ssh", "sshd", "ssh-keygen", "unshare"],
        |lab| {
            let file = lab.file("file", FILE_BYTES).display().to_string();
            let copy = lab.folder().join("copy").display().to_string();
            let (server, key) = sshd(lab);
            let client = format!(
                "ssh -F none -p 2222 -i {key} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR \
                 root@10.77.0.2 'cat > {copy}' < {file}"
            );
            (server, ["sh", "-c", &client].map(String::from).to_vec())
        },
        |lab, _| same_files(&lab.folder().join("file"), &lab.folder().join("copy")),
    );
}
