//! One path of a download or a stream: it keeps a connection, asks what it is told to ask, and hands on what comes.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use url::Url;

use super::asking::Asking;
use super::link::Link;
use super::way::{Dial, Wire};
use crate::http1::{self, Head};
use crate::schedule::RequestId;

/// Between attempts to connect, at first and at most.
const LEAST_PAUSE: Duration = Duration::from_millis(200);
const MOST_PAUSE: Duration = Duration::from_secs(5);
/// The same where a connection was before: its network may be back at any time.
const MOST_PAUSE_OF_RETURN: Duration = Duration::from_secs(1);
/// An attempt to come back that has waited so long is joined by another: what was sent into a dead network is sent again too late.
const ANOTHER_ATTEMPT: Duration = Duration::from_millis(1500);

/// What a path is told.
#[derive(Debug)]
pub(crate) enum Command {
    /// Ask, on the connection of that number; for another URL of the same server, if one is given.
    Ask { connection: u64, id: RequestId, url: Option<Url>, range: Option<String> },
    /// Give up the connection of that number, and make another.
    Renew { connection: u64, pause: Duration },
}

/// What a path tells, of its connection of some number.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) path: usize,
    pub(crate) connection: u64,
    pub(crate) event: Event,
}

#[derive(Debug)]
pub(crate) enum Event {
    /// It has a connection.
    Opened {
        round_trip: Option<Duration>,
    },
    /// It could not connect.
    Failed {
        cause: String,
    },
    Head {
        id: RequestId,
        head: Head,
        round_trip: Option<Duration>,
    },
    Data {
        id: RequestId,
        bytes: Bytes,
    },
    End {
        id: RequestId,
    },
    /// The connection is gone, and whether the server made a mistake.
    Lost {
        cause: Option<String>,
        left_unasked: bool,
        /// The server ended it in the middle of an answer.
        is_cut_off: bool,
    },
}

/// Keeps a connection as long as somebody listens.
pub(crate) async fn keep(
    path: usize,
    way: Arc<dyn Dial>,
    asking: Asking,
    mut commands: mpsc::UnboundedReceiver<Command>,
    events: mpsc::Sender<Told>,
) {
    let mut pause = LEAST_PAUSE;
    let mut connection = 0;
    let mut was_connected = false;
    loop {
        let begun = Instant::now();
        let dialed =
            if was_connected { dial_again(&*way, &asking.url).await } else { way.dial(&asking.url).await };
        connection += 1;
        let most_pause = if was_connected && dialed.is_err() { MOST_PAUSE_OF_RETURN } else { MOST_PAUSE };
        was_connected |= dialed.is_ok();
        let tell = |event| events.send(Told { path, connection, event });
        let is_of_use = match dialed {
            Err(error) => {
                let event = Event::Failed { cause: error.to_string() };
                if tell(event).await.is_err() {
                    return;
                }
                false
            }
            Ok(dialed) => match serve(connection, dialed, (&*way, &asking), &mut commands, &tell).await {
                Some(was_answered) => was_answered,
                None => return,
            },
        };
        // A connection that brought nothing is not made again at once.
        if is_of_use {
            pause = LEAST_PAUSE;
        } else {
            sleep(pause.saturating_sub(begun.elapsed())).await;
            pause = (pause * 2).min(most_pause);
        }
    }
}

/// Connects where a connection was before. The first attempt has all its time, as a slow network wants it; beside it there is a young one,
/// which is quick where the network has just come back.
async fn dial_again(way: &dyn Dial, url: &Url) -> io::Result<Box<dyn Wire>> {
    let mut first = way.dial(url);
    loop {
        tokio::select! {
            dialed = &mut first => return dialed,
            () = sleep(ANOTHER_ATTEMPT) => {}
        }
        let young = tokio::select! {
            dialed = &mut first => return dialed,
            young = timeout(ANOTHER_ATTEMPT, way.dial(url)) => young,
        };
        if let Ok(Ok(wire)) = young {
            return Ok(wire);
        }
    }
}

