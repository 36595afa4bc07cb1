//! What a program and its keeper say to each other: one question and one answer for each connection to the keeper's socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Longest message.
const MOST_BYTES: usize = 4096;

/// A question about the socket that comes with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Question {
    /// Connect it, and say where to.
    Connect(SocketAddr),
    /// Let connections to this address arrive at it.
    Listen(SocketAddr),
    /// It was accepted; what is behind it?
    Accepted,
    /// What is behind it?
    Find,
    /// One of its options was set.
    OptionsChanged,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Asked {
    /// Shows that the program was started with this keeper.
    pub(super) secret: String,
    pub(super) question: Question,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Done,
    /// The socket is connecting to this address, where a socket of the keeper answers.
    Begun(SocketAddr),
    Found(Option<Seen>),
    Failed {
        errno: i32,
        message: String,
    },
}

/// What is known of a program's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The peer.
    pub remote: SocketAddr,
    /// This end as peers see it, while it is open.
    pub local: Option<SocketAddr>,
    /// The number of errno that says why it failed, if it did.
    pub error: Option<i32>,
}

pub(super) fn send(
    to: BorrowedFd<'_>,
    message: &impl Serialize,
    socket: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let sockets: Vec<BorrowedFd<'_>> = socket.into_iter().collect();
    let rights = SendAncillaryMessage::ScmRights(&sockets);
    let mut space = vec![MaybeUninit::uninit(); rights.size()];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !sockets.is_empty() && !control.push(rights) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(to, &[IoSlice::new(&text)], &mut control, SendFlags::NOSIGNAL)
    })?;
    Ok(())
}

/// Errors: [`io::ErrorKind::UnexpectedEof`] when the other end says nothing more.
pub(super) fn receive<T: DeserializeOwned>(from: BorrowedFd<'_>) -> io::Result<(T, Option<OwnedFd>)> {
    let mut text = [0; MOST_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(
            from.as_fd(),
            &mut [IoSliceMut::new(&mut text)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )
    })?;
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let socket = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
        _ => None,
    });
    Ok((serde_json::from_slice(&text[..received.bytes])?, socket))
}
