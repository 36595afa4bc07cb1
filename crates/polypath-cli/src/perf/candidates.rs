//! Clients that are asked for their parameters, all of them side by side: one that says nothing keeps nobody waiting.

use std::collections::VecDeque;
use std::future::pending;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;

use super::Error;
use super::control::Control;
use super::greeting::Arrival;
use super::parameters::Parameters;
use super::wire::{Cookie, State};
use crate::places::{Client, Places};

/// Clients that are asked at once. Of more, the oldest of the client with the most makes room.
const MAX_ASKED: usize = 32;
/// How long a client may take for its parameters.
const ASKING: Duration = Duration::from_secs(5);

/// A client that has said what it wants.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) cookie: Cookie,
    pub(super) peer: SocketAddr,
    pub(super) control: Control,
    pub(super) parameters: Parameters,
}

/// What came of asking. Who says nothing, or goes, is not worth a word.
type Asked = Option<Result<Candidate, Error>>;

/// Those that want to be next.
#[derive(Debug)]
pub(super) struct Candidates {
    places: Places,
    asked: JoinSet<(u64, Asked)>,
    ready: VecDeque<(u64, Result<Candidate, Error>)>,
    /// A measurement begins: all others hear that the server is busy.
    begins: watch::Sender<()>,
    /// Whose measurement came to nothing last. Others are served before it.
    failed: Option<Client>,
}

impl Candidates {
    pub(super) fn new() -> Self {
        Self {
            places: Places::new(MAX_ASKED),
            asked: JoinSet::new(),
            ready: VecDeque::new(),
            begins: watch::Sender::new(()),
            failed: None,
        }
    }

    /// Asks one more.
    pub(super) fn ask(&mut self, arrival: Arrival, interval: Option<Duration>) {
        self.note_all();
        let Some((place, _)) = self.places.take(arrival.peer.ip()) else { return };
        self.ready.retain(|(number, _)| self.places.has(*number));
        let mut begins = self.begins.subscribe();
        let task = self.asked.spawn(async move {
            let mut control = Control::new(arrival.stream);
            let asked = tokio::select! {
                asked = timeout(ASKING, parameters(&mut control, interval)) => asked.ok(),
                _ = begins.changed() => {
                    deny(&mut control).await;
                    None
                }
            };
            let (cookie, peer) = (arrival.cookie, arrival.peer);
            let asked = match asked {
                Some(Ok(parameters)) => Some(Ok(Candidate { cookie, peer, control, parameters })),
                Some(Err(error @ (Error::Protocol(_) | Error::Parameters(_)))) => {
                    control.tell(&error).await;
                    Some(Err(error))
                }
                _ => None,
            };
            (place, asked)
        });
        self.places.set_task(place, task);
    }

    /// The next that has said what it wants, or said something wrong. Waiting can be given up at any time.
    pub(super) async fn next(&mut self) -> Result<Candidate, Error> {
        loop {
            self.note_all();
            if let Some((place, next)) = self.take_ready() {
                self.places.give_back(place);
                return next;
            }
            match self.asked.join_next().await {
                Some(ended) => self.note(ended),
                None => pending().await,
            }
        }
    }

    fn take_ready(&mut self) -> Option<(u64, Result<Candidate, Error>)> {
        let is_other = |next: &Result<Candidate, Error>| {
            next.as_ref().is_ok_and(|candidate| Some(Client::of(candidate.peer.ip())) != self.failed)
        };
        let first = self.ready.iter().position(|(_, next)| is_other(next)).unwrap_or(0);
        self.ready.remove(first)
    }

    fn note_all(&mut self) {
        while let Some(ended) = self.asked.try_join_next() {
            self.note(ended);
        }
    }

    fn note(&mut self, ended: Result<(u64, Asked), JoinError>) {
        // Who made room for another is gone.
        let Ok((place, asked)) = ended else { return };
        match asked {
            Some(asked) if self.places.has(place) => self.ready.push_back((place, asked)),
            _ => self.places.give_back(place),
        }
    }

