//! What went over interfaces that have a budget. What is for a day outlives the tunnel, in a file of the state folder.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::Failure;
use super::super::history::default_directory;
use super::super::words::amount;

const DAY_S: u64 = 86_400;

/// What may go over an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Budget {
    pub(super) interface: String,
    pub(super) bytes: u64,
    /// Anew each day of UTC, and else as long as the tunnel runs.
    pub(super) is_daily: bool,
    /// It is used no more afterwards; else it is a backup.
    pub(super) is_hard: bool,
}

impl Budget {
    /// Such as `500 MB/day`.
    pub(super) fn amount(&self) -> String {
        format!("{}{}", amount(self.bytes), if self.is_daily { "/day" } else { "" })
    }

    /// What is to be told when it is spent, or new.
    pub(super) fn told(&self, is_spent: bool) -> String {
        let (interface, amount) = (&self.interface, self.amount());
        match (is_spent, self.is_hard) {
            (true, true) => format!("{interface} has used its budget of {amount} and is left out"),
            (true, false) => format!("{interface} has used its budget of {amount} and is a backup"),
            (false, _) => format!("{interface} has a new budget of {amount}"),
        }
    }
}

/// What has gone.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    /// The file, if budgets by day are to outlive this.
    place: Option<PathBuf>,
    daily: Daily,
    while_running: BTreeMap<String, u64>,
    is_changed: bool,
    /// Since when the clock says an earlier day than the file, in seconds since 1970.
    behind_since_s: Option<u64>,
}

/// As it is on file.
#[derive(Debug, Default, Deserialize, Serialize)]
struct Daily {
    /// Days since 1970.
    day: u64,
    used_bytes: BTreeMap<String, u64>,
}

impl Budgets {
    /// From now on they are kept in the file of the tunnel with this name; what is there counts. `now_s` is the time since 1970.
    pub(super) fn keep(&mut self, name: &str, now_s: u64) -> Result<(), Failure> {
        if self.place.is_none() {
            let place = default_directory()?.join(format!("tunnel-{name}-budgets.json"));
            *self = Self::load_from(place, now_s).map_err(Failure::run)?;
        }
        Ok(())
    }

    fn load_from(place: PathBuf, now_s: u64) -> io::Result<Self> {
        let daily = match std::fs::read_to_string(&place) {
            // What can't be read is none of ours, as it is replaced as a whole.
            Ok(text) => serde_json::from_str(&text).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Daily::default(),
            Err(error) => return Err(at(&place, error)),
        };
        let mut budgets = Self { place: Some(place), daily, ..Self::default() };
        budgets.begin_day(now_s);
        Ok(budgets)
    }

    /// A new day has new budgets, and an earlier one has not: many a computer begins with a clock that is wrong. One that stays
    /// behind for a day is believed.
    pub(super) fn begin_day(&mut self, now_s: u64) {
        let day = now_s / DAY_S;
        if day < self.daily.day {
            let since_s = *self.behind_since_s.get_or_insert(now_s);
            if now_s < since_s.saturating_add(DAY_S) {
                return;
            }
        }
        self.behind_since_s = None;
        if self.daily.day != day {
            // Without anything to forget, nothing is written: a tunnel without budgets leaves no file.
            self.is_changed |= !self.daily.used_bytes.is_empty();
            self.daily = Daily { day, used_bytes: BTreeMap::new() };
        }
    }

    pub(super) fn used_bytes(&self, budget: &Budget) -> u64 {
        let used = if budget.is_daily { &self.daily.used_bytes } else { &self.while_running };
        used.get(&budget.interface).copied().unwrap_or(0)
    }

    pub(super) fn add(&mut self, budget: &Budget, bytes: u64) {
        let used = if budget.is_daily { &mut self.daily.used_bytes } else { &mut self.while_running };
        *used.entry(budget.interface.clone()).or_default() += bytes;
        self.is_changed |= budget.is_daily && bytes > 0;
    }

    /// Others than these are gone. One that comes again begins anew, but not its day.
    pub(super) fn forget_others(&mut self, budgets: &[Budget]) {
        let is_there = |name: &String| budgets.iter().any(|it| !it.is_daily && it.interface == *name);
        self.while_running.retain(|name, _| is_there(name));
    }

    /// Writes what has changed.
    pub(super) fn save(&mut self) -> io::Result<()> {
        let Some(place) = self.place.as_deref().filter(|_| self.is_changed) else { return Ok(()) };
        let fresh = place.with_extension("new");
        let text = serde_json::to_string(&self.daily)?;
        if let Some(directory) = place.parent() {
            std::fs::create_dir_all(directory).map_err(|error| at(directory, error))?;
        }
        std::fs::write(&fresh, text)
            .and_then(|()| std::fs::rename(&fresh, place))
            .map_err(|error| at(place, error))?;
        self.is_changed = false;
        Ok(())
    }
}

fn at(path: &Path, error: io::Error) -> io::Error {
    polypath_system::in_context(path.display().to_string(), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(is_daily: bool) -> Budget {
        Budget { interface: "wwan0".into(), bytes: 10, is_daily, is_hard: false }
    }

    #[test]
    fn what_is_for_a_day_outlives_the_tunnel_and_ends_with_the_day() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("state/budgets.json");
        let noon = 20_000 * DAY_S + DAY_S / 2;
        let mut budgets = Budgets::load_from(place.clone(), noon).unwrap();
        for is_daily in [true, false] {
            budgets.add(&budget(is_daily), 7);
        }
        budgets.save().unwrap();
        let used = |now_s| {
            let budgets = Budgets::load_from(place.clone(), now_s).unwrap();
            [true, false].map(|is_daily| budgets.used_bytes(&budget(is_daily)))
        };
        assert_eq!(used(noon + 60), [7, 0]);
        assert_eq!(used(noon + DAY_S), [0, 0]);
        // A clock that is behind brings no new budget, neither then nor when it is set.
        assert_eq!(used(60), [7, 0]);
        let mut behind = Budgets::load_from(place.clone(), 60).unwrap();
        behind.begin_day(noon);
        assert_eq!(behind.used_bytes(&budget(true)), 7);
        for (now_s, left) in [(60, 7), (DAY_S + 59, 7), (DAY_S + 60, 0)] {
            behind.begin_day(now_s);
            assert_eq!(behind.used_bytes(&budget(true)), left);
        }
        budgets.begin_day(noon + DAY_S);
        assert_eq!([true, false].map(|is_daily| budgets.used_bytes(&budget(is_daily))), [0, 7]);
    }

    #[test]
    fn a_budget_that_comes_again_begins_anew_and_its_day_does_not() {
        let mut budgets = Budgets::default();
        let used = |budgets: &Budgets| [true, false].map(|is_daily| budgets.used_bytes(&budget(is_daily)));
        for is_daily in [true, false] {
            budgets.add(&budget(is_daily), 7);
        }
        budgets.forget_others(&[budget(false)]);
        assert_eq!(used(&budgets), [7, 7]);
        budgets.forget_others(&[budget(true)]);
        assert_eq!(used(&budgets), [7, 0]);
    }

    #[test]
    fn without_a_budget_there_is_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("state/budgets.json");
        Budgets::load_from(place.clone(), DAY_S).unwrap().save().unwrap();
        assert!(!place.parent().unwrap().exists());
    }
}
