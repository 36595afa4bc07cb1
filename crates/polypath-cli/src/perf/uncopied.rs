//! Sending the same block again and again without a copy of it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use polypath_stack::engine::{KernelStream, Stream};
use rustix::fs::{MemfdFlags, memfd_create, sendfile};
use tokio::io::Interest;

/// A block where each engine can take it from.
#[derive(Debug)]
pub(super) struct Uncopied {
    /// For our stack, which shares it.
    bytes: Bytes,
    /// For the kernel, which takes it from the pages of a file.
    file: OwnedFd,
}

impl Uncopied {
    pub(super) fn new(block: &[u8]) -> io::Result<Self> {
        let file = memfd_create("polypath-perf", MemfdFlags::CLOEXEC)?;
        let mut rest = block;
        while !rest.is_empty() {
            let written = rustix::io::write(&file, rest)?;
            rest = &rest[written..];
        }
        Ok(Self { bytes: Bytes::copy_from_slice(block), file })
    }

    /// Sends what is between the two places of the block, or a part of it.
    pub(super) fn poll_send(
        &self,
        stream: &mut Stream,
        (from, to): (usize, usize),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match stream {
            Stream::Stack(stream) => stream.poll_write_bytes(cx, &self.bytes.slice(from..to)),
            Stream::Kernel(stream) => self.poll_sendfile(stream, (from, to), cx),
            _ => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }

    fn poll_sendfile(
        &self,
        stream: &KernelStream,
        (from, to): (usize, usize),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let socket = stream.as_tokio();
        loop {
            ready!(socket.poll_write_ready(cx))?;
            let send = || {
                let mut offset = from as u64;
                Ok(sendfile(socket.as_fd(), &self.file, Some(&mut offset), to - from)?)
            };
            match socket.try_io(Interest::WRITABLE, send) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }
}
