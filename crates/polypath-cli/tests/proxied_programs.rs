//! Real programs through `polypath proxy`, over two paths: both carry, and either may fail midway. Needs root; what is missing is said.

mod lab;

use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use lab::fates::{FILE_BYTES, survives};
use lab::servers::{nginx, same_files, sshd};
use lab::{Lab, Running};
use polypath_system::Namespace;

/// A proxy takes no longer to begin, unless it hangs.
const LIMIT: Duration = Duration::from_secs(30);

/// A proxy with SOCKS at port 1080 and HTTP at 8080, once clients can enter.
fn proxy(at: &Namespace, address: IpAddr, name: &str, arguments: &[&str]) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
    let [socks, http] = [1080, 8080].map(|port| format!("{address}:{port}"));
    command.args(["proxy", "--no-config", "-q", "--instance", name, "--socks", &socks, "--http", &http]);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut proxy = Running(at.run(|| command.spawn()).expect("a namespace").expect("a proxy"));
    let deadline = Instant::now() + LIMIT;
    while at.run(|| TcpStream::connect((address, 8080))).expect("a namespace").is_err() {
        let ended = proxy.0.try_wait().expect("our own child");
        assert!(ended.is_none() && Instant::now() < deadline, "{name}: {ended:?}");
        thread::sleep(Duration::from_millis(20));
    }
    proxy
}

/// Through a proxy at the client, which reaches servers over both paths.
fn survives_through(
    what: &str,
    engine: &str,
    programs: &[&str],
    set_up: impl Fn(&Lab) -> (Running, Vec<String>),
    check: impl Fn(&Lab, &Output),
) {
    let start = |lab: &Lab, command: &[String]| {
        let here = Ipv4Addr::LOCALHOST.into();
        let name = what.replace(' ', "-");
        let proxy = proxy(&lab.testbed.client, here, &name, &["--engine", engine]);
        (Some(proxy), lab.start(program(command)))
    };
    survives(&format!("{what} through a proxy, {engine}"), programs, start, set_up, check);
}

fn program(command: &[String]) -> &mut Command {
    // It lives as long as the test.
    let program = Box::leak(Box::new(Command::new(&command[0])));
    program.args(&command[1..]).stdin(Stdio::null())
}

fn copy_of(lab: &Lab) -> String {
    lab.folder().join("copy").display().to_string()
}

fn is_whole(lab: &Lab) {
    same_files(&lab.folder().join("file"), Path::new(&copy_of(lab)));
}

fn curl(what: &str, engine: &str, proxy: &[&str]) {
    survives_through(
        what,
        engine,
        &["curl", "nginx"],
        |lab| {
            lab.file("file", FILE_BYTES);
            let to = copy_of(lab);
            let mut command = vec!["curl", "-sS", "--fail", "-o", &to, "http://10.77.0.2/file"];
            command.extend(proxy);
            (nginx(lab), command.into_iter().map(String::from).collect())
        },
        |lab, _| is_whole(lab),
    );
}

#[test]
fn curl_by_socks() {
    for engine in ["kernel", "tun"] {
        curl(&format!("curl socks {engine}"), engine, &["-x", "socks5h://127.0.0.1:1080"]);
    }
}

#[test]
fn curl_by_requests_with_a_whole_url() {
    curl("curl http", "tun", &["-x", "http://127.0.0.1:8080"]);
}

#[test]
fn curl_by_connect() {
    curl("curl connect", "tun", &["-p", "-x", "http://127.0.0.1:8080"]);
}

