//! Moves bytes between a client and a server, both ways, with half-close, until both have ended.
//!
//! Nothing is held for a connection that rests: bytes are read once there are some, and written at once. What the other side has no room for is
//! kept until it has.

mod ahead;
mod kernel;
mod pipe;
mod stack;
mod tls;

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use polypath_stack::engine::Stream;
use tokio::time::{sleep, timeout};

use super::flow::{Flow, Way};
use super::gate::{Gate, Gates};
use super::leg::{Leg, until_broken};
pub(super) use ahead::Ahead;

/// A client that still sends to a server that has ended and gone has so long at least until it is reset, also where it has acknowledged all: its program
/// may not have read that yet.
const LINGER: Duration = Duration::from_secs(2);
/// How often the system is asked whether a client has taken all.
const ASKING: Duration = Duration::from_millis(50);

/// How it ended.
#[derive(Debug)]
pub(super) enum Moved {
    /// Both sides ended their streams, and each has what the other sent.
    Finished,
    /// The client's connection broke.
    ClientBroke(io::Error),
    /// The server's connection broke.
    ServerBroke(io::Error),
}

/// One end of a way broke.
#[derive(Debug)]
pub(super) enum Broken {
    /// The one that is read from.
    From(io::Error),
    /// The one that is written to.
    To(io::Error),
}

impl Broken {
    /// What that is, on this way.
    fn of(self, way: Way) -> Moved {
        match (way, self) {
            (Way::ToServer, Self::From(error)) | (Way::ToClient, Self::To(error)) => {
                Moved::ClientBroke(error)
            }
            (Way::ToServer, Self::To(error)) | (Way::ToClient, Self::From(error)) => {
                Moved::ServerBroke(error)
            }
        }
    }
}

/// What a way comes to.
pub(super) type Carried = Result<(), Broken>;

/// What each side has said already.
#[derive(Debug, Default)]
pub(super) struct Early {
    pub(super) of_client: Bytes,
    pub(super) of_server: Bytes,
}

/// The two ways between a client and a server, which [`both`] has to be given, pinned: each is in a future once only then. What was said early goes
/// first.
pub(super) fn ways<'a>(
    client: &'a Leg,
    server: &'a Leg,
    early: Early,
    flow: &'a Flow,
    gates: Gates,
    one_has_ended: &'a AtomicBool,
) -> (impl Future<Output = Carried> + 'a, impl Future<Output = Carried> + 'a) {
    let going = |way, gate| Going { flow, way, gate, one_has_ended, writes: Writes::No };
    let (up, down) = (going(Way::ToServer, gates.to_server), going(Way::ToClient, gates.to_client));
    // Boxed, as all that few need.
    let boxed = |early: Bytes| (!early.is_empty()).then(|| Box::new(early));
    let (of_client, of_server) = (boxed(early.of_client), boxed(early.of_server));
    (carry_all(client, server, of_client, up), carry_all(server, client, of_server, down))
}

/// Whether what was written to only hears no more. Any other error of a connection is given once: who writes has it, and who reads comes to an end
/// that looks as if it were one.
fn hears_no_more(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::NotConnected)
}

/// Moves bytes until both sides have ended. If it does not end in order, the caller has to reset both connections: nobody shall take it for the end.
#[expect(clippy::manual_async_fn, reason = "an async fn has room for its arguments twice")]
pub(super) fn both(
    mut up: Pin<&mut impl Future<Output = Carried>>,
    mut down: Pin<&mut impl Future<Output = Carried>>,
    client: &Leg,
) -> impl Future<Output = Moved> {
    async move {
        let (first, ended) = poll_fn(|cx| {
            if let Poll::Ready(ended) = up.as_mut().poll(cx) {
                return Poll::Ready((Way::ToServer, ended));
            }
            down.as_mut().poll(cx).map(|ended| (Way::ToClient, ended))
        })
        .await;
        let error = match ended {
            Ok(()) => None,
            // A server may answer, end and hear no more; what it has said is still for the client.
            Err(Broken::To(error)) if first == Way::ToServer && hears_no_more(&error) => Some(error),
            Err(broken) => return broken.of(first),
        };
        let (other, ended) = match first {
            Way::ToServer => (Way::ToClient, down.await),
            Way::ToClient => (Way::ToServer, up.await),
        };
        let error = match (ended, error) {
            (Ok(()), None) => return Moved::Finished,
            (Ok(()), Some(error)) => error,
            (Err(_), Some(error)) => return Moved::ServerBroke(error),
            // It has said all that it has to say, and hears no more.
            (Err(Broken::To(error)), None) if other == Way::ToServer => error,
            (Err(broken), None) => return broken.of(other),
        };
        // Boxed: few need it.
        Box::pin(linger(client, error)).await
    }
}

/// The client has its answer and the end of it under way, and takes them first, however slow it is. What it still sends is for nobody, which it hears of
/// by a reset then, as without a proxy. Where nobody tells whether it has taken all, there is no reset: its answer is worth more.
async fn linger(client: &Leg, error: io::Error) -> Moved {
    let mut discarding = pin!(async {
        loop {
            match read(client).await {
                Ok(bytes) if bytes.is_empty() => return,
                Ok(_) => {}
                Err(_) => return,
            }
        }
    });
    let mut taking = pin!(async {
        while client.is_all_acknowledged() == Some(false) {
            sleep(ASKING).await;
        }
    });
    if timeout(LINGER, discarding.as_mut()).await.is_err() {
        // A client that has to send before it reads goes on with that meanwhile.
        tokio::select! {
            () = taking.as_mut() => {}
            () = discarding => taking.await,
        }
    } else {
        taking.await;
    }
    match client.is_all_acknowledged() {
        Some(_) => Moved::ServerBroke(error),
        None => Moved::Finished,
    }
}

