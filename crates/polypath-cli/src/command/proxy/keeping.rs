//! What was used of budgets is kept while the proxy runs, for the next one of its name.

use std::path::PathBuf;

use polypath_proxy::net::Proxy;
use rustix::process::{getegid, geteuid};

use super::super::complain;
use super::super::history::{default_directory, now_s};
use super::budgets::{Budgets, hand_over, make};
use super::successor::Successor;

/// Where that is, or why it can't be kept.
pub(super) struct Place(Result<PathBuf, String>);

/// What keeps it.
pub(super) struct Keeping {
    budgets: Option<Budgets>,
    has_failed: bool,
}

impl Place {
    /// For the proxy of this name, if it has one that it will have again. Who becomes another user gets the folder before.
    pub(super) fn find(name: Option<&str>, successor: Option<&Successor>) -> Self {
        let find = || {
            let name = name.ok_or("it has no name that it will have again: expected --instance NAME")?;
            let folder =
                default_directory().map_err(|failure| failure.message())?.join(format!("proxy-{name}"));
            let at = |error| format!("{}: {error}", folder.display());
            if let Some(successor) = successor {
                make(&folder).and_then(|()| hand_over(&folder, successor.ids())).map_err(at)?;
            } else if geteuid().is_root() && folder.exists() {
                hand_over(&folder, (geteuid().as_raw(), getegid().as_raw())).map_err(at)?;
            }
            Ok(folder)
        };
        Self(find())
    }

    /// Takes up what was used before. Says why that can't be, if there are budgets.
    pub(super) fn begin(self, proxy: &Proxy) -> Keeping {
        let loaded = self.0.and_then(|folder| {
            let at = |error| format!("{}: {error}", folder.display());
            Budgets::load(&folder, now_s()).map_err(at)
        });
        let budgets = match loaded {
            Ok((budgets, used)) => {
                used.iter().for_each(|used| proxy.set_used_budget(used));
                Some(budgets)
            }
            Err(error) => {
                if proxy.limits().iter().any(|state| state.limit.budget.is_some()) {
                    complain(&format!("budgets begin anew with each start of this proxy: {error}"));
                }
                None
            }
        };
        Keeping { budgets, has_failed: false }
    }
}

impl Keeping {
    /// What is used now. That it can't be kept is said once, and when it can be again.
    pub(super) fn save(&mut self, proxy: &Proxy) {
        let Some(budgets) = &mut self.budgets else { return };
        let saved = budgets.save(now_s(), &proxy.used_budgets());
        match &saved {
            Err(error) if !self.has_failed => {
                complain(&format!("what is used of budgets can't be kept: {error}; it is tried again"));
            }
            Ok(()) if self.has_failed => complain("what is used of budgets is kept again"),
            _ => {}
        }
        self.has_failed = saved.is_err();
    }
}
