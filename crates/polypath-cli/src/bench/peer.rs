//! The sending and the receiving process of a comparison.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use std::{process, thread};

use polypath_config::Policies;
use polypath_mptcp::path_manager::LocalEndpoint;
use polypath_mptcp::{ConnectionConfig, HostConfig, LiaOnSharedAccess};
use polypath_stack::engine::{ConnectOptions, KernelEngine, Listener, Stream};
use polypath_stack::udp::{UdpOptions, UdpPath};
use polypath_stack::{Engine, Stack, stack};
use polypath_system::tun::{Tun, TunConfig};
use polypath_system::{CpuTime, Namespace, Netlink, console};
use polypath_tcp::Config as TcpConfig;
use polypath_testbed::{Side, Testbed};
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

use super::Contender;
use super::outcome::{Outcome, monotonic_s};
use super::timed::{self, BLOCK_BYTES, Settings};

/// Where every server listens.
const PORT: u16 = 5201;

/// A request of the rate comparison, in bytes; the first eight say how long the answer is to be.
const REQUEST_BYTES: usize = 64;

/// Gaps in delivery that are worth noting.
const NOTABLE_GAP: Duration = Duration::from_millis(2);

/// What a process is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Assignment {
    pub(super) contender: Contender,
    pub(super) role: Role,
    pub(super) paths: u8,
    pub(super) mtu_bytes: Option<u16>,
    /// Congestion control of our engines by name; theirs if not given.
    pub(super) congestion: Option<String>,
    /// All settings of our engines, which then say the congestion control too.
    pub(super) settings: Option<Settings>,
    /// The path that the connection is opened over.
    pub(super) initial_path: u8,
    /// The namespaces of client and server, as files.
    pub(super) namespaces: [String; 2],
    /// Gives up after this many seconds.
    pub(super) limit_s: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Role {
    /// Takes one connection and reads it to its end.
    Receive,
    /// Writes for so many seconds.
    Send { seconds: f64 },
    /// Takes one connection and notes what arrives until it, or standard input, ends.
    Collect,
    /// Writes so many bytes, or as many as it can, for so many seconds at most.
    Carry { bytes: Option<u64>, seconds: f64 },
    /// Answers requests until standard input ends.
    Answer,
    /// So many requests at a time, for so many seconds.
    Ask { answer_bytes: u64, concurrent: u32, seconds: f64 },
}

impl Role {
    pub(super) fn side(self) -> Side {
        match self {
            Self::Receive | Self::Collect | Self::Answer => Side::Server,
            Self::Send { .. } | Self::Carry { .. } | Self::Ask { .. } => Side::Client,
        }
    }

    /// A process that goes on until its standard input ends.
    pub(super) fn ends_when_told(self) -> bool {
        matches!(self, Self::Answer | Self::Collect)
    }
}

/// Does what the assignment (in JSON) says, and prints the outcome; called in a process of its own, in the namespace of
/// its side.
pub(crate) fn run(assignment: &str, policies: &Policies) -> Result<(), String> {
    let assignment: Assignment = serde_json::from_str(assignment)
        .map_err(|error| format!("this command is for the benchmarks' own use ({error})"))?;
    let ended = watch(&assignment);
    let is_bulk = matches!(assignment.role, Role::Receive | Role::Send { .. });
    let outcome = if assignment.contender.is_ours() || !is_bulk {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.and_then(|runtime| runtime.block_on(with_engine(&assignment, policies, ended)))
    } else {
        transfer_blocking(&assignment)
    };
    let outcome = outcome.map_err(|error| error.to_string())?;
    let outcome = serde_json::to_string(&outcome).map_err(|error| error.to_string())?;
    console::print(outcome).map_err(|error| error.to_string())?;
    // What the stack still has to say to the peer is not worth waiting for.
    process::exit(0)
}

/// Ends the process when it takes too long or its parent is gone; tells a process that answers requests that it is to
/// stop.
fn watch(assignment: &Assignment) -> Arc<Notify> {
    let limit = Duration::from_secs_f64(assignment.limit_s);
    thread::spawn(move || {
        thread::sleep(limit);
        console::tell(format_args!("not finished after {limit:?}"));
        process::exit(1)
    });
    let ended = Arc::new(Notify::new());
    let (ends, answers) = (ended.clone(), assignment.role.ends_when_told());
    thread::spawn(move || {
        // Whatever ends standard input, an error too, means that the parent has finished.
        let _ = io::stdin().read_to_end(&mut Vec::new());
        if !answers {
            process::exit(1)
        }
        ends.notify_one();
    });
    ended
}

