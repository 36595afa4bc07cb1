//! TLS to a proxy on the way.

use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use polypath_stack::engine::Stream;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{AlertDescription, ClientConfig, Error, InvalidMessage, RootCertStore};
use tokio_rustls::TlsConnector;

use super::super::at_once::send_at_once;
use super::super::leg::Leg;
use super::super::negotiate::say_farewell;
use super::super::secured::{Raw, Secured};
use crate::failure::{ConnectFailure, UpstreamFailure};
use crate::target::Host;

/// Who vouches for a proxy on the way, and what it is shown. Cheap to clone.
#[derive(Clone)]
pub struct UpstreamTls(Arc<ClientConfig>);

impl fmt::Debug for UpstreamTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamTls").finish_non_exhaustive()
    }
}

impl UpstreamTls {
    /// One of these authorities vouches for the proxy, which is shown this certificate if it asks for one.
    pub fn new(authorities: RootCertStore, shown: Option<CertifiedKey>) -> Result<Self, Error> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?;
        let builder = builder.with_root_certificates(authorities);
        Ok(Self(Arc::new(match shown {
            Some(shown) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(shown))),
            None => builder.with_no_client_auth(),
        })))
    }

    /// The handshake with a host, which has to be the one that was meant.
    pub(super) async fn secure(&self, stream: Stream, at: &Host) -> Result<Leg, ConnectFailure> {
        let name = match at {
            Host::Address(address) => ServerName::from(*address),
            Host::Name(name) => {
                let name = ServerName::try_from(name.to_string());
                name.map_err(|_| ConnectFailure::Upstream(UpstreamFailure::Address))?
            }
        };
        // The end of a handshake is several messages, and none is to wait until the one before it is acknowledged.
        send_at_once(&stream);
        let connecting = TlsConnector::from(self.0.clone()).connect(name, Raw::new(stream, Bytes::new()));
        match connecting.into_fallible().await {
            Ok(secured) => Ok(Leg::Tls(Box::new(Secured::new(secured)))),
            Err((error, raw)) => {
                let failure = failure_in(&error).unwrap_or(UpstreamFailure::Silent);
                if let UpstreamFailure::Distrusted(_) = failure {
                    // It is told so. Closing with bytes unread would reset the connection before it has read that.
                    say_farewell(&mut Leg::Plain(raw.into_stream()), &Bytes::new()).await;
                }
                Err(ConnectFailure::Upstream(failure))
            }
        }
    }
}

/// What of TLS went wrong, if that is what did. A proxy may say only after the handshake that it does not take who this is.
pub(super) fn failure_in(error: &io::Error) -> Option<UpstreamFailure> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    Some(match error {
        Error::InvalidCertificate(problem) => UpstreamFailure::Distrusted(problem.into()),
        // No record of TLS begins so.
        Error::InvalidMessage(
            InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
        ) => UpstreamFailure::NoTls,
        Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied,
        ) => UpstreamFailure::Unauthorized,
        _ => UpstreamFailure::Garbled,
    })
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};
    use std::os::fd::AsFd as _;

    use polypath_stack::Engine;
    use polypath_stack::engine::{ConnectOptions, KernelEngine};
    use socket2::SockRef;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn no_message_of_the_handshake_waits_for_an_acknowledgement() {
        let here = IpAddr::from(Ipv4Addr::LOCALHOST);
        let proxy = TcpListener::bind(SocketAddr::new(here, 0)).await.expect("a listener");
        let at = proxy.local_addr().expect("its address");
        let engine = Engine::from(KernelEngine::plain_tcp());
        let stream = engine.connect(at, &ConnectOptions::default()).await.expect("a connection");
        let Stream::Kernel(kernel) = &stream else { panic!("not of the kernel") };
        let socket = kernel.as_tokio().as_fd().try_clone_to_owned().expect("a descriptor");
        let tls = UpstreamTls::new(RootCertStore::empty(), None).expect("what TLS needs");
        let begun = async {
            let (mut stream, _) = proxy.accept().await.expect("a connection");
            stream.read_u8().await.expect("a byte")
        };
        let host = Host::Address(here);
        tokio::select! {
            _ = tls.secure(stream, &host) => panic!("nobody has answered"),
            // The type of a record that is of a handshake.
            said = begun => assert_eq!(said, 22),
        }
        assert!(SockRef::from(&socket).tcp_nodelay().expect("an option"));
    }
}
