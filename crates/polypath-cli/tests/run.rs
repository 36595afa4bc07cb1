//! `polypath run`: what a program sees of its network, and what its caller sees of the program.

mod lab;

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use lab::{Lab, Running, finish, has_or_skip};
use polypath_system::Namespace;
use polypath_testbed::Testbed;

fn text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    (text(&output.stdout), text(&output.stderr))
}

/// Answers each connection with what came, in capitals, once the client has finished.
fn serve_capitals(namespace: &Namespace, at: SocketAddr) -> SocketAddr {
    let listener = namespace.run(|| TcpListener::bind(at)).unwrap().unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            thread::spawn(move || {
                let mut data = Vec::new();
                let _ = connection.read_to_end(&mut data);
                let _ = connection.write_all(&data.to_ascii_uppercase());
            });
        }
    });
    addr
}

/// A program that sends what it is given, ends its half, and prints what comes: half-close in both stacks.
const ASK: &str = "import socket,sys
s=socket.create_connection((sys.argv[1],int(sys.argv[2])),20)
s.sendall(b'question'); s.shutdown(socket.SHUT_WR)
print(s.makefile().read())";

#[test]
fn exit_codes_are_those_of_a_shell() {
    let Some(lab) = Lab::new_or_skip("exit codes") else { return };
    for (command, code, says) in [
        (&["sh", "-c", "exit 3"][..], 3, ""),
        (&["true"], 0, ""),
        (&["sh", "-c", "kill -KILL $$"], 137, ""),
        (&["/no/such/program"], 127, "polypath: /no/such/program: command not found"),
        (&["/etc/passwd"], 126, "polypath: /etc/passwd: can't be executed (Permission denied (os error 13))"),
    ] {
        let words: Vec<&dyn AsRef<std::ffi::OsStr>> = command.iter().map(|word| word as _).collect();
        let output = lab.output(&mut lab.polypath(&[], &words));
        assert_eq!((output.status.code(), text(&output).1.as_str()), (Some(code), says), "{command:?}");
    }
}

#[test]
fn the_program_gets_its_arguments_and_streams_as_they_are() {
    let Some(lab) = Lab::new_or_skip("arguments and streams") else { return };
    let script = "printf '%s|' \"$@\"; echo \"$COLOUR\"; pwd; cat; echo bad >&2";
    let mut command = lab.polypath(&[], &[&"sh", &"-c", &script, &"sh", &"-x", &"a b", &"--"]);
    let input = lab.file("input", 0);
    std::fs::write(&input, "from stdin").unwrap();
    command.env("COLOUR", "blue").current_dir("/").stdin(std::fs::File::open(input).unwrap());
    let output = lab.output(&mut command);
    assert_eq!(text(&output), ("-x|a b|--|blue\n/\nfrom stdin".to_string(), "bad".to_string()));
}

#[test]
fn signals_reach_the_program_and_its_end_is_ours() {
    let Some(lab) = Lab::new_or_skip("signals") else { return };
    for (signal, number) in [("TERM", 15), ("HUP", 1), ("INT", 2)] {
        let script =
            format!("trap 'echo caught; exit 40' {signal}; echo ready; while :; do sleep 0.05; done");
        // A shell can't trap what was ignored when it began, as under nohup.
        let program: [&dyn AsRef<OsStr>; 5] = [&"env", &"--default-signal", &"sh", &"-c", &script];
        let mut running = lab.start(&mut lab.polypath(&[], &program));
        let mut ready = [0; 6];
        running.0.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        let pid = pid(&running);
        assert!(Command::new("kill").args([format!("-{number}"), pid]).status().unwrap().success());
        let output = finish(running);
        assert_eq!((output.status.code(), text(&output).0.as_str()), (Some(40), "caught"), "{signal}");
    }
}

fn pid(running: &Running) -> String {
    running.0.id().to_string()
}

#[test]
fn a_terminal_interrupts_the_program_once() {
    let Some(lab) = Lab::new_or_skip("terminal") else { return };
    if !has_or_skip("python3", "terminal") {
        return;
    }
    // Runs its arguments at a terminal of their own, presses Ctrl-C when they are ready, and ends as they do.
    let terminal = "import os,pty,sys
pid,fd=pty.fork()
if pid==0: os.execvp(sys.argv[1],sys.argv[1:])
seen=b''
while True:
    try: new=os.read(fd,4096)
    except OSError: break
    if b'ready' not in seen and b'ready' in seen+new: os.write(fd,b'\\x03')
    seen+=new
print(seen.decode()); sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid,0)[1]))";
    let count = "n=0; trap 'n=$((n+1))' INT; echo ready; sleep 1; sleep 1; echo count=$n; exit 5";
    let mut command = Command::new("python3");
    let polypath = env!("CARGO_BIN_EXE_polypath");
    command.args([
        "-c",
        terminal,
        polypath,
        "run",
        "--engine",
        "kernel",
        "--",
        "env",
        "--default-signal",
        "sh",
        "-c",
        count,
    ]);
    let output = lab.output(&mut command);
    assert!(text(&output).0.contains("count=1"), "{output:?}");
    assert_eq!(output.status.code(), Some(5));
}

