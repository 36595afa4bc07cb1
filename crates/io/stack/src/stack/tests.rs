//! Two stacks behind TUN devices in namespaces, and programs that use their sockets.

use std::io;
use std::net::{IpAddr, SocketAddr};

use polypath_mptcp::path_manager::{Limits, LocalEndpoint};
use polypath_mptcp::{ConnectionOption, HostConfig};
use polypath_system::tun::TunConfig;
use polypath_testbed::{Side, Testbed, is_root_or_skip};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::engine::ConnectOptions;

const PORT: u16 = 5001;

/// Both stacks, over two paths.
struct Hosts {
    client: Stack,
    server: Stack,
    _testbed: Testbed,
}

impl Hosts {
    fn new() -> Self {
        let testbed = Testbed::new(2).expect("namespaces");
        let stack = |side: Side, endpoint: fn(IpAddr, u8) -> LocalEndpoint| {
            let tun = testbed.attach_tun(side, &TunConfig::default()).expect("a TUN device");
            let addresses = (0..2).flat_map(|path| {
                [
                    (IpAddr::from(side.stack_v4(path)), 2 * path + 1),
                    (side.stack_v6(path).into(), 2 * path + 2),
                ]
            });
            let config = HostConfig {
                endpoints: addresses.map(|(addr, id)| endpoint(addr, id)).collect(),
                limits: Limits::default(),
                ..HostConfig::default()
            };
            Stack::tun(&tun, config).expect("a stack")
        };
        let client = stack(Side::Client, LocalEndpoint::subflow);
        let server = stack(Side::Server, LocalEndpoint::signal);
        Self { client, server, _testbed: testbed }
    }

    fn server_at(&self, path: u8) -> SocketAddr {
        (Side::Server.stack_v4(path), PORT).into()
    }

    async fn pair(&self) -> (StackStream, StackStream) {
        let listener = self.server.listen(self.server_at(0)).expect("a listener");
        let options = ConnectOptions::default();
        let (connected, accepted) =
            tokio::join!(self.client.connect(self.server_at(0), &options), listener.accept());
        (connected.expect("connects"), accepted.expect("is accepted").0)
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
}

#[tokio::test]
async fn bytes_flow_both_ways_over_two_paths() {
    if !is_root_or_skip("stack over TUN") {
        return;
    }
    let hosts = Hosts::new();
    let (client, server) = hosts.pair().await;
    let data = pattern(20 << 20);
    let exchange = |stream: StackStream, data: Vec<u8>| async move {
        let (mut read, mut write) = stream.into_split();
        let sending = tokio::spawn(async move { write.write_all(&data).await });
        let mut received = Vec::new();
        read.read_to_end(&mut received).await.expect("reads to the end");
        sending.await.unwrap().expect("writes all");
        (received, read.as_ref().connection_info())
    };
    let ((at_client, info), (at_server, _)) =
        tokio::join!(exchange(client, data.clone()), exchange(server, data.clone()));
    assert!(at_client == data && at_server == data);
    let info = info.expect("the connection is known");
    assert!(info.mptcp);
    let busy = info.subflows.iter().filter(|subflow| subflow.tcp.bytes_acked > 1 << 20).count();
    assert!(busy >= 2, "both paths carry data: {:?}", info.subflows);
}

#[tokio::test]
async fn one_half_ends_while_the_other_goes_on() {
    if !is_root_or_skip("half-close") {
        return;
    }
    let hosts = Hosts::new();
    let (mut client, mut server) = hosts.pair().await;
    client.write_all(b"question").await.unwrap();
    client.shutdown().await.unwrap();
    let mut question = Vec::new();
    server.read_to_end(&mut question).await.unwrap();
    assert_eq!(question, b"question");
    server.write_all(b"answer").await.unwrap();
    drop(server);
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, b"answer");
    drop(client);
    hosts.client.drain(std::time::Duration::from_secs(5)).await;
    assert!(hosts.client.connections().is_empty());
}

