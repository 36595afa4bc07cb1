//! Files with secrets: made anew, or changed by one at a time.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::super::Failure;

/// A new file that only its owner may read.
pub(super) fn write_new_secret(path: &Path, text: &str) -> Result<(), Failure> {
    let said = |error: io::Error| Failure::Run(format!("{}: {error}", path.display()));
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path).map_err(|error| {
        let is_there = error.kind() == io::ErrorKind::AlreadyExists;
        let expected = "is there already: expected the name of a new file";
        if is_there { Failure::Input(format!("{} {expected}", path.display())) } else { said(error) }
    })?;
    file.write_all(text.as_bytes()).map_err(said)
}

/// A file that nobody else changes meanwhile, if all ask for this.
pub(super) struct Locked {
    /// Has the lock as long as it is open.
    _file: File,
    path: PathBuf,
    text: String,
}

impl Locked {
    /// Waits for others that change it, and reads it then.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        loop {
            let mut file = File::open(path)?;
            file.lock()?;
            // Whoever had the lock before has put another file in its place.
            if !is_at(&file, path)? {
                continue;
            }
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            return Ok(Self { _file: file, path: path.to_owned(), text });
        }
    }

    /// What stands there.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// What is there is replaced whole, or not at all.
    pub(super) fn replace(self, text: &str) -> io::Result<()> {
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let name = self.path.file_name().unwrap_or_default();
        // A file of our own: what lies at a name that others can guess may be theirs.
        let mut beside = tempfile::Builder::new()
            .prefix(name)
            .suffix(".new")
            .tempfile_in(directory.unwrap_or(Path::new(".")))?;
        beside.write_all(text.as_bytes())?;
        beside.as_file().sync_all()?;
        beside.persist(&self.path).map_err(|error| error.error)?;
        Ok(())
    }
}

fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let [open, there] = [file.metadata()?, fs::metadata(path)?].map(|it| (it.dev(), it.ino()));
    Ok(open == there)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_reads_what_the_other_has_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("server.toml");
        write_new_secret(&path, "one").unwrap();
        let locked = Locked::open(&path).unwrap();
        assert_eq!(locked.text(), "one");
        let waiting = std::thread::spawn({
            let path = path.clone();
            move || Locked::open(&path).unwrap().text().to_owned()
        });
        locked.replace("two").unwrap();
        assert_eq!(waiting.join().unwrap(), "two");
        let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!(names, ["server.toml"], "nothing else is left");
    }
}
