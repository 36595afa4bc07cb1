use alloc::boxed::Box;

use polypath_units::named::{self, Kind, Named, NoParameter};

use crate::balia::Balia;
use crate::bbr::Bbr;
use crate::bic::Bic;
use crate::controller::{Config, Controller};
use crate::cubic::Cubic;
use crate::htcp::HTcp;
use crate::hybla::Hybla;
use crate::illinois::Illinois;
use crate::lia::Lia;
use crate::lp::Lp;
use crate::olia::Olia;
use crate::reno::Reno;
use crate::scalable::Scalable;
use crate::vegas::Vegas;
use crate::veno::Veno;
use crate::westwood::Westwood;
use crate::wvegas::WVegas;
use crate::yeah::Yeah;

/// A congestion control by name: `reno`, `cubic`, `lia`. [`Named::build_for`] makes one instance, for one subflow.
///
/// A program makes its own with [`Policy::new`], or with [`Policy::from_fn`] from a closure, which carries what it needs. A new one of
/// ours is one file and one line in [`Policy::ALL`].
pub type Policy = Named<Algorithms>;

/// A name that is no congestion control's.
pub type UnknownPolicy = named::UnknownPolicy<Algorithms>;

/// The kind of policy that a congestion control is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Algorithms;

/// The default, of plain TCP and of each subflow.
pub const CUBIC: Policy = Policy::new("cubic", |config| Box::new(Cubic::new(config)));
/// What subflows get by default that share a bottleneck (RFC 6356).
pub const LIA: Policy = Policy::new("lia", |config| Box::new(Lia::new(config)));
/// The textbook algorithm.
pub const RENO: Policy = Policy::new("reno", |config| Box::new(Reno::new(config)));

impl Kind for Algorithms {
    type Instance = dyn Controller;
    type Given = Config;
    type Parameter = NoParameter;

    const WHAT: &'static str = "congestion control";
    const DEFAULT: &'static Policy = &CUBIC;
    const ALL: &'static [Policy] = &[
        RENO,
        CUBIC,
        LIA,
        Policy::new("olia", |config| Box::new(Olia::new(config))),
        Policy::new("balia", |config| Box::new(Balia::new(config))),
        Policy::new("wvegas", |config| Box::new(WVegas::new(config))),
        Policy::new("bbr", |config| Box::new(Bbr::new(config))),
        Policy::new("bic", |config| Box::new(Bic::new(config))),
        Policy::new("htcp", |config| Box::new(HTcp::new(config))),
        Policy::new("hybla", |config| Box::new(Hybla::new(config))),
        Policy::new("illinois", |config| Box::new(Illinois::new(config))),
        Policy::new("lp", |config| Box::new(Lp::new(config))),
        Policy::new("scalable", |config| Box::new(Scalable::new(config))),
        Policy::new("vegas", |config| Box::new(Vegas::new(config))),
        Policy::new("veno", |config| Box::new(Veno::new(config))),
        Policy::new("westwood", |config| Box::new(Westwood::new(config))),
        Policy::new("yeah", |config| Box::new(Yeah::new(config))),
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_builds_the_algorithm_of_that_name() {
        for name in Policy::names() {
            let algorithm = Policy::by_name(name).expect(name);
            assert_eq!(algorithm.name(), name);
            assert_eq!(algorithm.build_for(&Config::default()).name(), name);
            assert_eq!(name, name.to_ascii_lowercase());
        }
        let coupled_and_usual = ["reno", "cubic", "lia", "olia", "balia", "wvegas", "bbr"];
        let of_linux =
            ["bic", "htcp", "hybla", "illinois", "lp", "scalable", "vegas", "veno", "westwood", "yeah"];
        assert!(Policy::names().eq(coupled_and_usual.into_iter().chain(of_linux)));
        assert_eq!(Policy::by_name("CUBIC"), Some(CUBIC));
        assert_eq!(Policy::by_name("nonsense"), None);
    }

    #[test]
    fn a_new_flow_starts_with_the_initial_window_and_no_threshold() {
        for algorithm in Policy::ALL {
            let config = Config { mss_bytes: 1000, initial_window_packets: 4, ..Config::default() };
            let controller = algorithm.build_for(&config);
            assert_eq!(controller.window_bytes(), 4000, "{algorithm}");
            assert_eq!(controller.ssthresh_bytes(), u64::MAX, "{algorithm}");
            assert!(controller.in_slow_start(), "{algorithm}");
            assert_eq!(controller.pacing_rate(), None, "{algorithm}");
        }
    }
}
