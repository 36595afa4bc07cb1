//! What is in a directory, for people and for `polypath cp -r`.

use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};

/// Everything but what RFC 3986 §2.3 calls unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Something in a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: EntryKind,
    /// Bytes of a file.
    pub size: u64,
    /// Seconds since 1970 when it was changed.
    pub modified: u64,
}

/// What something in a directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EntryKind {
    /// A directory.
    Directory,
    /// A file.
    File,
}

/// A name as a part of a URL.
#[must_use]
pub(crate) fn encoded(name: &str) -> String {
    utf8_percent_encode(name, RESERVED).to_string()
}

/// A page with links.
pub(super) fn page(path: &str, entries: &[Entry]) -> String {
    let title = escaped(path);
    let mut page = format!(
        "<!DOCTYPE html>\n<html><head><meta charset=\"utf-8\"><title>{title}</title>\n\
         <style>body{{font-family:sans-serif;margin:2em}}td{{padding:0 1.5em 0 0}}</style></head>\n\
         <body><h1>{title}</h1>\n<table>\n"
    );
    if path != "/" {
        page.push_str("<tr><td><a href=\"../\">../</a></td></tr>\n");
    }
    for entry in entries {
        let slash = if entry.kind == EntryKind::Directory { "/" } else { "" };
        let size = if entry.kind == EntryKind::File { entry.size.to_string() } else { String::new() };
        let modified = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(entry.modified));
        let (link, name) = (encoded(&entry.name), escaped(&entry.name));
        let _ = writeln!(
            page,
            "<tr><td><a href=\"./{link}{slash}\">{name}{slash}</a></td><td>{size}</td><td>{modified}</td></tr>"
        );
    }
    page.push_str("</table></body></html>\n");
    page
}

fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_no_harm_to_a_page() {
        let name = "<script>\"a b\"&%.txt".to_string();
        let entry = Entry { name, kind: EntryKind::File, size: 7, modified: 0 };
        let page = page("/'x'/", &[entry]);
        assert!(page.contains("href=\"./%3Cscript%3E%22a%20b%22%26%25.txt\""), "{page}");
        assert!(!page.contains("<script>") && page.contains("&#39;x&#39;"), "{page}");
    }
}
