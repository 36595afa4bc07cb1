//! The two proofs at the end of each handshake message, and the cookies that a busy responder asks for (§5.4.4 and §5.4.7).

use std::net::{IpAddr, SocketAddr};

use blake2::digest::consts::U16;
use blake2::digest::{Digest, FixedOutput, KeyInit, Mac, Update};
use blake2::{Blake2s256, Blake2sMac};
use chacha20poly1305::XChaCha20Poly1305;
use chacha20poly1305::aead::{Aead, Payload};
use polypath_units::{Duration, Instant};

use super::message::{self, COOKIE_REPLY_BYTES};
use crate::key::PublicKey;

pub(super) const MAC_BYTES: usize = 16;
/// Both proofs.
pub(super) const MACS_BYTES: usize = 2 * MAC_BYTES;

/// How long a cookie is good, at the one who gave it and at the one who has it.
const COOKIE_LIFE: Duration = Duration::from_secs(120);

type Proof = [u8; MAC_BYTES];

fn hash(label: &[u8; 8], key: &PublicKey) -> [u8; 32] {
    let mut hash = Blake2s256::new();
    Digest::update(&mut hash, label);
    Digest::update(&mut hash, key.as_bytes());
    hash.finalize().into()
}

fn prove(key: &[u8], parts: &[&[u8]]) -> Blake2sMac<U16> {
    let mut proof = <Blake2sMac<U16> as KeyInit>::new_from_slice(key).expect("keys have 16 or 32 bytes");
    parts.iter().for_each(|part| Update::update(&mut proof, part));
    proof
}

/// What makes and checks proofs of messages to one receiver.
#[derive(Clone)]
pub(crate) struct Macs {
    first: [u8; 32],
    cookie: [u8; 32],
}

impl Macs {
    /// For messages to whoever has this key.
    pub(crate) fn new(receiver: &PublicKey) -> Self {
        Self { first: hash(b"mac1----", receiver), cookie: hash(b"cookie--", receiver) }
    }

    /// Fills the proofs at the message's end. Returns the first, to which a cookie would answer.
    pub(super) fn add(&self, message: &mut [u8], cookie: Option<&[u8; 16]>) -> Proof {
        let first_at = message.len() - MACS_BYTES;
        let first: Proof = prove(&self.first, &[&message[..first_at]]).finalize_fixed().into();
        message[first_at..first_at + MAC_BYTES].copy_from_slice(&first);
        if let Some(cookie) = cookie {
            let second = prove(cookie, &[&message[..first_at + MAC_BYTES]]).finalize_fixed();
            message[first_at + MAC_BYTES..].copy_from_slice(&second);
        }
        first
    }

    /// Whether the message's sender knows whom it writes to.
    pub(crate) fn is_for_us(&self, message: &[u8]) -> bool {
        let (contents, proofs) = message.split_at(message.len() - MACS_BYTES);
        prove(&self.first, &[contents]).verify_slice(&proofs[..MAC_BYTES]).is_ok()
    }
}

/// A cookie from a peer that was busy.
#[derive(Clone)]
pub(crate) struct ReceivedCookie {
    cookie: [u8; 16],
    received_at: Instant,
}

impl ReceivedCookie {
    /// The cookie while it is good.
    pub(super) fn at(&self, now: Instant) -> Option<&[u8; 16]> {
        (now.since(self.received_at) < COOKIE_LIFE).then_some(&self.cookie)
    }
}

/// Reads the answer to a message whose first proof was `first`.
pub(crate) fn cookie_from(
    reply: &[u8; COOKIE_REPLY_BYTES],
    macs: &Macs,
    first: &[u8; MAC_BYTES],
    now: Instant,
) -> Option<ReceivedCookie> {
    let cipher = XChaCha20Poly1305::new(&macs.cookie.into());
    let payload = Payload { msg: &reply[32..], aad: first };
    let cookie = cipher.decrypt(reply[8..32].into(), payload).ok()?.try_into().ok()?;
    Some(ReceivedCookie { cookie, received_at: now })
}

/// Gives out cookies: proofs of who was asked from an address that an answer reaches it.
pub(crate) struct CookieJar {
    secret: [u8; 32],
    renewed_at: Option<Instant>,
}

impl CookieJar {
    pub(crate) const fn new() -> Self {
        Self { secret: [0; 32], renewed_at: None }
    }

    /// Takes a new secret from time to time.
    pub(crate) fn renew(&mut self, now: Instant, random: impl FnOnce() -> [u8; 32]) {
        if self.renewed_at.is_none_or(|at| now.since(at) >= COOKIE_LIFE) {
            (self.secret, self.renewed_at) = (random(), Some(now));
        }
    }

    fn cookie(&self, from: SocketAddr) -> Proof {
        let port = from.port().to_be_bytes();
        let proof = match from.ip() {
            IpAddr::V4(address) => prove(&self.secret, &[&address.octets(), &port]),
            IpAddr::V6(address) => prove(&self.secret, &[&address.octets(), &port]),
        };
        proof.finalize_fixed().into()
    }

    /// Whether the message carries the cookie of its sender's address.
    pub(crate) fn is_proven(&self, message: &[u8], from: SocketAddr) -> bool {
        let (contents, second) = message.split_at(message.len() - MAC_BYTES);
        prove(&self.cookie(from), &[contents]).verify_slice(second).is_ok()
    }

    /// The reply to a message without one. `nonce` is random.
    pub(crate) fn reply(
        &self,
        message: &[u8],
        from: SocketAddr,
        macs: &Macs,
        nonce: [u8; 24],
    ) -> [u8; COOKIE_REPLY_BYTES] {
        let sender = message[4..8].try_into().expect("handshake messages are longer");
        let first = &message[message.len() - MACS_BYTES..message.len() - MAC_BYTES];
        let payload = Payload { msg: &self.cookie(from), aad: first };
        let sealed = XChaCha20Poly1305::new(&macs.cookie.into())
            .encrypt(&nonce.into(), payload)
            .expect("16 bytes are not too many");
        let mut reply = message::cookie_reply(sender);
        reply[8..32].copy_from_slice(&nonce);
        reply[32..].copy_from_slice(&sealed);
        reply
    }
}