/// Where the server is, for a contender.
fn server_addr(assignment: &Assignment) -> SocketAddr {
    let addr = match assignment.contender {
        Contender::OursTun => Side::Server.stack_v4(0),
        Contender::OursUdp => Testbed::server_v4(0),
        _ => Testbed::server_v4(assignment.initial_path),
    };
    (addr, PORT).into()
}

/// Where it listens: the kernel takes further subflows only at addresses that have a listener.
fn listening_addr(assignment: &Assignment) -> SocketAddr {
    if assignment.contender.is_ours() {
        server_addr(assignment)
    } else {
        (Ipv4Addr::UNSPECIFIED, PORT).into()
    }
}

fn announce() -> io::Result<()> {
    console::print("ready")
}

/// Notes what was delivered, and when nothing was.
struct Delivery {
    outcome: Outcome,
    first: Option<Instant>,
    last: Instant,
    cpu_before: CpuTime,
}

impl Delivery {
    fn new() -> Self {
        Self {
            outcome: Outcome::default(),
            first: None,
            last: Instant::now(),
            cpu_before: CpuTime::of_process(),
        }
    }

    fn note(&mut self, bytes: usize) {
        let now = Instant::now();
        self.outcome.bytes += bytes as u64;
        if self.first.is_none() {
            self.first = Some(now);
        } else if now - self.last >= NOTABLE_GAP {
            let gap_s = (now - self.last).as_secs_f64();
            self.outcome.gaps.push((monotonic_s() - gap_s, gap_s));
        }
        self.last = now;
    }

    fn finish(mut self) -> Outcome {
        let cpu = CpuTime::of_process().since(self.cpu_before);
        self.outcome.seconds = self.first.map_or(0.0, |first| first.elapsed().as_secs_f64());
        self.outcome.user_s = cpu.user.as_secs_f64();
        self.outcome.system_s = cpu.system.as_secs_f64();
        self.outcome
    }
}

/// The receiver closes when it has everything, and says nothing before.
fn expect_close(bytes_read: usize) -> io::Result<()> {
    if bytes_read == 0 { Ok(()) } else { Err(io::Error::other("the receiver sent data")) }
}

/// A bulk transfer over sockets of the kernel, with blocking calls: the cheapest way that it offers.
fn transfer_blocking(assignment: &Assignment) -> io::Result<Outcome> {
    let protocol = match assignment.contender {
        Contender::KernelTcp => Protocol::TCP,
        _ => Protocol::MPTCP,
    };
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(protocol))?;
    let server = server_addr(assignment).into();
    let mut block = vec![0; BLOCK_BYTES];
    let Role::Send { seconds } = assignment.role else {
        socket.bind(&listening_addr(assignment).into())?;
        socket.listen(1)?;
        announce()?;
        let (mut stream, _) = socket.accept()?;
        let mut delivery = Delivery::new();
        loop {
            match stream.read(&mut block)? {
                0 => return Ok(delivery.finish()),
                bytes => delivery.note(bytes),
            }
        }
    };
    socket.connect(&server)?;
    let (mut stream, mut delivery) = (socket, Delivery::new());
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    while Instant::now() < until {
        delivery.note(stream.write(&block)?);
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    expect_close(stream.read(&mut block)?)?;
    Ok(delivery.finish())
}

