//! Those who come: most talk now and then and go after a while, some are as slow as they can be.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use polypath_system::Namespace;
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::super::client::{Service, socks_request};

/// They come over so long, so that it is no flood.
const COMING: Duration = Duration::from_secs(20);
/// Talks of one connection, at most.
const MOST_TALKS: u64 = 8;
/// Between two talks, at most.
const MOST_REST_MS: u64 = 20_000;
const MOST_WORDS_BYTES: u64 = 4096;
/// Of one talk in so many.
const LONG_WORDS_BYTES: usize = 256 << 10;
const LONG_ONE_IN: u64 = 50;
/// Of so many, one resets its connection, and does not end it in order.
const RESET_ONE_IN: u64 = 20;
/// After that, an answer does not come any more.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two octets of a slow one.
const SLOWLY: Duration = Duration::from_secs(1);
/// What a slow reader asks for: more than buffers hold.
const UNREAD_BYTES: usize = 8 << 20;

/// Who comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comers {
    /// At a time.
    pub(super) connections: usize,
    /// Those of them that are as slow as they can be.
    pub(super) slow: usize,
    /// What they say and when is drawn from this.
    pub(super) seed: u64,
}

/// What became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Counted {
    /// Connections that began, of those who are not slow.
    pub(crate) begun: u64,
    /// That ended in order with every byte.
    pub(crate) whole: u64,
    /// That the client reset.
    pub(crate) reset: u64,
    /// Bytes that were not those that were sent.
    pub(crate) wrong_bytes: u64,
    /// Connections that ended before their last byte.
    pub(crate) cut_short: u64,
    /// That never were.
    pub(crate) refused: u64,
    /// There and back.
    pub(crate) bytes: u64,
    /// Connections of the slow, and those of them that the proxy gave up.
    pub(crate) slow_begun: u64,
    pub(crate) slow_given_up: u64,
}

#[derive(Debug, Default)]
struct Counters {
    begun: AtomicU64,
    whole: AtomicU64,
    reset: AtomicU64,
    wrong_bytes: AtomicU64,
    cut_short: AtomicU64,
    refused: AtomicU64,
    bytes: AtomicU64,
    slow_begun: AtomicU64,
    slow_given_up: AtomicU64,
    open: AtomicU64,
}

/// All of them, in a thread of their own.
pub(super) struct Crowd {
    counters: Arc<Counters>,
    is_over: watch::Sender<bool>,
    thread: JoinHandle<io::Result<io::Result<()>>>,
}

impl Crowd {
    pub(super) fn begin(client: &Namespace, origin: SocketAddr, comers: Comers) -> Self {
        let counters = Arc::new(Counters::default());
        let (is_over, over) = watch::channel(false);
        let (client, shared) = (client.clone(), counters.clone());
        let thread = std::thread::spawn(move || client.run(|| come(origin, comers, &shared, &over)));
        Self { counters, is_over, thread }
    }

    /// Clients with a connection, slow ones included.
    pub(super) fn open(&self) -> u64 {
        self.counters.open.load(Relaxed)
    }

    /// All end what they do, and go.
    pub(super) fn end(self) -> io::Result<Counted> {
        self.is_over.send_replace(true);
        self.thread.join().map_err(|_| io::Error::other("the clients' thread died"))???;
        let counters = &self.counters;
        let of = |counter: &AtomicU64| counter.load(Relaxed);
        Ok(Counted {
            begun: of(&counters.begun),
            whole: of(&counters.whole),
            reset: of(&counters.reset),
            wrong_bytes: of(&counters.wrong_bytes),
            cut_short: of(&counters.cut_short),
            refused: of(&counters.refused),
            bytes: of(&counters.bytes),
            slow_begun: of(&counters.slow_begun),
            slow_given_up: of(&counters.slow_given_up),
        })
    }
}

