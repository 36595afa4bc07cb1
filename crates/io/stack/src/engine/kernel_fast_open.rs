//! TCP Fast Open (RFC 7413): the first bytes of a connection go with its SYN, once the server has given a cookie.

use std::io;
use std::os::fd::AsFd;

use super::kernel_option::set;

/// Connections that a listener takes whose peers have not shown yet that they are where they say. More wait as without it.
const UNPROVEN: libc::c_int = 256;

/// The first bytes that are written go with the SYN, where the kernel knows a cookie of the server; connecting waits for nothing then. Otherwise it
/// asks for one.
pub(super) fn connect_fast(socket: &impl AsFd) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, 1)
}

/// Bytes that come with a SYN are taken.
pub(super) fn accept_fast(listener: &impl AsFd) -> io::Result<()> {
    set(listener, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, UNPROVEN)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use polypath_system::Namespace;
    use polypath_testbed::{Testbed, is_root_or_skip};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use crate::engine::{ConnectOptions, KernelEngine};

    /// What the kernel has counted under this name in a namespace.
    fn counted(namespace: &Namespace, name: &str) -> u64 {
        let read = || fs::read_to_string("/proc/thread-self/net/netstat");
        let text = namespace.run(read).expect("a namespace").expect("counters");
        let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
        let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
        let mut both = names.split_whitespace().zip(values.split_whitespace());
        both.find_map(|(its, value)| (its == name).then(|| value.parse().expect("a number"))).expect(name)
    }

    #[tokio::test]
    async fn the_second_connection_has_its_first_bytes_in_its_syn() {
        if !is_root_or_skip("TCP Fast Open") {
            return;
        }
        let testbed = Testbed::new(1).expect("namespaces");
        for side in [&testbed.client, &testbed.server] {
            let switch = || fs::write("/proc/sys/net/ipv4/tcp_fastopen", "3");
            side.run(switch).expect("a namespace").expect("a variable of it");
        }
        let [at, begins] = [&testbed.server, &testbed.client].map(|side| side.clone());
        let client = KernelEngine::plain_tcp().in_namespace(begins);
        // Of Multipath TCP, none is taken.
        for (engine, fast) in [(KernelEngine::plain_tcp(), [0, 1]), (KernelEngine::new(), [1, 1])] {
            let server = engine.in_namespace(at.clone()).with_fast_open_listeners();
            let listener = server.listen((Testbed::server_v4(0), 0).into()).expect("a listener");
            let to = listener.local_addr().expect("its address");
            let options = ConnectOptions { fast_open: true, ..ConnectOptions::default() };
            for fast in fast {
                let sending = async {
                    let mut stream = client.connect(to, &options).await.expect("a connection");
                    stream.write_all(b"asked").await.expect("room");
                    let mut answer = [0; 8];
                    stream.read_exact(&mut answer).await.expect("an answer");
                    answer
                };
                let answering = async {
                    let (mut stream, _) = listener.accept().await.expect("a client");
                    let mut asked = [0; 5];
                    stream.read_exact(&mut asked).await.expect("a question");
                    stream.write_all(b"answered").await.expect("room");
                    (stream, asked)
                };
                let (answer, (_stream, asked)) = tokio::join!(sending, answering);
                assert_eq!((&answer, &asked), (b"answered", b"asked"));
                assert_eq!(counted(&at, "TCPFastOpenPassive"), fast, "by {server:?}");
            }
        }
    }
}
