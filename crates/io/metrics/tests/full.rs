//! A history whose disk was full goes on once there is room again.

use std::env;
use std::path::Path;
use std::process::Command;

use polypath_metrics::history::{History, Resolution, Row, Usage, read};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const DIRECTORY: &str = "POLYPATH_TEST_HISTORY";
const START_S: u64 = 1_000_000_200;

fn row(step: u64) -> Row {
    let usage = Usage { sent_bytes: 1, ..Usage::default() };
    Row { at_s: START_S + step * 10, interface: "wifi".into(), usage }
}

/// Files of this process may have so many bytes; what is longer can't be written, as on a disk without room.
fn bound_files(bytes: Option<u64>) {
    let limit = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: bytes.or(limit.maximum), ..limit }).expect("a limit");
}

/// Is started by the test below, with a signal ignored that would end it; does nothing else.
#[test]
fn writer() {
    let Some(directory) = env::var_os(DIRECTORY) else { return };
    let directory = Path::new(&directory);
    // A start without room leaves nothing that the next one could not read.
    bound_files(Some(1024));
    History::open(directory).expect_err("no room");
    assert_eq!(std::fs::read_dir(directory).expect("a folder").count(), 0);
    bound_files(None);
    let mut history = History::open(directory).expect("a history");
    history.record(START_S, &[row(0)]).expect("room");
    bound_files(Some(1024));
    history.record(START_S, &[row(1)]).expect_err("no room");
    history.record(START_S, &[row(2)]).expect_err("no room yet");
    bound_files(None);
    history.record(START_S, &[row(3)]).expect("room again");
    let rows = read(directory, 0, Resolution::Fine).expect("rows");
    assert!(rows.contains(&row(0)) && rows.contains(&row(3)), "{rows:?}");
}

#[test]
fn what_comes_after_a_full_disk_is_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; exec \"$0\" --exact writer"]);
    command.arg(env::current_exe().expect("this test")).env(DIRECTORY, folder.path());
    let output = command.output().expect("a shell");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
