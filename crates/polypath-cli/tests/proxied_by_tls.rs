//! curl through `polypath proxy` by TLS: who comes in, what it hears, and what a reload changes. Needs curl; where it is missing, that is said.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use serde_json::Value;
use socket2::SockRef;

/// True if curl is there; else says what is skipped.
fn has_curl_or_skip(what: &str) -> bool {
    let has_curl = Command::new("curl").arg("--version").output().is_ok_and(|output| output.status.success());
    if !has_curl {
        eprintln!("SKIPPED: {what}: curl is not installed");
    }
    has_curl
}

/// Who vouches for others.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// A certificate and its key, in one file.
    fn vouch(&self, name: &str, until: i32, place: &Path) {
        let mut params = CertificateParams::new([name.into()]).expect("a name");
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(until, 1, 1));
        let key = KeyPair::generate().expect("a key");
        let made = params.signed_by(&key, &self.issuer).expect("a certificate");
        fs::write(place, made.pem() + &key.serialize_pem()).expect("room");
    }
}

/// A proxy whose clients come by TLS, with a folder of its own.
struct Fixture {
    folder: tempfile::TempDir,
    authority: Authority,
    child: Child,
    said: BufReader<ChildStdout>,
    at: SocketAddr,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let place = |name: &str| folder.path().join(name);
        let authority = Authority::new("the one");
        fs::write(place("ca.pem"), &authority.pem).expect("room");
        authority.vouch("127.0.0.1", 2090, &place("proxy.pem"));
        authority.vouch("ann.example", 2090, &place("ann.pem"));
        authority.vouch("ann.example", 2021, &place("expired.pem"));
        Authority::new("another").vouch("ann.example", 2090, &place("other.pem"));
        let text = "[[entrances]]\nprotocol = \"http\"\nlisten = \"0\"\n\
                    tls = { certificate = \"proxy.pem\", key = \"proxy.pem\", clients = \"ca.pem\" }\n";
        fs::write(place("proxy.toml"), text).expect("room");
        let mut starting = Self::command(folder.path());
        starting.args(["proxy", "proxy.toml", "--engine", "tcp", "--accept", "tcp"]).stdout(Stdio::piped());
        let mut child = starting.spawn().expect("a proxy");
        let mut said = BufReader::new(child.stdout.take().expect("its output"));
        let mut line = String::new();
        said.read_line(&mut line).expect("a line");
        assert!(line.contains("by TLS, with certificates of ca.pem"), "{line}");
        let at = line.split_whitespace().find_map(|word| word.parse().ok()).expect("where it listens");
        Self { folder, authority, child, said, at }
    }

    fn command(folder: &Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
        command.env("POLYPATH_RUNTIME_DIR", folder).env("POLYPATH_STATE_DIR", folder.join("state"));
        command.current_dir(folder);
        command
    }

    fn place(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("a line");
        line
    }

    /// What curl hears that asks a server for something, shows this, and is told these words more.
    fn curl(&self, server: SocketAddr, shown: Option<&str>, more: &[&str]) -> Output {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--noproxy", "", "--max-time", "60", "--proxy-cacert"]).arg(self.place("ca.pem"));
        curl.args(["--proxy", &format!("https://{}", self.at)]);
        if let Some(shown) = shown {
            let shown = self.place(shown);
            curl.arg("--proxy-cert").arg(&shown).arg("--proxy-key").arg(&shown);
        }
        curl.args(more).arg(format!("http://{server}/"));
        curl.output().expect("curl runs")
    }

    fn reload(&self) -> Output {
        Self::command(self.folder.path()).args(["proxy", "reload"]).output().expect("it runs")
    }

    fn status(&self) -> Value {
        let output = Self::command(self.folder.path()).args(["proxy", "status", "--json"]).output();
        serde_json::from_slice::<Value>(&output.expect("it runs").stdout).expect("JSON")[0].clone()
    }
}

/// A server that answers each request so, and resets the connection then, if that is wanted.
fn server(answer: Vec<u8>, resets: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a server");
    let at = listener.local_addr().expect("its address");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if stream.read_exact(&mut byte).is_err() {
                    break;
                }
                asked.push(byte[0]);
            }
            let _ = stream.write_all(&answer);
            if resets {
                // What was said is there before the reset, which takes along what is not.
                thread::sleep(std::time::Duration::from_millis(100));
                SockRef::from(&stream).set_linger(Some(std::time::Duration::ZERO)).expect("an option");
            }
        }
    });
    at
}

