//! `polypath preload` with our own stack: what a program's peer sees, and what is left of the program.

mod lab;

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lab::{Lab, Running, finish, has_or_skip};
use polypath_stack::engine::socket_info;
use polypath_testbed::{Testbed, built};
use socket2::{Domain, Protocol, Socket, Type};

/// Nothing here takes longer, unless it hangs.
const LIMIT: Duration = Duration::from_secs(30);

struct Bench {
    lab: Lab,
    listener: TcpListener,
    at: SocketAddr,
}

impl Bench {
    /// A client with uplinks, and a Multipath TCP listener of the kernel at the server.
    fn new_or_skip(what: &str) -> Option<Self> {
        if !["python3", "nft"].iter().all(|program| has_or_skip(program, what)) {
            return None;
        }
        let lab = Lab::new_or_skip(what)?;
        lab.add_default_routes();
        let listener = lab.testbed.server.run(|| listen(Testbed::server_v4(0).into())).expect("a namespace");
        let at = listener.local_addr().expect("its address");
        Some(Self { lab, listener, at })
    }

    /// A Python program, preloaded, that has `socket`, `sys`, `os`, `time` and the server's address in `peer`.
    fn python(&self, script: &str) -> Command {
        let start = format!(
            "import os,signal,socket,struct,sys,time\npeer=('{}',{})\n{script}",
            self.at.ip(),
            self.at.port()
        );
        let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
        command.args(["preload", "--engine", "tun", "--", "python3", "-c", &start]);
        command.env("POLYPATH_PRELOAD_LIBRARY", built().join("libpolypath_preload.so"));
        command.env("POLYPATH_RUNTIME_DIR", self.lab.folder().join("run")).stdin(Stdio::null());
        command
    }

    fn start(&self, script: &str) -> Running {
        self.lab.start(&mut self.python(script))
    }

    fn output(&self, script: &str) -> Output {
        self.lab.output(&mut self.python(script))
    }

    /// The next connection, which must be Multipath TCP.
    fn accept(&self) -> TcpStream {
        let (connection, _) = self.listener.accept().expect("a connection");
        connection.set_read_timeout(Some(LIMIT)).expect("a time limit");
        assert!(socket_info(&connection).expect("its state").is_multipath, "it is plain TCP");
        connection
    }

    /// What is left at the client of the stack: its tables, rules and records.
    fn leftovers(&self) -> String {
        let ask = |program: &str, words: &[&str]| {
            let output = self.lab.testbed.client.run(|| Command::new(program).args(words).output());
            String::from_utf8(output.expect("a namespace").expect(program).stdout).expect("text")
        };
        let tables = ask("nft", &["list", "tables"]);
        let rules = ask("ip", &["rule"]);
        let links = ask("ip", &["-o", "link"]);
        let ours = tables.lines().chain(links.lines()).filter(|line| line.contains("polypath"));
        let mut left: Vec<String> = ours.map(String::from).collect();
        // The system's own three, and then ours.
        left.extend(rules.lines().skip(3).map(String::from));
        if let Ok(records) = std::fs::read_dir(self.lab.folder().join("run")) {
            left.extend(records.flatten().map(|record| record.path().display().to_string()));
        }
        left.join("\n")
    }

