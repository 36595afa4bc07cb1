//! Figures of proxies: of those that run, by their sockets, and of the one that this process is.

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use polypath_metrics::{ProxySample, Totals};

use crate::command::proxy::{Figures, ask_all};

/// How long a proxy may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// An answer is no longer; whose socket it is may be anybody's.
const MOST_ANSWER_BYTES: u64 = 1 << 18;

/// Asks all proxies that run, at once.
pub(super) async fn refresh(totals: &mut Totals) {
    let (mut samples, mut silent) = (Vec::new(), Vec::new());
    for (asked, answer) in ask_all::<Figures>("figures", MOST_ANSWER_BYTES, PATIENCE).await {
        let source = asked.path.display().to_string();
        match answer {
            Ok(figures) => samples.push(figures.sample(source, &asked.name)),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => silent.push(source),
            // It has ended, or is of a version that does not know the question.
            Err(_) => {}
        }
    }
    totals.update_proxies(samples, &silent);
}

/// The proxy that this process is, once it is one.
#[derive(Clone, Default)]
pub(in crate::command) struct OwnProxy(Arc<OnceLock<Box<dyn Fn() -> ProxySample + Send + Sync>>>);

impl fmt::Debug for OwnProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnProxy").field(&self.0.get().is_some()).finish()
    }
}

impl OwnProxy {
    /// From now on it has figures. Only the first one counts.
    pub(in crate::command) fn set(&self, sample: impl Fn() -> ProxySample + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(sample));
    }

    pub(super) fn refresh(&self, totals: &mut Totals) {
        let sample = self.0.get().map(|sample| sample());
        totals.update_proxies(sample.into_iter().collect(), &[]);
    }
}
