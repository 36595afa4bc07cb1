//! A proxy on a router takes the connections of clients that know of none, and leaves nothing behind. Needs root; what is missing is said.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use polypath_system::Namespace;
use polypath_testbed::{Testbed, is_root_or_skip};
use serde_json::Value;

/// Nothing here takes longer, unless it hangs.
const LIMIT: Duration = Duration::from_secs(60);
/// The server's, and those that it sees of the router.
const SERVERS: [&str; 2] = ["192.0.2.9", "2001:db8::9"];
const ROUTERS: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
const CLIENTS: [&str; 2] = ["10.1.0.2", "fd01::2"];
const KINDS: [&str; 2] = ["tproxy", "redirect"];

/// A client behind a router that forwards what nobody intercepts, to a server that says who it sees and then says what it hears.
struct Scene {
    testbed: Testbed,
    folder: tempfile::TempDir,
}

impl Scene {
    fn new_or_skip(what: &str) -> Option<Self> {
        if !is_root_or_skip(what) {
            return None;
        }
        let testbed = Testbed::with_middle(1).expect("namespaces");
        let scene = Self { testbed, folder: tempfile::tempdir().expect("a folder") };
        let device = |name: &str, v4: &str, v6: &str| {
            format!(
                "ip addr flush dev {name}; ip addr add {v4}/24 dev {name}; ip addr add {v6}/64 dev {name} nodad"
            )
        };
        let to =
            |v4: &str, v6: &str| format!("ip route add default via {v4}; ip -6 route add default via {v6}");
        let [v4, v6] = CLIENTS;
        let client = [device("path0", v4, v6), to("10.1.0.1", "fd01::1")].join("; ");
        shell(&scene.testbed.client, &client);
        let [v4, v6] = SERVERS;
        let [router_v4, router_v6] = ROUTERS;
        shell(&scene.testbed.server, &[device("path0", v4, v6), to(router_v4, router_v6)].join("; "));
        let router = [
            device("client0", "10.1.0.1", "fd01::1"),
            device("server0", router_v4, router_v6),
            to(v4, v6),
            "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding".into(),
        ];
        shell(scene.router(), &router.join("; "));
        for server in SERVERS {
            for port in [80, 81] {
                scene.serve(SocketAddr::new(address(server), port));
            }
        }
        Some(scene)
    }

    fn router(&self) -> &Namespace {
        self.testbed.middle.as_ref().expect("a middle")
    }

    fn serve(&self, at: SocketAddr) {
        let listener =
            self.testbed.server.run(|| TcpListener::bind(at)).expect("a namespace").expect("a server");
        spawn(move || {
            for stream in listener.incoming().flatten() {
                spawn(move || {
                    let (mut from, mut to) = (&stream, &stream);
                    let peer = stream.peer_addr()?;
                    to.write_all(format!("{}\n", peer.ip()).as_bytes())?;
                    std::io::copy(&mut from, &mut to)?;
                    stream.shutdown(Shutdown::Write)
                });
            }
        });
    }

    /// A connection of the client, and whom the server sees.
    fn ask(&self, to: SocketAddr) -> (BufReader<TcpStream>, IpAddr) {
        let connect = || TcpStream::connect_timeout(&to, LIMIT);
        let stream = self.testbed.client.run(connect).expect("a namespace").expect("a connection");
        stream.set_read_timeout(Some(LIMIT)).expect("a time");
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).expect("a line");
        (stream, line.trim().parse().unwrap_or_else(|_| panic!("no address: {line:?} of {to}")))
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
        command.arg("proxy").args(words).current_dir(self.folder.path());
        command.env("POLYPATH_RUNTIME_DIR", self.folder.path().join("records"));
        command
    }

    fn write(&self, entrances: &str) {
        fs::write(self.folder.path().join("proxy.toml"), entrances).expect("a file");
    }

    /// A proxy with the file, once it listens.
    fn start(&self, more: &[&str]) -> Running {
        let engine: &[&str] = if more.contains(&"--engine") { &[] } else { &["--engine", "tcp"] };
        let mut command = self.command(&["--no-config", "proxy.toml"]);
        let complaints =
            fs::File::options().create(true).append(true).open(self.folder.path().join("complaints"));
        command.args(engine).args(more).stdout(Stdio::piped()).stderr(complaints.expect("a file"));
        let mut child = self.router().run(|| command.spawn()).expect("a namespace").expect("a proxy");
        let said = BufReader::new(child.stdout.take().expect("its output"));
        let mut running = Running { child, said };
        let line = running.line();
        assert!(line.starts_with("Clients of transparent enter at"), "{line}{}", self.complaints());
        running
    }

    /// What proxies and their guardians have complained of.
    fn complaints(&self) -> String {
        fs::read_to_string(self.folder.path().join("complaints")).expect("a file")
    }

    /// What a command says, at the router.
    fn run(&self, words: &[&str]) -> Output {
        let mut command = self.command(words);
        self.router().run(|| command.output()).expect("a namespace").expect("it runs")
    }

    fn done(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    fn refused(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(!output.status.success(), "{words:?}");
        String::from_utf8(output.stderr).expect("text")
    }

    /// All that interception sets up, as text.
    fn network(&self) -> String {
        let script =
            "ip rule; ip -6 rule; ip route show table all; ip -6 route show table all; nft list ruleset";
        shell(self.router(), script)
    }

    fn wait_until(&self, what: &str, network: &str) {
        let deadline = Instant::now() + LIMIT;
        while self.network() != network {
            assert!(Instant::now() < deadline, "expected {what}: {}", self.network());
            sleep(Duration::from_millis(20));
        }
    }
}

