//! The tasks of the guide, run as they stand there: a machine at home with two uplinks and a server are network namespaces, and the blocks of
//! `docs/guide/src/ten-tasks.md` are given to bash in them. Needs root; what is missing is said.

#[path = "../guide/book.rs"]
#[allow(dead_code, reason = "the other test uses the rest")]
mod book;

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use book::{Block, Page, pages, workspace};

/// Nothing here takes longer, unless it hangs.
const LIMIT: Duration = Duration::from_secs(120);
/// What is downloaded: long enough for a path to be lost in the middle.
const LARGE_BYTES: usize = 36_000_000;
/// The rate of each uplink.
const RATE: &str = "20mbit";

/// Two machines, joined by two paths of limited rate.
struct Machines {
    home: String,
    server: String,
    folder: tempfile::TempDir,
    children: Vec<Child>,
}

fn have(program: &str) -> bool {
    let output = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    output.is_ok_and(|output| output.status.success())
}

fn must(command: &str) {
    let mut words = command.split(' ');
    let output = Command::new(words.next().expect("a program")).args(words).output();
    let output = output.unwrap_or_else(|error| panic!("{command}: {error}"));
    assert!(output.status.success(), "{command}: {output:?}");
}

/// What a block did.
#[derive(Debug)]
struct Done {
    code: Option<i32>,
    out: String,
    error: String,
}

impl Machines {
    /// The machines, or nothing where they can't be made, which is said.
    fn new_or_skip(task: &str, programs: &[&str]) -> Option<Self> {
        let missing: Vec<&&str> =
            programs.iter().chain(&["ip", "tc", "nft"]).filter(|name| !have(name)).collect();
        if !rustix::process::geteuid().is_root() || !missing.is_empty() {
            eprintln!("polypath: SKIPPING the task {task}: it needs root and {missing:?}");
            return None;
        }
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = |machine: &str| format!("polypath-guide-{}-{number}-{machine}", std::process::id());
        let machines = Self {
            home: name("home"),
            server: name("server"),
            folder: tempfile::tempdir().expect("a folder"),
            children: Vec::new(),
        };
        machines.build();
        Some(machines)
    }

    fn build(&self) {
        let (home, server) = (&self.home, &self.server);
        must(&format!("ip netns add {home}"));
        must(&format!("ip netns add {server}"));
        let (at_home, at_server) = (format!("ip -n {home}"), format!("ip -n {server}"));
        must(&format!("{at_home} link set lo up"));
        must(&format!("{at_server} link set lo up"));
        must(&format!("{at_server} address add 192.0.2.1/32 dev lo"));
        for (number, uplink) in [(1, "wlan0"), (2, "wwan0")] {
            must(&format!("{at_home} link add {uplink} type veth peer name {uplink} netns {server}"));
            must(&format!("{at_home} address add 10.0.{number}.2/24 dev {uplink}"));
            must(&format!("{at_server} address add 10.0.{number}.1/24 dev {uplink}"));
            must(&format!("{at_home} link set {uplink} up"));
            must(&format!("{at_server} link set {uplink} up"));
            must(&format!("{at_home} route add default via 10.0.{number}.1 dev {uplink} metric {number}00"));
            for machine in [home, server] {
                must(&format!(
                    "tc -n {machine} qdisc add dev {uplink} root tbf rate {RATE} burst 64k latency 60ms"
                ));
            }
        }
        must(&format!("{at_server} mptcp limits set subflows 8 add_addr_accepted 8"));
        for folder in ["bin", "home", "server"] {
            fs::create_dir(self.folder.path().join(folder)).expect("a folder");
        }
        symlink(env!("CARGO_BIN_EXE_polypath"), self.folder.path().join("bin/polypath")).expect("a link");
        // The test is root: what the guide does with sudo is done as it is.
        let sudo = self.folder.path().join("bin/sudo");
        fs::write(&sudo, "#!/bin/sh\nexec \"$@\"\n").expect("a script");
        fs::set_permissions(sudo, fs::Permissions::from_mode(0o755)).expect("our own script");
        fs::write(self.folder.path().join("server/large.bin"), large()).expect("a file");
        fs::write(self.folder.path().join("home/index.html"), "from home").expect("a file");
    }

    fn place(&self, at: &str) -> (Option<&str>, PathBuf) {
        match at {
            "home" => (Some(&self.home), self.folder.path().join("home")),
            "server" => (Some(&self.server), self.folder.path().join("server")),
            "source" => (None, workspace()),
            other => panic!("where is {other}?"),
        }
    }

