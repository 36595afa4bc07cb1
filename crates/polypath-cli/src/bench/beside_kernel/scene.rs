//! Two hosts and emulated access links between them: the server's kernel at one end, any client at the other.

use std::io;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use polypath_emulate::{EmulatedLink, Emulation};
use polypath_link::{LinkConfig, QueueLimit};
use polypath_mptcp::path_manager::LocalEndpoint;
use polypath_mptcp::{ConnectionConfig, HostConfig};
use polypath_stack::engine::{ConnectOptions, KernelEngine, Stream};
use polypath_stack::{Engine, Stack};
use polypath_system::Namespace;
use polypath_system::tun::{Tun, TunConfig};
use polypath_testbed::{Side, Testbed};
use polypath_units::{BitRate, Duration as Span};
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::bench::nginx::must;

/// Where the server listens.
const PORT: u16 = 5201;
/// Bytes that are handed over and asked for at a time.
const BLOCK_BYTES: usize = 128 << 10;
/// The request: how many bytes, and whether the server sends them.
const REQUEST_BYTES: usize = 9;
/// Between two looks at the clock while nothing arrives.
const LOOK: Duration = Duration::from_millis(20);

/// One access link, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct AccessLink {
    /// Rate.
    pub mbit_per_s: f64,
    /// Round-trip time without queues, in milliseconds.
    pub rtt_ms: f64,
    /// The longest that a packet may wait, in milliseconds.
    pub queue_ms: f64,
}

impl AccessLink {
    fn link(&self) -> LinkConfig {
        let rate = BitRate::from_bps((self.mbit_per_s * 1e6) as u64);
        let queue = QueueLimit::Delay(Span::from_secs_f64(self.queue_ms / 1e3));
        LinkConfig::new(rate, Span::from_secs_f64(self.rtt_ms / 2e3), queue)
    }
}

/// Between two hosts, by the names that their interfaces have in the middle.
pub(crate) fn emulated(links: &[AccessLink]) -> Vec<EmulatedLink> {
    let emulated = (0..).zip(links).map(|(number, link)| EmulatedLink {
        a: format!("client{number}"),
        b: format!("server{number}"),
        forward: link.link(),
        backward: link.link(),
        middleboxes: Vec::new(),
        seed: number,
    });
    emulated.collect()
}

/// For hosts to find each other's hardware addresses.
pub(crate) fn neighbours_wait(links: &[AccessLink]) -> Duration {
    let longest_ms = links.iter().map(|link| link.rtt_ms).fold(0.0, f64::max);
    Duration::from_secs_f64(2.0 * longest_ms / 1e3) + LOOK
}

/// Leads the client over each of its interfaces to the one address of the server, whose kernel sends with this congestion control.
pub(crate) fn lead_everywhere(testbed: &Testbed, congestion: &str) -> io::Result<()> {
    for namespace in [&testbed.client, &testbed.server] {
        // Each download finds out for itself what the paths are like.
        namespace.set_variable("net/ipv4/tcp_no_metrics_save", "1")?;
    }
    for path in 0..testbed.paths() {
        let (gateway, device) = (Testbed::server_v4(path).to_string(), Testbed::interface(path));
        let metric = (100 + u32::from(path)).to_string();
        let route = ["route", "add", "default", "via", &gateway, "dev", &device, "metric", &metric];
        must(testbed.client.run(|| Command::new("ip").args(route).output())??, "ip")?;
        // By route: as a setting, a namespace may choose only from those that are for all users.
        let own = Testbed::server_v4(path);
        let [a, b, c, _] = own.octets();
        let (network, own) = (format!("{a}.{b}.{c}.0/24"), own.to_string());
        let mut route = vec!["route", "change", &network, "dev", &device, "proto", "kernel"];
        route.extend(["scope", "link", "src", &own, "congctl", congestion]);
        must(testbed.server.run(|| Command::new("ip").args(&route).output())??, "ip")?;
    }
    Ok(())
}

/// Which end sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Way {
    /// The kernel sends; the client receives.
    Receive,
    /// The client sends; the kernel receives.
    Send,
}

/// What came of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Transfer {
    /// From opening the connection to the last byte, or until it was given up.
    pub seconds: f64,
    /// Bytes that arrived.
    pub bytes: u64,
}

impl Transfer {
    /// Bits a second.
    #[must_use]
    pub(crate) fn goodput_bps(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.seconds.max(1e-9)
    }
}

/// It is gone when this is dropped.
#[derive(Debug)]
pub(crate) struct Scene {
    _emulation: Emulation,
    testbed: Testbed,
    congestion: String,
}

