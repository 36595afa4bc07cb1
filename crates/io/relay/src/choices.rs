//! Choices as a C program or an environment variable writes them: `name=value,name`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use polypath_congestion as congestion;
use polypath_mptcp::{ConnectionConfig, JudgePaths, LiaOnSharedAccess, path_manager, scheduler};
use polypath_netsetup::uplinks::UplinkOptions;
use polypath_netsetup::{DetachedGuardian, GuardianCommand, SetupOptions};
use polypath_stack::UplinkPreference;
use polypath_stack::engine::Keepalive;
use polypath_stack::udp::{UdpOptions, UdpPath};

/// A choice that can't be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{word}': expected {expected}")]
pub struct ChoiceError {
    word: String,
    expected: String,
}

/// What carries a program's connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// The kernel's Multipath TCP.
    #[default]
    Kernel,
    /// The kernel's plain TCP.
    PlainTcp,
    /// Our own stack.
    Relay(Box<RelayChoices>),
    /// The best that the host allows: see [`EngineChoice::decided`].
    Auto {
        /// How our own stack is to be, if it is that.
        ours: Box<RelayChoices>,
        /// Something is wanted that our own stack alone has.
        is_particular: bool,
    },
}

/// What our own stack runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// A TUN device on all uplinks.
    Tun,
    /// UDP datagrams.
    Udp,
}

/// How our own stack is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayChoices {
    /// What it runs on.
    pub driver: Driver,
    interfaces: Vec<String>,
    backups: Vec<String>,
    scheduler: Option<String>,
    congestion: Option<congestion::Policy>,
    path_manager: Option<path_manager::Policy>,
    judge_paths: Option<JudgePaths>,
    announced: Vec<(IpAddr, Option<u16>)>,
    udp_port: Option<u16>,
    is_reachable: bool,
    keepalive: Option<Keepalive>,
    /// How to start the process that takes down what was set up if this one is killed (driver TUN). Default: none.
    pub guardian: Option<GuardianCommand>,
    /// The same for a library, whose program does not notice it. Default: none.
    pub detached_guardian: Option<DetachedGuardian>,
}

const ENGINES: &str = "engine=kernel, engine=tcp, engine=tun, engine=udp or engine=auto";
const SETTINGS: &str = "interface=NAME, backup=NAME, scheduler=NAME, congestion=NAME, path_manager=NAME, judge_paths=NAME, announce=ADDRESS, keepalive=SECONDS, and for engine=udp reachable and udp_port=NUMBER";
/// Those that can be given once.
const SINGLE: [&str; 8] = [
    "engine",
    "scheduler",
    "congestion",
    "path_manager",
    "judge_paths",
    "keepalive",
    "udp_port",
    "reachable",
];
const REPEATED: &str = "each of engine, scheduler, congestion, path_manager, judge_paths, keepalive, udp_port and reachable once";

/// The words of a list, with commas or spaces between.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| character == ',' || character.is_whitespace())
        .filter(|word| !word.is_empty())
}

/// A setting's name and value. The names of the command's options are known too.
fn setting(word: &str) -> (String, Option<&str>) {
    let (key, value) = word.split_once('=').map_or((word, None), |(key, value)| (key, Some(value)));
    let key = key.replace('-', "_");
    (if key == "congestion_control" { "congestion".into() } else { key }, value)
}

fn add_once(names: &mut Vec<String>, word: &str, name: &str) -> Result<(), ChoiceError> {
    if names.iter().any(|known| known == name) {
        return Err(unexpected(word, &format!("each interface once; {name} is named twice")));
    }
    names.push(name.to_string());
    Ok(())
}

fn unexpected(word: &str, expected: &str) -> ChoiceError {
    ChoiceError { word: word.to_string(), expected: expected.to_string() }
}

