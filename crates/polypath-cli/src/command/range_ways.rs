//! The interfaces over which a download in ranges goes: those that are there, and those that come while it lasts.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use polypath_fetch::download::{Dial, Pool};
use polypath_fetch::net::{Dialer, Proxy, Tls};
use polypath_netsetup::abilities::Interfaces;
use polypath_system::Namespace;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use url::{Host, Url};

use super::interfaces::Asked;

/// How often it is looked for interfaces that have come.
const LOOK: Duration = Duration::from_secs(1);
/// Backups join when no other interface has had a connection at so many looks in a row.
const LOOKS_WITHOUT: u32 = 3;
/// Nobody has more.
const MOST_WAYS: usize = 64;

/// What connections of a download have in common.
#[derive(Clone)]
pub(super) struct Offer {
    pub(super) tls: Tls,
    pub(super) proxy: Option<Proxy>,
    pub(super) asked: Asked,
    /// Connections for the next file.
    pub(super) pool: Pool,
}

impl Offer {
    fn dialer(&self, interface: Option<&str>) -> Dialer {
        let dialer = Dialer::new(interface, self.tls.clone());
        match &self.proxy {
            Some(proxy) => dialer.with_proxy(proxy.clone()),
            None => dialer,
        }
    }
}

/// What is known of the ways of a download, by their numbers.
#[derive(Debug)]
pub(super) struct Ways {
    shared: Arc<Shared>,
    looking: JoinHandle<()>,
    asked: Asked,
}

#[derive(Debug, Default)]
struct Shared {
    names: Mutex<Vec<String>>,
    connected: AtomicUsize,
}

impl Drop for Ways {
    fn drop(&mut self) {
        self.looking.abort();
    }
}

impl Ways {
    /// Those to the server of a URL. The first are there at once.
    pub(super) async fn to(url: &Url, offer: &Offer) -> (Self, mpsc::Receiver<Arc<dyn Dial>>) {
        let (sender, receiver) = mpsc::channel(MOST_WAYS);
        let shared = Arc::new(Shared::default());
        if offer.proxy.is_none() && is_here(url) {
            shared.add(offer, None, &sender);
            let looking = tokio::spawn(hold(sender));
            return (Self { shared, looking, asked: offer.asked.clone() }, receiver);
        }
        let interfaces = look().await;
        for with_backups in [false, true] {
            let names = wanted(&interfaces, &offer.asked, with_backups);
            if shared.is_empty() {
                names.iter().for_each(|name| shared.add(offer, Some(name), &sender));
            }
        }
        // The system's route may lead over what has a budget.
        if shared.is_empty() && offer.asked.budgets.is_empty() {
            shared.add(offer, None, &sender);
        }
        let looking = tokio::spawn(follow(shared.clone(), offer.clone(), sender));
        (Self { shared, looking, asked: offer.asked.clone() }, receiver)
    }

    /// What people call the way of this number.
    pub(super) fn name(&self, number: usize) -> String {
        self.shared.names().get(number).cloned().unwrap_or_default()
    }

    /// Why there was one way only, over the interface of this name.
    pub(super) fn why_no_other(&self, used: &str) -> String {
        let (_, backups) = self.asked.parted(&[]);
        let is_wanted = |name: &String| {
            self.asked.only.is_empty() || self.asked.only.contains(name) || self.asked.backups.contains(name)
        };
        let mut left_out = self.asked.budgets.iter().map(|budget| &budget.name);
        if let Some(name) = left_out.find(|name| *name != used && is_wanted(name)) {
            return format!("{name} has a budget, which downloads in ranges can't keep, and was left out");
        }
        match backups.into_iter().find(|backup| *backup != used) {
            Some(backup) => format!("{backup} is a backup and was not needed"),
            None if self.asked.only == [used] => format!("only {used} was asked for"),
            None => "there is no second uplink".into(),
        }
    }

    /// One that is for when no other has a connection.
    pub(super) fn backup(&self) -> Option<String> {
        let (_, backups) = self.asked.parted(&[]);
        let has_budget = |name: &&str| self.asked.budgets.iter().any(|budget| budget.name == *name);
        backups.into_iter().find(|name| !has_budget(name)).map(str::to_string)
    }

    /// How many have a connection: backups are for when none has.
    pub(super) fn note_connected(&self, count: usize) {
        self.shared.connected.store(count, Ordering::Relaxed);
    }
}

