//! Downloads that can't be had end with one line, a status that says so, and no file that is not what was asked for.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::liar::{answer, babbler, gone, leave_part, liar, piece, rest, silent_liar};
use crate::site::{Site, content};

/// What is there of the file before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Nothing,
    /// 400 bytes that `get` left when a download broke off.
    Part,
    /// The same, where one of them is another one now.
    DamagedPart,
}

struct Case {
    name: &'static str,
    before: Before,
    options: &'static [&'static str],
    url: String,
    says: &'static str,
}

/// A download from the beginning.
fn first(name: &'static str, answer: Vec<u8>, says: &'static str) -> Case {
    Case { name, before: Before::Nothing, options: &[], url: liar(vec![answer]), says }
}

/// The rest of a download that broke off.
fn later(name: &'static str, answers: Vec<Vec<u8>>, says: &'static str) -> Case {
    Case { name, before: Before::Part, options: &["-C"], url: liar(answers), says }
}

fn whole(fields: &str, body: &[u8]) -> Vec<u8> {
    answer("200 OK", fields, body)
}

fn with_digest(digest: &str) -> Vec<u8> {
    whole(&format!("Content-Length: 4\r\nRepr-Digest: {digest}\r\n"), b"four")
}

/// A SHA-256 that nothing here has.
const ZEROS: &str = "sha-256=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:";

fn beginnings() -> Vec<Case> {
    let head = "Content-Length: 1000\r\n";
    let chunked = "Transfer-Encoding: chunked\r\n";
    let moved = |to: &str| answer("302 Found", &format!("Location: {to}\r\nContent-Length: 0\r\n"), b"");
    let start = |name, options, url, says| Case { name, before: Before::Nothing, options, url, says };
    let long = "Content-Length: 5000000\r\n".to_string();
    let later = answer("202 Accepted", "Preference-Applied: respond-async\r\n", b"");
    let quick: &[&str] = &["--stall-timeout", "0.2"];
    vec![
        start("a dead server", &[], gone(), "refused"),
        first("no answer", Vec::new(), "the connection failed"),
        start(
            "silence",
            quick,
            silent_liar(vec![Vec::new()]),
            "the peer is silent: no answer has come for 200ms",
        ),
        start(
            "silence in the middle",
            quick,
            silent_liar(vec![whole(head, b"half")]),
            "broke off after 4 of 1000 bytes: the peer is silent",
        ),
        start("an answer that is announced for ever", quick, babbler(), "no answer has come for 200ms"),
        start(
            "a SHA-256 that is announced for ever",
            quick,
            liar([vec![whole(&long, &content(5_000_000))], vec![later; 4]].concat()),
            "the server has told no SHA-256 within",
        ),
        first("half of the fields", b"HTTP/1.1 200 OK\r\nContent-Le".to_vec(), "the connection failed"),
        first("no HTTP", b"SSH-2.0-OpenSSH_9.6\r\n".to_vec(), "the connection failed"),
        first("no length", whole("Content-Length: many\r\n", b"half"), "the connection failed"),
        first("the end in the middle", whole(head, b"half"), "broke off after 4 of 1000 bytes"),
        first("the end in a chunk", whole(chunked, b"8\r\nhalf"), "broke off after 4 bytes"),
        first("no last chunk", whole(chunked, b"4\r\nhalf\r\n"), "broke off after 4 bytes"),
        first("no such file", answer("404 Not Found", "Content-Length: 4\r\n", b"none"), "404 Not Found"),
        first("no content", answer("204 No Content", "", b""), "204 No Content"),
        first("a part", piece("one", 0, 99), "another part than was asked for"),
        first("another SHA-256", with_digest(ZEROS), "differs from what the server says"),
        first(
            "another SHA-256 in a line of its own",
            with_digest(&format!("sha-512=:AAAA:\r\nRepr-Digest: {ZEROS}")),
            "differs from what the server says",
        ),
        first(
            "two SHA-256",
            with_digest(&format!(
                "sha-256=:BLolBpzfu+BZYZBJXjSpvrY3SX6FxwfrPXMjwgTy5X4=:\r\nRepr-Digest: {ZEROS}"
            )),
            "Repr-Digest makes no sense",
        ),
        first("half a SHA-256", with_digest("sha-256=:AAAA:"), "Repr-Digest makes no sense"),
        first("a way to https", moved("https://127.0.0.1/file"), "https is not offered"),
        first(
            "a coding",
            whole("Content-Length: 4\r\nContent-Encoding: gzip\r\n", b"four"),
            "a name that ends in .gz",
        ),
        first(
            "two codings",
            whole("Content-Encoding: br\r\nContent-Encoding: gzip\r\n", b"x"),
            "encoded (br, gzip)",
        ),
        first(
            "a server that goes before it has told the SHA-256",
            whole(&format!("{long}ETag: \"one\"\r\n"), &content(5_000_000)),
            "file: all 5000000 bytes came, but were not compared, as the server can't be asked for their SHA-256",
        ),
        start("a circle", &[], liar(vec![moved("/file"); 11]), "more than 10 redirections"),
    ]
}

