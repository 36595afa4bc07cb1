//! What a server answers, and to whom.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::site::{Site, content, same};

#[test]
fn requests_get_what_the_standard_says() {
    let site = Site::new(&[]);
    let all = content(3_000_000);
    let (status, head, body) = site.ask("GET", "/big.bin", "");
    assert!(status == 200 && body == all, "{head}");
    assert_eq!(Site::field(&head, "content-type"), "application/octet-stream");
    let (etag, modified) = (Site::field(&head, "etag"), Site::field(&head, "last-modified"));
    let (status, head, body) = site.ask("HEAD", "/big.bin", "");
    assert!(status == 200 && body.is_empty() && Site::field(&head, "content-length") == "3000000");
    for (fields, status) in [
        (format!("If-None-Match: {etag}\r\n"), 304),
        (format!("If-Modified-Since: {modified}\r\n"), 304),
        ("If-None-Match: \"x\"\r\n".into(), 200),
        ("If-Match: \"x\"\r\n".into(), 412),
        (format!("If-Range: {etag}\r\nRange: bytes=0-9\r\n"), 206),
        ("If-Range: \"x\"\r\nRange: bytes=0-9\r\n".into(), 200),
        ("Range: bytes=3000000-\r\n".into(), 416),
    ] {
        assert_eq!(site.ask("GET", "/big.bin", &fields).0, status, "{fields}");
    }
    let (status, head, body) = site.ask("GET", "/big.bin", "Range: bytes=1000-1999\r\n");
    assert!(status == 206 && body == all[1000..2000], "{head}");
    assert_eq!(Site::field(&head, "content-range"), "bytes 1000-1999/3000000");
    assert_eq!(site.ask("GET", "/big.bin", "Range: bytes=-5\r\n").2, all[2_999_995..]);
    assert_eq!(site.ask("GET", "/empty", "").2, b"");
    let (status, head, _) = site.ask("GET", "/sub", "");
    assert!(status == 301 && Site::field(&head, "location") == "/sub/");
    let (_, head, body) = site.ask("GET", "/sub/", "");
    assert!(body == b"<p>index</p>" && Site::field(&head, "content-type").starts_with("text/html"));
    let page = String::from_utf8(site.ask("GET", "/sub/deep/", "").2).expect("a page");
    assert!(page.contains("href=\"./a%20b%25.txt\""), "{page}");
    assert_eq!(site.ask("GET", "/sub/deep/a%20b%25.txt", "").2, b"deep");
    assert_eq!(site.ask("POST", "/", "Content-Length: 0\r\n").0, 405);
    let (code, log) = site.stop();
    assert_eq!(code, Some(0));
    assert!(
        log.contains("127.0.0.1 - - [") && log.contains("\"GET /big.bin HTTP/1.1\" 200 3000000"),
        "{log}"
    );
}

/// Connections that ask for nothing yet.
fn idle(site: &Site, count: usize) -> Vec<TcpStream> {
    (0..count).map(|_| TcpStream::connect(("127.0.0.1", site.port)).expect("the server")).collect()
}

