//! `polypath lab list`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::Args;
use polypath_config::Policies;
use polypath_lab::experiment::{Experiment, Form};
use polypath_lab::result::Manifest;
use polypath_sim::scenario::{InterfaceLinks, Scenario};
use serde::Serialize;

use crate::command::{Failure, complain, print_json, print_line};

#[derive(Args, Debug)]
pub(in crate::command) struct Arguments {
    /// A folder of experiments
    #[arg(value_name = "DIR", default_value = "experiments")]
    dir: PathBuf,
    /// Where results of these experiments are; those of other files are not listed
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Entry {
    file: PathBuf,
    name: String,
    title: String,
    figure: String,
    document: String,
    reduced_runs: usize,
    full_runs: usize,
    results: Vec<Found>,
}

#[derive(Clone, Serialize)]
struct Found {
    folder: PathBuf,
    form: Form,
    build: String,
    complete: bool,
}

pub(super) fn run(arguments: &Arguments, policies: &Policies) -> Result<(), Failure> {
    let mut results = results(&arguments.out);
    let mut entries = Vec::new();
    for file in files(&arguments.dir)? {
        let reduced = match Experiment::load(&file, Form::Reduced, policies) {
            Ok(reduced) => reduced,
            Err(error) => match other_kind(&file, policies) {
                Some(what) => {
                    complain(&format!("{}: no experiment, but {what}", file.display()));
                    continue;
                }
                None => return Err(Failure::input(error)),
            },
        };
        let full = Experiment::load(&file, Form::Full, policies).map_err(Failure::input)?;
        entries.push(Entry {
            file,
            reduced_runs: reduced.run_count(),
            full_runs: full.run_count(),
            results: results.remove(&full.name).unwrap_or_default(),
            name: full.name,
            title: full.title,
            figure: full.figure,
            document: full.document,
        });
    }
    if arguments.json {
        return print_json(&entries);
    }
    if entries.is_empty() {
        return print_line(&format!("no experiments in {}", arguments.dir.display()));
    }
    let documents: BTreeSet<String> = entries.iter().map(|entry| entry.document.clone()).collect();
    let width = entries.iter().map(|entry| entry.name.len()).max().unwrap_or(0);
    for entry in entries {
        let figure = if entry.figure.is_empty() { String::new() } else { format!(" ({})", entry.figure) };
        print_line(&format!(
            "{:width$}  {:>6} runs, {:>6} in full  {}{figure}",
            entry.name, entry.reduced_runs, entry.full_runs, entry.title
        ))?;
        for found in entry.results {
            let state = if found.complete { "" } else { ", not complete" };
            print_line(&format!("{:width$}    {}{state}", "", found.folder.display()))?;
        }
    }
    for document in documents.iter().filter(|document| !document.is_empty()) {
        print_line(document)?;
    }
    Ok(())
}

/// What a file is that is no experiment.
fn other_kind(file: &Path, policies: &Policies) -> Option<&'static str> {
    if Scenario::load(file, policies).is_ok() {
        return Some("a scenario, which `polypath sim` runs");
    }
    InterfaceLinks::load(file, policies).is_ok().then_some("links, which `polypath emulate` puts up")
}

fn files(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = std::fs::read_dir(dir).map_err(|error| {
        Failure::Input(format!(
            "{}: can't be read: {error}; expected a folder of experiments, such as experiments in Polypath's source: polypath lab list DIR",
            dir.display()
        ))
    })?;
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    Ok(files)
}

/// Results by the name of their experiment; a folder that is none, or not there, has none.
fn results(dir: &Path) -> BTreeMap<String, Vec<Found>> {
    let mut results: BTreeMap<String, Vec<Found>> = BTreeMap::new();
    let mut folders: Vec<PathBuf> =
        std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    folders.sort();
    for folder in folders {
        let Ok(manifest) = Manifest::read(&folder) else { continue };
        let Manifest { name, form, build, complete, .. } = manifest;
        results.entry(name).or_default().push(Found { folder, form, build, complete });
    }
    results
}
