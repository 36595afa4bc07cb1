//! Connections that last get keep-alives, and a reset if the proxy is killed. Many end before: that, and a timer for each of them, would cost more than
//! they do.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::sessions::Session;

/// One that has lasted so long gets that.
const LASTING: Duration = Duration::from_secs(1);
/// How often is looked at all of them, while there are any.
const BETWEEN: Duration = Duration::from_millis(250);

/// Those that have not lasted yet. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Lasting(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// In the order in which they are due: all wait equally long.
    young: VecDeque<(Instant, Weak<Session>)>,
    is_watched: bool,
}

impl Lasting {
    /// Bytes begin to pass through it.
    pub(super) fn begins(&self, session: &Arc<Session>) {
        let mut state = self.lock();
        state.young.push_back((Instant::now() + LASTING, Arc::downgrade(session)));
        let was_watched = std::mem::replace(&mut state.is_watched, true);
        drop(state);
        if !was_watched {
            let this = self.clone();
            tokio::spawn(async move { this.watch().await });
        }
    }

    /// Until there are none.
    async fn watch(&self) {
        let mut watching = Watching { lasting: self, is_over: false };
        loop {
            sleep(BETWEEN).await;
            let Some(due) = self.take_due(Instant::now()) else {
                watching.is_over = true;
                return;
            };
            due.iter().for_each(|session| session.lasts());
        }
    }

    /// Those that have lasted by now; nothing if nobody is left to be watched.
    fn take_due(&self, now: Instant) -> Option<Vec<Arc<Session>>> {
        let mut state = self.lock();
        if state.young.is_empty() {
            // What many at once have taken is given back.
            *state = State::default();
            return None;
        }
        let count = state.young.partition_point(|(at, _)| *at <= now);
        Some(state.young.drain(..count).filter_map(|(_, session)| session.upgrade()).collect())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// If it ends too early, as with its runtime, the next connection has them watched again.
struct Watching<'a> {
    lasting: &'a Lasting,
    is_over: bool,
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            // Others' connections are still there.
            self.lasting.lock().is_watched = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use polypath_stack::engine::{ConnectOptions, KernelEngine, Stream};
    use socket2::SockRef;
    use tokio::io::AsyncReadExt;

    use super::super::leg::Leg;
    use super::super::sessions::{Ends, Sessions};
    use super::*;
    use crate::access::{Allowance, ClientLimits, Clients};

    /// Whether it has keep-alives, and whether closing it resets it.
    fn set(leg: &Leg) -> (bool, bool) {
        let Leg::Plain(Stream::Kernel(stream)) = leg else { panic!("a kernel's connection") };
        let socket = SockRef::from(stream.as_tokio());
        (
            socket.keepalive().expect("an option"),
            socket.linger().expect("an option") == Some(std::time::Duration::ZERO),
        )
    }

    #[tokio::test]
    async fn who_lasts_gets_keep_alives_and_is_not_ended_by_a_kill() {
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let engine = KernelEngine::plain_tcp();
        let listener = engine.listen(any).expect("a listener");
        let to = listener.local_addr().expect("its address");
        let options = ConnectOptions { defers_keepalive: true, ..ConnectOptions::default() };
        let client = engine.connect(to, &options).await.expect("a connection");
        let server = engine.connect(to, &options).await.expect("a connection");

        let most = Allowance { connections: 9, new_per_second: 9, burst: 9 };
        let clients = Clients::new(ClientLimits { each: most, all: most, clients: 9, memory: None });
        let sessions = Sessions::default();
        let enter = || {
            let admission = clients.admit(super::super::clock::now(), any.ip()).expect("room");
            sessions.enter("forward", any, admission)
        };
        let (lasting, held, short) = (Lasting::default(), enter(), enter());
        // Nobody watches by itself.
        lasting.lock().is_watched = true;
        lasting.begins(short.session());
        lasting.begins(held.session());
        drop(short);
        let ends =
            held.session().show(Ends::new(Stream::Kernel(client).into(), Stream::Kernel(server).into()));

        let now = Instant::now();
        assert_eq!(lasting.take_due(now).map(|due| due.len()), Some(0));
        let due = lasting.take_due(now + LASTING).expect("one is left");
        assert_eq!(set(&ends.client), (false, false));
        due.iter().for_each(|session| session.lasts());
        assert_eq!((due.len(), set(&ends.client), set(&ends.server)), (1, (true, true), (true, true)));
        assert!(lasting.take_due(now).is_none() && !lasting.lock().is_watched);

        // What has ended in order is closed in order.
        held.session().take_back(ends).expect("nobody else has them").close();
        let (mut end, _) = listener.accept().await.expect("the client's");
        assert_eq!(end.read(&mut [0; 1]).await.expect("no reset"), 0);
    }
}