    fn wait_until_nothing_is_left(&self, what: &str) {
        let deadline = Instant::now() + LIMIT;
        loop {
            let left = self.leftovers();
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "{what}: {left}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn listen(addr: IpAddr) -> TcpListener {
    let socket = Socket::new(Domain::for_address((addr, 0).into()), Type::STREAM, Some(Protocol::MPTCP));
    let socket = socket.expect("a socket");
    socket.bind(&SocketAddr::from((addr, 0)).into()).expect("an address");
    socket.listen(8).expect("a listener");
    socket.into()
}

fn text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    (text(&output.stdout), text(&output.stderr))
}

/// Connects, and says something.
const TALK: &str = "s=socket.create_connection(peer,20); s.sendall(b'hello')";

#[test]
fn the_peer_of_a_program_that_ends_anyhow_sees_the_end_and_nothing_is_left() {
    let Some(bench) = Bench::new_or_skip("ends of preloaded programs") else { return };
    for end in [
        "sys.exit()",
        "os._exit(3)",
        "os.kill(os.getpid(),signal.SIGTERM)",
        "os.kill(os.getpid(),signal.SIGKILL)",
        "os.abort()",
    ] {
        let running = bench.start(&format!("{TALK}; sys.stdin.read(); {end}"));
        let mut connection = bench.accept();
        let mut heard = Vec::new();
        connection.read_to_end(&mut heard).unwrap_or_else(|error| panic!("{end}: {error}"));
        assert_eq!(heard, b"hello", "{end}");
        // Its peer goes on, and is told: nobody has the connection any more.
        let _ = connection.write_all(b"are you there?");
        assert!(!matches!(connection.read(&mut [0]), Ok(1..)), "{end}");
        finish(running);
        bench.wait_until_nothing_is_left(end);
    }
}

#[test]
fn a_stack_is_shown_under_the_program_s_name() {
    let Some(bench) = Bench::new_or_skip("names of preloaded programs") else { return };
    let mut running = bench.start(&format!("{TALK}; time.sleep(60)"));
    let _connection = bench.accept();
    let mut ss = Command::new(env!("CARGO_BIN_EXE_polypath"));
    ss.args(["ss", "-p"]).env("POLYPATH_RUNTIME_DIR", bench.lab.folder().join("run")).stdin(Stdio::null());
    let (shown, said) = text(&bench.lab.output(&mut ss));
    assert!(shown.contains("\"python3") && !shown.contains("\"polypath"), "{shown}{said}");
    running.0.kill().expect("our child");
    finish(running);
    bench.wait_until_nothing_is_left("a program that was shown");
}

#[test]
fn a_peer_that_goes_on_listening_keeps_nothing_alive() {
    let Some(bench) = Bench::new_or_skip("silent peers of preloaded programs") else { return };
    let running = bench.start(&format!("{TALK}; os.kill(os.getpid(),signal.SIGKILL)"));
    let connection = bench.accept();
    finish(running);
    bench.wait_until_nothing_is_left("a silent peer");
    let mut running = bench.start(&format!("{TALK}; time.sleep(60)"));
    let alive = bench.accept();
    assert!(!bench.leftovers().is_empty(), "as long as it lives there is something");
    running.0.kill().expect("our child");
    finish(running);
    bench.wait_until_nothing_is_left("two silent peers");
    drop(alive);
    drop(connection);
}

#[test]
fn what_a_program_leaves_unread_resets_its_peer() {
    let Some(bench) = Bench::new_or_skip("unread data of preloaded programs") else { return };
    // It has some of it in its socket, and reads none.
    let script = format!(
        "{TALK}\nwhile len(s.recv(100000,socket.MSG_PEEK))<50000: time.sleep(.01)\nos.kill(os.getpid(),signal.SIGKILL)"
    );
    let running = bench.start(&script);
    let mut connection = bench.accept();
    connection.write_all(&[7; 100_000]).expect("room");
    connection.read_exact(&mut [0; 5]).expect("hello");
    let error = connection.read(&mut [0]).expect_err("no end in order");
    assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error}");
    finish(running);
    bench.wait_until_nothing_is_left("unread data");
}

#[test]
fn what_was_written_before_a_kill_arrives() {
    let Some(lab) = Lab::with_rate_or_skip("last words of preloaded programs", "100mbit") else { return };
    if !["python3", "nft"].iter().all(|program| has_or_skip(program, "last words of preloaded programs")) {
        return;
    }
    lab.add_default_routes();
    let listener = lab.testbed.server.run(|| listen(Testbed::server_v4(0).into())).expect("a namespace");
    let at = listener.local_addr().expect("its address");
    let bench = Bench { lab, listener, at };
    let script =
        "s=socket.create_connection(peer,20); s.sendall(b'x'*3_000_000); os.kill(os.getpid(),signal.SIGKILL)";
    let running = bench.start(script);
    let mut heard = Vec::new();
    bench.accept().read_to_end(&mut heard).expect("an end in order");
    assert_eq!(heard.len(), 3_000_000);
    finish(running);
    bench.wait_until_nothing_is_left("last words");
}

