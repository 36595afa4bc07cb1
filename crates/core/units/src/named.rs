//! Policies by name, with a parameter if they have one: `cubic`, `lowest-rtt-bm:2.5`, `ndiffports:4`.
//!
//! Schedulers, path managers, congestion controls, middleboxes and queues are chosen this way. Each of them is a [`Kind`]; one policy of a
//! kind is a [`Named`]; those that can be chosen by name are a [`Registry`], to which a program adds its own:
//!
//! ```
//! use polypath_units::named::{Kind, Named, NoParameter, Registry};
//!
//! /// What makes the first window of a connection.
//! #[derive(Debug)]
//! struct FirstWindows;
//! type FirstWindow = Named<FirstWindows>;
//!
//! impl Kind for FirstWindows {
//!     type Instance = u64;
//!     type Given = u32; // bytes of a segment
//!     type Parameter = NoParameter;
//!     const WHAT: &'static str = "first window";
//!     const ALL: &'static [FirstWindow] = &[FirstWindow::new("rfc6928", |segment| Box::new(10 * u64::from(*segment)))];
//! }
//!
//! let mut known = Registry::default();
//! known.add(FirstWindow::new("one", |segment| Box::new(u64::from(*segment))));
//! assert_eq!(*known.find("rfc6928").unwrap().build_for(&1460), 14_600);
//! assert_eq!(*known.find("one").unwrap().build_for(&1460), 1460);
//! assert_eq!(known.find("two").unwrap_err().to_string(), "no first window \"two\"; expected one of rfc6928, one");
//! ```

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use core::str::FromStr;

/// What policies of one kind have in common.
pub trait Kind: fmt::Debug + Sized + 'static {
    /// What a policy makes.
    type Instance: ?Sized + 'static;
    /// What it is made for: a subflow's first numbers, a seed, nothing.
    type Given: ?Sized + 'static;
    /// What a policy may be told after its name; [`NoParameter`] if none of the kind may.
    type Parameter: Copy + Default + PartialEq + fmt::Display + FromStr + 'static;

    /// What such a policy is called.
    const WHAT: &'static str;
    /// Ours.
    const ALL: &'static [Named<Self>];
    /// The one that is taken where none is named.
    const DEFAULT: Named<Self> = Self::ALL[0];
}

/// The parameter of policies that have none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoParameter;

impl fmt::Display for NoParameter {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

impl FromStr for NoParameter {
    type Err = ();

    fn from_str(_: &str) -> Result<Self, ()> {
        Err(())
    }
}

/// A policy by name. A few words; copied freely into every listener and connection.
pub struct Named<K: Kind> {
    name: &'static str,
    build: Build<K>,
}

enum Build<K: Kind> {
    Plain(fn(&K::Given) -> Box<K::Instance>),
    Told { told: Told<K>, value: K::Parameter, build: BuildWith<K> },
}

/// What a policy may be told after its name.
struct Told<K: Kind> {
    label: &'static str,
    default: K::Parameter,
    sensible: &'static str,
    is_sensible: fn(K::Parameter) -> bool,
}

type BuildWith<K> = fn(&<K as Kind>::Given, <K as Kind>::Parameter) -> Box<<K as Kind>::Instance>;

impl<K: Kind> Named<K> {
    /// Ours.
    pub const ALL: &'static [Self] = K::ALL;

    /// A policy of this name; `build` makes one instance.
    #[must_use]
    pub const fn new(name: &'static str, build: fn(&K::Given) -> Box<K::Instance>) -> Self {
        Self { name, build: Build::Plain(build) }
    }

    /// A policy with a parameter: what that is called, and its default; which ones make sense, in words and as a question.
    ///
    /// What is read from text and makes no sense is refused with these words, before anything is built.
    #[must_use]
    pub const fn with_parameter(
        name: &'static str,
        (label, default): (&'static str, K::Parameter),
        (sensible, is_sensible): (&'static str, fn(K::Parameter) -> bool),
        build: BuildWith<K>,
    ) -> Self {
        let told = Told { label, default, sensible, is_sensible };
        Self { name, build: Build::Told { told, value: default, build } }
    }

    /// One of ours by its name; a parameter may follow after a colon. Upper and lower case are the same.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        name.parse().ok()
    }

    /// The names of ours.
    pub fn names() -> impl Iterator<Item = &'static str> {
        K::ALL.iter().map(|policy| policy.name)
    }

    /// The name by which users choose it, in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// A new instance for what it is given.
    #[must_use]
    pub fn build_for(self, given: &K::Given) -> Box<K::Instance> {
        match self.build {
            Build::Plain(build) => build(given),
            Build::Told { value, build, .. } => build(given, value),
        }
    }

    fn parameter(&self) -> Option<K::Parameter> {
        match self.build {
            Build::Plain(_) => None,
            Build::Told { value, .. } => Some(value),
        }
    }

    /// The same policy with what was written after the colon.
    fn told(self, text: &str) -> Result<Self, PolicyMistake> {
        let Build::Told { told, build, .. } = self.build else { return Err(PolicyMistake::NoParameter) };
        let value = text.parse().ok().filter(|value| (told.is_sensible)(*value));
        let value = value.ok_or(PolicyMistake::Parameter)?;
        Ok(Self { name: self.name, build: Build::Told { told, value, build } })
    }

