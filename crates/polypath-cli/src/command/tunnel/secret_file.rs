//! Files with secrets: made anew, or changed by one at a time.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use polypath_system::in_context;

use super::super::Failure;

/// Of a file's mode, those that say who may do what.
const MODE_BITS: u32 = 0o7777;

/// A new file that only its owner may read.
pub(super) fn write_new_secret(path: &Path, text: &str) -> Result<(), Failure> {
    let said = |error: io::Error| Failure::Run(format!("{}: {error}", path.display()));
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path).map_err(|error| {
        let is_there = error.kind() == io::ErrorKind::AlreadyExists;
        let expected = "is there already: expected the name of a new file";
        if is_there { Failure::Input(format!("{} {expected}", path.display())) } else { said(error) }
    })?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(|error| {
        // Half of it is of no use.
        let _ = fs::remove_file(path);
        said(error)
    })
}

/// A file that nobody else changes meanwhile, if all ask for this.
pub(super) struct Locked {
    /// Has the lock as long as it is open.
    file: File,
    /// Where it is, and not a link to it.
    path: PathBuf,
    text: String,
}

impl Locked {
    /// Waits for others that change it, and reads it then.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        loop {
            let path = fs::canonicalize(path)?;
            let mut file = File::open(&path)?;
            file.lock()?;
            // Whoever had the lock before has put another file in its place.
            if !is_at(&file, &path)? {
                continue;
            }
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            return Ok(Self { file, path, text });
        }
    }

    /// What stands there.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// What is there is replaced whole, or not at all. Whoever could read it still can, and nobody else.
    pub(super) fn replace(self, text: &str) -> io::Result<()> {
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        let name = self.path.file_name().unwrap_or_default();
        // A file of our own, whose name nobody has foreseen: what lies at a name that others know may be theirs, or lead elsewhere.
        let mut beside = tempfile::Builder::new().prefix(name).suffix(".new").tempfile_in(directory)?;
        let (file, before) = (beside.as_file(), self.file.metadata()?);
        let [own, wanted] = [file.metadata()?, before.clone()].map(|it| (it.uid(), it.gid()));
        if own != wanted {
            fchown(file, Some(wanted.0), Some(wanted.1))
                .map_err(|error| in_context("its owner and group can't be kept", error))?;
        }
        file.set_permissions(fs::Permissions::from_mode(before.mode() & MODE_BITS))?;
        beside.write_all(text.as_bytes())?;
        beside.as_file().sync_all()?;
        beside.persist(&self.path).map_err(|error| error.error)?;
        // It is whole in any case. This makes it last.
        let _ = File::open(directory).and_then(|directory| directory.sync_all());
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

    #[test]
    fn who_could_read_it_still_can_and_nobody_else() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        write_new_secret(&at("real.toml"), "one").unwrap();
        fs::set_permissions(at("real.toml"), fs::Permissions::from_mode(0o640)).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(at("real.toml"), Some(4_711), Some(4_712)).unwrap();
        }
        let who = |name: &str| {
            let it = fs::metadata(at(name)).unwrap();
            (it.uid(), it.gid(), it.mode() & MODE_BITS)
        };
        let before = who("real.toml");
        // A link to it, and links at names that could be guessed.
        std::os::unix::fs::symlink("real.toml", at("server.toml")).unwrap();
        fs::write(at("theirs"), "theirs").unwrap();
        for name in ["server.toml.new", "real.toml.new"] {
            std::os::unix::fs::symlink("theirs", at(name)).unwrap();
        }
        Locked::open(&at("server.toml")).unwrap().replace("two").unwrap();
        assert!(fs::symlink_metadata(at("server.toml")).unwrap().is_symlink());
        let read = |name: &str| fs::read_to_string(at(name)).unwrap();
        assert_eq!((read("real.toml").as_str(), read("theirs").as_str()), ("two", "theirs"));
        assert_eq!(who("real.toml"), before);
        assert_eq!(before.2, 0o640);
    }
}
