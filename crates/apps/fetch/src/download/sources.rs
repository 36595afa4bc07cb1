//! The places of one file: which of them leads, which ones help, and which are left out. No socket or clock.

use url::Url;

use crate::answer::Version;
use crate::shown::without_user;

/// So many servers are asked at once. Each has a connection over each interface: more of them take from each other what an interface
/// brings.
const MOST_AT_ONCE: usize = 4;

/// A server that answers so often and brings the file no further is of no use.
const MOST_TURNS_IN_VAIN: u32 = 3;

/// Places of one file, by numbers in the order in which they were given. The first one is the one that was asked for.
#[derive(Debug)]
pub(super) struct Sources {
    all: Vec<Source>,
    /// Whose answers say what the file is.
    lead: usize,
    /// One after the other, as pieces of several did not fit together.
    is_one_by_one: bool,
    /// The most that was there at a time.
    most_bytes: u64,
}

#[derive(Debug)]
struct Source {
    url: Url,
    state: State,
    /// What its own answers have in common.
    version: Option<Version>,
    /// Why it is of no use, or was of none when it led.
    cause: Option<String>,
    /// When it led: a number that grows.
    turn: usize,
    /// How often it has answered since there was more than ever, and has added nothing.
    in_vain: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Reserve,
    Engaged,
    /// It can't be reached, or can't answer now. It is asked again only where nobody else is left.
    Away,
    LeftOut,
}

impl Sources {
    pub(super) fn new(first: Url, mirrors: &[Url]) -> Self {
        let mut all: Vec<Source> = Vec::new();
        for url in std::iter::once(&first).chain(mirrors) {
            if all.iter().all(|known| known.url != *url) {
                all.push(Source {
                    url: url.clone(),
                    state: State::Reserve,
                    version: None,
                    cause: None,
                    turn: 0,
                    in_vain: 0,
                });
            }
        }
        all[0].state = State::Engaged;
        Self { all, lead: 0, is_one_by_one: false, most_bytes: 0 }
    }

    /// Begins with another one, of which a part is there.
    pub(super) fn begin_with(&mut self, number: usize) {
        self.all[self.lead].state = State::Reserve;
        self.all[number].state = State::Engaged;
        self.lead = number;
    }

    /// How each is known.
    pub(super) fn names(&self) -> Vec<String> {
        (0..self.all.len()).map(|number| self.name(number)).collect()
    }

    pub(super) const fn lead(&self) -> usize {
        self.lead
    }

    /// Whether the one that was asked for leads.
    pub(super) const fn is_first_lead(&self) -> bool {
        self.lead == 0
    }

    pub(super) fn url(&self, number: usize) -> &Url {
        &self.all[number].url
    }

    /// For messages.
    pub(super) fn name(&self, number: usize) -> String {
        without_user(&self.all[number].url).into()
    }

    /// Whether the file could come from elsewhere than from the one that leads.
    pub(super) fn has_others(&self) -> bool {
        let mut all = self.all.iter().enumerate();
        all.any(|(number, source)| number != self.lead && source.state != State::LeftOut)
    }

    /// One more that is to be asked beside the others, if there is one.
    pub(super) fn engage(&mut self) -> Option<usize> {
        let engaged = self.all.iter().filter(|source| source.state == State::Engaged).count();
        if self.is_one_by_one || engaged >= MOST_AT_ONCE {
            return None;
        }
        let number = self.all.iter().position(|source| source.state == State::Reserve)?;
        self.all[number].state = State::Engaged;
        Some(number)
    }

