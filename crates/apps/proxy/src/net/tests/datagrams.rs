//! Datagrams of clients of SOCKS, and limits.

use polypath_units::{BitRate, Duration as Span};
use tokio::net::UdpSocket;

use super::*;
use crate::access::{Allowance, ClientLimits};
use crate::throttle::{Budget, Direction, Limit};

/// A client's association.
struct Association {
    _control: TcpStream,
    /// Where its datagrams go.
    at: SocketAddr,
    socket: UdpSocket,
}

/// What the proxy says to a client that wants an association.
async fn ask(fixture: &Fixture) -> (TcpStream, Vec<u8>) {
    let mut control = fixture.connect().await;
    control.write_all(&[5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
    let mut reply = vec![0; 12];
    control.read_exact(&mut reply).await.unwrap();
    (control, reply)
}

impl Association {
    async fn new(fixture: &Fixture) -> Self {
        let (control, reply) = ask(fixture).await;
        assert_eq!(reply[..6], [5, 0, 5, 0, 0, 1]);
        let at = SocketAddr::from(([127, 0, 0, 1], u16::from_be_bytes([reply[10], reply[11]])));
        Self { _control: control, at, socket: UdpSocket::bind(HERE).await.unwrap() }
    }

    async fn send(&self, to: &UdpSocket, payload: &[u8]) {
        let mut datagram = vec![0, 0, 0, 1, 127, 0, 0, 1];
        datagram.extend(to.local_addr().unwrap().port().to_be_bytes());
        datagram.extend(payload);
        self.socket.send_to(&datagram, self.at).await.unwrap();
    }

    /// What a datagram for it carries.
    async fn receive(&self) -> Vec<u8> {
        let mut buffer = [0; 1000];
        let (count, _) = self.socket.recv_from(&mut buffer).await.unwrap();
        buffer[10..count].to_vec()
    }
}

async fn receive(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = [0; 1000];
    let (count, from) = socket.recv_from(&mut buffer).await.unwrap();
    (buffer[..count].to_vec(), from)
}

/// So much one way, and then nothing.
fn budget(octets: u64, direction: Direction) -> Limit {
    let mut limit = Limit::new("little");
    limit.flows.direction = Some(direction);
    limit.budget = Some(Budget { octets, period: Span::from_secs(86_400), then: BitRate::ZERO });
    limit
}

async fn held_back(proxy: &Proxy) {
    while proxy.limits()[0].waiting == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn what_a_client_sends_is_limited() {
    let fixture = Fixture::new(EntranceKind::Socks).await;
    fixture.proxy.set_limit(budget(1000, Direction::Up)).unwrap();
    let (client, server) = (Association::new(&fixture).await, UdpSocket::bind(HERE).await.unwrap());
    for number in 0..5 {
        client.send(&server, &[number; 300]).await;
    }
    for number in 0..3 {
        assert_eq!(receive(&server).await.0, [number; 300]);
    }
    held_back(&fixture.proxy).await;
    let state = &fixture.proxy.limits()[0];
    assert_eq!((state.flows, state.used), (1, 1000), "what the fourth lacks does not come");
    let session = &fixture.proxy.sessions().states()[0];
    assert_eq!(session.flow.to_server_bytes(), 900);
    // The other way is free.
    let (_, relay) = {
        fixture.proxy.set_limit(budget(1 << 20, Direction::Up)).unwrap();
        client.send(&server, b"and on").await;
        loop {
            let (payload, from) = receive(&server).await;
            if payload == b"and on" {
                break (payload, from);
            }
            assert!(payload == [3; 300] || payload == [4; 300]);
        }
    };
    server.send_to(&[7; 900], relay).await.unwrap();
    assert_eq!(client.receive().await, [7; 900]);
    drop(client);
    assert_eq!(fixture.told().await, ["socks ended"]);
    assert_eq!(fixture.proxy.limits()[0].flows, 0);
}

#[tokio::test]
async fn what_it_receives_is_limited() {
    let fixture = Fixture::new(EntranceKind::Socks).await;
    fixture.proxy.set_limit(budget(1000, Direction::Down)).unwrap();
    let (client, server) = (Association::new(&fixture).await, UdpSocket::bind(HERE).await.unwrap());
    client.send(&server, b"what?").await;
    let (_, relay) = receive(&server).await;
    for number in 0..50 {
        server.send_to(&[number; 300], relay).await.unwrap();
    }
    for number in 0..3 {
        assert_eq!(client.receive().await, [number; 300]);
    }
    // Some wait, and there is no room for the others.
    while fixture.proxy.limits()[0].dropped_datagrams < 15 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(fixture.proxy.sessions().states()[0].flow.to_client_bytes(), 900);
    assert_eq!(fixture.proxy.limits()[0].used, 1000);
    assert!(fixture.proxy.remove_limit("little"));
    server.send_to(b"the last", relay).await.unwrap();
    while client.receive().await != b"the last" {}
}

#[tokio::test]
async fn who_sends_datagrams_has_the_places_of_two() {
    let each = Allowance { connections: 3, new_per_second: u32::MAX, burst: u32::MAX };
    let limits = ClientLimits { each, ..Settings::default().limits };
    let settings = Settings { limits, ..Settings::default() };
    let fixture = Fixture::with(EntranceKind::Socks.into(), settings).await;
    let first = Association::new(&fixture).await;
    let (_control, reply) = ask(&fixture).await;
    assert_eq!(reply[..4], [5, 0, 5, 1], "a general failure");
    drop(first);
    while fixture.proxy.sessions().count() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(Association::new(&fixture).await);
    let told = fixture.told().await;
    let refused = "socks refused: this client has as many connections as may be";
    assert!(told.iter().filter(|line| *line == refused).count() == 1 && told.len() == 3, "{told:?}");
}
