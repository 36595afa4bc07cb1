//! Stacks that talk over the loopback interface, and who gets between them. Needs no privileges.

use std::collections::HashSet;
use std::net::{IpAddr, UdpSocket};

use polypath_system::Link;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::address::PathId;
use super::datagram::{Header, Kind};
use super::options::further_uplinks;
use super::*;
use crate::engine::{ConnectOptions, Engine, Listener, Stream};
use crate::stack::StackStream;
use crate::stack::ending::{is_told, upload_to_the_end};

const PORT: u16 = 443;

/// A server whose UDP port is `udp_port`, and options for its clients.
fn server(udp_port: u16) -> (Stack, UdpOptions) {
    let client = UdpOptions { port: udp_port, ..UdpOptions::default() };
    let options = UdpOptions { paths: Vec::new(), is_reachable: true, ..client.clone() };
    (Stack::udp(&Namespace::current().expect("this one"), &options).expect("a stack"), client)
}

fn client(options: &UdpOptions) -> Stack {
    Stack::udp(&Namespace::current().expect("this one"), options).expect("a stack")
}

async fn pair(client: &Stack, server: &Stack) -> (StackStream, StackStream) {
    let listener = server.listen(([0, 0, 0, 0], PORT).into()).expect("a listener");
    let options = ConnectOptions::default();
    let to = ([127, 0, 0, 1], PORT).into();
    let (connected, accepted) = tokio::join!(client.connect(to, &options), listener.accept());
    (connected.expect("connects"), accepted.expect("is accepted").0)
}

async fn exchange(from: &mut StackStream, to: &mut StackStream, len: usize) {
    let data: Vec<u8> = (0..len).map(|at| (at * 7 + at / 253) as u8).collect();
    let mut received = vec![0; len];
    let (sent, got) = tokio::join!(from.write_all(&data), to.read_exact(&mut received));
    sent.expect("writes");
    got.expect("reads");
    assert!(received == data);
}

fn counter(stack: &Stack, name: &str) -> u64 {
    let counters = stack.driver_counters();
    counters.iter().find(|(known, _)| *known == name).expect("a counter").1
}

async fn until(mut is_true: impl FnMut() -> bool) {
    while !is_true() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn the_first_syn_leaves() {
    let (server, options) = server(16_901);
    let client = client(&options);
    let (near, _far) = pair(&client, &server).await;
    let info = near.connection_info().expect("it lives");
    assert_eq!((info.subflows[0].tcp.timeouts, info.subflows[0].tcp.retransmits), (Some(0), 0));
}

/// As after an interruption of a program in the middle of an upload.
#[tokio::test]
async fn the_peer_of_a_stack_whose_runtime_ends_is_told() {
    let (server, options) = server(16_906);
    let listener = server.listen(([0, 0, 0, 0], PORT).into()).expect("a listener");
    let start = move || client(&options);
    let (accepted, ()) =
        tokio::join!(listener.accept(), upload_to_the_end(start, ([127, 0, 0, 1], PORT).into()));
    is_told(accepted.expect("is accepted").0).await;
}

/// A program that ends in order: it waits until what it wrote has arrived.
#[tokio::test]
async fn what_was_written_arrives_whole_when_a_program_drains_before_it_ends() {
    const LEN: usize = 3_000_000;
    let (server, options) = server(16_909);
    let listener = server.listen(([0, 0, 0, 0], PORT).into()).expect("a listener");
    let uploading = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let client = client(&options);
            let to = ([127, 0, 0, 1], PORT).into();
            let mut near = client.connect(to, &ConnectOptions::default()).await.expect("connects");
            near.write_all(&vec![7; LEN]).await.expect("writes");
            near.shutdown().await.expect("ends");
            drop(near);
            assert!(client.drain(Duration::from_secs(20)).await);
        });
    });
    let (mut far, _) = listener.accept().await.expect("is accepted");
    let mut received = Vec::new();
    far.read_to_end(&mut received).await.expect("no reset");
    assert_eq!(received.len(), LEN);
    drop(far);
    uploading.await.expect("a thread");
}

