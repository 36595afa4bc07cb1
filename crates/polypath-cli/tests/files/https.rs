//! What a server does by HTTPS.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use rcgen::{CertificateParams, KeyPair};

use crate::site::{Site, content, same};

/// A site by HTTPS, with a certificate of its own making in the folder.
fn site(options: &[&str]) -> (Site, tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let certificate = folder.path().join("cert.pem").display().to_string();
    let made = format!("--tls-self-signed={certificate}");
    (Site::new(&[&[made.as_str()], options].concat()), folder, certificate)
}

fn url(site: &Site, host: &str) -> String {
    format!("https://{host}:{}/big.bin", site.port)
}

/// Writes a pair of files.
fn pair(folder: &Path, name: &str) -> [String; 2] {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(["localhost".into(), "127.0.0.1".into()]).expect("names");
    let certificate = params.self_signed(&key).expect("a certificate").pem();
    [("cert", certificate), ("key", key.serialize_pem())].map(|(kind, pem)| {
        let place = folder.join(format!("{name}.{kind}"));
        fs::write(&place, pem).expect("room");
        place.display().to_string()
    })
}

#[test]
fn a_certificate_of_its_own_making_is_verified_by_clients() {
    let (site, _folder, certificate) = site(&[]);
    for host in ["127.0.0.1", "localhost"] {
        let output = site.succeeds(&["get", "-q", "--cacert", &certificate, &url(&site, host)]);
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        same(&site.site("big.bin"), &site.out("big.bin"));
        fs::remove_file(site.out("big.bin")).expect("the file");
    }
    site.fails(&["get", "-q", &url(&site, "127.0.0.1")], 1, "TLS: the server's certificate is ");
    let (code, log) = site.stop();
    assert!(code == Some(0) && log.contains("can read these files"), "{log}");
    let sum = log.lines().find_map(|line| line.split_once("its SHA-256 is ")).map(|(_, sum)| sum.len());
    assert_eq!(sum, Some(95), "{log}");
    assert!(log.contains("\"GET /big.bin HTTP/1.1\" "), "{log}");
}

#[test]
fn who_speaks_http_at_the_port_of_https_is_told() {
    let (site, _folder, certificate) = site(&["--quiet"]);
    let (status, _, body) = site.ask("GET", "/big.bin", "");
    assert_eq!(status, 400);
    assert_eq!(String::from_utf8_lossy(&body), "this port speaks HTTPS; expected https:// in the URL\n");
    // What is neither gets no answer, and whoever has begun holds up nobody.
    let mut garbage = TcpStream::connect(("127.0.0.1", site.port)).expect("the server");
    garbage.write_all(&[0; 300]).expect("room");
    let mut answer = Vec::new();
    // A reset is an end, too.
    let _ = garbage.read_to_end(&mut answer);
    assert!(answer.is_empty(), "{answer:?}");
    let begun: Vec<_> = (0..50)
        .map(|number: usize| {
            let mut stream = TcpStream::connect(("127.0.0.1", site.port)).expect("the server");
            stream.write_all(&[22, 3, 1, 2][..number % 5]).expect("room");
            stream
        })
        .collect();
    site.succeeds(&["get", "-q", "--cacert", &certificate, &url(&site, "127.0.0.1")]);
    assert!(fs::read(site.out("big.bin")).expect("the file") == content(3_000_000));
    drop(begun);
    assert_eq!(site.stop().0, Some(0));
}

#[test]
fn files_that_are_no_pair_are_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let [certificate, key] = &pair(folder.path(), "one");
    let [_, other] = &pair(folder.path(), "other");
    let none = &folder.path().join("none").display().to_string();
    let photo = folder.path().join("photo.jpg");
    fs::write(&photo, "a photo").expect("room");
    let over_photo = format!("--tls-self-signed={}", photo.display());
    for (options, says) in [
        (vec!["--tls-cert", certificate, "--tls-key", other], "other.key: this key does not belong to"),
        (vec!["--tls-cert", none, "--tls-key", key], "none: can't be read: "),
        (vec!["--tls-cert", key, "--tls-key", key], "one.key: there is no certificate in it"),
        (vec!["--tls-cert", certificate, "--tls-key", certificate], "one.cert: there is no private key"),
        (vec!["--name", "nas.example"], "expected --writable or --tls-self-signed with it"),
        (vec![over_photo.as_str()], "photo.jpg: there is something else than a certificate"),
    ] {
        let mut serve = Command::new(env!("CARGO_BIN_EXE_polypath"));
        serve.args(["serve", "--engine", "tcp", "--listen", "127.0.0.1:0"]).args(&options);
        let output = serve.arg(folder.path()).stdin(Stdio::null()).output().expect("the command runs");
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), message.lines().count()), (Some(2), 1), "{message}");
        assert!(message.contains(says), "{message}");
    }
    assert_eq!(fs::read(&photo).expect("the photo"), b"a photo");
}

