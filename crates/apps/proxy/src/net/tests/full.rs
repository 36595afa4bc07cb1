//! While the process has as much memory as it may have, each entrance says so in its own words.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::convert::{OptionKind, ServerConfig, SupportedExtensions};
use crate::net::{InterceptedBy, Surroundings};
use crate::throttle::MinuteOfDay;

/// A process that has as much memory as the test says, until it gives some back.
#[derive(Default)]
struct Made(AtomicU64, AtomicU64);

impl Surroundings for Made {
    fn memory(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed))
    }

    fn give_memory_back(&self) {
        self.0.fetch_sub(self.1.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }

    fn interface_of(&self, _: IpAddr) -> Option<Box<str>> {
        None
    }

    fn minute(&self) -> MinuteOfDay {
        MinuteOfDay::default()
    }
}

/// One that has too much.
async fn full(kind: EntranceKind) -> (Fixture, Arc<Made>) {
    let made = Arc::new(Made(AtomicU64::new(1001), AtomicU64::new(0)));
    let mut settings = Settings { surroundings: made.clone(), ..Settings::default() };
    settings.limits.memory = Some(1000);
    (Fixture::with(kind.into(), settings).await, made)
}

fn convert() -> EntranceKind {
    let supported = SupportedExtensions::new([OptionKind::MULTIPATH_TCP]);
    EntranceKind::Convert(Arc::new(ServerConfig::new(supported)))
}

async fn heard(client: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut heard = Vec::new();
    client.read_to_end(&mut heard).await.map(|_| heard)
}

#[tokio::test]
async fn clients_of_socks_hear_a_general_failure() {
    let (fixture, _) = full(EntranceKind::Socks).await;
    let mut client = fixture.connect().await;
    client.write_all(&[5, 1, 0]).await.unwrap();
    client.read_exact(&mut [0; 2]).await.unwrap();
    client.write_all(&[5, 1, 0, 1, 192, 0, 2, 1, 0, 80]).await.unwrap();
    assert_eq!(heard(&mut client).await.unwrap(), [5, 1, 0, 1, 0, 0, 0, 0, 0, 0]);
    drop(client);
    while fixture.proxy.counts().ended.is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(fixture.told().await, ["socks refused: the proxy has as much memory as it may have"]);
    assert_eq!(fixture.proxy.counts().ended, [(("socks", Outcome::Overloaded), 1)].into());
}

#[tokio::test]
async fn clients_of_http_hear_that_the_service_is_unavailable() {
    for request in
        ["GET http://192.0.2.1/ HTTP/1.1\r\nHost: x\r\n\r\n", "CONNECT a.example:443 HTTP/1.1\r\n\r\n"]
    {
        let (fixture, _) = full(EntranceKind::Http).await;
        let mut client = fixture.connect().await;
        client.write_all(request.as_bytes()).await.unwrap();
        let answer = String::from_utf8(heard(&mut client).await.unwrap()).unwrap();
        assert!(answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{answer}");
        let length: usize =
            answer.split("Content-Length: ").nth(1).unwrap().split("\r\n").next().unwrap().parse().unwrap();
        assert_eq!(answer.split("\r\n\r\n").nth(1).unwrap().len(), length);
    }
}

#[tokio::test]
async fn clients_of_convert_hear_that_resources_are_exceeded() {
    let (fixture, _) = full(convert()).await;
    let mut client = fixture.connect().await;
    // A Connect TLV for 192.0.2.1, port 80 (RFC 8803 §6.2.5).
    let connect = [10, 5, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1];
    client.write_all(&[[1, 6, 0x22, 0x63].as_slice(), &connect].concat()).await.unwrap();
    // An Error TLV of one word, whose code is 64 (RFC 8803 §6.2.8).
    assert_eq!(heard(&mut client).await.unwrap(), [1, 2, 0x22, 0x63, 30, 1, 64, 0]);
}

#[tokio::test]
async fn who_speaks_no_protocol_is_reset() {
    let target = Target::from(server().await.local_addr().unwrap());
    for kind in [EntranceKind::Forward(target), EntranceKind::Transparent(InterceptedBy::Tproxy)] {
        let (fixture, _) = full(kind).await;
        let mut client = fixture.connect().await;
        assert_eq!(heard(&mut client).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
}

#[tokio::test]
async fn those_within_go_on_and_others_come_in_once_there_is_room() {
    let server = server().await;
    let (fixture, made) = full(EntranceKind::Forward(Target::from(server.local_addr().unwrap()))).await;
    made.0.store(1000, Ordering::Relaxed);
    let mut within = fixture.connect().await;
    let (mut stream, _) = server.accept().await.unwrap();
    made.0.store(2000, Ordering::Relaxed);
    while !fixture.proxy.memory().unwrap().is_full() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(heard(&mut fixture.connect().await).await.is_err());
    stream.write_all(b"hello").await.unwrap();
    within.read_exact(&mut [0; 5]).await.unwrap();
    made.0.store(900, Ordering::Relaxed);
    while fixture.proxy.memory().unwrap().is_full() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let _again = fixture.connect().await;
    server.accept().await.unwrap();
}

#[tokio::test]
async fn what_was_freed_is_given_back_before_anybody_is_refused() {
    let server = server().await;
    let (fixture, made) = full(EntranceKind::Forward(Target::from(server.local_addr().unwrap()))).await;
    made.1.store(1, Ordering::Relaxed);
    let _client = fixture.connect().await;
    server.accept().await.unwrap();
    assert_eq!(fixture.proxy.memory().unwrap().octets, 1000);
}

#[tokio::test]
async fn of_those_who_say_nothing_few_are_waited_for() {
    let (fixture, _) = full(EntranceKind::Socks).await;
    let mut silent = Vec::new();
    for _ in 0..super::super::full::MOST_TOLD {
        silent.push(fixture.connect().await);
    }
    // Those before have a place each, once they are seen.
    loop {
        let mut another = fixture.connect().await;
        match tokio::time::timeout(Duration::from_millis(50), heard(&mut another)).await {
            Ok(heard) => break assert_eq!(heard.unwrap_err().kind(), ErrorKind::ConnectionReset),
            Err(_) => silent.push(another),
        }
    }
}
