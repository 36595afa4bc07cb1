//! Which folder of results is meant.

use std::fs;
use std::path::{Path, PathBuf};

use polypath_lab::result::Manifest;

use crate::command::{Failure, harmless};

/// So many candidates are named.
const NAMED: usize = 10;

/// Where results are unless a folder is named.
const RESULTS: &str = "results";

/// The folder itself, or the only one whose name begins so: names end in a form and a part of a hash, which nobody types.
pub(super) fn find(named: &Path) -> Result<PathBuf, Failure> {
    find_from(Path::new("."), named)
}

/// The same for who is in this folder.
fn find_from(here: &Path, named: &Path) -> Result<PathBuf, Failure> {
    let named = match here == Path::new(".") {
        true => named.to_path_buf(),
        false => here.join(named),
    };
    // The reason of what is there and can't be read is told by who loads it.
    if named.join("manifest.json").exists() {
        return Ok(named);
    }
    let begin = named.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let parent = match named.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut all = results(parent);
    let mut parent = parent.to_path_buf();
    // A bare name is one in the folder where `lab run` puts results.
    if parent == here && !all.iter().any(|folder| begins(folder, &begin)) {
        let usual = if here == Path::new(".") { PathBuf::from(RESULTS) } else { here.join(RESULTS) };
        let there = results(&usual);
        if !there.is_empty() {
            (all, parent) = (there, usual);
        }
    }
    let mut fitting: Vec<PathBuf> = all.iter().filter(|folder| begins(folder, &begin)).cloned().collect();
    // The whole name of an experiment is meant as such, though others begin with it.
    let whole: Vec<PathBuf> = fitting.iter().filter(|folder| is_of(folder, &begin)).cloned().collect();
    if !whole.is_empty() {
        fitting = whole;
    }
    let what = harmless(&named.display().to_string());
    match fitting.as_slice() {
        [only] => Ok(only.clone()),
        [] if all.is_empty() => Err(Failure::Input(format!(
            "{what}: there are no results; expected a folder that `polypath lab run FILE.toml` has made"
        ))),
        [] => Err(Failure::Input(format!(
            "{what}: there are no results; expected one of the {} in {}: {}",
            all.len(),
            parent.display(),
            listed(&all)
        ))),
        several => Err(Failure::Input(format!(
            "{what}: {} results begin so; expected one of them: {}",
            several.len(),
            listed(several)
        ))),
    }
}

fn begins(folder: &Path, begin: &str) -> bool {
    folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with(begin))
}

/// It has results of the experiment of this name.
fn is_of(folder: &Path, experiment: &str) -> bool {
    Manifest::read(folder).is_ok_and(|manifest| manifest.name == experiment)
}

/// The first names, and how many more there are.
fn listed(folders: &[PathBuf]) -> String {
    let names = folders.iter().take(NAMED).filter_map(|folder| folder.file_name());
    let names: Vec<String> = names.map(|name| harmless(&name.to_string_lossy()).to_string()).collect();
    let more = match folders.len().saturating_sub(NAMED) {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    format!("{}{more}", names.join(", "))
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

    /// A folder of results of this experiment, named so.
    fn put(parent: &Path, folder: &str, experiment: &str) {
        let manifest = format!(
            "{{\"name\":\"{experiment}\",\"title\":\"\",\"form\":\"full\",\"build\":\"\",\"identity\":\"\",\"runs\":1,\
             \"complete\":true,\"wall_s\":0.0}}"
        );
        fs::create_dir_all(parent.join(folder)).expect("a folder");
        fs::write(parent.join(folder).join("manifest.json"), manifest).expect("a file");
    }

    #[test]
    fn the_beginning_of_a_name_is_enough_if_it_is_the_only_one() {
        let results = tempfile::tempdir().expect("a folder");
        let results = results.path();
        assert!(message(&results.join("mine")).contains("lab run"));
        put(results, "mine-reduced-01", "mine");
        put(results, "other-full-02", "other");
        let found = |name: &str| find(&results.join(name)).expect("it is the only one");
        for begin in ["m", "mine", "mine-red", "mine-reduced-01"] {
            assert_eq!(found(begin), results.join("mine-reduced-01"));
        }
        assert_eq!(found("other-full-02"), results.join("other-full-02"));
        let unknown = message(&results.join("x"));
        assert!(unknown.contains("one of the 2 in"), "{unknown}");
        assert!(unknown.ends_with("mine-reduced-01, other-full-02"), "{unknown}");
    }

    #[test]
    fn candidates_are_named_if_several_begin_so() {
        let results = tempfile::tempdir().expect("a folder");
        let results = results.path();
        put(results, "mine-full-03", "mine");
        put(results, "mine-too-full-04", "mine-too");
        // The name of an experiment is no mere beginning of another's.
        assert_eq!(find(&results.join("mine")).expect("by its name"), results.join("mine-full-03"));
        let several = message(&results.join("min"));
        assert!(
            several.ends_with("2 results begin so; expected one of them: mine-full-03, mine-too-full-04")
        );
        put(results, "mine-reduced-05", "mine");
        let several = message(&results.join("mine"));
        assert!(several.ends_with("one of them: mine-full-03, mine-reduced-05"), "{several}");
        (10..20).for_each(|number| put(results, &format!("mine-full-{number}"), "mine"));
        assert!(message(&results.join("mine")).ends_with(" and 2 more"));
    }

    #[test]
    fn a_bare_name_is_looked_for_where_results_are() {
        let here = tempfile::tempdir().expect("a folder");
        put(&here.path().join("results"), "mine-full-03", "mine");
        let found = find_from(here.path(), Path::new("mine")).expect("it is there");
        assert_eq!(found, here.path().join("results/mine-full-03"));
    }
}
