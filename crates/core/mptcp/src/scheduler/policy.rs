use alloc::boxed::Box;

use super::{
    Scheduler, backup_aware, blest, default, ecf, lowest_rtt, lowest_rtt_bm, lowest_rtt_rp, redundant,
    round_robin, weighted,
};
use polypath_units::named::{self, Kind, Named};

/// A scheduler by name, with its parameter if it has one: `blest`, `lowest-rtt-bm`, `lowest-rtt-bm:2.5`.
///
/// A program makes its own with [`Policy::new`], or with [`Policy::from_fn`] from a closure, which carries what it needs. A new one of
/// ours is one file and one line in [`Policy::ALL`].
pub type Policy = Named<Schedulers>;

/// A name that is no scheduler's, or a parameter that makes no sense.
pub type UnknownPolicy = named::UnknownPolicy<Schedulers>;

/// The kind of policy that a scheduler is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedulers;

impl Kind for Schedulers {
    type Instance = dyn Scheduler;
    type Given = ();
    type Parameter = f64;

    const WHAT: &'static str = "scheduler";
    const ALL: &'static [Policy] = &[
        Policy::new("default", |_| Box::new(default::DefaultScheduler::default())),
        Policy::new("lowest-rtt", |_| Box::new(lowest_rtt::LowestRtt)),
        Policy::new("lowest-rtt-rp", |_| Box::new(lowest_rtt_rp::LowestRttRp::improved())),
        Policy::new("lowest-rtt-rp-first", |_| Box::new(lowest_rtt_rp::LowestRttRp::first_form())),
        Policy::with_parameter("lowest-rtt-bm", ("lambda", 3.0), ABOVE_ZERO, |_, lambda| {
            Box::new(lowest_rtt_bm::LowestRttBm::new(lambda))
        }),
        Policy::new("round-robin", |_| Box::new(round_robin::RoundRobin::default())),
        Policy::new("weighted", |_| Box::new(weighted::Weighted::default())),
        Policy::new("redundant", |_| Box::new(redundant::Redundant::default())),
        Policy::new("blest", |_| Box::new(blest::Blest::default())),
        Policy::new("ecf", |_| Box::new(ecf::Ecf::default())),
        Policy::new("backup-aware", |_| Box::new(backup_aware::BackupAware)),
    ];
}

const ABOVE_ZERO: (&str, fn(f64) -> bool) = ("above 0", |value| value.is_finite() && value > 0.0);

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use polypath_units::named::PolicyMistake;

    use super::*;

    #[test]
    fn every_policy_is_found_by_its_name() {
        for policy in Policy::ALL {
            assert_eq!(Policy::by_name(policy.name()).as_ref(), Some(policy));
            assert_eq!(policy.build().name(), policy.name());
            assert_eq!(policy.to_string(), policy.name());
        }
        assert_eq!(Policy::by_name("fastest"), None);
    }

    #[test]
    fn a_parameter_follows_the_name() {
        let policy: Policy = "lowest-rtt-bm:2.5".parse().unwrap();
        assert_eq!(policy.to_string(), "lowest-rtt-bm:2.5");
        assert_ne!(Some(policy), Policy::by_name("lowest-rtt-bm"));
        assert_eq!(Policy::by_name("lowest-rtt-bm:3"), Policy::by_name("lowest-rtt-bm"));
        for wrong in ["", "0", "-1", "x", "nan", "inf"] {
            let error = alloc::format!("lowest-rtt-bm:{wrong}").parse::<Policy>().unwrap_err();
            assert_eq!(error.mistake(), PolicyMistake::Parameter);
            assert_eq!(error.expected(), "lowest-rtt-bm[:lambda, above 0, 3 by default]");
        }
        let of = |wrong: &str| wrong.parse::<Policy>().unwrap_err();
        let none = "the scheduler of \"lowest-rtt:2\" takes no parameter; expected lowest-rtt";
        assert_eq!(of("lowest-rtt:2").to_string(), none);
        assert_eq!(of(":3").mistake(), PolicyMistake::Name);
        assert!(of(":3").to_string().contains("lowest-rtt-bm[:lambda"));
    }
}
