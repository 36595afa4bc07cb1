//! Files that come from standard input.

use std::io::{self, Read};
use std::path::Path;

use super::Failure;

/// More than a file of ours has.
const MAX_BYTES: u64 = 64 << 20;

/// What it is called in messages.
pub(super) const NAME: &str = "standard input";

/// This file is standard input.
pub(super) fn is_meant(file: &Path) -> bool {
    file == Path::new("-")
}

/// All of it, which is to be `what`.
pub(super) fn read(what: &str) -> Result<String, Failure> {
    let mut text = String::new();
    let read = io::stdin().take(MAX_BYTES + 1).read_to_string(&mut text);
    let wrong = |why: &dyn std::fmt::Display| {
        Failure::Input(format!("{NAME}: can't be read ({why}); expected {what} in TOML"))
    };
    if read.map_err(|error| wrong(&error))? as u64 > MAX_BYTES {
        return Err(wrong(&format_args!("more than {} MiB", MAX_BYTES >> 20)));
    }
    Ok(text)
}
