//! One handshake: one message each way (§5.4.2 and §5.4.3).

use std::sync::Mutex;

use polypath_units::{Duration, Instant};
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};
use zeroize::Zeroizing;

use super::cookie::{MACS_BYTES, Macs, ReceivedCookie};
use super::message::{self, INITIATION_BYTES, Index, RESPONSE_BYTES};
use super::transport::Transport;
use crate::key::{PresharedKey, PrivateKey, PublicKey};

const PATTERN: &str = "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s";
const PROLOGUE: &[u8] = b"WireGuard v1 zx2c4 Jason@zx2c4.com";

/// Labels of TAI64 begin at 2^62, and TAI was ten seconds ahead in 1970.
const TAI64_AT_1970: u64 = (1 << 62) + 10;

/// When an initiation was made, as TAI64N: a peer takes none that is not later than the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timestamp([u8; 12]);

impl Timestamp {
    pub(crate) fn since_1970(span: Duration) -> Self {
        let (seconds, nanos) = (span.as_nanos() / 1_000_000_000, (span.as_nanos() % 1_000_000_000) as u32);
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&(TAI64_AT_1970 + seconds).to_be_bytes());
        bytes[8..].copy_from_slice(&nanos.to_be_bytes());
        Self(bytes)
    }
}

/// Who we are.
pub(crate) struct Identity {
    private: PrivateKey,
    macs: Macs,
}

impl Identity {
    pub(crate) fn new(private: PrivateKey) -> Self {
        let public = private.public_key();
        Self { macs: Macs::new(&public), private }
    }

    /// What checks messages to us.
    pub(crate) const fn macs(&self) -> &Macs {
        &self.macs
    }
}

/// A handshake that we began.
pub(crate) struct Handshake {
    noise: HandshakeState,
    local: Index,
    first_proof: [u8; 16],
}

impl Handshake {
    /// Begins one: the message to send.
    pub(crate) fn initiate(
        identity: &Identity,
        (peer, preshared, macs): (&PublicKey, &PresharedKey, &Macs),
        cookie: Option<&ReceivedCookie>,
        local: Index,
        (timestamp, now): (Timestamp, Instant),
        ephemeral: [u8; 32],
    ) -> (Self, [u8; INITIATION_BYTES]) {
        let mut noise = builder(ephemeral)
            .local_private_key(identity.private.bytes())
            .and_then(|builder| builder.remote_public_key(peer.as_bytes()))
            .and_then(|builder| builder.psk(2, preshared.bytes()))
            .and_then(Builder::build_initiator)
            .expect("the pattern has what it needs");
        let mut message = message::initiation(local);
        let end = INITIATION_BYTES - MACS_BYTES;
        noise.write_message(&timestamp.0, &mut message[8..end]).expect("the message has its room");
        let first_proof = macs.add(&mut message, cookie.and_then(|cookie| cookie.at(now)));
        (Self { noise, local, first_proof }, message)
    }

    /// Our number of it.
    pub(crate) const fn local(&self) -> Index {
        self.local
    }

    /// The first proof of the message that was sent.
    pub(crate) const fn first_proof(&self) -> &[u8; 16] {
        &self.first_proof
    }

    /// The peer's answer: the keys, if it is authentic. The handshake goes on waiting otherwise.
    pub(crate) fn receive_response(&mut self, response: &[u8; RESPONSE_BYTES]) -> Option<Transport> {
        // A forged answer must not spoil the state.
        let end = RESPONSE_BYTES - MACS_BYTES;
        self.noise.read_message(&response[12..end], &mut [0; 16]).ok()?;
        let remote = response[4..8].try_into().expect("four bytes");
        let keys = self.noise.dangerously_get_raw_split();
        let (ours, theirs) = (Zeroizing::new(keys.0), Zeroizing::new(keys.1));
        Some(Transport::new(&ours, &theirs, remote))
    }
}

/// An initiation that was read, and could be answered.
pub(crate) struct Received {
    noise: HandshakeState,
    pub(crate) peer: PublicKey,
    pub(crate) timestamp: Timestamp,
    remote: [u8; 4],
}

/// Reads an initiation. `None` if it is not authentic. Who sent it may still be a stranger.
pub(crate) fn receive_initiation(
    identity: &Identity,
    initiation: &[u8; INITIATION_BYTES],
    ephemeral: [u8; 32],
) -> Option<Received> {
    let mut noise = builder(ephemeral)
        .local_private_key(identity.private.bytes())
        .and_then(|builder| builder.psk(2, &[0; 32]))
        .and_then(Builder::build_responder)
        .expect("the pattern has what it needs");
    let mut timestamp = [0; 12];
    let end = INITIATION_BYTES - MACS_BYTES;
    noise.read_message(&initiation[8..end], &mut timestamp).ok()?;
    let peer = PublicKey::from_bytes(noise.get_remote_static()?.try_into().ok()?);
    let remote = initiation[4..8].try_into().expect("four bytes");
    Some(Received { noise, peer, timestamp: Timestamp(timestamp), remote })
}