/// A control group, as systemd gives each service one of its own.
struct Group(PathBuf);

impl Group {
    fn new_or_skip(what: &str) -> Option<Self> {
        let roots = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Path::new);
        let root = roots.into_iter().find(|root| root.join("cgroup.procs").exists());
        let group = root.map(|root| root.join(format!("polypath-test-{}", std::process::id())));
        let made = group.filter(|group| std::fs::create_dir(group).is_ok());
        if made.is_none() {
            eprintln!("skipped: {what} needs a control group of its own");
        }
        made.map(Self)
    }

    /// The same command, in this group.
    fn hold(&self, command: &Command) -> Command {
        let mut held = Command::new("sh");
        held.args(["-c", "echo $$ >\"$0\"/cgroup.procs && exec \"$@\""]).arg(&self.0);
        held.arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
        held.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        held
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // One with processes that a failed test has left stays.
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn what_a_service_wrote_arrives_before_systemd_ends_the_rest_of_it() {
    let what = "the end of a service";
    let Some(group) = Group::new_or_skip(what) else { return };
    let Some(lab) = Lab::with_rate_or_skip(what, "100mbit") else { return };
    if !["python3", "nft"].iter().all(|program| has_or_skip(program, what)) {
        return;
    }
    lab.add_default_routes();
    let listener = lab.testbed.server.run(|| listen(Testbed::server_v4(0).into())).expect("a namespace");
    let at = listener.local_addr().expect("its address");
    let bench = Bench { lab, listener, at };
    let end = |within: &str, main: Option<u32>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
        command.args(["service-end", "--within", within]).env("SERVICE_RESULT", "success");
        command.env("POLYPATH_RUNTIME_DIR", bench.lab.folder().join("run"));
        command.envs(main.map(|pid| ("MAINPID", pid.to_string())));
        let output = bench.lab.output(&mut group.hold(&command));
        assert!(output.status.success(), "{output:?}");
    };
    let script = "s=socket.create_connection(peer,20); s.sendall(b'x'*3_000_000)";
    let running = bench.lab.start(&mut group.hold(&bench.python(script)));
    let mut connection = bench.accept();
    let heard = thread::spawn(move || {
        let mut heard = Vec::new();
        connection.read_to_end(&mut heard).map(|_| heard.len())
    });
    finish(running);
    end("30", None);
    assert_eq!(bench.leftovers(), "", "it waits for all");
    assert_eq!(heard.join().expect("no panic").expect("an end in order"), 3_000_000);

    let script = "s=socket.create_connection(peer,20); s.settimeout(None); s.recv(1)";
    let running = bench.lab.start(&mut group.hold(&bench.python(script)));
    let connection = bench.accept();
    end("0", Some(std::process::id()));
    assert_ne!(bench.leftovers(), "", "as long as the main process is there, its keeper is left alone");
    end("0", None);
    assert_eq!(bench.leftovers(), "", "without time, too, what was set up is taken down");
    finish(running);
    drop(connection);
}

#[test]
fn connections_outlive_the_process_that_opened_them_as_long_as_another_has_them() {
    let Some(bench) = Bench::new_or_skip("fork and exec of preloaded programs") else { return };
    // A child goes on after its parent; a program becomes another one, to which a time limit of Python's would leave a
    // socket that does not wait.
    for script in [
        "s=socket.create_connection(peer,20)\nif os.fork(): os._exit(0)\ntime.sleep(.3)\ns.sendall(s.recv(9)); print(s.getpeername()[0])",
        "s=socket.create_connection(peer,20); s.settimeout(None)\nprint(s.getpeername()[0],flush=True)\nos.dup2(s.fileno(),0); os.dup2(s.fileno(),9)\nos.execvp('sh',['sh','-c','head -c 5 >&9'])",
    ] {
        let running = bench.start(script);
        let mut connection = bench.accept();
        connection.write_all(b"again").expect("room");
        let mut heard = Vec::new();
        connection.read_to_end(&mut heard).expect("an end");
        assert_eq!(heard, b"again", "{script}");
        drop(connection);
        let output = finish(running);
        assert_eq!(text(&output), (bench.at.ip().to_string(), String::new()), "{script}");
        bench.wait_until_nothing_is_left(script);
    }
}

