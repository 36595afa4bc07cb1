//! Limits hold back who is within, and let go.

use polypath_units::{BitRate, Duration as Span};

use super::*;
use crate::throttle::{Budget, Direction, Limit};

/// Of what goes to clients: so much, and then nothing.
fn budget(octets: u64) -> Limit {
    let mut limit = Limit::new("little");
    limit.flows.direction = Some(Direction::Down);
    limit.budget = Some(Budget { octets, period: Span::from_secs(86_400), then: BitRate::ZERO });
    limit
}

/// For what comes at once, or never.
const PATIENCE: Duration = Duration::from_secs(60);

/// Until a limit holds somebody back.
pub(super) async fn held_back(proxy: &Proxy) {
    while proxy.limits().iter().all(|state| state.waiting == 0) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_spent_budget_stops_a_connection_until_it_is_gone() {
    let server = server().await;
    let fixture = Fixture::forward_to(&server).await;
    fixture.proxy.set_limit(budget(1000)).unwrap();
    let mut client = fixture.connect().await;
    let (mut stream, _) = server.accept().await.unwrap();
    let answered = pattern(5_000_000);
    let answer = async {
        stream.write_all(&answered).await.unwrap();
        stream.shutdown().await.unwrap();
    };
    let hear = async {
        held_back(&fixture.proxy).await;
        let state = &fixture.proxy.limits()[0];
        assert_eq!((state.used, state.flows, state.waiting), (1000, 1, 1));
        let mut heard = vec![0; 1000];
        client.read_exact(&mut heard).await.unwrap();
        let session = &fixture.proxy.sessions().states()[0];
        assert_eq!(session.flow.to_client_bytes(), 1000);
        // The other way is free.
        client.write_all(&[7; 2000]).await.unwrap();
        client.shutdown().await.unwrap();
        assert!(fixture.proxy.remove_limit("little") && !fixture.proxy.remove_limit("little"));
        client.read_to_end(&mut heard).await.unwrap();
        heard
    };
    let ((), heard) = tokio::join!(answer, hear);
    assert!(heard == answered);
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).await.unwrap();
    assert_eq!(heard.len(), 2000);
    drop((client, stream));
    assert_eq!(fixture.told().await, ["forward ended"]);
}

#[tokio::test]
async fn no_limit_holds_back_an_end() {
    for both in [false, true] {
        let server = server().await;
        let fixture = Fixture::forward_to(&server).await;
        let mut limit = budget(0);
        if both {
            limit.flows.direction = None;
        }
        fixture.proxy.set_limit(limit).unwrap();
        let mut client = fixture.connect().await;
        let (mut stream, _) = server.accept().await.unwrap();
        stream.shutdown().await.unwrap();
        let mut heard = Vec::new();
        let hearing = client.read_to_end(&mut heard);
        assert_eq!(tokio::time::timeout(PATIENCE, hearing).await.expect("an end").unwrap(), 0);
        client.shutdown().await.unwrap();
        let hearing = stream.read_to_end(&mut heard);
        assert_eq!(tokio::time::timeout(PATIENCE, hearing).await.expect("an end").unwrap(), 0);
        assert_eq!(fixture.told().await, ["forward ended"]);
    }
}

#[tokio::test]
async fn a_limit_holds_for_a_connection_that_is_under_way() {
    let server = server().await;
    let fixture = Fixture::forward_to(&server).await;
    let mut client = fixture.connect().await;
    let (mut stream, _) = server.accept().await.unwrap();
    let answered = pattern(30_000_000);
    let answer = async {
        stream.write_all(&answered).await.unwrap();
        stream.shutdown().await.unwrap();
    };
    let hear = async {
        // By now it goes through a pipe.
        let mut heard = vec![0; 5_000_000];
        client.read_exact(&mut heard).await.unwrap();
        fixture.proxy.set_limit(budget(1)).unwrap();
        let waiting = held_back(&fixture.proxy);
        tokio::pin!(waiting);
        loop {
            tokio::select! {
                () = &mut waiting => break,
                read = client.read_buf(&mut heard) => assert!(read.unwrap() > 0),
            }
        }
        assert!(fixture.proxy.sessions().states()[0].flow.to_client_bytes() < 30_000_000);
        // Another one of the same name is fast enough.
        let mut limit = budget(1);
        (limit.budget, limit.rate) = (None, Some(BitRate::from_mbps(100_000)));
        fixture.proxy.set_limit(limit).unwrap();
        client.read_to_end(&mut heard).await.unwrap();
        heard
    };
    let ((), heard) = tokio::join!(answer, hear);
    assert!(heard == answered);
}

#[tokio::test]
async fn a_limit_is_of_those_that_it_names() {
    let server = server().await;
    let fixture = Fixture::forward_to(&server).await;
    for name in ["client", "user", "path"] {
        let mut limit = budget(1);
        limit.name = name.into();
        match name {
            "client" => limit.flows.clients = vec!["192.0.2.0/24".parse().unwrap()],
            "user" => limit.flows.users = vec!["ann".into()],
            _ => limit.flows.paths = vec!["192.0.2.1".parse().unwrap()],
        }
        fixture.proxy.set_limit(limit).unwrap();
    }
    let mut limit = budget(1);
    limit.flows.paths = vec!["127.0.0.1".parse().unwrap()];
    fixture.proxy.set_limit(limit).unwrap();
    let mut client = fixture.connect().await;
    let (mut stream, _) = server.accept().await.unwrap();
    stream.write_all(b"hello").await.unwrap();
    held_back(&fixture.proxy).await;
    let flows: Vec<_> =
        fixture.proxy.limits().iter().map(|state| (state.limit.name.to_string(), state.flows)).collect();
    let expected = [("client", 0), ("little", 1), ("path", 0), ("user", 0)];
    assert_eq!(flows, expected.map(|(name, flows)| (name.to_string(), flows)));
    fixture.proxy.remove_limit("little");
    client.read_exact(&mut [0; 5]).await.unwrap();
}