fn come(
    origin: SocketAddr,
    comers: Comers,
    counters: &Arc<Counters>,
    over: &watch::Receiver<bool>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut clients = tokio::task::JoinSet::new();
        for number in 0..comers.connections {
            let client = Client {
                service: Service::ALL[number % Service::ALL.len()],
                origin,
                random: ChaCha8Rng::seed_from_u64(comers.seed.wrapping_add(number as u64)),
                counters: counters.clone(),
                over: over.clone(),
            };
            let delay = COMING.mul_f64(number as f64 / comers.connections as f64);
            let is_slow = number < comers.slow;
            clients.spawn(async move {
                sleep(delay).await;
                if is_slow { client.be_slow().await } else { client.come_and_go().await }
            });
        }
        while clients.join_next().await.is_some() {}
    });
    Ok(())
}

struct Client {
    service: Service,
    origin: SocketAddr,
    random: ChaCha8Rng,
    counters: Arc<Counters>,
    over: watch::Receiver<bool>,
}

/// Why a connection did not end in order.
enum Fault {
    Refused,
    CutShort,
    WrongBytes(u64),
}

/// How it did.
enum Whole {
    Ended,
    Reset,
}

impl Client {
    fn draw(&mut self, below: u64) -> u64 {
        self.random.next_u64() % below
    }

    fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// Until then, or until all is over.
    async fn rest(&mut self, time: Duration) {
        // The sender outlives the clients.
        let _ = timeout(time, self.over.wait_for(|over| *over)).await;
    }

    async fn come_and_go(mut self) {
        while !self.is_over() {
            add(&self.counters.begun, 1);
            match self.live().await {
                Ok(Whole::Ended) => add(&self.counters.whole, 1),
                Ok(Whole::Reset) => add(&self.counters.reset, 1),
                Err(fault) => {
                    match fault {
                        Fault::Refused => add(&self.counters.refused, 1),
                        Fault::CutShort => add(&self.counters.cut_short, 1),
                        Fault::WrongBytes(count) => add(&self.counters.wrong_bytes, count),
                    }
                    self.rest(SLOWLY).await;
                }
            }
        }
    }

    async fn live(&mut self) -> Result<Whole, Fault> {
        let connecting = timeout(PATIENCE, connect(self.service, self.origin)).await;
        let mut stream = connecting.map_err(|_| Fault::Refused)?.map_err(|_| Fault::Refused)?;
        let counters = self.counters.clone();
        let _open = Open::new(&counters);
        for _ in 0..=self.draw(MOST_TALKS) {
            let is_long = self.draw(LONG_ONE_IN) == 0;
            let length = if is_long { LONG_WORDS_BYTES } else { 1 + self.draw(MOST_WORDS_BYTES) as usize };
            self.talk(&mut stream, length).await?;
            let rest = Duration::from_millis(self.draw(MOST_REST_MS));
            self.rest(rest).await;
            if self.is_over() {
                break;
            }
        }
        if self.draw(RESET_ONE_IN) == 0 {
            stream.set_zero_linger().map_err(|_| Fault::CutShort)?;
            return Ok(Whole::Reset);
        }
        stream.shutdown().await.map_err(|_| Fault::CutShort)?;
        match timeout(PATIENCE, stream.read(&mut [0])).await {
            Ok(Ok(0)) => Ok(Whole::Ended),
            Ok(Ok(more)) => Err(Fault::WrongBytes(more as u64)),
            _ => Err(Fault::CutShort),
        }
    }

    /// What is said comes back.
    async fn talk(&mut self, stream: &mut TcpStream, length: usize) -> Result<(), Fault> {
        let mut words = vec![0; length];
        self.random.fill_bytes(&mut words);
        let mut answer = vec![0; length];
        let (mut reading, mut writing) = stream.split();
        let both = async { tokio::try_join!(writing.write_all(&words), reading.read_exact(&mut answer)) };
        timeout(PATIENCE, both).await.map_err(|_| Fault::CutShort)?.map_err(|_| Fault::CutShort)?;
        let wrong = words.iter().zip(&answer).filter(|(said, heard)| said != heard).count();
        if wrong > 0 {
            return Err(Fault::WrongBytes(wrong as u64));
        }
        add(&self.counters.bytes, 2 * length as u64);
        Ok(())
    }

