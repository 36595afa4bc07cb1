//! What clients that come by TLS are shown, and what they have to show.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{Error, RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

/// What clients that come by TLS are shown, and what they have to show. Cheap to clone.
#[derive(Clone)]
pub struct EntranceTls {
    config: Arc<ServerConfig>,
    wants_certificates: bool,
}

impl fmt::Debug for EntranceTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntranceTls")
            .field("wants_certificates", &self.wants_certificates)
            .finish_non_exhaustive()
    }
}

/// What can't be used.
#[derive(Debug, thiserror::Error)]
pub enum InvalidTls {
    /// What clients are to be shown.
    #[error("{0}")]
    Shown(Error),
    /// The authorities of clients.
    #[error("{0}")]
    Clients(VerifierBuilderError),
}

impl EntranceTls {
    /// Clients are shown this. Each has to show a certificate that one of these authorities vouches for, if there are any. `protocol` is spoken by
    /// those who name any (RFC 7301), if it has a name.
    pub fn new(
        shown: CertifiedKey,
        clients: Option<RootCertStore>,
        protocol: Option<&[u8]>,
    ) -> Result<Self, InvalidTls> {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone());
        let builder = builder
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(InvalidTls::Shown)?;
        let wants_certificates = clients.is_some();
        let builder = match clients {
            Some(authorities) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider);
                builder.with_client_cert_verifier(verifier.build().map_err(InvalidTls::Clients)?)
            }
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(shown)));
        config.alpn_protocols = protocol.into_iter().map(Into::into).collect();
        if wants_certificates {
            // Who resumes a session shows no certificate, which may have expired since.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(Self { config: Arc::new(config), wants_certificates })
    }

    /// What leads a handshake.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        self.config.clone().into()
    }

    /// Whether each client has to show a certificate.
    #[must_use]
    pub fn wants_certificates(&self) -> bool {
        self.wants_certificates
    }
}