#[test]
fn git_clones() {
    survives_through(
        "git",
        "tun",
        &["git", "nginx"],
        |lab| {
            lab.file("file", FILE_BYTES);
            let folder = lab.folder().display();
            let made = format!(
                "cd {folder} && git init -q work && cp file work && cd work && git add file && \
                 git -c user.name=a -c user.email=a@example.org commit -q -m one && cd .. && \
                 git clone -q --bare work repository.git && git -C repository.git update-server-info"
            );
            let mut making = Command::new("sh");
            making.args(["-c", &made]).env("GIT_CONFIG_GLOBAL", "/dev/null");
            let output = making.output().expect("a shell");
            assert!(output.status.success(), "{output:?}");
            let clone = format!(
                "GIT_CONFIG_GLOBAL=/dev/null git -c http.proxy=http://127.0.0.1:8080 clone -q http://10.77.0.2/repository.git {folder}/cloned \
                 && mv {folder}/cloned/file {folder}/copy"
            );
            (nginx(lab), ["sh", "-c", &clone].map(String::from).to_vec())
        },
        |lab, _| is_whole(lab),
    );
}

#[test]
fn ssh_by_a_proxy_command() {
    survives_through(
        "ssh",
        "tun",
        &["ssh", "sshd", "ssh-keygen", "unshare", "nc"],
        |lab| {
            let file = lab.file("file", FILE_BYTES).display().to_string();
            let (server, key) = sshd(lab);
            let client = format!(
                "ssh -F none -p 2222 -i {key} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR \
                 -o 'ProxyCommand=nc -X 5 -x 127.0.0.1:1080 %h %p' root@10.77.0.2 'cat > {}' < {file}",
                copy_of(lab)
            );
            (server, ["sh", "-c", &client].map(String::from).to_vec())
        },
        |lab, _| is_whole(lab),
    );
}

/// Fetches the file, and says how long it is and what its bytes add up to.
const PAGE: &str = "<!DOCTYPE html><title>sum</title><body><script>
    const asked = new XMLHttpRequest();
    asked.open('GET', '/file', false);
    asked.overrideMimeType('text/plain; charset=x-user-defined');
    asked.send();
    let sum = 0;
    for (let at = 0; at < asked.responseText.length; at++) {
        sum = (sum * 31 + (asked.responseText.charCodeAt(at) & 255)) % 4294967296;
    }
    document.body.textContent = 'has ' + asked.responseText.length + ' ' + sum + '.';
</script>";

#[test]
fn a_browser_by_socks() {
    survives_through(
        "chromium",
        "tun",
        &["chromium", "nginx"],
        |lab| {
            lab.file("file", FILE_BYTES);
            fs::write(lab.folder().join("page.html"), PAGE).expect("a page");
            let profile = format!("--user-data-dir={}", lab.folder().join("profile").display());
            let command = [
                "chromium",
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                &profile,
                "--proxy-server=socks5://127.0.0.1:1080",
                "--dump-dom",
                "http://10.77.0.2/page.html",
            ];
            (nginx(lab), command.map(String::from).to_vec())
        },
        |lab, output| {
            let file = fs::read(lab.folder().join("file")).expect("our own file");
            let sum = file.iter().fold(0_u64, |sum, &byte| (sum * 31 + u64::from(byte)) % (1 << 32));
            let page = String::from_utf8_lossy(&output.stdout);
            assert!(page.contains(&format!("has {} {sum}.", file.len())), "{page}");
        },
    );
}

#[test]
fn a_client_of_the_kernels_multipath_tcp_reaches_a_server_of_tcp() {
    let start = |lab: &Lab, command: &[String]| {
        let arguments = ["--open", "--engine", "tcp"];
        // At all addresses: further subflows come to another one.
        let anywhere = Ipv4Addr::UNSPECIFIED.into();
        let proxy = proxy(&lab.testbed.server, anywhere, "before-a-server", &arguments);
        (Some(proxy), lab.start(program(command)))
    };
    survives(
        "mptcpize curl, a proxy before the server",
        &["curl", "nginx"],
        start,
        |lab| {
            lab.file("file", FILE_BYTES);
            let to = copy_of(lab);
            let command = [
                "mptcpize",
                "run",
                "curl",
                "-sS",
                "--fail",
                "-o",
                &to,
                "-x",
                "socks5h://10.77.0.2:1080",
                "http://10.77.0.2/file",
            ];
            (nginx(lab), command.map(String::from).to_vec())
        },
        |lab, _| is_whole(lab),
    );
}
