//! The shape of the workspace, checked by machine: what may depend on what, what stays pure, how long files get.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cargo_metadata::{Dependency, DependencyKind, MetadataCommand};

const CORE: &[&str] = &["units", "wire", "congestion", "tcp", "mptcp", "link", "config"];

/// Each crate, the folder of its floor, and what of ours it depends on, from below. Dependencies point downwards only.
const LAYERS: &[(&str, &str, &[&str])] = &[
    ("units", "core", &[]),
    ("wire", "core", &[]),
    ("congestion", "core", &["units"]),
    ("tcp", "core", &["units", "wire", "congestion"]),
    ("mptcp", "core", &["units", "wire", "congestion", "tcp"]),
    ("link", "core", &["units", "wire"]),
    ("config", "core", &["units", "congestion", "mptcp", "link"]),
    ("system", "io", &["units", "wire"]),
    ("stack", "io", &["units", "wire", "tcp", "mptcp", "link", "system"]),
    ("control", "io", &["wire", "tcp", "mptcp", "system", "stack"]),
    ("metrics", "io", &[]),
    ("netsetup", "io", &["wire", "tcp", "mptcp", "system", "stack", "control"]),
    ("emulate", "io", &["units", "wire", "link", "system"]),
    ("sandbox", "io", &["units", "wire", "tcp", "mptcp", "system", "stack"]),
    ("relay", "io", &["wire", "congestion", "mptcp", "system", "stack", "control", "netsetup"]),
    ("testbed", "io", &["system"]),
    ("capi", "io", &["relay", "stack"]),
    ("preload", "io", &["relay"]),
    ("fetch", "apps", &["units", "system", "stack"]),
    ("tunnel", "apps", &["units", "wire", "congestion", "tcp", "mptcp", "system"]),
    ("proxy", "apps", &["units", "mptcp", "stack"]),
    ("sim", "lab", CORE),
    (
        "lab",
        "lab",
        &["units", "wire", "congestion", "tcp", "mptcp", "link", "config", "fetch", "tunnel", "sim"],
    ),
    (
        "polypath",
        "",
        &["units", "wire", "congestion", "tcp", "mptcp", "link", "config", "system", "stack", "netsetup"],
    ),
    (
        "cli",
        "",
        &[
            "units",
            "wire",
            "congestion",
            "tcp",
            "mptcp",
            "link",
            "config",
            "system",
            "stack",
            "control",
            "metrics",
            "netsetup",
            "emulate",
            "fetch",
            "tunnel",
            "proxy",
            "sandbox",
            "relay",
            "testbed",
            "sim",
            "lab",
        ],
    ),
];

/// Crates without clock, socket, thread, task or global randomness.
const PURE: &[&str] = CORE;

/// Words that have no place in the code of a pure crate.
const IMPURE: &[&str] =
    &["std::time", "SystemTime", "std::net", "std::thread", "tokio", "thread_rng", "RandomState", "std::fs"];

/// Lines of code, tests included, that a file may have. Longer ones are listed with a reason.
const CEILING: usize = 800;
const EXCEPTIONS: &[(&str, &str)] = &[];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn dependencies_point_downwards() {
    let metadata = MetadataCommand::new().manifest_path(workspace().join("Cargo.toml")).no_deps().exec();
    let metadata = metadata.expect("cargo reads the workspace");
    let short = |name: &str| name.strip_prefix("polypath-").unwrap_or(name).to_string();
    for package in &metadata.packages {
        let name = short(&package.name);
        let layer = LAYERS.iter().find(|(known, ..)| *known == name);
        let (_, floor, below) = layer.unwrap_or_else(|| panic!("crate {name} has no place in LAYERS"));
        let folder = if floor.is_empty() { package.name.to_string() } else { format!("{floor}/{name}") };
        let manifest = format!("crates/{folder}/Cargo.toml");
        assert!(package.manifest_path.ends_with(&manifest), "{name} belongs into {manifest}");
        // Those of tests are free.
        let is_ours =
            |dependency: &&Dependency| dependency.path.is_some() && dependency.kind == DependencyKind::Normal;
        let used = package.dependencies.iter().filter(is_ours).map(|dependency| short(&dependency.name));
        let listed = below.iter().map(ToString::to_string).collect();
        assert_eq!(used.collect::<BTreeSet<_>>(), listed, "what {name} depends on, and what LAYERS says");
        let place = |name: &str| LAYERS.iter().position(|(known, ..)| *known == name);
        let is_below = |other: &&str| place(other).is_some() && place(other) < place(&name);
        assert!(below.iter().all(is_below), "{name} depends on what stands above it in LAYERS");
    }
}