#[test]
fn descriptors_are_had_up_to_the_hard_limit() {
    let (site, _said) = Site::limited("-Sn 128", &[]);
    // 128 would be enough for 16.
    for mut stream in idle(&site, 100) {
        write!(stream, "GET /empty HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("room");
        assert_eq!(Site::answer(stream).0, 200);
    }
}

#[test]
fn too_few_descriptors_are_told_once() {
    let (site, mut said) = Site::limited("-n 128", &[]);
    let _held = idle(&site, 40);
    // Accepted after all of those.
    assert_eq!(site.ask("GET", "/empty", "").0, 200);
    site.stop();
    let mut lines = String::new();
    said.read_to_string(&mut lines).expect("lines");
    assert!(lines.contains("128 descriptors are enough for 16 connections at once"), "{lines}");
    assert_eq!(lines.matches("descriptors are enough").count(), 1, "{lines}");
}

#[test]
fn nothing_outside_is_reached() {
    let site = Site::new(&["--writable"]);
    assert_eq!(site.ask("GET", "/good", "").0, 200, "a link that stays inside is fine");
    for path in [
        "/evil",
        "/absolute",
        "/up/secret",
        "/up/",
        "/../secret",
        "/%2e%2e/secret",
        "/sub/../../secret",
        "/..%2fsecret",
        "/sub/%2e%2e/%2e%2e/secret",
        "/nosuch",
        "/big.bin/",
        "/big.bin/x",
        "/%00",
        "//etc/passwd",
    ] {
        let (status, head, body) = site.ask("GET", path, "");
        assert!(matches!(status, 400 | 403 | 404), "{path}: {head}");
        assert!(
            !body.windows(6).any(|bytes| bytes == b"secret")
                && !body.windows(4).any(|bytes| bytes == b"root")
        );
    }
    for path in ["/up/new", "/../new", "/up/../../new", "/absolute/new"] {
        let (status, ..) = site.ask("PUT", path, "Content-Length: 0\r\n");
        assert!(matches!(status, 400 | 403 | 404), "{path}: {status}");
    }
    // A link at the place of an upload under way leads nowhere, and one at its end is replaced, not followed.
    symlink("../secret", site.site(".trap.part")).expect("a link");
    assert!(site.ask("PUT", "/trap", "Content-Length: 0\r\n").0 >= 400);
    assert_eq!(site.ask("PUT", "/evil", "Content-Length: 0\r\n").0 / 100, 2);
    assert!(!fs::symlink_metadata(site.site("evil")).expect("a file").is_symlink());
    assert_eq!(fs::read(site.folder.path().join("secret")).expect("a file"), b"secret");
    let names = fs::read_dir(site.folder.path()).expect("the folder").count();
    assert_eq!(names, 3, "nothing new beside site, out and secret");
}

#[test]
fn hidden_files_are_not_there_unless_asked_for() {
    for (options, found) in [(&["--writable"][..], 404), (&["--writable", "--hidden"], 200)] {
        let site = Site::new(options);
        fs::create_dir(site.site(".git")).expect("a folder");
        fs::write(site.site(".git/config"), "secret").expect("a file");
        fs::write(site.site(".profile"), "secret").expect("a file");
        for path in ["/.profile", "/.git/config", "/.git/", "/sub/../.profile", "/%2eprofile"] {
            let (status, head, _) = site.ask("GET", path, "");
            assert_eq!(status, found, "{path}: {head}");
        }
        let page = String::from_utf8(site.ask("GET", "/", "").2).expect("a page");
        assert_eq!(page.contains(".profile"), found == 200, "{page}");
        for path in ["/.profile", "/.ssh/authorized_keys"] {
            let (status, ..) = site.ask("PUT", path, "Content-Length: 0\r\n");
            assert_eq!(status / 100, if found == 200 { 2 } else { 4 }, "{path}");
        }
        assert_eq!(fs::read(site.site(".profile")).expect("the file").is_empty(), found == 200);
    }
}

#[test]
fn only_who_has_the_token_stores_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let (right, wrong) = (folder.path().join("right"), folder.path().join("wrong"));
    fs::write(&right, "0123456789abcdef\n").expect("a file");
    fs::write(&wrong, "0123456789abcdeg\n").expect("a file");
    let private = |file: &Path| fs::set_permissions(file, Permissions::from_mode(0o600)).expect("our file");
    private(&right);
    private(&wrong);
    let (right, wrong) = (right.display().to_string(), wrong.display().to_string());
    let site = Site::new(&["--quiet", "--writable", "--token-file", &right]);
    for (fields, status) in [
        ("", 401),
        ("Authorization: Bearer 0123456789abcdeg\r\n", 401),
        ("Authorization: Basic eDowMTIzNDU2Nzg5YWJjZGVm\r\n", 201),
        ("Authorization: Bearer 0123456789abcdef\r\n", 200),
    ] {
        let (answered, head, _) = site.ask("PUT", "/new", &format!("{fields}Content-Length: 0\r\n"));
        assert_eq!(answered, status, "{fields}: {head}");
        assert_eq!(head.contains("www-authenticate: Bearer"), status == 401, "{head}");
    }
    // Reading is for everybody, but for what is under way.
    site.succeeds(&["get", "-q", &site.url("/big.bin")]);
    fs::write(site.site(".again.part"), &content(3_000_000)[..1_000_000]).expect("a file");
    assert_eq!(site.ask("GET", "/.again.part", "").0, 404);
    site.fails(&["cp", "big.bin", &site.url("/again")], 1, "the server wants a token");
    site.fails(
        &["cp", "--token-file", &wrong, "big.bin", &site.url("/again")],
        1,
        "the server has another token",
    );
    let output = site.succeeds(&["cp", "-C", "--token-file", &right, "big.bin", &site.url("/again")]);
    let said = String::from_utf8_lossy(&output.stderr).to_string();
    assert!(said.contains("2000000 bytes"), "{said}");
    same(&site.site("again"), &site.out("big.bin"));
    fs::write(&wrong, "short").expect("a file");
    site.fails(&["cp", "--token-file", &wrong, "big.bin", &site.url("/x")], 2, "expected a token of 16");
}

