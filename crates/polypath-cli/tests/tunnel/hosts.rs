//! Two hosts, what each runs, and what is looked at.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use polypath_system::{Namespace, Netlink};
use polypath_testbed::Testbed;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Nothing here takes longer, unless it hangs.
const LIMIT: Duration = Duration::from_secs(60);
/// TCP asks again after twice as long each time while nothing passes: a tunnel that begins anew may be found much later.
const PATIENCE: Duration = Duration::from_secs(80);

/// A shell that runs in a network namespace; it is ended with this.
pub(super) struct Shell(Child);

impl Shell {
    /// Ends it without a word (`kill -9`), and waits until it is gone.
    pub(super) fn kill(mut self) {
        self.0.kill().expect("it is killed");
        self.0.wait().expect("it ends");
    }
}

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

pub(super) fn command(namespace_folder: &Path, line: &str) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_polypath"));
    let mut bash = Command::new("bash");
    // No sudo is needed by root, and the names of the guide are nobody's here.
    let line = line.strip_prefix("sudo ").unwrap_or(line);
    let endpoints: Vec<String> = (0..2).map(|path| Testbed::server_v4(path).to_string()).collect();
    let line = line.replace("vpn.example.org", &endpoints.join(" --endpoint "));
    let line = match line.strip_prefix("polypath ") {
        Some(rest) => format!("{} {rest}", program.display()),
        None => line,
    };
    bash.args(["-c", &format!("exec {line}")]);
    for (variable, folder) in [("POLYPATH_RUNTIME_DIR", "run"), ("POLYPATH_STATE_DIR", "state")] {
        bash.env(variable, namespace_folder.join(folder));
    }
    bash.current_dir(namespace_folder).stdin(Stdio::null());
    bash
}

pub(super) fn must(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

pub(super) fn start(namespace: &Namespace, command: &mut Command) -> Shell {
    Shell(namespace.run(|| command.spawn()).expect("the namespace").expect("it starts"))
}

pub(super) fn until<T>(what: &str, mut get: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(got) = get() {
            return got;
        }
        assert!(begin.elapsed() < LIMIT, "{what} took too long");
        thread::sleep(Duration::from_millis(50));
    }
}

pub(super) fn status(folder: &Path) -> Value {
    let text = must(&mut command(folder, "polypath tunnel status --json"));
    serde_json::from_str(&text).expect("JSON")
}

pub(super) fn used_paths(folder: &Path) -> usize {
    let status = status(folder);
    let paths = status[0]["peers"][0]["paths"].as_array().cloned().unwrap_or_default();
    paths.iter().filter(|path| path["state"] == "used").count()
}

/// Sends bytes to an echo and takes them back.
pub(super) fn echo(stream: &mut TcpStream, length: usize) {
    let sent: Vec<u8> = (0..length).map(|at| (at * 31 % 251) as u8).collect();
    let mut writer = stream.try_clone().expect("a clone");
    let copy = sent.clone();
    let writing = thread::spawn(move || writer.write_all(&copy).expect("it is sent"));
    let mut back = vec![0; length];
    stream.read_exact(&mut back).expect("it comes back");
    writing.join().expect("it ends");
    assert!(back == sent, "other bytes came back");
}

/// A server and a laptop with two paths between them, each with the folder of its file.
pub(super) struct Hosts {
    pub(super) testbed: Testbed,
    pub(super) server: TempDir,
    pub(super) laptop: TempDir,
    /// What each is brought up with.
    pub(super) up: [String; 2],
}

impl Hosts {
    /// With their files, by the guide's commands.
    pub(super) fn new() -> Self {
        Self::on(Testbed::new(2).expect("namespaces"))
    }

    /// The same on another network.
    pub(super) fn on(testbed: Testbed) -> Self {
        let [server, laptop] = [(), ()].map(|()| tempfile::tempdir().expect("a folder"));
        let [keygen, add_peer, serve, call] = commands().try_into().expect("four commands");
        must(&mut command(server.path(), &keygen));
        must(&mut command(server.path(), &add_peer));
        fs::copy(server.path().join("laptop.toml"), laptop.path().join("laptop.toml")).expect("a file");
        Self { testbed, server, laptop, up: [serve, call] }
    }

