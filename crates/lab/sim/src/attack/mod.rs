//! Attacks on production hosts in virtual time: what each costs its victims, beside what it may.

mod flood;
mod injection;
mod stage;
mod work;

use serde::Serialize;

/// What one attack came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Attack {
    /// What was tried, and what was counted.
    pub name: &'static str,
    /// The figure is within its bound.
    pub held: bool,
    /// What was counted.
    pub figure: f64,
    /// What it may be.
    pub bound: f64,
    /// Of both.
    pub unit: &'static str,
}

impl Attack {
    /// An attack that holds while its figure is at most `bound`.
    #[must_use]
    pub fn at_most(name: &'static str, unit: &'static str, figure: f64, bound: f64) -> Self {
        Self { name, held: figure <= bound, figure, bound, unit }
    }

    fn did_not_run(name: &'static str) -> Self {
        Self::at_most(name, "the attack did not run", f64::INFINITY, 0.0)
    }
}

/// Attacks that share a run: a name, and what runs them.
pub type Group = (&'static str, fn() -> Vec<Attack>);

/// All groups.
pub const GROUPS: [Group; 7] = [
    ("a million SYNs a second", flood::syns),
    ("a million joins a second", flood::joins),
    ("a million stray acknowledgments", flood::strays),
    ("addresses that cannot be right", flood::announcements),
    ("forged segments into idle hosts", injection::into_idle_hosts),
    ("forged segments outside of the window", injection::off_path),
    ("64 MB outstanding", work::at_64_mb),
];

/// Runs `groups`; `before` is told the name of each.
#[must_use]
pub fn run(groups: &[Group], mut before: impl FnMut(&'static str)) -> Vec<Attack> {
    let mut attacks = Vec::new();
    for (name, run) in groups {
        before(name);
        attacks.extend(run());
    }
    attacks
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_attack_is_held() {
        let attacks = super::run(&super::GROUPS, |_| {});
        let open: Vec<_> = attacks.iter().filter(|attack| !attack.held).collect();
        assert!(open.is_empty(), "{open:#?}");
        assert!(attacks.len() >= 13);
    }

    /// The same from somebody who may do more does harm: the figures of the others mean something.
    #[test]
    fn the_attacks_have_teeth() {
        assert!(super::flood::packets_to_announced(&[[192, 0, 2, 77]]).is_some_and(|packets| packets > 0));
        assert!((0..20).any(|seed| !super::injection::survives(seed, super::injection::ON_PATH)));
    }
}
