//! Which paths are believed. On one network something else may answer for the server, such as a page that wants a password. So what a path
//! says counts once it said the same as another one of something that both were asked for.
//!
//! The first to be believed is the path that brought the manifest. What it says of a segment is the touchstone: a new path is asked for a byte
//! of that, and is used when its answer fits. Who contradicts is asked again later, after growing pauses.

use polypath_units::{Duration, Instant};
use url::Url;

use crate::answer::{Answer, AskedRange, Extent, Unusable, Version, is_page};
use crate::http1::Head;

/// So long the path that brought the manifest is waited for, where no other was believed yet.
const PATIENCE: Duration = Duration::from_secs(1);
/// A path that is not believed is asked again after so long at first, and at most.
const LEAST_PAUSE: Duration = Duration::from_secs(1);
const MOST_PAUSE: Duration = Duration::from_secs(60);

/// What an answer says of the file that a segment is, or is a part of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) version: Version,
    /// Only what was asked for came.
    pub(super) is_part: bool,
    /// A page for people, by its media type.
    is_page: bool,
}

impl Found {
    pub(super) fn read(head: &Head, answer: &Answer) -> Self {
        Self {
            version: answer.version.clone(),
            is_part: answer.extent != Extent::Whole,
            is_page: is_page(head),
        }
    }
}

/// What is known of a file, and who said so.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) url: Url,
    /// A byte that it has.
    pub(super) byte: u64,
    pub(super) found: Found,
    pub(super) by: usize,
}

impl Facts {
    /// What a path is asked for, to see whether it says the same.
    pub(super) fn range(&self) -> AskedRange {
        AskedRange { first: self.byte, last: Some(self.byte) }
    }
}

/// What is to be done with a path that has a connection.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// It is used.
    Use,
    /// It is asked for this first.
    Probe(Box<Facts>),
    /// It waits until another path was believed.
    Wait,
}

/// What is wrong with an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// The path has something else than the server.
    Path(&'static str),
    /// It says something else than this path did.
    Against(usize, Unusable),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    New,
    Believed,
    /// It contradicted so often in a row.
    Out(u32),
}

#[derive(Clone, Debug)]
struct Path {
    standing: Standing,
    has_shown_ranges: bool,
}

/// What is known of paths, by their numbers. It does nothing by itself: time comes in with each call.
#[derive(Clone, Debug)]
pub(super) struct Trust {
    /// Who brought the manifest.
    witness: usize,
    paths: Vec<Path>,
    touchstone: Option<Facts>,
    first_opened: Option<Instant>,
}

impl Trust {
    pub(super) fn new(witness: usize) -> Self {
        Self { witness, paths: Vec::new(), touchstone: None, first_opened: None }
    }

    pub(super) fn add_path(&mut self) {
        self.paths.push(Path { standing: Standing::New, has_shown_ranges: false });
    }

    /// What is to be done with a path that has a connection.
    pub(super) fn next(&mut self, now: Instant, at: usize) -> Step {
        let opened = *self.first_opened.get_or_insert(now);
        match (self.paths[at].standing, &self.touchstone) {
            (Standing::Believed, _) => return Step::Use,
            // Of a server without ranges nothing is asked but the one answer.
            (_, Some(facts)) if facts.found.is_part => return Step::Probe(Box::new(facts.clone())),
            (_, Some(_)) => {}
            (Standing::New, None) if at == self.witness || now >= opened + PATIENCE => {}
            (Standing::Out(_), None) if !self.is_any_believed() => {}
            (_, None) => return Step::Wait,
        }
        self.paths[at].standing = Standing::Believed;
        Step::Use
    }

    /// Whether an answer fits to what is known, of its file (`known`) and of the server.
    pub(super) fn check(&self, at: usize, known: Option<&Facts>, found: &Found) -> Result<(), Doubt> {
        let is_other_kind = match &self.touchstone {
            Some(facts) => found.is_page && !facts.found.is_page,
            None => found.is_page && self.can_another_say_better(at),
        };
        if is_other_kind {
            return Err(Doubt::Path("a page (text/html) comes in place of the stream"));
        }
        let others = || self.others(at).filter(|path| path.standing == Standing::Believed);
        if !found.is_part && others().any(|path| path.has_shown_ranges) {
            return Err(Doubt::Path("something whole comes where a part was asked for"));
        }
        match known.map(|known| (known.by, known.found.version.check_same(&found.version))) {
            Some((by, Err(cause))) => Err(Doubt::Against(by, cause)),
            _ => Ok(()),
        }
    }

