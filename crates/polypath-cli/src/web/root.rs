//! A directory that nothing leaves.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use percent_encoding::percent_decode_str;
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, open, openat, openat2, renameat,
    statat, unlinkat,
};
use rustix::io::Errno;

/// A directory. Paths within it are resolved by the kernel, which lets none lead out of it. A service that systemd gives a user
/// of its own may not ask the kernel for that; then no symbolic link is followed.
#[derive(Debug)]
pub(super) struct Root {
    directory: OwnedFd,
}

/// The names that the path of a URL consists of; none if it makes no sense. Ends with an empty name if the path
/// ends with a slash.
pub(super) fn names(path: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let mut parts = path.strip_prefix('/')?.split('/').peekable();
    while let Some(part) = parts.next() {
        let name = percent_decode_str(part).decode_utf8().ok()?;
        // An encoded slash would be a name that no file has.
        if name.contains(['/', '\0']) {
            return None;
        }
        match &*name {
            "" if parts.peek().is_some() => {}
            "." => {}
            ".." => {
                names.pop()?;
            }
            _ => names.push(name.into_owned()),
        }
    }
    Some(names)
}

impl Root {
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::PATH;
        let directory = open(path, flags, Mode::empty())?;
        let root = Self { directory };
        // Finds out at the start whether the directory can be read.
        root.open(&[])?;
        Ok(root)
    }

    fn at(&self, names: &[String], flags: OFlags) -> io::Result<OwnedFd> {
        let path = if names.is_empty() { ".".into() } else { names.join("/") };
        // Devices and pipes must not make anybody wait. A mere place does not, and has no such flags.
        let patience =
            if flags.contains(OFlags::PATH) { OFlags::empty() } else { OFlags::NONBLOCK | OFlags::NOCTTY };
        let flags = flags | OFlags::CLOEXEC | patience;
        let mode = if flags.contains(OFlags::CREATE) { Mode::from_raw_mode(0o666) } else { Mode::empty() };
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        match openat2(&self.directory, path, flags, mode, how) {
            // Without `openat2`: `DynamicUser=yes` implies `RestrictSUIDSGID=yes`, whose filter can't look into it.
            Err(Errno::NOSYS) => Ok(walk(self.directory.as_fd(), names, flags, mode)?),
            opened => Ok(opened?),
        }
    }

    /// A file or a directory.
    pub(super) fn open(&self, names: &[String]) -> io::Result<File> {
        Ok(self.at(names, OFlags::RDONLY)?.into())
    }

    /// A file to read and write, made if it is missing. A symbolic link at its place is refused.
    pub(super) fn create(&self, names: &[String]) -> io::Result<File> {
        Ok(self.at(names, OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW)?.into())
    }

    /// Whether a file that was opened has this name still.
    pub(super) fn has_at(&self, names: &[String], file: &File) -> io::Result<bool> {
        let there = match self.at(names, OFlags::PATH | OFlags::NOFOLLOW) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            there => fstat(there?)?,
        };
        let here = fstat(file)?;
        Ok((here.st_dev, here.st_ino) == (there.st_dev, there.st_ino))
    }

    /// Makes the directories that lead to a file.
    pub(super) fn make_parents(&self, names: &[String]) -> io::Result<()> {
        for depth in 1..names.len() {
            if let Err(error) = self.at(&names[..depth], OFlags::PATH | OFlags::DIRECTORY) {
                if error.kind() != io::ErrorKind::NotFound {
                    return Err(error);
                }
                let parent = self.at(&names[..depth - 1], OFlags::PATH | OFlags::DIRECTORY)?;
                match mkdirat(&parent, names[depth - 1].as_str(), Mode::from_raw_mode(0o777)) {
                    Err(Errno::EXIST) | Ok(()) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// Gives a file the name of another in the same directory, which it replaces.
    pub(super) fn rename(&self, from: &[String], to: &[String]) -> io::Result<()> {
        let (Some((old, parents)), Some(new)) = (from.split_last(), to.last()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let parent = self.at(parents, OFlags::PATH | OFlags::DIRECTORY)?;
        Ok(renameat(&parent, old.as_str(), &parent, new.as_str())?)
    }

    /// Takes a file out of its directory.
    pub(super) fn remove(&self, names: &[String]) -> io::Result<()> {
        let (name, parents) = names.split_last().ok_or(io::ErrorKind::InvalidInput)?;
        let parent = self.at(parents, OFlags::PATH | OFlags::DIRECTORY)?;
        Ok(unlinkat(&parent, name.as_str(), AtFlags::empty())?)
    }

    /// The files and directories in a directory that was opened by these names; hidden ones, uploads under way among them, if they are
    /// wanted. A link is listed as what it leads to, if that can be fetched.
    pub(super) fn list(
        &self,
        names: &[String],
        directory: &File,
        with_hidden: bool,
    ) -> io::Result<Vec<(String, bool, u64, u64)>> {
        let mut found = Vec::new();
        for entry in Dir::read_from(directory.as_fd())? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if matches!(name, "." | "..") || name.starts_with('.') && !with_hidden {
                continue;
            }
            let Ok(mut stat) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            if FileType::from_raw_mode(stat.st_mode).is_symlink() {
                let place: Vec<String> = names.iter().cloned().chain([name.to_string()]).collect();
                let Ok(there) = self.at(&place, OFlags::PATH) else { continue };
                stat = fstat(there)?;
            }
            let kind = FileType::from_raw_mode(stat.st_mode);
            if kind.is_dir() || kind.is_file() {
                let size = u64::try_from(stat.st_size).unwrap_or(0);
                found.push((
                    name.to_string(),
                    kind.is_dir(),
                    size,
                    u64::try_from(stat.st_mtime).unwrap_or(0),
                ));
            }
        }
        found.sort();
        Ok(found)
    }

    /// Whether something outside of the directory was meant.
    pub(super) fn is_escape(error: &io::Error) -> bool {
        error.raw_os_error() == Some(Errno::XDEV.raw_os_error())
            || error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
    }
}

/// Opens what is beneath a directory name by name, so that no link leads anywhere.
fn walk(top: BorrowedFd<'_>, names: &[String], flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
    let Some((last, parents)) = names.split_last() else {
        return openat(top, ".", flags, mode);
    };
    if names.iter().any(|name| name == ".." || name.contains('/')) {
        return Err(Errno::XDEV);
    }
    let mut reached: Option<OwnedFd> = None;
    for parent in parents {
        let from = reached.as_ref().map_or(top, AsFd::as_fd);
        let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        reached = Some(openat(from, parent.as_str(), how, Mode::empty())?);
    }
    let from = reached.as_ref().map_or(top, AsFd::as_fd);
    // A path that ends with a slash has an empty name last.
    let (last, flags) =
        if last.is_empty() { (".", flags | OFlags::DIRECTORY) } else { (last.as_str(), flags) };
    openat(from, last, flags | OFlags::NOFOLLOW, mode)
}

/// Whether something on the way to a file is hidden, or the file itself.
pub(super) fn is_hidden(names: &[String]) -> bool {
    names.iter().any(|name| name.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_decoded_once_and_stay_inside() {
        let list = |names: &[&str]| Some(names.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(names("/a/b%20c"), list(&["a", "b c"]));
        assert_eq!(names("/"), list(&[""]));
        assert_eq!(names("/a/"), list(&["a", ""]));
        assert_eq!(names("//a///b"), list(&["a", "b"]));
        assert_eq!(names("/a/./b/../c"), list(&["a", "c"]));
        assert_eq!(names("/%252e"), list(&["%2e"]));
        for outside in
            ["/..", "/../etc/passwd", "/%2e%2e/etc", "/a/../../b", "/a%2fb", "/%00", "/%ff", "a", ""]
        {
            assert_eq!(names(outside), None, "{outside}");
        }
    }

    #[test]
    fn a_list_has_what_can_be_fetched() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("top/inner/deep")).expect("folders");
        std::fs::write(at("secret"), "outside").expect("a file");
        std::fs::write(at("top/file"), "inside").expect("a file");
        let links = [
            ("../../secret", "file-out"),
            ("/etc", "out"),
            ("../file", "file-in"),
            ("deep", "in"),
            ("none", "broken"),
        ];
        for (to, name) in links {
            std::os::unix::fs::symlink(to, at("top/inner").join(name)).expect("a link");
        }
        let root = Root::new(&at("top")).expect("the folder");
        let names = ["inner".to_string()];
        let directory = root.open(&names).expect("the folder within");
        let listed = root.list(&names, &directory, false).expect("a list");
        let listed: Vec<_> =
            listed.iter().map(|(name, is_directory, ..)| (name.as_str(), *is_directory)).collect();
        assert_eq!(listed, [("deep", true), ("file-in", false), ("in", true)]);
        for (_, name) in links {
            let names = ["inner".to_string(), name.to_string()];
            let is_listed = listed.iter().any(|(listed, _)| *listed == name);
            assert_eq!(root.open(&names).is_ok(), is_listed, "{name}");
        }
    }

    #[test]
    fn without_help_of_the_kernel_no_link_is_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("top/inner")).expect("folders");
        std::fs::write(at("secret"), "outside").expect("a file");
        std::fs::write(at("top/inner/file"), "inside").expect("a file");
        for (to, name) in
            [("..", "out"), ("../secret", "file-out"), ("inner", "in"), ("inner/file", "file-in")]
        {
            std::os::unix::fs::symlink(to, at("top").join(name)).expect("a link");
        }
        let top = File::open(at("top")).expect("the folder");
        let walk = |path: &str, flags| {
            let names: Vec<String> = path.split('/').filter(|_| !path.is_empty()).map(Into::into).collect();
            super::walk(top.as_fd(), &names, flags, Mode::from_raw_mode(0o600))
        };
        for found in ["", "inner", "inner/", "inner/file"] {
            assert!(walk(found, OFlags::RDONLY).is_ok(), "{found}");
        }
        let refused = [
            ("..", Errno::XDEV),
            ("inner/../../secret", Errno::XDEV),
            ("out", Errno::LOOP),
            ("file-out", Errno::LOOP),
            ("file-in", Errno::LOOP),
            ("out/secret", Errno::NOTDIR),
            ("in/file", Errno::NOTDIR),
            ("in/", Errno::NOTDIR),
            ("inner/file/", Errno::NOTDIR),
            ("missing", Errno::NOENT),
        ];
        for (path, error) in refused {
            assert_eq!(walk(path, OFlags::RDONLY).map(drop), Err(error), "{path}");
        }
        assert!(walk("inner/new", OFlags::RDWR | OFlags::CREATE).is_ok());
        assert_eq!(walk("file-out", OFlags::RDWR | OFlags::CREATE).map(drop), Err(Errno::LOOP));
        assert!(Root::is_escape(&Errno::LOOP.into()));
    }
}
