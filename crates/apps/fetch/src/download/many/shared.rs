//! What all that fetch files have in common.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polypath_units::Instant;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time;
use url::Url;

use super::shares::Shares;
use super::wanted::{Ended, Event, Wanted};
use crate::download::error::DownloadError;
use crate::download::options::{Options, Progress};
use crate::download::way::Dial;

/// No host has more interfaces that are of use.
const MOST_WAYS: usize = 64;

pub(super) struct Shared {
    files: Vec<Wanted>,
    next: AtomicUsize,
    options: Options,
    events: mpsc::UnboundedSender<Event>,
    stopping: watch::Receiver<bool>,
    state: Mutex<State>,
    began: time::Instant,
}

#[derive(Default)]
struct State {
    shares: Shares,
    ways: Vec<Way>,
    /// Larger files, which are to know of further ways.
    listeners: Vec<mpsc::Sender<Arc<dyn Dial>>>,
    /// Servers, and why nobody reaches them; none if somebody did.
    servers: HashMap<String, Option<Vec<String>>>,
}

struct Way {
    dial: Arc<dyn Dial>,
    is_connected: bool,
    /// How often it was lost.
    losses: watch::Receiver<u64>,
    watching: JoinHandle<()>,
}

impl Drop for Way {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

/// A way that a file is under way on.
pub(super) struct Chosen {
    pub(super) at: usize,
    pub(super) way: Arc<dyn Dial>,
    pub(super) losses: watch::Receiver<u64>,
    /// There is another way to try.
    pub(super) has_others: bool,
    /// What a file takes over it, as far as that is known.
    pub(super) takes: Option<std::time::Duration>,
}

impl Shared {
    pub(super) fn new(
        files: Vec<Wanted>,
        options: Options,
        events: mpsc::UnboundedSender<Event>,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        let (next, state) = (AtomicUsize::new(0), Mutex::default());
        Self { files, next, options, events, stopping, state, began: time::Instant::now() }
    }

    pub(super) const fn options(&self) -> &Options {
        &self.options
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    pub(super) fn add_way(&self, dial: Arc<dyn Dial>) {
        let now = self.now();
        let mut state = self.state();
        let (lost, losses) = watch::channel(0);
        let watching = tokio::spawn(watch_way(dial.clone(), lost));
        state.listeners.retain(|listener| listener.try_send(dial.clone()).is_ok());
        state.shares.add(now);
        // It may lead to servers that the others do not.
        state.servers.retain(|_, causes| causes.is_none());
        state.ways.push(Way { dial, is_connected: false, losses, watching });
    }

    /// The ways of a larger file, of which it gets those too that come later.
    pub(super) fn all_ways(&self) -> mpsc::Receiver<Arc<dyn Dial>> {
        let (sender, receiver) = mpsc::channel(MOST_WAYS);
        let mut state = self.state();
        state.listeners.retain(|listener| !listener.is_closed());
        for way in &state.ways {
            // There is room for more than anybody has.
            let _ = sender.try_send(way.dial.clone());
        }
        state.listeners.push(sender);
        receiver
    }

    pub(super) fn has_ways(&self) -> bool {
        !self.state().ways.is_empty()
    }

    /// The next file, and its number.
    pub(super) fn next(&self) -> Option<(usize, &Wanted)> {
        if *self.stopping.borrow() {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.files.get(number).map(|file| (number, file))
    }

    /// So few that all of them may have all ways at once.
    pub(super) fn are_few(&self) -> bool {
        self.files.len() <= self.state().ways.len()
    }

    /// Completes when all is to end.
    pub(super) fn stopped(&self) -> impl Future<Output = ()> + use<> {
        let mut stopping = self.stopping.clone();
        async move {
            if stopping.wait_for(|is_stopping| *is_stopping).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// The way for a file that was tried over some others.
    pub(super) fn choose(&self, tried: &[usize]) -> Option<Chosen> {
        let now = self.now();
        let mut state = self.state();
        let at = state.shares.choose(now, |at| !tried.contains(&at))?;
        let (way, takes) = (&state.ways[at], state.shares.takes(at).map(Into::into));
        let has_others = state.shares.len() > tried.len() + 1;
        Some(Chosen { at, way: way.dial.clone(), losses: way.losses.clone(), has_others, takes })
    }

    /// A way has a new connection to a server.
    pub(super) fn note_connected(&self, at: usize, url: &Url) {
        let mut state = self.state();
        state.servers.insert(server(url), None);
        let was_connected = std::mem::replace(&mut state.ways[at].is_connected, true);
        drop(state);
        if !was_connected {
            self.tell(Progress::Connected { path: at });
        }
    }

    pub(super) fn note_brought(&self, at: usize, took: std::time::Duration, bytes: u64) {
        let now = self.now();
        self.state().shares.handle_brought(now, at, took.into());
        self.tell(Progress::Bytes { path: at, bytes });
    }

    /// It was answered otherwise, or is over.
    pub(super) fn note_left(&self, at: usize) {
        self.state().shares.handle_left(at);
    }

    /// A way does not lead there now.
    pub(super) fn note_failed(&self, at: usize, cause: String) {
        let now = self.now();
        let mut state = self.state();
        state.shares.handle_failed(now, at);
        let was_connected = std::mem::take(&mut state.ways[at].is_connected);
        drop(state);
        if was_connected {
            self.tell(Progress::Lost { path: at, cause });
        }
    }

    pub(super) fn is_proven(&self, at: usize) -> bool {
        let state = self.state();
        state.ways.len() == 1 || state.shares.is_proven(at)
    }

    /// No way leads to a server.
    pub(super) fn note_unreachable(&self, url: &Url, causes: &[String]) {
        self.state().servers.entry(server(url)).or_insert_with(|| Some(causes.to_vec()));
    }

    /// Why nobody reaches a server, if nobody ever did: others need not try.
    pub(super) fn unreachable(&self, url: &Url) -> Option<DownloadError> {
        let state = self.state();
        let causes = state.servers.get(&server(url))?.clone()?;
        Some(DownloadError::Unreachable(causes))
    }

    pub(super) fn tell(&self, progress: Progress) {
        // Who does not listen is gone.
        let _ = self.events.send(Event::Progress(progress));
    }

    pub(super) fn tell_end(&self, ended: Ended) {
        let _ = self.events.send(Event::Ended(ended));
    }

    pub(super) fn unreached(&self, cause: &str) {
        for number in 0..self.files.len() {
            let result = Err(DownloadError::Unreachable(vec![cause.into()]));
            self.tell_end(Ended { number, bytes: 0, took: std::time::Duration::ZERO, history: None, result });
        }
    }
}

fn server(url: &Url) -> String {
    url[..url::Position::BeforePath].to_string()
}

/// Counts how often a way is lost.
async fn watch_way(way: Arc<dyn Dial>, lost: watch::Sender<u64>) {
    loop {
        way.lost().await;
        lost.send_modify(|count| *count += 1);
    }
}