    /// Those that are asked beside the one that leads.
    pub(super) fn helping(&self) -> impl Iterator<Item = usize> + '_ {
        let helps = |number: &usize| *number != self.lead && self.all[*number].state == State::Engaged;
        (0..self.all.len()).filter(helps)
    }

    /// No more is wanted of it: for good, or until nobody else is left.
    pub(super) fn leave_out(&mut self, number: usize, cause: String, is_for_good: bool) {
        let source = &mut self.all[number];
        source.state = if is_for_good { State::LeftOut } else { State::Away };
        source.cause = Some(cause);
    }

    /// The one that leads has answered, and so much of the file is there now. Servers that take turns without end bring it no further:
    /// true if this one has had its turns.
    pub(super) fn note_turn(&mut self, bytes: u64) -> bool {
        if bytes > self.most_bytes {
            self.most_bytes = bytes;
            self.all.iter_mut().for_each(|source| source.in_vain = 0);
            return false;
        }
        let lead = &mut self.all[self.lead];
        lead.in_vain += 1;
        lead.in_vain >= MOST_TURNS_IN_VAIN
    }

    /// Another one leads, as the one that did is of no use, now or for good: the one whose last turn is the longest ago.
    pub(super) fn give_up_lead(&mut self, cause: String, is_for_good: bool) -> Option<usize> {
        let last_turn = self.all.iter().map(|source| source.turn).max().unwrap_or(0);
        let lead = &mut self.all[self.lead];
        (lead.turn, lead.cause) = (last_turn + 1, Some(cause));
        if is_for_good || lead.state == State::LeftOut {
            lead.state = State::LeftOut;
        }
        for source in &mut self.all {
            if source.state == State::Engaged {
                source.state = State::Reserve;
            }
            source.version = None;
        }
        let there = (0..self.all.len()).filter(|number| self.all[*number].state != State::LeftOut);
        self.lead = there.min_by_key(|number| self.all[*number].turn)?;
        self.all[self.lead].state = State::Engaged;
        Some(self.lead)
    }

    /// Pieces of several did not fit together: they are asked one after the other, each for all.
    pub(super) fn take_one_by_one(&mut self) {
        self.is_one_by_one = true;
    }

    /// Whether one led before, in vain.
    pub(super) fn was_given_up(&self, number: usize) -> bool {
        self.all[number].cause.is_some()
    }

    /// It is known whose pieces were wrong.
    pub(super) fn take_together(&mut self) {
        self.is_one_by_one = false;
    }

    /// Whether the one that leads is left out for good.
    pub(super) fn is_lead_left_out(&self) -> bool {
        self.all[self.lead].state == State::LeftOut
    }

    /// What the answers of one have in common.
    pub(super) fn version(&self, number: usize) -> Option<&Version> {
        self.all[number].version.as_ref()
    }

    pub(super) fn set_version(&mut self, number: usize, version: Version) {
        self.all[number].version = Some(version);
    }

    /// Why each is of no use.
    pub(super) fn causes(&self) -> Vec<String> {
        self.all.iter().filter_map(|source| source.cause.clone()).collect()
    }

    pub(super) fn is_one(&self) -> bool {
        self.all.len() == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(count: usize) -> Sources {
        let url = |number: usize| Url::parse(&format!("http://192.0.2.{number}/")).expect("a URL");
        let mirrors: Vec<Url> = (1..count).chain([1, 0]).map(url).collect();
        Sources::new(url(0), &mirrors)
    }

    #[test]
    fn servers_that_take_turns_bring_it_further_or_have_an_end() {
        let mut sources = sources(2);
        assert!(!sources.note_turn(200));
        let turns = (0..).map(|_| {
            let is_over = sources.note_turn(200);
            sources.give_up_lead("silent".into(), is_over)
        });
        assert_eq!(turns.take_while(Option::is_some).count(), 5, "three of each");
    }

    #[test]
    fn a_few_are_asked_at_once_and_the_next_takes_the_place_of_one_that_is_left_out() {
        let mut sources = sources(6);
        assert_eq!([(); 4].map(|()| sources.engage()), [Some(1), Some(2), Some(3), None]);
        sources.leave_out(2, "404".into(), true);
        assert_eq!([sources.engage(), sources.engage()], [Some(4), None]);
        assert_eq!(sources.helping().collect::<Vec<_>>(), [1, 3, 4]);
        sources.leave_out(1, "it is away".into(), false);
        assert_eq!([sources.engage(), sources.engage()], [Some(5), None]);
        sources.take_one_by_one();
        assert_eq!(sources.give_up_lead("other bytes".into(), true), Some(1));
        assert_eq!((sources.engage(), sources.helping().count()), (None, 0));
    }

    #[test]
    fn one_that_is_silent_has_its_turn_again_and_one_that_has_no_file_has_not() {
        let mut sources = sources(3);
        assert!(sources.has_others());
        assert_eq!(sources.give_up_lead("silent".into(), false), Some(1));
        assert_eq!(sources.give_up_lead("404".into(), true), Some(2));
        assert_eq!(sources.give_up_lead("silent".into(), false), Some(0));
        assert_eq!(sources.give_up_lead("404".into(), true), Some(2));
        assert!(!sources.has_others());
        assert_eq!(sources.give_up_lead("404".into(), true), None);
        assert_eq!(sources.causes().len(), 3);
    }
}
