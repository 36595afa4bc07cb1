//! Which sockets of this network namespace some process still has.

use std::collections::HashSet;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::{fs, io};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::sockopt::socket_cookie;

/// The inodes of its TCP sockets. One that every process has closed is here no more, though its connection may live on.
pub(super) fn inodes() -> io::Result<HashSet<u64>> {
    let mut inodes = HashSet::new();
    for table in ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"] {
        match fs::read_to_string(table) {
            Ok(text) => inodes.extend(text.lines().filter_map(inode)),
            // A system may lack IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(inodes)
}

/// The tenth field; 0 for a socket that nobody has.
fn inode(line: &str) -> Option<u64> {
    line.split_whitespace().nth(9)?.parse().ok().filter(|inode| *inode != 0)
}

/// A descriptor of a socket of this process, known by its inode and its cookie, if it still has one.
pub(super) fn own(inode: u64, cookie: u64) -> Option<OwnedFd> {
    let link = format!("socket:[{inode}]");
    let descriptors = fs::read_dir("/proc/self/fd").ok()?.flatten();
    let of_socket =
        descriptors.filter(|entry| fs::read_link(entry.path()).is_ok_and(|to| to == Path::new(&link)));
    let mut numbers = of_socket.filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
    numbers.find_map(|number| {
        // SAFETY: not -1. Should it be closed by now, copying it fails; should it be another's, its cookie tells.
        #[allow(unsafe_code)]
        let copy = fcntl_dupfd_cloexec(unsafe { BorrowedFd::borrow_raw(number) }, 0).ok()?;
        socket_cookie(&copy).is_ok_and(|is| is == cookie).then_some(copy)
    })
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn sockets_are_held_until_they_are_closed() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("an address");
        let client = TcpStream::connect(listener.local_addr().expect("it")).expect("a connection");
        let of = |socket: &dyn AsFd| rustix::fs::fstat(socket.as_fd()).expect("a socket").st_ino;
        let (listening, connected) = (of(&listener), of(&client));
        let held = inodes().expect("the tables");
        assert!(held.contains(&listening) && held.contains(&connected));
        // Its end is still to be read at the other side, so that the connection lives on.
        drop(client);
        let held = inodes().expect("the tables");
        assert!(held.contains(&listening) && !held.contains(&connected));
    }

    #[test]
    fn a_socket_of_this_process_is_found_until_it_is_closed() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("an address");
        let inode = rustix::fs::fstat(&listener).expect("a socket").st_ino;
        let cookie = socket_cookie(&listener).expect("a socket");
        let found = own(inode, cookie).expect("it is open");
        assert_eq!(rustix::fs::fstat(&found).expect("a socket").st_ino, inode);
        assert!(own(inode, cookie + 1).is_none(), "another one of that inode");
        drop((listener, found));
        assert!(own(inode, cookie).is_none());
    }
}