#[test]
fn a_service_reads_its_certificate_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let [certificate, key] = &pair(folder.path(), "one");
    let [next, next_key] = &pair(folder.path(), "next");
    let (site, mut said) = Site::without_terminal(&["--tls-cert", certificate, "--tls-key", key]);
    let is_taken = |certificate: &str| {
        let output = site.run(&["get", "-q", "--cacert", certificate, &url(&site, "127.0.0.1")]);
        // What is there is not fetched again.
        let _ = fs::remove_file(site.out("big.bin"));
        output.status.success()
    };
    assert!(is_taken(certificate) && !is_taken(next));
    fs::copy(next, certificate).expect("room");
    site.signal("-HUP");
    let mut first = [0; 10];
    said.read_exact(&mut first).expect("a line that the key does not fit");
    assert!(!is_taken(next), "the old pair is in use as long as the new one is none");
    fs::copy(next_key, key).expect("room");
    site.signal("-HUP");
    // The signal is no request: nothing tells when it has been heard.
    let again = |_: &u32| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        is_taken(next)
    };
    assert!((0..400).find(again).is_some());
    let (code, log) = site.stop();
    assert!(code == Some(0) && log.contains(" 206 "), "{log}");
}

/// What curl has to say of an answer, with the version of HTTP at its end; none if there is no curl that speaks HTTP/2.
fn curl(site: &Site, path: &str, options: &[&str]) -> Option<String> {
    let version = Command::new("curl").arg("--version").output();
    let has_http2 = version.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains("HTTP2"));
    if !has_http2 {
        eprintln!("SKIPPED: this needs a curl that speaks HTTP/2");
        return None;
    }
    let mut curl = Command::new("curl");
    curl.args(["-sSk", "--http2", "--max-time", "60", "-w", "\n%{http_version}"]).args(options);
    let output = curl.arg(format!("https://127.0.0.1:{}{path}", site.port)).output().expect("curl runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).replace('\r', ""))
}

#[test]
fn http2_has_the_answers_of_http1() {
    let (site, _folder, certificate) = site(&["--writable"]);
    let Some(head) = curl(&site, "/big.bin", &["-I"]) else { return };
    assert!(head.starts_with("HTTP/2 200") && head.contains("\ncontent-length: 3000000\n"), "{head}");
    let etag = format!("If-None-Match: {}", Site::field(&head, "etag"));
    for (path, options, expected) in [
        ("/sub/deep/a%20b%25.txt", &[][..], "deep\n2"),
        ("/sub/deep/a%20b%25.txt", &["-r", "1-2"], "ee\n2"),
        ("/sub/deep/a%20b%25.txt", &["-r", "9-", "-o", "/dev/null", "-w", "%{http_code}"], "416"),
        ("/big.bin", &["-H", &etag, "-w", "%{http_code}"], "304"),
        ("/nothing", &[], "there is no such file\n\n2"),
        ("/empty", &[], "\n2"),
        ("/sub", &["-o", "/dev/null", "-w", "%{http_code} %{redirect_url}"], "301 https://127.0.0.1:"),
        ("/sub/", &["--http1.1"], "<p>index</p>\n1.1"),
    ] {
        let answer = curl(&site, path, options).expect("curl");
        assert!(answer.starts_with(expected), "{path} {options:?}: {answer}");
    }
    let (from, stored) =
        (site.site("big.bin").display().to_string(), site.out("stored").display().to_string());
    let put = |fields: &[&str]| {
        curl(
            &site,
            "/stored",
            &[&["-T", from.as_str(), "-w", "%{http_code} %{http_version}"], fields].concat(),
        )
    };
    assert!(put(&["-H", "Host: evil.example"]).is_some_and(|said| said.ends_with("421 2")));
    assert!(put(&["-H", "Origin: https://evil.example"]).is_some_and(|said| said.ends_with("403 2")));
    assert!(put(&[]).is_some_and(|said| said.ends_with("201 2")));
    same(&site.site("big.bin"), &site.site("stored"));
    site.succeeds(&[
        "get",
        "-q",
        "--http2",
        "--cacert",
        &certificate,
        "-o",
        &stored,
        &url(&site, "127.0.0.1"),
    ]);
    same(&site.site("big.bin"), &site.out("stored"));
    let (code, log) = site.stop();
    assert!(code == Some(0) && log.contains("\"PUT /stored HTTP/2.0\" 201 "), "{log}");
    let of_get = |line: &&str| line.contains("\"GET /big.bin HTTP/2.0\" 206 ");
    assert!(log.lines().any(|line| of_get(&line)), "{log}");
}
