//! A writer that is killed in the middle of its work leaves a history that goes on.

use std::env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use polypath_metrics::history::{History, Resolution, Row, Usage, read};

const DIRECTORY: &str = "POLYPATH_TEST_HISTORY";
const START_S: u64 = 1_000_000_200;

/// Is killed by the test below, which starts it; does nothing else.
#[test]
fn writer() {
    let Some(directory) = env::var_os(DIRECTORY) else { return };
    let mut history = History::open(Path::new(&directory)).expect("a history");
    let first = read(Path::new(&directory), 0, Resolution::Fine).map_or(0, |rows| rows.len() as u64 / 2);
    for step in first.. {
        let row = |interface: &str| Row {
            at_s: START_S + step * 10,
            interface: interface.into(),
            usage: Usage { sent_bytes: step + 1, ..Usage::default() },
        };
        history.record(START_S, &[row("lte"), row("wifi")]).expect("room");
        println!("written {step}");
    }
}

fn start(directory: &Path) -> Child {
    let mut command = Command::new(env::current_exe().expect("this test"));
    command.args(["--exact", "writer", "--nocapture"]).env(DIRECTORY, directory).stdout(Stdio::piped());
    command.spawn().expect("the test runs once more")
}

#[test]
fn what_was_written_is_there_after_a_kill_and_nothing_by_half() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut written = 0;
    for round in 0..4 {
        let mut child = start(folder.path());
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
        let steps = lines.filter_map(|line| line.rsplit_once("written ")?.1.parse::<u64>().ok());
        let last = steps.take(15 + round * 7).last().expect("it writes");
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        let rows = read(folder.path(), 0, Resolution::Fine).expect("rows");
        assert!(last >= written && rows.len() as u64 >= 2 * (last + 1), "{last} {}", rows.len());
        for (step, pair) in (0..).zip(rows.chunks(2)) {
            let [lte, wifi] = pair else { panic!("half a step: {pair:?}") };
            assert_eq!((lte.interface.as_str(), wifi.interface.as_str()), ("lte", "wifi"));
            assert_eq!((lte.at_s, lte.usage), (START_S + step * 10, wifi.usage));
            assert_eq!(wifi.usage.sent_bytes, step + 1);
        }
        written = last;
    }
}
