//! The limits of a running proxy: those of its file, and those that were set since.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use polypath_proxy::net::Proxy;

use super::throttle::ThrottleText;

/// Each by its name, as it was written.
#[derive(Debug)]
pub(super) struct Limits {
    /// Whether each connection goes over one path.
    has_single_paths: bool,
    set: Mutex<BTreeMap<String, Written>>,
}

#[derive(Clone, Debug)]
struct Written {
    text: ThrottleText,
    is_of_file: bool,
}

impl Limits {
    pub(super) fn new(has_single_paths: bool) -> Self {
        Self { has_single_paths, set: Mutex::default() }
    }

    /// Whether such limits can be.
    pub(super) fn check(&self, texts: &[ThrottleText]) -> Result<(), String> {
        match texts.iter().find(|text| text.names_paths() && !self.has_single_paths) {
            Some(text) => Err(format!(
                "limit {}: limits of a path: expected --engine tcp, whose connections have one path each; those of Multipath TCP have several, and a limit is of all of a connection",
                text.name
            )),
            None => Ok(()),
        }
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
            if let Ok(limit) = text.limit() {
                let is_new = set.insert(text.name.clone(), Written { text: text.clone(), is_of_file: true });
                proxy.set_limit(limit);
                told.push(format!(
                    "limit {} {}",
                    text.name,
                    if is_new.is_none() { "is new" } else { "has changed" }
                ));
            }
        }
        told
    }

    /// Sets one, whoever set it before.
    pub(super) fn set_one(&self, proxy: &Proxy, text: ThrottleText) -> Result<String, String> {
        self.check(std::slice::from_ref(&text))?;
        let limit = text.limit().map_err(|(field, error)| format!("{field}: {error}"))?;
        let mut set = self.set();
        let is_of_file = set.get(&text.name).is_some_and(|written| written.is_of_file);
        let mut said = format!("limit {} holds", text.name);
        if is_of_file {
            said += " until the file is read again";
        }
        set.insert(text.name.clone(), Written { text, is_of_file });
        proxy.set_limit(limit);
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

    /// As it was written.
    pub(super) fn text(&self, name: &str) -> Option<ThrottleText> {
        self.set().get(name).map(|written| written.text.clone())
    }

    fn set(&self) -> MutexGuard<'_, BTreeMap<String, Written>> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
