//! Real programs under `polypath run`, unmodified, over two paths: both carry, and either may fail midway.

mod lab;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use lab::{Lab, Running, finish, has_or_skip};

/// Each path's rate, and what is transferred: long enough to be cut in the middle.
const RATE: &str = "100mbit";
const FILE_BYTES: usize = 16 << 20;

/// What carries the programs' connections.
const ENGINES: [&str; 2] = ["kernel", "tun"];

/// A server program on the kernel's Multipath TCP.
fn on_mptcp(program: &str) -> Command {
    let mut command = Command::new("mptcpize");
    command.args(["run", program]);
    command
}

/// nginx with the lab's folder at port 80.
fn nginx(lab: &Lab) -> Running {
    let folder = lab.folder().display();
    let configuration = format!(
        "daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/nginx.err;
         events {{ worker_connections 1024; }}
         http {{ access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
           uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
           server {{ listen 80; root {folder}; }} }}"
    );
    let file = lab.folder().join("nginx.conf");
    fs::write(&file, configuration).unwrap();
    lab.serve(on_mptcp("nginx").arg("-c").arg(file), 80)
}

/// What happens to the paths while a program runs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    BothWork,
    Loses(u8),
}

/// Runs a program under `polypath run` with both paths, and once more for each path that is lost midway. `set_up` starts
/// the server and says what to run; `check` looks at the result.
fn survives(
    what: &str,
    programs: &[&str],
    set_up: impl Fn(&Lab) -> (Running, Vec<String>),
    check: impl Fn(&Lab, &Output),
) {
    if !programs.iter().chain(&["mptcpize"]).all(|program| has_or_skip(program, what)) {
        return;
    }
    let fates = [Fate::BothWork, Fate::Loses(0), Fate::Loses(1)];
    for (engine, fate) in ENGINES.iter().flat_map(|engine| fates.map(|fate| (engine, fate))) {
        let Some(lab) = Lab::with_rate_or_skip(what, RATE) else { return };
        lab.add_default_routes();
        let (_server, command) = set_up(&lab);
        let words: Vec<&dyn AsRef<OsStr>> = command.iter().map(|word| word as _).collect();
        let running = lab.start(&mut lab.polypath(&["--engine", engine], &words));
        if let Fate::Loses(path) = fate {
            lab.wait_until_carried(FILE_BYTES as u64 / 3);
            lab.cut(path);
        }
        let output = finish(running);
        assert!(output.status.success(), "{what}, {engine}, {fate:?}: {output:?}");
        check(&lab, &output);
        let carried = lab.carried();
        eprintln!("{what}, {engine}, {fate:?}: {carried:?} bytes on the paths");
        // A third each would be a tie with three; a fifth shows that both were used for data.
        if fate == Fate::BothWork {
            assert!(carried.iter().all(|&bytes| bytes > FILE_BYTES as u64 / 5), "{what}: {carried:?}");
        }
    }
}

fn same_files(a: &Path, b: &Path) {
    let (a_bytes, b_bytes) = (fs::read(a).unwrap(), fs::read(b).unwrap());
    assert!(a_bytes == b_bytes, "{} and {} differ", a.display(), b.display());
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
            let key = lab.folder().join("key").display().to_string();
            let made =
                Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &key]).status();
            assert!(made.unwrap().success());
            let folder = lab.folder().display();
            // Its folder for giving up rights is not there unless it is installed as a service; this one is only its own.
            let daemon = format!(
                "mount -t tmpfs tmpfs /run && mkdir /run/sshd && exec mptcpize run $(command -v sshd) -D -e -f /dev/null \
                 -p 2222 -o HostKey={key} -o AuthorizedKeysFile={key}.pub -o StrictModes=no \
                 -o UsePAM=no -o PidFile={folder}/sshd.pid -o PermitRootLogin=prohibit-password"
            );
            let mut command = Command::new("unshare");
            let server = lab.serve(command.args(["-m", "sh", "-c", &daemon]), 2222);
            let client = format!(
                "ssh -F none -p 2222 -i {key} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR \
                 root@10.77.0.2 'cat > {copy}' < {file}"
            );
            (server, ["sh", "-c", &client].map(String::from).to_vec())
        },
        |lab, _| same_files(&lab.folder().join("file"), &lab.folder().join("copy")),
    );
}