    fn command(&self, block: &Block) -> Command {
        let (namespace, folder) = self.place(block.value("at").expect("at="));
        let mut command = match namespace {
            Some(name) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", name, "bash"]);
                command
            }
            None => Command::new("bash"),
        };
        let bin = self.folder.path().join("bin");
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        command.args(["-uc", &block.code]).current_dir(folder).env("PATH", path);
        command.env("HOME_OF_TEST", self.folder.path()).stdin(Stdio::null());
        command.env("POLYPATH_STATE_DIR", self.folder.path().join("state"));
        command
    }

    /// Starts what runs until the end, and waits until it listens.
    fn start(&mut self, block: &Block) {
        let mut command = self.command(block);
        let child =
            command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn().expect("bash");
        self.children.push(child);
        if block.value("at") == Some("server") {
            self.wait_for_listener();
        }
    }

    fn wait_for_listener(&self) {
        let deadline = Instant::now() + LIMIT;
        loop {
            let output = Command::new("ip").args(["netns", "exec", &self.server, "ss", "-Hltn"]).output();
            if !output.expect("ss").stdout.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "the server does not listen");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Runs a block to its end.
    fn run(&self, block: &Block) -> Done {
        let mut command = self.command(block);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().expect("bash");
        let read = |mut from: Box<dyn std::io::Read + Send>| {
            thread::spawn(move || {
                let mut bytes = Vec::new();
                let _ = from.read_to_end(&mut bytes);
                String::from_utf8_lossy(&bytes).into_owned()
            })
        };
        let out = read(Box::new(child.stdout.take().expect("a pipe")));
        let error = read(Box::new(child.stderr.take().expect("a pipe")));
        let deadline = Instant::now() + LIMIT;
        let code = loop {
            if let Some(status) = child.try_wait().expect("our own child") {
                break status.code();
            }
            if Instant::now() > deadline {
                end_group(&mut child);
                panic!("{}: {} takes too long", block.place, block.code);
            }
            thread::sleep(Duration::from_millis(20));
        };
        Done { code, out: out.join().expect("a reader"), error: error.join().expect("a reader") }
    }

    /// Bytes that came and went over an uplink, at home.
    fn carried(&self, uplink: &str) -> (u64, u64) {
        let read = |what: &str| {
            let file = format!("/sys/class/net/{uplink}/statistics/{what}_bytes");
            let output = Command::new("ip").args(["netns", "exec", &self.home, "cat", &file]).output();
            let text = String::from_utf8(output.expect("ip").stdout).expect("a number");
            text.trim().parse().unwrap_or(0)
        };
        (read("rx"), read("tx"))
    }

    fn has_large(&self) -> bool {
        fs::read(self.folder.path().join("home/large.bin")).is_ok_and(|bytes| bytes == large())
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for child in &mut self.children {
            end_group(child);
        }
        for machine in [&self.home, &self.server] {
            let _ = Command::new("ip").args(["netns", "delete", machine]).output();
        }
    }
}

/// Ends bash, and what it started.
fn end_group(child: &mut Child) {
    let _ = Command::new("kill").args(["-TERM", "--", &format!("-{}", child.id())]).status();
    let _ = child.wait();
}

/// The file that the server has, the same each time and without pattern.
fn large() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut data = Vec::with_capacity(LARGE_BYTES + 8);
    while data.len() < LARGE_BYTES {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        data.extend_from_slice(&state.to_le_bytes());
    }
    data.truncate(LARGE_BYTES);
    data
}

/// The blocks of a task, in their order.
fn task(name: &str) -> Vec<Block> {
    let blocks = pages().iter().flat_map(Page::blocks).collect::<Vec<_>>();
    let blocks: Vec<Block> = blocks.into_iter().filter(|block| block.value("task") == Some(name)).collect();
    assert!(!blocks.is_empty(), "the guide has no task {name}");
    blocks
}

/// Starts all blocks of a task but the last one, and runs that.
fn carry_out(machines: &mut Machines, name: &str) -> Done {
    let mut blocks = task(name);
    let last = blocks.pop().expect("a block");
    for block in &blocks {
        machines.start(block);
    }
    machines.run(&last)
}

#[test]
fn two_uplinks_are_used() {
    let Some(mut machines) = Machines::new_or_skip("two-uplinks", &[]) else { return };
    let done = carry_out(&mut machines, "two-uplinks");
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(machines.has_large(), "{done:?}");
    assert!(done.error.contains("engine tun (our own stack), over wlan0 and wwan0"), "{done:?}");
    assert!(done.error.contains("times the faster alone"), "{done:?}");
    for uplink in ["wlan0", "wwan0"] {
        let (received, _) = machines.carried(uplink);
        assert!(received > 1_000_000, "{uplink} brought {received} bytes: {done:?}");
    }
}

#[test]
fn a_path_is_lost_and_the_file_arrives() {
    let Some(mut machines) = Machines::new_or_skip("path-lost", &[]) else { return };
    let done = carry_out(&mut machines, "path-lost");
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(machines.has_large(), "{done:?}");
}

#[test]
fn the_doctor_finds_stripped_options() {
    let Some(mut machines) = Machines::new_or_skip("stripped", &["iptables"]) else { return };
    for chain in ["PREROUTING", "POSTROUTING"] {
        let interface = if chain == "PREROUTING" { "-i" } else { "-o" };
        let rule = format!(
            "ip netns exec {} iptables -t mangle -A {chain} {interface} wwan0 -p tcp -j TCPOPTSTRIP --strip-options 30",
            machines.server
        );
        must(&rule);
    }
    let done = carry_out(&mut machines, "stripped");
    let text = format!("{}{}", done.out, done.error);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(text.contains("wwan0") && text.contains("option"), "{done:?}");
}

