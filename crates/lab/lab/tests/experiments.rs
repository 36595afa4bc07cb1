//! The experiments of the repository: each makes sense in both forms, and its runs run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use polypath_config::Policies;
use polypath_lab::experiment::{Experiment, Form, Origin, Topology};

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../experiments");
    let entries = std::fs::read_dir(folder).expect("the folder of experiments");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    assert!(files.len() > 10);
    files
}

#[test]
fn every_experiment_makes_sense_in_both_forms_and_is_called_like_its_file() {
    let mut names = BTreeSet::new();
    for file in files() {
        for form in [Form::Reduced, Form::Full] {
            let experiment =
                Experiment::load(&file, form, &Policies::default()).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(file.file_stem().and_then(|stem| stem.to_str()), Some(experiment.name.as_str()));
            assert!(!experiment.claims.is_empty(), "{}: nothing to compare with", experiment.name);
            names.insert(experiment.name);
        }
    }
    assert_eq!(names.len(), files().len());
}

#[test]
fn the_cheapest_run_of_every_parallel_experiment_carries_data() {
    for file in files() {
        let experiment = Experiment::load(&file, Form::Reduced, &Policies::default())
            .unwrap_or_else(|error| panic!("{error}"));
        if experiment.topology != Topology::Parallel {
            continue;
        }
        let jobs = (0..experiment.run_count()).map(|index| experiment.job(index));
        let job = jobs.min_by_key(|job| job.cost()).expect("a run");
        assert!(job.run().received_bytes > 0, "{}: {job:?}", experiment.name);
    }
}

/// What the documents are called in sources, and their letters in `figure`.
const DOCUMENTS: [(&str, &str); 4] = [
    ("P", "Paasch 2014, "),
    ("C", "Saini and Demirkaya, undated, "),
    ("K", "Kaspar 2011, "),
    ("X", "Pollalis et al. 2016, "),
];

#[test]
fn what_was_published_has_a_source_and_what_is_expected_a_reason() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/lab.md");
    let page = std::fs::read_to_string(page).expect("the page");
    for file in files() {
        let experiment = Experiment::load(&file, Form::Full, &Policies::default())
            .unwrap_or_else(|error| panic!("{error}"));
        let (letter, document) = DOCUMENTS
            .into_iter()
            .find(|(letter, _)| experiment.figure.starts_with(&format!("{letter} ")))
            .unwrap_or_else(|| panic!("{}: {}", experiment.name, experiment.figure));
        let title = experiment.document.strip_prefix(&format!("{letter}: ")).unwrap_or_default();
        let title = title.split("; ").next().unwrap_or_default();
        assert!(
            !title.is_empty() && page.contains(title),
            "{}: docs/lab.md has no {title:?}",
            experiment.name
        );
        for claim in &experiment.claims {
            let place = match &claim.origin {
                Origin::Expected { reason } => {
                    assert!(reason.len() > 10, "{}: {}", experiment.name, claim.text);
                    continue;
                }
                Origin::Published { source } => source.strip_prefix(document).unwrap_or_default(),
            };
            let number = ["Fig. ", "Table ", "ch. "]
                .iter()
                .find_map(|kind| place.strip_prefix(kind))
                .unwrap_or_default();
            let has_number = number.starts_with(|first: char| first.is_ascii_digit());
            assert!(has_number, "{}: {:?} is no place of {document}", experiment.name, claim.origin);
            assert!(!claim.text.contains("No counterpart"), "{}: {}", experiment.name, claim.text);
        }
    }
}

/// The figures that a key names: "P Fig. 3.8 (b), 4.21" and "C Fig. 9-13".
fn figures(key: &str) -> Vec<String> {
    let Some((document, list)) = key.split_once(" Fig. ") else { return vec![key.to_string()] };
    let mut figures = Vec::new();
    for part in list.split(", ") {
        match part.split_once('-').map(|(first, last)| (first.parse::<u32>(), last.parse::<u32>())) {
            Some((Ok(first), Ok(last))) => {
                figures.extend((first..=last).map(|number| format!("{document} {number}")));
            }
            _ => figures.push(format!("{document} {part}")),
        }
    }
    figures
}

#[test]
fn every_figure_has_a_file() {
    let mut found = BTreeSet::new();
    for file in files() {
        let experiment = Experiment::load(&file, Form::Full, &Policies::default())
            .unwrap_or_else(|error| panic!("{error}"));
        assert!(!experiment.figure.is_empty(), "{}: no figure", experiment.name);
        found.extend(figures(&experiment.figure));
    }
    // 4.14 and 4.17 are algorithms, 4.19, 4.20 and 4.22 were measured on networks that are gone.
    let thesis = ["3.3", "3.4", "3.5 (a)", "3.5 (b)", "3.6", "3.7 (a)", "3.7 (b)", "3.8 (a)", "3.8 (b)"];
    let thesis = thesis.into_iter().map(String::from).chain((4..=13).map(|number| format!("4.{number}")));
    let thesis = thesis.chain(["4.15", "4.16", "4.18", "4.21"].map(String::from));
    let study = (5..=13).map(|number| format!("C {number}"));
    let sensitivity = std::iter::once("P ch. 3.4".to_string());
    // Table 1 is the time of a program on a machine: `polypath bench proxy`.
    let proxy = (2..=7).map(|number| format!("X {number}"));
    let others = study.chain(sensitivity).chain(proxy);
    for wanted in thesis.map(|number| format!("P {number}")).chain(others) {
        assert!(found.contains(&wanted), "{wanted} has no experiment; there are {found:?}");
    }
}
