//! The handshake and the encryption of WireGuard: `Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s` in its messages, with cookies against floods
//! (J. A. Donenfeld, "WireGuard: Next Generation Kernel Network Tunnel", NDSS 2017, §5).
//!
//! A stock WireGuard peer can't tell the handshake from its own. What two Polypath peers send after it has a shorter header of their
//! own, with a number and a replay window per path.

mod cookie;
mod handshake;
mod message;
mod replay_window;
mod transport;

pub(crate) use cookie::{CookieJar, Macs, ReceivedCookie, cookie_from};
pub(crate) use handshake::{Handshake, Identity, Timestamp, receive_initiation};
pub use message::PathId;
pub(crate) use message::{
    COOKIE_REPLY_BYTES, Cipher, INITIATION_BYTES, Index, Message, PATH_HEADER_BYTES, PATHS,
    PLAIN_HEADER_BYTES, RESPONSE_BYTES, parse,
};
pub(crate) use transport::{OpenError, TAG_BYTES, Transport};