#[tokio::test]
async fn a_drain_waits_for_nothing_that_has_ended_and_tells_of_what_was_lost() {
    let (server, options) = server(16_911);
    let client = client(&options);
    let (mut near, mut far) = pair(&client, &server).await;
    exchange(&mut near, &mut far, 1000).await;
    near.shutdown().await.expect("ends");
    far.shutdown().await.expect("ends");
    // Both streams are held still.
    assert!(client.drain(Duration::MAX).await && server.drain(Duration::MAX).await);
    let (mut near, far) = pair(&client, &server).await;
    near.write_all(&[7; 100_000]).await.expect("writes");
    drop(near);
    let (is_delivered, ()) = tokio::join!(client.drain(Duration::MAX), async { far.abort() });
    assert!(!is_delivered);
    assert!(client.drain(Duration::MAX).await, "nothing was lost since");
    // Before it is asked, and told to its stream already.
    for is_held in [true, false] {
        let (mut near, far) = pair(&client, &server).await;
        near.write_all(&[7; 100_000]).await.expect("writes");
        far.abort();
        let told = near.read_u8().await.expect_err("the peer has let go");
        assert_eq!(told.kind(), io::ErrorKind::ConnectionReset);
        let held = is_held.then_some(near);
        assert!(!client.drain(Duration::MAX).await, "held: {is_held}");
        drop(held);
        assert!(client.drain(Duration::MAX).await, "it is told once");
    }
    // What was written has arrived, and no end was promised.
    let (mut near, mut far) = pair(&client, &server).await;
    exchange(&mut near, &mut far, 1000).await;
    far.abort();
    near.read_u8().await.expect_err("the peer has let go");
    assert!(client.drain(Duration::MAX).await);
}

#[tokio::test]
async fn addresses_are_those_that_the_program_has_used() {
    let (server, options) = server(16_912);
    let client = client(&options);
    for at in ["0.0.0.0:0", "[::]:0", "127.0.0.1:0"] {
        let asked: SocketAddr = at.parse().expect("an address");
        let listener = server.listen(asked).expect("a listener");
        let at = listener.local_addr();
        assert_eq!((at.ip(), at.port() == 0), (asked.ip(), false));
        assert_eq!(Listener::Stack(listener).local_addr().expect("an address"), at);
    }
    let (mut near, mut far) = pair(&client, &server).await;
    let own = near.first_subflow().expect("it was open");
    assert_eq!(client.subflow_path_name(own).as_deref(), Some("lo"), "wherever a default route leads");
    let to: SocketAddr = ([127, 0, 0, 1], PORT).into();
    assert_eq!((near.peer_addr().expect("it lives"), far.local_addr().expect("it lives")), (to, to));
    exchange(&mut near, &mut far, 1000).await;
    let (near, far) = (Stream::Stack(near), Stream::Stack(far));
    let (local, peer) = (near.local_addr().expect("it lives"), far.peer_addr().expect("it lives"));
    assert_eq!((local.ip(), peer.ip()), (to.ip(), to.ip()));
    let ends = |stream: &Stream| stream.info().expect("it lives").subflows[0].tuple;
    assert_eq!((ends(&near).local.addr, ends(&near).remote), (to.ip(), to.into()));
    assert_eq!((ends(&far).local, ends(&far).remote.addr), (to.into(), to.ip()));
}

#[tokio::test]
async fn options_that_make_no_sense_are_refused() {
    let here = Namespace::current().expect("this one");
    let refusals = [
        (UdpOptions { mtu_bytes: 0, ..UdpOptions::default() }, "expected mtu_bytes of 1280 or more"),
        (UdpOptions { mtu_bytes: 1279, ..UdpOptions::server() }, "expected mtu_bytes of 1280 or more"),
        (
            UdpOptions {
                paths: vec![UdpPath { interface: Some(String::new()), ..UdpPath::default() }],
                ..UdpOptions::default()
            },
            "has an empty name; expected that of an interface, or none",
        ),
        (UdpOptions { port: 0, ..UdpOptions::default() }, "expected port of 1 or more, as the peers have it"),
    ];
    for (options, text) in refusals {
        let error = Stack::udp(&here, &options).expect_err("they make no sense");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(UdpError::of(&error).is_some() && error.to_string().ends_with(text), "{error}");
    }
    for mtu_bytes in [1280, u16::MAX] {
        Stack::udp(&here, &UdpOptions { mtu_bytes, ..UdpOptions::default() }).expect("a stack");
    }
}

#[tokio::test]
async fn who_cannot_be_reached_there_does_not_listen() {
    let (server, options) = server(16_910);
    let error = client(&options).listen(([0, 0, 0, 0], PORT).into()).expect_err("a client");
    assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    assert!(error.to_string().ends_with("expected one that is reachable"), "{error}");
    let error = server.listen(([192, 0, 2, 1], PORT).into()).expect_err("another host's");
    assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
    assert!(error.to_string().starts_with("can't listen at 192.0.2.1:443: "), "{error}");
    server.listen(([127, 0, 0, 1], PORT).into()).expect("its own");
}

