//! Connections until they have said which test they belong to. All of them wait side by side, and none for long.

use std::net::SocketAddr;
use std::time::Duration;

use polypath_stack::engine::{Listener, Stream};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::task::JoinSet;

use super::control::read_cookie;
use super::parameters::MAX_STREAMS;
use super::wire::{Cookie, State};
use crate::places::Places;

/// Connections that have not said yet what they are. Of more, the oldest of the client with the most makes room.
const MAX_GREETING: usize = 256;
/// Connections whose cookie nobody has looked at yet: those of the largest test, and some.
const MAX_WAITING: usize = 2 * MAX_STREAMS as usize + 16;
/// After a failure to accept, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// A connection that has said which test it belongs to.
#[derive(Debug)]
pub(super) struct Arrival {
    /// In which order they were accepted.
    pub(super) order: u64,
    pub(super) cookie: Cookie,
    pub(super) stream: Stream,
    pub(super) peer: SocketAddr,
}

impl Arrival {
    /// One measurement at a time: two would measure each other.
    pub(super) async fn refuse(mut self) {
        // A client that has gone needs no answer.
        let _ = self.stream.write_all(&State::AccessDenied.bytes()).await;
        let _ = self.stream.shutdown().await;
    }
}

/// Where arrivals come out, and the task that accepts them.
pub(super) fn accepted(listener: Listener) -> (mpsc::Receiver<Arrival>, tokio::task::JoinHandle<()>) {
    let (sender, arrivals) = mpsc::channel(MAX_WAITING);
    (arrivals, tokio::spawn(accept_all(listener, sender)))
}

async fn accept_all(listener: Listener, arrivals: mpsc::Sender<Arrival>) {
    let mut places = Places::new(MAX_GREETING);
    let mut greeting = JoinSet::new();
    let mut order = 0;
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((mut stream, peer)) => {
                    let Some((place, _)) = places.take(peer.ip()) else { continue };
                    order += 1;
                    let task = greeting.spawn(async move {
                        let cookie = read_cookie(&mut stream).await;
                        (place, cookie.map(|cookie| Arrival { order, cookie, stream, peer }))
                    });
                    places.set_task(place, task);
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            },
            Some(greeted) = greeting.join_next() => {
                // Who made room for another had its place taken.
                let Ok((place, arrival)) = greeted else { continue };
                places.give_back(place);
                let Ok(arrival) = arrival else { continue };
                if let Err(TrySendError::Full(arrival)) = arrivals.try_send(arrival) {
                    arrival.refuse().await;
                }
            }
        }
    }
}
