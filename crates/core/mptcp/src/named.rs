//! Policies by name, with a parameter if they have one: `blest`, `lowest-rtt-bm:2.5`, `ndiffports:4`.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

/// What policies of one kind have in common.
pub trait Kind: fmt::Debug + Sized + 'static {
    /// What a policy makes for each connection.
    type Instance: ?Sized + 'static;
    /// What a policy may be given.
    type Parameter: Copy + Default + PartialEq + fmt::Display + FromStr + 'static;

    /// What such a policy is called.
    const WHAT: &'static str;
    /// Which parameters make sense, in words.
    const SENSIBLE: &'static str;
    /// All policies; the first is the default.
    const ALL: &'static [Named<Self>];

    /// The parameter makes sense.
    fn is_sensible(parameter: Self::Parameter) -> bool;
}

/// A policy by name.
pub struct Named<K: Kind> {
    /// The name by which users choose it.
    pub name: &'static str,
    /// What its parameter is called, and its value.
    parameter: Option<(&'static str, K::Parameter)>,
    build: fn(K::Parameter) -> Box<K::Instance>,
}

impl<K: Kind> Named<K> {
    /// All policies; the first is the default.
    pub const ALL: &'static [Self] = K::ALL;

    /// A policy from outside this crate: `build` makes one instance, for one connection; what it is given has no meaning.
    #[must_use]
    pub const fn new(name: &'static str, build: fn(K::Parameter) -> Box<K::Instance>) -> Self {
        Self { name, parameter: None, build }
    }

    pub(crate) const fn with_parameter(
        name: &'static str,
        parameter: (&'static str, K::Parameter),
        build: fn(K::Parameter) -> Box<K::Instance>,
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
    pub fn build(self) -> Box<K::Instance> {
        (self.build)(self.parameter.map_or_else(K::Parameter::default, |(_, value)| value))
    }
}

/// A name that is no policy's, or a parameter that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPolicy<K> {
    text: String,
    kind: core::marker::PhantomData<K>,
}

impl<K: Kind> fmt::Display for UnknownPolicy<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no {} \"{}\"; expected one of ", K::WHAT, self.text)?;
        for (number, policy) in K::ALL.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{}", policy.name)?;
            if let Some((parameter, value)) = policy.parameter {
                write!(f, "[:{parameter}, {}, {value} by default]", K::SENSIBLE)?;
            }
        }
        Ok(())
    }
}

impl<K: Kind> core::error::Error for UnknownPolicy<K> {}

impl<K: Kind> FromStr for Named<K> {
    type Err = UnknownPolicy<K>;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || UnknownPolicy { text: text.to_string(), kind: core::marker::PhantomData };
        let (name, value) = text.split_once(':').map_or((text, None), |(name, value)| (name, Some(value)));
        let mut policy = K::ALL.iter().copied().find(|policy| policy.name == name).ok_or_else(unknown)?;
        if let Some(value) = value {
            let value: K::Parameter = value.parse().map_err(|_| unknown())?;
            let (parameter, _) = policy.parameter.ok_or_else(unknown)?;
            if !K::is_sensible(value) {
                return Err(unknown());
            }
            policy.parameter = Some((parameter, value));
        }
        Ok(policy)
    }
}

impl<K: Kind> Default for Named<K> {
    fn default() -> Self {
        K::ALL[0]
    }
}

impl<K: Kind> fmt::Display for Named<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        let default = K::ALL.iter().find(|policy| policy.name == self.name).and_then(|p| p.parameter);
        match self.parameter {
            Some((_, value)) if self.parameter != default => write!(f, ":{value}"),
            _ => Ok(()),
        }
    }
}

impl<K: Kind> fmt::Debug for Named<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

// Not derived: that would ask the same of the kind.
impl<K: Kind> Clone for Named<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Kind> Copy for Named<K> {}

impl<K: Kind> PartialEq for Named<K> {
    fn eq(&self, other: &Self) -> bool {
        (self.name, self.parameter) == (other.name, other.parameter)
    }
}