    async fn be_slow(mut self) {
        while !self.is_over() {
            add(&self.counters.slow_begun, 1);
            let mut over = self.over.clone();
            let service = self.service;
            let (origin, counters) = (self.origin, self.counters.clone());
            let slow = async {
                let _open = Open::new(&counters);
                match service {
                    Service::Forward => read_slowly(origin).await,
                    Service::Connect => {
                        ask_slowly(service, b"GET http://10.88.1.2:7/ HTTP/1.1\r\nX-Slow: ").await
                    }
                    Service::Socks => ask_slowly(service, &[5, 255]).await,
                }
            };
            tokio::select! {
                _ = slow => add(&self.counters.slow_given_up, 1),
                _ = over.wait_for(|over| *over) => {}
            }
            self.rest(SLOWLY).await;
        }
    }
}

/// An octet a second, until the proxy has enough of it.
async fn ask_slowly(service: Service, begin: &[u8]) -> io::Result<()> {
    let mut stream = TcpStream::connect(service.addr()).await?;
    let mut answer = [0; 64];
    for octet in begin.iter().copied().chain(std::iter::repeat(b'1')) {
        stream.write_all(&[octet]).await?;
        match timeout(SLOWLY, stream.read(&mut answer)).await {
            Ok(Ok(0)) => return Ok(()),
            Ok(Err(error)) => return Err(error),
            Ok(Ok(_)) | Err(_) => {}
        }
    }
    Ok(())
}

/// Says a lot, and hears an octet a second of what comes back.
async fn read_slowly(origin: SocketAddr) -> io::Result<()> {
    let mut stream = connect(Service::Forward, origin).await?;
    let (mut reading, mut writing) = stream.split();
    let saying = async {
        let block = [1; 4096];
        for _ in 0..UNREAD_BYTES / block.len() {
            writing.write_all(&block).await?;
        }
        Ok::<_, io::Error>(())
    };
    let hearing = async {
        loop {
            sleep(SLOWLY).await;
            if reading.read(&mut [0]).await? == 0 {
                return Err::<(), io::Error>(io::ErrorKind::UnexpectedEof.into());
            }
        }
    };
    tokio::try_join!(saying, hearing).map(|_| ())
}

/// As [`super::super::client::Way::connect`] does it, for many at a time.
async fn connect(service: Service, origin: SocketAddr) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(service.addr()).await?;
    stream.set_nodelay(true)?;
    let other = |what: &str| Err(io::Error::other(what.to_string()));
    match service {
        Service::Forward => {}
        Service::Connect => {
            stream
                .write_all(format!("CONNECT {origin} HTTP/1.1\r\nHost: {origin}\r\n\r\n").as_bytes())
                .await?;
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                if stream.read_buf(&mut head).await? == 0 || head.len() > 4096 {
                    return other("CONNECT was not answered");
                }
            }
            if head.get(9..12) != Some(b"200") {
                return other("CONNECT was refused");
            }
        }
        Service::Socks => {
            let SocketAddr::V4(origin) = origin else { return other("an address that is not asked for") };
            stream.write_all(&[5, 1, 0]).await?;
            stream.read_exact(&mut [0; 2]).await?;
            stream.write_all(&socks_request(*origin.ip(), origin.port())).await?;
            let mut reply = [0; 10];
            stream.read_exact(&mut reply).await?;
            if reply[1] != 0 {
                return other("SOCKS was refused");
            }
        }
    }
    Ok(stream)
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Relaxed);
}

/// Counts as an open connection, until it is dropped.
struct Open<'a>(&'a Counters);

impl<'a> Open<'a> {
    fn new(counters: &'a Counters) -> Self {
        add(&counters.open, 1);
        Self(counters)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
    }
}
