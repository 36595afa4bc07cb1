use alloc::boxed::Box;
use core::fmt;

use crate::balia::Balia;
use crate::bbr::Bbr;
use crate::controller::{Config, Controller};
use crate::cubic::Cubic;
use crate::lia::Lia;
use crate::olia::Olia;
use crate::reno::Reno;
use crate::wvegas::WVegas;

/// The algorithm of that name (`reno`, `cubic`, `lia`; case does not matter), or `None`.
#[must_use]
pub fn by_name(name: &str) -> Option<Algorithm> {
    Algorithm::ALL.iter().copied().find(|algorithm| algorithm.name.eq_ignore_ascii_case(name))
}

/// A congestion control algorithm that can be chosen: its name and how to build one instance of it.
///
/// Two words; copied freely into every listener and connection.
#[derive(Clone, Copy)]
pub struct Algorithm {
    name: &'static str,
    build: fn(&Config) -> Box<dyn Controller>,
}

impl Algorithm {
    /// Every algorithm that users can choose by name. A new one is one line here.
    pub const ALL: &'static [Self] = &[
        Self::RENO,
        Self::CUBIC,
        Self::LIA,
        Self::new("olia", |config| Box::new(Olia::new(config))),
        Self::new("balia", |config| Box::new(Balia::new(config))),
        Self::new("wvegas", |config| Box::new(WVegas::new(config))),
        Self::new("bbr", |config| Box::new(Bbr::new(config))),
    ];

    /// The default of a plain TCP connection.
    pub const CUBIC: Self = Self::new("cubic", |config| Box::new(Cubic::new(config)));
    /// The default of a Multipath TCP connection.
    pub const LIA: Self = Self::new("lia", |config| Box::new(Lia::new(config)));
    /// The textbook algorithm.
    pub const RENO: Self = Self::new("reno", |config| Box::new(Reno::new(config)));

    /// An algorithm from outside this crate: `build` makes one instance, for one subflow.
    #[must_use]
    pub const fn new(name: &'static str, build: fn(&Config) -> Box<dyn Controller>) -> Self {
        Self { name, build }
    }

    /// The names that [`by_name`] knows, for help texts and error messages.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().map(|algorithm| algorithm.name)
    }

    /// The name, in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// One instance, for one subflow.
    #[must_use]
    pub fn build(self, config: &Config) -> Box<dyn Controller> {
        (self.build)(config)
    }
}

impl fmt::Debug for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Algorithm").field(&self.name).finish()
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Algorithm {
    /// By name: function addresses say nothing reliable.
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Algorithm {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_builds_the_algorithm_of_that_name() {
        for name in Algorithm::names() {
            let algorithm = by_name(name).expect(name);
            assert_eq!(algorithm.name(), name);
            assert_eq!(algorithm.build(&Config::default()).name(), name);
            assert_eq!(name, name.to_ascii_lowercase());
        }
        assert!(Algorithm::names().eq(["reno", "cubic", "lia", "olia", "balia", "wvegas", "bbr"]));
        assert_eq!(by_name("CUBIC"), Some(Algorithm::CUBIC));
        assert_eq!(by_name("nonsense"), None);
    }

    #[test]
    fn a_new_flow_starts_with_the_initial_window_and_no_threshold() {
        for algorithm in Algorithm::ALL {
            let config = Config { mss_bytes: 1000, initial_window_packets: 4, ..Config::default() };
            let controller = algorithm.build(&config);
            assert_eq!(controller.window_bytes(), 4000, "{algorithm}");
            assert_eq!(controller.ssthresh_bytes(), u64::MAX, "{algorithm}");
            assert!(controller.in_slow_start(), "{algorithm}");
            assert_eq!(controller.pacing_rate(), None, "{algorithm}");
        }
    }
}
