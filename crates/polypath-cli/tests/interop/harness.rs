//! Our stack behind a TUN device on one side, the kernel's Multipath TCP on the other, two paths between them.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use polypath_mptcp::path_manager::{Limits, LocalEndpoint};
use polypath_mptcp::{ConnectionConfig, ConnectionInfo, Event, HostConfig};
use polypath_stack::Stack;
use polypath_stack::engine::ConnectOptions;
use polypath_stack::stack::{StackListener, StackStream, default_connection};
use polypath_system::tun::TunConfig;
use polypath_testbed::{Side, Testbed};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::broadcast;

pub(crate) const PORT: u16 = 8080;

/// How long something may take that takes no time.
const SOON: Duration = Duration::from_secs(15);

/// One cell of the matrix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cell {
    /// Our side; the kernel has the other.
    pub(crate) ours: Side,
    /// IPv6 for the first subflow.
    pub(crate) is_v6: bool,
    /// Both ends ask for the DSS checksum.
    pub(crate) checksum: bool,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = if self.ours == Side::Client { "client" } else { "server" };
        let family = if self.is_v6 { "IPv6" } else { "IPv4" };
        write!(f, "ours {role}, {family}, checksum {}", if self.checksum { "on" } else { "off" })
    }
}

impl Cell {
    /// Both roles, both families, checksum on and off.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Self::without_checksum().flat_map(|cell| [cell, Self { checksum: true, ..cell }])
    }

    /// Both roles, both families.
    pub(crate) fn without_checksum() -> impl Iterator<Item = Self> {
        [Side::Client, Side::Server]
            .into_iter()
            .flat_map(|ours| [false, true].map(|is_v6| Self { ours, is_v6, checksum: false }))
    }
}

/// What a scenario needs beside the cell.
pub(crate) struct Choices {
    /// Our endpoints: each an address of a path, and how it is used.
    pub(crate) endpoints: Vec<LocalEndpoint>,
    pub(crate) limits: Limits,
    pub(crate) connection: ConnectionConfig,
}

pub(crate) struct Lab {
    pub(crate) cell: Cell,
    pub(crate) stack: Stack,
    pub(crate) events: broadcast::Receiver<(polypath_units::Instant, polypath_mptcp::ConnectionId, Event)>,
    pub(crate) testbed: Testbed,
    /// Linux answers MP_JOIN only where somebody listens.
    listening: std::cell::RefCell<Vec<TcpListener>>,
    /// The kernel's sockets are of IPv6 and reach IPv4 by mapped addresses: Linux mixes families only there.
    pub(crate) is_dual: std::cell::Cell<bool>,
}

impl Cell {
    /// Our address on a path, in the first subflow's family or the other.
    pub(crate) fn our_addr_in(self, path: u8, is_v6: bool) -> IpAddr {
        if is_v6 { self.ours.stack_v6(path).into() } else { self.ours.stack_v4(path).into() }
    }

    pub(crate) fn our_addr(self, path: u8) -> IpAddr {
        self.our_addr_in(path, self.is_v6)
    }

    pub(crate) fn kernel_addr_in(self, path: u8, is_v6: bool) -> IpAddr {
        match (self.ours, is_v6) {
            (Side::Client, false) => Testbed::server_v4(path).into(),
            (Side::Client, true) => Testbed::server_v6(path).into(),
            (Side::Server, false) => Testbed::client_v4(path).into(),
            (Side::Server, true) => Testbed::client_v6(path).into(),
        }
    }

    /// Where the kernel's side reaches our side's machine.
    pub(crate) fn our_gateway(self, path: u8) -> IpAddr {
        let other =
            Self { ours: if self.ours == Side::Client { Side::Server } else { Side::Client }, ..self };
        other.kernel_addr(path)
    }

    pub(crate) fn kernel_addr(self, path: u8) -> IpAddr {
        self.kernel_addr_in(path, self.is_v6)
    }

    /// Two paths, from each of our addresses if we are the client; announced if we are the server.
    pub(crate) fn choices(self) -> Choices {
        let endpoint = if self.ours == Side::Client { LocalEndpoint::subflow } else { LocalEndpoint::signal };
        let endpoints = (0..2).map(|path| endpoint(self.our_addr(path), path + 1)).collect();
        let connection = ConnectionConfig { checksum: self.checksum, ..default_connection() };
        Choices { endpoints, limits: Limits::default(), connection }
    }

    pub(crate) fn lab(self) -> Lab {
        self.lab_with(self.choices())
    }

