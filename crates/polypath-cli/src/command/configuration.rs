//! `polypath.toml`: defaults of the engine's options, and rules for programs.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use polypath_config::quantity::{Size, Span};
use polypath_config::{FileError, NoSuchKind, Policies, Source, read, schema};
use polypath_congestion::Algorithms;
use polypath_mptcp::path_manager::PathManagers;
use polypath_mptcp::scheduler::Schedulers;
use polypath_units::named::Kind as _;
use rustix::fs::{Mode, OFlags};
use schemars::JsonSchema;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};

use super::engine_names::{Judge, Kind, parse_announced};
use super::interfaces::{Interface, InterfaceError, parse_budget, parse_interface, refuse_daily};
use super::words::and;
use super::{Failure, complain};

/// Its name in each place.
const NAME: &str = "polypath.toml";
/// More is not read.
const MAX_BYTES: u64 = 1 << 20;

/// An interface: `"wlan0,priority=1"` as on the command line, or a table.
#[derive(Clone, Debug, JsonSchema)]
#[serde(untagged)]
pub(super) enum InterfaceSetting {
    /// As `-I` has it.
    Text(String),
    /// The same in words.
    Table(InterfaceTable),
}

impl InterfaceSetting {
    /// What it means.
    pub(super) fn interface(&self) -> Result<Interface, InterfaceError> {
        let table = match self {
            Self::Text(text) => return parse_interface(text),
            Self::Table(table) => table,
        };
        if table.name.is_empty() {
            return Err(InterfaceError::NoName);
        }
        if table.hard && table.budget.is_none() {
            return Err(InterfaceError::HardWithoutBudget(table.name.clone()));
        }
        let mut interface = Interface::new(&table.name);
        if let Some(text) = &table.budget {
            let (bytes, is_daily) = parse_budget(text)?;
            interface.preference.budget_bytes = Some(bytes);
            interface.is_budget_daily = is_daily;
        }
        interface.is_backup = table.backup || table.metered;
        interface.is_metered = table.metered;
        interface.preference.priority = table.priority;
        interface.preference.is_budget_hard = table.hard;
        Ok(interface)
    }
}

// By hand, since what is wrong in one of several forms would not be told.
impl<'de> Deserialize<'de> for InterfaceSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = InterfaceSetting;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a string such as \"wlan0,priority=1\", or a table with name and any of backup, metered, priority, budget and hard",
                )
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(InterfaceSetting::Text(text.into()))
            }

            fn visit_map<M: de::MapAccess<'de>>(self, map: M) -> Result<Self::Value, M::Error> {
                let table = de::value::MapAccessDeserializer::new(map);
                InterfaceTable::deserialize(table).map(InterfaceSetting::Table)
            }
        }

        deserializer.deserialize_any(Either)
    }
}

/// A number; one that does not fit is told with what was `expected`, in place of its type.
pub(super) fn number<'de, D: Deserializer<'de>, N: TryFrom<i64>>(
    deserializer: D,
    expected: &'static str,
) -> Result<N, D::Error> {
    let number = i64::deserialize(deserializer)?;
    N::try_from(number).map_err(|_| de::Error::invalid_value(de::Unexpected::Signed(number), &expected))
}

