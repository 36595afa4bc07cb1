//! What servers say that have no range of the file. On one network it may be something else that answers, such as a page that wants a
//! password: so it does not count while another path may say better.

use std::time::Duration;

use tokio::time::Instant;
use url::Url;

/// So long are the other paths waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);
/// The same with those that have a connection, where what was told is likely nothing of the file's server.
const MUCH_PATIENCE: Duration = Duration::from_secs(5);
/// From this rank on it is that.
const DOUBTFUL_RANK: u8 = 3;

/// What a server says that has no range of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is given, but as a whole only.
    Whole(Page),
    /// It is not the one of which a part is there.
    Other,
    /// It is elsewhere.
    Elsewhere {
        /// There.
        to: Url,
        /// At the same host.
        is_at_home: bool,
    },
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
            Self::Whole(Page::No) => 0,
            Self::Other => 1,
            Self::Elsewhere { is_at_home: true, .. } => 2,
            Self::Whole(Page::Expected) => 3,
            Self::Elsewhere { is_at_home: false, .. } => 4,
            Self::Whole(Page::Unexpected) => 5,
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

    /// When it counts, whatever the other paths may say. `is_connected`: one of them has a connection.
    pub(super) fn due(&self, is_connected: bool) -> Option<Instant> {
        let (_, best) = self.decide()?;
        let is_doubtful = is_connected && best.rank() >= DOUBTFUL_RANK;
        Some(self.since? + if is_doubtful { MUCH_PATIENCE } else { PATIENCE })
    }

    /// Whether paths are sent to different hosts.
    pub(super) fn are_sent_apart(&self) -> bool {
        let mut hosts = self.told.iter().filter_map(|(_, verdict)| match verdict {
            Verdict::Elsewhere { to, .. } => Some(to.host()),
            _ => None,
        });
        let first = hosts.next();
        hosts.any(|host| Some(host) != first)
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
        assert_eq!((verdicts.due(true), verdicts.decide()), (None, None));
        verdicts.note(now, 1, Verdict::Refused(404));
        verdicts.note(now + PATIENCE, 0, elsewhere.clone());
        assert_eq!((verdicts.due(false), verdicts.decide()), (Some(now + PATIENCE), Some((0, elsewhere))));
        // Who has a connection may say better.
        assert_eq!((verdicts.due(true), verdicts.are_sent_apart()), (Some(now + MUCH_PATIENCE), false));
        assert!(verdicts.has(0) && verdicts.has(1) && !verdicts.has(2));
        assert_eq!(verdicts.overrule().len(), 2);
        assert_eq!((verdicts.due(true), verdicts.decide()), (None, None));
    }
    #[test]
    fn a_page_that_nobody_expects_counts_little() {
        let mut verdicts = Verdicts::default();
        let now = Instant::now();
        verdicts.note(now, 0, Verdict::Whole(Page::Unexpected));
        verdicts.note(now, 1, Verdict::Other);
        assert_eq!(verdicts.decide(), Some((1, Verdict::Other)));
        verdicts.note(now, 2, Verdict::Whole(Page::No));
        verdicts.note(now, 1, Verdict::Whole(Page::No));
        assert_eq!(verdicts.decide(), Some((1, Verdict::Whole(Page::No))));
    }
}
