//! What was used of budgets outlives the proxy, in a file of the state folder.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, lchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use polypath_proxy::net::UsedBudget;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::super::complain;

const FILE: &str = "budgets.json";
const DAY_S: u64 = 86_400;
/// A file is no longer: each of some ten thousand clients has a line of it.
const MOST_BYTES: u64 = 64 << 20;

/// Where it is, and what it says of time.
#[derive(Debug)]
pub(super) struct Budgets {
    place: PathBuf,
    clock: Clock,
    /// What is in the file.
    written: Vec<Used>,
}

/// As it is on file.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct File {
    /// When it was written, in seconds since 1970.
    at_s: u64,
    used: Vec<Used>,
}

/// What was used of a budget.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
struct Used {
    limit: String,
    /// Whose it is, if each client has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client: Option<IpAddr>,
    bytes: u64,
    /// When its period ends, in seconds since 1970.
    ends_s: u64,
}

/// Seconds since 1970, by a clock that many a computer begins with being wrong: one that is behind what was seen before is not believed, unless it
/// stays so for a day. Its seconds count all the same.
#[derive(Debug, Default)]
struct Clock {
    latest_s: u64,
    behind_since_s: Option<u64>,
}

impl Clock {
    fn time_s(&mut self, now_s: u64) -> u64 {
        if now_s < self.latest_s {
            let since_s = *self.behind_since_s.get_or_insert(now_s);
            if now_s < since_s.saturating_add(DAY_S) {
                return self.latest_s.saturating_add(now_s.saturating_sub(since_s));
            }
        }
        *self = Self { latest_s: now_s, behind_since_s: None };
        now_s
    }
}

impl Budgets {
    /// What was written there. `now_s` are seconds since 1970.
    pub(super) fn load(folder: &Path, now_s: u64) -> io::Result<(Self, Vec<UsedBudget>)> {
        let place = folder.join(FILE);
        let file = match read(&place) {
            Ok(text) => serde_json::from_slice(&text).unwrap_or_else(|error| {
                complain(&format!("{}: {error}; budgets begin anew", place.display()));
                File::default()
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => File::default(),
            Err(error) => return Err(error),
        };
        let mut clock = Clock { latest_s: file.at_s, behind_since_s: None };
        let time_s = clock.time_s(now_s);
        let used = file.used.iter().filter(|used| used.ends_s > time_s).map(|used| UsedBudget {
            limit: used.limit.as_str().into(),
            client: used.client,
            octets: used.bytes,
            left: Duration::from_secs(used.ends_s - time_s),
        });
        let used = used.collect();
        Ok((Self { place, clock, written: file.used }, used))
    }

    /// Writes what is used now, if that has changed.
    pub(super) fn save(&mut self, now_s: u64, used: &[UsedBudget]) -> io::Result<()> {
        let at_s = self.clock.time_s(now_s);
        let used: Vec<Used> = used.iter().map(|used| Used::new(used, at_s)).collect();
        let is_as_before = used.len() == self.written.len()
            && used.iter().zip(&self.written).all(|(used, written)| used.says(written));
        if is_as_before {
            return Ok(());
        }
        let file = File { at_s, used };
        let fresh = self.place.with_extension("new");
        let text = serde_json::to_vec(&file)?;
        if let Some(folder) = self.place.parent() {
            make(folder)?;
        }
        // In a folder of another user's, nothing is written where a link leads.
        let _ = std::fs::remove_file(&fresh);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).open(&fresh)?.write_all(&text)?;
        std::fs::rename(&fresh, &self.place)?;
        self.written = file.used;
        Ok(())
    }
}

impl Used {
    fn new(used: &UsedBudget, at_s: u64) -> Self {
        Self {
            limit: used.limit.to_string(),
            client: used.client,
            bytes: used.octets,
            ends_s: at_s.saturating_add(used.left.as_secs()),
        }
    }

