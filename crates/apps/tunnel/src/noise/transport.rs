//! Encryption of what is sent after a handshake.

use ring::aead::{AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};

use super::message::{self, Cipher, Index, PATH_HEADER_BYTES, PATHS, PLAIN_HEADER_BYTES, PathId};
use super::replay_window::ReplayWindow;
use crate::key::KEY_BYTES;

/// Length of what proves that the contents are the peer's.
pub(crate) const TAG_BYTES: usize = 16;

/// Packets in one direction of a session that AES may encrypt: as many as RFC 9001 §6.6 has for packets as short as these. What comes
/// after them takes ChaCha20.
const MOST_BY_AES: u64 = 1 << 28;

/// The keys of AES are derived from those of the handshake (RFC 5869), with this as salt: no key serves two ciphers.
const AES_SALT: &[u8] = b"polypath tunnel 1 AES-256-GCM";

/// Why contents are not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenError {
    /// Came before, or is too far behind.
    Replayed,
    /// Is not the peer's, or was changed on the way.
    NotAuthentic,
}

/// The keys of a session in both directions, and the counters that go with them.
pub(crate) struct Transport {
    sending: LessSafeKey,
    receiving: LessSafeKey,
    sending_aes: LessSafeKey,
    receiving_aes: LessSafeKey,
    /// Packets that AES may still encrypt, if the peer takes it.
    left_for_aes: Option<u64>,
    /// The peer's number of the session.
    remote: [u8; 4],
    plain_sent: u64,
    plain_received: ReplayWindow,
    sent: [u32; PATHS],
    received: [ReplayWindow; PATHS],
}

impl Transport {
    pub(crate) fn new(sending: &[u8; KEY_BYTES], receiving: &[u8; KEY_BYTES], remote: [u8; 4]) -> Self {
        let key = |bytes: &[u8]| {
            LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, bytes).expect("a key of 32 bytes"))
        };
        Self {
            sending: key(sending),
            receiving: key(receiving),
            sending_aes: aes_key(sending),
            receiving_aes: aes_key(receiving),
            left_for_aes: None,
            remote,
            plain_sent: 0,
            plain_received: ReplayWindow::new(),
            sent: [0; PATHS],
            received: [const { ReplayWindow::new() }; PATHS],
        }
    }

    /// The peer's number of the session.
    pub(crate) const fn remote(&self) -> [u8; 4] {
        self.remote
    }

    /// The peer takes AES as well: what is sent on paths from now on is encrypted by it.
    pub(crate) fn allow_aes(&mut self) {
        self.left_for_aes.get_or_insert(MOST_BY_AES);
    }

    /// How much has been sent as WireGuard sends it, and the most on any path: a key is good for 2^32 each.
    pub(crate) fn most_sent(&self) -> u64 {
        self.sent.iter().map(|&sent| u64::from(sent)).fold(self.plain_sent, u64::max)
    }

    /// Encrypts `datagram` in place: a place for the header, the contents, a place for the tag. Returns the packet's number on the path;
    /// none once the path's numbers are used up.
    pub(crate) fn seal_on_path(&mut self, path: PathId, datagram: &mut [u8]) -> Option<u32> {
        let sent = &mut self.sent[path.index()];
        let counter = *sent;
        *sent = sent.checked_add(1)?;
        let (cipher, key) = match &mut self.left_for_aes {
            None | Some(0) => (Cipher::ChaCha, &self.sending),
            Some(left) => {
                *left -= 1;
                (Cipher::Aes, &self.sending_aes)
            }
        };
        let header = message::path_header(path, cipher, self.remote, counter);
        datagram[..PATH_HEADER_BYTES].copy_from_slice(&header);
        seal(key, nonce_on_path(path, counter), &header, &mut datagram[PATH_HEADER_BYTES..]);
        Some(counter)
    }

    /// As [`Transport::seal_on_path`], for a peer that may be a stock WireGuard.
    pub(crate) fn seal_plain(&mut self, datagram: &mut [u8]) {
        let counter = self.plain_sent;
        self.plain_sent += 1;
        datagram[..PLAIN_HEADER_BYTES].copy_from_slice(&message::plain_header(self.remote, counter));
        // WireGuard authenticates no header.
        seal(&self.sending, nonce(0, counter), &[], &mut datagram[PLAIN_HEADER_BYTES..]);
    }

    /// Decrypts in place; returns the contents.
    pub(crate) fn open_on_path<'a>(
        &mut self,
        (path, cipher, counter): (PathId, Cipher, u32),
        datagram: &'a mut [u8],
    ) -> Result<&'a mut [u8], OpenError> {
        let window = &mut self.received[path.index()];
        if !window.is_new(counter.into()) {
            return Err(OpenError::Replayed);
        }
        let (header, contents) = datagram.split_at_mut(PATH_HEADER_BYTES);
        let key = match cipher {
            Cipher::ChaCha => &self.receiving,
            Cipher::Aes => &self.receiving_aes,
        };
        let opened = key
            .open_in_place(nonce_on_path(path, counter), Aad::from(&*header), contents)
            .map_err(|_| OpenError::NotAuthentic)?;
        window.note(counter.into());
        Ok(opened)
    }

    /// As [`Transport::open_on_path`], for what is sent as WireGuard sends it.
    pub(crate) fn open_plain<'a>(
        &mut self,
        counter: u64,
        datagram: &'a mut [u8],
    ) -> Result<&'a mut [u8], OpenError> {
        if !self.plain_received.is_new(counter) {
            return Err(OpenError::Replayed);
        }
        let opened = self
            .receiving
            .open_in_place(nonce(0, counter), Aad::empty(), &mut datagram[PLAIN_HEADER_BYTES..])
            .map_err(|_| OpenError::NotAuthentic)?;
        self.plain_received.note(counter);
        Ok(opened)
    }
}

