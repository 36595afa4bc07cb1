//! 0-RTT TCP Convert (RFC 8803): a client asks a Transport Converter for a connection in its first bytes, so that no round trip is added.
//!
//! [`Client`] is the one side, [`Server`] the other; both are without sockets. Each sends one message, of at most [`LONGEST_MESSAGE`] octets, and
//! what comes behind it is payload.
//!
//! # Networks that change packets
//!
//! The messages are bytes of the stream, so a box that strips TCP options takes nothing from them (RFC 8803 §8):
//!
//! - Options stripped between client and converter: the connection becomes plain TCP, and is converted all the same.
//! - Options stripped between converter and server: the client sees them missing in [`Outcome::Connected`], and goes on asking the converter.
//! - Data in the SYN removed: the SYN/ACK acknowledges the SYN alone. TCP sends the data once more behind the handshake, which costs the round
//!   trip that was to be saved. The RFC wants such a converter to be left; here it is not, since nothing else is lost.
//! - Data behind the handshake removed or rewritten: what comes is no message, which is an [`AnswerError`]. Another way to the server is to be used.
//! - An address translator that gives a client changing addresses makes its cookie invalid: it is refused as not authorized, and has to be asked
//!   for anew ([`Client::has_cookie`]).

mod client;
mod connect;
mod cookie;
mod error;
mod extensions;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod message;
mod options;
mod server;
#[cfg(test)]
mod tests;
mod tlv;

pub use client::{AnswerError, Client, Outcome};
pub use connect::ConnectError;
pub use cookie::{Cookie, CookieError, CookieKey, CookiePeriod};
pub use error::ErrorTlv;
pub use extensions::SupportedExtensions;
pub use message::{LONGEST_MESSAGE, MessageError};
pub use options::{OptionKind, OptionKinds, TcpOption, TcpOptions, TcpOptionsError};
pub use server::{Server, ServerConfig};
