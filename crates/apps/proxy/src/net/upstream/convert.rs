//! By 0-RTT TCP Convert (RFC 8803).

use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use polypath_units::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::super::clock::now;
use super::super::connect::ServerSide;
use super::super::leg::Leg;
use super::dialer::Dialer;
use crate::convert::{Client, Cookie, ErrorTlv, LONGEST_MESSAGE, Outcome};
use crate::failure::{ConnectFailure, UpstreamFailure};

/// Connections to a converter for one to a server: the first shows a cookie that has expired, the second gets one, and the third shows that.
const MOST_CONNECTIONS: usize = 3;

/// A Transport Converter, and what it told this end.
#[derive(Debug, Default)]
pub(super) struct Converter(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The last one that it gave.
    cookie: Option<Cookie>,
    /// It has asked to be left alone until then.
    rests_until: Option<Instant>,
}

impl Converter {
    /// Asks for a connection to a server, and sends what the server is to have first behind the request, so that it costs no round trip.
    pub(super) async fn connect(
        &self,
        dialer: &Dialer<'_>,
        server: SocketAddr,
        first: &[u8],
    ) -> Result<ServerSide, ConnectFailure> {
        if self.state().rests_until.is_some_and(|until| now() < until) {
            return Err(ConnectFailure::Upstream(UpstreamFailure::Full));
        }
        let mut refused = ConnectFailure::Upstream(UpstreamFailure::Unsupported);
        for _ in 0..MOST_CONNECTIONS {
            let mut client = Client::connect(server).map_err(|_| upstream(UpstreamFailure::Address))?;
            let cookie = self.state().cookie.clone();
            if let Some(cookie) = cookie.clone() {
                client = client.with_cookie(cookie);
            }
            let (stream, outcome, early) = ask(dialer, client, first).await?;
            let error = match outcome {
                // That the server speaks Multipath TCP itself is not made use of: whether the way to it lets that through is not known.
                Outcome::Connected { .. } => return Ok(ServerSide { stream, address: server, early }),
                Outcome::Informed(_) => return Err(upstream(UpstreamFailure::Garbled)),
                Outcome::CookieGiven(cookie) => {
                    self.state().cookie = Some(cookie);
                    stream.abort();
                    continue;
                }
                Outcome::Refused(error) => error,
            };
            // What is left of such a connection is reset (RFC 8803 §6.2.8).
            stream.abort();
            refused = error.failure(server.ip());
            if let Some(delay) = error.delay() {
                let delay = Duration::from_secs(delay.as_secs());
                self.state().rests_until = Some(now() + delay);
            }
            if error != ErrorTlv::NotAuthorized || cookie.is_none() {
                break;
            }
            // It may have expired; one that came since is another.
            let mut state = self.state();
            if state.cookie == cookie {
                state.cookie = None;
            }
        }
        Err(refused)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection to a converter, what that answers, and what the server has said behind that.
async fn ask(
    dialer: &Dialer<'_>,
    mut client: Client,
    first: &[u8],
) -> Result<(Leg, Outcome, Bytes), ConnectFailure> {
    let request = client.first_bytes();
    let mut stream = if dialer.is_fast() { dialer.dial_fast().await? } else { dialer.dial().await? };
    // A converter that refuses may have closed by now, and its answer is there all the same.
    if dialer.is_fast() {
        // What comes with a SYN may come twice. The server gets what it is told first only once.
        stream.send_at_once();
        if stream.write_all(&request).await.is_ok() {
            let _ = stream.write_all(first).await;
        }
    } else {
        let _ = stream.write_all(&[&request, first].concat()).await;
    }
    let mut answer = BytesMut::with_capacity(LONGEST_MESSAGE);
    loop {
        match client.poll_outcome(&mut answer) {
            Ok(Some(outcome)) => return Ok((stream, outcome, answer.freeze())),
            Ok(None) => {}
            Err(_) => return Err(upstream(UpstreamFailure::Garbled)),
        }
        match stream.read_buf(&mut answer).await {
            Ok(1..) => {}
            Ok(0) => return Err(upstream(UpstreamFailure::Silent)),
            Err(error) => return Err(upstream(failure_of(&error))),
        }
    }
}

/// Of a connection that was used before it was there, the first read tells that there is none.
fn failure_of(error: &io::Error) -> UpstreamFailure {
    match ConnectFailure::from(error) {
        ConnectFailure::Refused
        | ConnectFailure::NetworkUnreachable
        | ConnectFailure::HostUnreachable
        | ConnectFailure::TimedOut => UpstreamFailure::Unreachable,
        _ => UpstreamFailure::Silent,
    }
}

fn upstream(failure: UpstreamFailure) -> ConnectFailure {
    ConnectFailure::Upstream(failure)
}
