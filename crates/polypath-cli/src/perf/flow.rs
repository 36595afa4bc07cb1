//! One data connection, as fast as it goes.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use polypath_stack::engine::{Stream, StreamInfo};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// A data connection. Its task moves bytes; whoever reports looks at the counter and asks the stream.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub(super) number: u32,
    pub(super) sends: bool,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    stream: Arc<Mutex<Stream>>,
    bytes: Arc<AtomicU64>,
}

impl Flow {
    pub(super) fn new(number: u32, sends: bool, stream: Stream) -> io::Result<Self> {
        let (local, remote) = (canonical(stream.local_addr()?), canonical(stream.peer_addr()?));
        let stream = Arc::new(Mutex::new(stream));
        Ok(Self { number, sends, local, remote, stream, bytes: Arc::default() })
    }

    /// Number that reports give it: sockets of iperf3 look like this.
    pub(super) fn id(&self) -> u32 {
        5 + 2 * self.number
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn info(&self) -> Option<StreamInfo> {
        self.lock().info().ok()
    }

    /// A number that changes when anything moves.
    pub(super) fn carried(&self) -> u64 {
        self.bytes().wrapping_add(self.info().map_or(0, |info| info.bytes_carried()))
    }

    pub(super) fn congestion(&self) -> Option<String> {
        match &*self.lock() {
            Stream::Kernel(stream) => stream.congestion().ok(),
            Stream::Stack(stream) => {
                let info = stream.connection_info()?;
                info.subflows.first().and_then(|subflow| subflow.tcp.congestion).map(Into::into)
            }
            _ => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Stream> {
        // Nothing that holds the lock panics half-way through a change of ours.
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends blocks until nothing of `budget` is left, then ends this half.
    pub(super) async fn send(
        &self,
        block: &[u8],
        budget: Option<Arc<AtomicU64>>,
        rate_limit: Option<u64>,
    ) -> io::Result<()> {
        let started = Instant::now();
        let mut sent = 0u64;
        loop {
            let length = match &budget {
                None => block.len(),
                Some(left) => take(left, block.len()),
            };
            if length == 0 {
                return poll_fn(|cx| Pin::new(&mut *self.lock()).poll_shutdown(cx)).await;
            }
            let mut rest = &block[..length];
            while !rest.is_empty() {
                let written = poll_fn(|cx| Pin::new(&mut *self.lock()).poll_write(cx, rest)).await?;
                if written == 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
                self.bytes.fetch_add(written as u64, Ordering::Relaxed);
                rest = &rest[written..];
            }
            sent += length as u64;
            if let Some(rate) = rate_limit {
                let due = started + Duration::from_secs_f64(sent as f64 * 8.0 / rate as f64);
                if due > Instant::now() {
                    tokio::time::sleep_until(due).await;
                }
            }
        }
    }

    /// Receives until the peer ends its half.
    pub(super) async fn receive(&self, block_bytes: usize) -> io::Result<()> {
        let mut buffer = vec![0; block_bytes];
        loop {
            let read = poll_fn(|cx| {
                let mut into = ReadBuf::new(&mut buffer);
                let polled = Pin::new(&mut *self.lock()).poll_read(cx, &mut into);
                polled.map_ok(|()| into.filled().len())
            });
            match read.await? {
                0 => return Ok(()),
                bytes => self.bytes.fetch_add(bytes as u64, Ordering::Relaxed),
            };
        }
    }

    /// Drops what is under way, so that it disturbs no later measurement.
    pub(super) fn abort(self) {
        if let Ok(stream) = Arc::try_unwrap(self.stream) {
            stream.into_inner().unwrap_or_else(PoisonError::into_inner).abort();
        }
    }
}

/// Takes at most `most` bytes out of what is left for all connections.
fn take(left: &AtomicU64, most: usize) -> usize {
    let before = left
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(most as u64)));
    before.unwrap_or_default().min(most as u64) as usize
}

/// IPv4 addresses in IPv6 clothes, as a socket for both gives them, are IPv4 addresses to people.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