impl Scene {
    /// Makes it; the kernels have this congestion control, whatever the machine's is. Needs root.
    ///
    /// # Errors
    /// What the system refused.
    pub(crate) fn new(links: &[AccessLink], congestion: &str) -> io::Result<Self> {
        let testbed = Testbed::with_middle(links.len() as u8)?;
        for namespace in [&testbed.client, &testbed.server] {
            // Each transfer finds out for itself what the paths are like.
            namespace.set_variable("net/ipv4/tcp_no_metrics_save", "1")?;
            namespace.set_variable("net/mptcp/enabled", "1")?;
        }
        let middle = testbed.middle.as_ref().ok_or_else(|| io::Error::other("nothing between the hosts"))?;
        let emulation = Emulation::start(middle, emulated(links))?;
        testbed.make_neighbours(neighbours_wait(links))?;
        Ok(Self { _emulation: emulation, testbed, congestion: congestion.to_owned() })
    }

    /// The kernel's Multipath TCP, at one side.
    fn kernel(&self, side: Side) -> Engine {
        let engine = KernelEngine::new().with_congestion(&self.congestion);
        Engine::Kernel(engine.in_namespace(self.testbed.namespace(side).clone()))
    }

    fn server(&self, path: u8) -> SocketAddr {
        (Testbed::server_v4(path), PORT).into()
    }

    /// TCP over each path alone, all at once: they share nothing. Once the first is done, the others have a quarter of its time more.
    ///
    /// # Errors
    /// What went wrong on the way.
    pub(crate) async fn alone(&self, bytes: u64, limit: Duration) -> io::Result<Vec<Transfer>> {
        let plain = KernelEngine::plain_tcp()
            .with_congestion(&self.congestion)
            .in_namespace(self.testbed.client.clone());
        let until_ms = AtomicU64::new(limit.as_millis() as u64);
        let started = Instant::now();
        let clients = (0..self.testbed.paths()).map(|path| {
            let (engine, until_ms) = (Engine::Kernel(plain.clone()), &until_ms);
            async move {
                let (transfer, _) = receive(&engine, self.server(path), bytes, until_ms).await?;
                let most_ms = started.elapsed().as_millis() as u64 * 5 / 4;
                until_ms.fetch_min(most_ms, Relaxed);
                Ok::<_, io::Error>(transfer)
            }
        });
        self.served(futures_util::future::try_join_all(clients)).await
    }

    /// The kernel's client over all paths, opened over the first.
    ///
    /// # Errors
    /// What went wrong on the way.
    pub(crate) async fn by_kernel(&self, way: Way, bytes: u64, limit: Duration) -> io::Result<Transfer> {
        let limit_ms = AtomicU64::new(limit.as_millis() as u64);
        self.served(async {
            let client = self.kernel(Side::Client);
            let (transfer, _) = match way {
                Way::Receive => receive(&client, self.server(0), bytes, &limit_ms).await?,
                Way::Send => send(&client, self.server(0), bytes, limit).await?,
            };
            Ok(transfer)
        })
        .await
    }

    /// Our stack behind a TUN device, over all paths. `watch` gets it after the transfer, while the connection lives.
    ///
    /// # Errors
    /// What went wrong on the way.
    pub(crate) async fn by_us<T>(
        &self,
        connection: ConnectionConfig,
        way: Way,
        bytes: u64,
        limit: Duration,
        watch: impl FnOnce(&Stack) -> T,
    ) -> io::Result<(Transfer, T)> {
        let (stack, _tun) = self.stack(connection)?;
        let limit_ms = AtomicU64::new(limit.as_millis() as u64);
        let client = Engine::Stack(stack.clone());
        self.served(async {
            let (transfer, stream) = match way {
                Way::Receive => receive(&client, self.server(0), bytes, &limit_ms).await?,
                Way::Send => send(&client, self.server(0), bytes, limit).await?,
            };
            let seen = watch(&stack);
            drop(stream);
            Ok((transfer, seen))
        })
        .await
    }

    fn stack(&self, connection: ConnectionConfig) -> io::Result<(Stack, Tun)> {
        let tun = self.testbed.attach_tun(Side::Client, &TunConfig::default())?;
        let endpoint = |path: u8| LocalEndpoint::subflow(Side::Client.stack_v4(path).into(), path + 1);
        let config = HostConfig {
            connection: connection.into(),
            endpoints: (0..self.testbed.paths()).map(endpoint).collect(),
            ..HostConfig::default()
        };
        Ok((Stack::tun(&tun, config)?, tun))
    }

