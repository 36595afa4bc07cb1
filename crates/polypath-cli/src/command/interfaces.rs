//! Interfaces on the command line, and what each is for: `-I wlan0,priority=1 -I wwan0,backup,budget=2GB`.

use std::io;

use polypath_config::quantity::{Size, read};
use polypath_stack::UplinkPreference;
use polypath_system::{Namespace, Netlink, SystemState};

/// One interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) is_backup: bool,
    /// A backup, and what goes over it costs: tunnels ask rarely whether it works.
    pub(super) is_metered: bool,
    pub(super) preference: UplinkPreference,
    /// Its budget begins anew each day.
    pub(super) is_budget_daily: bool,
}

/// What one option names: an interface or several, each followed by what is wanted of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InterfaceList(pub(super) Vec<Interface>);

/// Which interfaces somebody named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// Those to use; none for all.
    pub(super) only: Vec<String>,
    /// Backups, whether they are among those or not.
    pub(super) backups: Vec<String>,
    /// What may go over an interface.
    pub(super) budgets: Vec<Budget>,
}

/// Bytes after which an interface is a backup, or is used no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Budget {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) is_hard: bool,
}

impl Asked {
    /// The regular ones and the backups of those that are used, if these are all that there are.
    pub(super) fn parted<'a>(&'a self, uplinks: &[&'a str]) -> (Vec<&'a str>, Vec<&'a str>) {
        let backups: Vec<&str> = self.backups.iter().map(String::as_str).collect();
        let only = self.only.iter().map(String::as_str);
        let used: Vec<&str> = if self.only.is_empty() { uplinks.to_vec() } else { only.collect() };
        (used.into_iter().filter(|name| !backups.contains(name)).collect(), backups)
    }

    /// Without those that are not there; all, if nothing would be left.
    pub(super) fn among(self, links: &[String]) -> Self {
        let is_there = |name: &String| links.contains(name);
        if !self.only.iter().chain(&self.backups).any(is_there) {
            return self;
        }
        let there = |names: Vec<String>| names.into_iter().filter(is_there).collect();
        Self { only: there(self.only), backups: there(self.backups), ..self }
    }
}

const EXPECTED: &str = "expected NAME, then any of backup, metered, priority=0 to 255, budget=SIZE and hard, then maybe another NAME";
const EXPECTED_ONE: &str = "expected NAME, then any of backup, metered, priority=0 to 255, budget=SIZE and hard; another interface is an entry of its own";

/// What is wrong with an interface, as it is named.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InterfaceError {
    #[error("name is empty; expected an interface's")]
    NoName,
    /// Nothing stands where a word should.
    #[error("{}", EXPECTED)]
    NoWord,
    #[error("{}", EXPECTED_ONE)]
    NoWordOfOne,
    #[error("{0:?} comes before the name of an interface; {expected}", expected = EXPECTED)]
    BeforeName(String),
    #[error("{0:?} is unknown; {expected}", expected = EXPECTED)]
    UnknownWord(String),
    /// Where one interface is expected, with its words.
    #[error("{0:?} is unknown; {expected}", expected = EXPECTED_ONE)]
    UnknownWordOfOne(String),
    #[error("priority: {0:?} is no number that fits; expected 0 to 255, the smaller the better")]
    Priority(String),
    /// With what the reader of quantities says.
    #[error("budget: {0}")]
    Budget(String),
    #[error("budget: {0:?} is zero; expected a size such as \"2GB\"")]
    ZeroBudget(String),
    #[error("budget: tunnels keep one for each day; expected a size such as \"2GB\"")]
    DailyBudget,
    #[error("{}: hard comes without a budget; expected both", .0.escape_debug())]
    HardWithoutBudget(String),
}

impl Interface {
    pub(super) fn new(name: &str) -> Self {
        let preference = UplinkPreference::default();
        Self {
            name: name.to_string(),
            is_backup: false,
            is_metered: false,
            preference,
            is_budget_daily: false,
        }
    }

    /// What is wanted of it besides that it is used, such as `backup, budget of wwan0`.
    pub(super) fn wishes(&self) -> Option<String> {
        let UplinkPreference { priority, budget_bytes, .. } = self.preference;
        let wishes =
            [("backup", self.is_backup), ("priority", priority != 0), ("budget", budget_bytes.is_some())];
        let wishes: Vec<&str> =
            wishes.iter().filter(|(_, is_there)| *is_there).map(|(wish, _)| *wish).collect();
        (!wishes.is_empty()).then(|| format!("{} of {}", wishes.join(", "), self.name))
    }
}

/// Names of all interfaces of this host, whatever they are good for.
pub(super) fn links() -> io::Result<Vec<String>> {
    let state = Namespace::current()?.run(|| SystemState::read(&Netlink::new()?))??;
    Ok(state.links.into_iter().map(|link| link.name).collect())
}

/// Bytes that may go over an interface, and whether that is for each day.
pub(super) fn parse_budget(text: &str) -> Result<(u64, bool), InterfaceError> {
    let daily = text.strip_suffix("/day");
    let size = daily.unwrap_or(text);
    match read(size).map_err(|error| InterfaceError::Budget(error.to_string()))? {
        Size(0) => Err(InterfaceError::ZeroBudget(text.to_owned())),
        Size(bytes) => Ok((bytes, daily.is_some())),
    }
}

/// Where budgets are kept only as long as the program runs.
pub(super) fn refuse_daily(interface: &Interface) -> Result<(), InterfaceError> {
    if interface.is_budget_daily { Err(InterfaceError::DailyBudget) } else { Ok(()) }
}

