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
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;

use super::super::at_once::send_at_once;
use super::super::leg::Leg;
use super::super::negotiate::say_farewell;
use super::super::secured::{Raw, Secured};
use crate::failure::{ConnectFailure, UpstreamFailure};
use crate::target::Host;

/// Connections that are held at a time until the proxy has heard why it is not used. Others are dropped.
const MOST_FAREWELLS: usize = 64;

/// Who vouches for a proxy on the way, and what it is shown. Cheap to clone.
#[derive(Clone)]
pub struct UpstreamTls {
    config: Arc<ClientConfig>,
    /// Places for those that are held.
    farewells: Arc<Semaphore>,
}

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
        let config = match shown {
            Some(shown) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(shown))),
            None => builder.with_no_client_auth(),
        };
        Ok(Self { config: config.into(), farewells: Arc::new(Semaphore::new(MOST_FAREWELLS)) })
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
        let connecting =
            TlsConnector::from(self.config.clone()).connect(name, Raw::new(stream, Bytes::new()));
        match connecting.into_fallible().await {
            Ok(secured) => Ok(Leg::Tls(Box::new(Secured::new(secured)))),
            Err((error, raw)) => {
                let failure = failure_in(&error).unwrap_or(UpstreamFailure::Silent);
                if let UpstreamFailure::Distrusted(_) = failure {
                    self.leave(raw.into_stream());
                }
                Err(ConnectFailure::Upstream(failure))
            }
        }
    }

    /// The proxy was told why by TLS. Closing with bytes unread would reset the connection before it has read that, and no client waits until it has.
    fn leave(&self, stream: Stream) {
        let Ok(place) = self.farewells.clone().try_acquire_owned() else { return };
        tokio::spawn(async move {
            say_farewell(&mut Leg::Plain(stream), &Bytes::new()).await;
            drop(place);
        });
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
    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use rustls::ServerConfig;
    use rustls::pki_types::PrivateKeyDer;
    use socket2::SockRef;
    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::runtime::Handle;
    use tokio_rustls::TlsAcceptor;

    use super::*;
    use crate::failure::Distrust;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// A connection to a proxy on the way, and its other end.
    async fn connection() -> (Stream, TcpStream) {
        let proxy = TcpListener::bind(SocketAddr::new(HERE, 0)).await.expect("a listener");
        let at = proxy.local_addr().expect("its address");
        let engine = Engine::from(KernelEngine::plain_tcp());
        let stream = engine.connect(at, &ConnectOptions::default()).await.expect("a connection");
        (stream, proxy.accept().await.expect("its other end").0)
    }

    #[tokio::test]
    async fn nobody_waits_until_a_proxy_that_is_not_trusted_has_heard_so() {
        for places in [MOST_FAREWELLS, 0] {
            let tls = UpstreamTls::new(RootCertStore::empty(), None).expect("what TLS needs");
            let taken = (MOST_FAREWELLS - places) as u32;
            let _taken = tls.farewells.clone().try_acquire_many_owned(taken).expect("places");
            let (stream, other_end) = connection().await;
            let tasks = Handle::current().metrics().num_alive_tasks();
            let connecting = tls.clone();
            let securing =
                tokio::spawn(async move { connecting.secure(stream, &Host::Address(HERE)).await.map(drop) });
            let mut held = fail_handshake(other_end).await;
            let _ = held.read_to_end(&mut Vec::new()).await;
            // It has not closed its end, and who asked for it has gone on.
            assert!(securing.is_finished(), "{places} places");
            let distrusted = UpstreamFailure::Distrusted(Distrust::UnknownAuthority);
            assert_eq!(securing.await.expect("an end"), Err(ConnectFailure::Upstream(distrusted)));
            let farewells = Handle::current().metrics().num_alive_tasks() - tasks;
            assert_eq!(farewells, places.min(1));
            drop(held);
            // They are given back.
            drop(tls.farewells.acquire_many(places as u32).await.expect("places"));
        }
    }

    /// Shows a certificate that nobody has signed, until it is told so.
    async fn fail_handshake(stream: TcpStream) -> TcpStream {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed([HERE.to_string()]).expect("a certificate");
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().expect("versions").with_no_client_auth();
        let key = PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
        let config = builder.with_single_cert(vec![cert.der().clone()], key).expect("what TLS needs");
        let accepting = TlsAcceptor::from(Arc::new(config)).accept(stream);
        accepting.into_fallible().await.expect_err("a refusal").1
    }

    #[tokio::test]
    async fn no_message_of_the_handshake_waits_for_an_acknowledgement() {
        let (stream, mut other_end) = connection().await;
        let Stream::Kernel(kernel) = &stream else { panic!("not of the kernel") };
        let socket = kernel.as_tokio().as_fd().try_clone_to_owned().expect("a descriptor");
        let tls = UpstreamTls::new(RootCertStore::empty(), None).expect("what TLS needs");
        let begun = async { other_end.read_u8().await.expect("a byte") };
        let host = Host::Address(HERE);
        tokio::select! {
            _ = tls.secure(stream, &host) => panic!("nobody has answered"),
            // The type of a record that is of a handshake.
            said = begun => assert_eq!(said, 22),
        }
        assert!(SockRef::from(&socket).tcp_nodelay().expect("an option"));
    }
}
