//! What becomes of a command whose standard output or standard error takes nothing.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

fn polypath(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").expect("a device that is always full")
}

/// A `polypath serve` of a folder, nobody of which can read what it says on standard error.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(folder: &str) -> Self {
        let mut command = polypath(&["serve", "--listen", "127.0.0.1:0", folder]);
        let mut child = command.stdout(Stdio::piped()).stderr(full()).spawn().expect("the command");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        let url =
            line.split_whitespace().find(|word| word.starts_with("http://")).expect("an address").into();
        Self { child, url }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn what_nobody_can_read_does_not_change_the_outcome() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("file"), "content").expect("a file");
    let server = Server::start(folder.path().to_str().expect("a name"));
    let (there, missing) = (format!("{}file", server.url), format!("{}none", server.url));
    let copy = folder.path().join("copy");
    let into = copy.to_str().expect("a name");
    for (arguments, code) in [
        (&["get", "-o", into, &there][..], 0),
        (&["get", "-o", into, &missing], 1),
        (&["perf", "-c", "127.0.0.1", "-p", "1"], 1),
        (&["get", "--no-such-option"], 2),
        (&["preload", "no-such-program-anywhere"], 127),
        (&["ss"], 0),
    ] {
        let mut command = polypath(arguments);
        // Hidden: `serve` must not have it, whatever its name.
        command.env("POLYPATH_RUNTIME_DIR", folder.path().join(".run"));
        let full_status = command.stderr(full()).stdout(Stdio::null()).status().expect("the command");
        assert_eq!(full_status.code(), Some(code), "{arguments:?} with a full standard error");
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let unread = command.stderr(writer).status().expect("the command");
        assert_eq!(unread.code(), Some(code), "{arguments:?} that nobody reads");
    }
    assert_eq!(std::fs::read_to_string(&copy).expect("the copy"), "content");
}

/// Runs a command whose standard output is closed.
fn closed(arguments: &[&str]) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" \"$@\" >&-", env!("CARGO_BIN_EXE_polypath")]).args(arguments);
    // No stack is there.
    let folder = tempfile::tempdir().expect("a folder");
    command.env("POLYPATH_RUNTIME_DIR", folder.path()).output().expect("the shell")
}

#[test]
fn what_has_no_place_to_go_is_a_failure() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("file"), "content").expect("a file");
    let server = Server::start(folder.path().to_str().expect("a name"));
    let there = format!("{}file", server.url);
    for arguments in [&["get", "-o", "-", &there][..], &["ss", "-J"]] {
        let output = closed(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("can't be written: Bad file descriptor"), "{said}");
    }
    // Nothing is lost where nothing is written, nor where somebody wants it to be.
    let copy = folder.path().join("copy");
    let output = closed(&["get", "-o", copy.to_str().expect("a name"), &there]);
    assert!(output.status.success(), "{output:?}");
    let null = OpenOptions::new().read(true).write(true).open("/dev/null").expect("a device");
    let status = polypath(&["get", "-o", "-", &there]).stdout(null).status();
    assert!(status.expect("the command").success());
}

/// A pipe that takes nothing more, and its reader.
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&writer, true).expect("a pipe");
    while writer.write(b"x").is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).expect("a pipe");
    (reader, writer)
}

#[test]
fn a_signal_ends_a_command_whose_message_nobody_reads() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/none", listener.local_addr().expect("an address"));
    let (_reader, writer) = full_pipe();
    let mut child = polypath(&["get", "-q", "--engine", "tcp", &url]).stderr(writer).spawn().expect("it");
    let (mut peer, _) = listener.accept().expect("a connection");
    peer.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        .expect("an answer");
    // It has closed its connection, so that all it still has to do is to say so.
    let _ = peer.read_to_end(&mut Vec::new());
    thread::sleep(Duration::from_millis(500));
    for _ in 0..200 {
        if let Some(status) = child.try_wait().expect("our child") {
            assert_eq!(status.code(), Some(1), "what it was asked for failed");
            return;
        }
        let pid = child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill").success());
        thread::sleep(Duration::from_millis(100));
    }
    let _ = child.kill();
    panic!("it does not end");
}

/// A stack's socket in a folder at which each question gets this answer.
fn answering(folder: &Path, name: &str, answer: &'static str) {
    let listener = UnixListener::bind(folder.join(name)).expect("a socket");
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.expect("a client");
            let mut question = String::new();
            let _ = BufReader::new(client.try_clone().expect("a socket")).read_line(&mut question);
            let _ = writeln!(client, "{answer}");
        }
    });
}

#[test]
fn a_stack_that_is_stopped_hides_no_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let _stopped = UnixListener::bind(folder.path().join("1.sock")).expect("a socket");
    answering(folder.path(), "2.sock", r#"{"process":"other","pid":2,"counters":[["MPJoinSynRx",7]]}"#);
    let mut command = polypath(&["ss", "-s"]);
    let output = command.env("POLYPATH_RUNTIME_DIR", folder.path()).output().expect("the command");
    let (shown, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && shown.contains("MPTcpExtMPJoinSynRx"), "{shown}{said}");
    assert!(said.lines().count() == 1 && said.contains("1.sock: no answer within 2s"), "{said}");
}
