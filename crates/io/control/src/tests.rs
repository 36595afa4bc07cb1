use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use polypath_mptcp::HostConfig;
use polypath_mptcp::path_manager::LocalEndpoint;
use polypath_stack::Stack;
use polypath_stack::engine::ConnectOptions;
use polypath_system::tun::TunConfig;
use polypath_testbed::{Side, Testbed, is_root_or_skip};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// Tells what the test wants told.
struct Fake {
    events: broadcast::Sender<EventReport>,
}

fn connection() -> ConnectionReport {
    ConnectionReport {
        local: Some(([10, 0, 0, 1], 40_000).into()),
        remote: Some(([10, 0, 0, 2], 443).into()),
        is_multipath: true,
        version: 1,
        csum_enabled: false,
        scheduler: "lowest-rtt".into(),
        token: 0xc786_6562,
        remote_token: 1,
        write_seq: u64::MAX,
        snd_una: 2,
        rcv_nxt: 3,
        recv_q_bytes: 4,
        send_q_bytes: 5,
        reassembly_bytes: 6,
        subflows: Vec::new(),
    }
}

impl Observed for Fake {
    fn connections(&self) -> Vec<ConnectionReport> {
        vec![connection()]
    }

    fn subscribe(&self) -> broadcast::Receiver<EventReport> {
        self.events.subscribe()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("MPJoinSynRx", 7)]
    }
}

#[test]
fn sockets_of_other_kinds_are_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = |name: &str| folder.path().join(name);
    let listen = |name: &str| {
        let listener = std::os::unix::net::UnixListener::bind(place(name)).expect("a socket");
        listener.set_nonblocking(true).expect("a socket");
        listener
    };
    let others = ["proxy-1.sock", "tunnel-polypath-vpn.sock"].map(listen);
    drop(listen("proxy-dead.sock"));
    let _stack = listen("1-2.sock");
    // No process has such a number.
    drop(listen("4194305.sock"));
    clear(folder.path()).expect("a folder");
    assert!(!place("4194305.sock").exists() && place("proxy-dead.sock").exists());
    assert_eq!(find(folder.path()).expect("a folder"), [Peer::at(place("1-2.sock"))]);
    for other in others {
        let error = other.accept().expect_err("nobody asked");
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stack_that_is_stopped_keeps_nobody_waiting() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("1.sock");
    // It listens, and takes no connection: more than it has room for wait there.
    let stopped = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    rustix::net::listen(&stopped, 1).expect("a socket");
    for _ in 0..5 {
        let peers = find(folder.path()).expect("the directory");
        assert_eq!(peers.len(), 1);
        let error = peers[0].ask(Ask::Connections).await.expect_err("no answer");
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    }
    let offered = offer(Arc::new(Fake { events: broadcast::Sender::new(2) }), folder.path());
    offered.expect("a start does not wait for it either").close();
}

#[tokio::test]
async fn questions_are_answered_and_strays_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let directory = folder.path().join("polypath");
    assert_eq!(find(&directory).expect("nothing yet"), []);
    std::fs::create_dir(&directory).expect("a folder");
    // A process that died left its socket behind; a file that is no socket is none of our business.
    drop(std::os::unix::net::UnixListener::bind(directory.join("4194305.sock")).expect("a socket"));
    std::fs::write(directory.join("notes"), "").expect("a file");
    let fake = Arc::new(Fake { events: broadcast::Sender::new(2) });
    let first = offer(fake.clone(), &directory).expect("a socket");
    let second = offer(fake.clone(), &directory).expect("another");
    assert!(!directory.join("4194305.sock").exists() && directory.join("notes").exists());
    let mode = std::fs::metadata(first.path()).expect("the socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let peers = find(&directory).expect("the directory");
    assert_eq!(peers.len(), 2);
    for peer in &peers {
        let answer = peer.ask(Ask::Connections).await.expect("an answer");
        assert_eq!((answer.pid, answer.connections), (std::process::id(), vec![connection()]));
        let answer = peer.ask(Ask::Counters).await.expect("an answer");
        assert_eq!(answer.counters, [("MPJoinSynRx".to_string(), 7)]);
    }
    second.close();
    assert_eq!(find(&directory).expect("the directory").len(), 1);
    let mut monitor = peers
        .iter()
        .find(|peer| **peer == Peer::at(first.path().into()))
        .expect("the first")
        .monitor()
        .await
        .expect("events");
    let removed = EventReport { remid: Some(3), ..EventReport::new(EventKind::Removed, 9) };
    fake.events.send(removed.clone()).expect("a receiver");
    assert_eq!(monitor.next().await.expect("a line"), Some(removed));
    first.close();
}

