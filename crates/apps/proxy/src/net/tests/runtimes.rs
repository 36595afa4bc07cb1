//! Connections that runtimes of other threads serve.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::{Fixture, server};

#[tokio::test]
async fn a_connection_is_served_by_the_runtime_that_serves_fewest() {
    let server = server().await;
    let fixture = Fixture::forward_to(&server).await;
    let other = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    fixture.proxy.serve_by([other.handle().clone()]);
    let mut pairs = Vec::new();
    for number in 0..4 {
        let mut client = fixture.connect().await;
        let (mut at_server, _) = server.accept().await.unwrap();
        client.write_u8(number).await.unwrap();
        assert_eq!(at_server.read_u8().await.unwrap(), number);
        at_server.write_u8(number).await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), number);
        pairs.push((client, at_server));
    }
    assert_eq!(fixture.proxy.sessions().count(), 4);
    // What it serves ends with it, and the rest does not: every other one was its.
    other.shutdown_background();
    for (number, (client, at_server)) in (0_u8..).zip(&mut pairs) {
        let is_elsewhere = number % 2 == 1;
        if !is_elsewhere {
            at_server.write_u8(number).await.unwrap();
        }
        let heard = timeout(Duration::from_secs(20), client.read_u8()).await.expect("a byte or an end");
        assert_eq!(heard.is_err(), is_elsewhere, "connection {number}");
    }
    // It has fewest now. Who is handed to it is reset, and the next one is served.
    let mut lost = fixture.connect().await;
    let heard = timeout(Duration::from_secs(20), lost.read_u8()).await.expect("an end");
    assert_eq!(heard.unwrap_err().kind(), ErrorKind::ConnectionReset);
    let mut client = fixture.connect().await;
    client.write_u8(7).await.unwrap();
    let (mut at_server, _) = server.accept().await.unwrap();
    assert_eq!(at_server.read_u8().await.unwrap(), 7);
    drop((client, at_server, pairs));
    fixture.told().await;
}

#[tokio::test]
async fn who_was_handed_over_and_not_come_to_is_waited_for_at_the_end() {
    let server = server().await;
    let fixture = Fixture::forward_to(&server).await;
    // Nothing drives it yet.
    let other = Builder::new_current_thread().enable_all().build().unwrap();
    fixture.proxy.serve_by([other.handle().clone()]);
    let first = fixture.connect().await;
    let first = (first, server.accept().await.unwrap());
    let mut second = fixture.connect().await;
    let third = fixture.connect().await;
    // They are let in one after the other: the second is where it belongs.
    let third = (third, server.accept().await.unwrap());
    let proxy = fixture.proxy.clone();
    let draining = tokio::spawn(async move { proxy.drain(Duration::from_secs(20)).await });
    drop((first, third));
    fixture.proxy.sessions().drained().await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!draining.is_finished());
    let (goes_on, end) = tokio::sync::oneshot::channel::<()>();
    let driving = std::thread::spawn(move || drop(other.block_on(end)));
    let (mut at_server, _) = server.accept().await.unwrap();
    at_server.write_u8(2).await.unwrap();
    assert_eq!(second.read_u8().await.unwrap(), 2);
    drop((second, at_server));
    assert!(draining.await.unwrap());
    drop(goes_on);
    driving.join().unwrap();
}