/// A proxy, which ends with this.
struct Running {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Running {
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("a line");
        line
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn shell(namespace: &Namespace, script: &str) -> String {
    let output = namespace.run(|| Command::new("sh").args(["-ec", script]).output());
    let output = output.expect("a namespace").expect("the shell");
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn entrance(kind: &str, ports: &str) -> String {
    format!(
        "[[entrances]]\nprotocol = \"transparent\"\nlisten = \"8877\"\nintercept = \"{kind}\"\nports = [{ports}]\n"
    )
}

/// What goes to a server and comes back.
fn echo(stream: &mut BufReader<TcpStream>, word: &[u8]) {
    stream.get_mut().write_all(word).expect("it is sent");
    let mut heard = vec![0; word.len()];
    stream.read_exact(&mut heard).expect("it comes back");
    assert_eq!(heard, word);
}

#[test]
fn clients_that_know_of_no_proxy_come_through_it_and_nothing_is_left() {
    let Some(scene) = Scene::new_or_skip("interception by the proxy") else { return };
    let data: Vec<u8> = (0..300_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let before = scene.network();
    for (kind, accept, engine) in [
        ("tproxy", "kernel", "tcp"),
        ("tproxy", "tcp", "tcp"),
        ("redirect", "kernel", "tcp"),
        ("tproxy", "kernel", "tun"),
    ] {
        scene.write(&entrance(kind, "\"80\""));
        let mut proxy = scene.start(&["--accept", accept, "--engine", engine]);
        for family in [0, 1] {
            let server = SocketAddr::new(address(SERVERS[family]), 80);
            let (mut stream, seen) = scene.ask(server);
            assert_eq!(seen, address(ROUTERS[family]), "{kind}: the proxy's own connection");
            let mut sending = stream.get_ref().try_clone().expect("the same connection");
            let sent = data.clone();
            let sending = spawn(move || {
                sending.write_all(&sent).expect("it is sent");
                sending.shutdown(Shutdown::Write)
            });
            let mut heard = Vec::new();
            stream.read_to_end(&mut heard).expect("all of it");
            sending.join().expect("no panic").expect("an end");
            assert!(heard == data, "{kind}: {} bytes of {server}", heard.len());
            let told = proxy.line();
            let (client, end) = (CLIENTS[family], format!("to {server}, tcp to tcp, 300000 bytes up"));
            assert!(told.contains(client) && told.contains(&end) && told.contains(": ended"), "{told}");

            let (_, seen) = scene.ask(SocketAddr::new(address(SERVERS[family]), 81));
            assert_eq!(seen, address(CLIENTS[family]), "{kind}: another port is let through");
        }
        let status: Value = serde_json::from_str(&scene.done(&["status", "--json"])).expect("JSON");
        let said = status[0]["listeners"][0]["intercepted"].as_str().expect("which are intercepted");
        assert!(said.ends_with(" on the way to ports 80"), "{said}");
        assert_eq!(scene.done(&["down"]), "");
        assert!(proxy.child.wait().expect("an end").success());
        assert_eq!(scene.network(), before, "{kind}, {engine}");
    }
}

#[test]
fn who_asks_for_the_proxy_itself_is_refused() {
    let Some(scene) = Scene::new_or_skip("connections to an intercepting proxy itself") else { return };
    for kind in KINDS {
        scene.write(&entrance(kind, ""));
        let mut proxy = scene.start(&[]);
        for router in ["10.1.0.1", "fd01::1"] {
            let connect = || TcpStream::connect_timeout(&SocketAddr::new(address(router), 8877), LIMIT);
            let refused =
                scene.testbed.client.run(connect).expect("a namespace").expect_err("nobody is led there");
            assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused, "{kind}, {router}");
        }
        if kind == "tproxy" {
            let itself = scene.router().run(|| TcpStream::connect(("127.0.0.1", 8877)));
            let mut itself = itself.expect("a namespace").expect("a connection");
            let end = itself.read(&mut [0]).map_err(|error| error.kind());
            assert_eq!(end, Err(std::io::ErrorKind::ConnectionReset));
            let told = proxy.line();
            assert!(told.contains("it asked for the proxy itself"), "{told}");
        }
        assert_eq!(scene.done(&["down"]), "");
    }
}

#[test]
fn another_file_changes_what_is_intercepted_and_who_is_within_stays() {
    let Some(scene) = Scene::new_or_skip("a change of what is intercepted") else { return };
    for kind in KINDS {
        scene.write(&entrance(kind, "\"80\""));
        let mut proxy = scene.start(&[]);
        let at = |family: usize, port| SocketAddr::new(address(SERVERS[family]), port);
        let mut within = [0, 1].map(|family| scene.ask(at(family, 80)));
        within.iter_mut().for_each(|(stream, _)| echo(stream, b"before"));

        scene.write(&(entrance(kind, "\"80\"") + "interfaces = [\"lan7\"]\n"));
        let mistake = scene.refused(&["reload"]);
        assert!(mistake.contains("there is no interface lan7; present are: "), "{mistake}");
        assert_eq!(scene.ask(at(0, 80)).1, address(ROUTERS[0]), "all stays as it was");

        scene.write(&entrance(kind, "\"81\""));
        let said = scene.done(&["reload"]);
        assert!(said.contains("on the way to ports 81\n") && !said.contains("Nobody enters"), "{said}");
        for family in [0, 1] {
            assert_eq!(scene.ask(at(family, 80)).1, address(CLIENTS[family]), "{kind}");
            assert_eq!(scene.ask(at(family, 81)).1, address(ROUTERS[family]), "{kind}");
        }
        within.iter_mut().for_each(|(stream, _)| echo(stream, b"after"));

        // Those within finish, also once nobody else is led here.
        let mut down = scene.command(&["down"]);
        let mut down = scene.router().run(|| down.spawn()).expect("a namespace").expect("it runs");
        while scene.ask(at(0, 81)).1 != address(CLIENTS[0]) {
            sleep(Duration::from_millis(20));
        }
        for (mut stream, _) in within {
            echo(&mut stream, b"at the end");
        }
        assert!(down.wait().expect("an end").success());
        assert!(proxy.child.wait().expect("an end").success());
    }
}

#[test]
fn what_a_killed_proxy_intercepted_is_undone_and_nothing_is_there_twice() {
    let Some(scene) = Scene::new_or_skip("an intercepting proxy that is killed") else { return };
    let before = scene.network();
    for kind in KINDS {
        scene.write(&entrance(kind, "\"80\""));
        let first = scene.start(&[]);
        let during = scene.network();
        assert_ne!(during, before);
        // SIGKILL.
        drop(first);
        let second = scene.start(&[]);
        // The guardian of the first may not have looked yet.
        let deadline = Instant::now() + LIMIT;
        while scene.network().lines().count() != during.lines().count() {
            assert!(Instant::now() < deadline, "{kind}: {} after {during}", scene.network());
            sleep(Duration::from_millis(20));
        }
        assert_eq!(scene.ask(SocketAddr::new(address(SERVERS[0]), 80)).1, address(ROUTERS[0]));
        drop(second);
        scene.wait_until("the network as it was", &before);
        assert_eq!(scene.complaints(), "", "{kind}");
    }
}

#[test]
fn what_is_needed_is_said() {
    let Some(scene) = Scene::new_or_skip("what interception needs") else { return };
    let without_rights = || {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-net_admin", "--inh-caps=-net_admin", env!("CARGO_BIN_EXE_polypath")]);
        command.args(["proxy", "--no-config", "--transparent", "8877", "--engine", "tcp"]);
        command.env("POLYPATH_RUNTIME_DIR", scene.folder.path().join("records")).output()
    };
    let said = scene.router().run(without_rights).expect("a namespace").expect("setpriv");
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(
        said.contains("needs the capability CAP_NET_ADMIN: run as root, or have clients use --socks"),
        "{said}"
    );

    let engine = scene.refused(&["--transparent", "8877", "--accept", "engine"]);
    assert!(engine.contains("only connections of the kernel can be intercepted"), "{engine}");
    shell(scene.router(), "ip route add default via 10.1.0.1 metric 2000");
    let nobody = scene.refused(&["--no-config", "--transparent", "8877", "--engine", "tcp"]);
    assert!(nobody.contains("expected the interfaces or networks of clients"), "{nobody}");
}
