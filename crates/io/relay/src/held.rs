//! Which sockets of this network namespace some process still has.

use std::collections::HashSet;
use std::{fs, io};

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
}