    pub(super) fn serve(&self) -> Shell {
        start(&self.testbed.server, &mut command(self.server.path(), &self.up[0]))
    }

    pub(super) fn call(&self) -> Shell {
        start(&self.testbed.client, &mut command(self.laptop.path(), &self.up[1]))
    }

    /// Until the laptop uses so many paths.
    pub(super) fn wait_for_paths(&self, count: usize) {
        until("the paths", || (used_paths(self.laptop.path()) == count).then_some(()));
    }

    /// A connection of the laptop to an echo at the server's address inside.
    pub(super) fn connect(&self) -> TcpStream {
        connect(&self.testbed.client, &self.testbed.server, INSIDE).0
    }

    pub(super) fn set_up(&self, path: u8, is_up: bool) {
        let interface = Testbed::interface(path);
        let set = || {
            let netlink = Netlink::new()?;
            if is_up { netlink.set_up(&interface) } else { netlink.set_down(&interface) }
        };
        self.testbed.client.run(set).expect("the namespace").expect("it is set");
    }
}

/// A connection from one host to an echo at another, and whom the echo sees.
pub(super) fn connect(from: &Namespace, at: &Namespace, place: SocketAddr) -> (TcpStream, SocketAddr) {
    let listener = at.run(|| TcpListener::bind(place)).expect("the namespace").expect("a listener");
    let (seen, peer) = mpsc::channel();
    thread::spawn(move || {
        let (stream, peer) = listener.accept().expect("a connection");
        let _ = seen.send(peer);
        let mut reader = stream.try_clone().expect("a clone");
        let _ = std::io::copy(&mut reader, &mut &stream);
    });
    let connect = || TcpStream::connect_timeout(&place, LIMIT);
    let stream = from.run(connect).expect("the namespace").expect("it connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    (stream, peer.recv_timeout(LIMIT).expect("it is seen"))
}

/// Where the echo is.
pub(super) const INSIDE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 99, 0, 1)), 7_000);

/// All that a tunnel could have changed of a host.
pub(super) fn host(namespace: &Namespace) -> String {
    let look = || {
        let commands = [
            "ip -o link show | cut -d: -f2",
            "ip -4 route show table all",
            "ip -6 route show table all | grep -v fe80 | grep -v ff00",
            "ip rule; ip -6 rule",
            "nft list ruleset",
            "cat /etc/resolv.conf",
            "cd /proc/sys/net; grep -H . ipv4/ip_forward ipv?/conf/*/forwarding ipv6/conf/*/accept_ra ipv4/conf/*/rp_filter",
        ];
        Command::new("bash").args(["-c", &commands.join("; ")]).output()
    };
    let output = namespace.run(look).expect("the namespace").expect("it starts");
    String::from_utf8(output.stdout).expect("text")
}

/// A host beyond one of the two, by a cable of its own: `near` is the interface of the one.
pub(super) fn attach(one: &Namespace, near: &str, near_address: IpAddr, far_address: IpAddr) -> Namespace {
    let far = Namespace::create().expect("a namespace");
    let join = || {
        let netlink = Netlink::new()?;
        netlink.add_veth(near, "eth0", Some(&far))?;
        netlink.add_address(near, near_address, 24)?;
        netlink.set_up(near)
    };
    one.run(join).expect("the namespace").expect("a cable");
    let configure = || {
        let netlink = Netlink::new()?;
        netlink.add_address("eth0", far_address, 24)?;
        netlink.set_up("eth0")
    };
    far.run(configure).expect("the namespace").expect("an end");
    far
}

pub(super) fn append(folder: &Path, file: &str, text: &str) {
    let path = folder.join(file);
    let before = fs::read_to_string(&path).expect("a file");
    fs::write(path, format!("{before}\n{text}")).expect("a file");
}

/// The first peer's path over an interface.
pub(super) fn path_over(status: &Value, interface: &str) -> Value {
    let paths = status[0]["peers"][0]["paths"].as_array().cloned().unwrap_or_default();
    paths.into_iter().find(|path| path["interface"] == interface).unwrap_or_default()
}
