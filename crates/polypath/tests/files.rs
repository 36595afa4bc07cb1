//! `polypath serve`, `get` and `cp`, as people run them, over the loopback interface.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;

use tempfile::TempDir;

/// A server of a directory that holds a few files, and a directory for what is fetched.
struct Site {
    child: Child,
    log: Option<JoinHandle<String>>,
    port: u16,
    folder: TempDir,
}

/// Bytes that differ from place to place.
fn content(length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

impl Site {
    fn new(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let site = folder.path().join("site");
        fs::create_dir_all(site.join("sub/deep")).expect("a folder");
        fs::create_dir(folder.path().join("out")).expect("a folder");
        fs::write(site.join("big.bin"), content(3_000_000)).expect("a file");
        fs::write(site.join("empty"), "").expect("a file");
        fs::write(site.join("sub/index.html"), "<p>index</p>").expect("a file");
        fs::write(site.join("sub/deep/a b%.txt"), "deep").expect("a file");
        fs::write(folder.path().join("secret"), "secret").expect("a file");
        symlink("../secret", site.join("evil")).expect("a link");
        symlink("/etc/passwd", site.join("absolute")).expect("a link");
        symlink("..", site.join("up")).expect("a link");
        symlink("big.bin", site.join("good")).expect("a link");
        let mut child = Command::new(env!("CARGO_BIN_EXE_polypath"))
            .args(["serve", "--engine", "tcp", "--listen", "127.0.0.1:0"])
            .args(options)
            .arg(&site)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the command runs");
        let mut lines = BufReader::new(child.stdout.take().expect("its output"));
        let mut first = String::new();
        lines.read_line(&mut first).expect("its first line");
        let port =
            first.trim_end().trim_end_matches('/').rsplit(':').next().and_then(|port| port.parse().ok());
        let port = port.unwrap_or_else(|| panic!("no port in {first:?}"));
        let log = std::thread::spawn(move || {
            let mut log = String::new();
            lines.read_to_string(&mut log).expect("the log");
            log
        });
        Self { child, log: Some(log), port, folder }
    }

    fn url(&self, path: &str) -> String {
        format!("polypath://127.0.0.1:{}{path}", self.port)
    }

    fn site(&self, path: &str) -> std::path::PathBuf {
        self.folder.path().join("site").join(path)
    }

    fn out(&self, path: &str) -> std::path::PathBuf {
        self.folder.path().join("out").join(path)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
        command.args(&arguments[..1]).args(["--engine", "tcp"]).args(&arguments[1..]);
        command.current_dir(self.folder.path().join("out")).output().expect("the command runs")
    }

    #[track_caller]
    fn succeeds(&self, arguments: &[&str]) -> Output {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        output
    }

    /// One line, which has this in it.
    #[track_caller]
    fn fails(&self, arguments: &[&str], code: i32, wanted: &str) {
        let output = self.run(arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{message}");
        let lines: Vec<_> = message.lines().filter(|line| line.starts_with("polypath: ")).collect();
        assert!(lines.len() == 1 && lines[0].contains(wanted), "\"{wanted}\" is not in: {message}");
    }

    /// A request as it stands; the fields of the answer with names in lower case, and the body.
    fn ask(&self, method: &str, path: &str, fields: &str) -> (u16, String, Vec<u8>) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the server");
        let request = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{fields}\r\n");
        stream.write_all(request.as_bytes()).expect("room");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("the end of the fields");
        let lower = |line: &str| match line.split_once(": ") {
            Some((name, value)) => format!("{}: {value}", name.to_lowercase()),
            None => line.to_string(),
        };
        let head = String::from_utf8_lossy(&answer[..end]);
        let head = head.lines().map(lower).collect::<Vec<_>>().join("\n");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, head, answer[end + 4..].to_vec())
    }

    fn field(head: &str, name: &str) -> String {
        let line = head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        line.unwrap_or_else(|| panic!("no {name} in {head}")).to_string()
    }

    /// Ends the server as Ctrl-C does; its exit code and its log.
    fn stop(mut self) -> (Option<i32>, String) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill runs").success());
        let code = self.child.wait().expect("the server ends").code();
        (code, self.log.take().expect("the log").join().expect("the log"))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

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
fn downloads_arrive_whole_resume_and_fail_clearly() {
    let site = Site::new(&["--quiet"]);
    let all = content(3_000_000);
    site.succeeds(&["get", &site.url("/big.bin"), &site.url("/empty"), "-q"]);
    assert!(fs::read(site.out("big.bin")).expect("a file") == all && site.out("empty").exists());
    fs::write(site.out("part"), &all[..1_234_567]).expect("a file");
    let output = site.succeeds(&["get", "-C", "-o", "part", &site.url("/big.bin")]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("1765433 bytes"), "only the rest was sent: {said}");
    assert!(fs::read(site.out("part")).expect("a file") == all);
    site.succeeds(&["get", "-C", "-o", "part", &site.url("/big.bin")]);
    assert!(fs::read(site.out("part")).expect("a file") == all, "complete is complete");
    let page = site.succeeds(&["get", "-o", "-", &site.url("/sub")]);
    assert_eq!(page.stdout, b"<p>index</p>", "redirections are followed");
    fs::write(site.out("other"), "another file").expect("a file");
    site.fails(&["get", "-C", "-o", "other", &site.url("/big.bin")], 1, "no part of the file");
    site.fails(&["get", &site.url("/nosuch")], 1, "404 Not Found");
    site.fails(&["get", "http://127.0.0.1:1/x"], 1, "refused");
    site.fails(&["get", "http://nosuch.invalid/x"], 1, "can't find the host \"nosuch.invalid\"");
    site.fails(&["get", "ftp://127.0.0.1/x"], 2, "expected http://");
    site.fails(&["get", "127.0.0.1/x"], 2, "expected http://");
    site.fails(&["get", "-o", "x", &site.url("/a"), &site.url("/b")], 2, "expected one URL");
    site.fails(&["get", "-o", "/nonexistent/x", &site.url("/big.bin")], 1, "can't be written");
    site.fails(&["cp", "part", &site.url("/")], 1, "expected `polypath serve --writable`");
}

#[test]
fn a_server_that_breaks_off_is_noticed() {
    let site = Site::new(&["--quiet"]);
    let liar = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    let port = liar.local_addr().expect("its address").port();
    let lying = std::thread::spawn(move || {
        let (mut stream, _) = liar.accept().expect("a client");
        let mut request = [0; 4096];
        assert!(stream.read(&mut request).expect("a request") > 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf").expect("room");
    });
    site.fails(
        &["get", "-q", &format!("http://127.0.0.1:{port}/file")],
        1,
        "broke off after 4 of 1000 bytes",
    );
    lying.join().expect("the server");
    assert_eq!(fs::read(site.out("file.part")).expect("what came"), b"half");
    assert!(!site.out("file").exists());
}

/// A server that answers each connection with the next of these answers, then keeps it open without a word.
fn liar(answers: Vec<Vec<u8>>) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    let url = format!("http://{}/file", listener.local_addr().expect("its address"));
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut request = [0; 4096];
            assert!(stream.read(&mut request).expect("a request") > 0);
            stream.write_all(&answer).expect("room");
            open.push(stream);
        }
        std::thread::sleep(std::time::Duration::from_secs(600));
    });
    url
}