#[tokio::test]
async fn an_answer_of_http_waits_and_arrives_whole() {
    let server = server().await;
    let at = server.local_addr().unwrap();
    let fixture = Fixture::new(EntranceKind::Http).await;
    fixture.proxy.set_limit(budget(3)).unwrap();
    let mut client = fixture.connect().await;
    client
        .write_all(format!("GET http://{at}/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())
        .await
        .unwrap();
    answer_with(&server, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", false).await;
    held_back(&fixture.proxy).await;
    let session = &fixture.proxy.sessions().states()[0];
    assert_eq!((session.protocol, session.server), ("http", Some(at)));
    assert_eq!(session.target.as_ref().unwrap().to_string(), at.to_string());
    let mut heard = Vec::new();
    while !heard.ends_with(b"\r\n\r\nhel") {
        assert!(client.read_buf(&mut heard).await.unwrap() > 0);
    }
    fixture.proxy.remove_limit("little");
    client.read_to_end(&mut heard).await.unwrap();
    assert!(heard.ends_with(b"\r\n\r\nhello"));
    drop(client);
    assert_eq!(fixture.told().await, ["http ended"]);
}

#[tokio::test]
async fn a_server_that_is_gone_is_noticed_while_its_answer_waits() {
    let server = server().await;
    let fixture = Fixture::forward_to(&server).await;
    fixture.proxy.set_limit(budget(1000)).unwrap();
    let mut client = fixture.connect().await;
    let (mut stream, _) = server.accept().await.unwrap();
    stream.write_all(&pattern(100_000)).await.unwrap();
    client.read_exact(&mut [0; 1000]).await.unwrap();
    held_back(&fixture.proxy).await;
    stream.set_zero_linger().unwrap();
    drop(stream);
    let error = client.read_to_end(&mut Vec::new()).await.expect_err("no end in order");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert!(fixture.told().await[0].starts_with("forward the server's connection broke"));
}

#[tokio::test]
async fn a_client_that_is_gone_is_noticed_while_its_answer_waits() {
    let server = server().await;
    let fixture = Fixture::forward_to(&server).await;
    fixture.proxy.set_limit(budget(1000)).unwrap();
    let mut client = fixture.connect().await;
    let (mut stream, _) = server.accept().await.unwrap();
    // It says no more, so that nothing is read of it.
    client.shutdown().await.unwrap();
    stream.read_to_end(&mut Vec::new()).await.unwrap();
    stream.write_all(&pattern(100_000)).await.unwrap();
    client.read_exact(&mut [0; 1000]).await.unwrap();
    held_back(&fixture.proxy).await;
    client.set_zero_linger().unwrap();
    drop(client);
    assert!(fixture.told().await[0].starts_with("forward the client's connection broke"));
}

#[tokio::test]
async fn a_client_of_http_that_is_gone_is_noticed_while_its_answer_waits() {
    let server = server().await;
    let at = server.local_addr().unwrap();
    let fixture = Fixture::with(EntranceKind::Http.into(), Settings::default()).await;
    fixture.proxy.set_limit(budget(1000)).unwrap();
    let mut client = fixture.connect().await;
    client.write_all(format!("GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n").as_bytes()).await.unwrap();
    let (mut stream, _) = server.accept().await.unwrap();
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n").await.unwrap();
    stream.write_all(&pattern(100_000)).await.unwrap();
    client.read_exact(&mut [0; 900]).await.unwrap();
    held_back(&fixture.proxy).await;
    client.set_zero_linger().unwrap();
    drop(client);
    assert!(fixture.told().await[0].starts_with("http the client's connection broke"));
    fixture.proxy.sessions().drained().await;
}

#[tokio::test]
async fn who_only_hears_no_more_has_said_things_that_a_limit_lets_pass_later() {
    let server = server().await;
    let fixture = Fixture::forward_to(&server).await;
    let mut limit = Limit::new("slow");
    limit.rate = Some(BitRate::from_mbps(2));
    limit.burst = Some(1000);
    limit.flows.direction = Some(Direction::Down);
    fixture.proxy.set_limit(limit).unwrap();
    let mut client = fixture.connect().await;
    let (mut stream, _) = server.accept().await.unwrap();
    let answer = pattern(40_000);
    stream.write_all(&answer).await.unwrap();
    // It has said all, and what comes now is answered by a reset.
    drop(stream);
    held_back(&fixture.proxy).await;
    let (mut reading, mut writing) = client.split();
    let saying = async {
        for _ in 0..5 {
            let _ = writing.write_all(b"more").await;
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let mut heard = Vec::new();
    let (_, read) = tokio::join!(saying, async {
        let mut block = vec![0; 16 << 10];
        while heard.len() < answer.len() {
            match reading.read(&mut block).await {
                Ok(count @ 1..) => heard.extend_from_slice(&block[..count]),
                ended => return ended.map(drop),
            }
        }
        Ok(())
    });
    assert!(read.is_ok() && heard == answer, "{} of {}: {read:?}", heard.len(), answer.len());
}
