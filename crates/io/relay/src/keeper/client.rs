//! The program's side: each call asks anew, so that a fork, or a program that closes what it doesn't know, does no harm.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::address::KeeperAddress;
use super::protocol::{self, Answer, Asked, Question, Seen};

/// A keeper may end just when it is asked, and another one is started.
const ATTEMPTS: usize = 3;

/// Asks a keeper. Failures are those of the call that is done for the program; their messages are for a person.
#[derive(Debug)]
pub struct KeeperClient {
    address: KeeperAddress,
}

impl KeeperClient {
    /// A client of the keeper at this address, which may not be there yet.
    #[must_use]
    pub fn new(address: KeeperAddress) -> Self {
        Self { address }
    }

    /// Makes a TCP socket connecting to a peer; gives the address at which to connect it once more to wait. If there is no
    /// keeper, `launch` starts one.
    pub fn connect(
        &self,
        program: BorrowedFd<'_>,
        remote: SocketAddr,
        launch: impl Fn(&KeeperAddress) -> io::Result<()>,
    ) -> io::Result<SocketAddr> {
        match self.ask_or_launch(&Question::Connect(remote), program, launch)? {
            Answer::Begun(to) => Ok(to),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Lets connections to `local` arrive at a socket that listens in the kernel.
    pub fn listen(
        &self,
        program: BorrowedFd<'_>,
        local: SocketAddr,
        launch: impl Fn(&KeeperAddress) -> io::Result<()>,
    ) -> io::Result<()> {
        self.ask_or_launch(&Question::Listen(local), program, launch).map(drop)
    }

    /// What is behind a socket that was accepted just now; nothing if it came from this machine.
    #[must_use]
    pub fn accepted(&self, program: BorrowedFd<'_>) -> Option<Seen> {
        self.seen(&Question::Accepted, program)
    }

    /// What is behind a socket, if it is one of the keeper's.
    #[must_use]
    pub fn find(&self, program: BorrowedFd<'_>) -> Option<Seen> {
        self.seen(&Question::Find, program)
    }

    /// Tells that an option of a socket was set.
    pub fn options_changed(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        match self.ask(&Question::OptionsChanged, program) {
            // Without a keeper it is no socket of one.
            Err(error) if is_absent(&error) => Ok(()),
            result => result.map(drop),
        }
    }

    fn seen(&self, question: &Question, program: BorrowedFd<'_>) -> Option<Seen> {
        match self.ask(question, program) {
            Ok(Answer::Found(seen)) => seen,
            _ => None,
        }
    }

    fn ask_or_launch(
        &self,
        question: &Question,
        program: BorrowedFd<'_>,
        launch: impl Fn(&KeeperAddress) -> io::Result<()>,
    ) -> io::Result<Answer> {
        for _ in 0..ATTEMPTS {
            match self.ask(question, program) {
                Err(error) if is_absent(&error) => launch(&self.address)?,
                result => return result,
            }
        }
        Err(io::Error::other("the process that keeps connections does not stay"))
    }

    fn ask(&self, question: &Question, program: BorrowedFd<'_>) -> io::Result<Answer> {
        let keeper = self.reach()?;
        let asked = Asked { secret: self.address.secret().to_string(), question: question.clone() };
        protocol::send(keeper.as_fd(), &asked, Some(program))?;
        match protocol::receive(keeper.as_fd())?.0 {
            Answer::Failed { errno, message } => Err(Refused::error(errno, message)),
            answer => Ok(answer),
        }
    }

    fn reach(&self) -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let at = self.address.socket()?;
        rustix::io::retry_on_intr(|| rustix::net::connect(&socket, &at))?;
        // Anybody may have taken the name of one that has ended.
        let keeper = rustix::net::sockopt::socket_peercred(&socket)?;
        let own = [rustix::process::geteuid(), rustix::process::getuid()];
        if !keeper.uid.is_root() && !own.contains(&keeper.uid) {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the keeper belongs to somebody else",
            ));
        }
        Ok(socket)
    }
}

/// There is no keeper, or it ended before it answered.
fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, UnexpectedEof};
    // What the keeper itself says has a reason of its own.
    error.get_ref().is_none_or(|inner| !inner.is::<Refused>())
        && matches!(error.kind(), ConnectionRefused | ConnectionReset | UnexpectedEof | BrokenPipe)
}

/// What the keeper could not do.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct Refused {
    message: String,
}

impl Refused {
    fn error(errno: i32, message: String) -> io::Error {
        io::Error::new(io::Error::from_raw_os_error(errno).kind(), Self { message })
    }
}