    /// An answer fits.
    pub(super) fn note(&mut self, facts: &Facts) {
        self.paths[facts.by].has_shown_ranges |= facts.found.is_part;
        if self.touchstone.is_none() {
            self.touchstone = Some(facts.clone());
        }
    }

    /// All of a file came, as was said of it.
    pub(super) fn note_complete(&mut self, facts: Facts) {
        self.touchstone = Some(facts);
    }

    /// A path's answer to a probe.
    pub(super) fn check_probe(&self, asked: &Facts, found: &Found) -> Result<(), String> {
        if found.is_page && !asked.found.is_page {
            return Err("a page (text/html) comes in place of the stream".into());
        }
        if !found.is_part {
            return Err("something whole comes where a part was asked for".into());
        }
        asked.found.version.check_same(&found.version).map_err(|cause| cause.to_string())
    }

    pub(super) fn believe(&mut self, at: usize) {
        self.paths[at].standing = Standing::Believed;
    }

    /// It has to show again that it leads to the server.
    pub(super) fn suspect(&mut self, at: usize) {
        if self.touchstone.is_some() && self.paths[at].standing == Standing::Believed && self.paths.len() > 1
        {
            self.paths[at].standing = Standing::New;
        }
    }

    /// It does not lead to the server now. Gives for how long it is left alone.
    pub(super) fn put_out(&mut self, at: usize) -> Duration {
        let times = match self.paths[at].standing {
            Standing::Out(times) => times.saturating_add(1),
            Standing::New | Standing::Believed => 1,
        };
        self.paths[at].standing = Standing::Out(times);
        (LEAST_PAUSE * (1 << (times - 1).min(6))).min(MOST_PAUSE)
    }

    /// Nobody is left to say something.
    pub(super) fn are_all_out(&self) -> bool {
        self.paths.iter().all(|path| matches!(path.standing, Standing::Out(_)))
    }

    /// Of two paths that contradict each other, the one that is not believed; none if both have to show again what they are worth.
    pub(super) fn loser(&self, at: usize, known: &Facts) -> Option<usize> {
        let is_decided = self.touchstone.as_ref().is_some_and(|facts| facts.url != known.url);
        if is_decided {
            return None;
        }
        Some(if at == self.witness { known.by } else { at })
    }

    /// Whether a path that is not this one is believed.
    pub(super) fn is_another_believed(&self, at: usize) -> bool {
        self.others(at).any(|path| path.standing == Standing::Believed)
    }

    fn can_another_say_better(&self, at: usize) -> bool {
        self.others(at).any(|path| !matches!(path.standing, Standing::Out(_)))
    }

    fn is_any_believed(&self) -> bool {
        self.paths.iter().any(|path| path.standing == Standing::Believed)
    }

