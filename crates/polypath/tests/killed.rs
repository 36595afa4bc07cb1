//! What stays of a command that is killed: nothing, neither here nor at its peers.

mod lab;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use lab::{Lab, Running};
use polypath_net::Namespace;
use polypath_net::testbed::Testbed;

/// Nothing here takes longer, unless it hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// All that a command sets up, as text.
fn network(lab: &Lab) -> String {
    let script = "ip -o link; ip rule; ip -6 rule; ip route show table all; ip -6 route show table all; nft list ruleset
        grep -H . /proc/sys/net/ipv4/conf/*/forwarding /proc/sys/net/ipv6/conf/*/force_forwarding";
    let output = lab.testbed.client.run(|| Command::new("sh").args(["-c", script]).output());
    String::from_utf8(output.expect("a namespace").expect("the shell").stdout).expect("text")
}

/// Answers each request with a file that has no end, over plain TCP. Says how each connection ends.
fn serve_without_end(namespace: &Namespace, at: SocketAddr) -> mpsc::Receiver<std::io::ErrorKind> {
    let listener = namespace.run(|| TcpListener::bind(at)).expect("a namespace").expect("the port");
    let (tell, ends) = mpsc::channel();
    thread::spawn(move || {
        for connection in listener.incoming() {
            let (mut connection, tell) = (connection.expect("a connection"), tell.clone());
            thread::spawn(move || {
                let _ = connection.read(&mut [0; 4096]);
                let mut result = connection.write_all(b"HTTP/1.1 200 OK\r\netag: \"a\"\r\n\r\n");
                while result.is_ok() {
                    result = connection.write_all(&[7; 65_536]);
                }
                // Nobody may listen any more.
                let _ = tell.send(result.expect_err("an end").kind());
            });
        }
    });
    ends
}

fn get(lab: &Lab, at: SocketAddr, name: &str) -> Running {
    let mut get = Command::new(env!("CARGO_BIN_EXE_polypath"));
    get.args(["get", "--engine", "tun", "-q", "-o"]).arg(lab.folder().join(name));
    get.arg(format!("http://{at}/file")).env("POLYPATH_RUNTIME_DIR", lab.folder().join("records"));
    lab.start(&mut get)
}

#[test]
fn a_command_that_is_killed_leaves_nothing_and_its_peers_know() {
    let Some(lab) = Lab::with_rate_or_skip("commands that are killed", "50mbit") else { return };
    lab.add_default_routes();
    let at = SocketAddr::from((Testbed::server_v4(0), 8000));
    let ends = serve_without_end(&lab.testbed.server, at);
    let before = network(&lab);
    let mut running: Vec<Running> = (0..3).map(|number| get(&lab, at, &format!("file{number}"))).collect();
    let has_come = |number: usize| {
        let part = lab.folder().join(format!("file{number}.part"));
        std::fs::metadata(part).is_ok_and(|part| part.len() > 100_000)
    };
    let deadline = Instant::now() + LIMIT;
    while !(0..3).all(has_come) {
        assert!(Instant::now() < deadline, "no bytes come");
        thread::sleep(Duration::from_millis(10));
    }
    assert!(network(&lab).contains("table inet polypath2"), "{}", network(&lab));
    // SIGKILL; nobody asks yet how they have ended.
    running.iter_mut().for_each(|client| client.0.kill().expect("our own child"));
    for _ in 0..3 {
        assert_eq!(ends.recv_timeout(LIMIT), Ok(std::io::ErrorKind::ConnectionReset));
    }
    let deadline = Instant::now() + LIMIT;
    while network(&lab) != before && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(network(&lab), before);
    let left = || std::fs::read_dir(lab.folder().join("records")).expect("the records").count();
    while left() > 0 && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(left(), 0, "records, and sockets to ask at");
}
