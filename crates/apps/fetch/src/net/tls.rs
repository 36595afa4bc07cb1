use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Failure;
use super::endpoint::Endpoint;

/// A version of HTTP that both ends agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1, or an older one.
    #[default]
    Http1,
    /// HTTP/2.
    Http2,
}

impl Protocol {
    /// What it is called inside TLS (RFC 7301).
    const fn alpn(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }

    /// The one that was agreed on inside TLS; a server that says nothing speaks HTTP/1.1.
    pub(super) fn agreed(connection: &ClientConnection) -> Option<Self> {
        let Some(alpn) = connection.alpn_protocol() else { return Some(Self::Http1) };
        [Self::Http1, Self::Http2].into_iter().find(|protocol| protocol.alpn() == alpn)
    }
}

/// How servers show who they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// A file of certificates in PEM, by which servers' are verified in place of the system's.
    pub ca_file: Option<PathBuf>,
    /// Whatever a server shows is taken: whoever is on the way can read and change everything.
    pub is_unverified: bool,
    /// Servers may choose HTTP/2.
    pub offers_http2: bool,
}

/// Certificates that can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {why}", file.display())]
pub struct TlsSetupError {
    file: PathBuf,
    why: String,
}

/// What connections with TLS share: certificates, and sessions to go on with.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
    has_roots: bool,
}

impl Tls {
    /// Reads the certificates.
    pub fn new(options: &TlsOptions) -> Result<Self, TlsSetupError> {
        let known = options.ca_file.as_deref().map(certificates_of_file).transpose()?;
        let roots = match (&options.ca_file, &known) {
            (Some(file), Some(known)) => roots_of(file, known)?,
            _ if options.is_unverified => RootCertStore::empty(),
            _ => roots_of_system(),
        };
        let has_roots = options.is_unverified || !roots.is_empty();
        let provider = Arc::new(ring::default_provider());
        // The provider has what both versions need.
        let versions: &[&rustls::SupportedProtocolVersion] =
            &[&rustls::version::TLS13, &rustls::version::TLS12];
        let wrong = |why: String| {
            let file = options.ca_file.clone().unwrap_or_else(|| PathBuf::from("TLS"));
            TlsSetupError { file, why }
        };
        let builder =
            ClientConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(versions);
        let builder = builder.map_err(|error| wrong(error.to_string()))?;
        let taken = match known {
            _ if options.is_unverified => Some(Taken::All),
            Some(known) => {
                let by_roots = WebPkiServerVerifier::builder_with_provider(
                    Arc::new(roots.clone()),
                    Arc::clone(&provider),
                );
                let by_roots = by_roots.build().map_err(|error| wrong(error.to_string()))?;
                Some(Taken::Named { known, by_roots })
            }
            None => None,
        };
        let builder = match taken {
            Some(taken) => {
                let verifier = Verifier { taken, provider };
                builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
            }
            None => builder.with_root_certificates(roots),
        };
        let mut config = builder.with_no_client_auth();
        let offered: &[Protocol] =
            if options.offers_http2 { &[Protocol::Http2, Protocol::Http1] } else { &[Protocol::Http1] };
        config.alpn_protocols = offered.iter().map(|protocol| protocol.alpn().to_vec()).collect();
        Ok(Self { config: Arc::new(config), has_roots })
    }

    /// Begins TLS on a connection to a host, or through a proxy to it.
    pub(super) async fn connect(
        &self,
        to: &Endpoint,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, Failure> {
        if !self.has_roots {
            return Err(Failure::NoRoots);
        }
        let name = match to.ip() {
            Some(addr) => ServerName::IpAddress(addr.into()),
            None => ServerName::try_from(to.name()).map_err(|_| Failure::Url)?,
        };
        let connected = TlsConnector::from(Arc::clone(&self.config)).connect(name, stream).await;
        let stream = connected.map_err(Failure::Tls)?;
        Protocol::agreed(stream.get_ref().1).map(|_| stream).ok_or(Failure::Protocol)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("has_roots", &self.has_roots).finish_non_exhaustive()
    }
}

fn certificates_of_file(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsSetupError> {
    let wrong = |why: String| TlsSetupError { file: file.to_owned(), why };
    let bytes = std::fs::read(file).map_err(|error| wrong(super::error::words(&error)))?;
    let certificates = CertificateDer::pem_slice_iter(&bytes);
    let certificates: Result<Vec<_>, _> = certificates.collect();
    certificates.map_err(|error| wrong(format!("no PEM: {error}")))
}

fn roots_of(file: &Path, known: &[CertificateDer<'static>]) -> Result<RootCertStore, TlsSetupError> {
    let wrong = |why: String| TlsSetupError { file: file.to_owned(), why };
    let mut roots = RootCertStore::empty();
    for certificate in known {
        let added = roots.add(certificate.clone());
        added.map_err(|error| wrong(format!("a certificate can't be used: {error}")))?;
    }
    if roots.is_empty() {
        return Err(wrong("there is no certificate in it; expected some in PEM".to_owned()));
    }
    Ok(roots)
}

fn roots_of_system() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    // One that can't be read is no reason not to use the others.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// Whom the library would not take as they are. What the server signs must be signed with its key all the same.
#[derive(Debug)]
enum Taken {
    /// Everybody.
    All,
    /// Those that the certificates of a file vouch for. One that is in the file itself, signed by nobody else, is taken as it is for the names
    /// in it: that is what openssl makes by `req -x509`, and the library takes an authority's certificate for no server's.
    Named { known: Vec<CertificateDer<'static>>, by_roots: Arc<WebPkiServerVerifier> },
}

#[derive(Debug)]
struct Verifier {
    taken: Taken,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Taken::Named { known, by_roots } = &self.taken else {
            return Ok(ServerCertVerified::assertion());
        };
        let verified =
            by_roots.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            Err(rustls::Error::InvalidCertificate(CertificateError::Other(_)))
                if known.iter().any(|known| known.as_ref() == end_entity.as_ref()) =>
            {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_certificates_is_said_in_words() {
        let folder = tempfile::tempdir().unwrap();
        let of = |name: &str, text: Option<&str>| {
            let ca_file = folder.path().join(name);
            if let Some(text) = text {
                std::fs::write(&ca_file, text).unwrap();
            }
            Tls::new(&TlsOptions { ca_file: Some(ca_file), ..TlsOptions::default() }).unwrap_err().to_string()
        };
        assert!(of("missing.pem", None).ends_with("missing.pem: No such file or directory"));
        assert!(
            of("empty.pem", Some("hello")).ends_with("there is no certificate in it; expected some in PEM")
        );
        let begun = "-----BEGIN CERTIFICATE-----\nAAAA\n";
        assert!(of("cut.pem", Some(begun)).contains("cut.pem: no PEM: "));
        let none = format!("{begun}-----END CERTIFICATE-----\n");
        assert!(of("none.pem", Some(&none)).contains("none.pem: a certificate can't be used: "));
    }
}
