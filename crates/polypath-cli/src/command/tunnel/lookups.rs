//! Names that are looked up, which may take long: each on a thread of its own, so that nothing waits for one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::endpoints::{Key, resolve};

/// What came of a name.
pub(super) type Found = (Key, Result<Vec<SocketAddr>, String>);

type Resolve = dyn Fn(&str) -> Result<Vec<SocketAddr>, String> + Send + Sync;

/// Lookups that go on. None is waited for in the end.
pub(super) struct Lookups {
    resolve: Arc<Resolve>,
    sender: UnboundedSender<Found>,
    found: UnboundedReceiver<Found>,
}

impl Lookups {
    /// Those of the system.
    pub(super) fn new() -> Self {
        Self::by(Arc::new(resolve))
    }

    fn by(resolve: Arc<Resolve>) -> Self {
        let (sender, found) = unbounded_channel();
        Self { resolve, sender, found }
    }

    /// Begins with these.
    pub(super) fn begin(&self, keys: Vec<Key>) {
        for key in keys {
            let (resolve, sender, asked) = (Arc::clone(&self.resolve), self.sender.clone(), key.clone());
            let look_up = move || {
                let found = resolve(&asked.1);
                // Nobody may want it any more.
                let _ = sender.send((asked, found));
            };
            if let Err(error) = thread::Builder::new().name("tunnel-lookup".into()).spawn(look_up) {
                let failed = format!("{} can't be looked up: {error}", key.1);
                let _ = self.sender.send((key, Err(failed)));
            }
        }
    }

    /// Waits for the next.
    pub(super) async fn next(&mut self) -> Found {
        match self.found.recv().await {
            Some(found) => found,
            // It does not end, as this has a sender.
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use super::super::endpoints::tests::peer;
    use super::*;

    #[tokio::test]
    async fn no_name_waits_for_another() {
        let (release, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let resolve = move |text: &str| {
            if text == "slow.test" {
                wait.lock().unwrap().recv().unwrap();
            }
            Err(format!("{text} was not found"))
        };
        let mut lookups = Lookups::by(Arc::new(resolve));
        let peer = peer();
        lookups.begin(["slow.test", "fast.test", "other.test"].map(|name| (peer, name.to_owned())).into());
        let mut names = [lookups.next().await, lookups.next().await].map(|(key, _)| key.1);
        names.sort();
        assert_eq!(names, ["fast.test", "other.test"]);
        release.send(()).unwrap();
        let slow = lookups.next().await;
        assert_eq!(slow, ((peer, "slow.test".into()), Err("slow.test was not found".into())));
    }
}
