//! `polypath get --ranges` and `https://`: parts of one file over each interface.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

mod lab;

use lab::{Lab, Running, has_or_skip};
use polypath_testbed::Testbed;
use rustix::process::{Pid, Signal};
use serde_json::Value;

const SIZE: usize = 6_000_000;

fn get(arguments: &[&str], to: &Path, url: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
    command.args(["get", "--no-config"]).args(arguments).arg("-o").arg(to).arg(url);
    command.stdin(Stdio::null());
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Two uplinks, and a server of a file beyond them.
struct Site {
    lab: Lab,
    _server: Running,
    file: PathBuf,
    url: String,
}

impl Site {
    fn new_or_skip(what: &str) -> Option<Self> {
        let lab = Lab::with_rate_or_skip(what, "20mbit")?;
        lab.add_default_routes();
        let folder = lab.folder().join("site");
        fs::create_dir(&folder).expect("a folder");
        let file = lab.file("site/file", SIZE);
        let mut serve = Command::new(env!("CARGO_BIN_EXE_polypath"));
        serve.args(["serve", "--quiet", "--no-config", "--engine", "tcp", "--listen", "0.0.0.0:8077"]);
        let server = lab.serve(serve.arg(folder), 8077);
        let url = format!("http://{}:8077/file", Testbed::server_v4(0));
        Some(Self { lab, _server: server, file, url })
    }

    fn out(&self) -> PathBuf {
        self.lab.folder().join("out")
    }

    fn assert_whole(&self) {
        assert!(fs::read(self.out()).expect("the file") == fs::read(&self.file).expect("ours"));
        for ending in ["parts", "parts.json", "parts.json.new"] {
            assert!(!self.out().with_extension(ending).exists(), "{ending}");
        }
    }
}

#[test]
fn a_file_comes_over_both_interfaces() {
    let Some(site) = Site::new_or_skip("downloads in ranges") else { return };
    // By either, the server's address is reached through the default route.
    let output = site.lab.output(&mut get(&["--ranges"], &site.out(), &site.url));
    assert!(output.status.success(), "{}", said(&output));
    site.assert_whole();
    let carried = site.lab.carried();
    assert!(carried.iter().all(|bytes| *bytes > SIZE as u64 / 4), "{carried:?}");
    let last = said(&output).lines().last().unwrap_or_default().to_string();
    assert!(last.contains("path0 ") && last.contains("path1 "), "{last}");
    // One that is named is the only one.
    let report = site.lab.folder().join("report.json");
    let words = ["--ranges", "-I", "path1", "--json-file", report.to_str().expect("a name")];
    let output = site.lab.output(&mut get(&words, &site.out(), &site.url));
    assert!(output.status.success(), "{}", said(&output));
    let report: Value = serde_json::from_slice(&fs::read(report).expect("a report")).expect("JSON");
    assert_eq!(report["engine"], "ranges");
    assert_eq!(report["shares"]["interfaces"][0]["interface"], "path1");
    assert_eq!(report["shares"]["interfaces"].as_array().map(Vec::len), Some(1));
}

#[test]
fn why_a_file_came_over_one_interface_is_told() {
    if !has_or_skip("python3", "a server without ranges") {
        return;
    }
    let Some(site) = Site::new_or_skip("downloads in ranges over one interface") else { return };
    let last = |output: &Output| said(output).lines().last().unwrap_or_default().to_string();
    let words = ["--ranges", "-I", "path0,path1,backup,budget=1MB"];
    let output = site.lab.output(&mut get(&words, &site.out(), &site.url));
    assert!(output.status.success(), "{}", said(&output));
    let told = "path0 6.0 MB; one path only: path1 has a budget, which downloads in ranges can't keep, and was left out";
    assert_eq!(last(&output), told);
    let folder = site.lab.folder().join("site");
    let mut python = Command::new("python3");
    python.args(["-m", "http.server", "8078", "--directory"]).arg(folder).stderr(Stdio::null());
    let _python = site.lab.serve(python.stdout(Stdio::null()), 8078);
    let url = site.url.replace("8077", "8078");
    let output = site.lab.output(&mut get(&["--ranges"], &site.out(), &url));
    assert!(output.status.success(), "{}", said(&output));
    site.assert_whole();
    // The system would have taken it too.
    assert_eq!(last(&output), "path0 6.0 MB; one path only: the server gives no ranges");
}

#[test]
fn cookies_are_sent_and_kept_where_they_belong() {
    use std::io::{Read as _, Write as _};
    use std::os::unix::fs::MetadataExt as _;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    let url = format!("http://{}/file", listener.local_addr().expect("an address"));
    // It gives a file to each request, and the last word is a refusal.
    let serving = std::thread::spawn(move || {
        let answers = [
            "200 OK\r\nSet-Cookie: s=1; HttpOnly",
            "200 OK\r\nSet-Cookie: s=2; HttpOnly; Max-Age=1000",
            "403 No\r\nSet-Cookie: t=1",
        ];
        answers.map(|answer| {
            // A connection may be made in advance, and be of no use.
            let (mut stream, asked) = loop {
                let (mut stream, _) = listener.accept().expect("a connection");
                let (mut asked, mut buffer) = (Vec::new(), [0; 1024]);
                while !asked.ends_with(b"\r\n\r\n")
                    && let Ok(read @ 1..) = stream.read(&mut buffer)
                {
                    asked.extend_from_slice(&buffer[..read]);
                }
                if asked.ends_with(b"\r\n\r\n") {
                    break (stream, asked);
                }
            };
            let head = format!("HTTP/1.1 {answer}\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
            stream.write_all(head.as_bytes()).expect("room");
            let asked = String::from_utf8(asked).expect("text");
            asked.lines().find_map(|line| line.strip_prefix("Cookie: ")).map(str::to_owned)
        })
    });
    let folder = tempfile::tempdir().expect("a folder");
    let (out, jar) = (folder.path().join("out"), folder.path().join("jar"));
    let name = jar.to_str().expect("a name");
    let words: [&[&str]; 3] = [
        &["--ranges", "-c", name],
        &["--ranges", "-b", name, "-b", "a=b", "--cookie-jar", name],
        &["--ranges", "--cookie", name, "-c", name],
    ];
    let kept = words.map(|words| {
        let output = get(words, &out, &url).output().expect("polypath");
        assert_eq!(output.status.success(), words[1] != "--cookie", "{}", said(&output));
        let mode = fs::metadata(&jar).expect("a jar").mode() & 0o777;
        assert_eq!(mode, 0o600);
        fs::read_to_string(&jar).expect("a jar")
    });
    let sent = serving.join().expect("a server");
    assert_eq!(sent, [None, Some("s=1; a=b".into()), Some("s=2".into())]);
    assert!(kept[0].contains("#HttpOnly_127.0.0.1\tFALSE\t/\tFALSE\t0\ts\t1\n"), "{}", kept[0]);
    // What was there is kept after a failure too. By http, nobody knows who refused.
    assert!(kept[1].contains("\ts\t2\n") && kept[2] == kept[1], "{kept:?}");
    // Without ranges there are no cookies.
    let output = get(&["-b", "a=b"], &out, &url).output().expect("polypath");
    assert!(said(&output).contains("--cookie is for downloads in ranges"), "{}", said(&output));
    let output = get(&["--ranges", "-c", "-"], &out, &url).output().expect("polypath");
    assert!(said(&output).contains("--cookie-jar: -: "), "{}", said(&output));
}

#[test]
fn many_files_come_at_once_and_the_one_that_fails_is_told() {
    let Some(site) = Site::new_or_skip("many downloads at once") else { return };
    let out = site.lab.folder().join("many");
    fs::create_dir(&out).expect("a folder");
    let server = site.url.trim_end_matches("file");
    let mut list = format!("# all of them\n\n{}\n{server}missing\n", site.url);
    let names: Vec<String> = (0..60).map(|number| format!("small{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        site.lab.file(&format!("site/{name}"), 20_000 + 100 * number);
        list += &format!("{server}{name}\n");
    }
    let listed = site.lab.folder().join("list");
    fs::write(&listed, list).expect("a list");
    let report = site.lab.folder().join("report.json");
    let many = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
        command.args(["get", "--no-config", "--ranges", "-Z", "--parallel-max", "8"]).args(words);
        command.stdin(fs::File::open(&listed).expect("the list")).current_dir(&out);
        site.lab.output(&mut command)
    };
    let output = many(&["-i", "-", "--json-file", report.to_str().expect("a name")]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    for name in names.iter().map(String::as_str).chain(["file"]) {
        let expected = fs::read(site.lab.folder().join("site").join(name)).expect("ours");
        assert!(fs::read(out.join(name)).expect("a file") == expected, "{name}");
    }
    assert_eq!(fs::read_dir(&out).expect("a folder").count(), 61);
    let carried = site.lab.carried();
    assert!(carried.iter().all(|bytes| *bytes > 1_000_000), "{carried:?}");
    let said_lines = said(&output);
    let lines: Vec<&str> = said_lines.lines().collect();
    assert_eq!(lines.len(), 4, "{lines:?}");
    let refused = format!("polypath: missing: {server}missing: the server says 404 (not found)");
    assert_eq!(lines[0], refused);
    assert!(lines[1].starts_with("61 of 62 files: "), "{lines:?}");
    assert!(lines[2].contains("path0 ") && lines[2].contains("path1 "), "{lines:?}");
    assert_eq!(lines[3], "polypath: 1 of 62 files could not be fetched");
    let report: Value = serde_json::from_slice(&fs::read(report).expect("a report")).expect("JSON");
    assert_eq!(report["files"].as_array().map(Vec::len), Some(62));
    // What would be written to one place is not begun.
    let output = many(&[&site.url, &site.url]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("file: two URLs have this name"), "{}", said(&output));
    let output = many(&["--limit-rate", "1mbit", &site.url, &format!("{server}small0")]);
    assert!(said(&output).contains("--limit-rate is for one file after another"), "{}", said(&output));
}

#[test]
fn what_is_lost_or_killed_is_gone_on_with() {
    let Some(site) = Site::new_or_skip("downloads in ranges, disturbed") else { return };
    // Killed in the middle, it goes on where it was.
    let mut first = site.lab.start(&mut get(&["--ranges", "-q"], &site.out(), &site.url));
    // Which bytes are there is written down every second.
    let record = site.lab.folder().join("out.parts.json");
    while !record.exists() {
        assert!(first.0.try_wait().expect("our own child").is_none(), "it ended before it was killed");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    first.0.kill().expect("our own child");
    first.0.wait().expect("our own child");
    // Interrupted, it says what is there.
    let before = site.lab.carried().iter().sum::<u64>();
    let interrupted = site.lab.start(&mut get(&["--ranges", "-C"], &site.out(), &site.url));
    site.lab.wait_until_carried(before + 200_000);
    let id = Pid::from_child(&interrupted.0);
    rustix::process::kill_process(id, Signal::INT).expect("our own child");
    let output = lab::finish(interrupted);
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    let told = format!(" bytes are kept in {}.parts; --resume goes on from there", site.out().display());
    assert!(said(&output).lines().any(|line| line.ends_with(&told)), "{}", said(&output));
    let report = site.lab.folder().join("report.json");
    let words = ["--ranges", "-C", "--json-file", report.to_str().expect("a name")];
    let output = site.lab.output(&mut get(&words, &site.out(), &site.url));
    assert!(output.status.success(), "{}", said(&output));
    site.assert_whole();
    let report: Value = serde_json::from_slice(&fs::read(report).expect("a report")).expect("JSON");
    let came = report["files"][0]["bytes"].as_u64().expect("a number");
    assert!(came < SIZE as u64, "{came} bytes came again");
    // Its rate is of what came now.
    let line = said(&output).lines().find(|line| line.contains("Mbit/s")).unwrap_or_default().to_string();
    let (begin, end) = (format!(": {came} bytes in "), format!("; {} bytes were there", SIZE as u64 - came));
    assert!(line.contains(&begin) && line.ends_with(&end), "{line}");
    // A path that is cut takes nothing with it.
    fs::remove_file(site.out()).expect("our own file");
    let before = site.lab.carried().iter().sum::<u64>();
    let second = site.lab.start(&mut get(&["--ranges"], &site.out(), &site.url));
    site.lab.wait_until_carried(before + SIZE as u64 / 4);
    site.lab.cut(1);
    let output = lab::finish(second);
    assert!(output.status.success(), "{}", said(&output));
    site.assert_whole();
    let told = "polypath: path1: the interface is down; path0 goes on";
    assert!(said(&output).lines().any(|line| line == told), "{}", said(&output));
}

#[test]
fn mistakes_are_one_line_and_leave_nothing() {
    let Some(site) = Site::new_or_skip("downloads in ranges that fail") else { return };
    let missing = site.url.replace("file", "missing");
    for (words, url, code, expected) in [
        (&["--ranges"][..], &missing, 1, "the server says 404"),
        (
            &["--ranges", "--engine", "tun"],
            &site.url,
            2,
            "--engine: downloads in ranges use the system's TCP",
        ),
        (&["--retry", "3"], &site.url, 2, "--retry is for downloads in ranges"),
        (&["--ranges", "-I", "usb0"], &site.url, 1, "there is no such interface"),
        (&["--ranges", "--backup", "usb0"], &site.url, 2, "there is no interface usb0; present are: "),
        (&["--ranges", "-I", "path0,budget=1MB"], &site.url, 2, "path0: downloads in ranges have no budgets"),
        (&["--ranges", "--live"], &site.url, 2, "--live: downloads in ranges have no such view"),
        (&["--ranges", "--cacert", "/nothing"], &site.url, 2, "/nothing: No such file"),
    ] {
        let output = site.lab.output(&mut get(words, &site.out(), url));
        let message = said(&output);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {message}");
        assert!(
            message.contains(expected) && message.trim_end().lines().count() == 1,
            "{words:?}: {message}"
        );
        let left: Vec<_> = fs::read_dir(site.lab.folder()).expect("a folder").flatten().collect();
        assert_eq!(left.len(), 1, "{words:?}: {left:?}");
    }
    for words in [&["-x", "ftp://me:secret@192.0.2.1"][..], &["-H", "AuthorizationBearersecret"]] {
        let output = site.lab.output(&mut get(&[&["--ranges"], words].concat(), &site.out(), &site.url));
        let message = said(&output);
        assert!(output.status.code() == Some(2) && !message.contains("secret"), "{message}");
    }
    let sum = format!("sha-256={}", "0".repeat(64));
    let output = site.lab.output(&mut get(&["--ranges", "--checksum", &sum], &site.out(), &site.url));
    assert!(said(&output).contains("expected 0000") && !site.out().exists(), "{}", said(&output));
}

#[test]
fn https_is_verified() {
    if !has_or_skip("nginx", "https") {
        return;
    }
    let Some(site) = Site::new_or_skip("https") else { return };
    let address = Testbed::server_v4(0).to_string();
    let folder = site.lab.folder();
    let identity = rcgen::generate_simple_self_signed(vec![address.clone()]).expect("a certificate");
    fs::write(folder.join("certificate"), identity.cert.pem()).expect("a file");
    fs::write(folder.join("key"), identity.signing_key.serialize_pem()).expect("a file");
    let places = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|what| format!("{what}_temp_path {}/{what};", folder.display()));
    let root = folder.display();
    let configuration = format!(
        "daemon off; master_process off; pid {root}/pid; error_log {root}/errors; events {{}}
         http {{ log_format version '$args $server_protocol'; access_log {root}/versions version; {}
         server {{ listen 8443 ssl http2; ssl_certificate {root}/certificate; ssl_certificate_key {root}/key; root {root}/site; }} }}",
        places.join(" ")
    );
    fs::write(folder.join("nginx.conf"), configuration).expect("a file");
    let mut nginx = Command::new("nginx");
    let _nginx = site.lab.serve(nginx.arg("-c").arg(folder.join("nginx.conf")).arg("-q"), 8443);
    let url = format!("https://{address}:8443/file");
    let refused = site.lab.output(&mut get(&[], &site.out(), &url));
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).contains("TLS: the server's certificate is "), "{}", said(&refused));
    let certificate = folder.join("certificate");
    let certificate = certificate.to_str().expect("a name");
    for (option, version) in [("--http1.1", "HTTP/1.1"), ("--http2", "HTTP/2.0")] {
        let before = site.lab.carried();
        let words = ["--cacert", certificate, option];
        let output = site.lab.output(&mut get(&words, &site.out(), &format!("{url}?{option}")));
        assert!(output.status.success(), "{}", said(&output));
        site.assert_whole();
        let carried = site.lab.carried().into_iter().zip(before).map(|(now, before)| now - before);
        let carried: Vec<u64> = carried.collect();
        assert!(carried.iter().all(|bytes| *bytes > SIZE as u64 / 4), "{option}: {carried:?}");
        let asked = fs::read_to_string(folder.join("versions")).expect("a file");
        // Who was asked last may write it down later.
        let mut versions = asked.lines().filter_map(|asked| asked.strip_prefix(option)).peekable();
        assert!(versions.peek().is_some() && versions.all(|asked| asked.trim() == version), "{asked}");
        fs::remove_file(site.out()).expect("the file");
    }
}

/// A server on this host's loopback, which gives every request the same answer; where it is.
fn answering(head: &str, body: &[u8]) -> String {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a listener");
    let at = listener.local_addr().expect("an address");
    let answer = [format!("{head}Content-Length: {}\r\n\r\n", body.len()).as_bytes(), body].concat();
    // It ends with the test.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut asked = Vec::new();
            let mut buffer = [0; 1024];
            while !asked.ends_with(b"\r\n\r\n") {
                match stream.read(&mut buffer) {
                    Ok(read) if read > 0 => asked.extend_from_slice(&buffer[..read]),
                    _ => break,
                }
            }
            let _ = stream.write_all(&answer);
        }
    });
    format!("http://{at}/file")
}

