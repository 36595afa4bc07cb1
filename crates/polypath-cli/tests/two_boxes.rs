//! The guide's laptop with two uplinks and its small server, run as the guide says, before a server that knows TCP alone. Needs root; what is missing is
//! said.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use polypath_system::Namespace;
use polypath_testbed::{Testbed, is_root_or_skip};
use rustix::process::{Pid, Signal, kill_process};

const GUIDE: &str = include_str!("../../../docs/guide/src/proxy.md");
const SECTION: &str = "## A laptop and a small server\n";
/// Nothing here takes longer, unless it hangs.
const LIMIT: Duration = Duration::from_secs(60);
/// The address that the guide's file reaches the converter at, and its router, where a server is.
const CONVERTER: &str = "192.0.2.1";
const SERVER: &str = "192.0.2.254";
/// Addresses of the laptop in the networks that the guide's file lets in.
const UPLINKS: [&str; 2] = ["198.51.100", "203.0.113"];
const FILE_BYTES: usize = 24 << 20;

/// What the guide has of its two boxes: the files, each with the command that runs it.
fn files_and_commands() -> Vec<(String, Vec<&'static str>)> {
    let (_, section) = GUIDE.split_once(SECTION).expect("the section");
    let section = section.split("\n## ").next().expect("its text");
    let mut found = Vec::new();
    let mut command = None;
    let mut blocks = section.split("```");
    while let (Some(text), block) = (blocks.next(), blocks.next()) {
        let named = text.split('`').rfind(|words| words.starts_with("polypath proxy "));
        command = named.or(command);
        if let Some(file) = block.and_then(|block| block.strip_prefix("toml kind=proxy\n")) {
            let words = command.take().expect("a command before the file").split(' ').collect();
            found.push((file.to_owned(), words));
        }
    }
    found
}

/// A program, which ends with this.
struct Running {
    child: Child,
    _said: BufReader<ChildStdout>,
}

impl Running {
    /// Runs a command of the guide in a folder with its file, until clients can enter.
    fn new(at: &Namespace, folder: &Path, (file, words): &(String, Vec<&str>)) -> Self {
        let [program, "proxy", name, ..] = words[..] else { panic!("{words:?}: no proxy with a file") };
        assert_eq!(program, "polypath");
        fs::create_dir(folder).expect("a folder");
        fs::write(folder.join(name), file).expect("a file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
        command.args(&words[1..]).current_dir(folder).stdout(Stdio::piped());
        // Nobody's own configuration, and no proxy that runs besides.
        command.env("POLYPATH_RUNTIME_DIR", folder).env("XDG_CONFIG_HOME", folder);
        let mut child = at.run(|| command.spawn()).expect("a namespace").expect("a proxy");
        let mut said = BufReader::new(child.stdout.take().expect("its output"));
        let mut line = String::new();
        said.read_line(&mut line).expect("a line");
        assert!(line.starts_with("Clients of"), "{line}");
        Self { child, _said: said }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // In order, so that what an engine has set up is taken down.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

fn shell(at: &Namespace, script: &str) {
    let run = || Command::new("sh").args(["-e", "-c", script]).status();
    let status = at.run(run).expect("a namespace").expect("a shell");
    assert!(status.success(), "{script}");
}

/// Octets that came by each of the laptop's uplinks.
fn came(laptop: &Namespace) -> [u64; 2] {
    let read = || fs::read_to_string("/proc/thread-self/net/dev");
    let text = laptop.run(read).expect("a namespace").expect("its interfaces");
    [0, 1].map(|path| {
        let name = format!("{}:", Testbed::interface(path));
        let line = text.lines().find_map(|line| line.trim_start().strip_prefix(&name)).expect("an uplink");
        line.split_whitespace().next().and_then(|octets| octets.parse().ok()).expect("octets")
    })
}

#[test]
fn the_guide_has_two_files_and_their_commands() {
    let commands: Vec<String> = files_and_commands().into_iter().map(|(_, words)| words.join(" ")).collect();
    let expected = ["polypath proxy converter.toml --engine tcp", "polypath proxy laptop.toml"];
    assert_eq!(commands, expected);
}

/// The laptop, the box and the internet between them, with a server there that knows TCP alone.
struct Scene {
    testbed: Testbed,
    server: TcpListener,
}

impl Scene {
    fn new() -> Self {
        let testbed = Testbed::with_middle(2).expect("namespaces");
        let (laptop, box_ns) = (&testbed.client, &testbed.server);
        let internet = testbed.middle.as_ref().expect("a middle");
        for (path, network) in UPLINKS.iter().enumerate() {
            shell(
                laptop,
                &format!(
                    "ip addr flush dev path{path}; ip addr add {network}.2/24 dev path{path}
                     ip route add default via {network}.1 dev path{path} metric {path}00"
                ),
            );
            // Slow enough that one does not do.
            shell(
                internet,
                &format!(
                    "ip addr add {network}.1/24 dev client{path}
                     tc qdisc add dev client{path} root tbf rate 100mbit burst 32kb latency 50ms"
                ),
            );
        }
        shell(
            box_ns,
            &format!(
                "ip addr flush dev path0; ip addr add {CONVERTER}/24 dev path0; ip route add default via {SERVER}"
            ),
        );
        shell(
            internet,
            &format!("ip addr add {SERVER}/24 dev server0; echo 1 > /proc/sys/net/ipv4/ip_forward"),
        );
        let server = internet.run(|| TcpListener::bind((SERVER, 0))).expect("a namespace").expect("a server");
        Self { testbed, server }
    }

    /// A file, as the laptop's client of SOCKS asks the server for it and gets it.
    fn fetch(&self, file: &[u8]) {
        let stream = self.testbed.client.run(|| TcpStream::connect(("127.0.0.1", 1080)));
        let mut stream = stream.expect("a namespace").expect("a connection");
        stream.set_read_timeout(Some(LIMIT)).expect("a time");
        let address: std::net::Ipv4Addr = SERVER.parse().expect("an address");
        let port = self.server.local_addr().expect("its address").port();
        let asked = [&[5, 1, 0, 5, 1, 0, 1][..], &address.octets(), &port.to_be_bytes()].concat();
        stream.write_all(&asked).expect("it is sent");
        let heard = std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, from) = self.server.accept().expect("a connection");
                assert_eq!(from.ip().to_string(), CONVERTER, "the server sees the converter");
                stream.read_exact(&mut [0; 4]).expect("a question");
                stream.write_all(file).expect("it is sent");
            });
            let mut reply = [0; 12];
            stream.read_exact(&mut reply).expect("a reply");
            assert_eq!(reply[..4], [5, 0, 5, 0]);
            stream.write_all(b"file").expect("it is sent");
            let mut heard = Vec::new();
            stream.read_to_end(&mut heard).expect("all of it");
            heard
        });
        assert!(heard == file, "{} of {} bytes", heard.len(), file.len());
    }
}