/// One way, and what is known of it and holds for it.
struct Going<'a> {
    flow: &'a Flow,
    way: Way,
    gate: Gate,
    /// Whether one of the two ways has come to its end.
    one_has_ended: &'a AtomicBool,
    writes: Writes,
}

/// How often something was written.
#[derive(Clone, Copy, Debug)]
enum Writes {
    No,
    Once,
    Often,
}

impl Going<'_> {
    /// How many bytes may be moved, of as many as that, once any may; unless where they come from breaks before, or where they go.
    fn pass<F: Future<Output = io::Error>, T: Future<Output = io::Error>>(
        &mut self,
        wanted: usize,
        from: impl FnOnce() -> F,
        to: impl FnOnce() -> T,
    ) -> impl Future<Output = Result<usize, Broken>> {
        // Boxed: connections without limits have no room for it.
        let passing = self.gate.has_to_ask().then(|| {
            Box::pin(async move {
                // Who waits neither reads nor writes, and would not notice that there is nobody any more.
                tokio::select! {
                    biased;
                    granted = self.gate.pass(wanted, self.flow) => Ok(granted),
                    error = from() => Err(Broken::From(error)),
                    error = to() => Err(Broken::To(error)),
                }
            })
        });
        async move {
            match passing {
                Some(passing) => passing.await,
                None => Ok(wanted),
            }
        }
    }

    /// Something is written; true for the second time, before which the connection has to be told that it shall wait for no acknowledgment of the
    /// first. Many connections end before.
    fn writes_again(&mut self) -> bool {
        let is_second = matches!(self.writes, Writes::Once);
        self.writes = if matches!(self.writes, Writes::No) { Writes::Once } else { Writes::Often };
        is_second
    }

    async fn write(&mut self, to: &Leg, bytes: Bytes) -> Carried {
        if let Leg::Plain(Stream::Kernel(to)) = to
            && self.writes_again()
        {
            kernel::send_at_once(to);
        }
        write(to, bytes).await.map_err(Broken::To)
    }

    /// So many were moved, of those that might have been.
    fn moved(&mut self, count: usize, granted: usize) {
        self.flow.moved(self.way, count);
        self.took(count, granted);
    }

    /// So many were read, of those that might have been.
    fn took(&mut self, count: usize, granted: usize) {
        self.gate.give_back(granted.saturating_sub(count));
    }
}

/// No async fn, which would have room for its arguments twice.
#[expect(clippy::manual_async_fn, reason = "for its size")]
fn carry_all(
    from: &Leg,
    to: &Leg,
    early: Option<Box<Bytes>>,
    mut going: Going<'_>,
) -> impl Future<Output = Carried> {
    async move {
        if let Some(early) = early {
            Box::pin(write_early(from, to, *early, &mut going)).await?;
        }
        match (from, to) {
            (Leg::Plain(Stream::Kernel(from)), Leg::Plain(Stream::Kernel(to))) => {
                kernel::carry(from, to, &mut going).await?;
            }
            // Each of their futures would be in those of the kernel's connections, too.
            (Leg::Plain(from), _) => Box::pin(stack::carry(from, to, &mut going)).await?,
            (Leg::Tls(secured), _) => Box::pin(tls::carry(secured, to, &mut going)).await?,
        }
        if going.one_has_ended.swap(true, Ordering::Relaxed) && matches!(to, Leg::Plain(Stream::Kernel(_))) {
            // Both have ended, and all of it was read: closing, which comes now, says so, too.
            return Ok(());
        }
        to.finish_writing().await.map_err(Broken::To)
    }
}

async fn write_early(from: &Leg, to: &Leg, mut early: Bytes, going: &mut Going<'_>) -> Carried {
    while !early.is_empty() {
        let count = going.pass(early.len(), || broken_source(from), || broken(to)).await?.min(early.len());
        going.write(to, early.split_to(count)).await?;
        going.moved(count, count);
    }
    Ok(())
}

/// Waits until the connection is broken, and says how.
pub(super) async fn broken(leg: &Leg) -> io::Error {
    match leg {
        Leg::Plain(Stream::Kernel(stream)) => kernel::broken(stream).await,
        // Who moves its bytes has it.
        Leg::Tls(_) => Box::pin(until_broken(|| leg.is_broken())).await,
        // A stack of ours tells who reads.
        _ => std::future::pending().await,
    }
}

/// The same of where bytes come from, where that can be told from a side that only hears no more.
async fn broken_source(leg: &Leg) -> io::Error {
    match leg {
        Leg::Plain(Stream::Kernel(stream)) => kernel::broken_source(stream).await,
        _ => std::future::pending().await,
    }
}

/// The next bytes; none at the end.
async fn read(from: &Leg) -> io::Result<Bytes> {
    match from {
        Leg::Plain(Stream::Kernel(from)) => kernel::read(from, kernel::FEW_BYTES).await,
        Leg::Tls(from) => Box::pin(tls::read(from)).await,
        Leg::Plain(Stream::Stack(from)) => from.read_payload().await.map(|payload| payload.to_vec().into()),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// All of them.
async fn write(to: &Leg, bytes: Bytes) -> io::Result<()> {
    match to {
        Leg::Plain(Stream::Kernel(to)) => kernel::write_all(to, bytes).await,
        Leg::Plain(Stream::Stack(to)) => stack::write_all(to, bytes).await,
        Leg::Tls(to) => Box::pin(to.write_all(&bytes)).await,
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}