#[test]
fn a_socket_that_is_connected_again_or_sends_first_is_multipath_too() {
    let Some(bench) = Bench::new_or_skip("reconnection of preloaded programs") else { return };
    let (unspecified, fastopen) = ("struct.pack('H14x',socket.AF_UNSPEC)", "socket.MSG_FASTOPEN");
    // Python can't disconnect a socket itself.
    let again = format!(
        "import ctypes
c=ctypes.CDLL(None,use_errno=True); s=socket.socket(); s.connect(peer); s.sendall(b'1'); assert s.recv(1)==b'1'
nowhere={unspecified}; assert c.connect(s.fileno(),nowhere,16)==0
s.connect(peer); s.sendall(b'2'); print(s.recv(1))"
    );
    let blocking = format!(
        "s=socket.socket(); s.sendto(b'1',{fastopen},peer); assert s.recv(1)==b'1'
s=socket.socket(); s.sendmsg([b'2'],[],{fastopen},peer); print(s.recv(1))"
    );
    // Without a cookie nothing is sent before the handshake, says the kernel too.
    let nonblocking = format!(
        "import select
for word in (b'1',b'2'):
    s=socket.socket(); s.setblocking(False)
    try: s.sendto(word,{fastopen},peer)
    except BlockingIOError: pass
    select.select([],[s],[]); s.setblocking(True); s.sendall(word); answer=s.recv(1)
print(answer)"
    );
    for script in [again, blocking, nonblocking] {
        let running = bench.start(&script);
        for word in [b"1", b"2"] {
            let mut connection = bench.accept();
            let mut heard = [0];
            connection.read_exact(&mut heard).expect("a word");
            assert_eq!(heard, *word);
            connection.write_all(&heard).expect("room");
            // The first one is reset, or ended.
            let _ = connection.read_to_end(&mut Vec::new());
        }
        assert_eq!(text(&finish(running)), ("b'2'".to_string(), String::new()), "{script}");
    }
}

#[test]
fn what_the_stack_can_not_do_is_refused() {
    let Some(bench) = Bench::new_or_skip("refusals of preloaded programs") else { return };
    let script = "s=socket.socket()
try: s.setsockopt(socket.IPPROTO_TCP,30,1)
except OSError as e: print(e.errno)";
    assert_eq!(text(&bench.output(script)), ("95".to_string(), String::new()));
}

#[test]
fn a_socket_that_was_refused_connects_the_next_time() {
    let Some(bench) = Bench::new_or_skip("second attempts of preloaded programs") else { return };
    let script = "import select
s=socket.socket(); t=socket.socket(); t.setblocking(False)
try: s.connect((peer[0],9))
except OSError as e: print(e.errno)
s.connect(peer); s.sendall(b'1'); print(s.recv(1))
print(t.connect_ex((peer[0],9))); select.select([],[t],[]); print(t.connect_ex((peer[0],9)))
print(t.connect_ex(peer)); select.select([],[t],[]); t.setblocking(True); t.sendall(b'2'); print(t.recv(1))";
    let running = bench.start(script);
    for word in [b"1", b"2"] {
        let mut connection = bench.accept();
        let mut heard = [0];
        connection.read_exact(&mut heard).expect("a word");
        assert_eq!(heard, *word);
        connection.write_all(&heard).expect("room");
    }
    // Refused; and EINPROGRESS until it is known.
    let expected = "111\nb'1'\n115\n111\n115\nb'2'";
    assert_eq!(text(&finish(running)), (expected.to_string(), String::new()));
}