/// A file for each crate, since clippy looks for none further up than the first one that it finds.
#[test]
fn clippy_refuses_clocks_sockets_and_random_order_in_pure_crates() {
    let of = |name: &str| {
        let path = workspace().join("crates/core").join(name).join("clippy.toml");
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let units = of("units");
    for word in ["Instant::now", "SystemTime::now", "thread::sleep", "TcpStream", "UdpSocket", "HashMap"] {
        assert!(units.contains(word), "{word}");
    }
    for name in PURE {
        assert_eq!(of(name), units, "{name}");
    }
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the workspace") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn pure_crates_are_pure() {
    for name in PURE {
        let folder = workspace().join("crates/core").join(name).join("src");
        let root = fs::read_to_string(folder.join("lib.rs")).expect("lib.rs");
        assert!(root.contains("#![no_std]"), "{name} must be no_std");
        let mut files = Vec::new();
        sources(&folder, &mut files);
        for file in files {
            let text = fs::read_to_string(&file).expect("a source file");
            // Tests may use the standard library; they end a file, or are a file of their own.
            let is_test = file.components().any(|part| part.as_os_str() == "tests")
                || file.file_name().is_some_and(|name| name.to_string_lossy().ends_with("tests.rs"));
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            for (number, line) in code.lines().enumerate().filter(|_| !is_test) {
                let line = line.split("//").next().unwrap_or_default();
                for word in IMPURE {
                    assert!(!line.contains(word), "{}:{}: {word}", file.display(), number + 1);
                }
            }
        }
    }
}

#[test]
fn files_can_be_held_in_mind() {
    let mut files = Vec::new();
    sources(&workspace().join("crates"), &mut files);
    for file in files {
        let lines = fs::read_to_string(&file).expect("a source file").lines().count();
        let listed = EXCEPTIONS.iter().any(|(name, _)| file.ends_with(name));
        assert!(
            lines <= CEILING || listed,
            "{} has {lines} lines; what in it wants its own name?",
            file.display()
        );
    }
}

/// What people embed brings few crates of others.
#[test]
fn the_library_stays_light() {
    const MOST_EXTERNAL: usize = 60;
    let arguments = ["tree", "--offline", "--package", "polypath", "--edges", "normal", "--prefix", "none"];
    let output =
        Command::new(env!("CARGO")).current_dir(workspace()).args(arguments).output().expect("cargo tree");
    let text = String::from_utf8(output.stdout).expect("text");
    let external: BTreeSet<&str> = text
        .lines()
        .map(|line| line.split(" (").next().unwrap_or(line))
        .filter(|line| !line.starts_with("polypath"))
        .collect();
    assert!(
        external.len() > 10 && external.len() <= MOST_EXTERNAL,
        "{} external crates: {external:?}",
        external.len()
    );
}

/// The names in the last column of a Markdown table.
fn names_of_tests(document: &str) -> Vec<&str> {
    let last_cells = document.lines().filter_map(|line| line.strip_suffix(" |")?.rsplit(" | ").next());
    last_cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn every_test_that_the_threats_name_is_there() {
    let document = fs::read_to_string(workspace().join("docs/threats.md")).expect("docs/threats.md");
    let mut files = Vec::new();
    sources(&workspace().join("crates"), &mut files);
    let code: String = files.iter().map(|file| fs::read_to_string(file).expect("a source file")).collect();
    let names = names_of_tests(&document);
    assert!(names.len() > 30, "{names:?}");
    for name in names {
        let is_case = ["tcp", "mptcp"].iter().any(|folder| {
            let case = format!("crates/lab/sim/tests/conformance/cases/{folder}/{name}.case");
            workspace().join(case).is_file()
        });
        let is_there = is_case || code.contains(&format!("fn {name}()"));
        assert!(is_there, "docs/threats.md names {name}, which is no test");
    }
}

/// A step of a walk: a file, and the function to read there.
#[derive(Debug)]
struct Step {
    file: String,
    function: String,
}

/// The walks of docs/architecture.md: by heading, the steps in order.
fn walks() -> Vec<(String, Vec<Step>)> {
    let text = fs::read_to_string(workspace().join("docs/architecture.md")).expect("the page");
    let mut walks: Vec<(String, Vec<Step>)> = Vec::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("### ") {
            walks.push((title.to_owned(), Vec::new()));
        }
        let Some((number, step)) = line.split_once(". ") else { continue };
        let (Ok(number), Some((_, steps))) = (number.parse::<usize>(), walks.last_mut()) else { continue };
        // `file` `function`: what happens
        let parts: Vec<&str> = step.splitn(5, '`').collect();
        let ["", file, " ", function, rest] = parts[..] else { panic!("no file and function: {line}") };
        assert!(rest.starts_with(": "), "{line}");
        assert_eq!(number, steps.len() + 1, "{line}");
        steps.push(Step { file: file.to_owned(), function: function.to_owned() });
    }
    walks
}

#[test]
fn walks_through_the_code_name_functions_that_are_there_and_each_file_once() {
    let walks = walks();
    assert_eq!(walks.len(), 5);
    for (title, steps) in walks {
        assert!(steps.len() >= 8, "{title}: {} steps", steps.len());
        for Step { file, function } in &steps {
            let code = fs::read_to_string(workspace().join("crates").join(file));
            let code = code.unwrap_or_else(|error| panic!("{title}: {file}: {error}"));
            let has = ["(", "<"].iter().any(|end| code.contains(&format!("fn {function}{end}")));
            assert!(has, "{title}: {file} has no function {function}");
        }
        let files: BTreeSet<&str> = steps.iter().map(|step| step.file.as_str()).collect();
        assert_eq!(files.len(), steps.len(), "{title}: a file is visited twice");
    }
}