#[test]
fn a_server_is_published() {
    let Some(mut machines) = Machines::new_or_skip("published", &["python3", "curl"]) else { return };
    let done = carry_out(&mut machines, "published");
    assert_eq!((done.code, done.out.trim()), (Some(0), "from home"), "{done:?}");
}

#[test]
fn a_program_runs_as_it_is() {
    let Some(mut machines) = Machines::new_or_skip("unmodified", &["curl"]) else { return };
    let done = carry_out(&mut machines, "unmodified");
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(machines.has_large(), "{done:?}");
    for uplink in ["wlan0", "wwan0"] {
        let (received, _) = machines.carried(uplink);
        assert!(received > 1_000_000, "{uplink} brought {received} bytes: {done:?}");
    }
}

#[test]
fn a_scheduler_is_chosen() {
    let Some(mut machines) = Machines::new_or_skip("scheduler", &[]) else { return };
    let done = carry_out(&mut machines, "scheduler");
    assert_eq!(done.code, Some(0), "{done:?}");
    for uplink in ["wlan0", "wwan0"] {
        let (_, sent) = machines.carried(uplink);
        assert!(sent > 1_200_000, "{uplink} took {sent} bytes: {done:?}");
    }
}

#[test]
fn rates_are_read_while_it_runs() {
    let Some(mut machines) = Machines::new_or_skip("rates", &[]) else { return };
    let done = carry_out(&mut machines, "rates");
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.out.contains("192.0.2.1") && done.out.contains("rtt:"), "{done:?}");
}

#[test]
fn prometheus_reads_the_figures() {
    let Some(mut machines) = Machines::new_or_skip("metrics", &["prometheus", "curl"]) else { return };
    let done = carry_out(&mut machines, "metrics");
    for words in
        [r#""__name__":"polypath_sent_bytes_total""#, r#""interface":"wlan0""#, r#""interface":"wwan0""#]
    {
        assert!(done.out.contains(words), "{words}: {done:?}");
    }
}

#[test]
fn a_scheduler_of_ones_own_is_built() {
    if !have("cargo") {
        eprintln!("polypath: SKIPPING the task own-scheduler: it needs cargo");
        return;
    }
    let block = task("own-scheduler").pop().expect("a block");
    let folder = tempfile::tempdir().expect("a folder");
    let code = block.code.replace("/tmp/", &format!("{}/", folder.path().display()));
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the folder of builds");
    let mut command = Command::new("bash");
    command.args(["-uc", &code]).current_dir(workspace()).env("CARGO_TARGET_DIR", target);
    let output = command.output().expect("bash");
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && out.contains("SHA-256"), "{output:?}");
}

/// Runs its last argument over a copy of the system, and prints what is left of us then, but for what dpkg writes down.
const OVER_A_COPY: &str = r#"set -eu
work=$1
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/layer" "$work/root"
mount -t proc proc "$work/root/proc"
mount --rbind /dev "$work/root/dev"
mount -t tmpfs tmpfs "$work/root/run"
mkdir "$work/root/dist"
cp "$work"/dist/*.deb "$work/root/dist/"
chroot "$work/root" bash -euc "cd /dist; sudo() { \"\$@\"; }; $2"
cd "$work/upper"
# What the host had and is gone now is a device here.
find . "$work/root/run" -iname '*polypath*' ! -type c ! -path './dist/*' ! -path './var/log/*'
"#;

#[test]
fn the_package_is_removed_and_nothing_is_left() {
    let missing: Vec<&str> =
        ["dpkg-deb", "dpkg-shlibdeps", "unshare"].into_iter().filter(|name| !have(name)).collect();
    if !rustix::process::geteuid().is_root() || !missing.is_empty() {
        eprintln!("polypath: SKIPPING the task package: it needs root and {missing:?}");
        return;
    }
    let block = task("package").pop().expect("a block");
    let folder = tempfile::tempdir().expect("a folder");
    // An overlay can't have its upper layer on another overlay, as in a container.
    let work = folder.path().display().to_string();
    must(&format!("mount -t tmpfs tmpfs {work}"));
    let _mounted = Mounted(work.clone());
    for name in ["upper", "layer", "root"] {
        fs::create_dir(folder.path().join(name)).expect("a folder");
    }
    let mut deb = Command::new(workspace().join("packaging/deb"));
    deb.arg(polypath_testbed::built()).arg(folder.path().join("dist")).env("COMPRESSION", "none");
    let made = deb.output().expect("packaging/deb");
    assert!(made.status.success(), "{made:?}");
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "--net",
        "--pid",
        "--fork",
        "bash",
        "-c",
        OVER_A_COPY,
        "bash",
        &work,
        &block.code,
    ]);
    let output = command.output().expect("unshare");
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && out.contains(env!("CARGO_PKG_VERSION")), "{output:?}");
    assert!(!out.lines().any(|line| line.starts_with("./") || line.contains("/root/run/")), "left: {out}");
}

/// A mount that goes with the test.
struct Mounted(String);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).output();
    }
}
