//! What stays of a command that is killed: nothing, neither here nor at its peers.

mod lab;

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use lab::Lab;
use polypath_system::Namespace;
use polypath_testbed::Testbed;
use rustix::process::{Pid, Signal};
use socket2::{Domain, Protocol, Socket, Type};

/// Nothing here takes longer, unless it hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// All that a command sets up, as text.
fn network(lab: &Lab) -> String {
    let script = "ip -o link; ip rule; ip -6 rule; ip route show table all; ip -6 route show table all; nft list ruleset
        grep -H . /proc/sys/net/ipv4/conf/*/forwarding /proc/sys/net/ipv6/conf/*/force_forwarding";
    let output = lab.testbed.client.run(|| Command::new("sh").args(["-c", script]).output());
    String::from_utf8(output.expect("a namespace").expect("the shell").stdout).expect("text")
}

/// What happens at a server.
#[derive(Debug, PartialEq)]
enum Seen {
    Request,
    End(std::io::ErrorKind),
}

/// Answers each request with a file that has no end, or not at all if it has "idle" in it, over Multipath TCP or plain TCP of
/// the kernel.
fn serve(namespace: &Namespace, at: SocketAddr, protocol: Protocol) -> mpsc::Receiver<Seen> {
    let listen = || {
        let socket = Socket::new(Domain::for_address(at), Type::STREAM, Some(protocol))?;
        socket.bind(&at.into())?;
        socket.listen(16).map(|()| TcpListener::from(socket))
    };
    let listener = namespace.run(listen).expect("a namespace").expect("the port");
    let (tell, seen) = mpsc::channel();
    thread::spawn(move || {
        for connection in listener.incoming() {
            let (connection, tell) = (connection.expect("a connection"), tell.clone());
            thread::spawn(move || {
                // Nobody may listen any more.
                let _ = tell.send(Seen::End(answer(connection, &tell).expect_err("an end").kind()));
            });
        }
    });
    seen
}

fn answer(mut connection: TcpStream, tell: &mpsc::Sender<Seen>) -> std::io::Result<()> {
    let mut request = [0; 4096];
    let length = connection.read(&mut request)?;
    let _ = tell.send(Seen::Request);
    if String::from_utf8_lossy(&request[..length]).contains("idle") {
        return connection.read(&mut request).map(|length| assert_eq!(length, 0, "nothing more is sent"));
    }
    connection.write_all(b"HTTP/1.1 200 OK\r\netag: \"a\"\r\n\r\n")?;
    loop {
        connection.write_all(&[7; 65_536])?;
    }
}

fn get(lab: &Lab, at: SocketAddr, name: &str) -> Command {
    let mut get = Command::new(env!("CARGO_BIN_EXE_polypath"));
    get.args(["get", "--engine", "tun", "-q", "-o"]).arg(lab.folder().join(name));
    get.arg(format!("http://{at}/{name}")).env("POLYPATH_RUNTIME_DIR", lab.folder().join("records"));
    get
}

#[test]
fn a_command_that_is_killed_leaves_nothing_and_its_peers_know() {
    let Some(lab) = Lab::with_rate_or_skip("commands that are killed", "50mbit") else { return };
    lab.add_default_routes();
    // Without this, a kernel that has lost all subflows gives the connection up after a minute.
    lab.testbed.server.set_variable("net/mptcp/close_timeout", "3600").expect("a variable");
    let before = network(&lab);
    for (port, protocol) in [(8000, Protocol::TCP), (8001, Protocol::MPTCP)] {
        let at = SocketAddr::from((Testbed::server_v4(0), port));
        let seen = serve(&lab.testbed.server, at, protocol);
        let names = ["idle", "busy1", "busy2"];
        let mut running = names.map(|name| lab.start(&mut get(&lab, at, &format!("{name}{port}"))));
        names.iter().for_each(|_| assert_eq!(seen.recv_timeout(LIMIT), Ok(Seen::Request)));
        wait_until("bytes that come", || {
            let part = |name| lab.folder().join(format!("{name}{port}.part"));
            names[1..].iter().all(|name| part(name).metadata().is_ok_and(|part| part.len() > 1_000_000))
        });
        assert!(network(&lab).contains("table inet polypath2"), "{}", network(&lab));
        // SIGKILL; nobody asks yet how they have ended.
        running.iter_mut().for_each(|client| client.0.kill().expect("our own child"));
        for _ in names {
            assert_eq!(seen.recv_timeout(LIMIT), Ok(Seen::End(std::io::ErrorKind::ConnectionReset)));
        }
        wait_until("the network as it was", || network(&lab) == before);
        let records = lab.folder().join("records");
        wait_until("no records, nor sockets to ask at", || {
            std::fs::read_dir(&records).expect("the records").count() == 0
        });
    }
}

/// A folder with an nft in it that does its work, until there is a file `refuse` beside it.
fn failing_nft(lab: &Lab) -> PathBuf {
    let folder = lab.folder().join("programs");
    std::fs::create_dir(&folder).expect("a folder");
    let script = format!(
        "#!/bin/sh\n[ -e {0}/refuse ] && {{ echo no more >&2; exit 1; }}\nPATH=\"${{PATH#{0}:}}\" exec nft \"$@\"\n",
        folder.display()
    );
    let nft = folder.join("nft");
    std::fs::write(&nft, script).expect("a file");
    std::fs::set_permissions(nft, Permissions::from_mode(0o755)).expect("our own file");
    folder
}

#[test]
fn what_can_t_be_taken_down_is_said_by_the_command_and_by_who_stays_when_it_is_killed() {
    let Some(lab) = Lab::with_rate_or_skip("networks that can't be put back", "50mbit") else { return };
    lab.add_default_routes();
    let at = SocketAddr::from((Testbed::server_v4(0), 8000));
    let seen = serve(&lab.testbed.server, at, Protocol::TCP);
    let programs = failing_nft(&lab);
    let path = format!("{}:{}:/usr/sbin", programs.display(), std::env::var("PATH").expect("a variable"));
    for (signal, words) in [
        (Signal::INT, "the network is not as it was"),
        (Signal::KILL, "had set up before it was killed can't be taken down"),
    ] {
        let mut command = get(&lab, at, "busy");
        let client = lab.start(command.env("PATH", &path));
        // The end of the one before may come first.
        while seen.recv_timeout(LIMIT).expect("a request") != Seen::Request {}
        std::fs::write(programs.join("refuse"), "").expect("a file");
        rustix::process::kill_process(Pid::from_child(&client.0), signal).expect("our own child");
        let output = lab::finish(client);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let end = format!("{words}: nft refused what it was asked for: no more");
        let is_said = said.lines().any(|line| line.starts_with("polypath: ") && line.ends_with(&end));
        assert!(is_said, "{signal:?}: {said}");
        assert_eq!(output.stdout, b"", "results go there");
        std::fs::remove_file(programs.join("refuse")).expect("our own file");
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "expected {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