    pub(crate) fn lab_with(self, choices: Choices) -> Lab {
        let testbed = Testbed::new(2).expect("namespaces");
        let tun = testbed.attach_tun(self.ours, &TunConfig::default()).expect("a TUN device");
        let Choices { endpoints, limits, connection } = choices;
        let config =
            HostConfig { connection: Arc::new(connection), endpoints, limits, ..HostConfig::default() };
        let stack = Stack::tun(&tun, config).expect("a stack");
        let lab = Lab {
            cell: self,
            events: stack.subscribe(),
            stack,
            testbed,
            listening: Default::default(),
            is_dual: Default::default(),
        };
        lab.kernel_variable("net/mptcp/checksum_enabled", if self.checksum { "1" } else { "0" });
        for (address, path) in [(0, 1), (1, 0)] {
            // Each of our addresses can be reached by either path.
            for is_v6 in [false, true] {
                let (to, gateway) = match (self.ours, is_v6) {
                    (Side::Client, false) => {
                        (self.our_addr_in(address, false), Testbed::client_v4(path).into())
                    }
                    (Side::Client, true) => {
                        (self.our_addr_in(address, true), Testbed::client_v6(path).into())
                    }
                    (Side::Server, false) => {
                        (self.our_addr_in(address, false), Testbed::server_v4(path).into())
                    }
                    (Side::Server, true) => {
                        (self.our_addr_in(address, true), Testbed::server_v6(path).into())
                    }
                };
                let gateway: IpAddr = gateway;
                lab.kernel_runs(&format!("ip route add {to} via {gateway} dev path{path} metric 5000"));
            }
        }
        lab.kernel_variable("net/mptcp/add_addr_timeout", "1");
        lab.ip_mptcp("limits set subflow 8 add_addr_accepted 8");
        lab
    }
}

impl Lab {
    fn kernel_side(&self) -> Side {
        if self.cell.ours == Side::Client { Side::Server } else { Side::Client }
    }

