//! The Transport Converter's side.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::connect::{Connect, ConnectError};
use super::cookie::{CookieKey, CookiePeriod};
use super::error::ErrorTlv;
use super::extensions::{SupportedExtensions, is_ignored};
use super::message::{self, LONGEST_MESSAGE, Message, MessageError};
use super::options::{OptionKind, OptionKinds, TcpOptions};
use crate::failure::{ConnectFailure, UpstreamFailure};
use crate::negotiation::{Command, Negotiation, Refusal, Request, Step};

/// What all clients of a converter meet.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    supported: SupportedExtensions,
    cookie_key: Option<CookieKey>,
    longest_message: usize,
}

impl ServerConfig {
    /// A converter for these TCP options, which wants no cookies.
    #[must_use]
    pub fn new(supported: SupportedExtensions) -> Self {
        Self { supported, cookie_key: None, longest_message: LONGEST_MESSAGE }
    }

    /// Wants a cookie from each client, and gives one to each that comes without. It stops clients with forged addresses, which only a client
    /// whose data come with its SYN can have; where data come behind the handshake it costs round trips for nothing.
    #[must_use]
    pub fn with_cookies(self, key: CookieKey) -> Self {
        Self { cookie_key: Some(key), ..self }
    }

    /// Takes no messages of more than these octets. Unless set, it is what a message can have, 1020.
    #[must_use]
    pub fn with_longest_message(self, octets: usize) -> Self {
        Self { longest_message: octets, ..self }
    }
}

/// The converter's side of one connection.
///
/// Errors go to a client in its stream. The connection is then closed, without RST, so that they arrive (RFC 8803 §6.2.2). How many of them a
/// client gets is for the caller to limit (RFC 8803 §6.2.5), as are the connections that it has.
#[derive(Debug)]
pub struct Server {
    config: Arc<ServerConfig>,
    client: IpAddr,
    period: CookiePeriod,
    state: State,
    /// Of a client that wants to know it, after all else.
    announces: bool,
    asked: Option<Connect>,
    server_options: Option<TcpOptions>,
}

#[derive(Debug)]
enum State {
    /// The client's message is awaited.
    Reading,
    /// What the client wanted to know was said.
    Informed,
    /// A step that ends it was given.
    Over,
}

/// Why a message leads to no connection: what the client is told, if that is anything, and what the caller is.
type Refused = (Option<ErrorTlv>, Refusal);

impl Server {
    /// For a client that has this address, in this span of time.
    #[must_use]
    pub fn new(config: Arc<ServerConfig>, client: IpAddr, period: CookiePeriod) -> Self {
        Self {
            config,
            client,
            period,
            state: State::Reading,
            announces: false,
            asked: None,
            server_options: None,
        }
    }

    /// The options that the server is to be sent, beside those that the converter sends anyway (RFC 8803 §6.2.5). All are supported. One without a
    /// value gets it from the converter; TCP Fast Open alone can have one, a cookie of the server, to be sent as it is.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn asked_options(&self) -> impl Iterator<Item = super::TcpOption<'_>> {
        let options = self.asked.iter().filter_map(Connect::options).flat_map(TcpOptions::iter);
        options.filter(|option| !is_ignored(option.kind))
    }

    fn handle_message(&mut self, octets: &Bytes) -> Result<Step, Refused> {
        let echo = || octets.clone();
        let message = Message::parse(octets).map_err(|error| refused(error, echo()))?;
        let is_of_a_converter = message.extended_tcp_header.is_some()
            || message.supported_extensions.is_some()
            || message.error.is_some();
        if is_of_a_converter {
            let why = Refusal::Unsupported("a TLV that only a converter sends");
            return Err((Some(ErrorTlv::UnsupportedMessage(echo())), why));
        }
        self.check_cookie(&message)?;
        let Some(connect) = message.connect else {
            if !message.info {
                let why =
                    Refusal::Malformed("a Convert message that asks for nothing: expected a Connect TLV");
                return Err((Some(ErrorTlv::MalformedMessage(echo())), why));
            }
            self.state = State::Informed;
            return Ok(Step::Send(self.announcement().to_bytes()));
        };
        self.check_options(&connect)?;
        self.announces = message.info;
        let target = connect.remote().into();
        self.asked = Some(connect);
        Ok(Step::Ask(Request { command: Command::Connect, target, user: None }))
    }

    fn check_cookie(&self, message: &Message) -> Result<(), Refused> {
        let Some(key) = &self.config.cookie_key else { return Ok(()) };
        match &message.cookie {
            None => {
                let given = Some(key.cookie(self.client, self.period));
                // Every client's first message is such a one, so it is no failed attempt to come in.
                let why = Refusal::Unsupported("no cookie was shown, so the client was given one");
                Err((Some(ErrorTlv::MissingCookie(given)), why))
            }
            Some(cookie) if key.is_valid(cookie, self.client, self.period) => Ok(()),
            Some(_) => Err((Some(ErrorTlv::NotAuthorized), Refusal::Unauthorized)),
        }
    }

    /// That all options can be sent to the server. Values of most are those of the converter's own end (RFC 8803 §7.4, §7.5).
    fn check_options(&self, connect: &Connect) -> Result<(), Refused> {
        let supported = self.config.supported.kinds();
        let options = connect.options().into_iter().flat_map(TcpOptions::iter);
        let unsupported: OptionKinds = options
            .filter(|option| !is_ignored(option.kind))
            .filter(|option| {
                let may_have_value = option.kind == OptionKind::FAST_OPEN;
                !supported.contains(option.kind) || !(option.value.is_empty() || may_have_value)
            })
            .map(|option| option.kind)
            .collect();
        if unsupported.is_empty() {
            return Ok(());
        }
        let why = Refusal::Unsupported("TCP options that this converter can't send");
        Err((Some(ErrorTlv::UnsupportedTcpOption(unsupported)), why))
    }

    fn announcement(&self) -> Message {
        Message { supported_extensions: Some(self.config.supported.clone()), ..Message::default() }
    }

    fn refuse(&mut self, (answer, why): Refused) -> Step {
        self.state = State::Over;
        Step::Refuse(answer.map(|error| Message::refusal(error).to_bytes()).unwrap_or_default(), why)
    }
}