    /// How it is written.
    fn usage(&self) -> String {
        match self.build {
            Build::Plain(_) => self.name.to_owned(),
            Build::Told { told: Told { label, default, sensible, .. }, .. } => {
                alloc::format!("{}[:{label}, {sensible}, {default} by default]", self.name)
            }
        }
    }
}

impl<K: Kind<Given = ()>> Named<K> {
    /// A new instance.
    #[must_use]
    pub fn build(self) -> Box<K::Instance> {
        self.build_for(&())
    }
}

/// The policies of a kind that can be chosen by name: ours, and what a program adds.
pub struct Registry<K: Kind> {
    added: Vec<Named<K>>,
}

impl<K: Kind> Registry<K> {
    /// Adds a policy. One with the name of another takes its place; upper and lower case are the same.
    pub fn add(&mut self, policy: Named<K>) {
        self.added.retain(|known| !known.name.eq_ignore_ascii_case(policy.name));
        self.added.push(policy);
    }

    /// All of them, ours first.
    pub fn iter(&self) -> impl Iterator<Item = Named<K>> {
        let is_replaced =
            |ours: &Named<K>| self.added.iter().any(|added| added.name.eq_ignore_ascii_case(ours.name));
        K::ALL.iter().filter(move |ours| !is_replaced(ours)).chain(&self.added).copied()
    }

    /// The policy of this name; a parameter may follow after a colon. Upper and lower case are the same. The error lists the names.
    pub fn find(&self, text: &str) -> Result<Named<K>, UnknownPolicy<K>> {
        let (name, told) = text.split_once(':').map_or((text, None), |(name, told)| (name, Some(told)));
        let refuse = |mistake, expected| UnknownPolicy {
            text: text.to_owned(),
            mistake,
            expected,
            kind: PhantomData::<K>,
        };
        let Some(found) = self.iter().find(|policy| policy.name.eq_ignore_ascii_case(name)) else {
            let names: Vec<String> = self.iter().map(|policy| policy.usage()).collect();
            return Err(refuse(PolicyMistake::Name, names.join(", ")));
        };
        let Some(told) = told else { return Ok(found) };
        found.told(told).map_err(|mistake| refuse(mistake, found.usage()))
    }
}

impl<K: Kind> Default for Registry<K> {
    /// Ours alone.
    fn default() -> Self {
        Self { added: Vec::new() }
    }
}

impl<K: Kind> Clone for Registry<K> {
    fn clone(&self) -> Self {
        Self { added: self.added.clone() }
    }
}

impl<K: Kind> fmt::Debug for Registry<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A name that is no policy's, or a parameter that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPolicy<K> {
    text: String,
    mistake: PolicyMistake,
    expected: String,
    kind: PhantomData<K>,
}

/// What is wrong with a policy's name or parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyMistake {
    /// No policy has this name.
    Name,
    /// The policy takes no parameter.
    NoParameter,
    /// The policy's parameter can't be read, or makes no sense.
    Parameter,
}

impl<K> UnknownPolicy<K> {
    /// What is wrong.
    #[must_use]
    pub const fn mistake(&self) -> PolicyMistake {
        self.mistake
    }

    /// What would have been right, in words: all names if the name is wrong, else the policy; and which parameters they take.
    #[must_use]
    pub fn expected(&self) -> &str {
        &self.expected
    }
}

impl<K: Kind> fmt::Display for UnknownPolicy<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, expected, .. } = self;
        match self.mistake {
            PolicyMistake::Name => write!(f, "no {} \"{text}\"; expected one of {expected}", K::WHAT),
            PolicyMistake::NoParameter => {
                write!(f, "the {} of \"{text}\" takes no parameter; expected {expected}", K::WHAT)
            }
            PolicyMistake::Parameter => {
                write!(f, "the {} of \"{text}\" has a wrong parameter; expected {expected}", K::WHAT)
            }
        }
    }
}

impl<K: Kind> core::error::Error for UnknownPolicy<K> {}

impl<K: Kind> FromStr for Named<K> {
    type Err = UnknownPolicy<K>;

    /// One of ours.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Registry::default().find(text)
    }
}

impl<K: Kind> Default for Named<K> {
    fn default() -> Self {
        K::DEFAULT
    }
}

impl<K: Kind> fmt::Display for Named<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        match &self.build {
            Build::Told { value, told, .. } if *value != told.default => write!(f, ":{value}"),
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

impl<K: Kind> Clone for Build<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Kind> Copy for Build<K> {}

impl<K: Kind> Clone for Told<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Kind> Copy for Told<K> {}

impl<K: Kind> PartialEq for Named<K> {
    /// By name and parameter: function addresses say nothing reliable.
    fn eq(&self, other: &Self) -> bool {
        (self.name, self.parameter()) == (other.name, other.parameter())
    }
}

impl<K: Kind<Parameter: Eq>> Eq for Named<K> {}
