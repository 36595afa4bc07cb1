//! A peer that starts again at the same place, and one that did not hear. Needs no privileges.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;

use super::datagram::{HEADER_BYTES, Header, Kind};
use super::keys::Challenge;
use super::*;
use crate::engine::ConnectOptions;
use crate::stack::StackStream;

const PORT: u16 = 443;

fn stack(options: &UdpOptions) -> Stack {
    Stack::udp(&Namespace::current().expect("this one"), options).expect("a stack")
}

fn server(port: u16) -> Stack {
    stack(&UdpOptions { paths: Vec::new(), is_reachable: true, port, ..UdpOptions::default() })
}

/// The place at which clients reach whichever server is there, and what clients have sent to it.
struct Place {
    front: UdpSocket,
    back: UdpSocket,
    server: AtomicU16,
    client: Mutex<Option<SocketAddr>>,
    sent: Mutex<Vec<Vec<u8>>>,
}

impl Place {
    async fn open(port: u16, server: u16) -> Arc<Self> {
        let socket = async |port: u16| UdpSocket::bind(("127.0.0.1", port)).await.expect("a socket");
        let place = Arc::new(Self {
            front: socket(port).await,
            back: socket(0).await,
            server: AtomicU16::new(server),
            client: Mutex::default(),
            sent: Mutex::default(),
        });
        tokio::spawn({
            let place = place.clone();
            async move {
                loop {
                    place.pass().await;
                }
            }
        });
        place
    }

    async fn pass(&self) {
        let (mut up, mut down) = (vec![0; 65_536], vec![0; 65_536]);
        tokio::select! {
            Ok((len, from)) = self.front.recv_from(&mut up) => {
                *self.client.lock().expect("whole") = Some(from);
                self.sent.lock().expect("whole").push(up[..len].to_vec());
                let to = ("127.0.0.1", self.server.load(Ordering::Relaxed));
                let _ = self.back.send_to(&up[..len], to).await;
            }
            Ok((len, _)) = self.back.recv_from(&mut down) => self.say(&down[..len]).await,
        }
    }

    /// To the client.
    async fn say(&self, datagram: &[u8]) {
        let client = self.client.lock().expect("whole").expect("it has sent something");
        let _ = self.front.send_to(datagram, client).await;
    }

    /// The kinds of what the client has sent, and whether each has a segment that acknowledges.
    fn sent(&self) -> Vec<(Kind, bool)> {
        let sent = self.sent.lock().expect("whole");
        let kind = |datagram: &Vec<u8>| {
            let header = Header::parse(datagram).expect("a header");
            (header.kind, datagram.get(HEADER_BYTES + 13).is_some_and(|flags| flags & 0x10 != 0))
        };
        sent.iter().map(kind).collect()
    }
}

async fn pair(client: &Stack, server: &Stack) -> (StackStream, StackStream) {
    let listener = server.listen(([0, 0, 0, 0], PORT).into()).expect("a listener");
    let options = ConnectOptions::default();
    let to = ([127, 0, 0, 1], PORT).into();
    let (connected, accepted) = tokio::join!(client.connect(to, &options), listener.accept());
    let (mut near, mut far) = (connected.expect("connects"), accepted.expect("is accepted").0);
    far.write_all(b"all is well").await.expect("writes");
    near.read_exact(&mut [0; 11]).await.expect("reads");
    (near, far)
}

#[tokio::test]
async fn who_only_receives_hears_that_its_peer_was_restarted() {
    let (before, after) = (server(16_941), server(16_942));
    let place = Place::open(16_940, 16_941).await;
    let keep_alive = Some(Duration::from_millis(500));
    let client = stack(&UdpOptions { port: 16_940, keep_alive, ..UdpOptions::default() });
    let (mut near, _far) = pair(&client, &before).await;
    place.server.store(16_942, Ordering::Relaxed);
    let error = near.read(&mut [0; 10]).await.expect_err("the server knows nothing of it");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
    assert_eq!(after.flows().len(), 0);
}

/// The peer dropped what came from a new address, and challenged it: that was the latest acknowledgment, maybe.
#[tokio::test]
async fn behind_a_proof_flows_are_acknowledged() {
    let server = server(16_944);
    let place = Place::open(16_943, 16_944).await;
    let client = stack(&UdpOptions { port: 16_943, keep_alive: None, ..UdpOptions::default() });
    let (_near, _far) = pair(&client, &server).await;
    let path = address::PathId::of(server.flows()[0].remote.addr).expect("a path");
    // Whatever the exchange still needs.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let before = place.sent().len();
    let challenge = Challenge([5; 8]);
    let header = Header { kind: Kind::Challenge(challenge), to_owner: true, path };
    place.say(&header.to_bytes()).await;
    let is_proof = |sent: &(Kind, bool)| matches!(sent.0, Kind::Proof(of, _) if of == challenge);
    let is_there = || {
        let since = place.sent().split_off(before);
        let behind = since.iter().position(is_proof).map(|at| &since[at + 1..]);
        behind.is_some_and(|behind| behind.contains(&(Kind::Segment, true)))
    };
    while !is_there() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