    /// A client that was chosen did not go on.
    pub(super) fn note_failure(&mut self, peer: SocketAddr) {
        self.failed = Some(Client::of(peer.ip()));
    }

    /// The measurement of another begins.
    pub(super) async fn deny_all(&mut self) {
        self.failed = None;
        self.begins.send_replace(());
        self.note_all();
        for (place, asked) in std::mem::take(&mut self.ready) {
            self.places.give_back(place);
            if let Ok(mut candidate) = asked {
                deny(&mut candidate.control).await;
            }
        }
    }
}

async fn parameters(control: &mut Control, interval: Option<Duration>) -> Result<Parameters, Error> {
    control.send(State::ParameterExchange).await?;
    let parameters = control.offer().await?.parameters(interval).map_err(Error::Parameters)?;
    parameters.check().map_err(Error::Parameters)?;
    Ok(parameters)
}

async fn deny(control: &mut Control) {
    // A client that has gone needs no answer.
    let _ = control.send(State::AccessDenied).await;
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use polypath_stack::Engine;
    use polypath_stack::engine::{KernelEngine, Listener};
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpSocket, TcpStream};

    use super::*;

    /// One that has said what it wants, from this address.
    async fn ready(candidates: &mut Candidates, listener: &Listener, from: [u8; 4], letter: u8) -> TcpStream {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((Ipv4Addr::from(from), 0).into()).expect("an address of the loopback interface");
        let at = listener.local_addr().expect("its address");
        let (client, accepted) = tokio::join!(socket.connect(at), listener.accept());
        let (mut client, (stream, peer)) = (client.expect("connects"), accepted.expect("is accepted"));
        let offer = br#"{"tcp":true,"omit":0,"time":1,"parallel":1,"len":1000}"#;
        let length = u32::try_from(offer.len()).expect("a short offer");
        client.write_all(&[&length.to_be_bytes()[..], offer].concat()).await.expect("room");
        let cookie = Cookie::read([&[letter; 36][..], b"\0"].concat().try_into().expect("its length"));
        let before = candidates.ready.len();
        candidates.ask(Arrival { order: 0, cookie: cookie.expect("a cookie"), stream, peer }, None);
        while candidates.ready.len() == before {
            tokio::task::yield_now().await;
            candidates.note_all();
        }
        client
    }

    #[tokio::test]
    async fn whoever_did_not_go_on_waits_behind_others() {
        let engine = Engine::Kernel(KernelEngine::plain_tcp());
        let listener = engine.listen(([127, 0, 0, 1], 0).into()).await.expect("a listener");
        let mut candidates = Candidates::new();
        let mut open = Vec::new();
        for (last, letter) in [(2, b'a'), (2, b'b'), (3, b'c')] {
            open.push(ready(&mut candidates, &listener, [127, 0, 0, last], letter).await);
        }
        let mut order = Vec::new();
        for _ in 0..3 {
            let next = candidates.next().await.expect("a candidate");
            order.push(next.cookie.text().remove(0));
            candidates.note_failure(next.peer);
        }
        assert_eq!(order, ['a', 'c', 'b']);
    }

    #[tokio::test]
    async fn one_client_does_not_take_all_places() {
        let engine = Engine::Kernel(KernelEngine::plain_tcp());
        let listener = engine.listen(([127, 0, 0, 1], 0).into()).await.expect("a listener");
        let mut candidates = Candidates::new();
        let mut open = vec![ready(&mut candidates, &listener, [127, 0, 0, 2], b'a').await];
        for _ in 1..MAX_ASKED {
            open.push(ready(&mut candidates, &listener, [127, 0, 0, 3], b'b').await);
        }
        let (more, accepted) =
            tokio::join!(TcpStream::connect(listener.local_addr().expect("its address")), listener.accept());
        let (stream, peer) = accepted.expect("is accepted");
        candidates.ask(Arrival { order: 0, cookie: Cookie::random(), stream, peer }, None);
        assert_eq!(candidates.ready.len(), MAX_ASKED - 1, "one of many made room");
        assert_eq!(candidates.next().await.expect("a candidate").cookie.text().remove(0), 'a');
        drop((open, more));
    }
}
