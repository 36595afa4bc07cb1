//! A server of files, and a place for what is fetched.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::thread::JoinHandle;

use tempfile::TempDir;

/// A server of a directory that holds a few files, and a directory for what is fetched.
pub(super) struct Site {
    child: Child,
    log: Option<JoinHandle<String>>,
    pub(super) port: u16,
    pub(super) folder: TempDir,
}

/// Bytes that differ from place to place.
pub(super) fn content(length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

impl Site {
    pub(super) fn new(options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
        Self::started_by(command.arg("serve"), options)
    }

    /// With a limit to what it may have, as `ulimit` takes it; and what it says on standard error.
    pub(super) fn limited(limit: &str, options: &[&str]) -> (Self, ChildStderr) {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit {limit} && exec \"$0\" \"$@\"")]);
        command.args([env!("CARGO_BIN_EXE_polypath"), "serve"]).stderr(Stdio::piped());
        let mut site = Self::started_by(&mut command, options);
        let said = site.child.stderr.take().expect("a pipe");
        (site, said)
    }

    /// As a service, which no terminal can hang up; and what it says on standard error.
    pub(super) fn without_terminal(options: &[&str]) -> (Self, ChildStderr) {
        let mut command = Command::new("setsid");
        command.args([env!("CARGO_BIN_EXE_polypath"), "serve"]).stderr(Stdio::piped());
        let mut site = Self::started_by(&mut command, options);
        let said = site.child.stderr.take().expect("a pipe");
        (site, said)
    }

    pub(super) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().expect("kill runs").success());
    }

    fn started_by(command: &mut Command, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let site = folder.path().join("site");
        fs::create_dir_all(site.join("sub/deep")).expect("a folder");
        fs::create_dir(folder.path().join("out")).expect("a folder");
        fs::write(site.join("big.bin"), content(3_000_000)).expect("a file");
        fs::write(site.join("empty"), "").expect("a file");
        fs::write(site.join("sub/index.html"), "<p>index</p>").expect("a file");
        fs::write(site.join("sub/deep/a b%.txt"), "deep").expect("a file");
        fs::write(folder.path().join("secret"), "secret").expect("a file");
        symlink("../secret", site.join("evil")).expect("a link");
        symlink("/etc/passwd", site.join("absolute")).expect("a link");
        symlink("..", site.join("up")).expect("a link");
        symlink("big.bin", site.join("good")).expect("a link");
        let mut child = command
            .args(["--engine", "tcp", "--listen", "127.0.0.1:0"])
            .args(options)
            .arg(&site)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the command runs");
        let mut lines = BufReader::new(child.stdout.take().expect("its output"));
        let mut first = String::new();
        lines.read_line(&mut first).expect("its first line");
        let port =
            first.trim_end().trim_end_matches('/').rsplit(':').next().and_then(|port| port.parse().ok());
        let port = port.unwrap_or_else(|| panic!("no port in {first:?}"));
        let log = std::thread::spawn(move || {
            let mut log = String::new();
            lines.read_to_string(&mut log).expect("the log");
            log
        });
        Self { child, log: Some(log), port, folder }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("polypath://127.0.0.1:{}{path}", self.port)
    }

    pub(super) fn site(&self, path: &str) -> PathBuf {
        self.folder.path().join("site").join(path)
    }

    pub(super) fn out(&self, path: &str) -> PathBuf {
        self.folder.path().join("out").join(path)
    }

    pub(super) fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
        command.args(&arguments[..1]);
        // By HTTPS, it is the system's TCP anyway.
        if !arguments.iter().any(|argument| argument.starts_with("https://")) {
            command.args(["--engine", "tcp"]);
        }
        command.args(&arguments[1..]);
        command.current_dir(self.folder.path().join("out")).output().expect("the command runs")
    }

    #[track_caller]
    pub(super) fn succeeds(&self, arguments: &[&str]) -> Output {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        output
    }

    /// One line, which has this in it.
    #[track_caller]
    pub(super) fn fails(&self, arguments: &[&str], code: i32, wanted: &str) {
        let output = self.run(arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{message}");
        let lines: Vec<_> = message.lines().filter(|line| line.starts_with("polypath: ")).collect();
        assert!(lines.len() == 1 && lines[0].contains(wanted), "\"{wanted}\" is not in: {message}");
    }

    /// A request as it stands; the fields of the answer with names in lower case, and the body.
    pub(super) fn ask(&self, method: &str, path: &str, fields: &str) -> (u16, String, Vec<u8>) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the server");
        let port = self.port;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n{fields}\r\n"
        );
        stream.write_all(request.as_bytes()).expect("room");
        Self::answer(stream)
    }

    /// What comes back, as of [`Self::ask`].
    pub(super) fn answer(mut stream: TcpStream) -> (u16, String, Vec<u8>) {
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("the end of the fields");
        let lower = |line: &str| match line.split_once(": ") {
            Some((name, value)) => format!("{}: {value}", name.to_lowercase()),
            None => line.to_string(),
        };
        let head = String::from_utf8_lossy(&answer[..end]);
        let head = head.lines().map(lower).collect::<Vec<_>>().join("\n");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, head, answer[end + 4..].to_vec())
    }

    pub(super) fn field(head: &str, name: &str) -> String {
        let line = head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        line.unwrap_or_else(|| panic!("no {name} in {head}")).to_string()
    }

    /// Ends the server as Ctrl-C does; its exit code and its log.
    pub(super) fn stop(mut self) -> (Option<i32>, String) {
        self.signal("-INT");
        let code = self.child.wait().expect("the server ends").code();
        (code, self.log.take().expect("the log").join().expect("the log"))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Nothing under this name, nor under one that says it is incomplete.
#[track_caller]
pub(super) fn nothing_of(site: &Site, name: &str) {
    let found: Vec<_> = fs::read_dir(site.out("")).expect("the folder").flatten().collect();
    let names: Vec<_> = found.iter().map(|entry| entry.file_name().into_string().expect("UTF-8")).collect();
    assert!(!names.iter().any(|found| found.starts_with(name)), "{names:?}");
}

#[track_caller]
pub(super) fn same(one: &Path, other: &Path) {
    let read = |path: &Path| fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(read(one) == read(other), "{} and {}", one.display(), other.display());
}