impl EngineChoice {
    /// Reads `engine=NAME`, which may be left out for the kernel's, and what else belongs to that engine.
    pub fn parse(text: &str) -> Result<Self, ChoiceError> {
        let mut choice = Self::default();
        let mut given = Vec::new();
        for word in words(text) {
            let (key, _) = setting(word);
            if SINGLE.contains(&&*key) && given.contains(&key) {
                return Err(unexpected(word, REPEATED));
            }
            given.push(key);
        }
        // The engine decides which words are allowed, wherever it stands.
        for word in words(text).filter(|word| word.starts_with("engine=")) {
            choice = match word {
                "engine=kernel" => Self::Kernel,
                "engine=tcp" => Self::PlainTcp,
                "engine=tun" => Self::Relay(Box::new(RelayChoices::new(Driver::Tun))),
                "engine=udp" => Self::Relay(Box::new(RelayChoices::new(Driver::Udp))),
                "engine=auto" => {
                    Self::Auto { ours: Box::new(RelayChoices::new(Driver::Tun)), is_particular: false }
                }
                _ => return Err(unexpected(word, ENGINES)),
            };
        }
        for word in words(text).filter(|word| !word.starts_with("engine=")) {
            match &mut choice {
                _ if word == "engine" => return Err(unexpected(word, ENGINES)),
                Self::Relay(choices) => choices.set(word)?,
                Self::Auto { ours, is_particular } => {
                    ours.set(word)?;
                    // Without our own stack, the kernel has its way of that.
                    *is_particular |= setting(word).0 != "keepalive";
                }
                _ if given.iter().any(|key| key == "engine") => {
                    return Err(unexpected(word, "no setting but the engine, for the kernel's engines"));
                }
                _ => return Err(unexpected(word, ENGINES)),
            }
        }
        Ok(choice)
    }
}

impl RelayChoices {
    /// Our stack on all uplinks, with its defaults.
    #[must_use]
    pub fn new(driver: Driver) -> Self {
        Self {
            driver,
            interfaces: Vec::new(),
            backups: Vec::new(),
            scheduler: None,
            congestion: None,
            path_manager: None,
            judge_paths: None,
            announced: Vec::new(),
            udp_port: None,
            is_reachable: false,
            keepalive: None,
            guardian: None,
            detached_guardian: None,
        }
    }

    /// Others can reach it, so that listening makes sense.
    #[must_use]
    pub fn takes_connections(&self) -> bool {
        self.driver == Driver::Tun || self.is_reachable
    }

    /// No interface is named, but for backups.
    pub(super) fn wants_all_uplinks(&self) -> bool {
        self.interfaces.is_empty()
    }

    /// An interface that is to be used always, and only when no other works.
    #[must_use]
    pub fn contradictory_interface(&self) -> Option<&str> {
        self.backups.iter().find(|name| self.interfaces.contains(name)).map(String::as_str)
    }