    pub(crate) fn in_kernel<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.testbed.namespace(self.kernel_side()).run(work).expect("enters the namespace")
    }

    pub(crate) fn kernel_variable(&self, name: &str, value: &str) {
        self.testbed.namespace(self.kernel_side()).set_variable(name, value).expect("the kernel has it");
    }

    /// Runs a program at the kernel's side.
    pub(crate) fn kernel_runs(&self, command: &str) {
        let words: Vec<&str> = command.split_whitespace().collect();
        let output = self.in_kernel(|| Command::new(words[0]).args(&words[1..]).output());
        let output = output.unwrap_or_else(|error| panic!("{command}: {error}"));
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }

    pub(crate) fn ip_mptcp(&self, arguments: &str) {
        self.kernel_runs(&format!("ip mptcp {arguments}"));
    }

    /// The kernel opens subflows from its second path, or announces it.
    pub(crate) fn kernel_endpoint(&self, path: u8, is_v6: bool, flags: &str) {
        let addr = self.cell.kernel_addr_in(path, is_v6);
        self.ip_mptcp(&format!("endpoint add {addr} id {} {flags}", path + 10));
    }

    /// The kernel's `MPTcpExt` counters.
    pub(crate) fn counters(&self) -> BTreeMap<String, u64> {
        let text = self.in_kernel(|| std::fs::read_to_string("/proc/thread-self/net/netstat"));
        let text = text.expect("the kernel's counters");
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("MPTcpExt: "));
        let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
        let values = values.split(' ').map(|value| value.parse().expect("a number"));
        names.split(' ').map(str::to_string).zip(values).collect()
    }

    pub(crate) fn counter(&self, name: &str) -> u64 {
        *self.counters().get(name).unwrap_or_else(|| panic!("the kernel has no counter {name}"))
    }

    /// Waits until a counter of the kernel has reached `least`.
    pub(crate) async fn counts(&self, name: &str, least: u64) {
        eventually(
            || self.counter(name) >= least,
            || format!("{name} reaches {least}: {:?}", self.busy_counters()),
        )
        .await;
    }

    fn busy_counters(&self) -> Vec<(String, u64)> {
        self.counters().into_iter().filter(|(_, value)| *value > 0).collect()
    }

    /// Waits for an event of ours.
    pub(crate) async fn event(&mut self, what: &str, is_it: impl Fn(&Event) -> bool) -> Event {
        let waiting = async {
            loop {
                match self.events.recv().await {
                    Ok((_, _, event)) if is_it(&event) => return event,
                    Ok(_) => {}
                    Err(error) => panic!("{what}: {error}"),
                }
            }
        };
        match tokio::time::timeout(SOON, waiting).await {
            Ok(event) => event,
            Err(_) => panic!("no event: {what}; the kernel counts {:?}", self.busy_counters()),
        }
    }

    /// A Multipath TCP socket of the kernel.
    pub(crate) fn kernel_socket(&self) -> Socket {
        let domain = if self.cell.is_v6 || self.is_dual.get() { Domain::IPV6 } else { Domain::IPV4 };
        let socket = self.in_kernel(|| Socket::new(domain, Type::STREAM, Some(Protocol::MPTCP)));
        let socket = socket.expect("the kernel has Multipath TCP");
        socket.set_read_timeout(Some(SOON * 4)).expect("a time limit");
        socket
    }

    pub(crate) fn kernel_listener(&self) -> TcpListener {
        let socket = self.kernel_socket();
        socket.set_reuse_address(true).expect("an option");
        let is_v6 = self.cell.is_v6 || self.is_dual.get();
        let any: IpAddr = if is_v6 { [0; 16].into() } else { [0; 4].into() };
        socket.bind(&SocketAddr::new(any, PORT).into()).expect("the port is free");
        socket.listen(2048).expect("listens");
        socket.into()
    }

    /// A connection over path 0: our end and the kernel's.
    pub(crate) async fn connect(&self) -> (StackStream, TcpStream) {
        let (mut ours, kernel) = self.connect_silently().await;
        // Only data tells both ends that options pass both ways.
        exchange(&mut ours, &kernel, 1, 1).await;
        (ours, kernel)
    }

    /// The same without any data.
    pub(crate) async fn connect_silently(&self) -> (StackStream, TcpStream) {
        self.connect_with(&ConnectOptions::default()).await
    }

    async fn connect_with(&self, options: &ConnectOptions) -> (StackStream, TcpStream) {
        match self.cell.ours {
            Side::Client => {
                let listener = self.kernel_listener();
                let to = SocketAddr::new(self.cell.kernel_addr(0), PORT);
                let stream = self.stack.connect(to, options).await.expect("the kernel accepts");
                let accepted = listener.accept().expect("a connection").0;
                self.listening.borrow_mut().push(listener);
                accepted.set_read_timeout(Some(SOON * 4)).expect("a time limit");
                (stream, accepted)
            }
            Side::Server => {
                let listener = self.listener();
                let socket = self.kernel_socket();
                let to = match self.cell.our_addr(0) {
                    IpAddr::V4(addr) if self.is_dual.get() => IpAddr::V6(addr.to_ipv6_mapped()),
                    addr => addr,
                };
                let to = SocketAddr::new(to, PORT);
                let connecting =
                    tokio::task::spawn_blocking(move || socket.connect(&to.into()).map(|()| socket));
                let (stream, _) = listener.accept().await.expect("a connection");
                (stream, connecting.await.expect("a thread").expect("we accept").into())
            }
        }
    }

    pub(crate) fn listener(&self) -> StackListener {
        self.stack.listen(SocketAddr::new(self.cell.our_addr(0), PORT)).expect("the port is free")
    }

    pub(crate) fn info(stream: &StackStream) -> ConnectionInfo {
        stream.connection_info().expect("the connection lives")
    }

    /// Waits until a connection has this many subflows that carry data.
    pub(crate) async fn subflows(&self, stream: &StackStream, count: usize) -> ConnectionInfo {
        let established = || {
            let info = Self::info(stream);
            info.subflows.iter().filter(|subflow| subflow.established).count()
        };
        eventually(
            || established() == count,
            || {
                format!(
                    "{count} subflows: {:?}; {:?}",
                    Self::info(stream).subflows.iter().map(|s| (s.tuple, s.established)).collect::<Vec<_>>(),
                    self.busy_counters()
                )
            },
        )
        .await;
        Self::info(stream)
    }

    /// Nothing went wrong that must not go wrong.
    pub(crate) fn assert_clean(&self) {
        let counters = self.counters();
        for name in [
            "DataCsumErr",
            "DSSNotMatching",
            "DSSNoMatchTCP",
            "MPCapableFallbackACK",
            "MPCapableFallbackSYNACK",
            "MPJoinSynAckHMacFailure",
            "MPJoinAckHMacFailure",
            "MPFailRx",
            "MPFailTx",
        ] {
            let count = counters.get(name).copied().unwrap_or_default();
            assert_eq!(count, 0, "the kernel counts {name} ({})", self.cell);
        }
        let counters = self.stack.counters();
        assert_eq!((counters.data_csum_err, counters.fallbacks), (0, 0), "{}", self.cell);
    }
}

/// Waits until `is_so`; panics with `what` if it isn't soon.
pub(crate) async fn eventually(is_so: impl Fn() -> bool, what: impl Fn() -> String) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < SOON, "waited in vain: {}", what());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Byte `at` of the stream number `stream`.
fn byte(stream: u64, at: u64) -> u8 {
    let mixed = (at / 8 + stream.wrapping_mul(0x9e37_79b9)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed >> (8 * (at % 8))) as u8
}

fn fill(stream: u64, at: u64, buffer: &mut [u8]) {
    for (offset, slot) in buffer.iter_mut().enumerate() {
        *slot = byte(stream, at + offset as u64);
    }
}

