//! Rows in a file. A transaction that was not finished leaves the file as it was before.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use redb::{
    Builder, ConcurrencyMode, Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition,
    WriteTransaction,
};

use super::row::{Numbers, Row, Usage};

const FILE: &str = "history.redb";
/// The file's pages that are kept in memory.
const CACHE_BYTES: usize = 4 << 20;

/// How fine rows are, and for how long they are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Ten seconds, for two days.
    Fine,
    /// Five minutes, for a year.
    Coarse,
}

type Table = TableDefinition<'static, (u64, &'static str), Numbers>;

impl Resolution {
    const ALL: [Self; 2] = [Self::Fine, Self::Coarse];

    /// Seconds of a row.
    #[must_use]
    pub fn step_s(self) -> u64 {
        match self {
            Self::Fine => 10,
            Self::Coarse => 300,
        }
    }

    /// Seconds for which rows are kept.
    #[must_use]
    pub fn kept_s(self) -> u64 {
        match self {
            Self::Fine => 2 * 86_400,
            Self::Coarse => 366 * 86_400,
        }
    }

    /// The finest that goes back so far.
    #[must_use]
    pub fn for_span(seconds: u64) -> Self {
        if seconds <= Self::Fine.kept_s() { Self::Fine } else { Self::Coarse }
    }

    fn table(self) -> Table {
        match self {
            Self::Fine => TableDefinition::new("ten seconds"),
            Self::Coarse => TableDefinition::new("five minutes"),
        }
    }
}

/// Why rows can't be kept or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HistoryError {
    /// Somebody else writes there.
    #[error("{}: another process records there; expected a directory that nobody else uses, or that one to end", .0.display())]
    Busy(PathBuf),
    /// Nothing was ever recorded there.
    #[error("{}: there is no history; `polypath metrics --history {}` records one", .0.display(), .0.display())]
    Nothing(PathBuf),
    /// The directory can't be used.
    #[error("{}: {}", .0.display(), .1)]
    Directory(PathBuf, io::Error),
    /// The file can't be used.
    #[error("{}: {}", .0.display(), .1)]
    File(PathBuf, Box<redb::Error>),
}

/// A history that is being written. Nobody else writes it meanwhile; others may read it.
#[derive(Debug)]
pub struct History {
    directory: PathBuf,
    /// None after a failure, such as a full disk: it is no good for anything more, and is opened again.
    database: Option<Database>,
}

impl History {
    /// Opens the history in a directory, both of which are made if they are missing.
    pub fn open(directory: &Path) -> Result<Self, HistoryError> {
        let made = DirBuilder::new().recursive(true).mode(0o755).create(directory);
        made.map_err(|error| HistoryError::Directory(directory.into(), error))?;
        Ok(Self { directory: directory.into(), database: Some(open(directory)?) })
    }

    /// Adds rows, all or none of them, and drops those that are too old. After a failure, the next call begins anew.
    pub fn record(&mut self, now_s: u64, rows: &[Row]) -> Result<(), HistoryError> {
        let database = match self.database.take() {
            Some(database) => database,
            None => open(&self.directory)?,
        };
        write(&database, now_s, rows)
            .map_err(|error| HistoryError::File(self.directory.join(FILE), Box::new(error)))?;
        self.database = Some(database);
        Ok(())
    }
}

fn open(directory: &Path) -> Result<Database, HistoryError> {
    let path = directory.join(FILE);
    let is_new = !path.exists();
    builder().create(&path).map_err(|error| match error {
        DatabaseError::DatabaseAlreadyOpen => HistoryError::Busy(directory.into()),
        error => {
            // Half of a file, as on a full disk, would be none to whoever comes later.
            if is_new {
                let _ = std::fs::remove_file(&path);
            }
            HistoryError::File(path, Box::new(error.into()))
        }
    })
}

fn write(database: &Database, now_s: u64, rows: &[Row]) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    for resolution in Resolution::ALL {
        add(&transaction, resolution, rows)?;
        drop_old(&transaction, resolution, now_s)?;
    }
    transaction.commit()?;
    Ok(())
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES).set_concurrency_mode(ConcurrencyMode::SingleWriter);
    builder
}

fn add(transaction: &WriteTransaction, resolution: Resolution, rows: &[Row]) -> Result<(), redb::Error> {
    let mut table = transaction.open_table(resolution.table())?;
    for row in rows {
        let key = (row.at_s - row.at_s % resolution.step_s(), row.interface.as_str());
        let before = table.get(key)?.map(|found| Usage::from_numbers(found.value()));
        let usage = before.unwrap_or_default().and(row.usage);
        table.insert(key, usage.to_numbers())?;
    }
    Ok(())
}

