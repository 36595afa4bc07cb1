//! Files that go both ways.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::site::{Site, content, same};

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
        // What is whole there already would not be sent.
        let _ = fs::remove_file(site.site("again"));
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
    site.fails(&["cp", "big.bin", "10.0.0.1:up.bin"], 2, "expected polypath://10.0.0.1/up.bin");
    site.fails(&["cp", &site.url("/a"), &site.url("/b")], 2, "all places are elsewhere");
    site.fails(&["cp", "tree", &site.url("/")], 2, "expected --recursive");
    site.fails(&["cp", &site.url("/sub/"), "."], 2, "expected --recursive");
    // What another upload has the lock of is refused in the server's own words, however much is still to come.
    let held = fs::File::create(site.site(".held.part")).expect("a file");
    held.lock().expect("nobody has it");
    fs::write(site.out("long"), content(24_000_000)).expect("room");
    for name in ["tree/index.html", "long"] {
        site.fails(&["cp", name, &site.url("/held")], 1, "another upload still holds this file");
    }
    site.fails(&["cp", "nosuch", &site.url("/")], 2, "can't be read");
    site.fails(&["cp", &site.url("/nosuch"), "."], 1, "404 Not Found");
}

#[test]
fn names_that_a_server_chose_are_taken_only_if_they_do_no_harm() {
    let site = Site::new(&["--quiet", "--hidden"]);
    fs::create_dir(site.site("sub/.ssh")).expect("a folder");
    let bad = ["sub/.bashrc", "sub/.ssh/keys", "sub/photo\u{202e}gpj.exe", "sub/a\nb"];
    for name in bad {
        fs::write(site.site(name), "x").expect("a file");
    }
    for (options, tree) in [(&["cp", "-q", "-r"][..], "some"), (&["cp", "-q", "-r", "--hidden"], "all")] {
        let output = site.run(&[options, &[site.url("/sub").as_str(), tree]].concat());
        let taken = tree == "all";
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let left_out = if taken { 2 } else { 4 };
        assert_eq!(said.lines().count(), left_out + 1, "{said}");
        assert!(said.contains("left out \"photo\\u{202e}gpj.exe\", which is no name"), "{said}");
        assert!(said.ends_with(&format!("{left_out} names were left out\n")), "{said}");
        assert_eq!(
            said.contains("left out \".bashrc\", which is hidden; expected --hidden"),
            !taken,
            "{said}"
        );
        let found: Vec<_> = bad.map(|name| site.out(&name.replacen("sub", tree, 1)).exists()).into();
        assert_eq!(found, [taken, taken, false, false]);
        same(&site.out(tree).join("deep/a b%.txt"), &site.site("sub/deep/a b%.txt"));
    }
}

/// Three files in a folder, of which the second is large.
fn album(folder: &Path) {
    fs::create_dir_all(folder.join("more")).expect("a folder");
    for (name, bytes) in [("1.jpg", 500), ("2.jpg", 1_000_000), ("more/3.jpg", 700)] {
        fs::write(folder.join(name), content(bytes)).expect("a file");
    }
}

/// The target was made by the first run, so that the second finds a directory.
#[test]
fn a_folder_that_broke_off_is_gone_on_with_by_the_same_command() {
    let site = Site::new(&["--writable", "--quiet"]);
    album(&site.out("album"));
    album(&site.site("shelf"));
    let (up, down) = (site.url("/album"), site.url("/shelf"));
    let cases = [
        (["cp", "-r", "-C", "album", up.as_str()], site.site("album"), site.out("album")),
        (["cp", "-r", "-C", down.as_str(), "here"], site.out("here"), site.site("shelf")),
    ];
    for (command, to, from) in cases {
        for (has_first, part) in [(true, ".2.jpg.part"), (false, ".1.jpg.part")] {
            fs::create_dir(&to).expect("a folder");
            fs::write(to.join(part), content(400)).expect("a file");
            if has_first {
                fs::copy(from.join("1.jpg"), to.join("1.jpg")).expect("a file");
            }
            let output = site.succeeds(&command);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("goes on with the copy that was begun there"), "{said}");
            let sent = if has_first { ["0 bytes", "999600 bytes"] } else { ["100 bytes", "1000000 bytes"] };
            assert!(sent.iter().all(|sent| said.contains(sent)), "{said}");
            for name in ["1.jpg", "2.jpg", "more/3.jpg"] {
                same(&to.join(name), &from.join(name));
            }
            assert!(!to.join(part).exists());
            assert!(!to.join("album").exists() && !to.join("shelf").exists());
            fs::remove_dir_all(&to).expect("a folder");
        }
        // Another folder of that name gets it as `cp` has it.
        fs::create_dir(&to).expect("a folder");
        fs::write(to.join("1.jpg"), "another").expect("a file");
        site.succeeds(&command);
        let name = from.file_name().expect("a name");
        same(&to.join(name).join("1.jpg"), &from.join("1.jpg"));
        assert_eq!(fs::read(to.join("1.jpg")).expect("a file"), b"another");
    }
}

