//! A proxy that runs is looked at, limited and ended.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

/// A proxy with a folder of its own, which ends with the test.
struct Fixture {
    folder: PathBuf,
    child: Child,
    /// What it says once it runs.
    said: BufReader<std::process::ChildStdout>,
    at: SocketAddr,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn command(folder: &PathBuf) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
    command.arg("proxy").env("POLYPATH_RUNTIME_DIR", folder).current_dir(folder);
    command.env("POLYPATH_STATE_DIR", folder.join("state"));
    command
}

impl Fixture {
    fn new(name: &str, file: impl FnOnce(SocketAddr) -> String) -> (Self, TcpListener) {
        Self::started(name, file, command)
    }

    /// One that a command starts, to which the rest of the words are added.
    fn started(
        name: &str,
        file: impl FnOnce(SocketAddr) -> String,
        start: impl FnOnce(&PathBuf) -> Command,
    ) -> (Self, TcpListener) {
        // Where a user without rights can read.
        let folder = std::env::temp_dir().join(format!("polypath-proxy-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        let server = TcpListener::bind("127.0.0.1:0").expect("a server");
        let text = file(server.local_addr().expect("its address"));
        fs::write(folder.join("proxy.toml"), text).expect("a file");
        let mut starting = start(&folder);
        starting.args(["proxy.toml", "--engine", "tcp", "--accept", "tcp"]).stdout(Stdio::piped());
        let mut child = starting.spawn().expect("a proxy");
        let mut said = BufReader::new(child.stdout.take().expect("its output"));
        let mut line = String::new();
        said.read_line(&mut line).expect("a line");
        let at = line.split_whitespace().find_map(|word| word.parse().ok()).expect("where it listens");
        (Self { folder, child, said, at }, server)
    }

    fn run(&self, words: &[&str]) -> Output {
        command(&self.folder).args(words).output().expect("it runs")
    }

    /// What a command says that does what it is told.
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

    fn status(&self) -> Value {
        let reports: Value = serde_json::from_str(&self.done(&["status", "--json"])).expect("JSON");
        reports[0].clone()
    }

    /// What `polypath metrics` says of it.
    fn metrics(&self) -> String {
        let mut asking = Command::new(env!("CARGO_BIN_EXE_polypath"));
        asking.args(["metrics", "--once"]).env("POLYPATH_RUNTIME_DIR", &self.folder);
        String::from_utf8(asking.output().expect("it runs").stdout).expect("text")
    }

    /// What `polypath top` says in its second sample.
    fn top(&self) -> Value {
        let mut asking = Command::new(env!("CARGO_BIN_EXE_polypath"));
        asking.args(["top", "--json", "-n", "1", "-d", "0.1"]).env("POLYPATH_RUNTIME_DIR", &self.folder);
        let output = asking.output().expect("it runs");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Until a limit holds a connection back.
    fn held_back(&self) -> Value {
        loop {
            let status = self.status();
            let limits = status["limits"].as_array().expect("limits");
            if limits.iter().any(|limit| limit["waiting_flows"] != 0) {
                return status;
            }
            sleep(Duration::from_millis(10));
        }
    }
}

fn forward(server: SocketAddr) -> String {
    forward_at("0", server)
}

fn forward_at(listen: &str, server: SocketAddr) -> String {
    format!("[[entrances]]\nprotocol = \"forward\"\nlisten = \"{listen}\"\nto = \"{server}\"\n")
}

#[test]
fn a_connection_that_lives_is_seen_and_limited() {
    let (proxy, server) = Fixture::new("limited", forward);
    let mut client = TcpStream::connect(proxy.at).expect("a connection");
    let (mut stream, _) = server.accept().expect("its other end");
    stream.write_all(b"before").expect("it is sent");
    client.read_exact(&mut [0; 6]).expect("it comes");

    let said =
        proxy.done(&["set", "little", "--budget", "1000B", "--direction", "down", "--client", "127.0.0.1"]);
    assert_eq!(said, "limit little is new: clients 127.0.0.1, direction down, budget 1000B\n");
    stream.write_all(&[7; 5000]).expect("it is sent");
    let status = proxy.held_back();
    assert_eq!(status["name"], "proxy");
    assert_eq!(status["listeners"][0]["address"], proxy.at.to_string());
    let limit = &status["limits"][0];
    assert_eq!((&limit["limit"]["name"], &limit["used_bytes"]), (&"little".into(), &1000.into()));
    let connection = &status["connections"][0];
    assert_eq!(connection["client"], client.local_addr().expect("an address").to_string());
    assert_eq!(connection["to_client_bytes"], 1006);
    let side = &connection["server_side"];
    assert_eq!((&side["transport"], side["paths"].as_array().map(Vec::len)), (&"tcp".into(), Some(1)));
    let text = proxy.done(&["status", "--instance", "proxy"]);
    assert!(
        text.contains(
            "limit little, 1000B in 24h down for clients 127.0.0.1: of 1 flow, 1 waits, 1.0 kB used\n"
        ) && text.contains("server: tcp"),
        "{text}"
    );

    let metrics = proxy.metrics();
    for line in [
        "sessions{proxy=\"proxy\",protocol=\"forward\"} 1",
        "carried_bytes_total{proxy=\"proxy\",direction=\"down\"} 1006",
        "limit_flows{proxy=\"proxy\",limit=\"little\"} 1",
        "limit_waiting_flows{proxy=\"proxy\",limit=\"little\"} 1",
    ] {
        assert!(metrics.contains(&format!("\npolypath_proxy_{line}\n")), "{line}: {metrics}");
    }

    let top = proxy.top();
    let shown = &top["proxies"][0];
    assert_eq!((&shown["name"], &shown["pid"]), (&"proxy".into(), &proxy.child.id().into()), "{top}");
    assert_eq!(shown["limits"][0]["waiting_flows"], 1);
    let client_shown = &shown["clients"][0];
    assert_eq!(
        (&client_shown["protocol"], &client_shown["paths"][1]["side"]),
        (&"forward".into(), &"server".into())
    );
    assert_eq!(client_shown["target"], server.local_addr().expect("an address").to_string());

    client.read_exact(&mut [0; 1000]).expect("so much comes");
    assert_eq!(proxy.done(&["unset", "little"]), "limit little is gone\n");
    client.read_exact(&mut [0; 4000]).expect("the rest comes");
    drop((client, stream));
    let ended = "sessions_ended_total{proxy=\"proxy\",protocol=\"forward\",ending=\"complete\"} 1\n";
    while !proxy.metrics().contains(ended) {
        sleep(Duration::from_millis(10));
    }
    assert!(proxy.metrics().contains("direction=\"down\"} 5006\n"), "what it carried stays counted");
    let mut proxy = proxy;
    assert_eq!(proxy.done(&["down"]), "");
    assert!(proxy.child.wait().expect("an end").success());
    let mut rest = String::new();
    proxy.said.read_to_string(&mut rest).expect("its last words");
    assert!(rest.contains("5006 down"), "{rest}");
    assert_eq!(proxy.done(&["status"]), "no proxy runs\n");
}

#[test]
fn limits_of_the_file_come_and_go_with_it() {
    let throttle = |rate: &str| format!("[[throttle]]\nname = \"all\"\nrate = \"{rate}\"\n");
    let mut at = None;
    let (proxy, _server) = Fixture::new("file", |server| {
        at = Some(server);
        forward(server) + &throttle("5mbit")
    });
    let forward = forward(at.expect("an address"));
    let rate = |status: Value| status["limits"][0]["limit"]["rate"].clone();
    assert_eq!(rate(proxy.status()), "5mbit");
    let place = proxy.folder.join("proxy.toml");
    fs::write(&place, forward.clone() + &throttle("fast")).expect("a file");
    let mistake = proxy.refused(&["reload"]);
    assert!(mistake.contains("throttle[0].rate: \"fast\" has no number"), "{mistake}");
    assert_eq!(rate(proxy.status()), "5mbit");
    fs::write(&place, forward.clone() + &throttle("6mbit")).expect("a file");
    assert!(proxy.done(&["reload"]).starts_with("limit all has changed\n"));
    assert_eq!(rate(proxy.status()), "6mbit");
    // What is not named stays, and what is named lasts as long as the file is not read again.
    let said = proxy.done(&["set", "all", "--client", "192.0.2.0/24"]);
    assert_eq!(
        said,
        "limit all is changed until the file is read again: clients 192.0.2.0/24 (rate 6mbit stays)\n"
    );
    let said = proxy.done(&["set", "all", "--budget", "8MB", "--then", "1mbit"]);
    assert!(said.ends_with(": budget 8MB, then 1mbit (rate 6mbit, clients 192.0.2.0/24 stay)\n"), "{said}");
    let text = proxy.done(&["status"]);
    let line = "limit all, 6mbit, 8MB in 24h, then 1mbit for clients 192.0.2.0/24: of 0 flows";
    assert!(text.contains(line), "{text}");
    let said = proxy.done(&["set", "all", "--without", "client", "--without", "budget"]);
    assert!(said.ends_with(": no clients, no budget, for everybody (rate 6mbit stays)\n"), "{said}");
    assert!(proxy.refused(&["set", "all"]).contains("limit all stays as it is: expected what is to change"));
    let missing = "no path is over an interface that is called nowhere0 now";
    let said = proxy.done(&["set", "mine", "--rate", "1mbit", "--path", "nowhere0"]);
    assert_eq!(said, format!("limit mine is new: rate 1mbit, paths nowhere0, but {missing}\n"));
    fs::write(&place, forward + "[[rules]]\nverdict = \"deny\"\nusers = [\"ann\"]\n").expect("a file");
    let said = proxy.done(&["reload"]);
    let missing = [
        "rules[0] fits nobody by this name: there are no users, and none is called ann".into(),
        format!("limit mine: {missing}"),
    ];
    let expected = format!("limit all is gone\n{}\n{}\nthe file is read again", missing[0], missing[1]);
    assert!(said.starts_with(&expected), "{said}");
    let names = proxy.status();
    assert_eq!(names["warnings"], serde_json::json!(missing));
    let text = proxy.done(&["status"]);
    assert!(text.contains(&format!("  warning: {}\n", missing[1])), "{text}");
    assert_eq!((&names["limits"][0]["limit"]["name"], &names["limits"][1]), (&"mine".into(), &Value::Null));

    let mistake = proxy.refused(&["unset", "all"]);
    assert!(mistake.contains("no limit is called all: expected one of mine"), "{mistake}");
    assert!(proxy.refused(&["set", "nothing"]).contains("the limit says nothing"));
    assert!(proxy.refused(&["down", "--instance", "other"]).contains("no proxy named other runs"));
}

#[test]
fn a_converter_may_want_cookies() {
    let file = |_| {
        "access.default = \"deny\"\n[[entrances]]\nprotocol = \"convert\"\nlisten = \"0\"\ncookies = true\n"
            .to_owned()
    };
    let (proxy, _server) = Fixture::new("cookies", file);
    // RFC 8803: a header of one word, and a Connect TLV of five, to 192.0.2.1.
    let connect = [&[10, 5, 0, 80][..], &[0; 10], &[0xff, 0xff, 192, 0, 2, 1]].concat();
    let ask = |tlvs: &[u8]| {
        let mut stream = TcpStream::connect(proxy.at).expect("a connection");
        let words = 1 + u8::try_from(tlvs.len() / 4).expect("few");
        stream.write_all(&[&[1, words, 0x22, 0x63], tlvs].concat()).expect("room");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        answer
    };
    // An Error TLV: a missing cookie, and the one to be shown.
    let refused = ask(&connect);
    let [1, _, 0x22, 0x63, 0x1e, words, 3, _, cookie @ ..] = &refused[..] else { panic!("{refused:?}") };
    assert_eq!(cookie.len() + 4, usize::from(*words) * 4);
    // Who shows it is asked by the rules: not authorized.
    let refused = ask(&[&connect[..], &[0x16, *words, 0, 0], cookie].concat());
    assert!(matches!(refused[..], [1, _, 0x22, 0x63, 0x1e, _, 32, ..]), "{refused:?}");
}

#[test]
fn several_threads_serve_connections() {
    let start = |folder: &PathBuf| {
        let mut command = command(folder);
        command.args(["--threads", "2"]);
        command
    };
    let (proxy, server) = Fixture::started("threads", forward, start);
    // It answers each connection with what it was asked.
    std::thread::spawn(move || {
        for stream in server.incoming() {
            let mut stream = stream.expect("a connection");
            std::thread::spawn(move || {
                let mut asked = Vec::new();
                stream.read_to_end(&mut asked).expect("a question");
                stream.write_all(&asked).expect("an answer");
            });
        }
    });
    // Nanoseconds that threads beside the first have run.
    let ran = || {
        let tasks = fs::read_dir(format!("/proc/{}/task", proxy.child.id())).expect("its threads");
        let tasks = tasks.filter_map(|task| {
            let task = task.ok()?.path();
            let is_serving = fs::read_to_string(task.join("comm")).ok()?.starts_with("serving-");
            let figures = is_serving.then(|| fs::read_to_string(task.join("schedstat")))?.ok()?;
            figures.split(' ').next()?.parse::<u64>().ok()
        });
        tasks.collect::<Vec<_>>()
    };
    // Clients can enter a little before it begins.
    let tried = (0..1000).find_map(|_| {
        sleep(Duration::from_millis(10));
        ran().first().copied()
    });
    let before = tried.expect("a thread beside the first");
    std::thread::scope(|scope| {
        for number in 0..16_u8 {
            let at = proxy.at;
            scope.spawn(move || {
                let question = vec![number; 100_000];
                let mut stream = TcpStream::connect(at).expect("a connection");
                stream.write_all(&question).expect("room");
                stream.shutdown(std::net::Shutdown::Write).expect("an end");
                let mut answer = Vec::new();
                stream.read_to_end(&mut answer).expect("an answer");
                assert!(answer == question);
            });
        }
    });
    let [after] = ran()[..] else { panic!("one thread beside the first") };
    assert!(after > before, "it serves nobody");
    let said = proxy.refused(&["--threads", "2", "--engine", "udp", "--socks", "0"]);
    assert!(said.contains("--threads: expected --engine kernel or tcp"), "{said}");
}

/// So many bytes of an answer come, and no more for now.
fn hears(proxy: &Fixture, server: &TcpListener, bytes: usize) {
    let mut client = TcpStream::connect(proxy.at).expect("a connection");
    let (mut stream, _) = server.accept().expect("its other end");
    stream.write_all(&[7; 5000]).expect("it is sent");
    client.read_exact(&mut vec![0; bytes]).expect("so much comes");
    proxy.held_back();
    client.set_nonblocking(true).expect("a socket");
    assert!(client.read(&mut [0; 1]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock));
}

#[test]
fn what_is_used_of_a_budget_outlives_the_proxy() {
    let state = tempfile::tempdir().expect("a folder");
    // Where a user without rights can enter.
    fs::set_permissions(state.path(), fs::Permissions::from_mode(0o755)).expect("a folder");
    let budget = "[[throttle]]\nname = \"volume\"\nbudget = \"3000B\"\ndirection = \"down\"\n";
    let started = |user: Option<&str>| {
        let to = |server: SocketAddr| forward(server) + budget;
        let start = |folder: &PathBuf| {
            let mut starting = command(folder);
            starting.env("POLYPATH_STATE_DIR", state.path());
            user.map(|user| starting.args(["--user", user]));
            starting
        };
        Fixture::started("budget", to, start)
    };
    let end = |proxy: Fixture| {
        // The connections that wait are cut: a second word ends them at once.
        let mut first = command(&proxy.folder).arg("down").spawn().expect("it runs");
        sleep(Duration::from_millis(200));
        proxy.run(&["down"]);
        assert!(first.wait().expect("an end").success());
    };
    let (proxy, server) = started(None);
    hears(&proxy, &server, 3000);
    end(proxy);
    // Of the next one, nothing is left.
    let (proxy, server) = started(None);
    assert_eq!(proxy.status()["limits"][0]["used_bytes"], 3000);
    hears(&proxy, &server, 0);
    end(proxy);
    if !polypath_testbed::is_root_or_skip("a proxy that becomes another user") {
        return;
    }
    // What root wrote is that user's then, and what that user writes is root's again.
    for user in [Some("nobody"), None, Some("nobody")] {
        let (proxy, _server) = started(user);
        assert_eq!(proxy.status()["limits"][0]["used_bytes"], 3000, "{user:?}");
        end(proxy);
    }
}

#[test]
fn one_that_ends_says_for_how_many_it_waits() {
    says_for_how_many_it_waits(&["down"]);
    // Where several run, another one without the name would be refused.
    says_for_how_many_it_waits(&["down", "--instance", "proxy"]);
}

fn says_for_how_many_it_waits(words: &[&str]) {
    let draining = |server| forward(server) + "[timeouts]\ndraining = \"1h\"\n";
    let (mut proxy, server) = Fixture::new("ending", draining);
    let mut client = TcpStream::connect(proxy.at).expect("a connection");
    let (mut stream, _) = server.accept().expect("its other end");
    stream.write_all(b"hello").expect("it is sent");
    client.read_exact(&mut [0; 5]).expect("it comes");
    assert_eq!(proxy.status()["ending_within_seconds"], Value::Null);

    let mut first = command(&proxy.folder);
    let mut first = first.args(words).stderr(Stdio::piped()).spawn().expect("it runs");
    let mut said = String::new();
    let mut heard = BufReader::new(first.stderr.take().expect("its words"));
    heard.read_line(&mut said).expect("a line");
    let again = format!("another `polypath proxy {}` ends it at once", words.join(" "));
    let expected = format!("proxy waits for 1 connection to finish, for 3600 s at most; {again}");
    assert!(said.contains(&expected), "{said}");
    let status = proxy.status();
    let seconds = status["ending_within_seconds"].as_f64().expect("a number");
    assert!(seconds > 0.0 && seconds <= 3600.0, "{status}");
    assert_eq!(status["listeners"], serde_json::json!([]));
    let text = proxy.done(&["status"]);
    let process =
        format!("proxy: process {}, ending: nobody enters, and those within have ", proxy.child.id());
    assert!(text.starts_with(&process) && !text.contains("forward at"), "{text}");

    // Nobody is left to be waited for.
    let second = proxy.run(words);
    assert!(second.status.success() && second.stderr.is_empty(), "{second:?}");
    assert!(first.wait().expect("an end").success());
    assert!(proxy.child.wait().expect("an end").success());
}

/// As a service manager starts it: with a socket that listens as descriptor 3, and a socket to be told at.
fn handed_down(folder: &PathBuf, listener: OwnedFd, notified: &str) -> Command {
    let mut starting = Command::new("sh");
    let words = "exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$@\"";
    starting.args(["-c", words, "sh", env!("CARGO_BIN_EXE_polypath"), "proxy"]).stdin(listener);
    starting.env("POLYPATH_RUNTIME_DIR", folder).env("NOTIFY_SOCKET", notified).current_dir(folder);
    starting
}

#[test]
fn a_socket_that_is_handed_down_is_where_clients_enter() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let at = listener.local_addr().expect("its address");
    let to = |server: SocketAddr| forward_at(&at.to_string(), server);
    // As long as this end of the test has it, too, nobody else could listen there.
    let handed = listener.try_clone().expect("a copy");
    let told = std::cell::OnceCell::new();
    let (proxy, server) = Fixture::started("handed", to, |folder| {
        let place = folder.join("notified");
        let socket = UnixDatagram::bind(&place).expect("a socket");
        assert!(told.set(socket).is_ok());
        handed_down(folder, handed.into(), place.to_str().expect("UTF-8"))
    });
    let told = told.into_inner().expect("a socket");
    told.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
    let mut words = [0; 200];
    let count = told.recv(&mut words).expect("word of it");
    assert_eq!(&words[..count], b"READY=1\n");
    assert_eq!(proxy.at, at);

    let greeting = |server: &TcpListener| {
        let mut client = TcpStream::connect(at).expect("a connection");
        let (mut stream, _) = server.accept().expect("its other end");
        stream.write_all(b"hello").expect("it is sent");
        let mut heard = [0; 5];
        client.read_exact(&mut heard).expect("it comes");
        assert_eq!(&heard, b"hello");
    };
    greeting(&server);
    let other = TcpListener::bind("127.0.0.1:0").expect("a server");
    let place = proxy.folder.join("proxy.toml");
    fs::write(&place, to(other.local_addr().expect("its address"))).expect("a file");
    assert!(proxy.done(&["reload"]).starts_with("Clients of forward enter at"));
    greeting(&other);
    proxy.done(&["down"]);
    let count = told.recv(&mut words).expect("word of it");
    assert!(words[..count].starts_with(b"STOPPING=1\nEXTEND_TIMEOUT_USEC="), "{:?}", &words[..count]);
}

#[test]
fn root_becomes_somebody_else_once_clients_can_enter() {
    if !polypath_testbed::is_root_or_skip("a proxy that gives up root's rights") {
        return;
    }
    // An address of its own, where nobody else listens.
    let at = |port: u16| format!("127.77.6.5:{port}");
    let (mut proxy, server) = Fixture::started(
        "successor",
        |server| forward_at(&at(81), server),
        |folder| {
            let mut starting = command(folder);
            starting.args(["--user", "nobody"]);
            starting
        },
    );
    assert_eq!(proxy.at.to_string(), at(81));
    let mut client = TcpStream::connect(proxy.at).expect("a connection");
    let (mut stream, _) = server.accept().expect("its other end");
    stream.write_all(b"hello").expect("it is sent");
    client.read_exact(&mut [0; 5]).expect("it comes");
    drop((client, stream));
    for task in fs::read_dir(format!("/proc/{}/task", proxy.child.id())).expect("its threads") {
        let state = fs::read_to_string(task.expect("a thread").path().join("status")).expect("its state");
        let of = |key: &str| {
            let line = state.lines().find(|line| line.starts_with(key)).expect("a line");
            line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!((of("Uid:"), of("NoNewPrivs:")), (vec!["65534".to_owned(); 4], vec!["1".to_owned()]));
        assert_eq!((of("Gid:"), of("Groups:")), (vec!["65534".to_owned(); 4], vec!["65534".to_owned()]));
        assert_eq!(of("CapEff:"), ["0000000000000000"]);
        assert_eq!(of("CapPrm:"), ["0000000000000000"]);
    }

    let place = proxy.folder.join("proxy.toml");
    let server = server.local_addr().expect("its address");
    fs::write(&place, forward_at(&at(82), server)).expect("a file");
    let mistake = proxy.refused(&["reload"]);
    let wanted = "port 82 needs root's rights, which were given up for nobody: expected a start anew, or a port from 1024 on; all stays as it was";
    assert!(mistake.contains(wanted), "{mistake}");
    assert_eq!(proxy.status()["listeners"][0]["address"], at(81));
    // That one is open and stays so, though it could not be opened again.
    let limited = forward_at(&at(81), server) + "proxy-protocol-to-servers = \"v1\"\n";
    fs::write(&place, limited).expect("a file");
    assert!(proxy.done(&["reload"]).starts_with("Clients of forward enter at 127.77.6.5:81"));
    assert_eq!(proxy.done(&["down"]), "");
    assert!(proxy.child.wait().expect("an end").success());
    assert_eq!(proxy.done(&["status"]), "no proxy runs\n");

    let refused = |words: &[&str]| proxy.refused(&[&["--socks", "0"], words].concat());
    assert!(
        refused(&["--engine", "tcp", "--user", "nobody-at-all"]).contains("there is no user nobody-at-all")
    );
    assert!(refused(&["--engine", "tcp", "--user", "root"]).contains("root has all rights"));
    assert!(refused(&["--user", "nobody"]).contains("expected --engine kernel or tcp with it"));
}
