use alloc::boxed::Box;
use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

use super::{
    Scheduler, backup_aware, blest, default, ecf, lowest_rtt, lowest_rtt_bm, lowest_rtt_rp, redundant,
    round_robin, weighted,
};

/// A scheduler by name, with its parameter if it has one: `blest`, `lowest-rtt-bm`, `lowest-rtt-bm:2.5`.
///
/// A new one is one file and one line in [`Policy::ALL`].
#[derive(Clone, Copy)]
pub struct Policy {
    /// The name by which users choose it.
    pub name: &'static str,
    /// What its parameter is called, and its value.
    parameter: Option<(&'static str, f64)>,
    build: fn(f64) -> Box<dyn Scheduler>,
}

impl Policy {
    /// All policies; the first is the default.
    pub const ALL: &'static [Self] = &[
        Self::new("default", |_| Box::new(default::Default::default())),
        Self::new("lowest-rtt", |_| Box::new(lowest_rtt::LowestRtt)),
        Self::new("lowest-rtt-rp", |_| Box::new(lowest_rtt_rp::LowestRttRp::improved())),
        Self::new("lowest-rtt-rp-first", |_| Box::new(lowest_rtt_rp::LowestRttRp::first_form())),
        Self::with_parameter("lowest-rtt-bm", ("lambda", 3.0), |lambda| {
            Box::new(lowest_rtt_bm::LowestRttBm::new(lambda))
        }),
        Self::new("round-robin", |_| Box::new(round_robin::RoundRobin::default())),
        Self::new("weighted", |_| Box::new(weighted::Weighted::default())),
        Self::new("redundant", |_| Box::new(redundant::Redundant::default())),
        Self::new("blest", |_| Box::new(blest::Blest::default())),
        Self::new("ecf", |_| Box::new(ecf::Ecf::default())),
        Self::new("backup-aware", |_| Box::new(backup_aware::BackupAware)),
    ];

    /// A policy from outside this crate: `build` makes one instance, for one connection; what it is given has no meaning.
    #[must_use]
    pub const fn new(name: &'static str, build: fn(f64) -> Box<dyn Scheduler>) -> Self {
        Self { name, parameter: None, build }
    }

    const fn with_parameter(
        name: &'static str,
        parameter: (&'static str, f64),
        build: fn(f64) -> Box<dyn Scheduler>,
    ) -> Self {
        Self { name, parameter: Some(parameter), build }
    }

    /// The policy of this name; a parameter may follow after a colon.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        name.parse().ok()
    }

    /// A new instance.
    #[must_use]
    pub fn build(self) -> Box<dyn Scheduler> {
        (self.build)(self.parameter.map_or(0.0, |(_, value)| value))
    }
}

/// A name that is no policy's, or a parameter that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPolicy(String);

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no scheduler \"{}\"; expected one of ", self.0)?;
        for (number, policy) in Policy::ALL.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{}", policy.name)?;
            if let Some((parameter, value)) = policy.parameter {
                write!(f, "[:{parameter}, above 0, {value} by default]")?;
            }
        }
        Ok(())
    }
}

impl core::error::Error for UnknownPolicy {}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let unknown = || UnknownPolicy(text.to_string());
        let (name, value) = text.split_once(':').map_or((text, None), |(name, value)| (name, Some(value)));
        let mut policy = Self::ALL.iter().copied().find(|policy| policy.name == name).ok_or_else(unknown)?;
        if let Some(value) = value {
            let value: f64 = value.parse().map_err(|_| unknown())?;
            let (parameter, _) = policy.parameter.ok_or_else(unknown)?;
            if !(value.is_finite() && value > 0.0) {
                return Err(unknown());
            }
            policy.parameter = Some((parameter, value));
        }
        Ok(policy)
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::ALL[0]
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        let default = Self::ALL.iter().find(|policy| policy.name == self.name).and_then(|p| p.parameter);
        match self.parameter {
            Some((_, value)) if self.parameter != default => write!(f, ":{value}"),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        (self.name, self.parameter) == (other.name, other.parameter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_found_by_its_name() {
        for policy in Policy::ALL {
            assert_eq!(Policy::by_name(policy.name), Some(*policy));
            assert_eq!(policy.build().name(), policy.name);
            assert_eq!(policy.to_string(), policy.name);
        }
        assert_eq!(Policy::by_name("fastest"), None);
    }

    #[test]
    fn a_parameter_follows_the_name() {
        let policy: Policy = "lowest-rtt-bm:2.5".parse().unwrap();
        assert_eq!(policy.to_string(), "lowest-rtt-bm:2.5");
        assert_ne!(Some(policy), Policy::by_name("lowest-rtt-bm"));
        assert_eq!(Policy::by_name("lowest-rtt-bm:3"), Policy::by_name("lowest-rtt-bm"));
        for wrong in ["lowest-rtt-bm:", "lowest-rtt-bm:0", "lowest-rtt-bm:x", "lowest-rtt:2", ":3"] {
            let message = wrong.parse::<Policy>().unwrap_err().to_string();
            assert!(message.contains(wrong) && message.contains("lowest-rtt-bm[:lambda"), "{message}");
        }
    }
}
