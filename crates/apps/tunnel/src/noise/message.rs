//! The outer headers.

/// Number of a session at one end, chosen by that end; below 2^24, as the header between Polypath peers has three bytes for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Index(u32);

impl Index {
    /// The lower 24 bits of these.
    pub(crate) const fn new(bits: u32) -> Self {
        Self(bits & 0x00ff_ffff)
    }

    pub(crate) const fn to_bytes(self) -> [u8; 4] {
        self.0.to_le_bytes()
    }
}

/// Number of a path, chosen by the end that initiated; below 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathId(u8);

/// Most paths between two peers.
pub(crate) const PATHS: usize = 16;

impl PathId {
    /// `None` for a number that no path can have.
    #[must_use]
    pub const fn new(number: u8) -> Option<Self> {
        if (number as usize) < PATHS { Some(Self(number)) } else { None }
    }

    /// As a position in an array of 16.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

const INITIATION: u8 = 1;
const RESPONSE: u8 = 2;
const COOKIE_REPLY: u8 = 3;
const PLAIN: u8 = 4;
/// The first byte between Polypath peers: this, and the path in its lower half.
const ON_PATH: u8 = 0x10;
/// The same, encrypted by AES.
const ON_PATH_AES: u8 = 0x20;

/// What a datagram on a path is encrypted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Cipher {
    /// ChaCha20-Poly1305, as WireGuard has it.
    #[default]
    ChaCha,
    /// AES-256-GCM, between ends whose processors have it.
    Aes,
}

/// REJECT-AFTER-MESSAGES.
const MOST_COUNTER: u64 = u64::MAX - (1 << 13);

pub(crate) const INITIATION_BYTES: usize = 148;
pub(crate) const RESPONSE_BYTES: usize = 92;
pub(crate) const COOKIE_REPLY_BYTES: usize = 64;
/// Type, receiver, counter.
pub(crate) const PLAIN_HEADER_BYTES: usize = 16;
/// Type and path, receiver in three bytes, counter in four.
pub(crate) const PATH_HEADER_BYTES: usize = 8;

/// A datagram by its header. The contents are not authenticated yet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message<'a> {
    Initiation(&'a [u8; INITIATION_BYTES]),
    Response(&'a [u8; RESPONSE_BYTES]),
    CookieReply(&'a [u8; COOKIE_REPLY_BYTES]),
    /// As WireGuard sends data.
    Plain {
        receiver: Index,
        counter: u64,
    },
    /// As Polypath peers send it.
    OnPath {
        path: PathId,
        cipher: Cipher,
        receiver: Index,
        counter: u32,
    },
}

/// `None` for what is none of these, or cut off.
pub(crate) fn parse(datagram: &[u8]) -> Option<Message<'_>> {
    let (&[kind, a, b, c], _) = datagram.split_first_chunk::<4>()?;
    let cipher = match kind & 0xf0 {
        ON_PATH => Some(Cipher::ChaCha),
        ON_PATH_AES => Some(Cipher::Aes),
        _ => None,
    };
    if let Some(cipher) = cipher {
        let counter = datagram.get(4..8)?.try_into().ok()?;
        return Some(Message::OnPath {
            path: PathId(kind & 0x0f),
            cipher,
            receiver: Index(u32::from_le_bytes([a, b, c, 0])),
            counter: u32::from_le_bytes(counter),
        });
    }
    if (a, b, c) != (0, 0, 0) {
        return None;
    }
    match kind {
        INITIATION => datagram.try_into().ok().map(Message::Initiation),
        RESPONSE => datagram.try_into().ok().map(Message::Response),
        COOKIE_REPLY => datagram.try_into().ok().map(Message::CookieReply),
        PLAIN => {
            let receiver = u32::from_le_bytes(datagram.get(4..8)?.try_into().ok()?);
            let counter = u64::from_le_bytes(datagram.get(8..16)?.try_into().ok()?);
            // WireGuard ends keys long before (§6.1), and what comes behind the last number has none.
            (receiver < 1 << 24 && counter < MOST_COUNTER)
                .then_some(Message::Plain { receiver: Index(receiver), counter })
        }
        _ => None,
    }
}

pub(crate) fn initiation(sender: Index) -> [u8; INITIATION_BYTES] {
    let mut message = [0; INITIATION_BYTES];
    message[0] = INITIATION;
    message[4..8].copy_from_slice(&sender.to_bytes());
    message
}

pub(crate) fn response(sender: Index, receiver: [u8; 4]) -> [u8; RESPONSE_BYTES] {
    let mut message = [0; RESPONSE_BYTES];
    message[0] = RESPONSE;
    message[4..8].copy_from_slice(&sender.to_bytes());
    message[8..12].copy_from_slice(&receiver);
    message
}

pub(crate) fn cookie_reply(receiver: [u8; 4]) -> [u8; COOKIE_REPLY_BYTES] {
    let mut message = [0; COOKIE_REPLY_BYTES];
    message[0] = COOKIE_REPLY;
    message[4..8].copy_from_slice(&receiver);
    message
}

pub(crate) fn plain_header(receiver: [u8; 4], counter: u64) -> [u8; PLAIN_HEADER_BYTES] {
    let mut header = [0; PLAIN_HEADER_BYTES];
    header[0] = PLAIN;
    header[4..8].copy_from_slice(&receiver);
    header[8..].copy_from_slice(&counter.to_le_bytes());
    header
}

pub(crate) fn path_header(
    path: PathId,
    cipher: Cipher,
    receiver: [u8; 4],
    counter: u32,
) -> [u8; PATH_HEADER_BYTES] {
    let kind = match cipher {
        Cipher::ChaCha => ON_PATH,
        Cipher::Aes => ON_PATH_AES,
    };
    let [a, b, c, _] = receiver;
    let [d, e, f, g] = counter.to_le_bytes();
    [kind | path.0, a, b, c, d, e, f, g]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_as_they_were() {
        let (path, receiver) = (PathId::new(9).unwrap(), Index::new(0x00ab_cdef));
        for cipher in [Cipher::ChaCha, Cipher::Aes] {
            let header = path_header(path, cipher, receiver.to_bytes(), 77);
            assert_eq!(parse(&header), Some(Message::OnPath { path, cipher, receiver, counter: 77 }));
        }
        let counter = MOST_COUNTER - 1;
        let header = plain_header(receiver.to_bytes(), counter);
        assert_eq!(parse(&header), Some(Message::Plain { receiver, counter }));
        assert_eq!(parse(&plain_header(receiver.to_bytes(), MOST_COUNTER)), None);
    }

    #[test]
    fn what_is_cut_off_or_unknown_is_nothing() {
        let whole = initiation(Index::new(1));
        assert!(matches!(parse(&whole), Some(Message::Initiation(_))));
        for datagram in
            [&whole[..147], &[1, 0, 0], &[0x10, 0, 0, 0, 1], &[4, 0, 0, 1, 0, 0, 0, 0], &[9; 20], &[]]
        {
            assert_eq!(parse(datagram), None, "{datagram:?}");
        }
    }
}
