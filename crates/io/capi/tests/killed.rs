//! What engine tun has set up goes with its program, however that ends.

mod compiler;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use compiler::{cc, compile, has_compiler};
use polypath_testbed::{Testbed, built, is_root_or_skip};

/// How a program has the library.
#[derive(Clone, Copy, Debug)]
enum Linked {
    Shared,
    /// From the archive, and the C library from its shared one.
    Archive,
    /// Everything from archives.
    Static,
}

/// What a program needs beside the archive.
fn libraries_of_archive() -> impl Iterator<Item = &'static str> {
    let lines = include_str!("../polypath.pc.in").lines();
    lines.filter_map(|line| line.strip_prefix("Libs.private:")).flat_map(str::split_whitespace)
}

fn compile_with(to: &Path, linked: Linked) {
    let flag = match linked {
        Linked::Shared => return compile("tests/killed.c", to),
        Linked::Archive => None,
        Linked::Static => Some("-static"),
    };
    let mut cc = cc("tests/killed.c", to);
    cc.args(flag).arg(built().join("libpolypath.a")).args(libraries_of_archive());
    let output = cc.output().expect("cc");
    // It warns of names of hosts, which no program here looks up.
    assert!(output.status.success(), "{linked:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The processes that wait for the end of one with records in `directory`.
fn guardians(directory: &Path) -> Vec<PathBuf> {
    let processes = fs::read_dir("/proc").expect("/proc").flatten().map(|entry| entry.path());
    let is_one = |process: &PathBuf| {
        let words = fs::read(process.join("cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
        words.contains(&&b"polypath-set-up-guardian"[..]) && words.contains(&directory.as_os_str().as_bytes())
    };
    processes.filter(is_one).collect()
}

struct Scene {
    testbed: Testbed,
    directory: tempfile::TempDir,
    program: PathBuf,
}

impl Scene {
    fn words_of(&self, what: &str, words: &[&str]) -> String {
        let output = self.testbed.client.run(|| Command::new(what).args(words).output());
        String::from_utf8_lossy(&output.expect("the namespace").expect(what).stdout).into_owned()
    }

    /// All that engine tun changes.
    fn network(&self) -> Vec<String> {
        let asked: [(&str, &[&str]); 5] = [
            ("ip", &["rule"]),
            ("ip", &["-6", "rule"]),
            ("ip", &["route", "show", "table", "all"]),
            ("ip", &["-o", "-br", "link"]),
            ("nft", &["list", "ruleset"]),
        ];
        asked.iter().map(|(what, words)| self.words_of(what, words)).collect()
    }

    /// The program, whose engine runs.
    fn start(&self, end: &str) -> Child {
        let mut command = Command::new(&self.program);
        command.arg(end).env("ENGINE", "engine=tun").env("POLYPATH_RUNTIME_DIR", self.directory.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child =
            self.testbed.client.run(|| command.spawn()).expect("the namespace").expect("the program");
        let mut said = String::new();
        let printed = child.stdout.take().expect("a pipe");
        BufReader::new(printed).read_line(&mut said).expect("what it prints");
        assert_eq!(said, "ready\n");
        child
    }

    /// Waits until nobody is left who takes anything down.
    fn wait(&self) {
        while !guardians(self.directory.path()).is_empty() {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn nothing_stays_behind_a_program_that_is_killed() {
    if !has_compiler("programs that are killed") || !is_root_or_skip("programs that are killed") {
        return;
    }
    for linked in [Linked::Shared, Linked::Archive, Linked::Static] {
        let directory = tempfile::tempdir().expect("a folder");
        let program = directory.path().join("killed");
        compile_with(&program, linked);
        let testbed = Testbed::new(1).expect("namespaces");
        let scene = Scene { testbed, directory, program };
        scene.words_of("ip", &["route", "add", "default", "via", "10.77.0.2"]);
        let before = scene.network();
        for (end, signal) in [("abort", 6), ("interrupt", 2), ("stay", 9)] {
            let mut child = scene.start(end);
            if end == "stay" {
                assert_ne!(scene.network(), before, "it is set up");
                let found = guardians(scene.directory.path());
                assert_eq!(found.len(), 1, "one waits");
                let open = fs::read_dir(found[0].join("fd")).expect("its descriptors").count();
                assert_eq!(open, 4, "the peers, the device, nothing, and the program");
                child.kill().expect("it runs");
            }
            drop(child.stdin.take());
            assert_eq!(child.wait().expect("it ends").signal(), Some(signal), "{end}");
            scene.wait();
            assert_eq!(scene.network(), before, "{end}, {linked:?}");
        }
        let mut child = scene.start("stay");
        drop(child.stdin.take());
        assert!(child.wait().expect("it ends").success());
        assert!(guardians(scene.directory.path()).is_empty(), "it ends with the engine");
        assert_eq!(scene.network(), before, "freed, {linked:?}");
    }
}