fn drop_old(transaction: &WriteTransaction, resolution: Resolution, now_s: u64) -> Result<(), redb::Error> {
    let oldest = now_s.saturating_sub(resolution.kept_s());
    let mut table = transaction.open_table(resolution.table())?;
    table.retain_in(..(oldest, ""), |_, _| false)?;
    Ok(())
}

/// The rows of a directory's history from an instant on, by time and then by interface. Whoever writes it goes on.
pub fn read(directory: &Path, from_s: u64, resolution: Resolution) -> Result<Vec<Row>, HistoryError> {
    let path = directory.join(FILE);
    if !path.exists() {
        return Err(HistoryError::Nothing(directory.into()));
    }
    let rows = || -> Result<Vec<Row>, redb::Error> {
        match builder().open_read_only(&path) {
            Ok(database) => rows_of(&database, from_s, resolution),
            // Whoever wrote it was killed.
            Err(DatabaseError::RepairAborted) => rows_of(&builder().open(&path)?, from_s, resolution),
            Err(error) => Err(error.into()),
        }
    };
    rows().map_err(|error| HistoryError::File(path.clone(), Box::new(error)))
}

fn rows_of(
    database: &impl ReadableDatabase,
    from_s: u64,
    resolution: Resolution,
) -> Result<Vec<Row>, redb::Error> {
    let transaction = database.begin_read()?;
    let table = match transaction.open_table(resolution.table()) {
        Ok(table) => table,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut rows = Vec::new();
    for entry in table.range((from_s, "")..)? {
        let (key, value) = entry?;
        let (at_s, interface) = key.value();
        rows.push(Row { at_s, interface: interface.into(), usage: Usage::from_numbers(value.value()) });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(at_s: u64, interface: &str, sent_bytes: u64) -> Row {
        Row { at_s, interface: interface.into(), usage: Usage { sent_bytes, ..Usage::default() } }
    }

    #[test]
    fn rows_are_added_up_and_the_old_ones_dropped() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(matches!(read(folder.path(), 0, Resolution::Fine), Err(HistoryError::Nothing(_))));
        let mut history = History::open(folder.path()).expect("a history");
        let start = 1_000_000_200;
        for step in 0..60 {
            let now = start + step * 5;
            history.record(now, &[row(now, "lte", 1), row(now, "wifi", 10)]).expect("room");
        }
        // It is read while it is written.
        let fine = read(folder.path(), start, Resolution::Fine).expect("rows");
        assert_eq!(fine.len(), 60);
        assert_eq!(fine[..2], [row(start, "lte", 2), row(start, "wifi", 20)]);
        let coarse = read(folder.path(), 0, Resolution::Coarse).expect("rows");
        assert_eq!(coarse, [row(start, "lte", 60), row(start, "wifi", 600)]);
        drop(history);
        let mut history = History::open(folder.path()).expect("the same history");
        let later = start + 300 + Resolution::Fine.kept_s();
        history.record(later, &[]).expect("room");
        assert_eq!(read(folder.path(), 0, Resolution::Fine).expect("rows"), []);
        assert_eq!(read(folder.path(), 0, Resolution::Coarse).expect("rows"), coarse);
        history.record(later + Resolution::Coarse.kept_s(), &[]).expect("room");
        assert_eq!(read(folder.path(), 0, Resolution::Coarse).expect("rows"), []);
    }

    #[test]
    fn the_file_grows_no_more_once_rows_go_as_they_come() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut history = History::open(folder.path()).expect("a history");
        let mut size = Vec::new();
        // In steps of an hour: two days of fine rows, again and again.
        for hour in 0..150 {
            let now = 1_000_000_800 + hour * 3600;
            let rows: Vec<Row> = (0..100).map(|step| row(now + step * 10, "wifi", 1)).collect();
            history.record(now, &rows).expect("room");
            size.push(std::fs::metadata(folder.path().join(FILE)).expect("the file").len());
        }
        assert!(size[149] <= size[90] + (1 << 20), "{} {}", size[90], size[149]);
    }

    #[test]
    fn two_writers_do_not_meet() {
        let folder = tempfile::tempdir().expect("a folder");
        let _first = History::open(folder.path()).expect("a history");
        let second = History::open(folder.path()).expect_err("somebody writes");
        assert!(matches!(second, HistoryError::Busy(_)), "{second}");
    }
}
