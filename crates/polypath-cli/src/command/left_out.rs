//! What a copy leaves out: it is said when it happens, or once for hidden files, and counted at the end.

use std::cell::{Cell, RefCell};

use url::Url;

use super::{Failure, complain};

/// Names are told, up to so many; then they are only counted.
const MOST_TOLD: u64 = 10;

#[derive(Debug, Default)]
pub(super) struct LeftOut {
    /// Names of the server's that nothing was made of.
    there: Cell<u64>,
    /// Files of this machine that the server has not.
    here: Cell<u64>,
    /// Those of them that it refused as hidden ones.
    hidden: RefCell<Vec<String>>,
}

impl LeftOut {
    pub(super) fn note_there(&self, directory: &Url, name: &str, problem: &str) {
        let count = self.there.get();
        self.there.set(count + 1);
        if count < MOST_TOLD {
            complain(&format!("{directory}: left out {name:?}, {problem}"));
        }
    }

    pub(super) fn note_here(&self, message: &str) {
        self.here.set(self.here.get() + 1);
        complain(message);
    }

    pub(super) fn note_hidden(&self, name: String) {
        self.here.set(self.here.get() + 1);
        self.hidden.borrow_mut().push(name);
    }

    /// The server is known to take no hidden files.
    pub(super) fn has_hidden(&self) -> bool {
        !self.hidden.borrow().is_empty()
    }

    /// One line for all that are hidden.
    pub(super) fn tell_hidden(&self) {
        let hidden = self.hidden.borrow();
        if hidden.is_empty() {
            return;
        }
        let told = hidden.iter().take(MOST_TOLD as usize).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = match hidden.len().saturating_sub(MOST_TOLD as usize) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        complain(&format!(
            "left out {told}{more}: the server takes no hidden files; expected polypath serve --hidden there"
        ));
    }

    pub(super) fn end(&self) -> Result<(), Failure> {
        match (self.there.get(), self.here.get()) {
            (0, 0) => Ok(()),
            (0, count) => Err(Failure::Run(format!("of what is here, {count} names were left out"))),
            (count, _) => Err(Failure::Run(format!("of what the server has, {count} names were left out"))),
        }
    }
}