/// Interfaces on the command line, where no budgets are kept by day.
pub(super) fn parse_interfaces(text: &str) -> Result<InterfaceList, InterfaceError> {
    let interfaces = read_words(text)?;
    interfaces
        .iter()
        .try_for_each(|interface| check_hard(interface).and_then(|()| refuse_daily(interface)))?;
    Ok(InterfaceList(interfaces))
}

/// One interface and its words. A word that is none is not taken for the name of another interface.
pub(super) fn parse_interface(text: &str) -> Result<Interface, InterfaceError> {
    let words = read_words(text).map_err(|error| match error {
        InterfaceError::NoWord => InterfaceError::NoWordOfOne,
        InterfaceError::UnknownWord(word) => InterfaceError::UnknownWordOfOne(word),
        other => other,
    });
    let mut interfaces = words?.into_iter();
    let interface = interfaces.next().ok_or(InterfaceError::NoWordOfOne)?;
    if let Some(second) = interfaces.next() {
        return Err(InterfaceError::UnknownWordOfOne(second.name));
    }
    check_hard(&interface)?;
    Ok(interface)
}

/// An interface that has the name of a word can only be named first.
fn read_words(text: &str) -> Result<Vec<Interface>, InterfaceError> {
    let mut interfaces: Vec<Interface> = Vec::new();
    for word in text.split(',') {
        if word.is_empty() {
            return Err(InterfaceError::NoWord);
        }
        let Some(last) = interfaces.last_mut() else {
            if word.contains('=') {
                return Err(InterfaceError::BeforeName(word.to_owned()));
            }
            interfaces.push(Interface::new(word));
            continue;
        };
        match word.split_once('=') {
            None if word == "backup" => last.is_backup = true,
            None if word == "metered" => (last.is_backup, last.is_metered) = (true, true),
            None if word == "hard" => last.preference.is_budget_hard = true,
            None => interfaces.push(Interface::new(word)),
            Some(("priority", value)) => {
                let priority = value.parse().map_err(|_| InterfaceError::Priority(value.to_owned()))?;
                last.preference.priority = priority;
            }
            Some(("budget", value)) => {
                let (bytes, is_daily) = parse_budget(value)?;
                last.preference.budget_bytes = Some(bytes);
                last.is_budget_daily = is_daily;
            }
            Some(_) => return Err(InterfaceError::UnknownWord(word.to_owned())),
        }
    }
    Ok(interfaces)
}

fn check_hard(interface: &Interface) -> Result<(), InterfaceError> {
    let UplinkPreference { is_budget_hard, budget_bytes, .. } = interface.preference;
    if is_budget_hard && budget_bytes.is_none() {
        return Err(InterfaceError::HardWithoutBudget(interface.name.clone()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_belong_to_the_interface_before_them() {
        let preference = |priority, budget_bytes, is_budget_hard| UplinkPreference {
            priority,
            budget_bytes,
            is_budget_hard,
        };
        let interfaces = parse_interfaces("wlan0,eth0,priority=3,wwan0,backup,budget=2GB,hard").unwrap().0;
        let eth = Interface { preference: preference(3, None, false), ..Interface::new("eth0") };
        let (wwan, budget) = (Interface::new("wwan0"), preference(0, Some(2_000_000_000), true));
        let wwan = Interface { is_backup: true, preference: budget, ..wwan };
        assert_eq!(interfaces, [Interface::new("wlan0"), eth, wwan]);
        assert_eq!(parse_interfaces("backup").unwrap().0, [Interface::new("backup")]);
        let metered = Interface { is_backup: true, is_metered: true, ..Interface::new("wwan0") };
        assert_eq!(parse_interfaces("wlan0,wwan0,metered").unwrap().0, [Interface::new("wlan0"), metered]);
        let wishes: Vec<_> = interfaces.iter().map(Interface::wishes).collect();
        assert_eq!(wishes, [None, Some("priority of eth0".into()), Some("backup, budget of wwan0".into())]);
    }

    #[test]
    fn mistakes_say_what_was_expected() {
        for (text, expected) in [
            ("", "expected NAME, then any of backup"),
            ("wlan0,", "expected NAME"),
            ("priority=1", "\"priority=1\" comes before the name of an interface"),
            ("wlan0,priority=256", "priority: \"256\" is no number that fits; expected 0 to 255"),
            ("wlan0,budget=2", "budget: \"2\" has no unit; expected a size such as"),
            ("wlan0,budget=0GB", "budget: \"0GB\" is zero"),
            ("wlan0,budget=2GB/day", "budget: tunnels keep one for each day"),
            ("wlan0,cost=2", "\"cost=2\" is unknown; expected NAME"),
            ("wlan0,hard", "wlan0: hard comes without a budget"),
        ] {
            let message = parse_interfaces(text).unwrap_err().to_string();
            assert!(message.starts_with(expected), "{text}: {message}");
        }
    }

    #[test]
    fn where_one_is_expected_a_word_that_is_none_is_no_second_interface() {
        let unknown = |word: &str| Err(InterfaceError::UnknownWordOfOne(word.into()));
        assert_eq!(parse_interface("ncb,metred"), unknown("metred"));
        assert_eq!(parse_interface("ncb,bakcup,hard"), unknown("bakcup"));
        assert_eq!(parse_interface("ncb,cost=1"), unknown("cost=1"));
        assert_eq!(parse_interface("ncb,"), Err(InterfaceError::NoWordOfOne));
        let metered = Interface { is_backup: true, is_metered: true, ..Interface::new("ncb") };
        assert_eq!(parse_interface("ncb,metered"), Ok(metered));
    }
}
