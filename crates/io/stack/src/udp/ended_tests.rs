//! Stacks that have ended while a program still holds them. Needs no privileges.

use std::future::Future;

use polypath_mptcp::scheduler::{Decision, Policy, Scheduler, View};
use polypath_mptcp::{CloseReason, ConnectionConfig, ConnectionId, Event};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::*;
use crate::engine::ConnectOptions;
use crate::stack::ending::is_told;
use crate::stack::{StackEnded, StackListener, StackStream};

const PORT: u16 = 443;

fn stack(options: &UdpOptions) -> Stack {
    Stack::udp(&Namespace::current().expect("this one"), options).expect("a stack")
}

fn server(port: u16) -> Stack {
    stack(&UdpOptions { port, ..UdpOptions::server() })
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

async fn pair(client: &Stack, server: &Stack) -> (StackStream, StackStream) {
    let listener = server.listen(([0, 0, 0, 0], PORT).into()).expect("a listener");
    let options = ConnectOptions::default();
    let (connected, accepted) =
        tokio::join!(client.connect(([127, 0, 0, 1], PORT).into(), &options), listener.accept());
    (connected.expect("connects"), accepted.expect("is accepted").0)
}

/// It answers soon, and says that its stack has ended.
async fn ends<T>(what: impl Future<Output = io::Result<T>>) -> StackEnded {
    let result = tokio::time::timeout(Duration::from_secs(20), what).await.expect("an answer");
    let error = result.map(drop).expect_err("the stack has ended");
    StackEnded::of(&error).unwrap_or_else(|| panic!("{error:?}")).clone()
}

/// What a program holds of a runtime.
struct Held {
    client: Stack,
    near: StackStream,
    server: Stack,
    listener: StackListener,
    events: Events,
}

type Events = Receiver<(polypath_units::Instant, ConnectionId, Event)>;

/// Whoever observes hears of the connection's end, and then of the stack's.
async fn hears_the_end(mut events: Events, near: &StackStream) {
    let hearing = async {
        let mut last = None;
        while let Ok((_, id, event)) = events.recv().await {
            last = Some((id, event));
        }
        last
    };
    let last = tokio::time::timeout(Duration::from_secs(20), hearing).await.expect("an end");
    assert_eq!(last, Some((near.id(), Event::Closed(CloseReason::Aborted))));
}

async fn all_have_ended(held: Held, far: StackStream) {
    let Held { client, mut near, server, listener, events } = held;
    hears_the_end(events, &near).await;
    let late = tokio::time::timeout(Duration::from_secs(20), client.subscribe().recv()).await;
    assert_eq!(late.expect("an answer"), Err(RecvError::Closed));
    assert_eq!(ends(near.read_u8()).await, StackEnded::Runtime);
    assert_eq!(ends(near.write_all(&vec![1; 10 << 20])).await, StackEnded::Runtime);
    assert_eq!(ends(near.shutdown()).await, StackEnded::Runtime);
    assert_eq!(ends(listener.accept()).await, StackEnded::Runtime);
    let at = ([127, 0, 0, 1], PORT + 1).into();
    assert_eq!(ends(client.connect(at, &ConnectOptions::default())).await, StackEnded::Runtime);
    assert_eq!(ends(async { server.listen_with(Some(at), None) }).await, StackEnded::Runtime);
    is_told(far).await;
    // Nothing can be delivered any more.
    let drained = tokio::time::timeout(Duration::from_secs(20), client.drain(Duration::MAX)).await;
    assert!(!drained.expect("at once"));
}

#[test]
fn what_outlives_its_runtime_tells_so_and_so_does_the_peer() {
    type End = fn(Runtime);
    let ways: [End; 2] = [drop, Runtime::shutdown_background];
    for (way, port) in ways.into_iter().zip([16_950, 16_952]) {
        let (ending, other) = (runtime(), runtime());
        let peer = {
            let _entered = other.enter();
            server(port)
        };
        let (held, far) = ending.block_on(async {
            let client = stack(&UdpOptions { port, ..UdpOptions::default() });
            let (near, far) = pair(&client, &peer).await;
            let server = server(port + 1);
            let listener = server.listen(([127, 0, 0, 1], PORT).into()).expect("a listener");
            let events = client.subscribe();
            (Held { client, near, server, listener, events }, far)
        });
        way(ending);
        other.block_on(all_have_ended(held, far));
    }
}

/// Panics in place of its n-th decision.
#[derive(Debug)]
struct Panics(usize);

impl Scheduler for Panics {
    fn name(&self) -> &'static str {
        "panics"
    }

    fn select(&mut self, view: &View<'_>) -> Option<Decision> {
        self.0 = self.0.checked_sub(1).expect("no decision is left");
        let subflow = view.subflows.iter().find(|subflow| subflow.is_available())?.id;
        Some(Decision::send(subflow, view.next_data(subflow)?))
    }
}

#[tokio::test]
async fn a_policy_that_panics_ends_the_stack_and_not_the_program() {
    // In the application's call, and in the stack's task.
    for (decisions, port) in [(0, 16_954), (100, 16_955)] {
        let server = server(port);
        let scheduler = Policy::from_fn("panics", move |_| Box::new(Panics(decisions)));
        let connection = ConnectionConfig { scheduler, ..crate::stack::default_connection() };
        let client = stack(&UdpOptions { port, connection, ..UdpOptions::default() });
        let (mut near, far) = pair(&client, &server).await;
        let (peer, events) = (tokio::spawn(is_told(far)), client.subscribe());
        let why = StackEnded::Panic("no decision is left".into());
        assert_eq!(ends(near.write_all(&vec![1; 10 << 20])).await, why);
        assert_eq!(ends(near.read_u8()).await, why);
        assert_eq!(ends(near.shutdown()).await, why);
        let at = ([127, 0, 0, 1], PORT).into();
        assert_eq!(ends(client.connect(at, &ConnectOptions::default())).await, why);
        peer.await.expect("the peer is told");
        hears_the_end(events, &near).await;
        assert!(!client.drain(Duration::MAX).await);
        assert!(client.connections().is_empty() && near.connection_info().is_none());
        drop(near);
    }
}

#[tokio::test]
async fn a_listener_that_is_closed_tells_those_who_wait_and_those_who_come() {
    let server = server(16_956);
    let listener = server.listen(([127, 0, 0, 1], PORT).into()).expect("a listener");
    let closing = async {
        tokio::task::yield_now().await;
        listener.close();
    };
    let (waiting, ()) =
        tokio::join!(tokio::time::timeout(Duration::from_secs(20), listener.accept()), closing);
    let coming = tokio::time::timeout(Duration::from_secs(20), listener.accept()).await;
    for accepted in [waiting, coming] {
        let error = accepted.expect("an answer").expect_err("it is closed");
        assert_eq!(
            (error.kind(), error.to_string()),
            (io::ErrorKind::NotConnected, "the listener is closed".into())
        );
    }
}