fn rests() -> Vec<Case> {
    let wrong = |fields: &str, body: &[u8]| {
        answer("206 Partial Content", &format!("ETag: \"one\"\r\n{fields}"), body)
    };
    let length = "Content-Length: 600\r\n";
    let range = "Content-Range: bytes 400-999/1000\r\n";
    let none_left = || answer("416 Range Not Satisfiable", "Content-Length: 0\r\n", b"");
    // Up to this byte of 1100, and then the end.
    let chunk = |end: usize| {
        let size = format!("{:x}\r\n", end - 400);
        [size.as_bytes(), &content(1100)[400..end], b"\r\n0\r\n\r\n"].concat()
    };
    let short = "broke off after 100 of 600 bytes";
    vec![
        // A server that does not understand If-Range.
        later("another entity tag", vec![rest("two", 400)], "changed on the server"),
        later("less than the rest", vec![piece("one", 400, 499)], short),
        Case {
            options: &["-C", "--no-verify"],
            ..later("less than the rest, whatever its sum", vec![piece("one", 400, 499)], short)
        },
        later(
            "less than the rest, in chunks",
            vec![wrong(&format!("Transfer-Encoding: chunked\r\n{range}"), &chunk(404))],
            "broke off after 4 of 600 bytes",
        ),
        later(
            "more than the rest",
            vec![wrong(&format!("Transfer-Encoding: chunked\r\n{range}"), &chunk(1100))],
            "the server sends more than it said",
        ),
        later(
            "the end in the rest",
            vec![wrong(&format!("{length}{range}"), &content(404)[400..])],
            "broke off after 4 of 600 bytes",
        ),
        later("another part", vec![rest("one", 300)], "another part than was asked for"),
        later(
            "a coding of the rest",
            vec![wrong(&format!("Content-Encoding: gzip\r\n{length}{range}"), &content(1000)[400..])],
            "encoded (gzip)",
        ),
        later("a part of nothing", vec![wrong(length, &[0; 600])], "another part than was asked for"),
        later(
            "another SHA-256 of the whole",
            vec![wrong(&format!("{length}{range}Repr-Digest: {ZEROS}\r\n"), &content(1000)[400..])],
            "what was there is no part of the file",
        ),
        later("a dead server, later", Vec::new(), "refused"),
        later("no rest, and no file", vec![none_left(), answer("404 Not Found", "", b"")], "404 Not Found"),
        later(
            "no rest, and half",
            vec![none_left(), whole("Content-Length: 9\r\n", b"half")],
            "broke off after 4 of 9 bytes",
        ),
        later(
            "half of another file",
            vec![whole("Content-Length: 9\r\n", b"half")],
            "broke off after 4 of 9 bytes",
        ),
        Case {
            before: Before::DamagedPart,
            ..later("a damaged part", Vec::new(), "what was there is no part of the file")
        },
    ]
}

fn get(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
    command.args(["get", "--engine", "tcp"]).args(arguments).current_dir(folder);
    command.output().expect("the command runs")
}