fn aes_key(bytes: &[u8; KEY_BYTES]) -> LessSafeKey {
    let derived = Salt::new(HKDF_SHA256, AES_SALT).extract(bytes);
    let expanded = derived.expand(&[], &AES_256_GCM).expect("a key is shorter than what HKDF gives");
    LessSafeKey::new(UnboundKey::from(expanded))
}

fn seal(key: &LessSafeKey, nonce: Nonce, header: &[u8], contents_and_tag: &mut [u8]) {
    let (contents, tag) = contents_and_tag.split_at_mut(contents_and_tag.len() - TAG_BYTES);
    let proof = key
        .seal_in_place_separate_tag(nonce, Aad::from(header), contents)
        .expect("a datagram is shorter than what the cipher takes");
    tag.copy_from_slice(proof.as_ref());
}

/// WireGuard's nonces begin with four zeros; those of paths have the path there, so that none comes twice under one key.
fn nonce_on_path(path: PathId, counter: u32) -> Nonce {
    nonce(path.index() as u32 + 1, counter.into())
}

fn nonce(space: u32, counter: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&space.to_le_bytes());
    bytes[4..].copy_from_slice(&counter.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

impl Index {
    /// Whether a header's number is this one.
    pub(crate) fn is(self, bytes: [u8; 4]) -> bool {
        self.to_bytes() == bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends() -> (Transport, Transport) {
        (Transport::new(&[1; 32], &[2; 32], [9, 0, 0, 0]), Transport::new(&[2; 32], &[1; 32], [7, 0, 0, 0]))
    }

    fn datagram(contents: &[u8]) -> Vec<u8> {
        let mut datagram = vec![0; PATH_HEADER_BYTES];
        datagram.extend_from_slice(contents);
        datagram.extend_from_slice(&[0; TAG_BYTES]);
        datagram
    }

    #[test]
    fn contents_come_once_and_unchanged() {
        let (mut here, mut there) = ends();
        let path = PathId::new(3).unwrap();
        let mut sent = datagram(b"hello");
        assert_eq!(here.seal_on_path(path, &mut sent), Some(0));
        let mut again = sent.clone();
        assert_eq!(there.open_on_path((path, Cipher::ChaCha, 0), &mut sent).unwrap(), b"hello");
        assert_eq!(there.open_on_path((path, Cipher::ChaCha, 0), &mut again), Err(OpenError::Replayed));
    }

    #[test]
    fn a_changed_header_or_path_is_found_out() {
        let (mut here, mut there) = ends();
        let [one, two] = [1, 2].map(|number| PathId::new(number).unwrap());
        let mut sent = datagram(b"hello");
        here.seal_on_path(one, &mut sent);
        assert_eq!(
            there.open_on_path((two, Cipher::ChaCha, 0), &mut sent.clone()),
            Err(OpenError::NotAuthentic)
        );
        sent[1] ^= 1;
        assert_eq!(there.open_on_path((one, Cipher::ChaCha, 0), &mut sent), Err(OpenError::NotAuthentic));
    }

    #[test]
    fn aes_is_used_where_both_have_it_and_for_so_many_packets() {
        let (mut here, mut there) = ends();
        let path = PathId::new(3).unwrap();
        here.allow_aes();
        here.left_for_aes = Some(2);
        for (counter, expected) in [(0, Cipher::Aes), (1, Cipher::Aes), (2, Cipher::ChaCha)] {
            let mut sent = datagram(b"hello");
            assert_eq!(here.seal_on_path(path, &mut sent), Some(counter));
            let Some(message::Message::OnPath { cipher, .. }) = message::parse(&sent) else {
                panic!("{sent:?}")
            };
            assert_eq!(cipher, expected);
            let other = if cipher == Cipher::Aes { Cipher::ChaCha } else { Cipher::Aes };
            let mut copy = sent.clone();
            let wrong = there.open_on_path((path, other, counter), &mut copy);
            assert_eq!(wrong, Err(OpenError::NotAuthentic));
            assert_eq!(there.open_on_path((path, cipher, counter), &mut sent).unwrap(), b"hello");
        }
    }
}