fn answer(status: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 {status}\r\n{fields}\r\n").as_bytes(), body].concat()
}

/// Leaves a part of a file as a download that broke off does: `present` bytes of 1000, with an entity tag.
fn leave_part(site: &Site, present: usize) {
    let fields = "Content-Length: 1000\r\nETag: \"one\"\r\n";
    let url = liar(vec![answer("200 OK", fields, &content(1000)[..present])]);
    site.fails(&["get", "-q", "--stall-timeout", "0.2", &url], 1, "--resume goes on from there");
    assert_eq!(fs::read(site.out("file.part")).expect("what came"), &content(1000)[..present]);
}

fn rest(etag: &str, first: usize) -> Vec<u8> {
    let length = 1000 - first;
    let fields =
        format!("Content-Length: {length}\r\nContent-Range: bytes {first}-999/1000\r\nETag: \"{etag}\"\r\n");
    answer("206 Partial Content", &fields, &content(1000)[first..])
}

/// Nothing under this name, nor under one that says it is incomplete.
#[track_caller]
fn nothing_of(site: &Site, name: &str) {
    let found: Vec<_> = fs::read_dir(site.out("")).expect("the folder").flatten().collect();
    let names: Vec<_> = found.iter().map(|entry| entry.file_name().into_string().expect("UTF-8")).collect();
    assert!(!names.iter().any(|found| found.starts_with(name)), "{names:?}");
}

