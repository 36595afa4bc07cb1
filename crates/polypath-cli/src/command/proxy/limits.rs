//! The limits of a running proxy: those of its file, and those that were set since.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use polypath_proxy::net::{LimitRefused, Proxy};
use polypath_proxy::throttle::Limit;

use super::doubts::Doubts;
use super::throttle::{Change, ThrottleText};

/// Each by its name, as it was written.
#[derive(Debug)]
pub(super) struct Limits {
    /// Whether clients are met with the engine, whose paths limits are of.
    are_of_clients: bool,
    set: Mutex<BTreeMap<String, Written>>,
}

#[derive(Clone, Debug)]
struct Written {
    text: ThrottleText,
    is_of_file: bool,
}

/// Whether a proxy can have such limits.
pub(super) fn check(proxy: &Proxy, texts: &[ThrottleText]) -> Result<(), String> {
    let mut limits = Vec::new();
    for text in texts {
        let limit = read(text)?;
        proxy.check_limit(&limit).map_err(|error| refused(text, error))?;
        limits.push(limit);
    }
    proxy.check_number(&limits).map_err(|error| format!("throttle: {error}"))
}

fn read(text: &ThrottleText) -> Result<Limit, String> {
    text.limit().map_err(|(field, error)| format!("{field}: {error}"))
}

fn refused(text: &ThrottleText, error: LimitRefused) -> String {
    format!("limit {}: {error}", text.name)
}

/// Those of paths, by name.
pub(super) struct PathLimits {
    are_of_clients: bool,
    limits: Vec<Limit>,
}

impl PathLimits {
    pub(super) fn of_servers(&self) -> &[Limit] {
        &self.limits
    }

    pub(super) fn of_clients(&self) -> &[Limit] {
        if self.are_of_clients { &self.limits } else { &[] }
    }
}

impl Limits {
    pub(super) fn new(are_of_clients: bool) -> Self {
        Self { are_of_clients, set: Mutex::default() }
    }

    /// Those of the file are these now.
    pub(super) fn follow_file(&self, proxy: &Proxy, texts: &[ThrottleText]) -> Vec<String> {
        let mut set = self.set();
        let mut told = Vec::new();
        let is_gone = |(name, written): &(&String, &Written)| {
            written.is_of_file && !texts.iter().any(|text| text.name == **name)
        };
        let gone: Vec<String> = set.iter().filter(is_gone).map(|(name, _)| name.clone()).collect();
        for name in gone {
            set.remove(&name);
            proxy.remove_limit(&name);
            told.push(format!("limit {name} is gone"));
        }
        for text in texts {
            if let Some(written) = set.get_mut(&text.name)
                && written.text == *text
            {
                written.is_of_file = true;
                continue;
            }
            // The file's plan has read it before.
            let Ok(limit) = text.limit() else { continue };
            if let Err(error) = proxy.set_limit(limit) {
                told.push(refused(text, error));
                continue;
            }
            let is_new = set.insert(text.name.clone(), Written { text: text.clone(), is_of_file: true });
            told.push(format!(
                "limit {} {}",
                text.name,
                if is_new.is_none() { "is new" } else { "has changed" }
            ));
        }
        told
    }

    /// Changes one, whoever set it before, or sets one anew. What a change does not name stays as it was.
    pub(super) fn set_one(&self, proxy: &Proxy, doubts: &Doubts, change: &Change) -> Result<String, String> {
        let mut set = self.set();
        let before = set.get(change.name());
        let (is_new, is_of_file) = (before.is_none(), before.is_some_and(|written| written.is_of_file));
        let text = change.of(before.map(|written| &written.text))?;
        let limit = read(&text)?;
        let missing = doubts.of(&limit);
        proxy.set_limit(limit).map_err(|error| refused(&text, error))?;
        let mut said = change.told(&text, (is_new, is_of_file));
        if !missing.is_empty() {
            said += &format!(", but {}", missing.join(", and "));
        }
        set.insert(text.name.clone(), Written { text, is_of_file });
        Ok(said)
    }

    pub(super) fn unset(&self, proxy: &Proxy, name: &str) -> Result<String, String> {
        let mut set = self.set();
        if set.remove(name).is_none() {
            let names = set.keys().cloned().collect::<Vec<_>>().join(", ");
            let expected =
                if names.is_empty() { "there is none".into() } else { format!("expected one of {names}") };
            return Err(format!("no limit is called {name}: {expected}"));
        }
        proxy.remove_limit(name);
        Ok(format!("limit {name} is gone"))
    }

    pub(super) fn of_paths(&self) -> PathLimits {
        let limits = self.all().into_iter().filter(|limit| limit.flows.names_paths());
        PathLimits { are_of_clients: self.are_of_clients, limits: limits.collect() }
    }

    /// All of them, by name.
    pub(super) fn all(&self) -> Vec<Limit> {
        self.set().values().filter_map(|written| written.text.limit().ok()).collect()
    }

    /// As it was written.
    pub(super) fn text(&self, name: &str) -> Option<ThrottleText> {
        self.set().get(name).map(|written| written.text.clone())
    }

    fn set(&self) -> MutexGuard<'_, BTreeMap<String, Written>> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
