//! One data connection, as fast as it goes.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::Context;
use std::time::Duration;

use polypath_stack::engine::{Stream, StreamInfo};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UdpSocket;
use tokio::time::Instant;

use super::datagram::{Arrivals, Header};
use super::parameters::{DATAGRAM_BYTES, Parameters};
use super::quota::Quota;
use super::uncopied::Uncopied;
use super::wire::COOKIE_BYTES;

/// A data connection. Its task moves bytes; whoever reports looks at the counters and asks the stream.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    number: u32,
    pub(super) sends: bool,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    transport: Transport,
    counters: Arc<Counters>,
}

#[derive(Clone, Debug)]
enum Transport {
    Stream(Arc<Mutex<Stream>>),
    Datagrams(Arc<UdpSocket>),
}

#[derive(Debug, Default)]
struct Counters {
    bytes: AtomicU64,
    arrivals: Mutex<Arrivals>,
}

/// What a sender keeps to.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    rate_limit: Option<u64>,
    burst: u32,
    has_wide_counters: bool,
    is_zero_copy: bool,
}

impl From<&Parameters> for Pace {
    fn from(parameters: &Parameters) -> Self {
        Self {
            rate_limit: parameters.rate_limit,
            burst: parameters.burst,
            has_wide_counters: parameters.has_wide_counters,
            is_zero_copy: parameters.is_zero_copy,
        }
    }
}

impl Flow {
    pub(super) fn over_stream(number: u32, sends: bool, stream: Stream) -> io::Result<Self> {
        let (local, remote) = (stream.local_addr()?, stream.peer_addr()?);
        let transport = Transport::Stream(Arc::new(Mutex::new(stream)));
        Ok(Self::new(number, sends, local, remote, transport))
    }

    pub(super) fn over_datagrams(number: u32, sends: bool, socket: UdpSocket) -> io::Result<Self> {
        let (local, remote) = (socket.local_addr()?, socket.peer_addr()?);
        Ok(Self::new(number, sends, local, remote, Transport::Datagrams(Arc::new(socket))))
    }

    fn new(number: u32, sends: bool, local: SocketAddr, remote: SocketAddr, transport: Transport) -> Self {
        let (local, remote) = (canonical(local), canonical(remote));
        Self { number, sends, local, remote, transport, counters: Arc::default() }
    }

    /// Number that reports give it: sockets of iperf3 look like this.
    pub(super) fn socket(&self) -> u32 {
        5 + 2 * self.number
    }

    /// Number that both ends give it.
    pub(super) fn id(&self) -> u32 {
        if self.number == 0 { 1 } else { self.number + 2 }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.counters.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn arrivals(&self) -> Arrivals {
        *lock(&self.counters.arrivals)
    }

    pub(super) fn info(&self) -> Option<StreamInfo> {
        match &self.transport {
            Transport::Stream(stream) => lock(stream).info().ok(),
            Transport::Datagrams(_) => None,
        }
    }

    /// A number that changes when anything moves.
    pub(super) fn carried(&self) -> u64 {
        self.bytes().wrapping_add(self.info().map_or(0, |info| info.bytes_carried()))
    }

    /// Bytes that have arrived at the peer, as far as is known here.
    pub(super) fn acked(&self) -> u64 {
        let subflows = self.info().unwrap_or_default().subflows;
        let acked = subflows.iter().map(|subflow| subflow.tcp.bytes_acked).fold(0, u64::saturating_add);
        // The cookie went before.
        acked.saturating_sub(COOKIE_BYTES as u64)
    }

    pub(super) fn congestion(&self) -> Option<String> {
        let Transport::Stream(stream) = &self.transport else { return None };
        match &*lock(stream) {
            Stream::Kernel(stream) => stream.congestion().ok(),
            Stream::Stack(stream) => {
                let info = stream.connection_info()?;
                info.subflows.first().and_then(|subflow| subflow.tcp.congestion).map(Into::into)
            }
            _ => None,
        }
    }

    /// Sizes of the send and the receive buffer in bytes.
    pub(super) fn buffers(&self) -> (u64, u64) {
        let of_socket = |socket: socket2::SockRef<'_>| {
            let size = |size: io::Result<usize>| size.map_or(0, |bytes| bytes as u64);
            (size(socket.send_buffer_size()), size(socket.recv_buffer_size()))
        };
        match &self.transport {
            Transport::Datagrams(socket) => of_socket((&**socket).into()),
            Transport::Stream(stream) => match &*lock(stream) {
                Stream::Kernel(stream) => of_socket(stream.as_tokio().into()),
                Stream::Stack(stream) => stream
                    .connection_info()
                    .map_or((0, 0), |info| (info.send_buffer_bytes, info.receive_buffer_bytes)),
                _ => (0, 0),
            },
        }
    }

