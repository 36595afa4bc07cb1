//! Policies by name, with a parameter if they have one: `cubic`, `lowest-rtt-bm:2.5`, `ndiffports:4`.
//!
//! Schedulers, path managers, congestion controls, queues, middleboxes and link impairments are chosen this way. Each of them is a [`Kind`]; one
//! policy of a kind is a [`Named`]; those that can be chosen by name are a [`Registry`], to which a program adds its own:
//!
//! ```
//! # mod polypath { pub use polypath_units as units; }
//! use polypath::units::named::{Kind, Named, NoParameter, Registry};
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
//!
//! // A closure, with what it carries.
//! let measured_bytes = 100_000;
//! known.add(FirstWindow::from_fn("measured", move |_| Box::new(measured_bytes)));
//! assert_eq!(*known.find("measured").unwrap().build_for(&1460), 100_000);
//!
//! // A parameter of any type, whatever the kind's own policies take.
//! known.add(FirstWindow::with_own_parameter("segments", ("count", 4), str::parse::<u64>, |segment, count| {
//!     Box::new(count * u64::from(*segment))
//! }));
//! assert_eq!(*known.find("segments:2").unwrap().build_for(&1460), 2920);
//! assert_eq!(
//!     known.find("segments:few").unwrap_err().to_string(),
//!     "the first window of \"segments:few\" has a wrong parameter: invalid digit found in string; expected segments[:count, 4 by default]"
//! );
//! ```

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::error::Error;
use core::fmt;
use core::marker::PhantomData;
use core::str::FromStr;

/// What policies of one kind have in common.
pub trait Kind: fmt::Debug + Sized + 'static {
    /// What a policy makes.
    type Instance: ?Sized + 'static;
    /// What it is made for: a subflow's first numbers, a seed, nothing.
    type Given: ?Sized + 'static;
    /// What ours may be told after their names; [`NoParameter`] if none may. Others may have
    /// [another](Named::with_own_parameter).
    type Parameter: Copy + Default + PartialEq + fmt::Display + FromStr + 'static;

    /// What such a policy is called.
    const WHAT: &'static str;
    /// Ours.
    const ALL: &'static [Named<Self>];
    /// The one that is taken where none is named.
    const DEFAULT: &'static Named<Self> = &Self::ALL[0];
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

/// A policy by name. A few words, cheap to clone.
pub struct Named<K: Kind> {
    name: &'static str,
    build: Build<K>,
}

enum Build<K: Kind> {
    Plain(fn(&K::Given) -> Box<K::Instance>),
    Told { told: Told<K>, value: K::Parameter, build: BuildWith<K> },
    Closure(Closure<K>),
    Own { told: Arc<OwnTold<K>>, value: OwnValue<K> },
}

/// What a policy may be told after its name.
struct Told<K: Kind> {
    label: &'static str,
    default: K::Parameter,
    sensible: &'static str,
    is_sensible: fn(K::Parameter) -> bool,
}

type BuildWith<K> = fn(&<K as Kind>::Given, <K as Kind>::Parameter) -> Box<<K as Kind>::Instance>;

type Closure<K> = Arc<dyn Fn(&<K as Kind>::Given) -> Box<<K as Kind>::Instance> + Send + Sync>;

/// What a policy may be told whose parameter is of a type of its own.
struct OwnTold<K: Kind> {
    label: &'static str,
    default: Arc<str>,
    read: Reader<K>,
}

type Reader<K> = Box<dyn Fn(&str) -> Result<OwnValue<K>, ParameterError> + Send + Sync>;

/// A parameter as it is written, and what makes a policy with it.
struct OwnValue<K: Kind> {
    text: Arc<str>,
    build: Closure<K>,
}