#[test]
fn a_token_that_others_may_read_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let token = folder.path().join("token");
    fs::write(&token, "0123456789abcdef").expect("a file");
    let refuses = |command: &[&str], says: &str| {
        let mut polypath = Command::new(env!("CARGO_BIN_EXE_polypath"));
        polypath.args(command).arg("--token-file").arg(&token).current_dir(folder.path());
        let output = polypath.stdin(Stdio::null()).output().expect("the command runs");
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), message.lines().count()), (Some(2), 1), "{message}");
        assert!(message.contains(says) && message.contains("token: "), "{message}");
    };
    let serve = ["serve", "--engine", "tcp", "--listen", "127.0.0.1:0", "--writable"];
    let copy = ["cp", "--engine", "tcp", "token", "http://127.0.0.1:1/"];
    for mode in [0o644, 0o640, 0o620, 0o602] {
        fs::set_permissions(&token, Permissions::from_mode(mode)).expect("our file");
        for command in [&serve[..], &copy] {
            refuses(command, &format!("has mode {mode:04o}; expected user"));
        }
    }
    fs::set_permissions(&token, Permissions::from_mode(0o600)).expect("our file");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&token, Some(65_534), None).expect("we may");
        refuses(&serve, "belongs to user 65534");
    } else {
        eprintln!("SKIPPED: a file of somebody else's needs root, to give it away");
    }
}

#[test]
fn pages_of_others_store_nothing() {
    let site = Site::new(&["--writable", "--quiet"]);
    for (origin, status) in [
        ("http://evil.example", 403),
        ("null", 403),
        ("http://203.0.113.5", 403),
        ("http://127.0.0.1:8077", 201),
    ] {
        let fields = format!("Origin: {origin}\r\nContent-Length: 0\r\n");
        assert_eq!(site.ask("PUT", "/new", &fields).0, status, "{origin}");
    }
}

/// Sends the beginning of a request with a body, the body, and no more.
fn put(site: &Site, fields: &str, body: &[u8]) -> (u16, String, Vec<u8>) {
    let mut stream = TcpStream::connect(("127.0.0.1", site.port)).expect("the server");
    let head = format!("PUT /new HTTP/1.1\r\nConnection: close\r\n{fields}\r\n");
    stream.write_all(head.as_bytes()).expect("room");
    stream.write_all(body).expect("a server that reads it, wanted or not");
    stream.shutdown(Shutdown::Write).expect("a connection");
    Site::answer(stream)
}

