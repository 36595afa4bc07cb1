//! What is forwarded because of us, and so must be limited to what is ours.

use polypath_system::sysctl::{FORWARD_V6, forwarding_link};

use super::action::Action;
use super::rule::{Match, Rule, Then};

/// Interfaces by which the system forwards because of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Limits {
    /// Those by which IPv4 comes.
    pub(super) v4: Vec<String>,
    /// Those by which IPv6 comes.
    pub(super) v6: Vec<String>,
    /// IPv6 comes by any of them.
    pub(super) is_all_v6: bool,
}

impl Limits {
    /// What follows from the variables that were set. `is_router` says whether the system forwards a family's packets, IPv4's
    /// if true, from wherever: somebody else has seen to it then, be it since.
    pub(super) fn of(set: &[Action], is_router: impl Fn(bool) -> bool) -> Self {
        let variables = || set.iter().filter_map(Action::variable);
        let links = |is_v4: bool| -> Vec<String> {
            let own = variables().filter_map(forwarding_link).filter(|(_, of_v4)| *of_v4 == is_v4);
            own.map(|(link, _)| link.to_string()).filter(|_| !is_router(is_v4)).collect()
        };
        let is_all_v6 = variables().any(|name| name == FORWARD_V6);
        Self { v4: links(true), v6: links(false), is_all_v6 }
    }

    /// The rules of a chain behind all that decide about our own devices.
    pub(super) fn rules(&self, chain: &'static str) -> Vec<Rule<'_>> {
        if *self == Self::default() {
            return Vec::new();
        }
        let rule = |matches, then| Rule { chain, matches, then };
        // What others have begun behind interfaces of their own, such as bridges of containers, gets its answers, and what they
        // translate comes to them.
        let mut rules =
            vec![rule(vec![Match::Answering], Then::Accept), rule(vec![Match::Translated], Then::Accept)];
        let Self { v4, v6, is_all_v6 } = self;
        for (links, is_v4) in [(v4, true), (v6, false)] {
            let by = |link| rule(vec![Match::In(link), Match::OfV4(is_v4)], Then::Drop);
            rules.extend(links.iter().map(|link| by(link)));
        }
        rules.extend(is_all_v6.then(|| rule(vec![Match::OfV4(false)], Then::Drop)));
        rules
    }
}