/// What a policy says of a parameter that it can't read.
type ParameterError = Arc<dyn Error + Send + Sync>;

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

    /// A policy that a closure makes, which may carry what it needs.
    #[must_use]
    pub fn from_fn(
        name: &'static str,
        build: impl Fn(&K::Given) -> Box<K::Instance> + Send + Sync + 'static,
    ) -> Self {
        Self { name, build: Build::Closure(Arc::new(build)) }
    }

    /// A policy with a parameter of a type of its own: what that is called, and its default; how it is read; and what makes an instance
    /// with it.
    ///
    /// `read` gets what stands behind the colon. It says in its error what is wrong, before anything is built. Parameters that are
    /// written alike are equal.
    #[must_use]
    pub fn with_own_parameter<P, E>(
        name: &'static str,
        (label, default): (&'static str, P),
        read: impl Fn(&str) -> Result<P, E> + Send + Sync + 'static,
        build: impl Fn(&K::Given, &P) -> Box<K::Instance> + Send + Sync + 'static,
    ) -> Self
    where
        P: fmt::Display + Send + Sync + 'static,
        E: Error + Send + Sync + 'static,
    {
        let build = Arc::new(build);
        let told = move |parameter: P| {
            let (text, build) = (Arc::from(parameter.to_string()), Arc::clone(&build));
            OwnValue { text, build: Arc::new(move |given: &K::Given| build(given, &parameter)) }
        };
        let value = told(default);
        let default = Arc::clone(&value.text);
        let read = Box::new(move |text: &str| match read(text) {
            Ok(parameter) => Ok(told(parameter)),
            Err(error) => Err(Arc::new(error) as ParameterError),
        });
        Self { name, build: Build::Own { told: Arc::new(OwnTold { label, default, read }), value } }
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
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// A new instance for what it is given.
    #[must_use]
    pub fn build_for(&self, given: &K::Given) -> Box<K::Instance> {
        match &self.build {
            Build::Plain(build) => build(given),
            Build::Told { value, build, .. } => build(given, *value),
            Build::Closure(build) => build(given),
            Build::Own { value, .. } => (value.build)(given),
        }
    }

    /// The same policy with what was written after the colon.
    fn told(&self, text: &str) -> Result<Self, (PolicyMistake, Option<ParameterError>)> {
        let build = match &self.build {
            Build::Plain(_) | Build::Closure(_) => return Err((PolicyMistake::NoParameter, None)),
            Build::Told { told, build, .. } => {
                let value = text.parse().ok().filter(|value| (told.is_sensible)(*value));
                let value = value.ok_or((PolicyMistake::Parameter, None))?;
                Build::Told { told: *told, value, build: *build }
            }
            Build::Own { told, .. } => {
                let value = (told.read)(text).map_err(|error| (PolicyMistake::Parameter, Some(error)))?;
                Build::Own { told: Arc::clone(told), value }
            }
        };
        Ok(Self { name: self.name, build })
    }

    /// How it is written.
    fn usage(&self) -> String {
        match &self.build {
            Build::Plain(_) | Build::Closure(_) => self.name.to_owned(),
            Build::Told { told: Told { label, default, sensible, .. }, .. } => {
                alloc::format!("{}[:{label}, {sensible}, {default} by default]", self.name)
            }
            Build::Own { told, .. } => {
                alloc::format!("{}[:{}, {} by default]", self.name, told.label, told.default)
            }
        }
    }
}

impl<K: Kind<Given = ()>> Named<K> {
    /// A new instance.
    #[must_use]
    pub fn build(&self) -> Box<K::Instance> {
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
    pub fn iter(&self) -> impl Iterator<Item = &Named<K>> {
        let is_replaced =
            |ours: &Named<K>| self.added.iter().any(|added| added.name.eq_ignore_ascii_case(ours.name));
        K::ALL.iter().filter(move |ours| !is_replaced(ours)).chain(&self.added)
    }

    /// The policy of this name; a parameter may follow after a colon. Upper and lower case are the same. The error lists the names.
    pub fn find(&self, text: &str) -> Result<Named<K>, UnknownPolicy<K>> {
        let (name, told) = text.split_once(':').map_or((text, None), |(name, told)| (name, Some(told)));
        let refuse = |mistake, error, expected| UnknownPolicy {
            text: text.to_owned(),
            mistake,
            error,
            expected,
            kind: PhantomData::<K>,
        };
        let Some(found) = self.iter().find(|policy| policy.name.eq_ignore_ascii_case(name)) else {
            let names: Vec<String> = self.iter().map(|policy| policy.usage()).collect();
            return Err(refuse(PolicyMistake::Name, None, names.join(", ")));
        };
        let Some(told) = told else { return Ok(found.clone()) };
        found.told(told).map_err(|(mistake, error)| refuse(mistake, error, found.usage()))
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
#[derive(Clone, Debug)]
pub struct UnknownPolicy<K> {
    text: String,
    mistake: PolicyMistake,
    error: Option<ParameterError>,
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

    /// What the policy itself says of its parameter, if that is of a type of its own.
    #[must_use]
    pub fn parameter_error(&self) -> Option<&(dyn Error + 'static)> {
        self.error.as_deref().map(|error| error as _)
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
                write!(f, "the {} of \"{text}\" has a wrong parameter", K::WHAT)?;
                // One line, whatever it is that others say.
                let said = self.error.as_ref().map(ToString::to_string);
                if let Some(line) = said.as_deref().and_then(|said| said.lines().next()) {
                    write!(f, ": {line}")?;
                }
                write!(f, "; expected {expected}")
            }
        }
    }
}

impl<K> PartialEq for UnknownPolicy<K> {
    /// What the policy said follows from the rest.
    fn eq(&self, other: &Self) -> bool {
        (&self.text, self.mistake, &self.expected) == (&other.text, other.mistake, &other.expected)
    }
}

impl<K> Eq for UnknownPolicy<K> {}

impl<K: Kind> Error for UnknownPolicy<K> {}

impl<K: Kind> FromStr for Named<K> {
    type Err = UnknownPolicy<K>;

    /// One of ours.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Registry::default().find(text)
    }
}

impl<K: Kind> Default for Named<K> {
    fn default() -> Self {
        K::DEFAULT.clone()
    }
}

impl<K: Kind> fmt::Display for Named<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        match &self.build {
            Build::Told { value, told, .. } if *value != told.default => write!(f, ":{value}"),
            Build::Own { value, told } if value.text != told.default => write!(f, ":{}", value.text),
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
        let build = match &self.build {
            Build::Plain(build) => Build::Plain(*build),
            Build::Told { told, value, build } => Build::Told { told: *told, value: *value, build: *build },
            Build::Closure(build) => Build::Closure(Arc::clone(build)),
            Build::Own { told, value: OwnValue { text, build } } => {
                let value = OwnValue { text: Arc::clone(text), build: Arc::clone(build) };
                Build::Own { told: Arc::clone(told), value }
            }
        };
        Self { name: self.name, build }
    }
}