async fn with_engine(
    assignment: &Assignment,
    policies: &Policies,
    ended: Arc<Notify>,
) -> io::Result<Outcome> {
    let (engine, _tun) = start(assignment, policies)?;
    let server = server_addr(assignment);
    match assignment.role {
        Role::Receive => {
            let listener = engine.listen(listening_addr(assignment)).await?;
            announce()?;
            let outcome = receive(listener.accept().await?.0).await?;
            engine.drain(Duration::from_millis(500)).await;
            Ok(outcome)
        }
        Role::Send { seconds } => {
            send(engine.connect(server, &ConnectOptions::default()).await?, seconds).await
        }
        Role::Collect => {
            let listener = engine.listen(listening_addr(assignment)).await?;
            announce()?;
            timed::collect(&engine, listener, &ended).await
        }
        Role::Carry { bytes, seconds } => {
            let is_tun = assignment.contender == Contender::OursTun;
            let local = is_tun.then(|| (Side::Client.stack_v4(assignment.initial_path), 0).into());
            let congestion = assignment.settings.as_ref().map(|settings| settings.congestion.as_str());
            timed::carry(&engine, server, local, congestion, bytes, seconds).await
        }
        Role::Answer => {
            let listener = engine.listen(listening_addr(assignment)).await?;
            announce()?;
            answer_all(listener, &ended).await
        }
        Role::Ask { answer_bytes, concurrent, seconds } => {
            ask_all(&engine, server, answer_bytes, concurrent, seconds).await
        }
    }
}

fn start(assignment: &Assignment, policies: &Policies) -> io::Result<(Engine, Option<Tun>)> {
    match assignment.contender {
        Contender::KernelTcp => return Ok((Engine::Kernel(KernelEngine::plain_tcp()), None)),
        Contender::KernelMptcp | Contender::Iperf3Mptcp => {
            return Ok((Engine::Kernel(KernelEngine::new()), None));
        }
        Contender::OursUdp => return Ok((Engine::Stack(start_udp(assignment, policies)?), None)),
        Contender::OursTun => {}
    }
    let [client, server] = &assignment.namespaces;
    let testbed = Testbed::open(client, server, assignment.paths)?;
    let side = assignment.role.side();
    let tun = testbed.attach_tun(side, &TunConfig::default())?;
    let mut connection = stack::default_connection();
    choose_congestion(assignment, policies, &mut connection)?;
    if let Some(settings) = &assignment.settings {
        connection = settings.connection(policies)?;
    }
    if let Some(mtu_bytes) = assignment.mtu_bytes {
        Netlink::new()?.set_mtu(tun.name(), mtu_bytes.into())?;
        connection.tcp = Arc::new(TcpConfig { mtu_bytes, ..(*connection.tcp).clone() });
    }
    // As the kernel's: the client opens a subflow from each of its addresses to the server's first.
    let paths = if side == Side::Client { assignment.paths } else { 0 };
    let endpoint = |path: u8| LocalEndpoint::subflow(side.stack_v4(path).into(), path + 1);
    let config = HostConfig {
        connection: Arc::new(connection),
        endpoints: (0..paths).map(endpoint).collect(),
        ..HostConfig::default()
    };
    Ok((Engine::Stack(Stack::tun(&tun, config)?), Some(tun)))
}

fn choose_congestion(
    assignment: &Assignment,
    policies: &Policies,
    connection: &mut ConnectionConfig,
) -> io::Result<()> {
    if let Some(name) = &assignment.congestion {
        connection.congestion = policies.find(name).map_err(io::Error::other)?;
        connection.lia_on_shared_access = LiaOnSharedAccess::Never;
    }
    Ok(())
}

/// Our stack over UDP: a socket per path at the client, one to be reached at the server.
fn start_udp(assignment: &Assignment, policies: &Policies) -> io::Result<Stack> {
    let is_client = assignment.role.side() == Side::Client;
    let mut options = UdpOptions { is_reachable: !is_client, paths: Vec::new(), ..UdpOptions::default() };
    let namespace = Namespace::current()?;
    if is_client {
        let interfaces = 0..assignment.paths;
        options.paths = interfaces
            .clone()
            .map(|path| UdpPath { interface: Some(Testbed::interface(path)), ..UdpPath::default() })
            .collect();
        // The other paths lead to the server's first address too. On a thread of its own: this one runs a runtime.
        namespace.run(|| {
            let netlink = Netlink::new()?;
            for path in interfaces.skip(1) {
                let gateway = Testbed::server_v4(path).into();
                let destination = (Testbed::server_v4(0).into(), 32);
                netlink.add_route(&Testbed::interface(path), destination, Some(gateway), None)?;
            }
            Ok::<_, io::Error>(())
        })??;
    }
    if let Some(mtu_bytes) = assignment.mtu_bytes {
        options.mtu_bytes = mtu_bytes;
    }
    choose_congestion(assignment, policies, &mut options.connection)?;
    Stack::udp(&namespace, &options)
}