#[test]
fn the_program_dies_with_polypath() {
    let Some(lab) = Lab::new_or_skip("death of polypath") else { return };
    let mut running = lab.start(&mut lab.polypath(&[], &[&"sh", &"-c", &"echo $$; exec sleep 1000"]));
    let mut pid = String::new();
    let mut byte = [0];
    while running.0.stdout.as_mut().unwrap().read_exact(&mut byte).is_ok() && byte != *b"\n" {
        pid.push(byte[0] as char);
    }
    running.0.kill().unwrap();
    running.0.wait().unwrap();
    let is_alive = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.contains("sleep") && !status.contains("zombie")
    };
    for _ in 0..500 {
        if !is_alive() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("the program {pid} outlived polypath");
}

#[test]
fn connections_of_both_families_end_half_by_half() {
    let Some(lab) = Lab::new_or_skip("half-close") else { return };
    if !has_or_skip("python3", "half-close") {
        return;
    }
    for addr in [Testbed::server_v4(0).into(), std::net::IpAddr::V6(Testbed::server_v6(0))] {
        let at = serve_capitals(&lab.testbed.server, (addr, 0).into());
        let (ip, port) = (at.ip().to_string(), at.port().to_string());
        let output = lab.output(&mut lab.polypath(&[], &[&"python3", &"-c", &ASK, &ip, &port]));
        assert_eq!(text(&output), ("QUESTION".to_string(), String::new()), "{at}");
    }
}

#[test]
fn refused_and_unreachable_are_told_apart() {
    let Some(lab) = Lab::new_or_skip("refusals") else { return };
    if !has_or_skip("python3", "refusals") {
        return;
    }
    let connect = "import socket,sys
try: socket.create_connection((sys.argv[1],9),20)
except OSError as e: print(type(e).__name__, e.errno)";
    for (addr, expected) in [
        ("10.77.0.2", "ConnectionRefusedError 111"),
        ("fd77::2", "ConnectionRefusedError 111"),
        ("192.0.2.1", "OSError 101"),
        ("2001:db8::1", "OSError 101"),
    ] {
        let output = lab.output(&mut lab.polypath(&[], &[&"python3", &"-c", &connect, &addr]));
        assert_eq!(text(&output), (expected.to_string(), String::new()), "{addr}");
    }
}

#[test]
fn datagrams_pass_and_closed_ports_refuse() {
    let Some(lab) = Lab::new_or_skip("UDP") else { return };
    if !has_or_skip("python3", "UDP") {
        return;
    }
    let socket = lab.testbed.server.run(|| UdpSocket::bind("[::]:5300")).unwrap().unwrap();
    thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..length].to_ascii_uppercase(), from);
        }
    });
    let script = "import socket
for family,addr in ((socket.AF_INET,'10.77.0.2'),(socket.AF_INET6,'fd77::2')):
    s=socket.socket(family,socket.SOCK_DGRAM); s.settimeout(20); s.connect((addr,5300))
    s.send(b'small'); print(s.recv(100)); s.send(b'x'*60000); print(len(s.recv(70000)))
    s=socket.socket(family,socket.SOCK_DGRAM); s.settimeout(20); s.connect((addr,5301)); s.send(b'nobody')
    try: s.recv(1)
    except OSError as e: print(e.errno)";
    let output = lab.output(&mut lab.polypath(&[], &[&"python3", &"-c", &script]));
    assert_eq!(text(&output), ("b'SMALL'\n60000\n111\nb'SMALL'\n60000\n111".to_string(), String::new()));
}

