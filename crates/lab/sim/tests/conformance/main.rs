//! Conformance: cases in files, each a script of packets in and out; `README.md` says how they are written.

mod check;
mod flow;
mod host;
mod keys;
mod options;
mod parse;
mod peer;
mod player;
mod script;
mod settings;
mod values;
mod words;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use libtest_mimic::{Arguments, Failed, Trial};

use host::Kind;

/// Cases that fail, by name, and why.
type ExpectedFailures = BTreeMap<String, String>;

fn main() {
    let arguments = Arguments::from_args();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/cases");
    let expected = expected_failures(&folder.join("expected-to-fail.txt"));
    let tcp = files(&folder.join("tcp"));
    let mptcp = files(&folder.join("mptcp"));
    if !arguments.list {
        summary(&[("TCP", &tcp), ("Multipath TCP", &mptcp)]);
    }
    let mut trials = Vec::new();
    for (kind, folder, files) in [
        (Kind::Tcp, "tcp", &tcp),
        (Kind::PlainMultipath, "tcp-on-multipath-host", &tcp),
        (Kind::Multipath, "mptcp", &mptcp),
    ] {
        trials.extend(files.iter().map(|path| trial(folder, path, kind, &expected)));
    }
    let unknown = expected.keys().filter(|name| trials.iter().all(|trial| trial.name() != name.as_str()));
    for name in unknown.cloned().collect::<Vec<_>>() {
        let missing = name.clone();
        trials.push(Trial::test(format!("expected-to-fail/{name}"), move || {
            Err(format!("expected-to-fail.txt names a case that is not there: {missing}").into())
        }));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// The cases of a folder, in order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder of cases");
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "case"));
    files.sort();
    files
}

/// Lines such as `mptcp/name: reason`.
fn expected_failures(path: &Path) -> ExpectedFailures {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines
        .map(|line| line.split_once(": ").expect("`folder/name: reason`"))
        .map(|(name, reason)| (name.to_owned(), reason.to_owned()))
        .collect()
}

fn trial(folder: &str, path: &Path, kind: Kind, expected: &ExpectedFailures) -> Trial {
    let name = format!("{folder}/{}", path.file_stem().unwrap_or_default().to_string_lossy());
    let reason = expected.get(&name).cloned();
    let shown = if reason.is_some() { "expected to fail" } else { "" };
    let path = path.to_owned();
    let trial = Trial::test(name, move || run(&path, kind, reason.as_deref()));
    trial.with_kind(shown)
}

fn run(path: &Path, kind: Kind, expected_failure: Option<&str>) -> Result<(), Failed> {
    let script = parse::read(path)?;
    if script.sections.is_empty() {
        return Err("its head names no section, such as `RFC 9293 §3.5`".into());
    }
    match (player::play(&script, kind), expected_failure) {
        (Ok(()), None) | (Err(_), Some(_)) => Ok(()),
        (Err(error), None) => Err(error.into()),
        (Ok(()), Some(reason)) => {
            Err(format!("it passes, but expected-to-fail.txt says: {reason}; take it out there").into())
        }
    }
}

/// How many cases each section has.
fn summary(folders: &[(&str, &[PathBuf])]) {
    for (title, files) in folders {
        let mut sections: BTreeMap<String, u32> = BTreeMap::new();
        for script in files.iter().filter_map(|path| parse::read(path).ok()) {
            let mut named = script.sections;
            named.sort();
            named.dedup();
            named.into_iter().for_each(|section| *sections.entry(section).or_default() += 1);
        }
        let counts: Vec<String> =
            sections.iter().map(|(section, count)| format!("{section}: {count}")).collect();
        println!("{title}: {} cases; {}", files.len(), counts.join(", "));
    }
}
