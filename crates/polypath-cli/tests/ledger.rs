//! The ledger of standards, `docs/rfc-ledger.toml`: what it names is there, what the code cites is in it, and the pages that are made from it
//! are as it says. `POLYPATH_BLESS=1 cargo test -p polypath-cli --test ledger` writes those pages.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Ledger {
    supported: Vec<String>,
    not_supported: Vec<String>,
    rfc: Vec<Rfc>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rfc {
    number: u32,
    name: String,
    section: Vec<Section>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    section: String,
    name: String,
    #[serde(rename = "where")]
    files: Vec<String>,
    tests: Vec<String>,
    deviation: Option<String>,
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn ledger() -> Ledger {
    let text = fs::read_to_string(workspace().join("docs/rfc-ledger.toml")).expect("the ledger");
    toml::from_str(&text).expect("the ledger is as this file has it")
}

/// All files below with one of the extensions.
fn files(folder: &Path, extensions: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, extensions, found);
        } else if path
            .extension()
            .is_some_and(|extension| extensions.iter().any(|wanted| extension == *wanted))
        {
            found.push(path);
        }
    }
}

fn texts(extensions: &[&str]) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    files(&workspace().join("crates"), extensions, &mut found);
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a source file");
        (path, text)
    };
    found.into_iter().map(read).collect()
}

/// The digits and dots that a section begins with, such as `3.3.1` or `C.2.2`.
fn number_of_section(text: &str) -> &str {
    let end =
        text.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '.').unwrap_or(text.len());
    text[..end].trim_end_matches('.')
}

/// What stands between a number and its section, or between two sections: spaces, commas, the mark of a comment that goes on.
fn skip(text: &str) -> &str {
    let text = text.trim_start_matches([',', ' ', '\n', '/', '!', '#', ';']);
    text.strip_prefix("and ").unwrap_or(text).trim_start_matches([' ', '\n', '/', '!'])
}

/// The sections that a text cites, as `RFC 8684 §3.3.1, §3.7`.
fn citations(text: &str) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    for part in text.split("RFC ").skip(1) {
        let digits = part.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(part.len());
        let Ok(number) = part[..digits].parse() else { continue };
        let mut rest = skip(&part[digits..]);
        while let Some(section) = rest.strip_prefix('§') {
            let section = number_of_section(section);
            found.push((number, section.to_owned()));
            rest = skip(&rest['§'.len_utf8() + section.len()..]);
        }
    }
    found
}

#[test]
fn citations_are_found_wherever_lines_end() {
    let found = citations("(RFC 8684 §3.3.1, §3.7). As RFC 9293\n    /// §3.8.6.3. and RFC 6298 has it");
    let found: Vec<(u32, &str)> = found.iter().map(|(number, section)| (*number, section.as_str())).collect();
    assert_eq!(found, [(8684, "3.3.1"), (8684, "3.7"), (9293, "3.8.6.3")]);
}

#[test]
fn every_section_that_the_code_cites_is_in_the_ledger() {
    let ledger = ledger();
    let known: BTreeSet<(u32, &str)> = ledger
        .rfc
        .iter()
        .flat_map(|rfc| rfc.section.iter().map(|section| (rfc.number, section.section.as_str())))
        .collect();
    let mut missing = BTreeMap::new();
    for (path, text) in texts(&["rs", "case"]) {
        if path.ends_with("tests/ledger.rs") {
            continue;
        }
        for (number, section) in citations(&text) {
            if !known.contains(&(number, section.as_str())) {
                missing.insert(format!("RFC {number} §{section}"), path.display().to_string());
            }
        }
    }
    assert!(missing.is_empty(), "docs/rfc-ledger.toml lacks {missing:#?}");
}