impl Received {
    /// Answers: the message to send, and the keys.
    pub(crate) fn respond(
        mut self,
        preshared: &PresharedKey,
        macs: &Macs,
        local: Index,
    ) -> Option<(Transport, [u8; RESPONSE_BYTES])> {
        self.noise.set_psk(2, preshared.bytes()).ok()?;
        let mut message = message::response(local, self.remote);
        let end = RESPONSE_BYTES - MACS_BYTES;
        self.noise.write_message(&[], &mut message[12..end]).ok()?;
        macs.add(&mut message, None);
        let keys = self.noise.dangerously_get_raw_split();
        let (theirs, ours) = (Zeroizing::new(keys.0), Zeroizing::new(keys.1));
        Some((Transport::new(&ours, &theirs, self.remote), message))
    }
}

fn builder(ephemeral: [u8; 32]) -> Builder<'static> {
    let pattern = PATTERN.parse().expect("a pattern of Noise");
    let resolver = GivenRandomness(Mutex::new(Some(ephemeral)));
    Builder::with_resolver(pattern, Box::new(resolver)).prologue(PROLOGUE).expect("the first prologue")
}

/// The usual primitives, with the one random value that a handshake needs given beforehand.
struct GivenRandomness(Mutex<Option<[u8; 32]>>);

struct OnceRandom(Option<[u8; 32]>);

impl Random for OnceRandom {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), snow::Error> {
        let bytes = self.0.take().filter(|bytes| bytes.len() == dest.len()).ok_or(snow::Error::Rng)?;
        dest.copy_from_slice(&bytes);
        Ok(())
    }
}

impl CryptoResolver for GivenRandomness {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        let bytes = self.0.lock().ok()?.take()?;
        Some(Box::new(OnceRandom(Some(bytes))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::Cipher;
    use crate::noise::{PATH_HEADER_BYTES, PathId, TAG_BYTES};

    fn identity(seed: u8) -> Identity {
        Identity::new(PrivateKey::from_random([seed; 32]))
    }

    fn key(seed: u8) -> PublicKey {
        PrivateKey::from_random([seed; 32]).public_key()
    }

    /// Identity 1 begins with identity 2.
    fn begin(
        here: &Identity,
        there: &Identity,
        preshared: &PresharedKey,
    ) -> (Handshake, [u8; INITIATION_BYTES]) {
        let at = Timestamp::since_1970(Duration::from_secs(1_700_000_000));
        let peer = (&key(2), preshared, there.macs());
        Handshake::initiate(here, peer, None, Index::new(5), (at, Instant::ZERO), [7; 32])
    }

    #[test]
    fn both_ends_get_the_same_keys() {
        let (here, there) = (identity(1), identity(2));
        let preshared = PresharedKey::from_random([3; 32]);
        let (mut handshake, initiation) = begin(&here, &there, &preshared);
        assert!(there.macs().is_for_us(&initiation));
        assert!(!here.macs().is_for_us(&initiation));

        let received = receive_initiation(&there, &initiation, [8; 32]).unwrap();
        assert_eq!(received.peer, key(1));
        let (mut theirs, response) = received.respond(&preshared, here.macs(), Index::new(6)).unwrap();
        let mut ours = handshake.receive_response(&response).unwrap();

        let path = PathId::new(0).unwrap();
        let mut datagram = vec![1; PATH_HEADER_BYTES + 10 + TAG_BYTES];
        ours.seal_on_path(path, &mut datagram);
        assert_eq!(theirs.open_on_path((path, Cipher::ChaCha, 0), &mut datagram).unwrap(), [1; 10]);
        theirs.seal_on_path(path, &mut datagram);
        assert!(ours.open_on_path((path, Cipher::ChaCha, 0), &mut datagram).is_ok());
    }

    #[test]
    fn forged_and_wrongly_keyed_messages_fail() {
        let (here, there) = (identity(1), identity(2));
        let (mut handshake, mut initiation) = begin(&here, &there, &PresharedKey::default());
        let received = receive_initiation(&there, &initiation, [8; 32]).unwrap();
        let other = PresharedKey::from_random([1; 32]);
        let (_, response) = received.respond(&other, here.macs(), Index::new(6)).unwrap();
        assert!(handshake.receive_response(&response).is_none());
        // The true answer is still taken after the false one.
        let received = receive_initiation(&there, &initiation, [9; 32]).unwrap();
        let (_, response) = received.respond(&PresharedKey::default(), here.macs(), Index::new(6)).unwrap();
        assert!(handshake.receive_response(&response).is_some());

        initiation[60] ^= 1;
        assert!(receive_initiation(&there, &initiation, [8; 32]).is_none());
    }

    #[test]
    fn times_are_in_order() {
        let at = |millis| Timestamp::since_1970(Duration::from_millis(millis));
        assert!(at(1_000) < at(1_001) && at(1_999) < at(2_000));
        assert_eq!(at(0).0, [0x40, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0]);
    }
}