    fn others(&self, at: usize) -> impl Iterator<Item = &Path> {
        self.paths.iter().enumerate().filter(move |(other, _)| *other != at).map(|(_, path)| path)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::http1::Fields;

    fn found(status: u16, fields: &[(&'static str, &'static str)], asked: AskedRange) -> Found {
        let fields = fields
            .iter()
            .map(|(name, value)| (Bytes::from_static(name.as_bytes()), Bytes::from_static(value.as_bytes())));
        let head = Head::new(status, Fields::new(fields.collect()));
        Found::read(&head, &Answer::read(&head, Some(asked)).expect("an answer"))
    }

    fn facts(by: usize, name: &str) -> Facts {
        let fields = [("Content-Range", "bytes 0-0/9400"), ("ETag", "\"a\""), ("Content-Type", "video/mp2t")];
        let url = Url::parse("http://h.example/").and_then(|base| base.join(name)).expect("a URL");
        Facts { url, byte: 0, found: found(206, &fields, BYTE), by }
    }

    const BYTE: AskedRange = AskedRange { first: 0, last: Some(0) };

    fn at(secs: u64) -> Instant {
        Instant::from_secs(50 + secs)
    }

    fn trust(witness: usize) -> Trust {
        let mut trust = Trust::new(witness);
        trust.add_path();
        trust.add_path();
        trust
    }

    #[test]
    fn a_new_path_shows_that_it_says_the_same_as_the_one_that_brought_the_manifest() {
        let mut trust = trust(1);
        assert!(matches!(trust.next(at(0), 0), Step::Wait));
        assert!(matches!(trust.next(at(0), 1), Step::Use));
        let known = facts(1, "1.ts");
        trust.note(&known);
        let Step::Probe(asked) = trust.next(at(0), 0) else { panic!("no probe") };
        assert_eq!((asked.url.path(), asked.range().to_field()), ("/1.ts", "bytes=0-0".into()));
        let portals: [(u16, &[_]); 3] = [
            (200, &[("Content-Length", "30"), ("Content-Type", "text/HTML; charset=utf-8")]),
            (200, &[("Content-Length", "200000")]),
            (206, &[("Content-Range", "bytes 0-0/2")]),
        ];
        for (status, fields) in portals {
            assert!(trust.check_probe(&asked, &found(status, fields, BYTE)).is_err(), "{fields:?}");
        }
        assert_eq!(trust.check_probe(&asked, &known.found), Ok(()));
        trust.believe(0);
        assert!(matches!(trust.next(at(0), 0), Step::Use));
    }

    #[test]
    fn nobody_waits_for_ever_for_the_path_that_brought_the_manifest() {
        let mut trust = trust(1);
        assert!(matches!(trust.next(at(0), 0), Step::Wait));
        assert!(matches!(trust.next(at(1), 0), Step::Use));
    }

    #[test]
    fn who_contradicts_is_left_alone_for_ever_longer() {
        let mut trust = trust(0);
        trust.next(at(0), 0);
        trust.note(&facts(0, "1.ts"));
        let pauses: Vec<_> = (0..9).map(|_| trust.put_out(1).as_secs_f64()).collect();
        assert_eq!(pauses, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]);
        assert!(!trust.are_all_out());
        trust.believe(1);
        assert_eq!(trust.put_out(1).as_secs_f64(), 1.0);
        trust.put_out(0);
        assert!(trust.are_all_out());
    }

    #[test]
    fn what_does_not_fit_takes_away_a_path_or_makes_both_show_again() {
        let mut trust = trust(0);
        trust.next(at(0), 0);
        let (first, second) = (facts(0, "1.ts"), facts(0, "2.ts"));
        trust.note(&first);
        trust.believe(1);
        let whole = found(200, &[("Content-Length", "9400"), ("ETag", "\"a\"")], BYTE);
        assert!(matches!(trust.check(1, None, &whole), Err(Doubt::Path(_))));
        let other = found(206, &[("Content-Range", "bytes 0-0/9400"), ("ETag", "\"b\"")], BYTE);
        assert!(matches!(trust.check(1, Some(&first), &other), Err(Doubt::Against(0, _))));
        assert_eq!(trust.check(1, Some(&first), &first.found), Ok(()));
        // Before anything else is known, the path that brought the manifest is right.
        assert_eq!((trust.loser(1, &first), trust.loser(0, &facts(1, "1.ts"))), (Some(1), Some(1)));
        assert_eq!(trust.loser(1, &second), None);
        trust.suspect(0);
        trust.suspect(1);
        assert!(
            matches!(trust.next(at(2), 0), Step::Probe(_)) && matches!(trust.next(at(2), 1), Step::Probe(_))
        );
    }

    #[test]
    fn a_page_first_is_no_segment_while_another_path_may_say_better() {
        let mut trust = trust(0);
        let page = found(200, &[("Content-Length", "30"), ("Content-Type", "text/html")], BYTE);
        assert!(matches!(trust.check(0, None, &page), Err(Doubt::Path(_))));
        trust.put_out(1);
        assert_eq!(trust.check(0, None, &page), Ok(()));
    }
}
