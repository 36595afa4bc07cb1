//! Which folder of results is meant.

use std::fs;
use std::path::{Path, PathBuf};

use polypath_lab::result::Manifest;

use crate::command::{Failure, harmless};

/// The folder itself, or the only one whose name begins so: names end in a form and a part of a hash, which nobody types.
pub(super) fn find(named: &Path) -> Result<PathBuf, Failure> {
    if Manifest::read(named).is_ok() {
        return Ok(named.to_path_buf());
    }
    // The reason of what is there and can't be read is told by who loads it.
    if named.join("manifest.json").exists() {
        return Ok(named.to_path_buf());
    }
    let parent = match named.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let begin = format!("{}-", named.file_name().unwrap_or_default().to_string_lossy());
    let all = results(parent);
    let mut fitting = all
        .iter()
        .filter(|folder| folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&begin)));
    let what = harmless(&named.display().to_string());
    match (fitting.next(), fitting.next()) {
        (Some(only), None) => Ok(only.clone()),
        (Some(one), Some(other)) => Err(Failure::Input(format!(
            "{what}: several results begin so; expected one of them, such as {} or {}",
            one.display(),
            other.display()
        ))),
        (None, _) => Err(Failure::Input(match all.as_slice() {
            [] => format!(
                "{what}: there are no results; expected a folder that `polypath lab run FILE.toml` has made"
            ),
            [one, ..] => format!(
                "{what}: there are no results; expected one of the {} in {}, such as {}",
                all.len(),
                parent.display(),
                one.display()
            ),
        })),
    }
}

/// The folders of results in a folder, by name.
fn results(parent: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut folders: Vec<PathBuf> = entries.filter(|folder| folder.join("manifest.json").exists()).collect();
    folders.sort();
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(named: &Path) -> String {
        match find(named) {
            Err(Failure::Input(message)) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_beginning_of_a_name_is_enough_if_it_is_the_only_one() {
        let results = tempfile::tempdir().expect("a folder");
        let mine = results.path().join("mine");
        assert!(message(&mine).contains("lab run"), "{}", message(&mine));
        for name in ["mine-reduced-01", "other-full-02"] {
            fs::create_dir(results.path().join(name)).expect("a folder");
            fs::write(results.path().join(name).join("manifest.json"), "{}").expect("a file");
        }
        assert_eq!(find(&mine).expect("it is the only one"), results.path().join("mine-reduced-01"));
        let whole = results.path().join("other-full-02");
        assert_eq!(find(&whole).expect("it is there"), whole);
        assert!(message(&results.path().join("min")).contains("one of the 2 in"));
        fs::create_dir(results.path().join("mine-full-03")).expect("a folder");
        fs::write(results.path().join("mine-full-03/manifest.json"), "{}").expect("a file");
        assert!(message(&mine).contains("several"), "{}", message(&mine));
    }
}
