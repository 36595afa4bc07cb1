use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Root's.
const OF_ROOT: &str = "/run/polypath";

/// Where the sockets of this user's stacks are: `POLYPATH_RUNTIME_DIR` if it is set, `/run/polypath` for root, and
/// `$XDG_RUNTIME_DIR/polypath` for others.
pub fn runtime_directory() -> io::Result<PathBuf> {
    if let Some(chosen) = std::env::var_os("POLYPATH_RUNTIME_DIR") {
        return Ok(chosen.into());
    }
    if rustix::process::geteuid().is_root() {
        return Ok(OF_ROOT.into());
    }
    let of_session =
        std::env::var_os("XDG_RUNTIME_DIR").map(|session| PathBuf::from(session).join("polypath"));
    of_session.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            "there is no place for the sockets of this user's stacks, as XDG_RUNTIME_DIR is not set; expected a directory of this \
             user's in POLYPATH_RUNTIME_DIR, the same for every command",
        )
    })
}

/// The runtime directories whose stacks the owner of this one may see, which is the first: root sees those of all users and services.
#[must_use]
pub fn runtime_directories(own: &Path) -> Vec<PathBuf> {
    let mut directories = vec![own.to_path_buf()];
    if own == Path::new(OF_ROOT) {
        let run = Path::new("/run");
        directories.extend(entries(&run.join("user")).map(|user| user.join("polypath")).filter(is_its_users));
        directories.extend(directories_of_services(run));
    }
    directories
}

/// The directories of services, which systemd makes for `RuntimeDirectory=polypath-NAME` in `run`. A link may lead there: only
/// root puts one into /run.
pub fn directories_of_services(run: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let is_of_service = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        name.starts_with(b"polypath-") && path.is_dir()
    };
    entries(run).filter(is_of_service)
}

/// What is in a directory; nothing if it can't be read.
fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// A directory of the user in whose place it is, and not a link to another.
fn is_its_users(directory: &PathBuf) -> bool {
    let owner_above = directory.parent().and_then(|above| std::fs::symlink_metadata(above).ok());
    let found = std::fs::symlink_metadata(directory).ok();
    found.zip(owner_above).is_some_and(|(found, above)| found.is_dir() && found.uid() == above.uid())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_service_has_a_directory_of_its_own_or_a_link_to_one() {
        let run = tempfile::tempdir().expect("a folder");
        let at = |name: &str| run.path().join(name);
        for folder in ["polypath", "polypath-serve", "private/polypath-metrics", "other-service"] {
            fs::create_dir_all(at(folder)).expect("a folder");
        }
        std::os::unix::fs::symlink("private/polypath-metrics", at("polypath-metrics")).expect("a link");
        fs::write(at("polypath-file"), "").expect("a file");
        let mut found: Vec<PathBuf> = directories_of_services(run.path()).collect();
        found.sort();
        assert_eq!(found, [at("polypath-metrics"), at("polypath-serve")]);
        assert_eq!(directories_of_services(&at("missing")).count(), 0);
        assert_eq!(runtime_directories(run.path()), [run.path()], "nobody but root sees others'");
    }
}
