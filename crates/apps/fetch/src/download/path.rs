//! One path of a download or a stream: it keeps a connection, asks what it is told to ask, and hands on what comes.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use url::Url;

use crate::http1::{self, Head};
use crate::net::{Dialer, Stream};
use crate::schedule::RequestId;

/// What is read at once.
const READ_BYTES: usize = 256 << 10;
/// Between attempts to connect, at first and at most.
const LEAST_PAUSE: Duration = Duration::from_millis(200);
const MOST_PAUSE: Duration = Duration::from_secs(5);
/// The same where a connection was before: its network may be back at any time.
const MOST_PAUSE_OF_RETURN: Duration = Duration::from_secs(1);
/// An attempt to come back that has waited so long is joined by another: what was sent into a dead network is sent again too late.
const ANOTHER_ATTEMPT: Duration = Duration::from_millis(1500);

/// A connection to a server.
pub trait Wire: AsyncRead + AsyncWrite + Send + Unpin {
    /// The round trip that the system measured.
    fn round_trip(&self) -> Option<Duration>;
}

/// The future of [`Dial::lost`].
pub type Losing<'a> = Pin<Box<dyn Future<Output = String> + Send + 'a>>;

/// The future of [`Dial::dial`].
pub type Dialing<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn Wire>>> + Send + 'a>>;

/// A way to servers, such as over one interface.
pub trait Dial: Send + Sync {
    /// What people call it, such as `wlan0`.
    fn name(&self) -> &str;
    /// Connects to the server of a URL. An error says over which way it failed.
    fn dial<'a>(&'a self, url: &'a Url) -> Dialing<'a>;
    /// Completes when connections over it can bring nothing any more, with the reason; pending for ever where nobody can know.
    fn lost(&self) -> Losing<'_> {
        Box::pin(std::future::pending())
    }
    /// The request for a URL on a connection to it.
    ///
    /// # Errors
    /// The URL can't be asked for.
    fn request(&self, url: &Url) -> Result<http1::Request, http1::InvalidRequest>;
}

impl Dial for Dialer {
    fn name(&self) -> &str {
        self.interface().unwrap_or("the default route")
    }

    fn dial<'a>(&'a self, url: &'a Url) -> Dialing<'a> {
        Box::pin(async {
            let stream = self.dial(url).await.map_err(io::Error::other)?;
            Ok(Box::new(stream) as Box<dyn Wire>)
        })
    }

    fn lost(&self) -> Losing<'_> {
        Box::pin(async { self.interface_lost().await.to_string() })
    }

    fn request(&self, url: &Url) -> Result<http1::Request, http1::InvalidRequest> {
        self.request(http1::Method::Get, url)
    }
}

impl Wire for Stream {
    fn round_trip(&self) -> Option<Duration> {
        self.round_trip_time().ok().flatten()
    }
}

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
    },
}

/// What all requests of a download have.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    pub(crate) url: Url,
    pub(crate) fields: Vec<(String, String)>,
}

/// Fields that are for one host only.
const FOR_ONE_HOST: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

/// What requests have beside what they need. What is for one host only goes to no other, wherever a server or a manifest sends.
#[derive(Clone, Debug)]
pub(crate) struct RequestFields {
    /// Whose host is told everything.
    home: Url,
    fields: Vec<(String, String)>,
}

impl RequestFields {
    pub(crate) fn new(home: Url, fields: Vec<(String, String)>) -> Self {
        Self { home, fields }
    }

    /// What requests to the server of a URL have.
    pub(crate) fn asking(&self, url: &Url) -> Asking {
        let is_at_home = self.home.origin() == url.origin();
        let is_for_it = |name: &str| is_at_home || !FOR_ONE_HOST.contains(&&*name.to_ascii_lowercase());
        let fields = self.fields.iter().filter(|(name, _)| is_for_it(name)).cloned().collect();
        Asking { url: url.clone(), fields }
    }
}