#[test]
fn a_laptop_and_a_small_server_do_as_the_guide_says() {
    if !is_root_or_skip("the guide's two boxes") {
        return;
    }
    // Without it the laptop takes an engine that needs no rules, and has one uplink.
    if Command::new("nft").arg("--version").output().is_err() {
        eprintln!("SKIPPED the guide's two boxes: nft is missing (apt-get install nftables)");
        return;
    }
    let scene = Scene::new();
    let laptop = &scene.testbed.client;
    let file: Vec<u8> =
        (0..FILE_BYTES as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();

    let folder = tempfile::tempdir().expect("a folder");
    let [converter, client] = &files_and_commands()[..] else { panic!("expected two files") };
    let _converter = Running::new(&scene.testbed.server, &folder.path().join("server"), converter);
    let _laptop = Running::new(laptop, &folder.path().join("laptop"), client);

    let before = came(laptop);
    scene.fetch(&file);
    let after = came(laptop);
    let shares = [0, 1].map(|path| (after[path] - before[path]) as f64 / FILE_BYTES as f64);
    eprintln!("each uplink carried {shares:.2?} of the file");
    assert!(shares.iter().all(|share| *share > 0.1), "{shares:?}");
}

#[test]
fn a_converter_is_asked_in_the_first_packet() {
    if !is_root_or_skip("TCP Fast Open to a converter") {
        return;
    }
    let scene = Scene::new();
    let box_ns = &scene.testbed.server;
    shell(&scene.testbed.client, "echo 1 > /proc/sys/net/ipv4/tcp_fastopen");
    shell(box_ns, "echo 3 > /proc/sys/net/ipv4/tcp_fastopen");
    let folder = tempfile::tempdir().expect("a folder");
    let [mut converter, mut client] = <[_; 2]>::try_from(files_and_commands()).expect("two files");
    converter.1.extend(["--accept", "tcp", "--fast-open"]);
    client.1.extend(["--engine", "tcp", "--fast-open"]);
    let _converter = Running::new(box_ns, &folder.path().join("server"), &converter);
    let _laptop = Running::new(&scene.testbed.client, &folder.path().join("laptop"), &client);
    // With the first it gives its cookie.
    for asked_fast in 0..3_u64 {
        scene.fetch(b"a short one");
        shell(
            box_ns,
            &format!("nstat -asz TcpExtTCPFastOpenPassive | grep -q 'TCPFastOpenPassive *{asked_fast} '"),
        );
    }
}
