//! From the greeting to the reply.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::{Buf as _, Bytes, BytesMut};

use super::address::{self, AddressError};
use super::{Reply, VERSION};
use crate::failure::{ConnectFailure, UpstreamFailure};
use crate::negotiation::{Authority, Command, Negotiation, Refusal, Request, Step};

/// Methods of authentication (RFC 1928 §3).
const NO_AUTHENTICATION: u8 = 0;
const USER_PASSWORD: u8 = 2;
const NO_ACCEPTABLE_METHOD: u8 = 0xff;

/// The version of the exchange of name and password (RFC 1929 §2).
const USER_PASSWORD_VERSION: u8 = 1;

/// Commands (RFC 1928 §4).
const CONNECT: u8 = 1;
const ASSOCIATE: u8 = 3;

/// What SOCKS version 4 says to what it does not do: version 0, code 91, and six octets that mean nothing then.
const SOCKS4_REJECTED: [u8; 8] = [0, 91, 0, 0, 0, 0, 0, 0];

/// What one client of SOCKS version 5 says. It holds nothing of the client's bytes: they stay in the input until a message is whole, which is
/// at most 513 octets.
pub struct Socks5 {
    users: Option<Arc<dyn Authority>>,
    user: Option<Box<str>>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Greeting,
    UserPassword,
    Request,
    /// The request is out, or the client is refused.
    Done,
}

impl Socks5 {
    /// With users, each client has to say who it is; without, none is asked.
    #[must_use]
    pub fn new(users: Option<Arc<dyn Authority>>) -> Self {
        Self { users, user: None, state: State::Greeting }
    }

    fn refuse(&mut self, answer: impl Into<Bytes>, refusal: Refusal) -> Step {
        self.state = State::Done;
        Step::Refuse(answer.into(), refusal)
    }

    fn refuse_request(&mut self, code: Reply, refusal: Refusal) -> Step {
        self.refuse(reply(code, unspecified()), refusal)
    }

    /// The client's version and the methods that it can (RFC 1928 §3).
    fn greeting(&mut self, input: &mut BytesMut) -> Step {
        match input.first() {
            None => return Step::Wait,
            Some(&VERSION) => {}
            Some(4) => {
                let refusal = Refusal::Unsupported("a request of SOCKS version 4: expected version 5");
                return self.refuse(Bytes::from_static(&SOCKS4_REJECTED), refusal);
            }
            Some(first) if first.is_ascii_uppercase() => {
                let refusal =
                    Refusal::Malformed("what seems to be a request of HTTP: expected SOCKS version 5");
                return self.refuse(Bytes::new(), refusal);
            }
            Some(_) => {
                let refusal = Refusal::Malformed("no SOCKS: expected a greeting of version 5");
                return self.refuse(Bytes::new(), refusal);
            }
        }
        let Some(&count) = input.get(1) else { return Step::Wait };
        let end = 2 + usize::from(count);
        let Some(methods) = input.get(2..end) else { return Step::Wait };
        let wanted = if self.users.is_some() { USER_PASSWORD } else { NO_AUTHENTICATION };
        let is_offered = methods.contains(&wanted);
        input.advance(end);
        if !is_offered {
            let refusal = match self.users {
                Some(_) => Refusal::Unauthorized,
                None => Refusal::Unsupported("a client that wants to authenticate: there are no users here"),
            };
            return self.refuse(Bytes::from_static(&[VERSION, NO_ACCEPTABLE_METHOD]), refusal);
        }
        self.state = if self.users.is_some() { State::UserPassword } else { State::Request };
        Step::Send(Bytes::copy_from_slice(&[VERSION, wanted]))
    }

    /// Name and password (RFC 1929 §2).
    fn user_password(&mut self, input: &mut BytesMut) -> Step {
        match input.first() {
            None => return Step::Wait,
            Some(&USER_PASSWORD_VERSION) => {}
            Some(_) => {
                let refusal = Refusal::Malformed("no user name and password: expected their version 1");
                return self.refuse(Bytes::from_static(&[USER_PASSWORD_VERSION, 1]), refusal);
            }
        }
        let Some((name, rest)) = counted(&input[1..]) else { return Step::Wait };
        let Some((password, _)) = counted(rest) else { return Step::Wait };
        let end = 1 + 1 + name.len() + 1 + password.len();
        let is_known = self.users.as_ref().is_some_and(|users| users.knows(name, password));
        let name = is_known.then(|| std::str::from_utf8(name).ok().map(Into::into)).flatten();
        input.advance(end);
        if name.is_none() {
            return self.refuse(Bytes::from_static(&[USER_PASSWORD_VERSION, 1]), Refusal::Unauthorized);
        }
        self.user = name;
        self.state = State::Request;
        Step::Send(Bytes::from_static(&[USER_PASSWORD_VERSION, 0]))
    }

