//! What a stack says when it ends, to those who wait for that.

use std::collections::HashMap;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Answer, Observed};

/// Who waits for the end. Their connections are known here beside the tasks that serve them, which the runtime may drop first.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    clients: HashMap<u64, UnixStream>,
}

impl Waiting {
    /// One more waits, by the number that is returned.
    pub(super) fn add(&self, client: &impl AsFd) -> io::Result<u64> {
        let client = UnixStream::from(client.as_fd().try_clone_to_owned()?);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let number = state.next;
        state.next += 1;
        state.clients.insert(number, client);
        Ok(number)
    }

    /// One waits no more.
    pub(super) fn remove(&self, number: u64) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clients.remove(&number);
    }

    /// Tells all of them. Nobody who does not read keeps a stack from ending.
    pub(super) fn tell(&self, observed: &dyn Observed, process: &str) {
        let clients = std::mem::take(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner).clients);
        if clients.is_empty() {
            return;
        }
        let mut answer = Answer { process: process.into(), pid: std::process::id(), ..Answer::default() };
        answer.add_figures(observed);
        let Ok(mut line) = serde_json::to_vec(&answer) else { return };
        line.push(b'\n');
        for mut client in clients.into_values() {
            // The socket waits for nobody, as the runtime's. It has nothing else to carry, and room for this.
            let _ = client.write_all(&line);
        }
    }
}