#[test]
fn addresses_are_those_of_the_connection() {
    let Some(bench) = Bench::new_or_skip("addresses of preloaded programs") else { return };
    let script = "s=socket.create_connection(peer,20); print(s.getsockname()[0],*s.getpeername()); s.sendall(b'x'); s.recv(1)";
    let running = bench.start(script);
    let mut connection = bench.accept();
    // What is unread when it is closed would reset the connection.
    connection.read_exact(&mut [0]).expect("a byte");
    drop(connection);
    let expected = format!("{} {} {}", Testbed::client_v4(0), bench.at.ip(), bench.at.port());
    assert_eq!(text(&finish(running)), (expected, String::new()));
}

#[test]
fn options_of_a_socket_reach_the_connection() {
    let Some(bench) = Bench::new_or_skip("options of preloaded programs") else { return };
    let script = "T=socket.IPPROTO_TCP; S=socket.SOL_SOCKET
s=socket.create_connection(peer,20); s.settimeout(None)
options=[(T,socket.TCP_NODELAY,1),(T,socket.TCP_USER_TIMEOUT,1500),(T,socket.TCP_KEEPIDLE,7),(T,socket.TCP_KEEPINTVL,2),
    (T,socket.TCP_KEEPCNT,3),(S,socket.SO_KEEPALIVE,1)]
for level,name,value in options: s.setsockopt(level,name,value)
print(*[s.getsockopt(level,name)==value for level,name,value in options])
s.sendall(b'x'); s.recv(1); sys.stdout.flush()
try:
    while True: s.sendall(b'lost'); time.sleep(.05)
except OSError as e: print(e.errno in (104,110,32))";
    let mut running = bench.start(script);
    let mut connection = bench.accept();
    connection.read_exact(&mut [0]).expect("a byte");
    // From now on nobody answers. Without the user timeout that would take a quarter of an hour.
    let stop = |path| {
        bench.lab.testbed.server.run(|| polypath_system::Netlink::new()?.set_down(&Testbed::interface(path)))
    };
    connection.write_all(b"x").expect("room");
    let mut line = [0; 30];
    running.0.stdout.as_mut().expect("a pipe").read_exact(&mut line[..29]).expect("a line");
    for path in 0..2 {
        stop(path).expect("a namespace").expect("the path");
    }
    assert_eq!(String::from_utf8_lossy(&line[..29]), "True True True True True True");
    assert_eq!(text(&finish(running)).0, "True");
}

#[test]
fn a_program_may_close_its_listener_and_listen_there_again() {
    let Some(bench) = Bench::new_or_skip("listening again") else { return };
    let script = "import time
for _ in range(3):
    l=socket.create_server(('0.0.0.0',8080)); l.close()
l=socket.create_server(('0.0.0.0',8080)); print('ready',flush=True)
c,a=l.accept(); c.sendall(b'here'); c.close()";
    let mut running = bench.start(script);
    let told = running.0.stdout.as_mut().expect("a pipe").read_exact(&mut [0; 6]);
    told.expect("it listens again");
    let to = (Testbed::client_v4(0), 8080);
    let mut caller =
        bench.lab.testbed.server.run(|| TcpStream::connect(to)).expect("a namespace").expect("it listens");
    let mut heard = String::new();
    caller.read_to_string(&mut heard).expect("an end");
    assert_eq!(heard, "here");
    drop(finish(running));
}

#[test]
fn listeners_of_a_program_that_ends_are_taken_down() {
    let Some(bench) = Bench::new_or_skip("listeners of preloaded programs") else { return };
    let script = "l=socket.create_server(('0.0.0.0',8080)); print('ready',flush=True)
while True:
    c,a=l.accept(); c.sendall((a[0]+' '+c.getpeername()[0]).encode()); c.close()";
    let mut running = bench.start(script);
    running.0.stdout.as_mut().expect("a pipe").read_exact(&mut [0; 6]).expect("ready");
    let to = (Testbed::client_v4(0), 8080);
    let mut caller =
        bench.lab.testbed.server.run(|| TcpStream::connect(to)).expect("a namespace").expect("it listens");
    let mut heard = String::new();
    caller.read_to_string(&mut heard).expect("an end");
    assert_eq!(heard, "10.77.0.2 10.77.0.2");
    drop(caller);
    running.0.kill().expect("our child");
    finish(running);
    bench.wait_until_nothing_is_left("a listener");
}