    fn set(&mut self, word: &str) -> Result<(), ChoiceError> {
        let bad = || unexpected(word, SETTINGS);
        let (key, value) = setting(word);
        match (value.map(|value| (&*key, value)), self.driver) {
            (Some(("interface", name)), _) => add_once(&mut self.interfaces, word, name)?,
            (Some(("backup", name)), _) => add_once(&mut self.backups, word, name)?,
            (Some(("announce", text)), driver) => {
                let with_port = || text.parse::<SocketAddr>().ok().filter(|_| driver == Driver::Tun);
                let announced = match text.parse() {
                    Ok(addr) => Some((addr, None)),
                    Err(_) => with_port().map(|at| (at.ip(), Some(at.port()))),
                };
                let expected = match driver {
                    Driver::Tun => "announce=ADDRESS or announce=ADDRESS:PORT, with an IP address",
                    Driver::Udp => "announce=ADDRESS, an IP address",
                };
                self.announced.push(announced.ok_or_else(|| unexpected(word, expected))?);
            }
            (Some(("scheduler", name)), _) => {
                scheduler_named(name).map_err(|expected| unexpected(word, &expected))?;
                self.scheduler = Some(name.to_string());
            }
            (Some(("congestion", name)), _) => {
                let known = congestion_named(name).map_err(|expected| unexpected(word, &expected))?;
                self.congestion = Some(known);
            }
            (Some(("path_manager", name)), _) => {
                let known = name.parse().map_err(|error: path_manager::UnknownPolicy| {
                    unexpected(word, &format!("one of the path managers {}", error.expected()))
                })?;
                self.path_manager = Some(known);
            }
            (Some(("judge_paths", name)), _) => {
                let known = JudgePaths::by_name(name);
                let expected = "judge_paths=never, judge_paths=foreign or judge_paths=always";
                self.judge_paths = Some(known.ok_or_else(|| unexpected(word, expected))?);
            }
            (Some(("keepalive", text)), _) => {
                let seconds: u32 =
                    text.parse().map_err(|_| unexpected(word, "keepalive=SECONDS, 0 to 4294967295"))?;
                let idle = Duration::from_secs(seconds.into());
                self.keepalive = Some(Keepalive::after(Some(idle).filter(|idle| !idle.is_zero())));
            }
            (Some(("udp_port", port)), Driver::Udp) => {
                let port = port.parse().ok().filter(|port| *port > 0);
                self.udp_port = Some(port.ok_or_else(|| unexpected(word, "udp_port=NUMBER, 1 to 65535"))?);
            }
            (None, Driver::Udp) if key == "reachable" => self.is_reachable = true,
            _ if key == "udp_port" || word == "reachable" => {
                return Err(unexpected(
                    word,
                    "that setting with engine=udp only, as udp_port=NUMBER or reachable",
                ));
            }
            _ => return Err(bad()),
        }
        Ok(())
    }

    fn choose(&self, connection: &mut ConnectionConfig) {
        if let Some(scheduler) = self.scheduler.as_deref().and_then(scheduler::Policy::by_name) {
            connection.scheduler = scheduler;
        }
        if let Some(congestion) = &self.congestion {
            connection.congestion = congestion.clone();
            connection.lia_on_shared_access = LiaOnSharedAccess::Never;
        }
        if let Some(path_manager) = &self.path_manager {
            connection.path_manager = path_manager.clone();
        }
        connection.judge_paths = self.judge_paths.unwrap_or(connection.judge_paths);
        if let Some(keepalive) = self.keepalive {
            keepalive.choose(connection);
        }
    }

    /// The same, as the TUN driver's choices.
    #[must_use]
    pub fn uplinks(&self) -> UplinkOptions {
        let setup = SetupOptions {
            uplinks: self.interfaces.clone(),
            backups: self.backups.clone(),
            guardian: self.guardian.clone(),
            ..SetupOptions::default()
        };
        let announced = self.announced.clone();
        let detached_guardian = self.detached_guardian.clone();
        let mut options = UplinkOptions { setup, announced, detached_guardian, ..UplinkOptions::default() };
        self.choose(&mut options.connection);
        options
    }

    /// The same, as the UDP driver's choices.
    #[must_use]
    pub fn udp(&self) -> UdpOptions {
        let more = self.backups.iter().filter(|name| !self.interfaces.contains(name));
        let path = |name: &String| UdpPath {
            interface: Some(name.clone()),
            is_backup: self.backups.contains(name),
            preference: UplinkPreference::default(),
        };
        let defaults = UdpOptions::default();
        let mut options = UdpOptions {
            // None, or backups only, if no other is named: those of the system are for the caller to choose.
            paths: self.interfaces.iter().chain(more).map(path).collect(),
            is_reachable: self.is_reachable,
            announced: self.announced.iter().map(|(addr, _)| *addr).collect(),
            port: self.udp_port.unwrap_or(defaults.port),
            ..defaults
        };
        self.choose(&mut options.connection);
        options
    }
}

/// The scheduler of a name, or what was expected.
pub fn scheduler_named(name: &str) -> Result<scheduler::Policy, String> {
    name.parse()
        .map_err(|error: scheduler::UnknownPolicy| format!("one of the schedulers {}", error.expected()))
}

