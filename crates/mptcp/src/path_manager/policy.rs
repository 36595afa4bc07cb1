use alloc::boxed::Box;
use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

use super::{PathManager, break_before_make, endpoints, fullmesh, make_before_break, ndiffports, none};

/// A path manager by name, with its parameter if it has one: `endpoints`, `ndiffports`, `ndiffports:4`.
///
/// A new one is one file and one line in [`Policy::ALL`].
#[derive(Clone, Copy)]
pub struct Policy {
    /// The name by which users choose it.
    pub name: &'static str,
    /// What its parameter is called, and its value.
    parameter: Option<(&'static str, u8)>,
    build: fn(u8) -> Box<dyn PathManager>,
}

impl Policy {
    /// All policies; the first is the default.
    pub const ALL: &'static [Self] = &[
        Self::new("endpoints", |_| Box::new(endpoints::Endpoints::default())),
        Self::new("fullmesh", |_| Box::new(fullmesh::Fullmesh::default())),
        Self::with_parameter("ndiffports", ("n", 2), |n| Box::new(ndiffports::Ndiffports::new(n))),
        Self::new("make-before-break", |_| Box::new(make_before_break::MakeBeforeBreak::default())),
        Self::new("break-before-make", |_| Box::new(break_before_make::BreakBeforeMake::default())),
        Self::new("none", |_| Box::new(none::None)),
    ];

    /// A policy from outside this crate: `build` makes one instance, for one connection; what it is given has no meaning.
    #[must_use]
    pub const fn new(name: &'static str, build: fn(u8) -> Box<dyn PathManager>) -> Self {
        Self { name, parameter: None, build }
    }

    const fn with_parameter(
        name: &'static str,
        parameter: (&'static str, u8),
        build: fn(u8) -> Box<dyn PathManager>,
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
    pub fn build(self) -> Box<dyn PathManager> {
        (self.build)(self.parameter.map_or(0, |(_, value)| value))
    }
}

/// A name that is no policy's, or a parameter that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPolicy(String);

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no path manager \"{}\"; expected one of ", self.0)?;
        for (number, policy) in Policy::ALL.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{}", policy.name)?;
            if let Some((parameter, value)) = policy.parameter {
                write!(f, "[:{parameter}, 1 to 255, {value} by default]")?;
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
            let value: u8 = value.parse().map_err(|_| unknown())?;
            let (parameter, _) = policy.parameter.ok_or_else(unknown)?;
            if value == 0 {
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
        assert_eq!(Policy::by_name("best"), None);
    }

    #[test]
    fn a_parameter_follows_the_name() {
        let policy: Policy = "ndiffports:4".parse().unwrap();
        assert_eq!(policy.to_string(), "ndiffports:4");
        assert_ne!(Some(policy), Policy::by_name("ndiffports"));
        assert_eq!(Policy::by_name("ndiffports:2"), Policy::by_name("ndiffports"));
        for wrong in ["ndiffports:", "ndiffports:0", "ndiffports:256", "ndiffports:x", "fullmesh:2", ":2"] {
            let message = wrong.parse::<Policy>().unwrap_err().to_string();
            assert!(message.contains(wrong) && message.contains("ndiffports[:n"), "{message}");
        }
    }
}
