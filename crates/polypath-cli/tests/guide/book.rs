//! The pages of the guide in their order, and the blocks of code in them.

use std::fs;
use std::path::{Path, PathBuf};

pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn guide() -> PathBuf {
    workspace().join("docs/guide")
}

/// A page of the guide.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) file: PathBuf,
    pub(crate) name: String,
    pub(crate) text: String,
}

/// A block of code, and the words behind its three ticks.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) words: Vec<String>,
    pub(crate) code: String,
    pub(crate) place: String,
}

impl Block {
    pub(crate) fn has(&self, word: &str) -> bool {
        self.words.iter().any(|have| have == word)
    }

    /// The value of `key=value`.
    pub(crate) fn value(&self, key: &str) -> Option<&str> {
        self.words.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    }
}

/// The pages, in the order of SUMMARY.md.
pub(crate) fn pages() -> Vec<Page> {
    let source = guide().join("src");
    let summary = fs::read_to_string(source.join("SUMMARY.md")).expect("SUMMARY.md");
    let names = links(&summary).into_iter().filter(|link| link.ends_with(".md"));
    let read = |name: String| {
        let file = source.join(&name);
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        Page { file, name, text }
    };
    names.map(read).collect()
}

impl Page {
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut open: Option<Block> = None;
        for (number, line) in self.text.lines().enumerate() {
            match (line.strip_prefix("```"), &mut open) {
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(words), None) => {
                    let words = words.split_whitespace().map(str::to_owned).collect();
                    let place = format!("{}:{}", self.name, number + 1);
                    open = Some(Block { words, code: String::new(), place });
                }
                (None, Some(block)) => block.code.extend([line, "\n"]),
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: a block of code does not end", self.name);
        blocks
    }

    /// What is to be read as prose: no code, no pictures, no addresses of links, no comments.
    pub(crate) fn prose(&self) -> String {
        let mut prose = String::new();
        let mut is_code = false;
        for line in self.text.lines() {
            if line.starts_with("```") {
                is_code = !is_code;
            } else if !is_code && !line.starts_with("<!--") && !line.starts_with("![") {
                prose.push_str(&without_code_and_links(line));
                prose.push('\n');
            }
        }
        prose
    }
}

fn without_code_and_links(line: &str) -> String {
    let mut text = String::new();
    for (number, part) in line.split('`').enumerate() {
        text.push_str(if number % 2 == 0 { part } else { "Code" });
    }
    while let Some(start) = text.find("](") {
        let Some(length) = text[start..].find(')') else { break };
        text.replace_range(start..=start + length, "");
    }
    text.replace('[', "")
}

/// Where the links of a text lead.
pub(crate) fn links(text: &str) -> Vec<String> {
    let rest = text.split("](").skip(1);
    rest.filter_map(|part| part.split_once(')')).map(|(link, _)| link.to_owned()).collect()
}