/// Uses a connection until it ends; whether it brought a whole answer. `None` if nobody listens any more.
async fn serve<T: Future<Output = Result<(), mpsc::error::SendError<Told>>>>(
    connection: u64,
    wire: Box<dyn Wire>,
    (way, asking): (&dyn Dial, &Asking),
    commands: &mut mpsc::UnboundedReceiver<Command>,
    tell: &impl Fn(Event) -> T,
) -> Option<bool> {
    tell(Event::Opened { round_trip: wire.round_trip() }).await.ok()?;
    let was_used = wire.was_used();
    let mut link = Link::begin(wire).await;
    let (mut answers, mut complete, mut unanswered) = (0, 0, 0);
    let mut is_truncated = false;
    let mut lost = way.lost();
    let cause = loop {
        let happened = tokio::select! {
            cause = &mut lost => break Some(cause),
            command = commands.recv() => match command? {
                Command::Ask { connection: meant, id, url, range } if meant == connection => {
                    // Whoever asks has made sure that it can be asked.
                    if let Ok(request) = asking.request(way, url.as_ref(), range.as_deref()) {
                        link.ask(id, request).await;
                    }
                    continue;
                }
                Command::Renew { connection: meant, pause } if meant == connection => {
                    link.give_up();
                    drop(link);
                    sleep(pause).await;
                    return Some(true);
                }
                Command::Ask { .. } | Command::Renew { .. } => continue,
            },
            happened = link.next() => happened,
        };
        let event = match happened {
            Some(http1::Event::Head { id, head }) => {
                answers += 1;
                Event::Head { id, head, round_trip: link.round_trip() }
            }
            Some(http1::Event::Data { id, bytes }) => Event::Data { id, bytes },
            Some(http1::Event::End { id }) => {
                complete += 1;
                Event::End { id }
            }
            // Both are asked again when the connection is gone.
            Some(http1::Event::Truncated { .. }) => {
                is_truncated = true;
                continue;
            }
            Some(http1::Event::Unanswered { .. }) => {
                unanswered += 1;
                continue;
            }
            None => {
                let in_the_middle =
                    || is_truncated.then_some("the server closed the connection in the middle");
                break link.cause().or_else(in_the_middle).map(str::to_owned);
            }
        };
        tell(event).await.ok()?;
    };
    link.give_up();
    // One that was kept for this download, and ended before, is nobody's mistake.
    let was_over = was_used && answers == 0 && link.is_closed_by_server();
    let cause = cause.filter(|_| !was_over);
    // Where the network is lost, that says nothing of the server.
    let left_unasked = link.is_closed_by_server() && (1..=2).contains(&answers) && unanswered > 0;
    let is_cut_off = is_truncated && link.is_closed_by_server();
    tell(Event::Lost { cause, left_unasked, is_cut_off }).await.ok()?;
    // A server that ends each answer too early is not asked again at once.
    Some(complete > 0 || was_over)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;
    use crate::download::way::Dialing;

    impl Wire for DuplexStream {
        fn round_trip(&self) -> Option<Duration> {
            None
        }
    }

    /// A network that swallows the first attempts, refuses the next ones, and is back then.
    struct Returning {
        attempts: AtomicUsize,
        swallowed: usize,
        refused: usize,
    }

    impl Dial for Returning {
        fn name(&self) -> &str {
            "wlan0"
        }

        fn dial<'a>(&'a self, _: &'a Url) -> Dialing<'a> {
            let attempt = self.attempts.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                if attempt < self.swallowed {
                    std::future::pending::<()>().await;
                }
                if attempt < self.swallowed + self.refused {
                    return Err(io::ErrorKind::NetworkUnreachable.into());
                }
                Ok(Box::new(tokio::io::duplex(1).0) as Box<dyn Wire>)
            })
        }

        fn request(&self, _: &Url) -> Result<http1::Request, http1::InvalidRequest> {
            unreachable!("nothing is asked for")
        }
    }

    /// The other end of each connection goes to a server.
    struct Connecting(mpsc::UnboundedSender<DuplexStream>);

    impl Dial for Connecting {
        fn name(&self) -> &str {
            "wlan0"
        }

        fn dial<'a>(&'a self, _: &'a Url) -> Dialing<'a> {
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            self.0.send(theirs).expect("a server");
            Box::pin(async { Ok(Box::new(ours) as Box<dyn Wire>) })
        }

        fn request(&self, url: &Url) -> Result<http1::Request, http1::InvalidRequest> {
            http1::Request::new(http1::Method::Get, "example.org", url.path())
        }
    }

    #[tokio::test]
    async fn a_server_that_closes_between_two_answers_is_told_from_one_that_breaks_off() {
        let whole = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na";
        let none = "HTTP/1.1 204 No Content\r\n\r\n";
        // What comes before the end, and whether the server leaves what it was asked beside that.
        for (sent, expected) in [(none, true), (whole, true), ("", false), (&none.repeat(2), false)] {
            let (connected, mut servers) = mpsc::unbounded_channel();
            let (commands, receiver) = mpsc::unbounded_channel();
            let (events, mut told) = mpsc::channel(16);
            let url = Url::parse("http://example.org/file").expect("a URL");
            let asking = Asking { url, fields: Vec::new(), cookies: None };
            let keeping = tokio::spawn(keep(0, Arc::new(Connecting(connected)), asking, receiver, events));
            let mut server = servers.recv().await.expect("a connection");
            for id in 0..2 {
                let (id, url, range) = (RequestId::new(id), None, None);
                commands.send(Command::Ask { connection: 1, id, url, range }).expect("a path");
            }
            let mut asked = Vec::new();
            while asked.windows(4).filter(|end| end == b"\r\n\r\n").count() < 2 {
                assert_ne!(server.read_buf(&mut asked).await.expect("a connection"), 0);
            }
            server.write_all(sent.as_bytes()).await.expect("a connection");
            drop(server);
            let left = loop {
                if let Event::Lost { left_unasked, .. } = told.recv().await.expect("a path").event {
                    break left_unasked;
                }
            };
            assert_eq!(left, expected, "{sent:?}");
            keeping.abort();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_was_swallowed_holds_up_no_return() {
        let url = Url::parse("http://192.0.2.1/").expect("a URL");
        for (swallowed, refused, most) in [(1, 0, 1500), (1, 2, 4500), (3, 0, 7500)] {
            let way = Returning { attempts: AtomicUsize::new(0), swallowed, refused };
            let begun = Instant::now();
            assert!(dial_again(&way, &url).await.is_ok());
            let took = begun.elapsed();
            assert!(took <= Duration::from_millis(most + 10), "{swallowed} {refused}: {took:?}");
        }
        // The first one's failure is the failure.
        let way = Returning { attempts: AtomicUsize::new(0), swallowed: 0, refused: 1 };
        assert!(dial_again(&way, &url).await.is_err());
    }
}