impl<K: Kind> Clone for Told<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Kind> Copy for Told<K> {}

impl<K: Kind> PartialEq for Named<K> {
    /// By name and parameter: function addresses say nothing reliable.
    fn eq(&self, other: &Self) -> bool {
        let is_same_parameter = match (&self.build, &other.build) {
            (Build::Told { value, .. }, Build::Told { value: other, .. }) => value == other,
            (Build::Own { value, .. }, Build::Own { value: other, .. }) => value.text == other.text,
            (Build::Plain(_) | Build::Closure(_), Build::Plain(_) | Build::Closure(_)) => true,
            _ => false,
        };
        self.name == other.name && is_same_parameter
    }
}

impl<K: Kind<Parameter: Eq>> Eq for Named<K> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Lengths;

    impl Kind for Lengths {
        type Instance = usize;
        type Given = ();
        type Parameter = NoParameter;
        const WHAT: &'static str = "length";
        const ALL: &'static [Named<Self>] = &[Named::new("none", |_| Box::new(0))];
    }

    /// What such a policy carries, and what it reads: words with a sign between them.
    #[derive(Debug, PartialEq, Eq)]
    struct Words(Vec<String>);

    #[derive(Debug, PartialEq, Eq)]
    struct Empty;

    impl fmt::Display for Empty {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a word is empty\nand more about it")
        }
    }

    impl Error for Empty {}

    impl fmt::Display for Words {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(&self.0.join("+"))
        }
    }

    fn read(text: &str) -> Result<Words, Empty> {
        let words: Vec<String> = text.split('+').map(|word| word.trim().to_owned()).collect();
        if words.contains(&String::new()) { Err(Empty) } else { Ok(Words(words)) }
    }

    fn registry() -> Registry<Lengths> {
        let mut known = Registry::default();
        known.add(Named::with_own_parameter(
            "words",
            ("word+word", Words(Vec::from(["a".to_owned()]))),
            read,
            |(), words| Box::new(words.0.iter().map(String::len).sum()),
        ));
        let carried = "carried".to_owned();
        known.add(Named::from_fn("closure", move |()| Box::new(carried.len())));
        known
    }

    #[test]
    fn a_parameter_of_an_own_type_is_read_by_its_policy() {
        let known = registry();
        let words = known.find("words: one+three").unwrap();
        assert_eq!((*words.build(), words.to_string()), (8, "words:one+three".to_owned()));
        let default = known.find("words").unwrap();
        assert_eq!((*default.build(), default.to_string()), (1, "words".to_owned()));
        assert_eq!(known.find("words:a").unwrap(), default);
        assert_eq!(known.find("words:one + three").unwrap(), words);
        assert_ne!(default, words);
        assert_eq!(words.clone(), words);
    }

    #[test]
    fn what_a_policy_says_of_its_parameter_is_passed_on_in_one_line() {
        let error = registry().find("words:").unwrap_err();
        assert_eq!(error.mistake(), PolicyMistake::Parameter);
        assert_eq!(error.parameter_error().and_then(|error| error.downcast_ref()), Some(&Empty));
        assert_eq!(
            error.to_string(),
            "the length of \"words:\" has a wrong parameter: a word is empty; expected words[:word+word, a by default]"
        );
    }

    #[test]
    fn a_closure_carries_what_it_needs_and_takes_no_parameter() {
        let known = registry();
        assert_eq!(*known.find("closure").unwrap().build(), 7);
        let error = known.find("closure:2").unwrap_err();
        assert_eq!((error.mistake(), error.parameter_error().is_none()), (PolicyMistake::NoParameter, true));
        let names = "no length \"closures\"; expected one of none, words[:word+word, a by default], closure";
        assert_eq!(known.find("closures").unwrap_err().to_string(), names);
    }
}