    /// Does `work` while the server's kernel answers.
    async fn served<T>(&self, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let listener = self.kernel(Side::Server).listen(server_anywhere()).await?;
        let serving = async {
            loop {
                let (stream, _) = listener.accept().await?;
                // A client that was given up is not the server's failure.
                tokio::spawn(async move { serve(stream).await.is_ok() });
            }
        };
        let ended: io::Result<std::convert::Infallible> = tokio::select! {
            done = work => return done,
            ended = serving => ended,
        };
        ended.map(|never| match never {})
    }

    /// The routes and the path managers that let the kernel's client use all paths: the server announces its other addresses.
    ///
    /// # Errors
    /// What the system refused.
    pub(crate) fn announce_paths(
        &self,
        mut ip: impl FnMut(&Namespace, &[&str]) -> io::Result<()>,
    ) -> io::Result<()> {
        for side in [Side::Client, Side::Server] {
            let limits = ["mptcp", "limits", "set", "subflows", "8", "add_addr_accepted", "8"];
            ip(self.testbed.namespace(side), &limits)?;
        }
        for path in 1..self.testbed.paths() {
            let (addr, device) = (Testbed::server_v4(path).to_string(), Testbed::interface(path));
            ip(&self.testbed.server, &["mptcp", "endpoint", "add", &addr, "dev", &device, "signal"])?;
        }
        Ok(())
    }
}

/// Opens a connection and receives so many bytes, until `until_ms` after the beginning at most.
async fn receive(
    engine: &Engine,
    server: SocketAddr,
    bytes: u64,
    until_ms: &AtomicU64,
) -> io::Result<(Transfer, Option<Stream>)> {
    let started = Instant::now();
    let is_late = || started.elapsed() >= Duration::from_millis(until_ms.load(Relaxed));
    let mut transfer = Transfer::default();
    let mut stream = engine.connect(server, &ConnectOptions::default()).await?;
    stream.write_all(&request(bytes, Way::Receive)).await?;
    let mut block = vec![0; BLOCK_BYTES];
    while transfer.bytes < bytes && !is_late() {
        match tokio::time::timeout(LOOK, stream.read(&mut block)).await {
            Err(_) => {}
            Ok(Ok(0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => transfer.bytes += read? as u64,
        }
    }
    transfer.seconds = started.elapsed().as_secs_f64();
    Ok((transfer, Some(stream)))
}

/// Opens a connection and sends so many bytes; the server says when they have arrived.
async fn send(
    engine: &Engine,
    server: SocketAddr,
    bytes: u64,
    limit: Duration,
) -> io::Result<(Transfer, Option<Stream>)> {
    let started = Instant::now();
    let sending = async {
        let mut stream = engine.connect(server, &ConnectOptions::default()).await?;
        stream.write_all(&request(bytes, Way::Send)).await?;
        let block = vec![0; BLOCK_BYTES];
        let mut left = bytes;
        while left > 0 {
            let part = left.min(block.len() as u64);
            left -= stream.write(&block[..part as usize]).await? as u64;
        }
        stream.read_exact(&mut [0; 1]).await?;
        Ok::<_, io::Error>(stream)
    };
    match tokio::time::timeout(limit, sending).await {
        Ok(done) => {
            let transfer = Transfer { seconds: started.elapsed().as_secs_f64(), bytes };
            done.map(|stream| (transfer, Some(stream)))
        }
        Err(_) => Ok((Transfer { seconds: started.elapsed().as_secs_f64(), bytes: 0 }, None)),
    }
}

fn request(bytes: u64, way: Way) -> [u8; REQUEST_BYTES] {
    let mut request = [0; REQUEST_BYTES];
    request[..8].copy_from_slice(&bytes.to_be_bytes());
    request[8] = u8::from(way == Way::Receive);
    request
}

fn server_anywhere() -> SocketAddr {
    (std::net::Ipv4Addr::UNSPECIFIED, PORT).into()
}

/// Answers one request.
async fn serve(mut stream: Stream) -> io::Result<()> {
    let mut request = [0; REQUEST_BYTES];
    stream.read_exact(&mut request).await?;
    let [number @ .., sends] = request;
    let mut left = u64::from_be_bytes(number);
    let mut block = vec![0; BLOCK_BYTES];
    if sends == 1 {
        while left > 0 {
            let part = left.min(block.len() as u64) as usize;
            left -= stream.write(&block[..part]).await? as u64;
        }
    } else {
        while left > 0 {
            match stream.read(&mut block).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => left = left.saturating_sub(read as u64),
            }
        }
        stream.write_all(&[1]).await?;
    }
    // The client ends the connection when it has what it wants.
    while stream.read(&mut block).await? > 0 {}
    Ok(())
}
