//! What limits and rules name that is not there: they hold for nothing, and nobody would notice. That is no mistake, since interfaces come and go.

use std::sync::{Arc, Mutex, PoisonError};

use polypath_netsetup::abilities::Interfaces;
use polypath_proxy::access::{Rule, UserList};
use polypath_proxy::throttle::{Limit, PathPattern};
use polypath_system::Namespace;

/// Who can be named by rules and limits, and whom rules name.
#[derive(Clone, Debug, Default)]
pub(super) struct Named {
    pub(super) users: Option<Arc<UserList>>,
    pub(super) rules: Vec<Rule>,
    /// Whether certificates name clients, too, of which nobody knows beforehand what they say.
    pub(super) has_certificates: bool,
}

/// As of the file that was read last.
#[derive(Debug, Default)]
pub(super) struct Doubts(Mutex<Named>);

impl Doubts {
    pub(super) fn set(&self, named: Named) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = named;
    }

    /// Of all rules and these limits, a line each. Interfaces are those of now.
    pub(super) fn lines(&self, limits: &[Limit]) -> Vec<String> {
        let named = self.named();
        let interfaces = interfaces(limits);
        let of_rules = named.rules.iter().enumerate().flat_map(|(number, rule)| {
            let missing = rule.users.iter().filter_map(|user| named.missing(user));
            missing.map(move |missing| format!("rules[{number}] fits nobody by this name: {missing}"))
        });
        let of_limits = limits.iter().flat_map(|limit| {
            let missing = named.of_limit(limit, interfaces.as_ref()).into_iter();
            missing.map(|missing| format!("limit {}: {missing}", limit.name))
        });
        of_rules.chain(of_limits).collect()
    }

    /// Of this limit.
    pub(super) fn of(&self, limit: &Limit) -> Vec<String> {
        self.named().of_limit(limit, interfaces(std::slice::from_ref(limit)).as_ref())
    }

    fn named(&self) -> Named {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Those of this machine, if they are asked for and can be read.
fn interfaces(limits: &[Limit]) -> Option<Interfaces> {
    if limits.iter().all(|limit| limit.flows.paths.is_empty()) {
        return None;
    }
    Namespace::current().and_then(|namespace| Interfaces::look(&namespace)).ok()
}

impl Named {
    fn of_limit(&self, limit: &Limit, interfaces: Option<&Interfaces>) -> Vec<String> {
        let users = limit.flows.users.iter().filter_map(|user| self.missing(user));
        let paths = interfaces.into_iter().flat_map(|interfaces| {
            limit.flows.paths.iter().filter_map(|path| missing_path(path, interfaces))
        });
        users.chain(paths).collect()
    }

    fn missing(&self, user: &str) -> Option<String> {
        match &self.users {
            _ if self.has_certificates => None,
            None => Some(format!("there are no users, and none is called {user}")),
            Some(users) => (!users.has(user)).then(|| format!("no user is called {user}")),
        }
    }
}

fn missing_path(path: &PathPattern, interfaces: &Interfaces) -> Option<String> {
    match path {
        // What stays on this machine goes over no path.
        PathPattern::Interface(name) => {
            let mut links = interfaces.all.iter().filter(|link| *link.name == **name);
            let is_there = links.any(|link| link.addresses.iter().any(|at| !at.is_loopback()));
            (!is_there).then(|| format!("no path is over an interface that is called {name} now"))
        }
        PathPattern::Local(network) => {
            let mut addresses = interfaces.all.iter().flat_map(|link| &link.addresses);
            (!addresses.any(|at| network.contains(*at)))
                .then(|| format!("no address of this machine is of {network} now"))
        }
    }
}

#[cfg(test)]
mod tests {
    use polypath_netsetup::abilities::Uplink;
    use polypath_proxy::access::Verdict;

    use super::*;

    #[test]
    fn what_is_not_there_is_told() {
        let wifi = Uplink { name: "wlan0".into(), addresses: vec!["192.168.0.5".parse().unwrap()] };
        let own = Uplink { name: "lo".into(), addresses: vec!["127.0.0.1".parse().unwrap()] };
        let interfaces = Interfaces { all: vec![own, wifi], uplinks: Vec::new() };
        let users = Some(Arc::new(UserList::parse("ann:x").unwrap()));
        let named = Named { users, ..Named::default() };
        let mut limit = Limit::new("a");
        assert_eq!(named.of_limit(&limit, Some(&interfaces)), [""; 0]);
        limit.flows.users = vec!["ann".into(), "bob".into()];
        let paths = ["wlan0", "wwan0", "lo", "192.168.0.0/24", "10.0.0.1"];
        limit.flows.paths = paths.iter().map(|path| path.parse().unwrap()).collect();
        let told = named.of_limit(&limit, Some(&interfaces));
        let expected = [
            "no user is called bob",
            "no path is over an interface that is called wwan0 now",
            "no path is over an interface that is called lo now",
            "no address of this machine is of 10.0.0.1 now",
        ];
        assert_eq!(told, expected);
        assert_eq!(named.of_limit(&limit, None), expected[..1], "of interfaces nothing is known");
        let named = Named { has_certificates: true, ..named };
        assert_eq!(named.of_limit(&limit, None), [""; 0], "a certificate may name anybody");
    }

    #[test]
    fn rules_are_told_by_their_places() {
        let rule = |users: &[&str]| {
            let mut rule = Rule::new(Verdict::Allow);
            rule.users = users.iter().map(|user| (*user).into()).collect();
            rule
        };
        let doubts = Doubts::default();
        doubts.set(Named { rules: vec![rule(&[]), rule(&["ann"])], ..Named::default() });
        let expected = "rules[1] fits nobody by this name: there are no users, and none is called ann";
        assert_eq!(doubts.lines(&[]), [expected]);
    }
}
