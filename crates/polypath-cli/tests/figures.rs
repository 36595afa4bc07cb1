//! Figures of README.md and docs/ that can be counted are what is counted.

use std::fs;
use std::path::{Path, PathBuf};

use polypath_config::Policies;
use polypath_mptcp::path_manager::PathManagers;
use polypath_mptcp::scheduler::Schedulers;
use polypath_sim::matrix;
use polypath_units::named::Kind;

const CHECKS: &str = "docs/results/checks.md";

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The page has these words, wherever its lines end.
#[track_caller]
fn says(page: &str, words: &str) {
    let text = fs::read_to_string(workspace().join(page)).expect("the page");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(words), "{page} does not say: {words}");
}

/// The texts of the cases of a folder.
fn cases(folder: &str) -> Vec<String> {
    let folder = workspace().join("crates/lab/sim/tests/conformance/cases").join(folder);
    let paths =
        fs::read_dir(folder).expect("the folder of cases").map(|entry| entry.expect("an entry").path());
    let cases = paths.filter(|path| path.extension().is_some_and(|extension| extension == "case"));
    cases.map(|path| fs::read_to_string(path).expect("a case")).collect()
}

#[test]
fn scripts_of_packets_are_as_many_as_is_said() {
    let (tcp, mptcp) = (cases("tcp"), cases("mptcp"));
    let is_old = |case: &&String| {
        case.lines().any(|line| line.starts_with("set version 0") || line.starts_with("given v0-"))
    };
    let old = mptcp.iter().filter(is_old).count();
    let (tcp, mptcp) = (tcp.len(), mptcp.len());
    // Those of TCP run on the host of TCP and on that of Multipath TCP.
    let (scripts, tests) = (tcp + mptcp, 2 * tcp + mptcp);
    says("README.md", &format!("{scripts} scripts of packets in {tests} tests"));
    says(CHECKS, &format!("| of TCP, on both hosts | {tcp} | {} |", 2 * tcp));
    says(CHECKS, &format!("| of Multipath TCP | {mptcp}, {old} of them of version 0 | {mptcp} |"));
    says(CHECKS, &format!("| all | {scripts} | {tests} |"));
}

#[test]
fn cases_of_middleboxes_are_as_many_as_is_said() {
    let cases = matrix::cases(&Policies::default()).len();
    says("README.md", &format!("{cases} of {cases} cases deliver every byte"));
    says(CHECKS, &format!("| {cases} | {cases} | none |"));
}

#[test]
fn policies_are_as_many_as_is_said() {
    let words = ["five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen", "fourteen"];
    let word = |count: usize| words[count - 5];
    says("README.md", &format!("[{} schedulers]", word(Schedulers::ALL.len())));
    says("README.md", &format!("[{} path managers]", word(PathManagers::ALL.len())));
}
