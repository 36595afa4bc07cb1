use alloc::boxed::Box;

use super::{PathManager, break_before_make, endpoints, fullmesh, make_before_break, ndiffports, none};
use polypath_units::named::{self, Kind, Named};

/// A path manager by name, with its parameter if it has one: `endpoints`, `ndiffports`, `ndiffports:4`.
///
/// A program makes its own with [`Policy::new`], or with [`Policy::from_fn`] from a closure, which carries what it needs. A new one of
/// ours is one file and one line in [`Policy::ALL`].
pub type Policy = Named<PathManagers>;

/// A name that is no path manager's, or a parameter that makes no sense.
pub type UnknownPolicy = named::UnknownPolicy<PathManagers>;

/// The kind of policy that a path manager is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathManagers;

impl Kind for PathManagers {
    type Instance = dyn PathManager;
    type Given = ();
    type Parameter = u8;

    const WHAT: &'static str = "path manager";
    const ALL: &'static [Policy] = &[
        Policy::new("endpoints", |_| Box::new(endpoints::Endpoints::default())),
        Policy::new("fullmesh", |_| Box::new(fullmesh::Fullmesh::default())),
        Policy::with_parameter("ndiffports", ("n", 2), ("1 to 255", |n| n > 0), |_, n| {
            Box::new(ndiffports::Ndiffports::new(n))
        }),
        Policy::new("make-before-break", |_| Box::new(make_before_break::MakeBeforeBreak::default())),
        Policy::new("break-before-make", |_| Box::new(break_before_make::BreakBeforeMake::default())),
        Policy::new("none", |_| Box::new(none::None)),
    ];
}

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
        assert_eq!(Policy::by_name("best"), None);
    }

    #[test]
    fn a_parameter_follows_the_name() {
        let policy: Policy = "ndiffports:4".parse().unwrap();
        assert_eq!(policy.to_string(), "ndiffports:4");
        assert_ne!(Some(policy), Policy::by_name("ndiffports"));
        assert_eq!(Policy::by_name("ndiffports:2"), Policy::by_name("ndiffports"));
        for wrong in ["", "0", "256", "x", "-1"] {
            let error = alloc::format!("ndiffports:{wrong}").parse::<Policy>().unwrap_err();
            assert_eq!(error.mistake(), PolicyMistake::Parameter);
            assert_eq!(error.expected(), "ndiffports[:n, 1 to 255, 2 by default]");
        }
        let mistake = |wrong: &str| wrong.parse::<Policy>().unwrap_err().mistake();
        assert_eq!(mistake("fullmesh:2"), PolicyMistake::NoParameter);
        assert_eq!(mistake(":2"), PolicyMistake::Name);
    }
}
