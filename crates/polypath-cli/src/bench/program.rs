//! Programs that a comparison starts in its namespaces, and what they and what they have started use of the machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use polypath_system::Namespace;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use super::host::TICKS_PER_SECOND;

/// For a program to end by itself when it is asked to.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks at whether it has.
const LOOK: Duration = Duration::from_millis(10);
/// `/proc` has memory in these.
const KIB: u64 = 1 << 10;

/// A program, until this is dropped.
#[derive(Debug)]
pub(super) struct Program {
    child: Child,
    /// What it says on standard error.
    said: PathBuf,
}

impl Program {
    /// Starts it in a namespace. What it says goes to a file.
    pub(super) fn spawn(mut command: Command, namespace: &Namespace, said: &Path) -> io::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(said)?);
        let name = command.get_program().to_string_lossy().into_owned();
        let child = namespace.run(|| command.spawn())?;
        let child = child.map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
        Ok(Self { child, said: said.to_path_buf() })
    }

    /// Adds that it has ended, if it has, and the last that it said.
    pub(super) fn explain(&mut self, error: &io::Error) -> io::Error {
        let ended = match self.child.try_wait() {
            Ok(Some(status)) => format!("; the program ended with {status}"),
            _ => String::new(),
        };
        let said = fs::read_to_string(&self.said).unwrap_or_default();
        let said = said.lines().rev().find(|line| !line.trim().is_empty());
        let said = said.map(|line| format!("; it said: {line}")).unwrap_or_default();
        io::Error::new(error.kind(), format!("{error}{ended}{said}"))
    }

    /// Whether it has not ended.
    pub(super) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends it and what it has started.
    pub(super) fn stop(&mut self) {
        // The number of one that has ended may be another's by now.
        if !self.is_alive() {
            return;
        }
        let family = family(self.child.id()).unwrap_or_default();
        // Gently first: it takes its devices and sockets away.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let asked = Instant::now();
        while self.is_alive() && asked.elapsed() < PATIENCE {
            thread::sleep(LOOK);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        for process in family.iter().filter(|process| process.is_alive()) {
            if let Some(pid) = Pid::from_raw(process.pid.cast_signed()) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }

    /// User and system time, also of what it has started.
    pub(super) fn cpu_s(&self) -> io::Result<f64> {
        Ok(family(self.child.id())?.iter().map(|process| process.cpu_s).sum())
    }

    /// Files and sockets that it and what it has started have open.
    pub(super) fn descriptors(&self) -> io::Result<u64> {
        self.count_descriptors(|_| true)
    }

    /// The sockets of them.
    pub(super) fn sockets(&self) -> io::Result<u64> {
        self.count_descriptors(|file| file.starts_with("socket:"))
    }

    fn count_descriptors(&self, counts: impl Fn(&str) -> bool) -> io::Result<u64> {
        let of = |process: &Told| -> io::Result<u64> {
            let entries = fs::read_dir(format!("/proc/{}/fd", process.pid))?.filter_map(Result::ok);
            // One that was closed meanwhile leads nowhere.
            let files = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
            Ok(files.filter(|file| counts(&file.to_string_lossy())).count() as u64)
        };
        family(self.child.id())?.iter().map(of).sum()
    }

    /// Memory, also of what it has started. What several processes share counts once.
    pub(super) fn memory_bytes(&self) -> io::Result<u64> {
        let of = |process: &Told| match memory_bytes(process.pid) {
            // It has ended meanwhile, or nobody has waited for it yet.
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NOENT | Errno::SRCH)) => Ok(0),
            told => told,
        };
        family(self.child.id())?.iter().map(of).sum()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Where a program is: in a folder, or where the system looks for programs.
pub(super) fn find(name: &str, folder: Option<&Path>) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = folder.map(Path::to_path_buf).into_iter().chain(std::env::split_paths(&path));
    places.map(|place| place.join(name)).find(|program| program.is_file())
}

/// This program, if it has a command.
pub(super) fn find_own(words: &[&str]) -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut ask = Command::new(&program);
    ask.args(words).arg("--help").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match ask.status() {
        Ok(status) if status.success() => Ok(program),
        _ => Err("not built in yet".into()),
    }
}

/// What `/proc/PID/stat` tells of a process.
#[derive(Clone, Debug, PartialEq)]
struct Told {
    pid: u32,
    parent: u32,
    /// User and system time, also of children that have ended and were waited for.
    cpu_s: f64,
    /// In the system's ticks: tells it from later ones with the same number.
    started: u64,
}

impl Told {
    fn read(pid: u32) -> Option<Self> {
        Self::parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(pid: u32, stat: &str) -> Option<Self> {
        // Behind the name, which may have anything in it.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        let ticks: Option<u64> = (11..15).map(number).sum();
        Some(Self {
            pid,
            parent: u32::try_from(number(1)?).ok()?,
            cpu_s: ticks? as f64 / TICKS_PER_SECOND,
            started: number(19)?,
        })
    }

    fn is_alive(&self) -> bool {
        Self::read(self.pid).is_some_and(|now| now.started == self.started)
    }
}

/// A process and all that it has started, however far down.
fn family(first: u32) -> io::Result<Vec<Told>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir("/proc")? {
        let pid = entry?.file_name().to_str().and_then(|name| name.parse().ok());
        // It may have ended meanwhile.
        if let Some(told) = pid.and_then(Told::read) {
            all.insert(told.pid, told);
        }
    }
    Ok(all.values().filter(|told| descends(told, first, &all)).cloned().collect())
}

fn descends(told: &Told, first: u32, all: &BTreeMap<u32, Told>) -> bool {
    let mut line = std::iter::successors(Some(told), |told| all.get(&told.parent));
    // As each was read at another moment, a line may not end.
    line.by_ref().take(all.len()).any(|told| told.pid == first)
}

/// The share of a process in the memory that is in use.
fn memory_bytes(pid: u32) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|kib| kib.parse::<u64>().ok());
    kib.map(|kib| kib * KIB).ok_or_else(|| io::Error::other("the system does not tell of memory"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(pid: u32, parent: u32) -> Told {
        Told { pid, parent, cpu_s: 0.0, started: 0 }
    }

    #[test]
    fn a_process_is_read_behind_whatever_name_it_has() {
        let stat = "7 (a) b) S 3 7 7 0 -1 4194304 100 200 0 0 150 50 20 30 20 0 1 0 4711 1000 50";
        assert_eq!(Told::parse(7, stat), Some(Told { pid: 7, parent: 3, cpu_s: 2.5, started: 4711 }));
        assert_eq!(Told::parse(7, "7 (a"), None);
    }

    #[test]
    fn a_family_is_a_process_and_all_below_it() {
        let all: BTreeMap<u32, Told> =
            [told(1, 0), told(2, 1), told(3, 2), told(4, 1), told(8, 9), told(9, 8)]
                .into_iter()
                .map(|told| (told.pid, told))
                .collect();
        let family: Vec<u32> =
            all.values().filter(|told| descends(told, 2, &all)).map(|told| told.pid).collect();
        assert_eq!(family, [2, 3]);
    }

    #[test]
    fn this_process_uses_memory() {
        assert!(memory_bytes(std::process::id()).expect("its own") > 1 << 16);
        assert!(family(std::process::id()).expect("itself").iter().any(Told::is_alive));
    }
}