fn priority<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u8, D::Error> {
    number(deserializer, "0 to 255, the smaller the better")
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct InterfaceTable {
    /// Its name.
    name: String,
    /// Used only when no other works.
    #[serde(default)]
    backup: bool,
    /// A backup over which each byte costs: tunnels ask rarely whether it works.
    #[serde(default)]
    metered: bool,
    /// The smaller, the more do handovers prefer it.
    #[serde(default, deserialize_with = "priority")]
    priority: u8,
    /// It is a backup once so much went over it.
    // Text, since what is wrong with a quantity in one of several forms would not be told.
    #[schemars(with = "Option<Size>")]
    budget: Option<String>,
    /// With a budget: it is used no more.
    #[serde(default)]
    hard: bool,
}

/// The settings of `[engine]`, and of each of `[[rules]]`.
macro_rules! settings {
    ($(#[$attribute:meta])* $name:ident { $($(#[$first_attribute:meta])* $first:ident: $first_type:ty),* }) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
        struct $name {
            $($(#[$first_attribute])* $first: $first_type,)*
            /// What carries the connections.
            engine: Option<Kind>,
            /// Interfaces to use.
            interfaces: Option<Vec<InterfaceSetting>>,
            /// Which path gets data.
            #[schemars(extend("x-policy" = Schedulers::WHAT))]
            scheduler: Option<String>,
            /// Which paths are opened, and which one takes over.
            #[schemars(extend("x-policy" = PathManagers::WHAT))]
            path_manager: Option<String>,
            /// How each path's rate follows from acknowledgments and losses.
            #[schemars(extend("x-policy" = Algorithms::WHAT))]
            congestion_control: Option<String>,
            /// Whose paths to judge when they send to us.
            judge_paths: Option<Judge>,
            /// Where else peers reach this end: addresses, maybe with ports.
            announce: Option<Vec<String>>,
            /// UDP port at which Polypath ends are reached.
            udp_port: Option<std::num::NonZeroU16>,
            /// Probe a peer that has been silent for so long; "0s" for never.
            keepalive: Option<Span>,
        }

        impl $name {
            fn settings(&self, at: &str, source: Source<'_>, policies: &Policies) -> Result<Settings, FileError> {
                let key = |name: &str| format!("{at}.{name}");
                if let Some(name) = &self.scheduler {
                    source.policy::<Schedulers>(key("scheduler"), name, policies)?;
                }
                if let Some(name) = &self.path_manager {
                    source.policy::<PathManagers>(key("path-manager"), name, policies)?;
                }
                if let Some(name) = &self.congestion_control {
                    source.policy::<Algorithms>(key("congestion-control"), name, policies)?;
                }
                let interfaces = self.interfaces.as_deref();
                let interfaces = interfaces.map(|list| read_interfaces(list, &key("interfaces"), source)).transpose()?;
                let announce = self.announce.as_deref();
                let announce = announce.map(|list| read_announced(list, &key("announce"), source)).transpose()?;
                let keepalive = self.keepalive.as_ref();
                let keepalive = keepalive.map(|span| read_keepalive(span, &key("keepalive"), source)).transpose()?;
                let of_ours = [
                    ("interfaces", self.interfaces.is_some()),
                    ("scheduler", self.scheduler.is_some()),
                    ("path-manager", self.path_manager.is_some()),
                    ("congestion-control", self.congestion_control.is_some()),
                    ("judge-paths", self.judge_paths.is_some()),
                    ("announce", self.announce.is_some()),
                    ("udp-port", self.udp_port.is_some()),
                ];
                let of_ours = of_ours.into_iter().filter(|(_, is_set)| *is_set);
                let origin = |key: String| Origin { file: source.file.into(), line: source.line_of(&key), key };
                let origins = of_ours.map(|(name, _)| (name, origin(key(name))));
                Ok(Settings {
                    origins: origins.collect(),
                    engine: self.engine,
                    interfaces,
                    scheduler: self.scheduler.clone(),
                    path_manager: self.path_manager.clone(),
                    congestion_control: self.congestion_control.clone(),
                    judge_paths: self.judge_paths,
                    announce,
                    udp_port: self.udp_port.map(std::num::NonZeroU16::get),
                    keepalive,
                })
            }
        }
    };
}

settings! {
    /// Defaults of the engine's options.
    EngineTable {}
}

settings! {
    /// What is different for a program of `polypath run` and `polypath preload`.
    RuleTable {
        /// Its name or, with a slash in it, its path; * and ? stand for anything.
        program: String
    }
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct ConfigurationFile {
    /// Defaults of the engine's options.
    engine: EngineTable,
    /// What is different for some programs; of several rules for one, the first that has a setting counts.
    rules: Vec<RuleTable>,
}

/// Where a setting stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) file: String,
    /// Counted from one; none if there is none to point to.
    pub(super) line: Option<usize>,
    pub(super) key: String,
}

impl Origin {
    /// Several of one file: the file and, of each, its key and its line.
    pub(super) fn together(origins: &[&Self]) -> String {
        let [first, .., _] = origins else {
            return origins.first().map_or(String::new(), ToString::to_string);
        };
        let in_words = |origin: &&Self| match origin.line {
            Some(line) => format!("{} (line {line})", origin.key),
            None => origin.key.clone(),
        };
        let settings: Vec<String> = origins.iter().map(in_words).collect();
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        format!("{}: {}", first.file, and(&settings))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.line.map_or(String::new(), |line| format!(":{line}"));
        write!(f, "{}{line}: {}", self.file, self.key)
    }
}

/// What a file says of an engine; what it does not say is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Settings {
    pub(super) engine: Option<Kind>,
    pub(super) interfaces: Option<Vec<Interface>>,
    pub(super) scheduler: Option<String>,
    pub(super) path_manager: Option<String>,
    pub(super) congestion_control: Option<String>,
    pub(super) judge_paths: Option<Judge>,
    pub(super) announce: Option<Vec<(IpAddr, Option<u16>)>>,
    pub(super) udp_port: Option<u16>,
    pub(super) keepalive: Option<u32>,
    /// Where those settings stand that are for our own stack.
    pub(super) origins: BTreeMap<&'static str, Origin>,
}

impl Settings {
    /// With another's for what this one does not say.
    fn or(self, other: &Self) -> Self {
        let other = other.clone();
        Self {
            engine: self.engine.or(other.engine),
            interfaces: self.interfaces.or(other.interfaces),
            scheduler: self.scheduler.or(other.scheduler),
            path_manager: self.path_manager.or(other.path_manager),
            congestion_control: self.congestion_control.or(other.congestion_control),
            judge_paths: self.judge_paths.or(other.judge_paths),
            announce: self.announce.or(other.announce),
            udp_port: self.udp_port.or(other.udp_port),
            keepalive: self.keepalive.or(other.keepalive),
            // A setting has its origin in the same place.
            origins: other.origins.into_iter().chain(self.origins).collect(),
        }
    }
}

/// What one file says.
#[derive(Clone, Debug, Default)]
pub(super) struct Configuration {
    engine: Settings,
    rules: Vec<(glob::Pattern, Settings)>,
}

impl Configuration {
    pub(super) fn parse(file: &str, text: &str, policies: &Policies) -> Result<Self, FileError> {
        let source = Source { file, text };
        let content: ConfigurationFile = read(source)?;
        let engine = content.engine.settings("engine", source, policies)?;
        let rules = (0..).zip(&content.rules).map(|(number, rule)| {
            let at = format!("rules[{number}]");
            if rule.program.is_empty() {
                let key = format!("{at}.program");
                return Err(source
                    .wrong(key, "is missing or empty; expected a program's name or path, such as \"curl\""));
            }
            let pattern = glob::Pattern::new(&rule.program).map_err(|error| {
                source.wrong(
                    format!("{at}.program"),
                    format!(
                        "\"{}\": {error}; expected a name or path in which * and ? stand for anything",
                        rule.program
                    ),
                )
            })?;
            Ok((pattern, rule.settings(&at, source, policies)?))
        });
        Ok(Self { engine, rules: rules.collect::<Result<_, _>>()? })
    }

    fn rules_for<'a>(&'a self, program: &'a Path) -> impl Iterator<Item = &'a Settings> {
        let matching = self.rules.iter().filter(|(pattern, _)| {
            if pattern.as_str().contains('/') {
                return pattern.matches_path(program);
            }
            program.file_name().and_then(OsStr::to_str).is_some_and(|name| pattern.matches(name))
        });
        matching.map(|(_, settings)| settings)
    }
}

/// What files say, the nearest first: of each setting the first one counts, and rules before defaults.
pub(super) fn settings(files: &[Configuration], program: Option<&Path>) -> Settings {
    let rules = files.iter().flat_map(|file| program.into_iter().flat_map(|program| file.rules_for(program)));
    let defaults = files.iter().map(|file| &file.engine);
    rules.chain(defaults).fold(Settings::default(), Settings::or)
}

/// The schema of these files.
pub(super) fn schema_of_files(policies: &Policies) -> Result<serde_json::Value, NoSuchKind> {
    schema::<ConfigurationFile>("Polypath's configuration", policies)
}

/// Reads the files of all places, or the one that was named.
pub(super) fn load(named: Option<&Path>, policies: &Policies) -> Result<Vec<Configuration>, Failure> {
    if let Some(path) = named {
        let wrong = |error: String| Failure::Input(format!("{}: {error}", path.display()));
        let text = text_of(path).map_err(|error| wrong(error.in_words()))?;
        let parsed = Configuration::parse(&path.display().to_string(), &text, policies);
        tracing::info!(file = %path.display(), "configuration read");
        return Ok(vec![parsed.map_err(Failure::input)?]);
    }
    let mut files = Vec::new();
    for path in places() {
        let text = match text_of(&path) {
            Ok(text) => text,
            Err(Unread::Missing) => continue,
            // Another user's home, as after `setpriv`.
            Err(Unread::Io(error)) if error.kind() == io::ErrorKind::PermissionDenied => continue,
            Err(error) => {
                // Whoever put it there shall neither be obeyed nor stop anybody.
                complain(&format!("{}: {}; it is left out", path.display(), error.in_words()));
                continue;
            }
        };
        let parsed = Configuration::parse(&path.display().to_string(), &text, policies);
        files.push(parsed.map_err(Failure::input)?);
        tracing::info!(file = %path.display(), "configuration read");
    }
    Ok(files)
}

/// Where a configuration is looked for, the nearest first.
fn places() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = variable("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
    let home = home.or_else(|| Some(variable("HOME")?.join(".config")));
    let folders =
        [Some(PathBuf::new()), home.map(|home| home.join("polypath")), Some("/etc/polypath".into())];
    folders.into_iter().flatten().map(|folder| folder.join(NAME)).collect()
}

/// Why a file is not read.
enum Unread {
    Missing,
    Refused(String),
    Io(io::Error),
}

impl Unread {
    fn in_words(&self) -> String {
        match self {
            Self::Missing => "no such file; expected a configuration in TOML".into(),
            Self::Refused(problem) => problem.clone(),
            Self::Io(error) => format!("can't be read: {error}"),
        }
    }
}

/// The text of a file that nobody else may have put there or changed.
fn text_of(path: &Path) -> Result<String, Unread> {
    // A pipe holds nobody up, and what lies in somebody's folder leads nowhere else.
    let beside = if path.is_absolute() { OFlags::empty() } else { OFlags::NOFOLLOW };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY | beside;
    let opened = rustix::fs::open(path, flags, Mode::empty()).map(File::from).map_err(io::Error::from);
    let opened = opened.and_then(|file| Ok((file.metadata()?, file)));
    let (found, file) = match opened {
        Ok(opened) => opened,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Err(Unread::Missing);
        }
        Err(error) => return Err(Unread::Io(error)),
    };
    if !found.is_file() {
        return Err(Unread::Refused("no regular file; expected a configuration".into()));
    }
    let me = rustix::process::geteuid().as_raw();
    if let Some(problem) = not_trusted(found.uid(), found.mode() & 0o7777, me) {
        return Err(Unread::Refused(problem));
    }
    if found.len() > MAX_BYTES {
        return Err(Unread::Refused(format!("longer than {MAX_BYTES} bytes; expected a configuration")));
    }
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).map_err(Unread::Io)?;
    Ok(text)
}

/// What is wrong with who may change a file.
fn not_trusted(owner: u32, mode: u32, me: u32) -> Option<String> {
    if owner != 0 && owner != me {
        return Some(format!("belongs to user {owner}; expected root or user {me}"));
    }
    (mode & 0o022 != 0)
        .then(|| format!("others may write it (mode {mode:04o}); expected that nobody else may (chmod go-w)"))
}

fn read_interfaces(
    list: &[InterfaceSetting],
    key: &str,
    source: Source<'_>,
) -> Result<Vec<Interface>, FileError> {
    let mut interfaces = Vec::new();
    for (number, setting) in list.iter().enumerate() {
        let wrong = |error: InterfaceError| source.wrong(format!("{key}[{number}]"), error.to_string());
        let interface = setting.interface().map_err(wrong)?;
        refuse_daily(&interface).map_err(wrong)?;
        interfaces.push(interface);
    }
    Ok(interfaces)
}

fn read_announced(
    list: &[String],
    key: &str,
    source: Source<'_>,
) -> Result<Vec<(IpAddr, Option<u16>)>, FileError> {
    let read = |(number, text): (usize, &String)| {
        parse_announced(text)
            .map_err(|expected| source.wrong(format!("{key}[{number}]"), format!("\"{text}\": {expected}")))
    };
    list.iter().enumerate().map(read).collect()
}

fn read_keepalive(span: &Span, key: &str, source: Source<'_>) -> Result<u32, FileError> {
    let seconds = span.0.as_secs_f64();
    let whole = seconds as u32;
    if f64::from(whole) == seconds && whole <= 32_767 {
        return Ok(whole);
    }
    Err(source.wrong(key, "is no number of whole seconds up to 32767; expected a time such as \"60s\""))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const FILE: &str = r#"
[engine]
engine = "tun"
interfaces = ["wlan0,priority=1", { name = "wwan0", backup = true, budget = "2GB", hard = true }]
scheduler = "redundant"
keepalive = "90s"

[[rules]]
program = "curl"
scheduler = "round-robin"

[[rules]]
program = "/opt/*/bin/*"
engine = "kernel"

[[rules]]
program = "*"
congestion-control = "lia"
"#;

    fn parse(text: &str) -> Result<Configuration, FileError> {
        Configuration::parse("a.toml", text, &Policies::default())
    }

    #[test]
    fn rules_come_before_defaults_and_near_files_before_far_ones() {
        let far = parse(FILE).expect("a configuration");
        let near = parse("[engine]\nkeepalive = \"0s\"\n").expect("a configuration");
        let files = [near, far];
        let of = |program: &str| settings(&files, Some(Path::new(program)));
        let curl = of("curl");
        assert_eq!(
            (curl.scheduler.as_deref(), curl.congestion_control.as_deref()),
            (Some("round-robin"), Some("lia"))
        );
        assert_eq!((curl.engine, curl.keepalive), (Some(Kind::Tun), Some(0)));
        assert_eq!(of("/usr/bin/curl").scheduler.as_deref(), Some("round-robin"));
        assert_eq!(of("/opt/x/bin/y").engine, Some(Kind::Kernel));
        let none = settings(&files, None);
        assert_eq!((none.scheduler.as_deref(), none.congestion_control), (Some("redundant"), None));
        let interfaces = none.interfaces.expect("two");
        assert_eq!(interfaces.len(), 2);
        assert_eq!((interfaces[0].name.as_str(), interfaces[0].preference.priority), ("wlan0", 1));
        assert!(interfaces[1].is_backup && interfaces[1].preference.is_budget_hard);
        assert_eq!(interfaces[1].preference.budget_bytes, Some(2_000_000_000));
    }

    #[test]
    fn mistakes_name_the_file_the_line_the_key_and_what_was_expected() {
        for (from, to, expected) in [
            (
                "scheduler = \"redundant\"",
                "sheduler = \"redundant\"",
                "a.toml:5: engine.sheduler: unknown field `sheduler`, expected one of",
            ),
            (
                "scheduler = \"redundant\"",
                "scheduler = \"best\"",
                "a.toml:5: engine.scheduler: no scheduler \"best\"; expected",
            ),
            (
                "congestion-control = \"lia\"",
                "congestion_control = \"lia\"",
                "a.toml:18: rules[2].congestion_control: keys have hyphens; expected congestion-control",
            ),
            (
                "congestion-control = \"lia\"",
                "path-manager = \"x\"",
                "a.toml:18: rules[2].path-manager: no path manager \"x\"; expected",
            ),
            (
                "\"tun\"",
                "\"quic\"",
                "a.toml:3: engine.engine: unknown variant `quic`, expected one of `auto`",
            ),
            (
                "\"wlan0,priority=1\"",
                "\"wlan0,cost=1\"",
                "a.toml:4: engine.interfaces[0]: \"cost=1\" is unknown; expected NAME",
            ),
            (
                "\"wlan0,priority=1\"",
                "\"wlan0,bakcup\"",
                "a.toml:4: engine.interfaces[0]: \"bakcup\" is unknown; expected NAME",
            ),
            (
                "backup = true",
                "bakcup = true",
                "a.toml:4: engine.interfaces[1].bakcup: unknown field `bakcup`, expected one of `name`, `backup`",
            ),
            (
                "backup = true",
                "backup = \"yes\"",
                "a.toml:4: engine.interfaces[1].backup: invalid type: string \"yes\", expected a boolean",
            ),
            (
                "\"wlan0,priority=1\"",
                "7",
                "a.toml:4: engine.interfaces[0]: invalid type: integer `7`, expected a string such as",
            ),
            (", budget = \"2GB\"", "", "a.toml:4: engine.interfaces[1]: wwan0: hard comes without a budget"),
            (
                "\"2GB\"",
                "\"2 gigs\"",
                "a.toml:4: engine.interfaces[1]: budget: \"2 gigs\" has the unknown unit \"gigs\"; expected a size such as",
            ),
            (
                "\"2GB\"",
                "\"0GB\"",
                "a.toml:4: engine.interfaces[1]: budget: \"0GB\" is zero; expected a size",
            ),
            ("\"90s\"", "\"1.5s\"", "a.toml:6: engine.keepalive: is no number of whole seconds"),
            (
                "keepalive = \"90s\"",
                "announce = [\"eth0\"]",
                "a.toml:6: engine.announce[0]: \"eth0\": expected an address",
            ),
            (
                "program = \"*\"\n",
                "",
                "a.toml:16: rules[2].program: is missing or empty; expected a program's name",
            ),
            ("\"/opt/*/bin/*\"", "\"[\"", "a.toml:13: rules[1].program: \"[\": "),
            (
                "[engine]",
                "[engines]",
                "a.toml:2: engines: unknown field `engines`, expected `engine` or `rules`",
            ),
            ("[engine]", "[engine", "a.toml:2: "),
        ] {
            let error = parse(&FILE.replacen(from, to, 1)).expect_err(to).to_string();
            assert!(error.starts_with(expected) && error.lines().count() == 1, "{to}: {error}");
        }
    }

    #[test]
    fn a_file_that_others_may_change_is_not_trusted() {
        assert_eq!(not_trusted(0, 0o644, 1000), None);
        assert_eq!(not_trusted(1000, 0o600, 1000), None);
        let theirs = not_trusted(1001, 0o644, 1000).expect("refused");
        assert_eq!(theirs, "belongs to user 1001; expected root or user 1000");
        for mode in [0o664, 0o646] {
            assert!(
                not_trusted(1000, mode, 1000).is_some_and(|problem| problem.contains("others may write it"))
            );
        }
    }

    #[test]
    fn a_file_that_was_named_has_to_be_there_and_be_trusted() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("mine.toml");
        let failure = |path: &Path| match load(Some(path), &Policies::default()) {
            Err(Failure::Input(message)) => message,
            _ => panic!("no mistake of the user's"),
        };
        assert!(failure(&path).ends_with("mine.toml: no such file; expected a configuration in TOML"));
        std::fs::write(&path, FILE).expect("a file");
        assert_eq!(load(Some(&path), &Policies::default()).map(|files| files.len()).ok(), Some(1));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).expect("our own file");
        assert!(failure(&path).contains("mine.toml: others may write it (mode 0666); expected"));
        assert!(failure(folder.path()).contains("no regular file"), "a folder");
    }
}