#[tokio::test]
async fn watchers_leave_room_for_questions() {
    let folder = tempfile::tempdir().expect("a folder");
    let fake = Arc::new(Fake { events: broadcast::Sender::new(2) });
    let socket = offer(fake, folder.path()).expect("a socket");
    let peer = Peer::at(socket.path().into());
    let mut watchers = Vec::new();
    let refused = loop {
        match peer.monitor().await {
            Ok(monitor) => watchers.push(monitor),
            Err(error) => break error,
        }
    };
    assert_eq!((watchers.len(), refused.to_string()), (64, "64 watch already; expected fewer".into()));
    for ask in [Ask::Connections, Ask::Counters] {
        assert!(peer.ask(ask).await.is_ok());
    }
    // One that goes leaves its place.
    watchers.pop();
    while peer.monitor().await.is_err() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn nonsense_gets_one_clear_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let fake = Arc::new(Fake { events: broadcast::Sender::new(2) });
    let socket = offer(fake, folder.path()).expect("a socket");
    for nonsense in ["{\"ask\":\"password\"}\n".to_string(), "x".repeat(10_000), "\n".into()] {
        let mut client = tokio::net::UnixStream::connect(socket.path()).await.expect("the socket");
        // The end of a question that is too long may find the socket closed.
        let _ = client.write_all(nonsense.as_bytes()).await;
        let mut answer = String::new();
        let _ = client.read_to_string(&mut answer).await;
        let is_refusal = answer.lines().count() == 1 && answer.contains("expected");
        assert!(is_refusal || nonsense.len() > 5000, "{answer}");
    }
    assert!(Peer::at(socket.path().into()).ask(Ask::Counters).await.is_ok());
}

#[test]
fn events_read_like_those_of_the_kernel() {
    let created = EventReport {
        remid: Some(0),
        locid: Some(0),
        local: Some(([10, 9, 0, 1], 50592).into()),
        remote: Some(([10, 9, 0, 1], 5201).into()),
        ..EventReport::new(EventKind::Created, 0xc786_6562)
    };
    let wanted = "[       CREATED] token=c7866562 remid=0 locid=0 saddr4=10.9.0.1 daddr4=10.9.0.1 sport=50592 dport=5201";
    assert_eq!(created.to_string(), wanted);
    let announced = EventReport {
        remid: Some(1),
        remote: Some(([10, 9, 1, 1], 5201).into()),
        ..EventReport::new(EventKind::Announced, 0xc786_6562)
    };
    assert_eq!(announced.to_string(), "[     ANNOUNCED] token=c7866562 remid=1 daddr4=10.9.1.1 dport=5201");
    let established = EventReport {
        event: EventKind::SfEstablished,
        remid: Some(1),
        locid: Some(1),
        local: Some("[fd00::1]:33089".parse().expect("an address")),
        remote: Some("[fd00::2]:5201".parse().expect("an address")),
        backup: Some(false),
        ..created
    };
    let wanted = "[SF_ESTABLISHED] token=c7866562 remid=1 locid=1 saddr6=fd00::1 daddr6=fd00::2 sport=33089 dport=5201 backup=0";
    assert_eq!(established.to_string(), wanted);
}

/// A stack at one side of a testbed.
fn stack(testbed: &Testbed, side: Side, endpoint: fn(std::net::IpAddr, u8) -> LocalEndpoint) -> Stack {
    let tun = testbed.attach_tun(side, &TunConfig::default()).expect("a TUN device");
    let endpoints = (0..2).map(|path| endpoint(side.stack_v4(path).into(), path + 1)).collect();
    Stack::tun(&tun, HostConfig { endpoints, ..HostConfig::default() }).expect("a stack")
}