#[test]
fn a_mirror_brings_what_the_first_server_does_not_have() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let gone = answering("HTTP/1.1 404 Not Found\r\n", b"");
    let there = answering("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n", b"all of it");
    let fetched = get(&["--ranges", "--mirror", &there], &out, &gone).output().expect("the program");
    let said_of_it = said(&fetched);
    assert!(fetched.status.success(), "{said_of_it}");
    assert_eq!(fs::read(&out).expect("the file"), b"all of it");
    assert!(said_of_it.contains("404 (not found); it is fetched from"), "{said_of_it}");
    // One that is none is refused before anything is asked.
    let refused = get(&["--ranges", "--mirror", "ftp://192.0.2.1/"], &out, &there).output();
    let refused = refused.expect("the program");
    assert_eq!((refused.status.code(), said(&refused).lines().count()), (Some(2), 1), "{}", said(&refused));
    // By other ways than in ranges, nobody would use it.
    let alone = get(&["--mirror", &there], &out, &gone).output().expect("the program");
    assert!(said(&alone).contains("--mirror is for downloads in ranges"), "{}", said(&alone));
}

#[test]
fn a_metalink_says_where_a_file_is_and_what_it_has_to_be() {
    let folder = tempfile::tempdir().expect("a folder");
    let other = answering("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n", b"other one");
    let there = answering("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n", b"all of it");
    // The SHA-256 of what is there.
    let digest = "07630777646b9ad0ad5940c20f7703e5ba431d90dc8f191af6916bffca3e859c";
    let document = |name: &str| {
        format!(
            "<metalink xmlns='urn:ietf:params:xml:ns:metalink'><file name='{name}'><size>9</size>\
             <hash type='sha-256'>{digest}</hash><url priority='2'>{there}</url><url priority='1'>{other}</url>\
             </file></metalink>"
        )
    };
    let run = |document: String, served: bool| {
        let place = folder.path().join("list.meta4");
        fs::write(&place, &document).expect("a file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
        command.args(["get", "--no-config", "--ranges"]).current_dir(folder.path()).stdin(Stdio::null());
        let url = answering("HTTP/1.1 200 OK\r\n", document.as_bytes()).replace("/file", "/list.meta4");
        command.arg(if served { url.as_str() } else { "list.meta4" }).output().expect("the program")
    };
    for served in [false, true] {
        let done = run(document("a/file.txt"), served);
        assert!(done.status.success(), "{}", said(&done));
        let file = folder.path().join("file.txt");
        assert_eq!(fs::read(&file).expect("the file"), b"all of it");
        // Nobody's file is replaced under a name that a server chose.
        fs::write(&file, "mine").expect("the file");
        let again = run(document("file.txt"), served);
        let is_kept = fs::read(&file).expect("the file") == b"mine";
        assert_eq!((again.status.success(), is_kept), (!served, served), "{}", said(&again));
        fs::remove_file(file).expect("the file");
        // A name that leads elsewhere is none.
        let refused = run(document("../file.txt"), served);
        assert!(said(&refused).contains("expected a name without"), "{}", said(&refused));
        assert!(!refused.status.success() && said(&refused).lines().count() == 1, "{}", said(&refused));
    }
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
}
