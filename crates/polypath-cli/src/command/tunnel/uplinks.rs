//! Which interfaces lead to the peers, and what each is for.

use std::net::SocketAddr;

use polypath_system::SystemState;
use polypath_tunnel::{PathSettings, PeerId};

use super::super::interfaces::Interface;
use super::budgets::{Budget, Budgets};
use super::changes;

/// The interfaces that somebody named.
#[derive(Debug, Default)]
pub(super) struct Uplinks(Vec<Interface>);

/// A path that should be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) interface: String,
    pub(super) link: u32,
    pub(super) remote: SocketAddr,
    pub(super) peer: PeerId,
    pub(super) settings: PathSettings,
}

impl Uplinks {
    pub(super) const fn new(named: Vec<Interface>) -> Self {
        Self(named)
    }

    /// What differs from those of before, in words.
    pub(super) fn differences(&self, before: &Self) -> Vec<String> {
        changes::of_uplinks(&before.0, &self.0)
    }

    fn named(&self, name: &str) -> Option<&Interface> {
        self.0.iter().find(|interface| interface.name == name)
    }

    /// All, if backups alone were named.
    fn takes(&self, name: &str) -> bool {
        self.0.iter().all(|interface| interface.is_backup) || self.named(name).is_some()
    }

    /// What an interface is for now.
    fn settings(&self, name: &str, budgets: &Budgets) -> PathSettings {
        let Some(interface) = self.named(name) else { return PathSettings::default() };
        let is_spent = self.budget_of(name).is_some_and(|budget| budgets.used_bytes(&budget) >= budget.bytes);
        PathSettings {
            backup: interface.is_backup || is_spent,
            priority: interface.preference.priority,
            metered: interface.is_metered,
            closed: is_spent && interface.preference.is_budget_hard,
            ..PathSettings::default()
        }
    }

    pub(super) fn budget_of(&self, name: &str) -> Option<Budget> {
        let interface = self.named(name)?;
        Some(Budget {
            interface: interface.name.clone(),
            bytes: interface.preference.budget_bytes?,
            is_daily: interface.is_budget_daily,
            is_hard: interface.preference.is_budget_hard,
        })
    }

    pub(super) fn budgets(&self) -> impl Iterator<Item = Budget> + '_ {
        self.0.iter().filter_map(|interface| self.budget_of(&interface.name))
    }
}

/// The paths to `endpoints` (address and peer) that the interfaces give, without the tunnel's own device.
pub(super) fn wanted(
    state: &SystemState,
    own: &str,
    (uplinks, budgets): (&Uplinks, &Budgets),
    endpoints: &[(SocketAddr, PeerId)],
) -> Vec<Wanted> {
    let mut wanted = Vec::new();
    for link in &state.links {
        let name = &link.name;
        if link.is_loopback || !link.is_running || name == own || !uplinks.takes(name) {
            continue;
        }
        let settings = uplinks.settings(name, budgets);
        for &(remote, peer) in endpoints {
            let has_address = link.addresses.iter().any(|address| address.is_ipv4() == remote.is_ipv4());
            if has_address && state.leads_to(link.index, remote.ip()) {
                wanted.push(Wanted { interface: name.clone(), link: link.index, remote, peer, settings });
            }
        }
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::super::super::interfaces::parse_interface;
    use super::*;

    fn uplinks(words: &[&str]) -> Uplinks {
        Uplinks::new(words.iter().map(|text| parse_interface(text).unwrap()).collect())
    }

    #[test]
    fn backups_alone_leave_the_others_in_use() {
        let takes = |words: &[&str]| ["eth0", "wwan0"].map(|name| uplinks(words).takes(name));
        assert_eq!(takes(&[]), [true, true]);
        assert_eq!(takes(&["wwan0,backup"]), [true, true]);
        assert_eq!(takes(&["eth0"]), [true, false]);
        assert_eq!(takes(&["eth0", "wwan0,backup"]), [true, true]);
    }

    #[test]
    fn what_is_metered_is_a_backup_that_is_asked_rarely() {
        let uplinks = uplinks(&["wwan0,metered,priority=2"]);
        let settings = uplinks.settings("wwan0", &Budgets::default());
        let expected = PathSettings { backup: true, metered: true, priority: 2, ..PathSettings::default() };
        assert_eq!(settings, expected);
        assert!(uplinks.takes("eth0"), "the others are used");
    }

    #[test]
    fn a_spent_budget_makes_a_backup_or_closes() {
        let uplinks = uplinks(&["eth0,budget=1KB", "wwan0,budget=1KB,hard,priority=3"]);
        let mut budgets = Budgets::default();
        let settings = |budgets: &Budgets| {
            ["eth0", "wwan0"].map(|name| {
                let PathSettings { backup, closed, .. } = uplinks.settings(name, budgets);
                (backup, closed)
            })
        };
        assert_eq!(settings(&budgets), [(false, false); 2]);
        for name in ["eth0", "wwan0"] {
            budgets.add(&uplinks.budget_of(name).unwrap(), 1_000);
        }
        assert_eq!(settings(&budgets), [(true, false), (true, true)]);
    }
}