#[test]
fn a_part_goes_on_where_it_broke_off() {
    let site = Site::new(&["--quiet"]);
    leave_part(&site, 400);
    // What came after the last note, as when the process was killed, is not counted on.
    let mut part = fs::OpenOptions::new().append(true).open(site.out("file.part")).expect("the part");
    part.write_all(b"?").expect("room");
    site.succeeds(&["get", "-C", &liar(vec![rest("one", 400)])]);
    assert!(fs::read(site.out("file")).expect("the file") == content(1000));
    nothing_of(&site, "file.");
    // A file that is another one now begins anew.
    leave_part(&site, 400);
    let anew = answer("200 OK", "Content-Length: 3\r\nETag: \"two\"\r\n", b"new");
    site.succeeds(&["get", "-C", &liar(vec![anew])]);
    assert_eq!(fs::read(site.out("file")).expect("the file"), b"new");
}

#[test]
fn a_damaged_part_is_noticed_and_the_next_time_all_comes() {
    let site = Site::new(&["--quiet"]);
    leave_part(&site, 400);
    let mut damaged = content(1000)[..400].to_vec();
    damaged[100] ^= 1;
    fs::write(site.out("file.part"), &damaged).expect("room");
    let whole = answer("200 OK", "Content-Length: 1000\r\n", &content(1000));
    let url = liar(vec![whole]);
    site.fails(&["get", "-C", &url], 1, "no part of the file");
    nothing_of(&site, "file");
    site.succeeds(&["get", "-C", &url]);
    assert!(fs::read(site.out("file")).expect("the file") == content(1000));
    // The same under the final name, where only the sum of the whole tells: a part, and all of it.
    let all = content(3_000_000);
    for present in [1_234_567, 3_000_000] {
        let mut damaged = all[..present].to_vec();
        damaged[1000] ^= 1;
        fs::write(site.out("big"), &damaged).expect("room");
        let command = ["get", "-C", "-o", "big", &site.url("/big.bin")];
        site.fails(&command, 1, "no part of the file");
        assert!(!site.out("big").exists() && !site.out("big.part").exists());
        assert!(fs::read(site.out("big.rejected")).expect("what was there") == damaged, "{present}");
        site.succeeds(&command);
        assert!(fs::read(site.out("big")).expect("the file") == all);
        site.succeeds(&command);
        assert!(fs::read(site.out("big")).expect("the file") == all);
    }
}

#[test]
fn a_full_length_part_is_hashed_and_not_believed() {
    let site = Site::new(&["--quiet"]);
    let all = content(3_000_000);
    for (part, is_right) in [(all.clone(), true), (vec![7; 3_000_000], false)] {
        fs::write(site.out("big.bin.part"), &part).expect("room");
        let output = site.run(&["get", "-C", &site.url("/big.bin")]);
        assert_eq!(output.status.success(), is_right, "{output:?}");
        assert_eq!(site.out("big.bin").exists(), is_right);
        assert!(!site.out("big.bin.part").exists());
        fs::remove_file(site.out("big.bin")).ok();
    }
}

#[test]
fn a_file_that_changed_is_no_rest_of_the_old_one() {
    let site = Site::new(&["--quiet"]);
    leave_part(&site, 400);
    // A server that does not understand If-Range.
    site.fails(&["get", "-C", &liar(vec![rest("two", 400)])], 1, "changed on the server");
    nothing_of(&site, "file");
}

