//! Moves bytes between a client and a server, both ways, with half-close, until both have ended.
//!
//! Nothing is held for a connection that rests: bytes are read once there are some, and written at once. What the other side has no room for is
//! kept until it has.

mod ahead;
mod kernel;
mod pipe;
mod stack;
mod tls;

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// Nothing moved for as long as that is allowed.
    Idle,
}

/// One end of a way broke.
#[derive(Debug)]
enum Broken {
    /// The one that is read from.
    From(io::Error),
    /// The one that is written to.
    To(io::Error),
}

/// What a way comes to.
type Carried = Result<(), Broken>;

/// What each side has said already.
#[derive(Debug, Default)]
pub(super) struct Early {
    pub(super) of_client: Bytes,
    pub(super) of_server: Bytes,
}

/// Moves bytes until both sides have ended, beginning with those that came early. If it does not end in order, the caller has to reset both
/// connections: nobody shall take it for the end.
pub(super) async fn pump(
    client: &Leg,
    server: &Leg,
    early: Early,
    flow: &Flow,
    gates: Gates,
    idle: Option<Duration>,
) -> Moved {
    let both = pin!(both(client, server, early, flow, gates));
    flow.unless_idle(idle, both).await.unwrap_or(Moved::Idle)
}

/// Whether what was written to only hears no more. Any other error of a connection is given once: who writes has it, and who reads comes to an end
/// that looks as if it were one.
fn hears_no_more(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::NotConnected)
}

async fn both(client: &Leg, server: &Leg, early: Early, flow: &Flow, gates: Gates) -> Moved {
    let Gates { to_server, to_client } = gates;
    let Early { of_client, of_server } = early;
    let one_has_ended = AtomicBool::new(false);
    let going = |way, gate| Going { flow, way, gate, one_has_ended: &one_has_ended, writes: Writes::No };
    let mut up = pin!(carry_all(client, server, of_client, going(Way::ToServer, to_server)));
    let mut down = pin!(carry_all(server, client, of_server, going(Way::ToClient, to_client)));
    let up_ended = tokio::select! {
        biased;
        ended = &mut up => ended,
        ended = &mut down => {
            return match ended {
                Ok(()) => match up.await {
                    Ok(()) => Moved::Finished,
                    Err(Broken::From(error)) => Moved::ClientBroke(error),
                    // It has said all that it has to say, and hears no more.
                    Err(Broken::To(error)) => linger(client, error).await,
                },
                Err(Broken::From(error)) => Moved::ServerBroke(error),
                Err(Broken::To(error)) => Moved::ClientBroke(error),
            };
        }
    };
    match up_ended {
        Ok(()) => match down.await {
            Ok(()) => Moved::Finished,
            Err(Broken::From(error)) => Moved::ServerBroke(error),
            Err(Broken::To(error)) => Moved::ClientBroke(error),
        },
        Err(Broken::From(error)) => Moved::ClientBroke(error),
        // A server may answer, end and hear no more; what it has said is still for the client.
        Err(Broken::To(error)) if hears_no_more(&error) => match down.await {
            Ok(()) => linger(client, error).await,
            Err(_) => Moved::ServerBroke(error),
        },
        Err(Broken::To(error)) => Moved::ServerBroke(error),
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
    async fn pass<F: Future<Output = io::Error>, T: Future<Output = io::Error>>(
        &mut self,
        wanted: usize,
        from: impl FnOnce() -> F,
        to: impl FnOnce() -> T,
    ) -> Result<usize, Broken> {
        if !self.gate.is_limited() {
            return Ok(self.gate.pass(wanted, self.flow).await);
        }
        // Who waits neither reads nor writes, and would not notice that there is nobody any more. Boxed: connections without limits have no room for it.
        let passing = async {
            tokio::select! {
                biased;
                granted = self.gate.pass(wanted, self.flow) => Ok(granted),
                error = from() => Err(Broken::From(error)),
                error = to() => Err(Broken::To(error)),
            }
        };
        Box::pin(passing).await
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

async fn carry_all(from: &Leg, to: &Leg, mut early: Bytes, mut going: Going<'_>) -> Carried {
    while !early.is_empty() {
        let count = going.pass(early.len(), || broken_source(from), || broken(to)).await?.min(early.len());
        going.write(to, early.split_to(count)).await?;
        going.moved(count, count);
    }
    match (from, to) {
        (Leg::Plain(Stream::Kernel(from)), Leg::Plain(Stream::Kernel(to))) => {
            kernel::carry(from, to, &mut going).await?;
        }
        (Leg::Plain(from), _) => stack::carry(from, to, &mut going).await?,
        // Each of its futures would be in those of plain connections, too.
        (Leg::Tls(secured), _) => Box::pin(tls::carry(secured, to, &mut going)).await?,
    }
    if going.one_has_ended.swap(true, Ordering::Relaxed) && matches!(to, Leg::Plain(Stream::Kernel(_))) {
        // Both have ended, and all of it was read: closing, which comes now, says so, too.
        return Ok(());
    }
    to.finish_writing().await.map_err(Broken::To)
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
        Leg::Plain(Stream::Kernel(to)) => kernel::write_all(to, &bytes).await,
        Leg::Plain(Stream::Stack(to)) => stack::write_all(to, bytes).await,
        Leg::Tls(to) => Box::pin(to.write_all(&bytes)).await,
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}
