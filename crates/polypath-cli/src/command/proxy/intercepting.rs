//! The rules of this host that lead connections to the proxy, as long as it runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polypath_netsetup::{Intercept, Interception, SetupError, Watch};
use polypath_system::Namespace;
use rustix::thread::{CapabilitySet, capabilities};
use tokio::task::{JoinHandle, spawn_blocking};

use super::super::engine::guardian;
use super::super::{Failure, complain};

/// Rules that follow the interfaces.
pub(super) struct Intercepting {
    rules: Arc<Rules>,
    following: JoinHandle<()>,
}

/// None once they are taken down.
struct Rules(Mutex<Option<Interception>>);

impl Rules {
    fn lock(&self) -> MutexGuard<'_, Option<Interception>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Intercepting {
    /// Of nothing so far.
    pub(super) async fn begin() -> Result<Self, Failure> {
        let may_change =
            capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_ADMIN));
        if !may_change {
            return Err(failure(SetupError::Permission));
        }
        let opened = blocking(|| Interception::open(Some(&guardian()))).await?.map_err(failure)?;
        let watch =
            Namespace::current().and_then(|namespace| Watch::new(&namespace)).map_err(Failure::run)?;
        let rules = Arc::new(Rules(Mutex::new(Some(opened))));
        let following = tokio::spawn(follow(rules.clone(), watch));
        Ok(Self { rules, following })
    }

    /// Intercepts this and nothing else. What fails changes nothing.
    pub(super) async fn set(&self, intercepts: Vec<Intercept>) -> Result<(), Failure> {
        let rules = self.rules.clone();
        let set = blocking(move || rules.lock().as_mut().map_or(Ok(()), |rules| rules.set(intercepts)));
        set.await?.map_err(failure)
    }

    /// Takes everything down: what is intercepted ends.
    pub(super) async fn close(self) -> Result<(), Failure> {
        let rules = self.rules.clone();
        let closed = blocking(move || rules.lock().take().map_or(Ok(()), Interception::close)).await?;
        closed.map_err(|error| Failure::Run(format!("the network is not as it was: {error}")))
    }
}

impl Drop for Intercepting {
    fn drop(&mut self) {
        self.following.abort();
    }
}

async fn follow(rules: Arc<Rules>, mut watch: Watch) {
    while watch.changed().await.is_some() {
        let rules = rules.clone();
        let updated = blocking(move || rules.lock().as_mut().map_or(Ok(()), Interception::update)).await;
        if let Ok(Err(error)) = updated {
            complain(&format!("what is intercepted can't follow the interfaces: {error}"));
        }
    }
    complain("the system tells no more of its interfaces: what is intercepted stays as it is");
}

/// Work that waits for the system.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    spawn_blocking(work).await.map_err(Failure::run)
}

fn failure(error: SetupError) -> Failure {
    match error {
        SetupError::NoSuchInterface { .. } | SetupError::NoLan => Failure::input(error),
        SetupError::Permission => Failure::Run(
            "interception changes the rules of this host, which needs the capability CAP_NET_ADMIN: run as root, or have clients use --socks or \
             --http, which need no rights"
                .into(),
        ),
        error => Failure::run(error),
    }
}