async fn receive(mut stream: Stream) -> io::Result<Outcome> {
    let mut block = vec![0; BLOCK_BYTES];
    let mut delivery = Delivery::new();
    loop {
        match stream.read(&mut block).await? {
            0 => return Ok(delivery.finish()),
            bytes => delivery.note(bytes),
        }
    }
}

async fn send(mut stream: Stream, seconds: f64) -> io::Result<Outcome> {
    let mut block = vec![0; BLOCK_BYTES];
    let mut delivery = Delivery::new();
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    while Instant::now() < until {
        delivery.note(stream.write(&block).await?);
    }
    stream.shutdown().await?;
    expect_close(stream.read(&mut block).await?)?;
    Ok(delivery.finish())
}

/// Answers each connection's request until told to end.
async fn answer_all(listener: Listener, ended: &Notify) -> io::Result<Outcome> {
    let block: Arc<[u8]> = vec![0; BLOCK_BYTES].into();
    let mut delivery = Delivery::new();
    let answered = Arc::new(AtomicU64::new(0));
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted?.0,
            () = ended.notified() => break,
        };
        let (block, answered) = (block.clone(), answered.clone());
        tokio::spawn(async move {
            // A client that went away at the end of its time is not our failure; the client counts what failed.
            if answer(stream, &block).await.is_ok() {
                answered.fetch_add(1, Relaxed);
            }
        });
    }
    delivery.outcome.requests = answered.load(Relaxed);
    Ok(delivery.finish())
}

async fn answer(mut stream: Stream, block: &[u8]) -> io::Result<()> {
    let mut request = [0; REQUEST_BYTES];
    stream.read_exact(&mut request).await?;
    let mut left = u64::from_be_bytes(request[..8].try_into().unwrap_or_default()) as usize;
    while left > 0 {
        let part = left.min(block.len());
        stream.write_all(&block[..part]).await?;
        left -= part;
    }
    stream.shutdown().await
}

async fn ask_all(
    engine: &Engine,
    server: SocketAddr,
    answer_bytes: u64,
    concurrent: u32,
    seconds: f64,
) -> io::Result<Outcome> {
    let mut delivery = Delivery::new();
    let started = Instant::now();
    let until = started + Duration::from_secs_f64(seconds);
    let workers: Vec<_> = (0..concurrent)
        .map(|_| {
            let engine = engine.clone();
            tokio::spawn(async move {
                let (mut done, mut failed, mut last_failure) = (0u64, 0u64, None);
                let mut block = vec![0; BLOCK_BYTES];
                while Instant::now() < until {
                    match ask(&engine, server, answer_bytes, &mut block).await {
                        Ok(()) => done += 1,
                        Err(error) => {
                            failed += 1;
                            last_failure = Some(error.to_string());
                        }
                    }
                }
                (done, failed, last_failure)
            })
        })
        .collect();
    for worker in workers {
        let (done, failed, last_failure) = worker.await?;
        delivery.outcome.requests += done;
        delivery.outcome.failures += failed;
        delivery.outcome.last_failure = delivery.outcome.last_failure.or(last_failure);
    }
    delivery.outcome.bytes = delivery.outcome.requests * answer_bytes;
    delivery.first = Some(started);
    Ok(delivery.finish())
}

/// One request over a connection of its own.
async fn ask(engine: &Engine, server: SocketAddr, answer_bytes: u64, block: &mut [u8]) -> io::Result<()> {
    let options = ConnectOptions { timeout: Some(Duration::from_secs(5)), ..ConnectOptions::default() };
    let mut stream = engine.connect(server, &options).await?;
    let mut request = [0; REQUEST_BYTES];
    request[..8].copy_from_slice(&answer_bytes.to_be_bytes());
    stream.write_all(&request).await?;
    let mut received = 0;
    loop {
        match stream.read(block).await? {
            0 if received == answer_bytes => return Ok(()),
            0 => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the answer was cut short")),
            bytes => received += bytes as u64,
        }
    }
}