fn whole() -> Vec<u8> {
    (0..3_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

fn answer(body: &[u8], length: Option<usize>) -> Vec<u8> {
    let length = length.map(|length| format!("Content-Length: {length}\r\n")).unwrap_or_default();
    [format!("HTTP/1.1 200 OK\r\n{length}Connection: close\r\n\r\n").as_bytes(), body].concat()
}

#[test]
fn curl_comes_in_with_the_right_certificate_and_with_no_other() {
    if !has_curl_or_skip("curl by mutual TLS") {
        return;
    }
    let mut proxy = Fixture::new();
    let body = whole();
    let at = server(answer(&body, Some(body.len())), false);
    for more in [&[][..], &["-p"]] {
        let heard = proxy.curl(at, Some("ann.pem"), more);
        assert!(heard.status.success() && heard.stdout == body, "{more:?}: {:?}", heard.stderr);
        // By the name in its certificate.
        let line = proxy.line();
        assert!(line.contains(" ann.example to 127.0.0.1:"), "{line}");
        for (shown, says) in [
            (None, "refused: it shows no certificate, which is wanted here"),
            (Some("other.pem"), "refused: its certificate is not taken here: "),
            (Some("expired.pem"), "refused: its certificate is not taken here: it has expired"),
        ] {
            let heard = proxy.curl(at, shown, more);
            assert!(!heard.status.success() && heard.stdout.is_empty(), "{more:?}, {shown:?}");
            let line = proxy.line();
            assert!(line.contains(says), "{more:?}, {shown:?}: {line}");
        }
    }
    let listener = &proxy.status()["listeners"][0];
    assert_eq!(listener["tls"], "by TLS, with certificates of ca.pem", "{listener}");
}

#[test]
fn an_answer_that_breaks_in_the_middle_is_an_error_for_curl() {
    if !has_curl_or_skip("curl by TLS, and a server that breaks") {
        return;
    }
    let proxy = Fixture::new();
    let body = whole();
    let half = &body[..body.len() / 2];
    for (answered, resets) in [
        (answer(half, Some(body.len())), false),
        (answer(half, Some(body.len())), true),
        // Nothing but the reset tells that this is not all.
        (answer(half, None), true),
    ] {
        let at = server(answered, resets);
        for more in [&[][..], &["-p"]] {
            let heard = proxy.curl(at, Some("ann.pem"), more);
            assert!(!heard.status.success(), "{more:?}, {resets}: {} bytes", heard.stdout.len());
            assert!(half.starts_with(&heard.stdout), "{more:?}, {resets}");
        }
    }
    // Where the end of the connection is that of the answer, it is said.
    let at = server(answer(&body, None), false);
    let heard = proxy.curl(at, Some("ann.pem"), &["-p"]);
    assert!(heard.status.success() && heard.stdout == body, "{:?}", heard.stderr);
}

#[test]
fn a_laptops_proxy_shows_a_certificate_for_programs_that_have_none() {
    if !has_curl_or_skip("curl by way of two proxies") {
        return;
    }
    let mut proxy = Fixture::new();
    let body = whole();
    let at = server(answer(&body, Some(body.len())), false);
    for (shown, says) in
        [("ann.pem", None), ("other.pem", Some("the proxy on the way does not take who this is"))]
    {
        let mut starting = Fixture::command(proxy.folder.path());
        starting.args(["proxy", "--http", "0", "--instance", "laptop", "--engine", "tcp", "--accept", "tcp"]);
        starting.args(["--via", &format!("https://{}", proxy.at), "--via-ca", "ca.pem"]);
        starting.args(["--via-certificate", shown, "--via-key", shown]);
        let mut laptop = starting.stdout(Stdio::piped()).spawn().expect("a proxy");
        let mut said = BufReader::new(laptop.stdout.take().expect("its output"));
        let mut line = String::new();
        said.read_line(&mut line).expect("a line");
        let laptop_at = line.split_whitespace().find(|word| word.starts_with("127.0.0.1:")).expect("where");
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--noproxy", "", "--max-time", "60", "--proxy", &format!("http://{laptop_at}")]);
        let heard = curl.arg(format!("http://{at}/")).output().expect("curl runs");
        let _ = laptop.kill();
        let _ = laptop.wait();
        match says {
            None => {
                assert!(heard.stdout == body, "{:?}", heard.stderr);
                let line = proxy.line();
                assert!(line.contains(" ann.example to "), "{line}");
            }
            Some(says) => {
                let heard = String::from_utf8_lossy(&heard.stdout);
                assert!(heard.contains(says), "{heard}");
            }
        }
    }
}

#[test]
fn a_reload_takes_other_certificates_and_a_wrong_one_changes_nothing() {
    if !has_curl_or_skip("curl by TLS after a reload") {
        return;
    }
    let proxy = Fixture::new();
    let at = server(answer(b"hello", Some(5)), false);
    let comes_in = |shown| proxy.curl(at, Some(shown), &[]).stdout == b"hello";
    assert!(comes_in("ann.pem"));

    // One that lives stays.
    let mut within = TcpStream::connect(proxy.at).expect("the proxy");
    let other = Authority::new("another one");
    fs::write(proxy.place("ca.pem"), format!("{}{}", proxy.authority.pem, other.pem)).expect("room");
    other.vouch("ben.example", 2090, &proxy.place("ben.pem"));
    assert!(!comes_in("ben.pem"));
    let said = proxy.reload();
    assert!(said.status.success(), "{said:?}");
    assert!(comes_in("ben.pem") && comes_in("ann.pem"));
    within.set_read_timeout(Some(std::time::Duration::from_millis(1))).expect("an option");
    assert!(within.read(&mut [0; 1]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock));

    fs::write(proxy.place("ca.pem"), "nonsense").expect("room");
    let said = proxy.reload();
    let line = String::from_utf8(said.stderr).expect("text");
    let expected = "proxy.toml, entrances[0].tls: ca.pem: there is no certificate in it; expected PEM, with BEGIN CERTIFICATE";
    assert!(!said.status.success() && line.contains(expected) && line.lines().count() == 1, "{line}");
    fs::write(proxy.place("ca.pem"), &proxy.authority.pem).expect("room");
    assert!(comes_in("ben.pem") && comes_in("ann.pem"));
}
