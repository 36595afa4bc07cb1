//! Two hosts with two paths of limited rate between them, and programs on both: what the tests of `polypath run` share.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod fates;
pub(crate) mod servers;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use polypath_system::{Namespace, Netlink};
use polypath_testbed::{Testbed, is_root_or_skip};

/// Nothing here takes longer, unless it hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// The two hosts. The server announces its address on the second path, so that the client's kernel joins it.
pub(crate) struct Lab {
    pub(crate) testbed: Testbed,
    folder: tempfile::TempDir,
}

/// A process that ends with the test.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Lab {
    /// The hosts, or nothing if this test can't be run here, which is said.
    pub(crate) fn new_or_skip(what: &str) -> Option<Self> {
        if !is_root_or_skip(what) {
            return None;
        }
        let lab = Self {
            testbed: Testbed::new(2).expect("namespaces"),
            folder: tempfile::tempdir().expect("a folder"),
        };
        for namespace in [&lab.testbed.client, &lab.testbed.server] {
            lab.must(namespace, "ip", "mptcp limits set subflows 4 add_addr_accepted 4");
        }
        lab.must(&lab.testbed.server, "ip", "mptcp endpoint add 10.77.1.2 dev path1 signal");
        Some(lab)
    }

    /// The same, with a rate for each path, in both directions.
    pub(crate) fn with_rate_or_skip(what: &str, rate: &str) -> Option<Self> {
        let lab = Self::new_or_skip(what)?;
        for namespace in [&lab.testbed.client, &lab.testbed.server] {
            for path in 0..2 {
                let interface = Testbed::interface(path);
                let shape = format!("qdisc add dev {interface} root tbf rate {rate} burst 128k latency 40ms");
                lab.must(namespace, "tc", &shape);
            }
        }
        Some(lab)
    }

    fn must(&self, namespace: &Namespace, program: &str, arguments: &str) {
        let output = namespace.run(|| Command::new(program).args(arguments.split(' ')).output());
        let output = output.expect("a namespace").unwrap_or_else(|error| panic!("{program}: {error}"));
        assert!(output.status.success(), "{program} {arguments}: {output:?}");
    }

    /// Makes each path an uplink: a way to everywhere, by the server.
    pub(crate) fn add_default_routes(&self) {
        for path in 0..2 {
            let (interface, gateway) = (Testbed::interface(path), Testbed::server_v4(path));
            let route = format!("route add default via {gateway} dev {interface} metric {}", 100 + path);
            self.must(&self.testbed.client, "ip", &route);
        }
    }

    /// A folder that ends with the test, readable for everyone.
    pub(crate) fn folder(&self) -> &Path {
        use std::os::unix::fs::PermissionsExt;
        let readable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(self.folder.path(), readable).expect("our own folder");
        self.folder.path()
    }

    /// A file of that many bytes, the same each time and without pattern.
    pub(crate) fn file(&self, name: &str, bytes: usize) -> PathBuf {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut data = Vec::with_capacity(bytes + 8);
        while data.len() < bytes {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            data.extend_from_slice(&state.to_le_bytes());
        }
        data.truncate(bytes);
        let path = self.folder().join(name);
        fs::write(&path, data).expect("a file");
        path
    }

    /// `polypath run` with options, and the program to run; on the kernel's engine, without a word of it, unless they name another.
    pub(crate) fn polypath(&self, options: &[&str], command: &[&dyn AsRef<OsStr>]) -> Command {
        let mut polypath = Command::new(env!("CARGO_BIN_EXE_polypath"));
        let is_named = options.contains(&"--engine");
        let engine: &[&str] = if is_named { &[] } else { &["--engine", "kernel", "-q"] };
        polypath.arg("run").args(engine).args(options).arg("--").args(command);
        polypath.stdin(Stdio::null());
        polypath
    }

    /// Starts a command at the client.
    pub(crate) fn start(&self, command: &mut Command) -> Running {
        let child = self.testbed.client.run(|| command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn());
        Running(child.expect("a namespace").expect("the command"))
    }

    /// Runs a command at the client to its end.
    pub(crate) fn output(&self, command: &mut Command) -> Output {
        finish(self.start(command))
    }

    /// Starts a server, and waits until it listens at a port of the server's first address.
    pub(crate) fn serve(&self, command: &mut Command, port: u16) -> Running {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = self.testbed.server.run(|| command.spawn()).expect("a namespace").expect("the server");
        let mut server = Running(child);
        let deadline = Instant::now() + LIMIT;
        let to = (Testbed::server_v4(0), port);
        while self.testbed.server.run(|| std::net::TcpStream::connect(to)).expect("a namespace").is_err() {
            if let Ok(Some(status)) = server.0.try_wait() {
                panic!("{command:?} ended early: {status}");
            }
            assert!(Instant::now() < deadline, "{command:?} does not listen");
            thread::sleep(Duration::from_millis(20));
        }
        server
    }

    /// Bytes that came and went on each path, at the client.
    pub(crate) fn carried(&self) -> [u64; 2] {
        let text = self.testbed.client.run(|| fs::read_to_string("/proc/thread-self/net/dev"));
        let text = text.expect("a namespace").expect("its devices");
        [0, 1].map(|path| {
            let name = format!("{}:", Testbed::interface(path));
            let line = text.lines().find_map(|line| line.trim().strip_prefix(&name)).expect("the path");
            let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            numbers[0] + numbers[8]
        })
    }

    /// Waits until the paths have carried so much together.
    pub(crate) fn wait_until_carried(&self, bytes: u64) {
        let deadline = Instant::now() + LIMIT;
        while self.carried().iter().sum::<u64>() < bytes {
            assert!(Instant::now() < deadline, "only {:?} bytes of {bytes} came", self.carried());
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Pulls the cable of a path.
    pub(crate) fn cut(&self, path: u8) {
        let cut = self.testbed.client.run(|| Netlink::new()?.set_down(&Testbed::interface(path)));
        cut.expect("a namespace").expect("the path");
    }
}

/// Waits for the end of a process whose output is piped; one that hangs is ended.
pub(crate) fn finish(mut running: Running) -> Output {
    let (mut out, mut err) = (running.0.stdout.take(), running.0.stderr.take());
    let read = |stream: &mut dyn io::Read| {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).map(|_| bytes)
    };
    thread::scope(|scope| {
        let out = scope.spawn(move || out.as_mut().map(|stream| read(stream)));
        let err = scope.spawn(move || err.as_mut().map(|stream| read(stream)));
        let deadline = Instant::now() + LIMIT;
        let status = loop {
            if let Some(status) = running.0.try_wait().expect("our own child") {
                break status;
            }
            if Instant::now() > deadline {
                let _ = running.0.kill();
            }
            thread::sleep(Duration::from_millis(5));
        };
        let bytes = |stream: Option<io::Result<Vec<u8>>>| stream.and_then(Result::ok).unwrap_or_default();
        Output { status, stdout: bytes(out.join().unwrap()), stderr: bytes(err.join().unwrap()) }
    })
}

/// True if a program is installed; else says which test is skipped.
pub(crate) fn has_or_skip(program: &str, what: &str) -> bool {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).chain(["/usr/sbin".into()]).any(|folder| folder.join(program).is_file())
    });
    if !found {
        eprintln!("SKIPPED {what}: {program} is not installed");
    }
    found
}
