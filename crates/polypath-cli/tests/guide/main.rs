//! The guide, `docs/guide`: its sentences are short, its words are explained before they are used, its links lead somewhere, and its code
//! is what it says. `POLYPATH_BLESS=1 cargo test -p polypath-cli --test guide` writes the glossary. The tasks are run by `guide_tasks`.

mod book;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use book::{Block, Page, guide, links, pages, workspace};
use serde::Deserialize;

/// The most words of a sentence.
const MOST_WORDS: usize = 30;

fn polypath(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
    command.args(arguments).current_dir(workspace()).output().expect("the command runs")
}

/// Sentences end with a full stop, a colon before a list, a cell of a table or a paragraph.
fn sentences(prose: &str) -> Vec<String> {
    let mut text = String::new();
    for line in prose.lines() {
        let line = line.trim();
        let begins_anew = line.is_empty()
            || line.starts_with(['#', '|', '-'])
            || line.split_once(". ").is_some_and(|(number, _)| number.parse::<u8>().is_ok());
        text.push_str(if begins_anew { "\n" } else { " " });
        text.push_str(line.trim_start_matches(['#', '-']));
    }
    let ends = |letter: char| matches!(letter, '\n' | '|');
    let parts = text.split(ends).flat_map(|part| part.split(". "));
    parts.flat_map(|part| part.split("? ")).map(|part| part.trim().to_owned()).collect()
}

#[test]
fn sentences_are_short() {
    let mut long = Vec::new();
    for page in pages() {
        for sentence in sentences(&page.prose()) {
            let words = sentence.split_whitespace().filter(|word| word.chars().any(char::is_alphanumeric));
            let count = words.count();
            if count > MOST_WORDS {
                long.push(format!("{}: {count} words: {sentence}", page.name));
            }
        }
    }
    assert!(long.is_empty(), "{long:#?}");
}

#[derive(Debug, Deserialize)]
struct Words {
    terms: BTreeMap<String, Vec<String>>,
}

fn words() -> Words {
    let text = fs::read_to_string(guide().join("terms.toml")).expect("terms.toml");
    toml::from_str(&text).expect("the words are as this file has them")
}

/// Where a word stands in a text, as a whole.
fn find_word(text: &str, word: &str) -> Option<usize> {
    let is_letter =
        |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '-');
    let mut places = text.match_indices(word).map(|(at, _)| at);
    places.find(|at| {
        !is_letter(text[..*at].chars().next_back()) && !is_letter(text[at + word.len()..].chars().next())
    })
}

#[test]
fn words_are_explained_before_they_are_used() {
    let text: String = pages().iter().map(|page| format!("{}\n", page.prose())).collect();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    let mut early = Vec::new();
    for (term, forms) in words().terms {
        let forms: Vec<String> = forms.iter().chain([&term]).map(|form| form.to_lowercase()).collect();
        let Some(explained) = forms.iter().filter_map(|form| text.find(&format!("**{form}**"))).min() else {
            early.push(format!("{term} is not explained"));
            continue;
        };
        for form in &forms {
            let used = find_word(&text, form).filter(|used| *used < explained);
            if let Some(used) = used {
                let start = text.floor_char_boundary(used.saturating_sub(40));
                early.push(format!(
                    "{form} is used before it is explained: …{}",
                    &text[start..used + form.len()]
                ));
            }
        }
    }
    assert!(early.is_empty(), "{early:#?}");
}

#[test]
fn the_glossary_has_each_word_in_order() {
    const START: &str = "<!-- glossary -->\n";
    const END: &str = "<!-- end of glossary -->";
    let pages = pages();
    let explanations =
        pages.iter().flat_map(|page| page.text.lines()).filter_map(|line| line.strip_prefix("- "));
    let mut entries = BTreeMap::new();
    for line in explanations {
        let Some((_, rest)) = line.split_once("**") else { continue };
        let Some((term, _)) = rest.split_once("**") else { continue };
        let is_term = words().terms.iter().any(|(name, forms)| {
            let mut forms = forms.iter().chain([name]);
            forms.any(|form| form.eq_ignore_ascii_case(term))
        });
        if is_term {
            entries.entry(term.to_lowercase()).or_insert_with(|| line.to_owned());
        }
    }
    assert_eq!(
        entries.len(),
        words().terms.len(),
        "each word is explained in a line of a list: {entries:#?}"
    );
    let list = entries.values().fold(String::new(), |mut list, line| {
        writeln!(list, "- {line}").expect("a text");
        list
    });
    let file = guide().join("src/glossary.md");
    let page = fs::read_to_string(&file).expect("glossary.md");
    let (before, rest) = page.split_once(START).expect("the mark before the list");
    let (_, after) = rest.split_once(END).expect("the mark behind the list");
    // The entries of the glossary itself come last, so that they are not what is found first.
    let wanted = format!("{before}{START}{list}{END}{after}");
    if std::env::var_os("POLYPATH_BLESS").is_some() {
        fs::write(file, wanted).expect("glossary.md");
    } else {
        assert!(page == wanted, "glossary.md is not what the pages say; POLYPATH_BLESS=1 writes it");
    }
}