#[test]
fn a_wrong_digest_leaves_no_file() {
    let site = Site::new(&["--quiet"]);
    let zeros = "A".repeat(43) + "=";
    for (digest, problem) in [
        (format!("sha-256=:{zeros}:"), "differs from what the server says"),
        ("sha-256=:AAAA:".into(), "Repr-Digest makes no sense"),
    ] {
        let fields = format!("Content-Length: 4\r\nRepr-Digest: {digest}\r\n");
        let lie = answer("200 OK", &fields, b"four");
        site.fails(&["get", &liar(vec![lie.clone()])], 1, problem);
        nothing_of(&site, "file");
        // What went down a pipe can't be taken back, and is no success.
        site.fails(&["get", "-o", "-", &liar(vec![lie.clone()])], 1, problem);
    }
}

#[test]
fn a_dead_server_is_noticed() {
    let site = Site::new(&["--quiet"]);
    let get = |url: &str, problem| {
        site.fails(&["get", "-q", "--stall-timeout", "0.2", url], 1, problem);
        assert!(!site.out("file").exists());
    };
    get(&liar(vec![Vec::new()]), "the peer is silent: nothing has moved for 200ms");
    nothing_of(&site, "file");
    get(
        &liar(vec![answer("200 OK", "Content-Length: 1000\r\n", b"half")]),
        "broke off after 4 of 1000 bytes: the peer is silent",
    );
    site.fails(
        &["cp", "-q", "--stall-timeout", "0.2", &liar(vec![Vec::new()]), "copy"],
        1,
        "the peer is silent",
    );
}

#[test]
fn a_full_disk_leaves_no_file() {
    let site = Site::new(&["--quiet"]);
    // A limit to the size of files is as good as a disk that is full, and needs no privileges.
    let command = format!("ulimit -f 1000; exec \"$0\" get --engine tcp -q '{}'", site.url("/big.bin"));
    let output = Command::new("sh")
        .args(["-c", &command, env!("CARGO_BIN_EXE_polypath")])
        .current_dir(site.out(""))
        .output()
        .expect("a shell");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.lines().count() == 1 && message.contains("big.bin.part: can't be written"), "{message}");
    assert!(!site.out("big.bin").exists());
    // With room again it goes on.
    let output = site.succeeds(&["get", "-C", &site.url("/big.bin")]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains(" 3000000 bytes"), "only the rest was sent: {said}");
    same(&site.out("big.bin"), &site.site("big.bin"));
}

#[test]
fn special_files_are_written_and_not_replaced() {
    let site = Site::new(&["--quiet"]);
    site.succeeds(&["get", "-q", "-o", "/dev/null", &site.url("/big.bin")]);
    assert!(!fs::metadata("/dev/null").expect("the device").is_file());
    fs::write(site.out("other"), "old").expect("room");
    symlink("other", site.out("link")).expect("a link");
    site.succeeds(&["get", "-q", "-o", "link", &site.url("/big.bin")]);
    same(&site.out("other"), &site.site("big.bin"));
    assert!(fs::symlink_metadata(site.out("link")).expect("the link").is_symlink());
    site.fails(&["get", "-o", ".", &site.url("/big.bin")], 1, "can't be written");
}

#[track_caller]
fn same(one: &Path, other: &Path) {
    let read = |path: &Path| fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(read(one) == read(other), "{} and {}", one.display(), other.display());
}