    /// Sends blocks until nothing of `quota` is left.
    pub(super) async fn send(&self, block: &[u8], quota: Option<Arc<Quota>>, pace: &Pace) -> io::Result<()> {
        let started = Instant::now();
        let mut sent = 0u64;
        let uncopied = if pace.is_zero_copy { Some(Uncopied::new(block)?) } else { None };
        let mut datagram = match self.transport {
            Transport::Datagrams(_) => block.to_vec(),
            Transport::Stream(_) => Vec::new(),
        };
        for number in 1.. {
            let length = match &quota {
                None => block.len(),
                Some(left) => left.take(block.len()),
            };
            if length == 0 {
                break;
            }
            match &self.transport {
                Transport::Stream(stream) => {
                    self.send_all(stream, &block[..length], uncopied.as_ref()).await?;
                }
                Transport::Datagrams(socket) => {
                    self.send_one(socket, number, &mut datagram, pace.has_wide_counters).await?;
                }
            }
            sent += length as u64;
            if let Some(rate) = pace.rate_limit.filter(|_| number % u64::from(pace.burst) == 0) {
                let due = started + Duration::from_secs_f64(sent as f64 * 8.0 / rate as f64);
                if due > Instant::now() {
                    tokio::time::sleep_until(due).await;
                }
            }
        }
        Ok(())
    }

    async fn send_all(
        &self,
        stream: &Mutex<Stream>,
        block: &[u8],
        uncopied: Option<&Uncopied>,
    ) -> io::Result<()> {
        let mut sent = 0;
        while sent < block.len() {
            let write = |cx: &mut Context<'_>| match uncopied {
                Some(uncopied) => uncopied.poll_send(&mut lock(stream), (sent, block.len()), cx),
                None => Pin::new(&mut *lock(stream)).poll_write(cx, &block[sent..]),
            };
            let written = poll_fn(write).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.counters.bytes.fetch_add(written as u64, Ordering::Relaxed);
            sent += written;
        }
        Ok(())
    }

    async fn send_one(
        &self,
        socket: &UdpSocket,
        number: u64,
        datagram: &mut [u8],
        is_wide: bool,
    ) -> io::Result<()> {
        Header { sent: clock(), number }.write(datagram, is_wide);
        loop {
            match socket.send(datagram).await {
                Ok(length) => {
                    self.counters.bytes.fetch_add(length as u64, Ordering::Relaxed);
                    lock(&self.counters.arrivals).packets = number;
                    return Ok(());
                }
                // A device with a full queue.
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Receives until the peer ends its half, or for ever.
    pub(super) async fn receive(
        &self,
        block_bytes: usize,
        quota: Option<Arc<Quota>>,
        pace: &Pace,
    ) -> io::Result<()> {
        let mut buffer = match self.transport {
            Transport::Stream(_) => vec![0; block_bytes],
            Transport::Datagrams(_) => vec![0; *DATAGRAM_BYTES.end()],
        };
        loop {
            let length = match &self.transport {
                Transport::Stream(stream) => match receive_some(stream, &mut buffer).await? {
                    0 => return Ok(()),
                    length => length,
                },
                Transport::Datagrams(socket) => {
                    let length = socket.recv(&mut buffer).await?;
                    let header = Header::read(&buffer[..length], pace.has_wide_counters);
                    let counts = |header| lock(&self.counters.arrivals).add(header, clock());
                    if !header.is_some_and(counts) {
                        // The word that opened the stream, once more, or a stranger's.
                        continue;
                    }
                    length
                }
            };
            self.counters.bytes.fetch_add(length as u64, Ordering::Relaxed);
            if let Some(quota) = &quota {
                quota.arrived(length);
            }
        }
    }

    /// Drops what is under way, so that it disturbs no later measurement.
    pub(super) fn abort(self) {
        if let Transport::Stream(stream) = self.transport
            && let Ok(stream) = Arc::try_unwrap(stream)
        {
            stream.into_inner().unwrap_or_else(PoisonError::into_inner).abort();
        }
    }
}

async fn receive_some(stream: &Mutex<Stream>, buffer: &mut [u8]) -> io::Result<usize> {
    poll_fn(|cx| {
        let mut into = ReadBuf::new(buffer);
        let polled = Pin::new(&mut *lock(stream)).poll_read(cx, &mut into);
        polled.map_ok(|()| into.filled().len())
    })
    .await
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that holds the lock panics half-way through a change of ours.
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The clock of datagrams. It begins at a second, so that no header looks empty.
fn clock() -> Duration {
    static BEGINNING: LazyLock<Instant> = LazyLock::new(Instant::now);
    BEGINNING.elapsed() + Duration::from_secs(1)
}

/// IPv4 addresses in IPv6 clothes, as a socket for both gives them, are IPv4 addresses to people.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