/// The name by which a link finds a heading.
fn anchor(heading: &str) -> String {
    let letters = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = letters.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

/// What is wrong with the links of a page, if anything.
fn broken_links(file: &Path, text: &str) -> Vec<String> {
    let folder = file.parent().expect("a folder");
    let mut broken = Vec::new();
    for link in links(text) {
        if link.contains("://") || link.starts_with("mailto:") {
            continue;
        }
        let (target, heading) = link.split_once('#').unwrap_or((&link, ""));
        let target = if target.is_empty() { file.to_owned() } else { folder.join(target) };
        let has_heading = || {
            let text = fs::read_to_string(&target).unwrap_or_default();
            heading.is_empty() || text.lines().any(|line| line.starts_with('#') && anchor(line) == heading)
        };
        if !target.exists() || !has_heading() {
            broken.push(format!("{}: {link}", file.display()));
        }
    }
    broken
}

/// The Markdown pages of a folder.
fn markdown(folder: &str) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(workspace().join(folder)).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

#[test]
fn links_lead_somewhere() {
    let pages = pages().into_iter().map(|page| page.file);
    let others = ["docs", "docs/results", "."].into_iter().flat_map(markdown);
    let summary = guide().join("src/SUMMARY.md");
    let broken: Vec<String> = pages
        .chain(others)
        .chain([summary])
        .flat_map(|file| broken_links(&file, &fs::read_to_string(&file).expect("a page")))
        .collect();
    assert!(broken.is_empty(), "{broken:#?}");
}

/// All blocks of the guide in a language.
fn blocks(language: &str) -> Vec<Block> {
    let blocks = pages().iter().flat_map(Page::blocks).collect::<Vec<_>>();
    blocks.into_iter().filter(|block| block.words.first().is_some_and(|first| first == language)).collect()
}

/// The arguments of each call of our command in a line of a shell, as far as quotes are simple.
fn calls(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word = String::new();
    let mut quote = None;
    for letter in line.chars().chain([' ']) {
        match (letter, quote) {
            ('\'' | '"', None) => quote = Some(letter),
            (_, Some(open)) if letter == open => quote = None,
            (' ', None) if word.is_empty() => {}
            (' ', None) => {
                let word = std::mem::take(&mut word);
                if ["&&", "||", "|", ";", "&"].contains(&word.as_str()) {
                    commands.push(Vec::new());
                } else {
                    commands.last_mut().expect("one at least").push(word);
                }
            }
            _ => word.push(letter),
        }
    }
    let ours = commands.into_iter().filter_map(|words: Vec<String>| {
        let words: Vec<String> = words.into_iter().skip_while(|word| word == "sudo").collect();
        (words.first()? == "polypath").then(|| words[1..].to_vec())
    });
    ours.collect()
}

/// What the command says against the arguments, if anything: with `--help` it parses them and does nothing.
fn refusal(arguments: &[String]) -> Option<String> {
    let end = arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len());
    let mut with_help: Vec<&str> = arguments.iter().map(String::as_str).collect();
    with_help.insert(end, "--help");
    let output = polypath(&with_help);
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn calls_of_the_command_are_understood() {
    let mut refused = Vec::new();
    let mut seen = 0;
    for block in blocks("sh") {
        for line in block.code.replace("\\\n", " ").lines() {
            for call in calls(line) {
                seen += 1;
                if let Some(refusal) = refusal(&call) {
                    refused.push(format!("{}: {line}: {refusal}", block.place));
                }
            }
        }
    }
    assert!(seen > 30, "{seen} calls");
    assert!(refused.is_empty(), "{refused:#?}");
    assert!(refusal(&["get".into(), "--no-such-option".into()]).is_some(), "mistakes are found");
}

#[test]
fn shell_blocks_are_shell_and_those_to_be_run_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let bin = Path::new(env!("CARGO_BIN_EXE_polypath")).parent().expect("a folder");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    for block in blocks("sh") {
        let is_run = block.has("run");
        // Reports go where they are removed.
        let code = block.code.replace("/tmp/", &format!("{}/", folder.path().display()));
        let mut command = Command::new("bash");
        command.args(if is_run { &["-euc"][..] } else { &["-nc"] }).arg(&code);
        let output = command.current_dir(workspace()).env("PATH", &path).output().expect("bash");
        assert!(output.status.success(), "{}: {output:?}", block.place);
    }
}