#[test]
fn what_the_ledger_names_is_there() {
    let code: String = texts(&["rs"]).into_iter().map(|(_, text)| text).collect();
    let cases: BTreeSet<String> = texts(&["case"])
        .into_iter()
        .map(|(path, _)| path.file_stem().expect("a name").to_string_lossy().into_owned())
        .collect();
    let mut seen = BTreeSet::new();
    for rfc in ledger().rfc {
        for section in rfc.section {
            let place = format!("RFC {} §{}", rfc.number, section.section);
            assert!(seen.insert(place.clone()), "{place} is there twice");
            for file in &section.files {
                assert!(workspace().join("crates").join(file).is_file(), "{place}: no file {file}");
            }
            for test in &section.tests {
                let is_there = cases.contains(test) || code.contains(&format!("fn {test}("));
                assert!(is_there, "{place}: no test {test}");
            }
            assert!(
                !section.files.is_empty() || section.deviation.is_some(),
                "{place}: neither a file nor a reason for none"
            );
        }
    }
}

/// The page, as the ledger has it.
fn page(ledger: &Ledger) -> String {
    let mut page = String::from(
        "# Standards: section, code, test, deviation\n\n\
         Made from [rfc-ledger.toml](rfc-ledger.toml) by `POLYPATH_BLESS=1 cargo test -p polypath-cli --test ledger`. The test also holds that each section which the\n\
         code cites is here, and that files and tests are there. A test with hyphens in its name is a script of packets in\n\
         [the conformance cases](../crates/lab/sim/tests/conformance/README.md); the others are functions. A dash means that no test is of that section alone.\n",
    );
    for rfc in &ledger.rfc {
        let Rfc { number, name, .. } = rfc;
        writeln!(
            page,
            "\n## RFC {number}: {name}\n\n| section | where | tests | deviation |\n|---|---|---|---|"
        )
        .expect("a text");
        for Section { section, name, files, tests, deviation } in &rfc.section {
            let links: Vec<String> = files
                .iter()
                .map(|file| {
                    let short = file.split_once("/src/").map_or(file.as_str(), |(_, short)| short);
                    format!("[{short}](../crates/{file})")
                })
                .collect();
            let tests: Vec<String> = tests.iter().map(|test| format!("`{test}`")).collect();
            let or_dash = |text: String| if text.is_empty() { "—".to_owned() } else { text };
            writeln!(
                page,
                "| §{section} {name} | {} | {} | {} |",
                or_dash(links.join(", ")),
                or_dash(tests.join(", ")),
                deviation.as_deref().unwrap_or("")
            )
            .expect("a text");
        }
    }
    page
}

/// README's lists, as the ledger has them.
fn lists(ledger: &Ledger) -> String {
    let list = |items: &[String]| items.iter().map(|item| format!("- {item}\n")).collect::<String>();
    format!(
        "**Supported**\n\n{}\n**Not supported**\n\n{}",
        list(&ledger.supported),
        list(&ledger.not_supported)
    )
}

/// Compares a text with the file, or writes it.
#[track_caller]
fn compare(file: &str, wanted: &str) {
    let path = workspace().join(file);
    if std::env::var_os("POLYPATH_BLESS").is_some() {
        return fs::write(path, wanted).expect("the page");
    }
    let is = fs::read_to_string(path).unwrap_or_default();
    assert!(is == wanted, "{file} is not what docs/rfc-ledger.toml says; POLYPATH_BLESS=1 writes it");
}

#[test]
fn the_page_is_made_from_the_ledger() {
    compare("docs/rfc-ledger.md", &page(&ledger()));
}

#[test]
fn the_lists_of_the_readme_are_made_from_the_ledger() {
    const START: &str = "<!-- from docs/rfc-ledger.toml -->\n";
    const END: &str = "<!-- end -->";
    let readme = fs::read_to_string(workspace().join("README.md")).expect("README.md");
    let (before, rest) = readme.split_once(START).expect("the mark before the lists");
    let (_, after) = rest.split_once(END).expect("the mark behind the lists");
    compare("README.md", &format!("{before}{START}{}{END}{after}", lists(&ledger())));
}