#[test]
fn ping_passes() {
    let Some(lab) = Lab::new_or_skip("ping") else { return };
    if !has_or_skip("python3", "ping") {
        return;
    }
    lab.testbed.client.set_variable("net/ipv4/ping_group_range", "0 2147483647").unwrap();
    // The kernel fills in ICMPv6's checksum and not ICMP's; this one was reckoned by hand.
    let script = "import socket
for family,protocol,addr,request in ((socket.AF_INET,1,'10.77.0.2',b'\\x08\\x00\\x20\\xfe\\x12\\x34\\x00\\x07abcd'),
    (socket.AF_INET6,58,'fd77::2',b'\\x80\\x00\\x00\\x00\\x12\\x34\\x00\\x07abcd')):
    s=socket.socket(family,socket.SOCK_RAW,protocol); s.settimeout(20); s.connect((addr,0)); s.send(request)
    print(s.recv(100)[-8:])";
    let output = lab.output(&mut lab.polypath(&[], &[&"python3", &"-c", &script]));
    let answer = "b'\\x124\\x00\\x07abcd'";
    assert_eq!(text(&output), (format!("{answer}\n{answer}"), String::new()));
}

/// Answers every question with the address 192.0.2.7.
fn serve_names(namespace: &Namespace, at: SocketAddr) {
    let socket = namespace.run(|| UdpSocket::bind(at)).unwrap().unwrap();
    thread::spawn(move || {
        let mut query = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut query) {
            let name_ends = 12 + query[12..length].iter().position(|&byte| byte == 0).unwrap();
            let is_a = query[name_ends + 1..name_ends + 3] == [0, 1];
            let mut answer = query[..name_ends + 5].to_vec();
            // A response, recursion available, one question, one answer or none.
            answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0]);
            if is_a {
                answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 7]);
            }
            let _ = socket.send_to(&answer, from);
        }
    });
}

#[test]
fn names_are_resolved_by_the_hosts_resolver_wherever_it_is() {
    let Some(lab) = Lab::new_or_skip("DNS") else { return };
    if !has_or_skip("unshare", "DNS") || !has_or_skip("getent", "DNS") {
        return;
    }
    serve_names(&lab.testbed.client, (Ipv4Addr::new(127, 0, 0, 53), 53).into());
    serve_names(&lab.testbed.server, (Testbed::server_v4(0), 53).into());
    for resolver in ["127.0.0.53", "10.77.0.2"] {
        let file = lab.folder().join("resolv.conf");
        std::fs::write(&file, format!("nameserver {resolver}\noptions timeout:5 attempts:2\n")).unwrap();
        let nsswitch = lab.folder().join("nsswitch.conf");
        std::fs::write(&nsswitch, "hosts: dns\n").unwrap();
        let script = "mount --bind $1 $(readlink -f /etc/resolv.conf) && mount --bind $2 /etc/nsswitch.conf && shift 2 && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script, "sh"]).arg(&file).arg(&nsswitch);
        command.args([env!("CARGO_BIN_EXE_polypath"), "run", "--", "getent", "ahostsv4", "server.example"]);
        let output = lab.output(&mut command);
        assert!(text(&output).0.starts_with("192.0.2.7"), "{resolver}: {output:?}");
    }
}

#[test]
fn a_published_port_leads_to_the_program_which_sees_who_calls() {
    let Some(lab) = Lab::new_or_skip("published port") else { return };
    if !has_or_skip("python3", "published port") {
        return;
    }
    lab.add_default_routes();
    let script = "import socket
l=socket.create_server(('::',80),family=socket.AF_INET6,dualstack_ipv6=True); print('ready',flush=True)
for _ in range(4):
  c,a=l.accept(); c.sendall(('you are '+a[0]+c.makefile().read()).encode()); c.close()";
    for engine in ["kernel", "tun"] {
        let options = ["--engine", engine, "-p", "8080:80"];
        let mut running = lab.start(&mut lab.polypath(&options, &[&"python3", &"-c", &script]));
        running.0.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
        let of_path = [
            (Testbed::client_v4(0).into(), "::ffff:10.77.0.2"),
            (IpAddr::from(Testbed::client_v6(0)), "fd77::2"),
        ];
        for (addr, caller) in of_path {
            let connect = || std::net::TcpStream::connect((addr, 8080));
            let mut connection = lab.testbed.server.run(connect).unwrap().unwrap();
            connection.write_all(b", caller").unwrap();
            connection.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = String::new();
            connection.read_to_string(&mut answer).unwrap();
            assert_eq!(answer, format!("you are {caller}, caller"), "{engine}");
        }
        // Health checks and reverse proxies come by loopback, more than once; the program couldn't answer to that address.
        for _ in 0..2 {
            let connect = || std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, 8080));
            let mut connection = lab.testbed.client.run(connect).unwrap().unwrap();
            connection.write_all(b", local caller").unwrap();
            connection.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = String::new();
            connection.read_to_string(&mut answer).unwrap();
            assert_eq!(answer, "you are ::ffff:198.18.0.1, local caller", "{engine}");
        }
        assert_eq!(finish(running).status.code(), Some(0));
    }
}