/// The congestion control of a name, or what was expected.
pub fn congestion_named(name: &str) -> Result<congestion::Policy, String> {
    name.parse().map_err(|error: congestion::UnknownPolicy| {
        format!("one of the congestion controls {}", error.expected())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_and_their_settings_are_read_in_any_order() {
        assert_eq!(EngineChoice::parse(""), Ok(EngineChoice::Kernel));
        assert_eq!(EngineChoice::parse(" engine=tcp "), Ok(EngineChoice::PlainTcp));
        let choice = EngineChoice::parse("interface=wlan0, engine=udp backup=wwan0,udp-port=7000\treachable");
        let Ok(EngineChoice::Relay(choices)) = choice else { panic!("{choice:?}") };
        let options = choices.udp();
        let paths: Vec<_> =
            options.paths.iter().map(|path| (path.interface.as_deref(), path.is_backup)).collect();
        assert_eq!(paths, [(Some("wlan0"), false), (Some("wwan0"), true)]);
        assert_eq!((options.port, options.is_reachable), (7000, true));
        let text = "engine=tun,congestion-control=lia,announce=192.0.2.1:80,announce=2001:db8::1";
        let Ok(EngineChoice::Relay(choices)) = EngineChoice::parse(text) else {
            panic!("a congestion control that is there")
        };
        let options = choices.uplinks();
        assert_eq!(options.connection.congestion.name(), "lia");
        assert_eq!(options.announced[0], ([192, 0, 2, 1].into(), Some(80)));
        assert_eq!(options.announced[1].1, None);
        let Ok(EngineChoice::Relay(choices)) =
            EngineChoice::parse("path-manager=fullmesh,judge-paths=foreign,engine=udp")
        else {
            panic!("both are there")
        };
        let connection = choices.udp().connection;
        assert_eq!(connection.path_manager.name(), "fullmesh");
        assert_eq!(connection.judge_paths, JudgePaths::Foreign);
    }

    #[test]
    fn what_is_not_understood_is_named_with_what_was_expected() {
        for (text, word, expected) in [
            ("engine=quic", "'engine=quic'", "engine=udp"),
            ("interface=eth0", "'interface=eth0'", "engine=kernel"),
            ("engine=tcp interface=eth0", "'interface=eth0'", "kernel's engines"),
            ("engine", "'engine'", "engine=kernel, engine=tcp"),
            ("engine=udp,interface=wlan0,interface=wlan0", "'interface=wlan0'", "wlan0 is named twice"),
            ("engine=tun,backup=wlan0,backup=wlan0", "'backup=wlan0'", "wlan0 is named twice"),
            ("engine=tun,reachable", "'reachable'", "with engine=udp only"),
            ("engine=udp,engine=tun", "'engine=tun'", "once"),
            ("engine=udp udp_port=7000 udp-port=7001", "'udp-port=7001'", "once"),
            ("engine=udp,udp_port=0", "'udp_port=0'", "1 to 65535"),
            ("engine=udp,keepalive=-1", "'keepalive=-1'", "0 to 4294967295"),
            ("engine=udp,udp_port=99999", "'udp_port=99999'", "udp_port=NUMBER"),
            ("engine=udp,announce=192.0.2.1:80", "'announce=192.0.2.1:80'", "announce=ADDRESS"),
            ("engine=tun,announce=foo", "'announce=foo'", "announce=ADDRESS:PORT, with an IP address"),
            ("engine=udp,path_manager=best", "'path_manager=best'", "path managers endpoints"),
            ("engine=tun,judge_paths=yes", "'judge_paths=yes'", "judge_paths=foreign"),
            ("engine=tun,judge_paths=never,judge-paths=never", "'judge-paths=never'", "once"),
            ("engine=udp,scheduler=best", "'scheduler=best'", "schedulers default"),
            ("engine=udp,congestion=best", "'congestion=best'", "cubic"),
        ] {
            let message = EngineChoice::parse(text).expect_err(text).to_string();
            assert!(message.contains(word) && message.contains(expected), "{message}");
        }
    }
}