#[test]
fn copies_go_both_ways_with_all_that_is_in_them() {
    let site = Site::new(&["--writable", "--quiet"]);
    site.succeeds(&["cp", "-q", &site.url("/big.bin"), "."]);
    same(&site.out("big.bin"), &site.site("big.bin"));
    site.succeeds(&["cp", "-r", &site.url("/sub/"), "tree"]);
    same(&site.out("tree/deep/a b%.txt"), &site.site("sub/deep/a b%.txt"));
    site.succeeds(&["cp", "-r", "tree", &site.url("/copy")]);
    same(&site.site("copy/deep/a b%.txt"), &site.out("tree/deep/a b%.txt"));
    site.succeeds(&["cp", "-r", "tree", "big.bin", &site.url("/sub")]);
    same(&site.site("sub/tree/index.html"), &site.out("tree/index.html"));
    same(&site.site("sub/big.bin"), &site.out("big.bin"));
    site.succeeds(&["cp", "big.bin", &site.url("/new/name.bin")]);
    same(&site.site("new/name.bin"), &site.out("big.bin"));
    // What broke off goes on, if it is the beginning of this file, and begins anew otherwise.
    for (there, sent) in [(content(1_000_000), "2000000 bytes"), (vec![0; 1_000_000], "3000000 bytes")] {
        fs::write(site.site(".again.part"), &there).expect("a file");
        let output = site.succeeds(&["cp", "-C", "big.bin", &site.url("/again")]);
        let said = String::from_utf8_lossy(&output.stderr).to_string();
        assert!(said.contains(sent), "{said}");
        same(&site.site("again"), &site.out("big.bin"));
        assert!(!site.site(".again.part").exists());
        fs::write(site.out(".down.part"), &there).expect("a file");
        let output = site.run(&["cp", "-C", &site.url("/big.bin"), "down"]);
        // A part of something else is found out by its sum, and gone the next time.
        assert_eq!(output.status.success(), there == content(1_000_000));
        site.succeeds(&["cp", "-C", &site.url("/big.bin"), "down"]);
        same(&site.out("down"), &site.site("big.bin"));
    }
    site.fails(&["cp", "big.bin", "elsewhere"], 2, "all places are on this machine");
    site.fails(&["cp", &site.url("/a"), &site.url("/b")], 2, "all places are elsewhere");
    site.fails(&["cp", "tree", &site.url("/")], 2, "expected --recursive");
    site.fails(&["cp", &site.url("/sub/"), "."], 2, "expected --recursive");
    site.fails(&["cp", "nosuch", &site.url("/")], 2, "can't be read");
    site.fails(&["cp", &site.url("/nosuch"), "."], 1, "404 Not Found");
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
        "the server wants a token",
    );
    let output = site.succeeds(&["cp", "-C", "--token-file", &right, "big.bin", &site.url("/again")]);
    let said = String::from_utf8_lossy(&output.stderr).to_string();
    assert!(said.contains("2000000 bytes"), "{said}");
    same(&site.site("again"), &site.out("big.bin"));
    fs::write(&wrong, "short").expect("a file");
    site.fails(&["cp", "--token-file", &wrong, "big.bin", &site.url("/x")], 2, "expected a token of 16");
}

#[test]
fn pages_of_others_store_nothing() {
    let site = Site::new(&["--writable", "--quiet"]);
    for (origin, status) in [("http://evil.example", 403), ("null", 403), ("http://127.0.0.1:8077", 201)] {
        let fields = format!("Origin: {origin}\r\nContent-Length: 0\r\n");
        assert_eq!(site.ask("PUT", "/new", &fields).0, status, "{origin}");
    }
}

#[test]
fn digests_of_large_files_come_after_them() {
    let site = Site::new(&["--quiet"]);
    let all = content(5_000_000);
    fs::write(site.site("large"), &all).expect("a file");
    let wish = "Want-Repr-Digest: sha-256=1\r\n";
    let (_, small, _) = site.ask("HEAD", "/big.bin", wish);
    let (_, large, _) = site.ask("HEAD", "/large", &format!("{wish}Prefer: respond-async, wait=20\r\n"));
    assert!(small.contains("repr-digest: sha-256=:") && large.contains("repr-digest: sha-256=:"), "{large}");
    site.succeeds(&["get", "-q", &site.url("/large")]);
    assert!(fs::read(site.out("large")).expect("the file") == all);
    site.succeeds(&["cp", "-q", &site.url("/large"), "copy"]);
    same(&site.out("copy"), &site.site("large"));
    // What is there in part is compared with the whole in the end.
    for (first, is_right) in [(all[0], true), (!all[0], false)] {
        let mut part = all[..4_500_000].to_vec();
        part[0] = first;
        fs::write(site.out("large"), &part).expect("a file");
        let output = site.run(&["get", "-q", "-C", &site.url("/large")]);
        assert_eq!((output.status.success(), site.out("large").exists()), (is_right, is_right), "{output:?}");
    }
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
