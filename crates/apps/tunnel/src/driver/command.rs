//! What other threads ask of the driver.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, mpsc};

use rustix::event::{EventfdFlags, eventfd};

/// What is done in the driver's thread, with what runs there.
type Command<T> = Box<dyn FnOnce(&mut T) + Send>;

/// The driver has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tunnel has stopped")]
pub struct Stopped;

/// Reaches a driver from other threads.
pub struct Handle<T> {
    sender: mpsc::Sender<Option<Command<T>>>,
    bell: Arc<OwnedFd>,
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), bell: Arc::clone(&self.bell) }
    }
}

impl<T> Handle<T> {
    fn send(&self, command: Option<Command<T>>) -> Result<(), Stopped> {
        self.sender.send(command).map_err(|_| Stopped)?;
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        Ok(())
    }

    /// Has the driver's thread do something, and waits for what it says.
    pub fn ask<A: Send + 'static>(
        &self,
        what: impl FnOnce(&mut T) -> A + Send + 'static,
    ) -> Result<A, Stopped> {
        let (answer, answered) = mpsc::sync_channel(1);
        self.send(Some(Box::new(move |driver| {
            let _ = answer.send(what(driver));
        })))?;
        answered.recv().map_err(|_| Stopped)
    }

    /// Ends it.
    pub fn stop(&self) {
        let _ = self.send(None);
    }
}

/// The driver's end.
pub(super) struct Receiver<T> {
    commands: mpsc::Receiver<Option<Command<T>>>,
    bell: Arc<OwnedFd>,
}

impl<T> Receiver<T> {
    /// The next command; `Some(None)` to stop.
    pub(super) fn next(&mut self) -> Option<Option<Command<T>>> {
        match self.commands.try_recv() {
            Ok(command) => Some(command),
            Err(_) => {
                let _ = rustix::io::read(&self.bell, &mut [0; 8]);
                // One that came in between rings again.
                self.commands.try_recv().ok()
            }
        }
    }
}

impl<T> AsFd for Receiver<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

pub(super) fn channel<T>() -> io::Result<(Handle<T>, Receiver<T>)> {
    let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let (sender, commands) = mpsc::channel();
    Ok((Handle { sender, bell: Arc::clone(&bell) }, Receiver { commands, bell }))
}
