//! The half of the launch that stays outside: it starts the process inside, receives its network, waits for the program.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};
use std::time::Duration;

use polypath_stack::Engine;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketFlags, SocketType,
};
use rustix::process::Pid;
use tokio::sync::oneshot;
use tokio::task::LocalSet;

use super::ended::{Ended, RunError};
use super::inside::tag;
use super::signals::Held;
use super::{Enclosure, gateway};

/// Device, and two sockets for each resolver.
const MAX_DESCRIPTORS: usize = 32;

/// How long connections may take to close in order when the program has ended.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

fn system(what: &'static str) -> impl Fn(io::Error) -> RunError {
    move |error| RunError::System { what, error }
}

/// A process that waits in a namespace of its own to become the program. Dropped, it ends.
#[derive(Debug)]
pub struct Launch {
    enclosure: Enclosure,
    signals: HeldSignals,
    child: Option<Child>,
    channel: OwnedFd,
    descriptors: Vec<OwnedFd>,
}

/// [`Held`] has nothing to show.
struct HeldSignals(Held);

impl std::fmt::Debug for HeldSignals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HeldSignals")
    }
}

impl Launch {
    /// Makes the namespace. `inside` gives the command that calls [`super::enter_and_execute`] with the descriptor whose number it is
    /// given. To be called before this process has other threads, so that signals come to where they are handed on.
    pub fn prepare(enclosure: Enclosure, inside: impl FnOnce(i32) -> Command) -> Result<Self, RunError> {
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(|error| system("can't make a pair of sockets")(error.into()))?;
        // The process inside sets it again, before there is a program that could inherit it.
        rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty())
            .map_err(|error| system("can't hand on a socket")(error.into()))?;
        let child = inside(theirs.as_raw_fd())
            .spawn()
            .map_err(system("can't start the process that becomes the program"))?;
        drop(theirs);
        // Not before: the program is to have the signal mask that this process was given.
        let signals = Held::hold().map_err(system("can't hold back signals"))?;
        // Each connection of the program takes a descriptor here as well. The program keeps the limit that it was given.
        polypath_system::process::raise_descriptor_limit();
        let mut launch = Self {
            enclosure,
            signals: HeldSignals(signals),
            child: Some(child),
            channel: ours,
            descriptors: Vec::new(),
        };
        launch.descriptors = match receive_network(launch.channel.as_fd()) {
            Ok(Some(descriptors)) => descriptors,
            Ok(None) => {
                let early = RunError::Namespace("the process in it ended early".to_string());
                return Err(launch.ended_early(early));
            }
            Err(error) => return Err(error),
        };
        Ok(launch)
    }

    /// Why the process inside has ended, which let go of the channel: `otherwise`, unless a signal ended it.
    fn ended_early(&mut self, otherwise: RunError) -> RunError {
        let status = self.child.take().map(|mut child| child.wait());
        match status {
            Some(Ok(status)) if status.signal().is_some() => RunError::Signalled(Ended(status)),
            _ => otherwise,
        }
    }

    /// The process that becomes the program; none once it was waited for.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Starts the program, carries its connections with `engine`, and waits until it ends.
    pub async fn run(mut self, engine: Engine) -> Result<Ended, RunError> {
        let local = LocalSet::new();
        let ended = local.run_until(self.run_here(engine.clone())).await;
        // With its tasks the last connections are let go; what they have sent is still on its way.
        drop(local);
        engine.drain(CLOSE_LIMIT).await;
        ended
    }

    async fn run_here(&mut self, engine: Engine) -> Result<Ended, RunError> {
        let descriptors = std::mem::take(&mut self.descriptors);
        let gateway = gateway::start(&self.enclosure, engine, descriptors).await?;
        if let Err(error) = rustix::net::send(&self.channel, b"G", SendFlags::NOSIGNAL) {
            return Err(
                self.ended_early(system("the process that becomes the program is gone")(error.into()))
            );
        }
        let Some(mut child) = self.child.take() else {
            return Err(system("the program was started already")(io::ErrorKind::AlreadyExists.into()));
        };
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            self.signals.0.hand_on_to(pid);
        }
        let (ended, waiting) = oneshot::channel();
        std::thread::spawn(move || ended.send(child.wait()));
        let status = waiting.await.unwrap_or_else(|_| Err(io::Error::other("the waiting thread died")));
        let status = status.map_err(system("can't wait for the program"))?;
        self.check_started()?;
        gateway.drain().await;
        Ok(Ended(status))
    }

    /// What the process inside said instead of becoming the program, if it did.
    fn check_started(&self) -> Result<(), RunError> {
        let mut message = [0; 16];
        let length = match rustix::net::recv(&self.channel, &mut message[..], RecvFlags::DONTWAIT) {
            Ok((length, _)) => length,
            Err(_) => 0,
        };
        let name = self.enclosure.program.to_string_lossy().into_owned();
        match message.get(..length) {
            Some(&[tag::NOT_STARTED, a, b, c, d]) => {
                let error = io::Error::from_raw_os_error(i32::from_ne_bytes([a, b, c, d]));
                Err(match error.kind() {
                    io::ErrorKind::NotFound => RunError::NotFound(name),
                    _ => RunError::NotExecutable(name, error),
                })
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Launch {
    fn drop(&mut self) {
        // Not started: nothing that it does is of use any more. Its own pid, and not yet waited for.
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// None if the process inside has ended.
fn receive_network(channel: BorrowedFd<'_>) -> Result<Option<Vec<OwnedFd>>, RunError> {
    let mut text = [0; 1024];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::net::recvmsg(
        channel,
        &mut [IoSliceMut::new(&mut text)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )
    .map_err(|error| system("the process in the namespace does not answer")(error.into()))?;
    match text.get(..received.bytes) {
        Some([tag::READY]) => {}
        Some([tag::FAILED, reason @ ..]) => {
            return Err(RunError::Namespace(String::from_utf8_lossy(reason).into_owned()));
        }
        Some([]) => return Ok(None),
        _ => return Err(RunError::Namespace("the process in it says what makes no sense".to_string())),
    }
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    Ok(Some(descriptors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_before_the_program_is_no_fault_of_the_network() {
        let ends = |script: &str| {
            let inside = |_| {
                let mut command = Command::new("sh");
                command.args(["-c", script]);
                command
            };
            Launch::prepare(Enclosure::new("true"), inside).expect_err("it ended")
        };
        // Whoever runs the tests in the background of a shell has SIGINT ignored, and all that they start.
        let ended = ends("kill -TERM $$");
        assert!(matches!(ended, RunError::Signalled(ended) if ended.exit_code() == 143), "{ended}");
        assert!(matches!(ends("exit 0"), RunError::Namespace(_)));
    }
}