/// A name that somebody else has lead to us (DNS rebinding) is in `Host`, and there may be no `Origin`.
#[test]
fn who_calls_us_by_names_of_others_stores_nothing() {
    for (options, host, status) in [
        (&[][..], "evil.example:8077", 421),
        (&["--name", "nas.example"], "evil.example", 421),
        (&["--name", "nas.example"], "NAS.example:8077", 201),
        (&[], "localhost:8077", 201),
        (&[], "[::1]", 201),
        (&[], "127.0.0.1\r\nHost: evil.example", 421),
    ] {
        let site = Site::new(&[&["--writable", "--quiet"], options].concat());
        let (answered, head, body) = put(&site, &format!("Host: {host}\r\nContent-Length: 4\r\n"), b"data");
        assert_eq!(answered, status, "{host}: {head}");
        assert_eq!(site.site("new").exists(), status == 201);
        assert_eq!(String::from_utf8_lossy(&body).contains("--name"), status == 421);
    }
}

#[test]
fn an_upload_that_ends_early_is_the_clients_mistake_and_no_file() {
    let site = Site::new(&["--writable", "--quiet"]);
    for (framing, body) in [
        ("Content-Length: 100", &b"begun"[..]),
        ("Transfer-Encoding: chunked", b"9\r\nbegun"),
        ("Transfer-Encoding: chunked", b"5\r\nbegun\r\n"),
        ("Transfer-Encoding: chunked", b"no number\r\n"),
    ] {
        let (status, head, _) = put(&site, &format!("Host: [::1]\r\n{framing}\r\n"), body);
        assert_eq!(status, 400, "{framing}, {body:?}: {head}");
        assert!(!site.site("new").exists(), "{framing}, {body:?}");
    }
}

#[test]
fn an_upload_that_differs_from_its_digest_is_refused_and_not_kept() {
    let right = "Repr-Digest: sha-256=:Om6weQ85rIfJTzhWst0sXREOaBFgImGpqSPTuyOtyLc=:\r\n";
    let wrong = "Repr-Digest: sha-256=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:\r\n";
    let (length, chunked) = ("Content-Length: 4\r\n", "Transfer-Encoding: chunked\r\n");
    let rest = "Content-Length: 2\r\nContent-Range: bytes 2-3/4\r\n";
    let chunks = |trailer: &str| format!("4\r\ndata\r\n0\r\n{trailer}\r\n");
    for (fields, body, status, says) in [
        (format!("{length}{right}"), "data".into(), 201, "stored"),
        (format!("{length}Repr-Digest: sha-512=:AAAA:\r\n"), "data".into(), 201, "stored"),
        (format!("{length}{wrong}"), "data".into(), 400, "differs from its Repr-Digest"),
        (format!("{length}{right}{wrong}"), "data".into(), 400, "Repr-Digest makes no sense"),
        (
            format!("{length}Repr-Digest: sha-256=:AAAA:\r\n"),
            "data".into(),
            400,
            "Repr-Digest makes no sense",
        ),
        (chunked.into(), chunks(right), 201, "stored"),
        (chunked.into(), chunks(wrong), 400, "differs from its Repr-Digest"),
        (format!("{rest}{right}"), "ta".into(), 201, "stored"),
        (format!("{rest}{right}"), "TA".into(), 400, "differs from its Repr-Digest"),
    ] {
        let site = Site::new(&["--writable", "--quiet"]);
        if fields.starts_with(rest) {
            fs::write(site.site(".new.part"), "da").expect("room");
        }
        let (answered, head, answer) = put(&site, &format!("Host: [::1]\r\n{fields}"), body.as_bytes());
        let answer = String::from_utf8_lossy(&answer);
        assert!(answered == status && answer.contains(says), "{fields}: {head} {answer}");
        assert_eq!(answer.lines().count(), 1);
        assert_eq!(site.site("new").exists(), status == 201, "{fields}");
        assert!(!site.site(".new.part").exists(), "{fields}");
    }
}

