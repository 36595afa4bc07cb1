//! The experiments of the repository: each makes sense in both forms, and its runs run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use polypath_lab::experiment::{Experiment, Form, Topology};

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
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
            let experiment = Experiment::load(&file, form).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(file.file_stem().and_then(|stem| stem.to_str()), Some(experiment.name.as_str()));
            assert!(!experiment.published.is_empty(), "{}: nothing to compare with", experiment.name);
            names.insert(experiment.name);
        }
    }
    assert_eq!(names.len(), files().len());
}

#[test]
fn the_cheapest_run_of_every_parallel_experiment_carries_data() {
    for file in files() {
        let experiment = Experiment::load(&file, Form::Reduced).unwrap_or_else(|error| panic!("{error}"));
        if experiment.topology != Topology::Parallel {
            continue;
        }
        let jobs = (0..experiment.run_count()).map(|index| experiment.job(index));
        let job = jobs.min_by_key(|job| job.cost()).expect("a run");
        assert!(job.run().received_bytes > 0, "{}: {job:?}", experiment.name);
    }
}
