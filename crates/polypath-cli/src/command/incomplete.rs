//! What is there of a file that a download begins anew, or does not use.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::complain;
use super::words::amount;

/// A file to download, and what an earlier download may have left beside it.
pub(super) struct Incomplete<'a> {
    pub(super) place: &'a Path,
    /// Such downloads keep their parts in another way.
    pub(super) is_in_ranges: bool,
    pub(super) resume: bool,
}

impl Incomplete<'_> {
    pub(super) fn tell(&self) {
        self.lines().iter().for_each(|line| complain(line));
    }

    fn lines(&self) -> Vec<String> {
        let (own, other) = if self.is_in_ranges { (".parts", ".part") } else { (".part", ".parts") };
        let rest = |ending| if self.can_go_on(ending) { "; --resume (-C) would go on with it" } else { "" };
        let own = self
            .left(own)
            .filter(|_| !self.resume)
            .map(|part| format!("{part}, and begins anew{}", rest(own)));
        let other = self.left(other).filter(|_| self.can_go_on(other)).map(|part| {
            let way = if self.is_in_ranges { "-C without --ranges" } else { "--ranges -C" };
            format!("{part}, and is not used; {way} would go on with it")
        });
        own.into_iter().chain(other).collect()
    }

    /// What came in ranges is worth something only with the record of what it is. Of the rest, the server may tell.
    fn can_go_on(&self, ending: &str) -> bool {
        let mut record = self.place.as_os_str().to_owned();
        record.push(ending);
        record.push(".json");
        ending != ".parts" || Path::new(&record).is_file()
    }

    /// What is there under a name with this ending, and how much of it.
    fn left(&self, ending: &str) -> Option<String> {
        let mut part = self.place.as_os_str().to_owned();
        part.push(ending);
        let found =
            std::fs::symlink_metadata(&part).ok().filter(|found| found.is_file() && found.len() > 0)?;
        // What came in ranges has gaps, which take no room.
        let most_bytes = if ending == ".parts" { found.blocks() * 512 } else { u64::MAX };
        let bytes = amount(found.len().min(most_bytes));
        Some(format!("{} has {bytes}", Path::new(&part).display()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_the_other_kind_of_download_left_is_told_too() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = &folder.path().join("file");
        let lines = |is_in_ranges, resume| {
            let lines = Incomplete { place, is_in_ranges, resume }.lines().into_iter();
            let name = format!("{}/", folder.path().display());
            lines.map(|line| line.replace(&name, "")).collect::<Vec<_>>()
        };
        assert!(lines(false, false).is_empty());
        fs::write(folder.path().join("file.part"), [0; 50_000]).expect("room");
        let anew = "begins anew; --resume (-C) would go on with it";
        assert_eq!(lines(false, false), [format!("file.part has 50 kB, and {anew}")]);
        assert!(lines(false, true).is_empty());
        let other = "file.part has 50 kB, and is not used; -C without --ranges would go on with it";
        assert_eq!(lines(true, true), [other]);
        // Mostly a gap.
        let parts = fs::File::create(folder.path().join("file.parts")).expect("room");
        parts.set_len(1 << 30).expect("a sparse file");
        std::os::unix::fs::FileExt::write_all_at(&parts, &[1; 4096], 1 << 20).expect("room");
        let found = lines(true, false);
        assert!(found.len() == 2 && found[0].ends_with(", and begins anew"), "nobody can: {found:?}");
        assert!(lines(false, true).is_empty(), "nor with --ranges");
        fs::write(folder.path().join("file.parts.json"), "{}").expect("room");
        let found = lines(true, false);
        assert!(found.len() == 2 && found[0].ends_with(anew) && !found[0].contains("GB"), "{found:?}");
        assert!(found[0].starts_with("file.parts has ") && found[1] == other, "{found:?}");
        let found = lines(false, true);
        assert!(found.len() == 1 && found[0].ends_with("is not used; --ranges -C would go on with it"));
    }
}