impl Asking {
    /// A request for a range of the file, or all.
    pub(crate) fn request(
        &self,
        way: &dyn Dial,
        url: Option<&Url>,
        range: Option<&str>,
    ) -> Result<http1::Request, http1::InvalidRequest> {
        let mut request = way.request(url.unwrap_or(&self.url))?;
        let has = |name: &str| self.fields.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        for (name, value) in [
            ("User-Agent", concat!("polypath/", env!("CARGO_PKG_VERSION"))),
            ("Accept", "*/*"),
            ("Accept-Encoding", "identity"),
        ] {
            if !has(name) {
                request = request.with_field(name, value)?;
            }
        }
        for (name, value) in &self.fields {
            request = request.with_field(name, value)?;
        }
        match range {
            Some(range) => request.with_field("Range", range),
            None => Ok(request),
        }
    }
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
    mut wire: Box<dyn Wire>,
    (way, asking): (&dyn Dial, &Asking),
    commands: &mut mpsc::UnboundedReceiver<Command>,
    tell: &impl Fn(Event) -> T,
) -> Option<bool> {
    tell(Event::Opened { round_trip: wire.round_trip() }).await.ok()?;
    let mut http = http1::Connection::new();
    // The schedule's name of each request on this connection.
    let mut asked: Vec<(http1::RequestId, RequestId)> = Vec::new();
    let mut buffer = BytesMut::new();
    let (mut answers, mut complete) = (0, 0);
    let mut lost = way.lost();
    let mut is_lost = false;
    let cause = loop {
        buffer.reserve(READ_BYTES);
        let read = tokio::select! {
            cause = &mut lost => {
                is_lost = true;
                break Some(cause);
            }
            command = commands.recv() => match command? {
                Command::Ask { connection: meant, id, url, range } if meant == connection => {
                    // Whoever asks has made sure that it can be asked.
                    if let Ok(request) = asking.request(way, url.as_ref(), range.as_deref()) {
                        asked.push((http.request(request), id));
                    }
                    send(&mut *wire, &mut http).await.map(|()| None)
                }
                Command::Renew { connection: meant, pause } if meant == connection => {
                    drop(wire);
                    sleep(pause).await;
                    return Some(true);
                }
                Command::Ask { .. } | Command::Renew { .. } => Ok(None),
            },
            read = wire.read_buf(&mut buffer) => read.map(Some),
        };
        let mut error = None;
        match read {
            Ok(None) => continue,
            Ok(Some(0)) => http.handle_end(),
            Ok(Some(_)) => {
                error = http.handle_bytes(buffer.split().freeze()).err().map(|error| error.to_string())
            }
            Err(cause) => {
                http.handle_lost();
                error = Some(cause.to_string());
            }
        }
        let name = |id: http1::RequestId| asked.iter().find(|(known, _)| *known == id).map(|(_, id)| *id);
        let mut truncated = false;
        while let Some(event) = http.poll_event() {
            let event = match event {
                http1::Event::Head { id, head } => {
                    answers += 1;
                    name(id).map(|id| Event::Head { id, head, round_trip: wire.round_trip() })
                }
                http1::Event::Data { id, bytes } => name(id).map(|id| Event::Data { id, bytes }),
                http1::Event::End { id } => {
                    complete += 1;
                    name(id).map(|id| Event::End { id })
                }
                // Both are asked again when the connection is gone.
                http1::Event::Truncated { .. } => {
                    truncated = true;
                    None
                }
                http1::Event::Unanswered { .. } => None,
            };
            if let Some(event) = event {
                tell(event).await.ok()?;
            }
        }
        if !http.is_open() {
            break error
                .or_else(|| truncated.then(|| "the server closed the connection in the middle".into()));
        }
        // What is answered is forgotten.
        let outstanding = http.outstanding();
        if asked.len() > outstanding + 16 {
            asked.drain(..asked.len() - outstanding);
        }
    };
    let left_unasked = !is_lost && (1..=2).contains(&answers) && http.outstanding() > 0;
    tell(Event::Lost { cause, left_unasked }).await.ok()?;
    // A server that ends each answer too early is not asked again at once.
    Some(complete > 0)
}

/// Sends what is to be sent.
async fn send(wire: &mut dyn Wire, http: &mut http1::Connection) -> io::Result<()> {
    while let Some(bytes) = http.poll_transmit() {
        wire.write_all(&bytes).await?;
    }
    wire.flush().await
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn what_is_for_one_host_goes_to_no_other() {
        let url = |text: &str| Url::parse(text).expect("a URL");
        let fields = [("AUTHORIZATION", "a"), ("Cookie", "b"), ("Accept", "c")];
        let fields = fields.map(|(name, value)| (name.into(), value.into())).to_vec();
        let fields = RequestFields::new(url("https://example.org/film.mpd"), fields);
        let names = |text: &str| fields.asking(&url(text)).fields.len();
        assert_eq!(names("https://example.org/1.m4s"), 3);
        for other in
            ["http://example.org/1.m4s", "https://example.org:8443/1.m4s", "https://cdn.example.org/1.m4s"]
        {
            assert_eq!(names(other), 1, "{other}");
        }
    }

    impl Wire for tokio::io::DuplexStream {
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
