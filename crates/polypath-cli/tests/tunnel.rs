//! `polypath tunnel` between two machines, by the commands of the guide as they stand there: from nothing to bytes through it, on while a path
//! fails, and nothing left. Needs root; what is missing is said.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use polypath_system::{Namespace, Netlink};
use polypath_testbed::{Testbed, is_root_or_skip};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use socket2::SockRef;
use tempfile::TempDir;

/// Nothing here takes longer, unless it hangs.
const LIMIT: Duration = Duration::from_secs(60);
/// TCP asks again after twice as long each time while nothing passes: a tunnel that begins anew may be found much later.
const PATIENCE: Duration = Duration::from_secs(80);

/// A shell that runs in a network namespace; it is ended with this.
struct Shell(Child);

impl Shell {
    /// Ends it without a word (`kill -9`), and waits until it is gone.
    fn kill(mut self) {
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

fn command(namespace_folder: &Path, line: &str) -> Command {
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

/// A server and a laptop with two paths between them, each with the folder of its file.
struct Hosts {
    testbed: Testbed,
    server: TempDir,
    laptop: TempDir,
    /// What each is brought up with.
    up: [String; 2],
}

impl Hosts {
    /// With their files, by the guide's commands.
    fn new() -> Self {
        let testbed = Testbed::new(2).expect("namespaces");
        let [server, laptop] = [(), ()].map(|()| tempfile::tempdir().expect("a folder"));
        let [keygen, add_peer, serve, call] = commands().try_into().expect("four commands");
        must(&mut command(server.path(), &keygen));
        must(&mut command(server.path(), &add_peer));
        fs::copy(server.path().join("laptop.toml"), laptop.path().join("laptop.toml")).expect("a file");
        Self { testbed, server, laptop, up: [serve, call] }
    }

    fn serve(&self) -> Shell {
        start(&self.testbed.server, &mut command(self.server.path(), &self.up[0]))
    }

    fn call(&self) -> Shell {
        start(&self.testbed.client, &mut command(self.laptop.path(), &self.up[1]))
    }

    /// Until the laptop uses so many paths.
    fn wait_for_paths(&self, count: usize) {
        until("the paths", || (used_paths(self.laptop.path()) == count).then_some(()));
    }

    /// A connection of the laptop to an echo at the server's address inside.
    fn connect(&self) -> TcpStream {
        connect(&self.testbed.client, &self.testbed.server, INSIDE).0
    }

    fn set_up(&self, path: u8, is_up: bool) {
        let interface = Testbed::interface(path);
        let set = || {
            let netlink = Netlink::new()?;
            if is_up { netlink.set_up(&interface) } else { netlink.set_down(&interface) }
        };
        self.testbed.client.run(set).expect("the namespace").expect("it is set");
    }
}

/// A connection from one host to an echo at another, and whom the echo sees.
fn connect(from: &Namespace, at: &Namespace, place: SocketAddr) -> (TcpStream, SocketAddr) {
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
const INSIDE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 99, 0, 1)), 7_000);

/// All that a tunnel could have changed of a host.
fn host(namespace: &Namespace) -> String {
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

#[test]
fn four_commands_make_a_tunnel_that_outlives_a_path() {
    if !is_root_or_skip("a tunnel between two machines") {
        return;
    }
    let hosts = Hosts::new();
    let running = (hosts.serve(), hosts.call());
    hosts.wait_for_paths(2);
    let mut stream = hosts.connect();
    echo(&mut stream, 3_000_000);

    // What the kernel does not take is counted.
    let unsent = || status(hosts.laptop.path())[0]["lost"]["unsent_datagrams"].as_u64().expect("a count");
    let before = unsent();
    let refuse = "nft add table inet t; nft add chain inet t o '{ type filter hook output priority 0; }'; \
                  nft add rule inet t o oifname path1 udp dport 51820 drop";
    let refused = hosts.testbed.client.run(|| Command::new("sh").args(["-c", refuse]).status());
    assert!(refused.expect("the namespace").expect("it starts").success());
    until("a datagram that is not taken", || {
        echo(&mut stream, 100_000);
        (unsent() > before).then_some(())
    });
    let again = hosts.testbed.client.run(|| Command::new("nft").args(["flush", "ruleset"]).status());
    assert!(again.expect("the namespace").expect("it starts").success());
    hosts.wait_for_paths(2);

    hosts.set_up(0, false);
    echo(&mut stream, 1_000_000);
    hosts.wait_for_paths(1);

    // What is stopped leaves nothing.
    must(&mut command(hosts.laptop.path(), "polypath tunnel down"));
    until("the end", || {
        let link = hosts.testbed.client.run(|| Netlink::new()?.link_index("polypath-vpn"));
        link.expect("the namespace").is_err().then_some(())
    });
    assert_eq!(status(hosts.laptop.path()), Value::Array(Vec::new()));
    drop(running);
}

#[test]
fn connections_go_on_when_a_killed_end_starts_again() {
    if !is_root_or_skip("tunnels that are killed") {
        return;
    }
    let hosts = Hosts::new();
    let (laptop, server) = (&hosts.testbed.client, &hosts.testbed.server);
    // Interfaces that were down have lost their addresses of IPv6: they go before the first look.
    for (path, is_up) in [(0, false), (1, false), (0, true), (1, true)] {
        hosts.set_up(path, is_up);
    }
    let before = [laptop, server].map(host);
    let (serving, calling) = (hosts.serve(), hosts.call());
    hosts.wait_for_paths(2);
    let mut stream = hosts.connect();
    echo(&mut stream, 100_000);

    calling.kill();
    assert_eq!(host(laptop), before[0], "what a killed tunnel left");
    let calling = hosts.call();
    echo(&mut stream, 1_000_000);
    hosts.wait_for_paths(2);

    serving.kill();
    assert_eq!(host(server), before[1], "what a killed tunnel left");
    let serving = hosts.serve();
    echo(&mut stream, 1_000_000);

    // Both paths are pulled for some seconds while data flows.
    let moving = thread::spawn(move || {
        echo(&mut stream, 1_000_000);
        stream
    });
    for path in 0..2 {
        hosts.set_up(path, false);
    }
    thread::sleep(Duration::from_secs(3));
    for path in 0..2 {
        hosts.set_up(path, true);
    }
    let mut stream = moving.join().expect("the connection goes on");
    echo(&mut stream, 100_000);
    drop((serving, calling, stream));
    until("the end", || (host(laptop) == before[0] && host(server) == before[1]).then_some(()));
}

/// A host beyond one of the two, by a cable of its own: `near` is the interface of the one.
fn attach(one: &Namespace, near: &str, near_address: IpAddr, far_address: IpAddr) -> Namespace {
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

fn append(folder: &Path, file: &str, text: &str) {
    let path = folder.join(file);
    let before = fs::read_to_string(&path).expect("a file");
    fs::write(path, format!("{before}\n{text}")).expect("a file");
}

#[test]
fn a_lan_reaches_the_internet_through_both_ends_and_on_after_a_kill() {
    if !is_root_or_skip("a LAN behind a tunnel") {
        return;
    }
    let hosts = Hosts::new();
    let (laptop, server) = (&hosts.testbed.client, &hosts.testbed.server);
    let address = |text: &str| text.parse::<IpAddr>().expect("an address");
    let in_lan = attach(laptop, "lan0", address("192.168.7.1"), address("192.168.7.2"));
    // It has no route back, neither to the tunnel nor to the LAN.
    let internet = attach(server, "wan0", address("203.0.113.1"), address("203.0.113.2"));
    let lead =
        || Netlink::new()?.add_route("eth0", (address("0.0.0.0"), 0), Some(address("192.168.7.1")), None);
    in_lan.run(lead).expect("the namespace").expect("a route");
    append(hosts.server.path(), "server.toml", "[forward]\ninternet = true\n");
    append(hosts.laptop.path(), "laptop.toml", "[forward]\nlan = [\"lan0\"]\n");
    let file = hosts.laptop.path().join("laptop.toml");
    let text = fs::read_to_string(&file).expect("a file");
    let routes = "allowed-ips = [\"10.99.0.0/24\", \"203.0.113.0/24\"]";
    fs::write(&file, text.replace("allowed-ips = [\"10.99.0.0/24\"]", routes)).expect("a file");

    let before = [laptop, server].map(host);
    let (serving, calling) = (hosts.serve(), hosts.call());
    hosts.wait_for_paths(2);
    let place: SocketAddr = ([203, 0, 113, 2], 7_000).into();
    let (mut stream, peer) = connect(&in_lan, &internet, place);
    assert_eq!(peer.ip(), address("203.0.113.1"), "the server's address is seen");
    echo(&mut stream, 1_000_000);
    let mss = SockRef::from(&stream).tcp_mss().expect("a connection");
    assert!(mss <= 1_360, "segments of {mss} bytes do not fit into the tunnel");
    // A connection goes on when either end is killed and starts again.
    calling.kill();
    let calling = hosts.call();
    echo(&mut stream, 100_000);
    serving.kill();
    let serving = hosts.serve();
    echo(&mut stream, 100_000);

    // What is left is undone by `down`.
    calling.kill();
    serving.kill();
    assert!(host(laptop).contains("polypath-tunnel-polypath-vpn"), "{}", host(laptop));
    for (namespace, folder) in [(laptop, &hosts.laptop), (server, &hosts.server)] {
        let down = namespace.run(|| command(folder.path(), "polypath tunnel down").output());
        let said = down.expect("the namespace").expect("it starts");
        assert!(String::from_utf8_lossy(&said.stderr).contains("had been killed"), "{said:?}");
    }
    assert_eq!([laptop, server].map(host), before);
}

/// The first peer's path over an interface.
fn path_over(status: &Value, interface: &str) -> Value {
    let paths = status[0]["peers"][0]["paths"].as_array().cloned().unwrap_or_default();
    paths.into_iter().find(|path| path["interface"] == interface).unwrap_or_default()
}

#[test]
fn a_running_server_takes_a_new_peer() {
    if !is_root_or_skip("a peer that is added to a running tunnel") {
        return;
    }
    let hosts = Hosts::new();
    let (serving, calling) = (hosts.serve(), hosts.call());
    hosts.wait_for_paths(2);
    let mut stream = hosts.connect();
    echo(&mut stream, 10_000);
    let handshake = || status(hosts.server.path())[0]["peers"][0]["keys_age_seconds"].as_f64().expect("keys");
    let before = handshake();

    let folder = hosts.server.path();
    let line = "polypath tunnel add-peer server.toml --label second --out second.toml";
    let added = command(folder, line).output().expect("it starts");
    let said = String::from_utf8_lossy(&added.stderr);
    assert!(said.contains("added 10.99.0.3 to server.toml; polypath-vpn has taken it"), "{said}");
    let address = |text: &str| text.parse::<IpAddr>().expect("an address");
    let second = attach(&hosts.testbed.server, "cable0", address("10.78.0.1"), address("10.78.0.2"));
    let lead =
        || Netlink::new()?.add_route("eth0", (address("0.0.0.0"), 0), Some(address("10.78.0.1")), None);
    second.run(lead).expect("the namespace").expect("a route");
    let place = tempfile::tempdir().expect("a folder");
    fs::copy(folder.join("second.toml"), place.path().join("second.toml")).expect("a file");
    let also_calling = start(&second, &mut command(place.path(), "polypath tunnel up second.toml"));
    until("the new peer's path", || (used_paths(place.path()) > 0).then_some(()));
    let beside = SocketAddr::new(INSIDE.ip(), INSIDE.port() + 1);
    echo(&mut connect(&second, &hosts.testbed.server, beside).0, 10_000);

    // The other's session has not begun anew.
    echo(&mut stream, 10_000);
    assert!(handshake() >= before, "{} s, and {before} s before", handshake());

    // It is taken out again.
    let file = folder.join("server.toml");
    let text = fs::read_to_string(&file).expect("a file");
    let (without, _) = text.split_at(text.rfind("[[peers]]").expect("a peer"));
    fs::write(&file, without).expect("a file");
    assert_eq!(must(&mut command(folder, "polypath tunnel reload")), "second is gone\n");
    assert_eq!(status(folder)[0]["peers"].as_array().map(Vec::len), Some(1));
    echo(&mut stream, 10_000);
    fs::write(&file, "wrong").expect("a file");
    let refused = command(folder, "polypath tunnel reload").output().expect("it starts");
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    echo(&mut stream, 10_000);
    drop((serving, calling, also_calling));
}

#[test]
fn a_daily_budget_survives_a_kill() {
    if !is_root_or_skip("a tunnel with a budget") {
        return;
    }
    let hosts = Hosts::new();
    let folder = hosts.laptop.path();
    append(folder, "laptop.toml", "[uplinks]\ninterfaces = [\"path0\", \"path1,budget=1MB/day\"]\n");
    let (serving, calling) = (hosts.serve(), hosts.call());
    hosts.wait_for_paths(2);
    let left = |status: &Value| status[0]["budgets"][0]["left_bytes"].as_u64().expect("a budget");
    assert!(left(&status(folder)) > 900_000, "{}", status(folder));
    hosts.set_up(0, false);
    let mut stream = hosts.connect();
    echo(&mut stream, 600_000);
    until("the budget's end", || (path_over(&status(folder), "path1")["state"] == "backup").then_some(()));
    assert_eq!(left(&status(folder)), 0);
    // It is the only one, and goes on as a backup.
    echo(&mut stream, 10_000);

    calling.kill();
    hosts.set_up(0, true);
    let calling = hosts.call();
    hosts.wait_for_paths(1);
    let status = status(folder);
    assert_eq!(left(&status), 0);
    assert_eq!(path_over(&status, "path0")["state"], "used");
    until("the other path", || {
        (path_over(&self::status(folder), "path1")["state"] == "backup").then_some(())
    });
    let words = must(&mut command(folder, "polypath tunnel status"));
    assert!(words.contains("path1: 0 B of 1.0 MB/day left"), "{words}");
    drop((serving, calling));
}

#[test]
fn a_name_is_looked_up_again_when_the_peer_is_silent() {
    if !is_root_or_skip("a server whose address changes") {
        return;
    }
    let mut hosts = Hosts::new();
    let folder = hosts.laptop.path();
    let file = folder.join("laptop.toml");
    let text = fs::read_to_string(&file).expect("a file");
    let (before, after) = (text.find("endpoints").expect("a key"), text.find("allowed-ips").expect("a key"));
    let text = format!("{}endpoints = [\"vpn.test\"]\n{}", &text[..before], &text[after..]);
    fs::write(&file, text).expect("a file");
    let names = folder.join("hosts");
    let name = |path| fs::write(&names, format!("{} vpn.test\n", Testbed::server_v4(path))).expect("a file");
    name(0);
    // A view of the file system in which names are known by that file.
    let program = env!("CARGO_BIN_EXE_polypath");
    let script = format!("mount --bind hosts /etc/hosts && exec {program} tunnel up laptop.toml");
    hosts.up[1] = format!("unshare --mount bash -c '{script}'");
    let (serving, calling) = (hosts.serve(), hosts.call());
    hosts.wait_for_paths(1);
    let mut stream = hosts.connect();
    echo(&mut stream, 10_000);
    assert_eq!(path_over(&status(hosts.laptop.path()), "path0")["state"], "used");

    let gone = || Netlink::new()?.remove_address("path0", Testbed::server_v4(0).into());
    hosts.testbed.server.run(gone).expect("the namespace").expect("the address goes");
    name(1);
    echo(&mut stream, 10_000);
    assert_eq!(path_over(&status(hosts.laptop.path()), "path1")["state"], "used");
    drop((serving, calling));
}

#[test]
fn a_peers_file_is_drawn_and_addresses_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    must(&mut command(
        folder,
        "polypath tunnel keygen server.toml --endpoint vpn.test --address 10.99.0.1/30",
    ));
    let file = folder.join("server.toml");
    let text = fs::read_to_string(&file).expect("a file");
    fs::write(&file, format!("# Mine.\n{text}")).expect("a file");
    let line = "polypath tunnel add-peer server.toml --label phone --wireguard --dns 10.99.0.1 --qr";
    let drawn = must(&mut command(folder, line));
    let (text, code) = drawn.split_once("PersistentKeepalive = 25\n").expect("WireGuard's file");
    assert!(text.contains("Address = 10.99.0.2/30\nDNS = 10.99.0.1\nMTU = 1400\n"), "{text}");
    let widths: Vec<_> = code.lines().map(|line| line.chars().count()).collect();
    assert!(widths.len() > 20 && widths.iter().all(|width| *width == widths[0]), "{code}");
    // What people wrote stays.
    let text = fs::read_to_string(&file).expect("a file");
    assert!(text.starts_with("# Mine.\n") && text.contains("name = \"phone\""), "{text}");

    let full = command(folder, "polypath tunnel add-peer server.toml").output().expect("it starts");
    let said = String::from_utf8_lossy(&full.stderr);
    assert_eq!(full.status.code(), Some(2), "{full:?}");
    assert!(said.contains("server.toml, interface.addresses: no address of 10.99.0.1/30 is free"), "{said}");
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