#[test]
fn what_a_server_refuses_or_nobody_can_read_does_not_stop_the_rest() {
    let site = Site::new(&["--writable", "--quiet"]);
    let photos = site.out("photos");
    album(&photos);
    fs::create_dir(photos.join(".thumbs")).expect("a folder");
    for name in [".DS_Store", ".thumbs/1", ".thumbs/2"] {
        fs::write(photos.join(name), "x").expect("a file");
    }
    fs::write(site.out("outside"), "x").expect("a file");
    symlink("../outside", photos.join("link")).expect("a link");
    // The server has a directory of that name.
    fs::create_dir_all(site.site("photos/1.jpg")).expect("a folder");
    let output = site.run(&["cp", "-q", "-r", "photos/", &site.url("/")]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines.len(), 4, "{said}");
    assert!(lines[0].contains("/photos/1.jpg: the server says 4"), "{said}");
    assert_eq!(lines[1], "polypath: photos/link: left out, it is a symbolic link");
    let hidden = "polypath: left out photos/.DS_Store, photos/.thumbs: the server takes no hidden files; expected polypath serve --hidden there";
    assert_eq!(lines[2], hidden);
    assert_eq!(lines[3], "polypath: of what is here, 4 names were left out");
    same(&site.site("photos/2.jpg"), &site.out("photos/2.jpg"));
    same(&site.site("photos/more/3.jpg"), &site.out("photos/more/3.jpg"));
    assert!(!site.site("photos/link").exists());
}

#[test]
fn an_interrupted_upload_says_so() {
    let site = Site::new(&["--writable", "--quiet"]);
    // Longer than can be sent in the meantime, and nothing on this disk.
    fs::File::create(site.out("long")).and_then(|file| file.set_len(40 << 30)).expect("a sparse file");
    let mut client = Command::new(env!("CARGO_BIN_EXE_polypath"));
    client.args(["cp", "-q", "--engine", "tcp", "long", &site.url("/half")]).current_dir(site.out(""));
    let client = client.stderr(Stdio::piped()).spawn().expect("the command runs");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !fs::metadata(site.site(".half.part")).is_ok_and(|part| part.len() > 0) {
        assert!(Instant::now() < deadline, "nothing arrives");
        std::thread::sleep(Duration::from_millis(1));
    }
    rustix::process::kill_process(Pid::from_child(&client), Signal::INT).expect("our own child");
    let output = client.wait_with_output().expect("its end");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.starts_with("polypath: long: interrupted; ") && said.lines().count() == 1, "{said}");
    assert!(!site.site("half").exists());
}

/// A refusal costs nothing of what would follow: nothing is sent before the server asks for it.
#[test]
fn what_is_refused_is_not_sent() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("long"), content(3_000_000)).expect("room");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let url = format!("http://{}/long", listener.local_addr().expect("its address"));
    let serving = std::thread::spawn(move || {
        for answer in [
            "200 OK\r\nAllow: PUT\r\nContent-Length: 0\r\n\r\n",
            "404 Not Found\r\nContent-Length: 0\r\n\r\n",
            "412 Precondition Failed\r\nContent-Type: text/plain\r\nContent-Length: 7\r\n\r\nnot now",
        ] {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut block = [0; 4096];
                let bytes = stream.read(&mut block).expect("a request");
                assert!(bytes > 0, "no body follows: {}", String::from_utf8_lossy(&request));
                request.extend(&block[..bytes]);
            }
            let is_put = request.starts_with(b"PUT ");
            let head = String::from_utf8(request).expect("no body yet");
            assert_eq!(head.contains("expect: 100-continue"), is_put, "{head}");
            assert_eq!(head.contains("repr-digest: sha-256=:"), is_put, "{head}");
            stream.write_all(format!("HTTP/1.1 {answer}").as_bytes()).expect("room");
            stream.shutdown(Shutdown::Write).expect("a connection");
            let mut rest = Vec::new();
            // However it ends.
            let _ = stream.read_to_end(&mut rest);
            assert!(rest.is_empty(), "{} bytes", rest.len());
        }
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
    command.args(["cp", "-q", "--engine", "tcp", "long", &url]).current_dir(folder.path());
    let output = command.output().expect("the command runs");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("412 Precondition Failed: not now"), "{message}");
    serving.join().expect("what was expected");
}
