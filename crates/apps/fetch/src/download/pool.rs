//! Connections that are kept while nobody uses them, for the next file of the same server over the same way.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use polypath_units::Instant;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time;
use url::{Position, Url};

use super::idle::Idle;
use super::way::{Dial, Dialing, Losing, Wire};
use crate::http1;
use crate::net::Protocol;

/// So many are kept, of all servers and ways together.
const MOST_IDLE: usize = 128;
/// Servers close what is idle, some after 5 s, and networks forget it without a word.
const MOST_TIME: Duration = Duration::from_secs(10);

/// Idle connections of all ways that were made with it. Clones are the same pool.
#[derive(Clone)]
pub struct Pool {
    idle: Arc<Mutex<Idle<String, Box<dyn Wire>>>>,
    began: time::Instant,
}

impl Default for Pool {
    fn default() -> Self {
        let idle = Idle::new(MOST_IDLE, MOST_TIME.into());
        Self { idle: Arc::new(Mutex::new(idle)), began: time::Instant::now() }
    }
}

impl Pool {
    /// The same way, whose connections are kept here when they are given up idle. Ways of one name are one way.
    #[must_use]
    pub fn over(&self, way: Arc<dyn Dial>) -> Arc<dyn Dial> {
        Arc::new(Pooled { way, pool: self.clone() })
    }

    fn idle(&self) -> MutexGuard<'_, Idle<String, Box<dyn Wire>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// One that did not end meanwhile, as far as this end knows.
    fn take(&self, place: &String) -> Option<Box<dyn Wire>> {
        loop {
            let mut wire = self.idle().take(self.now(), place)?;
            if is_alive(&mut *wire) {
                return Some(wire);
            }
        }
    }
}

/// Nothing is to come on an idle connection: neither its end, nor what nobody asked for.
fn is_alive(wire: &mut dyn Wire) -> bool {
    let mut buffer = [0; 1];
    let mut buffer = ReadBuf::new(&mut buffer);
    Pin::new(wire).poll_read(&mut Context::from_waker(Waker::noop()), &mut buffer).is_pending()
}

struct Pooled {
    way: Arc<dyn Dial>,
    pool: Pool,
}

impl Dial for Pooled {
    fn name(&self) -> &str {
        self.way.name()
    }

    fn dial<'a>(&'a self, url: &'a Url) -> Dialing<'a> {
        Box::pin(async {
            let server = &url[Position::BeforeScheme..Position::AfterScheme];
            let host = &url[Position::BeforeHost..Position::AfterPort];
            let place = format!("{server} {host} {}", self.way.name());
            let kept = self.pool.take(&place);
            let was_used = kept.is_some();
            let wire = match kept {
                Some(wire) => wire,
                None => self.way.dial(url).await?,
            };
            let kept = Kept { wire: Some(wire), was_used, is_idle: false, place, pool: self.pool.clone() };
            Ok(Box::new(kept) as Box<dyn Wire>)
        })
    }

    fn lost(&self) -> Losing<'_> {
        self.way.lost()
    }

    fn request(&self, url: &Url) -> Result<http1::Request, http1::InvalidRequest> {
        self.way.request(url)
    }
}

/// A connection that goes back to its pool when it is given up idle.
struct Kept {
    /// There until it is dropped.
    wire: Option<Box<dyn Wire>>,
    was_used: bool,
    is_idle: bool,
    place: String,
    pool: Pool,
}

impl Kept {
    fn inner(self: Pin<&mut Self>) -> io::Result<Pin<&mut (dyn Wire + 'static)>> {
        let wire = self.get_mut().wire.as_deref_mut();
        wire.map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(wire) = self.wire.take().filter(|_| self.is_idle) {
            let place = std::mem::take(&mut self.place);
            self.pool.idle().put(self.pool.now(), place, wire);
        }
    }
}

impl Wire for Kept {
    fn round_trip(&self) -> Option<Duration> {
        self.wire.as_ref()?.round_trip()
    }

    fn protocol(&self) -> Protocol {
        self.wire.as_ref().map_or_else(Protocol::default, |wire| wire.protocol())
    }

    fn was_used(&self) -> bool {
        self.was_used
    }

    fn set_idle(&mut self, is_idle: bool) {
        self.is_idle = is_idle;
    }
}

impl AsyncRead for Kept {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.inner()?.poll_read(cx, buf)
    }
}

impl AsyncWrite for Kept {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.inner()?.poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner()?.poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::*;

    /// Servers whose other ends are here.
    #[derive(Default)]
    struct Servers {
        dialed: AtomicUsize,
        ends: Mutex<Vec<DuplexStream>>,
    }

    impl Dial for Servers {
        fn name(&self) -> &str {
            "wlan0"
        }

        fn dial<'a>(&'a self, _: &'a Url) -> Dialing<'a> {
            self.dialed.fetch_add(1, Ordering::Relaxed);
            let (here, there) = tokio::io::duplex(64);
            self.ends.lock().expect("a lock").push(there);
            Box::pin(async { Ok(Box::new(here) as Box<dyn Wire>) })
        }

        fn request(&self, _: &Url) -> Result<http1::Request, http1::InvalidRequest> {
            unreachable!("nothing is asked for")
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_is_used_again_and_no_other_one_is() {
        let servers = Arc::new(Servers::default());
        let way = Pool::default().over(servers.clone());
        let url = |text: &str| Url::parse(text).expect("a URL");
        let (here, other) = (url("http://192.0.2.1/a"), url("http://192.0.2.1:81/a"));
        let dialed = || servers.dialed.load(Ordering::Relaxed);
        let dial = |url: Url| async {
            let url = url;
            way.dial(&url).await.expect("a connection")
        };
        // One that was given up in the middle of something is not kept.
        drop(dial(here.clone()).await);
        let mut wire = dial(here.clone()).await;
        assert!(dialed() == 2 && !wire.was_used());
        wire.set_idle(true);
        drop(wire);
        // Another port is another server.
        drop(dial(other).await);
        assert_eq!(dialed(), 3);
        let mut wire = dial(here.clone()).await;
        assert!(dialed() == 3 && wire.was_used());
        wire.write_all(b"hello").await.expect("room");
        let mut came = [0; 5];
        let mut end = servers.ends.lock().expect("a lock").remove(1);
        end.read_exact(&mut came).await.expect("what was sent");
        // One that the server closed meanwhile is not used.
        wire.set_idle(true);
        drop((wire, end));
        let mut wire = dial(here.clone()).await;
        assert!(dialed() == 4 && !wire.was_used());
        // Nor one that was idle for long.
        wire.set_idle(true);
        drop(wire);
        time::sleep(MOST_TIME + Duration::from_secs(1)).await;
        drop(dial(here).await);
        assert_eq!(dialed(), 5);
    }
}