/// The only line that it said, and what it is about.
#[track_caller]
fn only_line(name: &str, output: &Output, says: &str) {
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{name}: {message}");
    assert_eq!(message.lines().count(), 1, "{name}: {message}");
    assert!(
        message.starts_with("polypath: ") && message.contains(says),
        "{name}: \"{says}\" is not in {message}"
    );
    assert!(output.stdout.is_empty(), "{name}");
}

#[test]
fn each_failure_is_one_line_a_status_and_no_wrong_file() {
    for old in [None, Some(b"old")] {
        for Case { name, before, options, url, says } in beginnings().into_iter().chain(rests()) {
            let folder = tempfile::tempdir().expect("a folder");
            let (file, part) = (folder.path().join("file"), folder.path().join("file.part"));
            if before != Before::Nothing {
                leave_part(folder.path(), 400);
            }
            if before == Before::DamagedPart {
                let mut damaged = content(400);
                damaged[100] ^= 1;
                fs::write(&part, damaged).expect("room");
            }
            if let Some(old) = old {
                fs::write(&file, old).expect("room");
            }
            let output = get(folder.path(), &[options, &[url.as_str()][..]].concat());
            only_line(name, &output, says);
            assert_eq!(fs::read(&file).ok().as_deref(), old.map(|old| &old[..]), "{name}");
            // What is kept to go on with is right.
            let kept = fs::read(&part).unwrap_or_default();
            assert!(kept == content(kept.len()) || kept == b"half", "{name}: {} bytes", kept.len());
        }
    }
}

#[test]
fn a_failure_after_bytes_on_a_pipe_is_a_failure() {
    let folder = tempfile::tempdir().expect("a folder");
    for (answer, says) in [
        (with_digest(ZEROS), "differs from what the server says"),
        (whole("Content-Length: 1000\r\n", b"half"), "broke off after 4 of 1000 bytes"),
        (piece("one", 0, 99), "another part than was asked for"),
        (
            whole("Content-Length: 5000000\r\n", &content(5_000_000)),
            "all 5000000 bytes came, but were not compared",
        ),
        (whole("Content-Encoding: gzip\r\n", b""), "encoded (gzip)"),
    ] {
        let output = get(folder.path(), &["-o", "-", &liar(vec![answer])]);
        only_line(says, &Output { stdout: Vec::new(), ..output }, says);
    }
}

/// What has the final name may be a file of somebody else's, and stays until all of the new one is there.
#[test]
fn a_file_that_is_gone_on_with_stays_until_there_is_a_better_one() {
    let head = || whole(&format!("Content-Length: 1000\r\nRepr-Digest: {ZEROS}\r\n"), b"");
    let half = || whole("Content-Length: 1000\r\n", b"half");
    let none_left = answer("416 Range Not Satisfiable", "Content-Length: 0\r\n", b"");
    for answers in [
        vec![head(), half()],
        vec![head(), none_left, half()],
        vec![head(), rest("one", 300)],
        vec![head(), answer("404 Not Found", "", b"")],
        vec![head(), Vec::new()],
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        fs::write(&file, "somebody's").expect("room");
        let output = get(folder.path(), &["-C", &liar(answers)]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(fs::read(&file).expect("the file"), b"somebody's", "{output:?}");
    }
    // A server that knows no parts sends all of it, which is the better one.
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("file"), "somebody's").expect("room");
    let head = whole(&format!("Content-Length: 1000\r\nRepr-Digest: {ZEROS}\r\n"), b"");
    let all = whole("Content-Length: 1000\r\n", &content(1000));
    let output = get(folder.path(), &["-C", &liar(vec![head, all])]);
    assert!(output.status.success(), "{output:?}");
    assert!(fs::read(folder.path().join("file")).expect("the file") == content(1000));
}

