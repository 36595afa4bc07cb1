//! Names that others say, in letters that are harmless, and not too many of them.

use std::collections::BTreeSet;

/// What is beyond a bound.
pub(crate) const OTHER: &str = "other";
/// An interface whose name nobody knows.
pub(crate) const UNKNOWN: &str = "unknown";

/// The name if it is known or there is room for it.
pub(crate) fn bounded(known: &mut BTreeSet<String>, name: &str, most: usize) -> String {
    if !known.contains(name) {
        if known.len() >= most {
            return OTHER.into();
        }
        known.insert(name.into());
    }
    name.into()
}

/// What a stack says of a name, in letters that are harmless everywhere.
pub(crate) fn plain(name: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_graphic() && !matches!(letter, '"' | '\\' | '/');
    let name: String =
        name.chars().map(|letter| if is_plain(letter) { letter } else { '_' }).take(64).collect();
    if name.is_empty() { UNKNOWN.into() } else { name }
}