impl Shared {
    fn names(&self) -> MutexGuard<'_, Vec<String>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_empty(&self) -> bool {
        self.names().is_empty()
    }

    fn has(&self, name: &str) -> bool {
        self.names().iter().any(|known| known == name)
    }

    /// The order of the names is that in which the download gets them.
    fn add(&self, offer: &Offer, interface: Option<&str>, sender: &mpsc::Sender<Arc<dyn Dial>>) {
        let dialer = offer.dialer(interface);
        let mut names = self.names();
        let name = Dial::name(&dialer).to_string();
        if sender.try_send(offer.pool.over(Arc::new(dialer))).is_ok() {
            names.push(name);
        }
    }
}

/// Adds the interfaces that come.
async fn follow(shared: Arc<Shared>, offer: Offer, sender: mpsc::Sender<Arc<dyn Dial>>) {
    let mut without = 0;
    while !sender.is_closed() {
        tokio::time::sleep(LOOK).await;
        without = if shared.connected.load(Ordering::Relaxed) == 0 { without + 1 } else { 0 };
        let names = wanted(&look().await, &offer.asked, without >= LOOKS_WITHOUT);
        for name in names.iter().filter(|name| !shared.has(name)) {
            shared.add(&offer, Some(name), &sender);
        }
    }
}

/// The download is over when nobody could bring it more.
async fn hold(sender: mpsc::Sender<Arc<dyn Dial>>) {
    sender.closed().await;
}

/// Which interfaces are to be used now: of those that somebody named, those too that are yet to come. None with a budget, which nobody
/// would keep.
fn wanted(interfaces: &Interfaces, asked: &Asked, with_backups: bool) -> Vec<String> {
    let uplinks: Vec<&str> = interfaces.uplinks.iter().map(String::as_str).collect();
    let (regular, backups) = asked.parted(&uplinks);
    let backups = backups.into_iter().filter(|_| with_backups);
    let has_budget = |name: &&str| asked.budgets.iter().any(|budget| budget.name == *name);
    regular.into_iter().chain(backups).filter(|name| !has_budget(name)).map(str::to_string).collect()
}

/// What can't be read has no names.
async fn look() -> Interfaces {
    let look = || Namespace::current().and_then(|namespace| Interfaces::look(&namespace));
    tokio::task::spawn_blocking(look).await.ok().and_then(Result::ok).unwrap_or_default()
}

/// No interface leads to this host itself.
pub(super) fn is_here(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(addr)) => IpAddr::V4(addr).is_loopback(),
        Some(Host::Ipv6(addr)) => IpAddr::V6(addr).to_canonical().is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::interfaces::Budget;
    use super::*;

    #[test]
    fn uplinks_are_used_unless_others_are_named() {
        let uplinks = vec!["wlan0".to_string(), "wwan0".to_string()];
        let there = Interfaces { all: Vec::new(), uplinks };
        let asked = |only: &[&str], backups: &[&str]| Asked {
            only: only.iter().map(ToString::to_string).collect(),
            backups: backups.iter().map(ToString::to_string).collect(),
            ..Asked::default()
        };
        assert_eq!(wanted(&there, &asked(&[], &[]), false), ["wlan0", "wwan0"]);
        assert_eq!(wanted(&there, &asked(&["lan0", "usb0"], &[]), false), ["lan0", "usb0"]);
        assert_eq!(wanted(&there, &asked(&[], &["wwan0"]), false), ["wlan0"]);
        assert_eq!(wanted(&there, &asked(&[], &["wwan0"]), true), ["wlan0", "wwan0"]);
        let budget = Budget { name: "wwan0".into(), bytes: 1, is_hard: true };
        let with_budget = Asked { budgets: vec![budget], ..asked(&[], &["wwan0"]) };
        assert_eq!(wanted(&there, &with_budget, true), ["wlan0"]);
    }

    #[test]
    fn this_host_is_reached_without_an_interface() {
        for (url, expected) in [
            ("http://127.0.0.1:80/a", true),
            ("http://[::1]/a", true),
            ("http://localhost/a", true),
            ("http://a.localhost/a", true),
            ("http://192.0.2.1/a", false),
            ("http://example.org/a", false),
        ] {
            assert_eq!(is_here(&Url::parse(url).unwrap()), expected, "{url}");
        }
    }
}