#[test]
fn who_writes_before_reading_finds_the_refusal() {
    let site = Site::new(&["--writable", "--quiet"]);
    let body = content(24_000_000);
    let fields = format!("Host: evil.example\r\nContent-Length: {}\r\n", body.len());
    assert_eq!(put(&site, &fields, &body).0, 421);
    // Who waits to be asked is not.
    let (status, head, body) = put(&site, &format!("{fields}Expect: 100-continue\r\n"), b"");
    assert!(status == 421 && String::from_utf8_lossy(&body).contains("--name"), "{head}");
    let (status, ..) = put(&site, "Host: [::1]\r\nExpect: 100-continue\r\nContent-Length: 4\r\n", b"data");
    assert_eq!(status, 100);
}

#[test]
fn files_are_replaced_only_if_the_conditions_allow_it() {
    let site = Site::new(&["--writable", "--quiet"]);
    let put =
        |path: &str, condition: &str| site.ask("PUT", path, &format!("{condition}Content-Length: 0\r\n")).0;
    let etag = Site::field(&site.ask("HEAD", "/big.bin", "").1, "etag");
    assert_eq!(put("/big.bin", "If-None-Match: *\r\n"), 412);
    assert_eq!(put("/big.bin", "If-Match: \"stale\"\r\n"), 412);
    assert_eq!(put("/big.bin", "If-Unmodified-Since: Mon, 12 Jan 1970 13:46:40 GMT\r\n"), 412);
    assert_eq!(put("/folder/new", "If-Match: *\r\n"), 412);
    assert!(fs::read(site.site("big.bin")).expect("the file") == content(3_000_000));
    assert!(!site.site("folder").exists() && !site.site(".big.bin.part").exists());
    assert_eq!(put("/big.bin", &format!("If-Match: {etag}\r\n")), 200);
    assert_eq!(put("/new", "If-None-Match: *\r\n"), 201);
    assert_eq!(put("/new", "If-None-Match: *\r\n"), 412);
}

#[test]
fn what_is_sent_slowly_is_what_was_asked_for() {
    let site = Site::new(&["--quiet", "--limit-rate", "100mbit", "--limit-rate-per-connection", "40mbit"]);
    let all = content(3_000_000);
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..5).map(|_| scope.spawn(|| site.ask("GET", "/big.bin", "").2)).collect();
        for answer in asking {
            assert!(answer.join().expect("an answer") == all);
        }
    });
    assert_eq!(site.ask("GET", "/sub/deep/a%20b%25.txt", "").2, b"deep");
    assert_eq!(site.stop().0, Some(0));
}

#[test]
fn a_client_has_as_many_connections_as_it_may() {
    let site = Site::new(&["--quiet", "--limit-connections", "2"]);
    let held = idle(&site, 2);
    let asked = || {
        let mut stream = TcpStream::connect(("127.0.0.1", site.port)).expect("the server");
        let request = "GET /empty HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let mut answer = String::new();
        // One that is closed has no room for it, or is reset.
        let is_read = stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut answer));
        is_read.is_ok() && answer.starts_with("HTTP/1.1 200")
    };
    // Both are accepted before this one.
    assert!(!asked());
    drop(held);
    let asked_later = |_: &u32| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        asked()
    };
    // Nothing tells when the ends of the others have been heard.
    assert!((0..500).find(asked_later).is_some());
}

#[test]
fn many_clients_are_served_at_once() {
    let site = Site::new(&["--quiet"]);
    let all = content(3_000_000);
    std::thread::scope(|scope| {
        // Some that never say anything must not keep others from it.
        let idle: Vec<_> =
            (0..50).map(|_| TcpStream::connect(("127.0.0.1", site.port)).expect("the server")).collect();
        let asking: Vec<_> = (0..30).map(|_| scope.spawn(|| site.ask("GET", "/big.bin", "").2)).collect();
        for answer in asking {
            assert!(answer.join().expect("an answer") == all);
        }
        drop(idle);
    });
    assert_eq!(site.stop().0, Some(0));
}