#[test]
fn code_is_that_of_the_examples() {
    let all = ["rust", "c"].into_iter().flat_map(blocks).collect::<Vec<_>>();
    assert!(all.len() >= 4, "{all:?}");
    for block in all {
        let file = block.value("file").unwrap_or_else(|| panic!("{}: no file=", block.place));
        let text =
            fs::read_to_string(workspace().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        // Without the comment for readers of the file, if the guide leaves it out.
        let is_there = text == block.code
            || text.contains(&block.code) && (block.has("part") || text.ends_with(&block.code));
        assert!(is_there, "{}: {file} has other code", block.place);
    }
}

#[test]
fn files_are_loaded() {
    let folder = tempfile::tempdir().expect("a folder");
    for block in blocks("toml") {
        let file = folder.path().join("file.toml");
        fs::write(&file, &block.code).expect("a file");
        let file = file.to_str().expect("a path in UTF-8");
        let out = folder.path().to_str().expect("a path in UTF-8");
        let report = format!("{out}/report.html");
        let output = match block.value("kind") {
            Some("scenario") => polypath(&["sim", "--quiet", "--report", &report, file]),
            Some("experiment") => polypath(&["lab", "run", "--quiet", "--out", out, file]),
            Some("links") => polypath(&["emulate", "--dry-run", file]),
            // Nobody listens there: that it is tried shows that the file was understood.
            Some("config") => polypath(&["get", "--config", file, "--engine", "tcp", "http://127.0.0.1:1/"]),
            Some("proxy") => {
                fs::write(folder.path().join("users.txt"), "ann:secret\n").expect("users");
                let made = rcgen::generate_simple_self_signed(["proxy.example.org".into()]).expect("a pair");
                for (name, text) in [
                    ("ca.pem", made.cert.pem()),
                    ("proxy.pem", made.cert.pem()),
                    ("proxy-key.pem", made.signing_key.serialize_pem()),
                    ("ann.pem", made.cert.pem()),
                    ("ann-key.pem", made.signing_key.serialize_pem()),
                ] {
                    fs::write(folder.path().join(name), text).expect("a file");
                }
                polypath(&["proxy", file, "--no-config", "--dry-run", "--engine", "tcp"])
            }
            kind => panic!("{}: what is {kind:?}?", block.place),
        };
        // That the links' interfaces are not here is no fault of the file.
        let error = String::from_utf8_lossy(&output.stderr);
        let is_loaded = match block.value("kind") {
            Some("links") => output.status.success() || error.contains("eth1"),
            Some("config") => output.status.code() == Some(1),
            // It is understood before the engine has its say.
            Some("proxy") => error.contains("only --engine tun sets anything up"),
            _ => output.status.success(),
        };
        assert!(is_loaded, "{}: {output:?}", block.place);
    }
}

#[test]
fn every_command_has_a_place() {
    let help = String::from_utf8(polypath(&["--help"]).stdout).expect("UTF-8");
    let (_, commands) = help.split_once("Commands:\n").expect("a list of commands");
    let names = commands.lines().take_while(|line| !line.is_empty()).filter_map(|line| {
        let name = line.strip_prefix("  ")?;
        (!name.starts_with(' ')).then(|| name.split(' ').next()).flatten()
    });
    let names: Vec<&str> = names.filter(|name| *name != "help").collect();
    assert!(names.len() > 10, "{names:?}");
    let page = fs::read_to_string(guide().join("src/commands.md")).expect("commands.md");
    for name in names {
        assert!(page.lines().any(|line| line == format!("### {name}")), "commands.md has no part {name}");
    }
}
