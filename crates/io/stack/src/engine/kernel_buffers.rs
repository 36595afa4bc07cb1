//! How much the kernel takes in for a connection, and how much of what was written its peer has.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::LazyLock;

use socket2::SockRef;

use super::kernel_option::{get, set};

/// `SOCK_RCVBUF_LOCK` of Linux' `net/sock.h`: the kernel leaves the size of the receive buffer alone.
const RECEIVE_BUFFER_LOCK: libc::c_int = 2;
/// What a system allows that does not say it.
const RMEM_MAX_BYTES: usize = 212_992;

/// The size that a receive buffer may be given: what `net.core.rmem_max` allows, and no more than the kernel would let it grow to by itself
/// (`net.ipv4.tcp_rmem`).
pub(super) fn most_receive_buffer_bytes() -> usize {
    static MOST: LazyLock<usize> = LazyLock::new(|| {
        let last_of = |name| {
            let said = fs::read_to_string(format!("/proc/sys/net/{name}")).ok()?;
            said.split_whitespace().last()?.parse().ok()
        };
        // The kernel gives twice what it is asked for.
        let may_be_set = last_of("core/rmem_max").unwrap_or(RMEM_MAX_BYTES).saturating_mul(2);
        last_of("ipv4/tcp_rmem").map_or(may_be_set, |grown: usize| may_be_set.min(grown))
    });
    *MOST
}

/// The size of a receive buffer that grows as the kernel sees fit; none where somebody has given it a size, and before Linux 5.14.
pub(super) fn growing_receive_buffer_bytes(socket: &impl AsFd) -> Option<usize> {
    if locks(socket).ok()? & RECEIVE_BUFFER_LOCK != 0 {
        return None;
    }
    SockRef::from(socket).recv_buffer_size().ok()
}

/// The receive buffer has this size, in bytes, or what the kernel allows, and does not grow; returns what it has. Errors: what the kernel says where the
/// buffer could never grow again: of Multipath TCP, and before Linux 5.14. Nothing has changed then.
pub(super) fn hold_receive_buffer(socket: &impl AsFd, bytes: usize) -> io::Result<usize> {
    set_locks(socket, locks(socket)? | RECEIVE_BUFFER_LOCK)?;
    set_receive_buffer(socket, bytes)
}

/// A buffer that was held has this size, or what the kernel allows, and the kernel makes it larger as it sees fit. It does once more comes in a round trip
/// than ever did before; so the buffer has to become larger than it was, or stays as it is.
pub(super) fn release_receive_buffer(socket: &impl AsFd, bytes: usize) -> io::Result<()> {
    let sized = set_receive_buffer(socket, bytes);
    set_locks(socket, locks(socket)? & !RECEIVE_BUFFER_LOCK).and(sized.map(drop))
}

/// A size, of which the peer hears: of a buffer that becomes larger, the window does not, unless that is said, too.
fn set_receive_buffer(socket: &impl AsFd, bytes: usize) -> io::Result<usize> {
    let sized = SockRef::from(socket);
    // The kernel takes twice as much, for what it needs beside the bytes.
    sized.set_recv_buffer_size(bytes / 2)?;
    let given = sized.recv_buffer_size()?;
    set(socket, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, given.try_into().unwrap_or(libc::c_int::MAX))?;
    Ok(given)
}

/// Which buffers keep their sizes.
fn locks(socket: &impl AsFd) -> io::Result<libc::c_int> {
    let mut locks = [0; size_of::<libc::c_int>()];
    get(socket, libc::SOL_SOCKET, libc::SO_BUF_LOCK, &mut locks)?;
    Ok(libc::c_int::from_ne_bytes(locks))
}

fn set_locks(socket: &impl AsFd, locks: libc::c_int) -> io::Result<()> {
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

    use socket2::{Domain, Protocol, Socket, Type};

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        // As on other networks.
        set(&listener, libc::IPPROTO_TCP, libc::TCP_MAXSEG, 1448).expect("a size");
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

    fn is_locked(socket: &TcpStream) -> bool {
        locks(socket).expect("its locks") & RECEIVE_BUFFER_LOCK != 0
    }

    /// The window that its peer is told of at most, as things are (`tcpi_rcv_ssthresh`).
    fn window_bytes(socket: &TcpStream) -> usize {
        let mut info = [0; 72];
        get(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info).expect("what the kernel knows");
        u32::from_ne_bytes(info[64..68].try_into().expect("four octets")) as usize
    }

    #[test]
    fn a_buffer_that_is_held_does_not_grow_and_may_once_it_is_released() {
        let (mut client, mut server) = pair();
        let Some(before) = growing_receive_buffer_bytes(&server) else {
            eprintln!("SKIPPED: this kernel can't hold receive buffers (Linux 5.14 can)");
            return;
        };
        SockRef::from(&server).set_send_buffer_size(64 << 10).expect("a size");
        let (held, released) = (before / 2 * 3, 2 * before);
        assert_eq!(hold_receive_buffer(&server, held).expect("a buffer"), held);
        assert_eq!(received_in(&mut client, &mut server), held);
        assert!(is_locked(&server) && growing_receive_buffer_bytes(&server).is_none());
        assert!(window_bytes(&server) <= held);
        release_receive_buffer(&server, released).expect("a buffer that is free");
        assert!(received_in(&mut client, &mut server) >= released);
        assert!(!is_locked(&server));
        // Larger than the one that it began with was let be: otherwise the sender is held back for good.
        assert!(window_bytes(&server) > before, "{} of {before}", window_bytes(&server));
        assert_eq!(locks(&server).expect("its locks"), 1, "the send buffer keeps the size that it was given");
    }

    #[test]
    fn no_buffer_of_multipath_tcp_can_be_held() {
        let mptcp = Some(Protocol::from(libc::IPPROTO_MPTCP));
        let Ok(socket) = Socket::new(Domain::IPV4, Type::STREAM, mptcp) else {
            eprintln!("SKIPPED: this kernel has no Multipath TCP");
            return;
        };
        let before = socket.recv_buffer_size().expect("a size");
        // It tells of its locks, and can't set any: a size that was given would be for good.
        assert!(hold_receive_buffer(&socket, 2 * before).is_err());
        assert_eq!(socket.recv_buffer_size().expect("a size"), before);
    }

    #[test]
    fn what_may_be_held_is_what_this_system_gives() {
        let (_client, server) = pair();
        let most = most_receive_buffer_bytes() / 2 * 2;
        let socket = SockRef::from(&server);
        socket.set_recv_buffer_size(most / 2).expect("a size");
        assert_eq!(socket.recv_buffer_size().expect("a size"), most);
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
