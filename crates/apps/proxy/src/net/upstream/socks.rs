//! By SOCKS version 5 (RFC 1928).

use std::net::SocketAddr;

use bytes::Bytes;
use tokio_socks::Error;
use tokio_socks::tcp::Socks5Stream;

use super::super::connect::ServerSide;
use super::dialer::Dialer;
use super::tls::failure_in;
use super::user::User;
use crate::failure::{ConnectFailure, UpstreamFailure};

/// Asks for a connection to a server.
pub(super) async fn connect(
    dialer: &Dialer<'_>,
    server: SocketAddr,
    user: Option<&User>,
) -> Result<ServerSide, ConnectFailure> {
    let stream = dialer.dial().await?;
    let connected = match user {
        Some(User { name, password }) => {
            Socks5Stream::connect_with_password_and_socket(stream, server, name, password).await
        }
        None => Socks5Stream::connect_with_socket(stream, server).await,
    };
    let stream = connected.map_err(|error| failure_of(&error))?.into_inner();
    // No more was read than the answer has.
    Ok(ServerSide { stream, address: server, early: Bytes::new() })
}

fn failure_of(error: &Error) -> ConnectFailure {
    use UpstreamFailure as Upstream;
    match error {
        Error::NetworkUnreachable => ConnectFailure::NetworkUnreachable,
        Error::HostUnreachable => ConnectFailure::HostUnreachable,
        Error::ConnectionRefused => ConnectFailure::Refused,
        Error::TtlExpired => ConnectFailure::TimedOut,
        Error::ConnectionNotAllowedByRuleset => ConnectFailure::Upstream(Upstream::NotAllowed),
        Error::PasswordAuthFailure(_) | Error::NoAcceptableAuthMethods | Error::AuthorizationRequired => {
            ConnectFailure::Upstream(Upstream::Unauthorized)
        }
        Error::GeneralSocksServerFailure | Error::CommandNotSupported | Error::AddressTypeNotSupported => {
            ConnectFailure::Upstream(Upstream::Unsupported)
        }
        Error::Io(error) => ConnectFailure::Upstream(failure_in(error).unwrap_or(Upstream::Silent)),
        Error::ProxyServerUnreachable => ConnectFailure::Upstream(Upstream::Silent),
        _ => ConnectFailure::Upstream(Upstream::Garbled),
    }
}
