//! `polypath tunnel` between two machines, by the commands of the guide as they stand there: from nothing to bytes through it, on while a path
//! fails, and nothing left. Needs root; what is missing is said.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use polypath_system::{Namespace, Netlink};
use polypath_testbed::{Testbed, is_root_or_skip};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Nothing here takes longer, unless it hangs.
const LIMIT: Duration = Duration::from_secs(20);

/// A shell that runs in a network namespace; it is ended with this.
struct Shell(Child);

impl Drop for Shell {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.0.id() as i32) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.0.wait();
    }
}

/// The commands of the guide's blocks, one a line.
fn commands() -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/src/tunnel.md");
    let page = fs::read_to_string(page).expect("the page");
    let part = page.split("## From nothing to a ping").nth(1).expect("the part");
    let part = part.split("\n## ").next().expect("its end");
    let mut blocks =
        part.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("sh parse\n"));
    let commands: Vec<String> = blocks.by_ref().flat_map(str::lines).map(str::to_owned).collect();
    assert_eq!(commands.len(), 4, "{commands:?}");
    commands
}

fn command(namespace_folder: &Path, line: &str) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_polypath"));
    let mut bash = Command::new("bash");
    // No sudo is needed by root, and the names of the guide are nobody's here.
    let line = line.strip_prefix("sudo ").unwrap_or(line);
    let endpoints: Vec<String> = (0..2).map(|path| Testbed::server_v4(path).to_string()).collect();
    let line = line.replace("vpn.example.org", &endpoints.join(" --endpoint "));
    let line = line.replacen("polypath", &program.display().to_string(), 1);
    bash.args(["-c", &format!("exec {line}")]).env("POLYPATH_RUNTIME_DIR", namespace_folder.join("run"));
    bash.current_dir(namespace_folder).stdin(Stdio::null());
    bash
}

fn must(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

fn start(namespace: &Namespace, command: &mut Command) -> Shell {
    Shell(namespace.run(|| command.spawn()).expect("the namespace").expect("it starts"))
}

fn until<T>(what: &str, mut get: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(got) = get() {
            return got;
        }
        assert!(begin.elapsed() < LIMIT, "{what} took too long");
        thread::sleep(Duration::from_millis(50));
    }
}

fn status(folder: &Path) -> Value {
    let text = must(&mut command(folder, "polypath tunnel status --json"));
    serde_json::from_str(&text).expect("JSON")
}

fn used_paths(folder: &Path) -> usize {
    let status = status(folder);
    let paths = status[0]["peers"][0]["paths"].as_array().cloned().unwrap_or_default();
    paths.iter().filter(|path| path["state"] == "used").count()
}

/// Sends bytes to an echo and takes them back.
fn echo(stream: &mut TcpStream, length: usize) {
    let sent: Vec<u8> = (0..length).map(|at| (at * 31 % 251) as u8).collect();
    let mut writer = stream.try_clone().expect("a clone");
    let copy = sent.clone();
    let writing = thread::spawn(move || writer.write_all(&copy).expect("it is sent"));
    let mut back = vec![0; length];
    stream.read_exact(&mut back).expect("it comes back");
    writing.join().expect("it ends");
    assert!(back == sent, "other bytes came back");
}

#[test]
fn four_commands_make_a_tunnel_that_outlives_a_path() {
    if !is_root_or_skip("a tunnel between two machines") {
        return;
    }
    let testbed = Testbed::new(2).expect("namespaces");
    let [server, laptop] = [(), ()].map(|()| tempfile::tempdir().expect("a folder"));
    let commands = commands();
    must(&mut command(server.path(), &commands[0]));
    must(&mut command(server.path(), &commands[1]));
    fs::copy(server.path().join("laptop.toml"), laptop.path().join("laptop.toml")).expect("a file");
    let serving = start(&testbed.server, &mut command(server.path(), &commands[2]));
    let calling = start(&testbed.client, &mut command(laptop.path(), &commands[3]));
    until("the handshake", || (used_paths(laptop.path()) == 2).then_some(()));

    let inside: SocketAddr = ([10, 99, 0, 1], 7_000).into();
    let listener =
        testbed.server.run(|| TcpListener::bind(inside)).expect("the namespace").expect("a listener");
    thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a connection");
        let mut reader = stream.try_clone().expect("a clone");
        let _ = std::io::copy(&mut reader, &mut &stream);
    });
    let mut stream = testbed
        .client
        .run(|| TcpStream::connect_timeout(&inside, LIMIT))
        .expect("the namespace")
        .expect("it connects");
    stream.set_read_timeout(Some(LIMIT)).expect("a socket");
    echo(&mut stream, 3_000_000);

    let interface = Testbed::interface(0);
    let down = testbed.client.run(|| Netlink::new()?.set_down(&interface)).expect("the namespace");
    down.expect("it goes down");
    echo(&mut stream, 1_000_000);
    assert_eq!(used_paths(laptop.path()), 1);

    // What is stopped leaves nothing.
    must(&mut command(laptop.path(), "polypath tunnel down"));
    until("the end", || {
        let link = testbed.client.run(|| Netlink::new()?.link_index("polypath-vpn")).expect("the namespace");
        link.is_err().then_some(())
    });
    assert_eq!(status(laptop.path()), Value::Array(Vec::new()));
    drop((serving, calling));
}

#[test]
fn mistakes_are_one_clear_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let said = |line: &str| {
        let output = command(folder.path(), line).output().expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).expect("text")
    };
    fs::write(folder.path().join("wrong.toml"), "[interface]\nprivate-key = \"x\"\naddresses = []\n")
        .expect("a file");
    assert!(
        said("polypath tunnel up wrong.toml").contains("wrong.toml, interface.private-key: expected a key")
    );
    assert!(said("polypath tunnel up none.toml").contains("none.toml: No such file"));
    must(&mut command(folder.path(), "polypath tunnel keygen server.toml"));
    assert!(said("polypath tunnel keygen server.toml").contains("is there already"));
    assert!(said("polypath tunnel add-peer server.toml").contains("interface.endpoints: none"));
}
