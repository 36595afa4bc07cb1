//! What servers say in place of the file. On one network it may be something else that answers, such as a page that wants a password: so it
//! does not count while another path may say better.

use std::time::Duration;

use tokio::time::Instant;
use url::Url;

/// So long are the other paths waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a server says in place of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is elsewhere.
    Elsewhere(Url),
    /// It is not given, with this status.
    Refused(u16),
}

/// What paths were told, by their numbers, before one had an answer.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    told: Vec<(usize, Verdict)>,
    due: Option<Instant>,
}

impl Verdicts {
    pub(super) fn note(&mut self, now: Instant, path: usize, verdict: Verdict) {
        self.told.retain(|(known, _)| *known != path);
        self.told.push((path, verdict));
        self.due.get_or_insert(now + PATIENCE);
    }

    /// Whether a path was told something.
    pub(super) fn has(&self, path: usize) -> bool {
        self.told.iter().any(|(known, _)| *known == path)
    }

    /// When it counts, whatever the other paths may say.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// What counts: the first redirection, or else the first refusal.
    pub(super) fn decide(&self) -> Option<Verdict> {
        let is_elsewhere = |verdict: &&Verdict| matches!(verdict, Verdict::Elsewhere(_));
        let mut told = self.told.iter().map(|(_, verdict)| verdict);
        told.clone().find(is_elsewhere).or_else(|| told.next()).cloned()
    }

    /// One path has the file: what the others were told, which does not count.
    pub(super) fn overrule(&mut self) -> Vec<(usize, Verdict)> {
        self.due = None;
        std::mem::take(&mut self.told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirection_counts_before_a_refusal_and_neither_before_its_time() {
        let elsewhere = Verdict::Elsewhere(Url::parse("http://192.0.2.1/login").unwrap());
        let (mut verdicts, now) = (Verdicts::default(), Instant::now());
        assert_eq!((verdicts.due(), verdicts.decide()), (None, None));
        verdicts.note(now, 1, Verdict::Refused(404));
        verdicts.note(now + PATIENCE, 0, elsewhere.clone());
        assert_eq!((verdicts.due(), verdicts.decide()), (Some(now + PATIENCE), Some(elsewhere)));
        assert!(verdicts.has(0) && verdicts.has(1) && !verdicts.has(2));
        assert_eq!(verdicts.overrule().len(), 2);
        assert_eq!((verdicts.due(), verdicts.decide()), (None, None));
    }
}
