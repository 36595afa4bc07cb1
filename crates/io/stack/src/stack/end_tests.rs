//! How stacks end, whose packets go from one to the other within the process. Needs no privileges.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use polypath_mptcp::path_manager::LocalEndpoint;
use polypath_mptcp::{ConnectionConfig, Host, HostConfig};
use polypath_wire::Packet;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::in_memory::{Receiver, Sender, link};
use super::*;
use crate::engine::ConnectOptions;

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PORT: u16 = 443;

/// Panics when something arrives.
struct Faulty(Receiver);

impl Receive for Faulty {
    fn poll_receive(&mut self, cx: &mut Context<'_>, packets: &mut Vec<Packet>) -> Poll<io::Result<()>> {
        let result = self.0.poll_receive(cx, packets);
        assert!(result.is_pending(), "a fault of the driver");
        result
    }
}

fn stack<R: Receive + 'static>(at: Ipv4Addr, transmit: Sender, receive: R, receive_bytes: u64) -> Stack {
    let mut connection = ConnectionConfig::default();
    Arc::make_mut(&mut connection.tcp).receive_buffer_bytes = receive_bytes;
    let config = HostConfig {
        endpoints: vec![LocalEndpoint::subflow(at.into(), 1)],
        connection: Arc::new(connection),
        ..HostConfig::default()
    };
    Stack::start(config, transmit, [receive]).expect("a stack")
}

/// A client and a server, which takes in `receive_bytes` before its application reads.
fn stacks(receive_bytes: u64) -> (Stack, Stack) {
    let [(to_server, at_client), (to_client, at_server)] = link();
    (stack(CLIENT, to_server, at_client, 1 << 20), stack(SERVER, to_client, at_server, receive_bytes))
}

async fn pair(client: &Stack, server: &Stack) -> (StackStream, StackStream) {
    let at = (SERVER, PORT).into();
    let listener = server.listen(at).expect("a listener");
    let options = ConnectOptions::default();
    let (connected, accepted) = tokio::join!(client.connect(at, &options), listener.accept());
    (connected.expect("connects"), accepted.expect("is accepted").0)
}

fn acknowledged_bytes(stack: &Stack) -> u64 {
    stack.shared.peek(|state| state.host.acknowledged_bytes())
}

async fn until_none(stack: &Stack, count: impl Fn(&Host) -> usize) {
    while stack.shared.peek(|state| count(&state.host)) > 0 {
        tokio::task::yield_now().await;
    }
}

/// The time is virtual, and stands still while the stacks have something to do.
#[tokio::test(start_paused = true)]
async fn a_slow_peer_gets_all_of_a_stream_that_was_let_go() {
    const LEN: usize = 1 << 20;
    const TAKEN: usize = 1 << 16;
    let (client, server) = stacks(TAKEN as u64);
    let (mut near, mut far) = pair(&client, &server).await;
    near.write_all(&[7; LEN]).await.expect("the stack takes it");
    drop(near);
    let start = tokio::time::Instant::now();
    let observer = client.clone();
    let reading = tokio::spawn(async move {
        let mut received = 0;
        let mut chunk = vec![0; TAKEN];
        while received < LEN {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let before = acknowledged_bytes(&observer);
            received += far.read_exact(&mut chunk).await?;
            let is_under_way = || observer.shared.peek(|state| state.host.undelivered_count()) > 0;
            while acknowledged_bytes(&observer) == before && LEN - received > 2 * TAKEN && is_under_way() {
                tokio::task::yield_now().await;
            }
        }
        // The end comes in order.
        assert_eq!(far.read(&mut chunk).await?, 0);
        drop(far);
        until_none(&observer, Host::unsettled_count).await;
        Ok::<_, io::Error>(received)
    });
    let is_delivered = client.finish(Duration::from_secs(5), Duration::from_secs(5)).await;
    assert_eq!(reading.await.expect("a task").expect("no reset"), LEN);
    assert!(is_delivered && start.elapsed() > Duration::from_secs(11));
}

#[tokio::test]
async fn a_drain_does_not_wait_for_what_a_stack_that_has_ended_had_half_closed() {
    let (client, server) = stacks(1 << 20);
    let (mut near, mut far) = pair(&client, &server).await;
    near.shutdown().await.expect("ends its half");
    assert_eq!(far.read(&mut [0; 8]).await.expect("reads"), 0, "the end has come");
    until_none(&client, Host::undelivered_count).await;
    client.shared.end(StackEnded::Runtime);
    let drained = client.drain(Duration::MAX);
    let drained = tokio::time::timeout(Duration::from_secs(20), drained).await;
    assert_eq!(drained, Ok(false));
}

#[tokio::test]
async fn a_driver_that_panics_ends_its_stack_with_what_it_said() {
    let [(to_peer, at_client), (mut from_peer, mut at_peer)] = link();
    let client = stack(CLIENT, to_peer, Faulty(at_client), 1 << 20);
    let options = ConnectOptions::default();
    let returning = async {
        let syn = at_peer.next().await.expect("a SYN");
        from_peer.transmit(syn).expect("it is handed on");
    };
    let (connected, ()) = tokio::join!(client.connect((SERVER, PORT).into(), &options), returning);
    let error = connected.expect_err("the driver panicked");
    assert_eq!(StackEnded::of(&error), Some(&StackEnded::Panic("a fault of the driver".into())));
}