/// Nor is it lost later, when it has become a part and turns out to be none.
#[test]
fn a_file_that_became_a_part_is_given_back() {
    let head = || {
        let fields = format!("Content-Length: 1000\r\nETag: \"one\"\r\nRepr-Digest: {ZEROS}\r\n");
        whole(&fields, b"")
    };
    let none_left = answer("416 Range Not Satisfiable", "Content-Length: 0\r\n", b"");
    let half = || whole("Content-Length: 1000\r\n", b"half");
    for (name, options, answers, found_at) in [
        ("another SHA-256", &["-C"][..], vec![rest("one", 100)], "file.rejected"),
        ("changed", &["-C"], vec![rest("two", 100)], "file"),
        ("no rest", &["-C"], vec![none_left, half()], "file"),
        ("no parts", &["-C"], vec![half()], "file"),
        ("anew", &[], vec![half()], "file"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let read = |name: &str| fs::read(folder.path().join(name)).ok();
        fs::write(folder.path().join("file"), "somebody's").expect("room");
        let output = get(folder.path(), &["-C", &liar(vec![head(), piece("one", 10, 99)])]);
        only_line(name, &output, "broke off after 90 of 990 bytes");
        assert_eq!(read("file.part").expect("the part").len(), 100, "{name}");
        let output = get(folder.path(), &[options, &[liar(answers).as_str()][..]].concat());
        assert_eq!(output.status.code(), Some(1), "{name}: {output:?}");
        assert_eq!(read(found_at).as_deref(), Some(&b"somebody's"[..]), "{name}: {output:?}");
    }
}

#[test]
fn nobody_is_told_to_go_on_where_the_server_has_no_ranges() {
    let half =
        |fields: &str| whole(&format!("Content-Length: 1000\r\nETag: \"one\"\r\n{fields}"), &content(500));
    let folder = tempfile::tempdir().expect("a folder");
    let output = get(folder.path(), &[&liar(vec![half("Accept-Ranges: none\r\n")])]);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("--resume"), "it says so: {output:?}");
    let folder = tempfile::tempdir().expect("a folder");
    leave_part(folder.path(), 400);
    let output = get(folder.path(), &["-C", &liar(vec![half("")])]);
    only_line("all of it", &output, "broke off after 500 of 1000 bytes");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("--resume"), "it shows so: {output:?}");
}

/// A piece of the rest is kept, and the next time the rest of the rest comes.
#[test]
fn a_rest_that_comes_in_pieces_is_gone_on_with() {
    let folder = tempfile::tempdir().expect("a folder");
    leave_part(folder.path(), 400);
    let output = get(folder.path(), &["-C", &liar(vec![piece("one", 400, 499)])]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("--resume goes on from there"), "{output:?}");
    let output = get(folder.path(), &["-C", &liar(vec![rest("one", 500)])]);
    assert!(output.status.success(), "{output:?}");
    assert!(fs::read(folder.path().join("file")).expect("the file") == content(1000));
}

#[test]
fn a_full_disk_leaves_no_file() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: a full disk needs root, to mount one");
        return;
    }
    let site = Site::new(&["--quiet"]);
    // In a mount namespace of its own, which goes with the shell.
    let script = "mount -t tmpfs -o size=1m none . && cd . && cd \"$PWD\" && \"$0\" get --engine tcp \"$1\"; \
                  status=$?; ls -A; exit $status";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_polypath"), &site.url("/big.bin")])
        .current_dir(site.out(""))
        .output()
        .expect("unshare runs");
    let left = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!left.lines().any(|name| name == "big.bin" || name.ends_with(".new")), "{left}");
    only_line("a full disk", &Output { stdout: Vec::new(), ..output }, "big.bin.part: can't be written");
}

/// Both lengths at once: the chunks count (RFC 9112 §6.3), and they have a bound.
#[test]
fn a_list_without_end_is_not_held() {
    let fields = "Content-Type: application/json\r\nContent-Length: 10\r\nTransfer-Encoding: chunked\r\n";
    let spaces = [&b"4000000\r\n"[..], &vec![b' '; 64 << 20], b"\r\n1\r\n[\r\n"].concat();
    let folder = tempfile::tempdir().expect("a folder");
    let url = liar(vec![whole(fields, &spaces)]).replace("/file", "/");
    let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
    command.args(["cp", "--engine", "tcp", "-r", &url, "here"]).current_dir(folder.path());
    let output = command.output().expect("the command runs");
    only_line("a list without end", &output, "the answer is longer than 67108864 bytes");
}