#[tokio::test]
async fn an_abort_and_a_refusal_have_their_own_errors() {
    if !is_root_or_skip("abort and refusal") {
        return;
    }
    let hosts = Hosts::new();
    let refused =
        hosts.client.connect((Side::Server.stack_v4(0), 1).into(), &ConnectOptions::default()).await;
    assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    let (mut client, server) = hosts.pair().await;
    server.abort();
    let error = client.read(&mut [0; 8]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    let wrong_family =
        ConnectOptions { local: Some(([10, 78, 0, 1], 0).into()), ..ConnectOptions::default() };
    let error = hosts.client.connect((Side::Server.stack_v6(0), 1).into(), &wrong_family).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
}

#[tokio::test]
async fn who_aborts_before_being_accepted_does_not_fail_the_listener() {
    if !is_root_or_skip("aborts before they are accepted") {
        return;
    }
    let hosts = Hosts::new();
    let to: SocketAddr = (Side::Server.stack_v4(0), 80).into();
    let listener = hosts.server.listen(to).unwrap();
    let options = ConnectOptions::default();
    for _ in 0..20 {
        hosts.client.connect(to, &options).await.unwrap().abort();
    }
    while hosts.server.connections().iter().any(|(_, connection)| !connection.subflows.is_empty()) {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    let last = hosts.client.connect(to, &options).await.unwrap();
    let (_, peer) = listener.accept().await.expect("the one that lives");
    assert_eq!(peer, last.local_addr().unwrap());
}

#[tokio::test]
async fn a_listener_for_everything_takes_any_address_and_port() {
    if !is_root_or_skip("listening everywhere") {
        return;
    }
    let hosts = Hosts::new();
    let listener = hosts.server.listen_with(None, None).unwrap();
    for port in [7, 40_000] {
        let to: SocketAddr = (Side::Server.stack_v6(1), port).into();
        let options = ConnectOptions::default();
        let (connected, accepted) = tokio::join!(hosts.client.connect(to, &options), listener.accept());
        assert_eq!(accepted.unwrap().0.local_addr().unwrap(), to);
        assert_eq!(connected.unwrap().peer_addr().unwrap(), to);
    }
}

/// A driver at which nothing ever arrives; it tells when it is let go.
struct Silence(Arc<std::sync::atomic::AtomicUsize>);

impl Receive for Silence {
    fn poll_receive(
        &mut self,
        _: &mut std::task::Context<'_>,
        _: &mut Vec<polypath_wire::Packet>,
    ) -> std::task::Poll<io::Result<()>> {
        std::task::Poll::Pending
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
}

struct Void;

impl Transmit for Void {
    fn transmit(&mut self, _: polypath_wire::Packet) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stack_reads_from_its_driver_as_long_as_there_is_a_handle() {
    let dropped = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    // Another thread may run a task before whoever spawned it goes on; often enough in so many rounds.
    let start = || Stack::start(HostConfig::default(), Void, [Silence(dropped.clone())]).expect("a stack");
    let stacks: Vec<Stack> = (0..500).map(|_| start()).collect();
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    assert_eq!(dropped.load(std::sync::atomic::Ordering::SeqCst), 0);
    drop(stacks);
    for _ in 0..200 {
        if dropped.load(std::sync::atomic::Ordering::SeqCst) == 500 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("{} of 500 stacks ended", dropped.load(std::sync::atomic::Ordering::SeqCst));
}

#[tokio::test]
async fn settings_of_live_connections_reach_the_stack() {
    if !is_root_or_skip("stack over TUN") {
        return;
    }
    let hosts = Hosts::new();
    let (client, _server) = hosts.pair().await;
    client.set_option(ConnectionOption::SendBufferBytes(5000));
    let taken = client.write_bytes(&vec![7; 9000].into()).await.expect("writes");
    assert_eq!(taken, 5000);
}

#[tokio::test]
async fn every_task_that_waits_at_a_listener_gets_a_connection() {
    if !is_root_or_skip("several tasks at one listener") {
        return;
    }
    let hosts = Hosts::new();
    let to = hosts.server_at(0);
    let listener = std::sync::Arc::new(hosts.server.listen(to).unwrap());
    let accepting = || {
        let listener = listener.clone();
        tokio::spawn(async move { listener.accept().await.expect("a connection") })
    };
    let given_up = accepting();
    let tasks = [accepting(), accepting(), accepting()];
    // All of them wait, one no more.
    tokio::task::yield_now().await;
    given_up.abort();
    assert!(given_up.await.expect_err("was given up").is_cancelled());
    let options = ConnectOptions::default();
    let connect = || async { hosts.client.connect(to, &options).await.expect("connects") };
    let connected = tokio::join!(connect(), connect(), connect());
    for task in tasks {
        tokio::time::timeout(std::time::Duration::from_secs(15), task)
            .await
            .expect("in time")
            .expect("accepts");
    }
    drop(connected);
}
