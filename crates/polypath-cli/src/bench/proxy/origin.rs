//! The server that is behind all proxies, and what its clients ask of it: a byte that says what is wanted, and eight of a number.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use polypath_system::Namespace;
use socket2::{Domain, Protocol, Socket, Type};

use super::scene::ORIGIN;
use crate::bench::outcome::monotonic_s;

/// Bytes that are handed over and asked for at a time: iperf3's choice.
pub(super) const BLOCK_BYTES: usize = 128 << 10;
/// After that, a client that says nothing or takes nothing is gone.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// Connections that may wait for a thread.
const BACKLOG: i32 = 4096;

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// When the connection was there: the answer is [`Moment`], to each order of it on a connection.
    Moment,
    /// So many bytes, then the connection's end.
    Bytes(u64),
    /// The byte back, and a connection that stays.
    Stay,
}

/// When the server had the connection, by the clock that all processes of a machine share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Moment {
    pub(super) accepted_s: f64,
}

impl Order {
    pub(super) const LEN: usize = 9;

    pub(super) fn to_bytes(self) -> [u8; Self::LEN] {
        let (kind, number) = match self {
            Self::Moment => (b'm', 0),
            Self::Bytes(count) => (b'b', count),
            Self::Stay => (b's', 0),
        };
        let mut bytes = [kind; Self::LEN];
        bytes[1..].copy_from_slice(&number.to_be_bytes());
        bytes
    }

    fn parse(bytes: [u8; Self::LEN]) -> Option<Self> {
        let number = bytes[1..].try_into().map(u64::from_be_bytes).ok()?;
        match bytes[0] {
            b'm' => Some(Self::Moment),
            b'b' => Some(Self::Bytes(number)),
            b's' => Some(Self::Stay),
            _ => None,
        }
    }
}

impl Moment {
    pub(super) const LEN: usize = 8;

    pub(super) fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self { accepted_s: f64::from_be_bytes(bytes) }
    }
}

/// Threads that wait for connections, each for one at a time, until this is dropped.
pub(super) struct Origin {
    addr: SocketAddr,
    shared: Arc<Shared>,
    namespace: Namespace,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

struct Shared {
    listener: Socket,
    is_over: AtomicBool,
    staying: Mutex<Vec<TcpStream>>,
}

impl Origin {
    /// Listens with so many threads, which are to be more than the connections that clients have at a time.
    pub(super) fn start(namespace: &Namespace, threads: usize) -> io::Result<Self> {
        let listener = namespace.run(|| listen(ORIGIN))??;
        let addr = listener.local_addr()?.as_socket().ok_or_else(|| io::Error::other("no port"))?;
        let shared =
            Arc::new(Shared { listener, is_over: AtomicBool::new(false), staying: Mutex::default() });
        let serving = |_| {
            let shared = shared.clone();
            namespace.spawn(move || shared.serve())
        };
        let threads = (0..threads).map(serving).collect();
        Ok(Self { addr, shared, namespace: namespace.clone(), threads })
    }

    /// Where it listens.
    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Closes the connections that were to stay.
    pub(super) fn leave(&self) {
        self.shared.staying().clear();
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Relaxed);
        // Each of them wakes one thread, if it waits for a connection.
        let _ = self.namespace.run(|| {
            for _ in &self.threads {
                let _ = TcpStream::connect(self.addr);
            }
        });
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A listener for Multipath TCP, which takes plain TCP as well. Without it in the kernel, for TCP alone.
fn listen(addr: Ipv4Addr) -> io::Result<Socket> {
    let multipath = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP));
    let socket = multipath.or_else(|_| Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)))?;
    socket.bind(&SocketAddr::from((addr, 0)).into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

impl Shared {
    fn staying(&self) -> std::sync::MutexGuard<'_, Vec<TcpStream>> {
        self.staying.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let block = vec![0; BLOCK_BYTES];
        while !self.is_over.load(Relaxed) {
            // One that failed before it was taken is the client's to tell of.
            let Ok((socket, _)) = self.listener.accept() else { continue };
            let accepted_s = monotonic_s();
            // A client that goes away in the middle has had enough.
            let _ = self.answer(socket.into(), accepted_s, &block);
        }
    }

    fn answer(&self, mut stream: TcpStream, accepted_s: f64, block: &[u8]) -> io::Result<()> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut order = [0; Order::LEN];
        loop {
            stream.read_exact(&mut order)?;
            match Order::parse(order) {
                Some(Order::Moment) => stream.write_all(&accepted_s.to_be_bytes())?,
                Some(Order::Stay) => {
                    stream.write_all(&order[..1])?;
                    self.staying().push(stream);
                    return Ok(());
                }
                Some(Order::Bytes(mut left)) => {
                    while left > 0 {
                        let part = left.min(block.len() as u64);
                        stream.write_all(&block[..part as usize])?;
                        left -= part;
                    }
                    stream.shutdown(Shutdown::Write)?;
                    // Whoever closes first keeps the port for a while: that is the server, which has one of them.
                    return Ok(());
                }
                None => return Err(io::Error::other("an order that nobody has")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_as_they_were_written() {
        for order in [Order::Moment, Order::Bytes(1 << 40), Order::Stay] {
            assert_eq!(Order::parse(order.to_bytes()), Some(order));
        }
        assert_eq!(Order::parse([0; Order::LEN]), None);
    }
}