#[tokio::test]
async fn a_stack_tells_of_a_connection_from_beginning_to_end() {
    if !is_root_or_skip("control of a stack") {
        return;
    }
    let testbed = Testbed::new(2).expect("namespaces");
    let server = stack(&testbed, Side::Server, LocalEndpoint::signal);
    let client = stack(&testbed, Side::Client, LocalEndpoint::subflow);
    let folder = tempfile::tempdir().expect("a folder");
    let socket = offer(Arc::new(client.downgrade()), folder.path()).expect("a socket");
    let peer = Peer::at(socket.path().into());
    let mut monitor = peer.monitor().await.expect("events");
    let last = peer.last().await.expect("a place");
    let served = tempfile::tempdir().expect("a folder");
    let socket_of_server = offer(Arc::new(server.downgrade()), served.path()).expect("a socket");
    let mut accepting = Peer::at(socket_of_server.path().into()).monitor().await.expect("events");
    let listener = server.listen((Side::Server.stack_v4(0), 443).into()).expect("a listener");
    let options = ConnectOptions::default();
    let to = listener.local_addr();
    let (stream, accepted) = tokio::join!(client.connect(to, &options), listener.accept());
    let (mut stream, (mut accepted, _)) = (stream.expect("connects"), accepted.expect("is accepted"));
    let mut events = Vec::new();
    let mut until = async |wanted: EventKind| {
        while events.last().is_none_or(|event: &EventReport| event.event != wanted) {
            let next = tokio::time::timeout(Duration::from_secs(20), monitor.next()).await;
            events.push(next.expect("an event in time").expect("a line").expect("an event"));
        }
        events.clone()
    };
    let seen = until(EventKind::SfEstablished).await;
    let kinds: Vec<_> = seen.iter().map(|event| event.event).collect();
    assert_eq!(kinds[..2], [EventKind::Created, EventKind::Established], "{seen:?}");
    assert_eq!(seen[1].remote, Some(to));
    stream.write_all(&[1; 100_000]).await.expect("room");
    accepted.read_exact(&mut [0; 100_000]).await.expect("the bytes");
    let answer = peer.ask(Ask::Connections).await.expect("an answer");
    let [connection] = &answer.connections[..] else { panic!("{answer:?}") };
    assert!(connection.is_multipath && connection.subflows.len() >= 2, "{connection:?}");
    assert!(seen.iter().all(|event| event.token == connection.token), "{seen:?}");
    assert_eq!(connection.remote, Some(to));
    let sent: u64 = connection.subflows.iter().map(|subflow| subflow.bytes_sent).sum();
    assert!(sent >= 100_000, "{connection:?}");
    let counters = peer.ask(Ask::Counters).await.expect("an answer").counters;
    let joins = counters.iter().find(|(name, _)| name == "MPJoinSynAckRx").map(|(_, value)| *value);
    assert!(joins >= Some(1), "{counters:?}");
    drop((stream, accepted));
    let seen = until(EventKind::Closed).await;
    assert!(seen.iter().any(|event| event.event == EventKind::SfClosed), "{seen:?}");
    let answer = peer.ask(Ask::Figures).await.expect("an answer");
    let paths = answer.figures.expect("figures").paths;
    let sent: u64 = paths.iter().map(|path| path.sent_bytes).sum();
    assert!(
        sent >= 100_000 && paths.iter().all(|path| path.subflows > 0),
        "they outlive the connection: {paths:?}"
    );
    assert!(seen.iter().all(|event| !event.server_side), "{seen:?}");
    let mut seen = Vec::new();
    while seen.last().is_none_or(|event: &EventReport| event.event != EventKind::Closed) {
        let next = tokio::time::timeout(Duration::from_secs(20), accepting.next()).await;
        seen.push(next.expect("an event in time").expect("a line").expect("an event"));
    }
    assert!(seen[0].event == EventKind::Created && seen[0].to_string().ends_with(" server_side"), "{seen:?}");
    assert!(seen.iter().all(|event| event.server_side), "{seen:?}");
    drop(client);
    assert_eq!(peer.ask(Ask::Connections).await.expect("an answer").connections, []);
    // The stack is gone before its socket, and what it has counted is told.
    socket.close();
    let last = tokio::time::timeout(Duration::from_secs(20), last.wait()).await.expect("it is told in time");
    let last = last.expect("a line").expect("last words");
    assert_eq!(last.figures.expect("figures").paths.iter().map(|path| path.sent_bytes).sum::<u64>(), sent);
    let joins = last.counters.iter().find(|(name, _)| name == "MPJoinSynAckRx").map(|(_, value)| *value);
    assert!(joins >= Some(1), "{:?}", last.counters);
}
