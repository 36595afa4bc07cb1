//! What the network says of datagrams that it could not deliver: that nobody listens at a peer's UDP port.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::{io, mem};

/// More of an undelivered datagram is of no use: our header, and the ports and sequence number of TCP's.
const QUOTED_BYTES: usize = 64;

/// Takes the next report from a socket's error queue: what it quotes of an undelivered datagram, or nothing if the report is not
/// that the peer's port is closed. TCP gives up a connection attempt for no other one that concerns the path.
///
/// Errors: [`io::ErrorKind::WouldBlock`] if there is no report.
pub(super) fn next_refusal(socket: BorrowedFd<'_>) -> io::Result<Option<Vec<u8>>> {
    let mut quoted = [0_u8; QUOTED_BYTES];
    // Of words, so that headers in it are aligned.
    let mut control = [0_u64; 32];
    let mut part = libc::iovec { iov_base: quoted.as_mut_ptr().cast(), iov_len: quoted.len() };
    // SAFETY: `msghdr` is numbers and pointers, for which zero and null are values.
    #[allow(unsafe_code)]
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = mem::size_of_val(&control) as _;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the message points to `quoted` and `control` and tells their lengths; both outlive the call.
    #[allow(unsafe_code)]
    let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
    Ok(is_refusal(&message).then(|| quoted.iter().copied().take(len).collect()))
}

/// Whether a message of an error queue says that a port is closed.
fn is_refusal(message: &libc::msghdr) -> bool {
    // SAFETY: the kernel has written `msg_controllen` bytes of whole control messages to `msg_control`, which is aligned.
    #[allow(unsafe_code)]
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !next.is_null() {
        // SAFETY: `next` is a control message within the buffer, which nobody else uses.
        #[allow(unsafe_code)]
        let header = unsafe { &*next };
        let is_report = matches!(
            (header.cmsg_level, header.cmsg_type),
            (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
        );
        if is_report {
            // SAFETY: the data of such a message begins with this structure (`ip(7)`), at any alignment.
            #[allow(unsafe_code)]
            let report = unsafe { libc::CMSG_DATA(next).cast::<libc::sock_extended_err>().read_unaligned() };
            let is_of_network =
                [libc::SO_EE_ORIGIN_ICMP, libc::SO_EE_ORIGIN_ICMP6].contains(&report.ee_origin);
            return is_of_network && report.ee_errno == libc::ECONNREFUSED as u32;
        }
        // SAFETY: as for the first one; `next` is one of them.
        #[allow(unsafe_code)]
        let following = unsafe { libc::CMSG_NXTHDR(message, next) };
        next = following;
    }
    false
}