#[test]
fn a_port_published_at_loopback_only_is_reached_there() {
    let Some(lab) = Lab::new_or_skip("published at loopback") else { return };
    if !has_or_skip("python3", "published at loopback") {
        return;
    }
    lab.add_default_routes();
    let script = "import socket
l=socket.create_server(('',80)); print('ready',flush=True)
c,a=l.accept(); c.sendall(b'here'); c.close()";
    for engine in ["kernel", "tcp", "tun"] {
        let options = ["--engine", engine, "-p", "127.0.0.1:8080:80"];
        let mut running = lab.start(&mut lab.polypath(&options, &[&"python3", &"-c", &script]));
        running.0.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
        let connect = || std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, 8080));
        let mut answer = String::new();
        let mut connection = lab.testbed.client.run(connect).unwrap().unwrap();
        connection.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "here", "{engine}");
        assert_eq!(finish(running).status.code(), Some(0));
    }
}

#[test]
fn the_hosts_loopback_is_reached_only_by_its_name() {
    let Some(lab) = Lab::new_or_skip("host's loopback") else { return };
    if !has_or_skip("python3", "host's loopback") {
        return;
    }
    let at = serve_capitals(&lab.testbed.client, (Ipv4Addr::LOCALHOST, 0).into());
    let port = at.port().to_string();
    let options = &["--host-loopback", "10.0.2.2"];
    let output = lab.output(&mut lab.polypath(options, &[&"python3", &"-c", &ASK, &"10.0.2.2", &port]));
    assert_eq!(text(&output).0, "QUESTION", "{output:?}");
    let output = lab.output(&mut lab.polypath(options, &[&"python3", &"-c", &ASK, &"127.0.0.1", &port]));
    assert!(text(&output).1.contains("Connection refused"), "{output:?}");
}

#[test]
fn what_was_written_before_the_end_arrives() {
    let Some(lab) = Lab::with_rate_or_skip("last words", "200mbit") else { return };
    if !has_or_skip("python3", "last words") {
        return;
    }
    let listener = lab.testbed.server.run(|| TcpListener::bind((Testbed::server_v4(0), 0))).unwrap().unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let sink = thread::spawn(move || {
        let mut received = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut received).map(|_| received.len())
    });
    // The program is gone long before its megabytes are.
    let script = "import socket,sys
s=socket.create_connection(('10.77.0.2',int(sys.argv[1]))); s.sendall(b'x'*8_000_000)";
    let output = lab.output(&mut lab.polypath(&[], &[&"python3", &"-c", &script, &port]));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(sink.join().unwrap().unwrap(), 8_000_000);
}

#[test]
fn without_root_the_program_keeps_its_user_and_gets_no_rights() {
    let Some(lab) = Lab::new_or_skip("rootless") else { return };
    if !["python3", "unshare", "setpriv"].iter().all(|program| has_or_skip(program, "rootless")) {
        return;
    }
    let is_off = |name: &str, off: &str| {
        std::fs::read_to_string(format!("/proc/sys/{name}")).is_ok_and(|value| value.trim() == off)
    };
    if is_off("user/max_user_namespaces", "0")
        || is_off("kernel/unprivileged_userns_clone", "0")
        || is_off("kernel/apparmor_restrict_unprivileged_userns", "1")
    {
        eprintln!("SKIPPED rootless: user namespaces are off");
        return;
    }
    // Nobody may not see into the folder that the binary was built in.
    let polypath = lab.folder().join("polypath");
    std::fs::copy(env!("CARGO_BIN_EXE_polypath"), &polypath).unwrap();
    let at = serve_capitals(&lab.testbed.server, (Testbed::server_v4(0), 0).into());
    let script = format!(
        "import os\nprint(os.getuid(), os.getgid(), [l.split()[1] for l in open('/proc/self/status') if l.startswith('CapEff')])\n{ASK}"
    );
    // A device of its own: whose the machine's is depends on who set the machine up.
    let as_nobody = |tun_mode: &str, program: &[&str]| {
        let become_nobody = format!(
            "mount -t tmpfs tmpfs /dev/net && mknod -m {tun_mode} /dev/net/tun c 10 200 && \
             exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$0\" run -- \"$@\""
        );
        polypath_after(&lab, &["-m"], &become_nobody, &polypath, program)
    };
    let output = as_nobody("600", &["true"]);
    let (_, errors) = text(&output);
    assert!(errors.contains("/dev/net/tun") && errors.contains("expected its mode to be 0666"), "{output:?}");
    assert_eq!((output.status.code(), errors.lines().count()), (Some(1), 1));

    let (ip, port) = (at.ip().to_string(), at.port().to_string());
    let output = as_nobody("666", &["/usr/bin/env", "python3", "-c", &script, &ip, &port]);
    assert_eq!(text(&output).0, "65534 65534 ['0000000000000000']\nQUESTION", "{output:?}");
}