impl Negotiation for Server {
    fn poll_step(&mut self, input: &mut BytesMut) -> Step {
        match self.state {
            State::Reading => {}
            State::Informed => {
                // One message is all that a connection has, so nothing can follow.
                let why =
                    Refusal::Unsupported("no connection was asked for, but which TCP options are converted");
                return self.refuse((None, why));
            }
            State::Over => return Step::Wait,
        }
        match message::take(input, self.config.longest_message) {
            Ok(None) => Step::Wait,
            Ok(Some(octets)) => {
                self.state = State::Over;
                self.handle_message(&octets).unwrap_or_else(|refused| self.refuse(refused))
            }
            Err(error) => {
                let header = input.split_to(input.len().min(4)).freeze();
                self.refuse(refused(error, header))
            }
        }
    }

    fn handle_multipath(&mut self) {
        // No more is known of the SYN/ACK, so the option has no value.
        self.server_options = TcpOptions::default().with(OptionKind::MULTIPATH_TCP, &[]).ok();
    }

    fn handle_connected(&mut self, _local: SocketAddr) -> Bytes {
        let asked_for_options = self.asked.as_ref().is_some_and(|connect| connect.options().is_some());
        let mut answer = if self.announces { self.announcement() } else { Message::default() };
        answer.extended_tcp_header = self.server_options.take();
        // A client that asked for options gets the TLV in any case. One without options says of none that the server has it.
        if asked_for_options {
            answer.extended_tcp_header.get_or_insert_default();
        }
        answer.to_bytes()
    }

    fn handle_failed(&mut self, failure: ConnectFailure) -> Bytes {
        Message::refusal(self.error_of(failure)).to_bytes()
    }
}

impl Server {
    /// What a client is told. A server that does not answer is no failure of the converter's network, for which the client would leave it alone.
    fn error_of(&self, failure: ConnectFailure) -> ErrorTlv {
        let is_v6 = self.asked.as_ref().is_some_and(|connect| connect.remote().is_ipv6());
        match failure {
            ConnectFailure::NotAllowed
            | ConnectFailure::Upstream(UpstreamFailure::NotAllowed | UpstreamFailure::Address) => {
                ErrorTlv::NotAuthorized
            }
            ConnectFailure::Overloaded
            | ConnectFailure::Local
            | ConnectFailure::Upstream(UpstreamFailure::Full) => ErrorTlv::ResourceExceeded { delay_s: 0 },
            ConnectFailure::NameLookupFailed | ConnectFailure::Upstream(_) => {
                ErrorTlv::NetworkFailure { delay_s: 0 }
            }
            ConnectFailure::Refused | ConnectFailure::Reset | ConnectFailure::Garbled => {
                ErrorTlv::ConnectionReset
            }
            // Codes of ICMP and ICMPv6 (RFC 792, RFC 4443): no way to the network, and no such host.
            ConnectFailure::NetworkUnreachable => ErrorTlv::DestinationUnreachable { icmp_code: 0 },
            ConnectFailure::NameUnknown | ConnectFailure::HostUnreachable | ConnectFailure::TimedOut => {
                ErrorTlv::DestinationUnreachable { icmp_code: if is_v6 { 3 } else { 1 } }
            }
        }
    }
}

/// What a client is told of a message that can't be read.
fn refused(error: MessageError, echo: Bytes) -> Refused {
    let malformed = |why| (Some(ErrorTlv::MalformedMessage(echo.clone())), Refusal::Malformed(why));
    match error {
        MessageError::Version(_) => {
            let answer = ErrorTlv::UnsupportedVersion(vec![message::VERSION]);
            (Some(answer), Refusal::Unsupported("a version of Convert that is not spoken here: expected 1"))
        }
        // Answered by a reset, if that can be (RFC 8803 §6.1).
        MessageError::NoLength => (None, Refusal::Malformed("a Convert message of no length")),
        MessageError::UnknownTlv(_) => {
            let why = Refusal::Unsupported("a TLV that is not known here");
            (Some(ErrorTlv::UnsupportedMessage(echo)), why)
        }
        MessageError::MagicNumber(_) => malformed("no Convert message: expected the magic number 0x2263"),
        MessageError::TooLong(_) => malformed("a Convert message that is longer than is taken here"),
        MessageError::Length | MessageError::TlvLength(_) => malformed("a TLV whose length can't be"),
        MessageError::Repeated(_) => malformed("more than one TLV of a type"),
        MessageError::Connect(ConnectError::Address) => {
            malformed("a Connect TLV with a multicast, broadcast, loopback or unspecified address")
        }
        MessageError::Connect(_) => {
            malformed("a Connect TLV that can't be: expected an address, a port and TCP options")
        }
        MessageError::ExtendedTcpHeader(_) => malformed("more TCP options than a header has room for"),
        MessageError::Cookie(_) => malformed("a cookie that is too long: expected at most 256 octets"),
    }
}
