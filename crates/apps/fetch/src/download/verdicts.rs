//! What servers say that have no range of the file. On one network it may be something else that answers, such as a page that wants a
//! password: so it does not count while another path may say better.

use std::time::Duration;

use tokio::time::Instant;
use url::Url;

/// So long are the other paths waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);
/// The same where what was told may be nothing of the file's server, and likely is nothing of it.
const MUCH_PATIENCE: Duration = Duration::from_secs(5);
const MOST_PATIENCE: Duration = Duration::from_secs(15);

/// What a server says that has no range of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is given, but as a whole only.
    Whole {
        /// Whether it is a page.
        page: Page,
        /// Its length, if that was told.
        total_bytes: Option<u64>,
    },
    /// It is not the one of which a part is there.
    Other,
    /// It is elsewhere.
    Elsewhere {
        /// There.
        to: Url,
        /// At the same host.
        is_at_home: bool,
    },
    /// It has no byte at all.
    Empty,
    /// It is not given, with this status.
    Refused(u16),
}

/// Whether a whole file is a page of the web.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    /// It is something else.
    No,
    /// The URL may be that of one.
    Expected,
    /// The URL is of something else.
    Unexpected,
}

impl Verdict {
    /// What is more likely of the file's server comes first.
    pub(super) const fn rank(&self) -> u8 {
        match self {
            Self::Whole { page: Page::No, .. } => 0,
            Self::Other => 1,
            Self::Elsewhere { is_at_home: true, .. } => 2,
            Self::Elsewhere { is_at_home: false, .. } => 3,
            Self::Whole { page: Page::Expected, .. } => 4,
            Self::Whole { page: Page::Unexpected, .. } | Self::Empty => 5,
            Self::Refused(_) => 6,
        }
    }
}

/// What paths were told, by their numbers, before one had an answer.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    told: Vec<(usize, Verdict)>,
    /// When the first one was.
    since: Option<Instant>,
}

impl Verdicts {
    pub(super) fn note(&mut self, now: Instant, path: usize, verdict: Verdict) {
        self.told.retain(|(known, _)| *known != path);
        self.told.push((path, verdict));
        self.since.get_or_insert(now);
    }

    /// Whether a path was told something.
    pub(super) fn has(&self, path: usize) -> bool {
        self.told.iter().any(|(known, _)| *known == path)
    }

    /// Whether any path was.
    pub(super) fn are_any(&self) -> bool {
        !self.told.is_empty()
    }

    /// When it counts, whatever the other paths may say. `is_sure`: nothing else can answer in the server's place. `is_connected`: one of
    /// the others has a connection.
    pub(super) fn due(&self, is_sure: bool, is_connected: bool) -> Option<Instant> {
        let (_, best) = self.decide()?;
        let patience = match best {
            _ if is_sure => PATIENCE,
            Verdict::Whole { page: Page::No, .. } => PATIENCE,
            // Whoever is refused has no wrong file.
            Verdict::Refused(_) if !is_connected => PATIENCE,
            Verdict::Whole { page: Page::Unexpected, .. } | Verdict::Empty => MOST_PATIENCE,
            _ => MUCH_PATIENCE,
        };
        Some(self.since? + patience)
    }

    /// Whether paths are told different things, or sent to different places.
    pub(super) fn are_apart(&self) -> bool {
        let is_alike = |one: &Verdict, other: &Verdict| match (one, other) {
            (Verdict::Elsewhere { to: one, .. }, Verdict::Elsewhere { to: other, .. }) => {
                // What follows the path may be of one answer only.
                (one.host(), one.path()) == (other.host(), other.path())
            }
            _ => one.rank() == other.rank(),
        };
        self.told.windows(2).any(|two| !is_alike(&two[0].1, &two[1].1))
    }

    /// Whether two files that are no pages have different lengths.
    pub(super) fn are_two_files(&self) -> bool {
        let mut lengths = self.told.iter().filter_map(|(_, verdict)| match verdict {
            Verdict::Whole { page: Page::No, total_bytes } => Some(*total_bytes),
            _ => None,
        });
        let first = lengths.next();
        lengths.any(|length| Some(length) != first)
    }

    /// What counts, and of which path: the likeliest, and of those the one of the first path.
    pub(super) fn decide(&self) -> Option<(usize, Verdict)> {
        self.told.iter().min_by_key(|(path, verdict)| (verdict.rank(), *path)).cloned()
    }

    /// One path has the file: what the others were told, which does not count.
    pub(super) fn overrule(&mut self) -> Vec<(usize, Verdict)> {
        self.since = None;
        std::mem::take(&mut self.told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirection_counts_before_a_refusal_and_neither_before_its_time() {
        let elsewhere =
            Verdict::Elsewhere { to: Url::parse("http://192.0.2.1/login").unwrap(), is_at_home: false };
        let (mut verdicts, now) = (Verdicts::default(), Instant::now());
        assert_eq!((verdicts.due(false, true), verdicts.decide()), (None, None));
        verdicts.note(now, 1, Verdict::Refused(404));
        verdicts.note(now + PATIENCE, 0, elsewhere.clone());
        assert_eq!(verdicts.decide(), Some((0, elsewhere)));
        assert!(verdicts.are_apart());
        // By https it is the server that says so.
        let due =
            [(true, true), (false, true)].map(|(is_sure, is_connected)| verdicts.due(is_sure, is_connected));
        assert_eq!(due, [Some(now + PATIENCE), Some(now + MUCH_PATIENCE)]);
        assert!(verdicts.has(0) && verdicts.has(1) && !verdicts.has(2));
        assert_eq!(verdicts.overrule().len(), 2);
        assert_eq!((verdicts.due(false, true), verdicts.decide()), (None, None));
    }
    #[test]
    fn a_page_that_nobody_expects_counts_little() {
        let whole = |page, total_bytes| Verdict::Whole { page, total_bytes: Some(total_bytes) };
        let mut verdicts = Verdicts::default();
        let now = Instant::now();
        verdicts.note(now, 0, whole(Page::Unexpected, 20));
        verdicts.note(now, 1, Verdict::Other);
        assert_eq!(verdicts.decide(), Some((1, Verdict::Other)));
        verdicts.note(now, 2, whole(Page::No, 100));
        verdicts.note(now, 1, whole(Page::No, 100));
        assert_eq!(verdicts.decide(), Some((1, whole(Page::No, 100))));
        assert!(verdicts.are_apart() && !verdicts.are_two_files());
        verdicts.note(now, 2, whole(Page::No, 101));
        assert!(verdicts.are_two_files());
        let mut verdicts = Verdicts::default();
        for (path, name) in ["file?key=1", "file?key=2", "login"].into_iter().enumerate() {
            let to = Url::parse(&format!("http://192.0.2.1/{name}")).expect("a URL");
            verdicts.note(now, path, Verdict::Elsewhere { to, is_at_home: true });
            assert_eq!(verdicts.are_apart(), name == "login", "{name}");
        }
    }
}