/// Runs a shell script at the client, which starts polypath by `$0` and the program by `$@`.
fn polypath_after(lab: &Lab, unshare: &[&str], script: &str, polypath: &Path, program: &[&str]) -> Output {
    let mut command = Command::new("unshare");
    command.args(unshare).args(["sh", "-c", script]).arg(polypath).args(program).current_dir("/");
    lab.output(&mut command)
}

#[test]
fn what_is_missing_is_said_in_one_line() {
    let Some(lab) = Lab::new_or_skip("errors") else { return };
    if !has_or_skip("unshare", "errors") || !has_or_skip("setpriv", "errors") {
        return;
    }
    let polypath = Path::new(env!("CARGO_BIN_EXE_polypath"));
    let no_tun = "mount -t tmpfs tmpfs /dev/net && exec \"$0\" run -- \"$@\"";
    let no_users = "echo 0 > /proc/sys/user/max_user_namespaces && \
                    exec setpriv --inh-caps=-all --bounding-set=-all \"$0\" run -- \"$@\"";
    for (unshare, script, says) in [
        (&["-m"][..], no_tun, "/dev/net/tun is missing"),
        (&["-Ur"], no_users, "sysctl user.max_user_namespaces is 0"),
    ] {
        let output = polypath_after(&lab, unshare, script, polypath, &["true"]);
        let (_, errors) = text(&output);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(errors.starts_with("polypath: no network namespace for the program: "), "{errors}");
        assert!(errors.contains(says) && errors.lines().count() == 1, "{errors}");
    }
    let taken = lab.testbed.client.run(|| TcpListener::bind("0.0.0.0:8080")).unwrap().unwrap();
    let output = lab.output(&mut lab.polypath(&["-p", "8080:80"], &[&"true"]));
    let (_, errors) = text(&output);
    assert!(errors.starts_with("polypath: can't publish port 8080: "), "{errors}");
    assert_eq!((output.status.code(), errors.lines().count()), (Some(1), 1));
    drop(taken);
}

#[test]
fn nothing_stays_behind() {
    let Some(lab) = Lab::new_or_skip("traces") else { return };
    let list = |arguments: &str| {
        let output = lab.testbed.client.run(|| Command::new("ip").args(arguments.split(' ')).output());
        let text = String::from_utf8_lossy(&output.unwrap().unwrap().stdout).replace(" linkdown", "");
        // Link-local addresses come when the kernel has found its links to be up, whenever that is.
        let lines = text.lines().filter(|line| !line.contains("fe80:")).map(|line| match arguments {
            "-o link" => line.split(": ").take(2).collect::<Vec<_>>().join(" "),
            _ => line.trim().to_string(),
        });
        lines.collect::<Vec<String>>()
    };
    let tables = ["-o link", "rule", "-6 rule", "route show table all", "-6 route show table all"];
    let state = || tables.map(list);
    let before = state();
    for command in [["true", ""], ["/no/such", ""]] {
        lab.output(&mut lab.polypath(&[], &[&command[0], &command[1]]));
    }
    assert_eq!(state(), before);
}

#[test]
fn a_dry_run_shows_the_ports_too() {
    let Some(lab) = Lab::new_or_skip("what would be set up") else { return };
    lab.add_default_routes();
    for (words, port) in [
        (&["serve", "--engine", "tun", "--dry-run"][..], "dport 8077"),
        (&["perf", "-s", "--engine", "tun", "--dry-run"], "dport 5201"),
        (&["run", "--engine", "tun", "--dry-run", "-p", "8080:80", "--", "true"], "dport 8080"),
    ] {
        let output = lab.output(Command::new(env!("CARGO_BIN_EXE_polypath")).args(words));
        let shown = text(&output).0;
        assert!(output.status.success() && shown.contains(port), "{words:?}: {output:?}");
    }
}

#[test]
fn a_dry_run_runs_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("it ran");
    for engine in ["udp", "kernel", "tcp"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
        command.args(["run", "--engine", engine, "--dry-run", "--", "touch"]).arg(&trace);
        let output = command.output().expect("the command");
        let says = "polypath: --dry-run: only --engine tun sets anything up; expected --engine tun with it";
        assert_eq!((output.status.code(), text(&output).1.as_str()), (Some(2), says), "{engine}");
        assert!(!trace.exists(), "{engine}");
    }
}
