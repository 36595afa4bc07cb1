//! Cookies that all requests of a download or a stream have in common.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use url::Url;

use super::jar::Jar;
use crate::http1::Head;

/// A jar that is filled while files are fetched. Clones are the same jar.
#[derive(Clone, Debug, Default)]
pub struct Cookies {
    jar: Arc<Mutex<Jar>>,
    /// Anybody may answer for an `https` server.
    is_unverified: bool,
}

/// Answers of which it is not known whether they count.
pub(crate) type Noted = Vec<(Url, Head)>;

impl Cookies {
    /// `is_unverified`: certificates are not compared.
    #[must_use]
    pub fn new(jar: Jar, is_unverified: bool) -> Self {
        Self { jar: Arc::new(Mutex::new(jar)), is_unverified }
    }

    /// As a file in Netscape's format has them now.
    #[must_use]
    pub fn to_file(&self) -> String {
        self.jar().to_file(now_unix_s())
    }

    /// Takes what an answer sets. Whoever calls believes it.
    pub(crate) fn note(&self, url: &Url, head: &Head) {
        self.jar().note(url, head, now_unix_s());
    }

    /// Takes what an answer sets if nobody can have answered in the server's place.
    pub(crate) fn note_if_sure(&self, url: &Url, head: &Head) {
        if url.scheme() == "https" && !self.is_unverified {
            self.note(url, head);
        }
    }

    /// The value of the field `Cookie`, if there is one.
    pub(crate) fn field(&self, url: &Url) -> Option<String> {
        self.jar().field(url, now_unix_s())
    }

    /// The same cookies for now; what is noted there stays there.
    pub(crate) fn apart(&self) -> Self {
        Self::new(self.jar().clone(), self.is_unverified)
    }

    fn jar(&self) -> MutexGuard<'_, Jar> {
        self.jar.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Seconds since 1970.
fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
