//! How much the kernel takes in for a connection, and how much of what was written its peer has.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use socket2::SockRef;

use super::kernel_option::set;

/// `SOCK_RCVBUF_LOCK` of Linux' `net/sock.h`: the kernel leaves the size of the receive buffer alone.
const RECEIVE_BUFFER_LOCK: libc::c_int = 2;

/// The receive buffer has this size, in bytes, or what the kernel allows, and does not grow; returns what it has. Errors: what the kernel says where
/// the buffer could never grow again, which is Linux before 5.14. Nothing has changed then.
pub(super) fn hold_receive_buffer(socket: &impl AsFd, bytes: usize) -> io::Result<usize> {
    set_lock(socket, RECEIVE_BUFFER_LOCK)?;
    let socket = SockRef::from(socket);
    // The kernel takes twice as much, for what it needs beside the bytes.
    socket.set_recv_buffer_size(bytes / 2)?;
    socket.recv_buffer_size()
}

/// The receive buffer has this size, or what the kernel allows, and the kernel makes it larger as it sees fit. It does once more comes in a round trip
/// than ever did before; so a buffer that was held has to become larger than it was, or stays as it is.
pub(super) fn release_receive_buffer(socket: &impl AsFd, bytes: usize) -> io::Result<()> {
    let sized = SockRef::from(socket).set_recv_buffer_size(bytes / 2);
    set_lock(socket, 0).and(sized)
}

fn set_lock(socket: &impl AsFd, locks: libc::c_int) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_BUF_LOCK, locks)
}

/// Bytes that were written and that the peer has not acknowledged (`SIOCOUTQ`).
pub(super) fn unacknowledged_bytes(socket: &impl AsFd) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one `int`, which outlives the call.
    #[allow(unsafe_code)]
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { Ok(bytes.try_into().unwrap_or(0)) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::super::kernel_option::get;
    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let client = TcpStream::connect(listener.local_addr().expect("its address")).expect("a client");
        (client, listener.accept().expect("a connection").0)
    }

    /// Sends much, which its peer reads as fast as it can, so that buffers would grow; returns the size of the peer's.
    fn received_in(client: &mut TcpStream, server: &mut TcpStream) -> usize {
        let (block, mut buffer) = (vec![1; 8 << 20], vec![0; 8 << 20]);
        std::thread::scope(|scope| {
            scope.spawn(|| client.write_all(&block).expect("room"));
            server.read_exact(&mut buffer).expect("bytes");
        });
        SockRef::from(&*server).recv_buffer_size().expect("a size")
    }

    /// Whether the kernel is to leave its size alone.
    fn is_locked(socket: &TcpStream) -> bool {
        let mut locks = [0; 4];
        get(socket, libc::SOL_SOCKET, libc::SO_BUF_LOCK, &mut locks).expect("its locks");
        libc::c_int::from_ne_bytes(locks) & RECEIVE_BUFFER_LOCK != 0
    }

    #[test]
    fn a_buffer_that_is_held_does_not_grow_and_may_once_it_is_released() {
        let (mut client, mut server) = pair();
        if hold_receive_buffer(&server, 64 << 10).is_err() {
            eprintln!("SKIPPED: this kernel can't hold receive buffers (Linux 5.14 can)");
            return;
        }
        assert_eq!(received_in(&mut client, &mut server), 64 << 10);
        assert!(is_locked(&server));
        release_receive_buffer(&server, 128 << 10).expect("a buffer that is free");
        assert!(received_in(&mut client, &mut server) >= 128 << 10);
        assert!(!is_locked(&server));
    }

    #[test]
    fn what_was_written_is_unacknowledged_until_the_peer_has_it() {
        let (mut client, server) = pair();
        client.set_nonblocking(true).expect("no wait");
        let mut written = 0;
        // The peer reads nothing: its buffer is full at last, and ours as well.
        while let Ok(count) = client.write(&[1; 64 << 10]) {
            written += count as u64;
        }
        let unacknowledged = unacknowledged_bytes(&client).expect("a count");
        assert!((1..written).contains(&unacknowledged), "{unacknowledged} of {written}");
        drop(server);
    }
}
