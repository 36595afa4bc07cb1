//! The client's side.

use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};

use super::connect::{Connect, ConnectError};
use super::cookie::Cookie;
use super::error::ErrorTlv;
use super::extensions::SupportedExtensions;
use super::message::{self, LONGEST_MESSAGE, Message, MessageError};
use super::options::TcpOptions;

/// The client's side of one connection to a converter.
///
/// [`Client::first_bytes`] go first, in the SYN if that can be, and payload may follow them at once. The converter's answer is read by
/// [`Client::poll_outcome`]. Unless that is [`Outcome::Connected`], the connection is over, and is to be reset (RFC 8803 §6.2.8). So it is where
/// the stream ends before there is an outcome: the converter does not speak Convert, or its answer was removed on the way.
#[derive(Clone, Debug)]
pub struct Client {
    request: Message,
    /// The answer is read: what comes now is payload.
    is_answered: bool,
}

/// What a converter answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// What follows is of the server.
    Connected {
        /// Options of the server's SYN/ACK, if the converter tells them. Who asked for options has them. Where they have Multipath TCP, the next
        /// connection can go to the server itself (RFC 8803 §5.1).
        server_options: Option<TcpOptions>,
        /// What is converted, if that was asked too.
        supported: Option<SupportedExtensions>,
    },
    /// What is converted. No connection was asked for.
    Informed(SupportedExtensions),
    /// The converter wants this to be shown: keep it, and try again with it.
    CookieGiven(Cookie),
    /// There is no connection.
    Refused(ErrorTlv),
}

/// Why an answer is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// It is no message.
    #[error("the converter answers with {0}")]
    Message(#[from] MessageError),
    /// It has a TLV that only clients send, or one where no connection was asked for.
    #[error("the converter answers something that was not asked")]
    Unexpected,
    /// It does not say what was asked for.
    #[error("the converter does not say which TCP options it converts")]
    NothingSaid,
}

impl Client {
    /// Asks for a connection to a server.
    pub fn connect(server: SocketAddr) -> Result<Self, ConnectError> {
        let request = Message { connect: Some(Connect::new(server)?), ..Message::default() };
        Ok(Self { request, is_answered: false })
    }

    /// Asks which TCP options are converted.
    #[must_use]
    pub fn ask_extensions() -> Self {
        Self { request: Message { info: true, ..Message::default() }, is_answered: false }
    }

    /// Asks which TCP options are converted, beside the connection.
    #[must_use]
    pub fn with_info(mut self) -> Self {
        self.request.info = true;
        self
    }

    /// Asks that the server is sent these options, and which ones it sends. A converter refuses those that it does not support. Multipath TCP is
    /// asked for without a value (RFC 8803 §7.5). Without a connection nothing is asked for.
    #[must_use]
    pub fn with_options(mut self, options: TcpOptions) -> Self {
        self.request.connect = self.request.connect.map(|connect| connect.with_options(options));
        self
    }

    /// Shows a cookie that this converter gave before.
    #[must_use]
    pub fn with_cookie(mut self, cookie: Cookie) -> Self {
        self.request.cookie = Some(cookie);
        self
    }

    /// Whether a cookie is shown. If so, [`ErrorTlv::NotAuthorized`] can mean that it is no longer valid: forget it, and try once more without.
    #[must_use]
    pub fn has_cookie(&self) -> bool {
        self.request.cookie.is_some()
    }

    /// What goes before the payload.
    #[must_use]
    pub fn first_bytes(&self) -> Bytes {
        self.request.to_bytes()
    }

    /// Takes the answer from the front of `input`, once all of it is there, at most [`LONGEST_MESSAGE`] octets. What is left is of the server,
    /// and is left alone from then on.
    pub fn poll_outcome(&mut self, input: &mut BytesMut) -> Result<Option<Outcome>, AnswerError> {
        if self.is_answered {
            return Ok(None);
        }
        let Some(octets) = message::take(input, LONGEST_MESSAGE)? else { return Ok(None) };
        self.is_answered = true;
        let answer = Message::parse(&octets)?;
        if answer.info || answer.connect.is_some() || answer.cookie.is_some() {
            return Err(AnswerError::Unexpected);
        }
        if let Some(error) = answer.error {
            return Ok(Some(match error {
                // With one that was shown, another would only be asked for again.
                ErrorTlv::MissingCookie(Some(cookie)) if !self.has_cookie() => Outcome::CookieGiven(cookie),
                error => Outcome::Refused(error),
            }));
        }
        let (server_options, supported) = (answer.extended_tcp_header, answer.supported_extensions);
        match (&self.request.connect, supported) {
            (Some(_), supported) => Ok(Some(Outcome::Connected { server_options, supported })),
            (None, _) if server_options.is_some() => Err(AnswerError::Unexpected),
            (None, Some(supported)) => Ok(Some(Outcome::Informed(supported))),
            (None, None) => Err(AnswerError::NothingSaid),
        }
    }
}
