//! What becomes of clients while the process has as much memory as it may have.

use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::TryLockError;
use std::time::Duration;

use bytes::BytesMut;
use polypath_units::{Duration as Span, Instant};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::clock::{self, cookie_period, now};
use super::leg::Leg;
use super::negotiate::{negotiate, say_farewell};
use super::session::Ending;
use super::settings::{Entrance, EntranceKind};
use super::within::Inner;
use crate::access::{Admission, Memory, Overload, Waiting};
use crate::convert;
use crate::failure::ConnectFailure;
use crate::http;
use crate::negotiation::Negotiation;
use crate::socks::Socks5;

/// Clients that are told at a time, since that takes memory, too. Others are reset.
pub(super) const MOST_TOLD: usize = 64;
/// How long one of them may take to say what it wants, before which it would not understand.
const PATIENCE: Duration = Duration::from_secs(2);
/// What was freed is given back to the system no more often than that, since it takes a while.
const BETWEEN: Span = Span::from_secs(1);
/// Fields of a request that are waited for.
const FIELDS_BYTES: usize = 16 << 10;

impl Inner {
    /// Lets a client in, if it may have a connection more.
    pub(super) fn admit(&self, client: IpAddr) -> Result<Admission, Overload> {
        let now = now();
        if self.clients.wants_memory(now) {
            self.measure(now);
        }
        self.clients.admit(now, client)
    }

    /// Lets somebody in who has yet to say who it is.
    pub(super) fn wait(&self) -> Result<Waiting, Overload> {
        let now = now();
        if self.clients.wants_memory(now) {
            self.measure(now);
        }
        self.clients.wait()
    }

    /// How much memory the process has, if that is limited.
    pub(super) fn memory(&self) -> Option<Memory> {
        let now = now();
        if self.clients.wants_memory(now) {
            self.measure(now);
        }
        self.clients.memory()
    }

    fn measure(&self, now: Instant) {
        // One thread measures at a time, and others go by what is known.
        let mut fullness = match self.fullness.try_lock() {
            Ok(fullness) => fullness,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let surroundings = self.settings().surroundings.clone();
        let measured = || {
            self.clients.set_memory(clock::now(), surroundings.memory()?);
            self.clients.memory()
        };
        let Some(mut memory) = measured() else { return };
        let was_asked = fullness.given_back_at.is_some_and(|at| now.since(at) < BETWEEN);
        if memory.is_full() && !was_asked {
            fullness.given_back_at = Some(now);
            surroundings.give_memory_back();
            memory = measured().unwrap_or(memory);
        }
        let was_full = mem::replace(&mut fullness.is_full, memory.is_full());
        let Memory { octets, most } = memory;
        match (was_full, memory.is_full()) {
            (false, true) => {
                tracing::warn!(
                    "no client comes in: the proxy has {octets} bytes of memory, and may have {most}"
                );
            }
            (true, false) => tracing::warn!("clients come in again: the proxy has {octets} bytes of memory"),
            _ => {}
        }
    }

    /// Tells a client in the words of its protocol that it can't come in, or resets it where there are none, or where many are told already.
    pub(super) async fn turn_away(
        &self,
        mut stream: Leg,
        mut input: BytesMut,
        entrance: &Entrance,
        client: SocketAddr,
        overload: Overload,
    ) {
        let place = self.told_at_once.try_acquire().ok().filter(|_| overload == Overload::Memory);
        let was_told = match place {
            // Who comes by TLS would understand only after a handshake, which takes memory.
            Some(_) if entrance.tls.is_none() => {
                let telling = pin!(tell_no(self, &mut stream, &mut input, entrance, client));
                timeout(PATIENCE, self.unless_stopped(telling)).await.ok().flatten()
            }
            _ => None,
        };
        if was_told != Some(true) {
            stream.abort();
        }
        self.tell_of_nobody(entrance, client, &Ending::Overloaded(overload));
    }
}

/// Whether the client was told anything.
async fn tell_no(
    proxy: &Inner,
    stream: &mut Leg,
    input: &mut BytesMut,
    entrance: &Entrance,
    client: SocketAddr,
) -> bool {
    match &entrance.kind {
        EntranceKind::Forward(_) | EntranceKind::Transparent(_) => false,
        EntranceKind::Socks => refuse(stream, Socks5::new(proxy.settings().users.clone()), input).await,
        EntranceKind::Convert(config) => {
            let negotiation = convert::Server::new(config.clone(), client.ip(), cookie_period());
            refuse(stream, negotiation, input).await
        }
        EntranceKind::Http => refuse_http(stream, input).await,
    }
}

/// Says no once it is known what is wanted, before which a client would not understand.
async fn refuse(stream: &mut Leg, mut negotiation: impl Negotiation, input: &mut BytesMut) -> bool {
    // Whoever is refused for another reason was told that.
    if let Ok(_request) = negotiate(stream, &mut negotiation, input).await {
        say_farewell(stream, &negotiation.handle_failed(ConnectFailure::Overloaded)).await;
    }
    true
}

async fn refuse_http(stream: &mut Leg, input: &mut BytesMut) -> bool {
    while !http::has_all_fields(input) {
        match stream.read_buf(input).await {
            Ok(1..) if input.len() < FIELDS_BYTES => {}
            _ => return false,
        }
    }
    say_farewell(stream, &http::last_answer(ConnectFailure::Overloaded)).await;
    true
}