fn check(stream: u64, at: u64, received: &[u8]) -> io::Result<()> {
    match received.iter().enumerate().find(|(offset, got)| **got != byte(stream, at + *offset as u64)) {
        None => Ok(()),
        Some((offset, _)) => {
            Err(io::Error::new(io::ErrorKind::InvalidData, format!("byte {} is wrong", at + offset as u64)))
        }
    }
}

const CHUNK: usize = 64 * 1024;

/// Our end sends `count` bytes of a stream.
pub(crate) async fn send(to: &mut (impl AsyncWriteExt + Unpin), stream: u64, count: u64) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    let mut at = 0;
    while at < count {
        let len = (count - at).min(CHUNK as u64) as usize;
        fill(stream, at, &mut buffer[..len]);
        to.write_all(&buffer[..len]).await?;
        at += len as u64;
    }
    Ok(())
}

/// Our end receives `count` bytes of a stream, all of them right.
pub(crate) async fn receive(
    from: &mut (impl AsyncReadExt + Unpin),
    stream: u64,
    count: u64,
) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    let mut at = 0;
    while at < count {
        let len = (count - at).min(CHUNK as u64) as usize;
        let got = from.read(&mut buffer[..len]).await?;
        if got == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("{at} of {count} bytes")));
        }
        check(stream, at, &buffer[..got])?;
        at += got as u64;
    }
    Ok(())
}

/// The kernel's end sends `count` bytes of a stream, on a thread.
pub(crate) fn kernel_sends(socket: &TcpStream, stream: u64, count: u64) -> JoinHandle<io::Result<()>> {
    let mut socket = socket.try_clone().expect("a descriptor");
    std::thread::spawn(move || {
        let mut buffer = vec![0; CHUNK];
        let mut at = 0;
        while at < count {
            let len = (count - at).min(CHUNK as u64) as usize;
            fill(stream, at, &mut buffer[..len]);
            socket.write_all(&buffer[..len])?;
            at += len as u64;
        }
        Ok(())
    })
}

/// The kernel's end receives `count` bytes of a stream, all of them right, on a thread.
pub(crate) fn kernel_receives(socket: &TcpStream, stream: u64, count: u64) -> JoinHandle<io::Result<()>> {
    let mut socket = socket.try_clone().expect("a descriptor");
    std::thread::spawn(move || {
        let mut buffer = vec![0; CHUNK];
        let mut at = 0;
        while at < count {
            let len = (count - at).min(CHUNK as u64) as usize;
            let got = match socket.read(&mut buffer[..len]) {
                // A child of another test ended.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                got => got?,
            };
            if got == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("{at} of {count} bytes")));
            }
            check(stream, at, &buffer[..got])?;
            at += got as u64;
        }
        Ok(())
    })
}

pub(crate) async fn joined<T: Send + 'static>(thread: JoinHandle<T>) -> T {
    tokio::task::spawn_blocking(|| thread.join().expect("the thread lives")).await.expect("a thread")
}

/// Bytes both ways at the same time.
pub(crate) async fn exchange(ours: &mut StackStream, kernel: &TcpStream, to_kernel: u64, to_us: u64) {
    let (sending, receiving) = (kernel_sends(kernel, 1, to_us), kernel_receives(kernel, 2, to_kernel));
    let (mut read, mut write) = tokio::io::split(ours);
    let (sent, received) = tokio::join!(send(&mut write, 2, to_kernel), receive(&mut read, 1, to_us));
    sent.expect("we send");
    received.expect("we receive what the kernel sent");
    joined(sending).await.expect("the kernel sends");
    joined(receiving).await.expect("the kernel receives what we sent");
}

/// Both ends close in order, and nothing is left of the connection.
pub(crate) async fn close(lab: &mut Lab, mut ours: StackStream, kernel: TcpStream) {
    ours.shutdown().await.expect("we end our half");
    let end = joined(std::thread::spawn(move || {
        let mut kernel = kernel;
        let mut rest = Vec::new();
        kernel.read_to_end(&mut rest).map(|_| (rest, kernel))
    }));
    let (rest, kernel) = end.await.unwrap_or_else(|error| {
        panic!(
            "the kernel reads to the end: {error}; {:?}; {:?}",
            ours.connection_info(),
            lab.busy_counters()
        )
    });
    assert!(rest.is_empty());
    // It may be closed already, if this was its second half.
    let _ = kernel.shutdown(Shutdown::Both);
    drop(kernel);
    assert_eq!(ours.read(&mut [0; 8]).await.expect("we read to the end"), 0);
    drop(ours);
    lab.stack.drain(SOON).await;
    assert!(lab.stack.connections().is_empty());
}

/// A reset by the kernel: closing with a linger time of zero.
pub(crate) fn kernel_aborts(kernel: TcpStream) {
    SockRef::from(&kernel).set_linger(Some(Duration::ZERO)).expect("an option");
    drop(kernel);
}