    /// What is wanted, and where (RFC 1928 §4).
    fn request(&mut self, input: &mut BytesMut) -> Step {
        match input.first() {
            None => return Step::Wait,
            Some(&VERSION) => {}
            Some(_) => {
                let refusal = Refusal::Malformed("no request of SOCKS version 5 behind the greeting");
                return self.refuse_request(Reply::GeneralFailure, refusal);
            }
        }
        // Between the two is a reserved octet, in which some clients leave what they like.
        let (Some(&command), Some(address)) = (input.get(1), input.get(3..)) else { return Step::Wait };
        let (target, length) = match address::parse(address) {
            Ok(None) => return Step::Wait,
            Ok(Some(found)) => found,
            Err(AddressError::Type) => {
                let refusal = Refusal::Malformed("a type of address that SOCKS does not have");
                return self.refuse_request(Reply::AddressTypeNotSupported, refusal);
            }
            Err(AddressError::Name) => {
                let refusal = Refusal::Malformed("a host that is neither a name nor an address");
                return self.refuse_request(Reply::HostUnreachable, refusal);
            }
        };
        // Only now, with the whole request read: what lies unread when a socket is closed has the answer thrown away at the client.
        input.advance(3 + length);
        let command = match command {
            CONNECT if target.port == 0 => {
                return self
                    .refuse_request(Reply::GeneralFailure, Refusal::Malformed("a connection to port 0"));
            }
            CONNECT => Command::Connect,
            ASSOCIATE => Command::Associate,
            _ => {
                let refusal = Refusal::Unsupported("a command other than CONNECT and UDP ASSOCIATE");
                return self.refuse_request(Reply::CommandNotSupported, refusal);
            }
        };
        self.state = State::Done;
        Step::Ask(Request { command, target, user: self.user.take() })
    }
}

impl Negotiation for Socks5 {
    fn poll_step(&mut self, input: &mut BytesMut) -> Step {
        match self.state {
            State::Greeting => self.greeting(input),
            State::UserPassword => self.user_password(input),
            State::Request => self.request(input),
            State::Done => Step::Wait,
        }
    }

    fn handle_connected(&mut self, local: SocketAddr) -> Bytes {
        reply(Reply::Succeeded, local)
    }

    fn handle_failed(&mut self, failure: ConnectFailure) -> Bytes {
        reply(failure.into(), unspecified())
    }
}

impl fmt::Debug for Socks5 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socks5").field("state", &self.state).finish_non_exhaustive()
    }
}

impl From<ConnectFailure> for Reply {
    fn from(failure: ConnectFailure) -> Self {
        match failure {
            ConnectFailure::NotAllowed
            | ConnectFailure::Upstream(UpstreamFailure::NotAllowed | UpstreamFailure::Address) => {
                Self::NotAllowed
            }
            ConnectFailure::NetworkUnreachable => Self::NetworkUnreachable,
            ConnectFailure::HostUnreachable | ConnectFailure::NameUnknown => Self::HostUnreachable,
            ConnectFailure::Refused => Self::ConnectionRefused,
            // The one code that speaks of time. Others use it so, and clients write "timed out".
            ConnectFailure::TimedOut => Self::TtlExpired,
            ConnectFailure::Overloaded
            | ConnectFailure::NameLookupFailed
            | ConnectFailure::Reset
            | ConnectFailure::Garbled
            | ConnectFailure::Upstream(_)
            | ConnectFailure::Local => Self::GeneralFailure,
        }
    }
}

/// A reply, with the address that is this proxy's for the request (RFC 1928 §6).
fn reply(code: Reply, bound: SocketAddr) -> Bytes {
    let mut address = [0; address::LONGEST_EMITTED];
    let length = address::emit(bound, &mut address);
    [&[VERSION, code as u8, 0], &address[..length]].concat().into()
}

fn unspecified() -> SocketAddr {
    (Ipv4Addr::UNSPECIFIED, 0).into()
}

/// As many octets as the first one says, and the rest.
fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = bytes.split_first()?;
    rest.split_at_checked(length.into())
}

#[cfg(test)]
#[path = "negotiation_tests.rs"]
mod tests;
