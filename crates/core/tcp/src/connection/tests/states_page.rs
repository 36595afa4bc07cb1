//! The page `docs/states.md`, which tests of TCP and of Multipath TCP compare with what the code does: `mptcp` has this file too.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::{env, format, fs};

/// Compares the part of the page that has this name with a table. With POLYPATH_BLESS, writes it.
#[track_caller]
pub(super) fn compare(name: &str, table: &str) {
    // Tests run beside each other, and may all write.
    static FILE: Mutex<()> = Mutex::new(());
    let _guard = FILE.lock().unwrap_or_else(PoisonError::into_inner);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/states.md");
    let text = fs::read_to_string(&path).expect("docs/states.md");
    let marks = [format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->\n")];
    let [start, end] = marks.map(|mark| text.find(&mark).map(|at| (at, mark.len())).expect("a mark"));
    let (start, end) = (start.0 + start.1, end.0);
    if env::var_os("POLYPATH_BLESS").is_some() {
        let text = [&text[..start], table, &text[end..]].concat();
        return fs::write(path, text).expect("docs/states.md");
    }
    assert!(&text[start..end] == table, "docs/states.md has another table of {name}; this is:\n{table}");
}