    /// Whether it says the same, as far as a second of the clock matters.
    fn says(&self, other: &Self) -> bool {
        (&self.limit, self.client, self.bytes) == (&other.limit, other.client, other.bytes)
            && self.ends_s.abs_diff(other.ends_s) < 60
    }
}

/// The folder, in one for state that everybody may look at.
pub(super) fn make(folder: &Path) -> io::Result<()> {
    if let Some(state) = folder.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(state)?;
    }
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Has the folder belong to a user, with the file in it. Nobody but its owner puts anything there, but that may have been another user: a file is
/// handed on only out of a folder of root's, and only if it has no other name.
pub(super) fn hand_over(folder: &Path, (user, group): (u32, u32)) -> io::Result<()> {
    let place = folder.join(FILE);
    if std::fs::symlink_metadata(folder)?.uid() == 0
        && std::fs::symlink_metadata(&place).is_ok_and(|file| file.is_file() && file.nlink() == 1)
    {
        lchown(&place, Some(user), Some(group))?;
    }
    lchown(folder, Some(user), Some(group))
}

/// A plain file, and not too much of it.
fn read(place: &Path) -> io::Result<Vec<u8>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(place)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("no plain file"));
    }
    let mut text = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: u64 = 20_000 * DAY_S + DAY_S / 2;

    fn used(octets: u64, left_s: u64) -> UsedBudget {
        UsedBudget { limit: "volume".into(), client: None, octets, left: Duration::from_secs(left_s) }
    }

    fn loaded(folder: &Path, now_s: u64) -> Vec<(u64, u64)> {
        let (_, used) = Budgets::load(folder, now_s).expect("it is read");
        used.iter().map(|used| (used.octets, used.left.as_secs())).collect()
    }

    #[test]
    fn what_was_used_outlives_the_proxy_until_its_period_ends() {
        let state = tempfile::tempdir().expect("a folder");
        let folder = state.path().join("made/gateway");
        let (mut budgets, before) = Budgets::load(&folder, NOON).expect("nothing yet");
        assert!(before.is_empty());
        budgets.save(NOON, &[]).expect("nothing to write");
        assert!(!folder.exists());
        let mut of_client = used(3, 500);
        of_client.client = Some([192, 0, 2, 1].into());
        budgets.save(NOON, &[used(7, 3600), of_client.clone()]).expect("room");
        assert_eq!(loaded(&folder, NOON + 600), [(7, 3000)]);
        let (_, both) = Budgets::load(&folder, NOON + 100).expect("it is read");
        assert_eq!((both[1].client, both[1].left.as_secs()), (of_client.client, 400));
        assert_eq!(loaded(&folder, NOON + 3600), []);
        // With nothing used any more, the file says so.
        budgets.save(NOON + 3600, &[]).expect("room");
        assert_eq!(loaded(&folder, NOON), []);
    }

    #[test]
    fn a_clock_that_is_behind_brings_no_new_budget() {
        let state = tempfile::tempdir().expect("a folder");
        let folder = state.path().join("gateway");
        make(&folder).expect("a folder");
        let (mut budgets, _) = Budgets::load(&folder, NOON).expect("nothing yet");
        budgets.save(NOON, &[used(7, 3600)]).expect("room");
        // It begins in 1970, and what it writes then counts when it is right.
        let (mut behind, before) = Budgets::load(&folder, 60).expect("it is read");
        assert_eq!((before[0].octets, before[0].left.as_secs()), (7, 3600));
        behind.save(160, &[used(9, 3500)]).expect("room");
        assert_eq!(loaded(&folder, NOON + 200), [(9, 3400)]);
        assert_eq!(loaded(&folder, 5), [(9, 3500)]);
        // It stays so, and is believed.
        behind.save(60 + DAY_S, &[used(10, 1000)]).expect("room");
        assert_eq!(loaded(&folder, 60 + DAY_S + 10), [(10, 990)]);
    }

    #[test]
    fn a_folder_is_handed_over_with_its_file_and_nothing_else() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let state = tempfile::tempdir().expect("a folder");
        let (folder, other) = (state.path().join("gateway"), state.path().join("other"));
        make(&folder).expect("a folder");
        let of = |place: &Path| std::fs::symlink_metadata(place).expect("it").uid();
        std::fs::write(&other, "other").expect("a file");
        std::fs::hard_link(&other, folder.join(FILE)).expect("another name");
        hand_over(&folder, (65_534, 65_534)).expect("root may");
        assert_eq!((of(&folder), of(&other)), (65_534, 0), "it has another name");
        std::fs::remove_file(&other).expect("it");
        hand_over(&folder, (65_534, 65_534)).expect("root may");
        assert_eq!(of(&folder.join(FILE)), 0, "who has the folder may have put it there");
        hand_over(&folder, (0, 0)).expect("root may");
        hand_over(&folder, (65_534, 65_534)).expect("root may");
        assert_eq!(of(&folder.join(FILE)), 65_534);
    }

    #[test]
    fn links_and_what_is_no_file_are_left_alone() {
        let state = tempfile::tempdir().expect("a folder");
        let folder = state.path().join("gateway");
        make(&folder).expect("a folder");
        let other = state.path().join("other");
        std::fs::write(&other, "other").expect("a file");
        std::os::unix::fs::symlink(&other, folder.join("budgets.new")).expect("a link");
        let (mut budgets, _) = Budgets::load(&folder, NOON).expect("nothing yet");
        budgets.save(NOON, &[used(7, 3600)]).expect("room");
        assert_eq!(std::fs::read_to_string(&other).expect("it"), "other");
        std::fs::remove_file(folder.join("budgets.json")).expect("it");
        std::os::unix::fs::symlink(&other, folder.join("budgets.json")).expect("a link");
        assert!(Budgets::load(&folder, NOON).is_err());
    }
}
