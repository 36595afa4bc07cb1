//! The events of a stack's first seconds, for those who hear of the stack only when its socket is there.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, timeout_at};

use super::{EventReport, Observed};

/// For so long events are kept. Later, whoever wants them has found the socket.
const KEPT_FOR: Duration = Duration::from_secs(5);

/// So many are kept at most: the first ones, each of a few hundred bytes.
const MOST_KEPT: usize = 512;

/// Events that somebody may lag behind.
const BACKLOG: usize = 1024;

/// What happened in the beginning, and a way to hear of the rest.
#[derive(Clone, Debug)]
pub(super) struct Early {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    kept: Vec<EventReport>,
    /// None once the beginning is over: nothing is kept any more.
    further: Option<broadcast::Sender<EventReport>>,
}

impl Early {
    /// Keeps what happens from now on. Must be called within a tokio runtime.
    pub(super) fn keep(observed: &dyn Observed) -> Self {
        let further = Some(broadcast::Sender::new(BACKLOG));
        let early = Self { state: Arc::new(Mutex::new(State { kept: Vec::new(), further })) };
        tokio::spawn(early.clone().follow(observed.subscribe()));
        early
    }

    /// What was kept, and what comes after it; none once the beginning is over.
    pub(super) fn subscribe(&self) -> Option<(Vec<EventReport>, broadcast::Receiver<EventReport>)> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let further = state.further.as_ref()?;
        Some((state.kept.clone(), further.subscribe()))
    }

    async fn follow(self, mut events: broadcast::Receiver<EventReport>) {
        let over_at = Instant::now() + KEPT_FOR;
        while let Ok(event) = timeout_at(over_at, events.recv()).await {
            let is_over = matches!(event, Err(RecvError::Closed));
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if let Ok(event) = event {
                if state.kept.len() < MOST_KEPT {
                    state.kept.push(event.clone());
                }
                if let Some(further) = &state.further {
                    // Nobody may listen yet.
                    let _ = further.send(event);
                }
            }
            if is_over {
                break;
            }
        }
        let further = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.kept = Vec::new();
            state.further.take()
        };
        // Those who came early hear of the rest by this way.
        let Some(further) = further else { return };
        loop {
            tokio::select! {
                event = events.recv() => match event {
                    Ok(event) => {
                        let _ = further.send(event);
                    }
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return,
                },
                () = further.closed() => return,
            }
        }
    }
}
