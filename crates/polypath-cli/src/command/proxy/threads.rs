//! Threads that serve connections beside the first, each with a runtime of its own: what a connection needs stays with one thread.

use std::io;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot::{Sender, channel};

/// Dropping them ends them, and what they serve.
#[derive(Debug, Default)]
pub(super) struct Threads(Vec<Thread>);

#[derive(Debug)]
struct Thread {
    runtime: Handle,
    /// Dropping it ends the thread.
    goes_on: Sender<()>,
    running: JoinHandle<()>,
}

impl Threads {
    /// So many, or as many as the system gives; then the error says why.
    pub(super) fn begin(count: usize) -> (Self, Option<io::Error>) {
        let mut threads = Self::default();
        for number in 0..count {
            match Thread::begin(number) {
                Ok(thread) => threads.0.push(thread),
                Err(error) => return (threads, Some(error)),
            }
        }
        (threads, None)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// What they run.
    pub(super) fn runtimes(&self) -> impl Iterator<Item = Handle> {
        self.0.iter().map(|thread| thread.runtime.clone())
    }
}

impl Thread {
    fn begin(number: usize) -> io::Result<Self> {
        let (tell, told) = sync_channel(1);
        let (goes_on, end) = channel();
        let run = move || {
            // What another thread hands over waits no longer than what is here.
            let built =
                Builder::new_current_thread().enable_io().enable_time().global_queue_interval(1).build();
            match built {
                Ok(runtime) => {
                    let _ = tell.send(Ok(runtime.handle().clone()));
                    // Nothing is sent: what ends the wait is the loss of the sender.
                    drop(runtime.block_on(end));
                }
                Err(error) => drop(tell.send(Err(error))),
            }
        };
        let running = std::thread::Builder::new().name(format!("serving-{number}")).spawn(run)?;
        let runtime = told.recv().map_err(io::Error::other)??;
        Ok(Self { runtime, goes_on, running })
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        let end = |thread: Thread| {
            drop(thread.goes_on);
            thread.running
        };
        let ending: Vec<_> = self.0.drain(..).map(end).collect();
        // One that panicked has said so.
        ending.into_iter().for_each(|running| drop(running.join()));
    }
}