#[tokio::test]
async fn a_server_sees_real_addresses_and_counts_by_them() {
    let (server, options) = server(16_908);
    let clients = [client(&options), client(&options), client(&options)];
    let mut streams = Vec::new();
    for client in &clients {
        streams.push(pair(client, &server).await);
    }
    for (_, far) in &streams {
        assert_eq!(far.peer_addr().expect("it lives").ip(), IpAddr::from([127, 0, 0, 1]));
    }
    let remotes: HashSet<IpAddr> = server.flows().iter().map(|flow| flow.remote.addr).collect();
    let sources: HashSet<u64> = remotes.iter().copied().map(polypath_tcp::source_prefix).collect();
    assert_eq!((remotes.len(), sources.len()), (3, 1), "{remotes:?}");
}

#[tokio::test]
async fn who_knows_an_identifier_gets_no_traffic_of_the_path() {
    let (server, options) = server(16_902);
    let client = client(&options);
    let (mut near, mut far) = pair(&client, &server).await;
    exchange(&mut near, &mut far, 100_000).await;
    let path = PathId::of(server.flows()[0].remote.addr).expect("a path");
    let thief = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    thief.set_nonblocking(true).expect("a choice");
    let keep_alive = Header { kind: Kind::KeepAlive, to_owner: false, path }.to_bytes();
    let mut answers = 0;
    for _ in 0..20 {
        thief.send_to(&keep_alive, ("127.0.0.1", 16_902)).expect("sends");
        tokio::time::sleep(Duration::from_millis(2)).await;
        exchange(&mut far, &mut near, 200_000).await;
        let mut bytes = [0; 2048];
        while let Ok(len) = thief.recv(&mut bytes) {
            let header = Header::parse(&bytes[..len]).expect("a header");
            assert!(matches!(header.kind, Kind::Challenge(_)), "{header:?}");
            assert!(len <= keep_alive.len());
            answers += 1;
        }
    }
    assert!(answers > 0, "it was heard");
    assert_eq!((counter(&server, "UdpPathMoved"), counter(&server, "UdpPathAdmitted")), (0, 1));
    assert_eq!(near.connection_info().expect("it lives").subflows[0].tcp.timeouts, Some(0));
}

#[tokio::test]
async fn the_old_format_is_counted_and_ignored() {
    let (server, _) = server(16_903);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.send_to(&[2, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8], ("127.0.0.1", 16_903)).expect("sends");
    socket.send_to(&[0x1f, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8], ("127.0.0.1", 16_903)).expect("sends");
    until(|| counter(&server, "UdpVersionUnknown") == 1 && counter(&server, "UdpMalformed") == 1).await;
}

#[tokio::test]
async fn an_address_that_leads_nowhere_does_not_end_the_stack() {
    let (server, options) = server(16_904);
    let client = client(&options);
    let as_usual = ConnectOptions::default();
    for nowhere in ["[fe80::1]:443", "255.255.255.255:443"] {
        let to = nowhere.parse().expect("an address");
        let dialled = client.connect(to, &as_usual);
        assert!(tokio::time::timeout(Duration::from_millis(5), dialled).await.is_err(), "{nowhere}");
    }
    let (mut near, mut far) = pair(&client, &server).await;
    exchange(&mut near, &mut far, 1000).await;
}

#[tokio::test]
async fn a_full_table_makes_room_for_who_has_a_use_for_it() {
    let (mut reachable, options) = {
        let options = UdpOptions { port: 16_905, ..UdpOptions::default() };
        (UdpOptions { paths: Vec::new(), is_reachable: true, ..options.clone() }, options)
    };
    reachable.peers.paths = 1;
    let server = client(&reachable);
    let first = client(&options);
    let (mut near, mut far) = pair(&first, &server).await;
    exchange(&mut near, &mut far, 1000).await;
    // A second path finds no room while the first is in use, and what is in use stays.
    let second = client(&options);
    let as_usual = ConnectOptions::default();
    let dialled = second.connect(([127, 0, 0, 1], PORT).into(), &as_usual);
    let _ = tokio::time::timeout(Duration::from_millis(50), dialled).await;
    until(|| counter(&server, "UdpPathNoRoom") > 0).await;
    exchange(&mut far, &mut near, 1000).await;
}

