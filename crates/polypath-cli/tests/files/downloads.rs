//! Files that arrive, whole and in parts.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::liar::{answer, leave_part, liar, rest, silent_liar};
use crate::site::{Site, content, nothing_of, same};

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
    site.fails(&["get", "ftp://127.0.0.1/x"], 2, "expected http://, https:// or polypath://");
    site.fails(&["get", "127.0.0.1:1/x"], 1, "refused");
    site.fails(&["get", "nosuch"], 2, "expected http://");
    site.fails(&["get", "-o", "x", &site.url("/a"), &site.url("/b")], 2, "expected one URL");
    site.fails(&["get", "-o", "/nonexistent/x", &site.url("/big.bin")], 1, "can't be written");
    site.fails(&["cp", "part", &site.url("/")], 1, "expected `polypath serve --writable`");
}

#[test]
fn a_part_goes_on_where_it_broke_off() {
    let site = Site::new(&["--quiet"]);
    leave_part(&site.out(""), 400);
    // What came after the last note, as when the process was killed, is not counted on.
    let mut part = fs::OpenOptions::new().append(true).open(site.out("file.part")).expect("the part");
    part.write_all(b"?").expect("room");
    site.succeeds(&["get", "-C", &liar(vec![rest("one", 400)])]);
    assert!(fs::read(site.out("file")).expect("the file") == content(1000));
    nothing_of(&site, "file.");
    // A file that is another one now begins anew.
    leave_part(&site.out(""), 400);
    let anew = answer("200 OK", "Content-Length: 3\r\nETag: \"two\"\r\n", b"new");
    site.succeeds(&["get", "-C", &liar(vec![anew])]);
    assert_eq!(fs::read(site.out("file")).expect("the file"), b"new");
}

/// Starts a download from a server that sends some bytes and then nothing, and sends a signal when so many are in the part.
fn interrupted(site: &Site, url: &str, command: &[&str], bytes: u64, signal: Signal) -> Output {
    let mut client = Command::new(env!("CARGO_BIN_EXE_polypath"));
    client.args(command).args(["--engine", "tcp", url]).current_dir(site.out(""));
    let client = client.stderr(Stdio::piped()).spawn().expect("the command runs");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !fs::metadata(site.out("file.part")).is_ok_and(|part| part.len() == bytes) {
        assert!(Instant::now() < deadline, "no bytes come");
        std::thread::sleep(Duration::from_millis(5));
    }
    rustix::process::kill_process(Pid::from_child(&client), signal).expect("our own child");
    client.wait_with_output().expect("its end")
}

#[test]
fn what_came_before_an_interruption_is_kept() {
    let site = Site::new(&["--quiet"]);
    for (signal, code, bytes) in [(Signal::INT, 130, 400), (Signal::TERM, 143, 700)] {
        let fields = "Content-Length: 1000\r\nETag: \"one\"\r\n";
        let url = silent_liar(vec![answer("200 OK", fields, &content(1000)[..bytes])]);
        let output = interrupted(&site, &url, &["get", "-q"], bytes as u64, signal);
        let said = String::from_utf8_lossy(&output.stderr);
        let wanted = format!(
            "polypath: file: interrupted; {bytes} bytes are kept in file.part; --resume goes on from there\n"
        );
        assert_eq!((output.status.code(), &*said), (Some(code), &*wanted));
        // Nothing of it is sent again.
        site.succeeds(&["get", "-C", &liar(vec![rest("one", bytes)])]);
        assert!(fs::read(site.out("file")).expect("the file") == content(1000));
        nothing_of(&site, "file.");
        fs::remove_file(site.out("file")).expect("a file");
    }
}

#[test]
fn a_damaged_part_is_noticed_and_the_next_time_all_comes() {
    let site = Site::new(&["--quiet"]);
    leave_part(&site.out(""), 400);
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
fn a_file_that_outgrows_its_limit_is_gone_on_with_later() {
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
fn what_is_there_already_is_told() {
    let site = Site::new(&[]);
    let url = site.url("/big.bin");
    let said = |words: &[&str]| String::from_utf8_lossy(&site.succeeds(words).stderr).into_owned();
    fs::write(site.out("big.bin.part"), "begun").expect("room");
    let line = "polypath: big.bin.part has 5 B, and begins anew; --resume (-C) would go on with it\n";
    let lines = said(&["get", &url]);
    assert!(lines.contains(line), "{lines}");
    let lines = said(&["get", &url]);
    assert!(!lines.contains("begins anew"), "{lines}");
    // As curl's people type it, too.
    for words in [&["get", "-C", &url][..], &["get", "-C", "-", &url]] {
        assert_eq!(said(words), "big.bin is complete already\n");
    }
    site.fails(&["get", "-C", "-"], 2, "there is no URL");
}
