use polypath_config::Policies;

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ::parquet::file::reader::{FileReader, SerializedFileReader};

use super::*;
use crate::experiment::Job;
use crate::run::{Backend, BackendError, Simulator, execute};

const TEXT: &str = r#"
name = "two"
title = "Two sets, two variants"
metrics = ["goodput"]
[[sets]]
name = "one"
paths = [
  { rate = "1mbit", rtt = "20ms", queue = "50ms" },
  { rate = "2mbit", rtt = "30ms", queue = "50ms", loss = "1%" },
]
[[sets]]
name = "other"
paths = [
  { rate = "3mbit", rtt = "20ms", queue = "50ms" },
  { rate = "2mbit", rtt = "5ms", queue = "0ms" },
]
[traffic]
kind = "blocks"
block = "1KB"
load = "20%"
duration = "2s"
[[variants]]
name = "LIA"
[[variants]]
name = "TCP"
single-path = true
"#;

fn experiment() -> Experiment {
    Experiment::parse("two.toml", TEXT, Form::Full, &Policies::default()).unwrap()
}

fn run(store: &mut Store) -> bool {
    let never = AtomicBool::new(false);
    execute(&experiment(), &Simulator, store, NonZeroUsize::new(2).unwrap(), &never, &mut ()).unwrap()
}

#[test]
fn what_is_stored_comes_back_from_the_log_and_from_the_table() {
    let out = tempfile::tempdir().unwrap();
    let mut store = Store::open(out.path(), &experiment(), "1").unwrap();
    assert!(run(&mut store));
    let runs = store.runs().clone();
    assert_eq!(runs.len(), 4);
    let before = Results::load(store.dir(), &Policies::default()).unwrap();
    assert_eq!((before.runs, before.manifest.complete), (runs.clone(), false));
    store.complete(&experiment()).unwrap();
    let after = Results::load(store.dir(), &Policies::default()).unwrap();
    assert_eq!((after.runs, after.manifest.complete), (runs.clone(), true));
    assert!(!store.dir().join(LOG).exists());
    drop(store);
    assert_eq!(*Store::open(out.path(), &experiment(), "1").unwrap().runs(), runs);
}

#[test]
fn a_table_that_has_no_room_is_the_systems_fault() {
    let full = std::path::Path::new("/dev/full");
    let error = super::parquet::write(full, &experiment(), "1", &BTreeMap::new()).unwrap_err();
    let StoreError::Io { error, .. } = &error else { panic!("{error}") };
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
}

#[test]
fn each_sweep_has_columns_of_its_own() {
    let sweeps = "[[sweep]]\nparameter = \"load\"\nvalues = [\"20%\", \"40%\"]\n\
                  [[sweep]]\nparameter = \"initial-path\"\nvalues = [\"best\", \"2\"]\n[traffic]";
    let text = TEXT.replace("[traffic]", sweeps).replace("load = \"20%\"\n", "");
    let experiment = Experiment::parse("two.toml", &text, Form::Full, &Policies::default()).unwrap();
    let out = tempfile::tempdir().unwrap();
    let mut store = Store::open(out.path(), &experiment, "1").unwrap();
    let (jobs, never) = (NonZeroUsize::new(2).unwrap(), AtomicBool::new(false));
    assert!(execute(&experiment, &Simulator, &mut store, jobs, &never, &mut ()).unwrap());
    store.complete(&experiment).unwrap();
    let table = File::open(store.dir().join(TABLE)).unwrap();
    let rows = SerializedFileReader::new(table).unwrap();
    let mut found = BTreeSet::new();
    for row in rows.get_row_iter(None).unwrap() {
        let row = row.unwrap();
        let column = |name: &str| {
            let found = row.get_column_iter().find(|(column, _)| *column == name).expect(name);
            found.1.to_string()
        };
        found.insert(
            ["sweep_load", "sweep_load_value", "sweep_initial_path", "sweep_initial_path_value", "traffic"]
                .map(column),
        );
    }
    let of = |load: &str, value: &str, path: &str| {
        let traffic =
            format!("\"blocks of 1 kB at {} of what the paths carry for 2 s\"", load.replace('%', " %"));
        [format!("\"{load}\""), value.into(), format!("\"{path}\""), "null".into(), traffic]
    };
    let all =
        [of("20%", "0.2", "2"), of("20%", "0.2", "best"), of("40%", "0.4", "2"), of("40%", "0.4", "best")];
    assert_eq!(found, BTreeSet::from(all));
}

#[test]
fn a_killed_run_goes_on_after_its_last_whole_line() {
    let out = tempfile::tempdir().unwrap();
    let mut store = Store::open(out.path(), &experiment(), "1").unwrap();
    assert!(run(&mut store));
    let (runs, log) = (store.runs().clone(), store.dir().join(LOG));
    drop(store);
    let text = std::fs::read(&log).unwrap();
    let line_bytes = text.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    // Killed at every kind of moment: before, within and after a line.
    for (kept_bytes, kept_runs) in
        [(0, 0), (1, 0), (line_bytes - 1, 0), (line_bytes, 1), (line_bytes + 9, 1), (text.len() - 1, 3)]
    {
        std::fs::write(&log, &text[..kept_bytes]).unwrap();
        let mut store = Store::open(out.path(), &experiment(), "1").unwrap();
        assert_eq!(store.runs().len(), kept_runs, "{kept_bytes} bytes");
        assert!(run(&mut store));
        assert_eq!(*store.runs(), runs);
        drop(store);
        let log = std::fs::read_to_string(&log).unwrap();
        assert_eq!(log.lines().count(), 4, "{log}");
    }
}