#[tokio::test]
async fn a_port_where_nobody_listens_is_told_at_once() {
    let client = client(&UdpOptions { port: 16_932, ..UdpOptions::default() });
    for nobody in ["127.0.0.1:443", "[::1]:443"] {
        let to = nobody.parse().expect("an address");
        let error = client.connect(to, &ConnectOptions::default()).await.expect_err("nobody is there");
        assert_eq!(error.kind(), io::ErrorKind::HostUnreachable, "{error}");
        let text = error.to_string();
        assert!(text.starts_with(&format!("nobody listens at {nobody}")), "{text}");
        assert!(text.contains("expected a Polypath there with engine udp, at UDP port"), "{text}");
    }
}

#[tokio::test]
async fn strangers_beyond_the_budget_connect_all_the_same() {
    let options = UdpOptions { port: 16_900, ..UdpOptions::default() };
    let mut reachable = UdpOptions { paths: Vec::new(), is_reachable: true, ..options.clone() };
    reachable.peers.unproven_per_second_of_source = 1;
    let server = client(&reachable);
    let listener = server.listen(([0, 0, 0, 0], PORT).into()).expect("a listener");
    for _ in 0..5 {
        // Each has a path of its own, and its SYN is dropped for a challenge but for the first.
        let client = client(&options);
        let as_usual = ConnectOptions::default();
        let to = ([127, 0, 0, 1], PORT).into();
        let (near, far) = tokio::join!(client.connect(to, &as_usual), listener.accept());
        let (mut near, mut far) = (near.expect("connects"), far.expect("is accepted").0);
        exchange(&mut near, &mut far, 1000).await;
        let info = near.connection_info().expect("it lives");
        assert_eq!(info.subflows[0].tcp.timeouts, Some(0), "no timer was needed");
    }
}

#[tokio::test]
async fn many_connections_at_once_over_a_new_path_need_no_timer() {
    const COUNT: usize = 150;
    let options = UdpOptions { port: 16_907, ..UdpOptions::default() };
    let mut reachable = UdpOptions { paths: Vec::new(), is_reachable: true, ..options.clone() };
    reachable.peers.unproven_per_second_of_source = 10;
    let server = client(&reachable);
    let listener = server.listen(([0, 0, 0, 0], PORT).into()).expect("a listener");
    let client = client(&options);
    let dialling: Vec<_> = (0..COUNT)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                client.connect(([127, 0, 0, 1], PORT).into(), &ConnectOptions::default()).await
            })
        })
        .collect();
    let mut accepted = Vec::new();
    while accepted.len() < COUNT {
        accepted.push(listener.accept().await.expect("is accepted").0);
    }
    for dialled in dialling {
        let near = dialled.await.expect("ends").expect("connects");
        assert_eq!(near.connection_info().expect("it lives").subflows[0].tcp.timeouts, Some(0));
    }
}

#[test]
fn further_uplinks_are_those_with_a_default_route() {
    let link = |index: u32, name: &str, last: u8| Link {
        index,
        name: name.to_string(),
        is_up: true,
        is_running: last != 3,
        is_loopback: false,
        kind: None,
        mtu_bytes: 1500,
        addresses: vec![[192, 0, 2, last].into()],
    };
    let default = |link, metric| polypath_system::Route {
        destination: ([0; 4].into(), 0),
        gateway: Some([192, 0, 2, 254].into()),
        link,
        metric,
    };
    let state = SystemState {
        links: vec![link(1, "wlan0", 1), link(2, "eth0", 2), link(3, "down0", 3), link(4, "lan0", 4)],
        routes: vec![default(1, 600), default(2, 100), default(3, 1)],
        ..SystemState::default()
    };
    // By eth0 goes the path that is bound to none.
    assert_eq!(further_uplinks(&state), ["wlan0"]);
    assert!(further_uplinks(&SystemState::default()).is_empty());
}

#[tokio::test]
async fn who_gets_no_answer_is_told_what_the_peer_must_be() {
    let client = Engine::Stack(client(&UdpOptions { port: 16_931, ..UdpOptions::default() }));
    let soon = ConnectOptions { timeout: Some(Duration::from_millis(1)), ..ConnectOptions::default() };
    let error = client.connect(([127, 0, 0, 1], PORT).into(), &soon).await.expect_err("nobody is there");
    assert!(error.to_string().contains("expected a Polypath there with engine udp, at UDP port"), "{error}");
}