#[test]
fn a_file_that_was_cut_short_is_told_with_what_to_do() {
    let out = tempfile::tempdir().unwrap();
    let mut store = Store::open(out.path(), &experiment(), "1").unwrap();
    assert!(run(&mut store));
    store.complete(&experiment()).unwrap();
    let dir = store.dir().to_path_buf();
    for name in [TABLE, MANIFEST] {
        let whole = std::fs::read(dir.join(name)).unwrap();
        std::fs::write(dir.join(name), &whole[..whole.len() / 2]).unwrap();
        let error = Results::load(&dir, &Policies::default()).unwrap_err().to_string();
        let told = format!("{}: is damaged (", dir.join(name).display());
        let advice = format!("; remove the folder {}, and run the experiment again", dir.display());
        assert!(error.starts_with(&told) && error.ends_with(&advice), "{error}");
        assert_eq!(error.lines().count(), 1);
        std::fs::write(dir.join(name), whole).unwrap();
    }
    std::fs::remove_file(dir.join(TABLE)).unwrap();
    let error = Results::load(&dir, &Policies::default()).unwrap_err().to_string();
    let told =
        format!("{}: is damaged (there is no such file); remove the folder ", dir.join(TABLE).display());
    assert!(error.starts_with(&told), "{error}");
}

#[test]
fn another_experiment_form_or_build_has_another_folder() {
    let out = tempfile::tempdir().unwrap();
    let folder = |experiment: &Experiment, build| {
        Store::open(out.path(), experiment, build).unwrap().dir().to_path_buf()
    };
    let first = folder(&experiment(), "1");
    let changed =
        Experiment::parse("two.toml", &TEXT.replace("20%", "30%"), Form::Full, &Policies::default()).unwrap();
    let folders = [folder(&changed, "1"), folder(&experiment(), "2")];
    assert!(!folders.contains(&first));
    let text = format!("{TEXT}[reduced]\nduration = \"1s\"\n");
    let [reduced, full] = [Form::Reduced, Form::Full]
        .map(|form| Experiment::parse("two.toml", &text, form, &Policies::default()).unwrap());
    assert_ne!(folder(&reduced, "1"), folder(&full, "1"));
    assert_eq!(folder(&experiment(), "1"), first);
}

#[test]
fn two_processes_do_not_write_one_log() {
    let out = tempfile::tempdir().unwrap();
    let _first = Store::open(out.path(), &experiment(), "1").unwrap();
    assert!(matches!(Store::open(out.path(), &experiment(), "1"), Err(StoreError::Busy { .. })));
}

#[test]
fn a_stop_ends_early_and_says_so() {
    let out = tempfile::tempdir().unwrap();
    let mut store = Store::open(out.path(), &experiment(), "1").unwrap();
    let stopped = AtomicBool::new(true);
    let done = execute(&experiment(), &Simulator, &mut store, NonZeroUsize::MIN, &stopped, &mut ()).unwrap();
    assert!(!done && store.runs().is_empty());
}

/// Looks into the log at the start of every run.
struct Watching {
    log: PathBuf,
    started: AtomicUsize,
    most_unstored: AtomicUsize,
}

impl Backend for Watching {
    fn check(&self, _job: &Job) -> Result<(), BackendError> {
        Ok(())
    }

    fn run(&self, job: &Job) -> Result<Outcome, BackendError> {
        let started = self.started.fetch_add(1, Ordering::SeqCst) + 1;
        // What a process that is killed now would leave; it may be more than there was when this run was counted.
        let stored = std::fs::read(&self.log).unwrap().iter().filter(|byte| **byte == b'\n').count();
        self.most_unstored.fetch_max(started.saturating_sub(stored), Ordering::SeqCst);
        Ok(job.run())
    }
}

#[test]
fn a_kill_at_any_moment_loses_no_more_runs_than_threads() {
    let text = TEXT.replace("metrics", "repeats = 8\nmetrics").replace("2s", "1s");
    let experiment = Experiment::parse("two.toml", &text, Form::Full, &Policies::default()).unwrap();
    for threads in [1, 3] {
        let out = tempfile::tempdir().unwrap();
        let mut store = Store::open(out.path(), &experiment, "1").unwrap();
        let log = store.dir().join(LOG);
        let watching = Watching { log, started: AtomicUsize::new(0), most_unstored: AtomicUsize::new(0) };
        let never = AtomicBool::new(false);
        let threads = NonZeroUsize::new(threads).unwrap();
        assert!(execute(&experiment, &watching, &mut store, threads, &never, &mut ()).unwrap());
        assert_eq!((store.runs().len(), watching.started.into_inner()), (32, 32));
        let unstored = watching.most_unstored.into_inner();
        assert!((1..=threads.get()).contains(&unstored), "{unstored} of {threads}");
    }
}

#[test]
fn the_command_that_plays_a_run_again_is_one_that_a_shell_takes() {
    let out = tempfile::tempdir().unwrap();
    let mut store = Store::open(out.path(), &experiment(), "1").unwrap();
    let never = AtomicBool::new(false);
    assert!(execute(&experiment(), &Simulator, &mut store, NonZeroUsize::MIN, &never, &mut ()).unwrap());
    let mut results = Results::load(store.dir(), &Policies::default()).unwrap();
    results.dir = PathBuf::from("results/two-full-01");
    let command = results.replay(None).unwrap();
    assert_eq!(command, "polypath lab run results/two-full-01/experiment.toml --full --only one/LIA/1");
    results.manifest.form = Form::Reduced;
    results.dir = PathBuf::from("my runs/two-reduced-01");
    let command = results.replay(Some("it's/4 MB, RP/1")).unwrap();
    let wanted = "polypath lab run 'my runs/two-reduced-01/experiment.toml' --out 'my runs' --only 'it'\\''s/4 MB, RP/1'";
    assert_eq!(command, wanted);
    results.runs.clear();
    assert_eq!(results.replay(None), None);
}
