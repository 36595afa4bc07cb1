//! How a client comes by TLS.

use std::io;
use std::pin::pin;

use bytes::Bytes;
use rustls::Error;
use rustls::pki_types::CertificateDer;
use tokio::time::timeout;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use super::entrance_tls::EntranceTls;
use super::leg::Leg;
use super::negotiate::say_farewell;
use super::secured::{Raw, Secured};
use super::session::Ending;
use super::within::Inner;
use crate::failure::Distrust;

/// No name of a client is longer, as far as it is told.
const LONGEST_NAME: usize = 255;
/// A client that did not wait for what it would be told, or has not been one of TLS.
const LEFT: &str = "the client left before the handshake of TLS was over";
const TOO_LATE: &str = "the client came through no handshake of TLS in the time for it";

impl Inner {
    /// The handshake, and whom the client's certificate names. Who does not come through is told why, as TLS tells it.
    pub(super) async fn secure(
        &self,
        tls: &EntranceTls,
        stream: Leg,
        early: Bytes,
    ) -> Result<(Leg, Option<Box<str>>), Ending> {
        let Leg::Plain(stream) = stream else { return Err(Ending::Unasked) };
        let accepting = async {
            let accepting = tls.acceptor().accept(Raw::new(stream, early));
            match accepting.into_fallible().await {
                Ok(stream) => Ok(Secured::new(stream)),
                Err((error, raw)) => {
                    let ending = ending_of(&error);
                    if let Ending::NotSecured(_) = ending {
                        // Closing with bytes unread would reset the connection before it has read why.
                        say_farewell(&mut Leg::Plain(raw.into_stream()), &Bytes::new()).await;
                    }
                    Err(ending)
                }
            }
        };
        let limit = self.settings().timeouts.asking;
        let secured = match self.unless_stopped(pin!(timeout(limit, accepting))).await {
            Some(Ok(secured)) => secured?,
            Some(Err(_)) => return Err(Ending::NoHandshake(TOO_LATE)),
            None => return Err(Ending::Stopped),
        };
        let shown = secured.peer_certificate().filter(|_| tls.wants_certificates());
        let named = shown.and_then(|shown| name_in(&shown));
        Ok((Leg::Tls(Box::new(secured)), named))
    }
}

/// What came of a handshake that failed.
fn ending_of(error: &io::Error) -> Ending {
    let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) else {
        return Ending::NoHandshake(LEFT);
    };
    let why = match error {
        Error::NoCertificatesPresented => "it shows no certificate, which is wanted here".into(),
        Error::InvalidCertificate(problem) => {
            format!("its certificate is not taken here: {}", Distrust::from(problem))
        }
        Error::AlertReceived(alert) => format!("it gave up the handshake of TLS: {alert:?}"),
        Error::InvalidMessage(_) => "it does not speak TLS, which is spoken here".into(),
        error => format!("no handshake of TLS comes about: {error}"),
    };
    Ending::NotSecured(why.into())
}

/// The first name of a host or address of mail that it is for, or else the common name of its subject.
fn name_in(certificate: &CertificateDer<'_>) -> Option<Box<str>> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let tbs = certificate.tbs_certificate();
    let others = tbs.get_extension::<SubjectAltName>().ok().flatten();
    let name = others.and_then(|(_, SubjectAltName(names))| {
        names.into_iter().find_map(|name| match name {
            GeneralName::DnsName(name) | GeneralName::Rfc822Name(name) => Some(name.to_string()),
            _ => None,
        })
    });
    let common = || tbs.subject().common_name().ok().flatten().map(|name| name.value().into_owned());
    let name = name.or_else(common)?;
    let is_name = (1..=LONGEST_NAME).contains(&name.len()) && !name.chars().any(char::is_control);
    is_name.then(|| name.into())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    #[test]
    fn a_client_is_called_by_the_first_name_in_its_certificate() {
        let mail = || SanType::Rfc822Name("ann@example.org".try_into().expect("an address"));
        let host = || SanType::DnsName("laptop.example.org".try_into().expect("a name"));
        let address = || SanType::IpAddress([192, 0, 2, 1].into());
        for (others, common, expected) in [
            (vec![mail(), host()], Some("Ann"), Some("ann@example.org")),
            (vec![address(), host(), mail()], None, Some("laptop.example.org")),
            (vec![address()], Some("Ann Müller"), Some("Ann Müller")),
            (vec![], None, None),
            (vec![], Some("a\u{1b}[2J"), None),
            (vec![], Some(""), None),
        ] {
            let mut params = CertificateParams::default();
            params.distinguished_name = rcgen::DistinguishedName::new();
            common.into_iter().for_each(|name| params.distinguished_name.push(DnType::CommonName, name));
            params.subject_alt_names = others;
            let made = params.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate");
            assert_eq!(name_in(made.der()).as_deref(), expected, "{common:?}");
        }
        assert_eq!(name_in(&CertificateDer::from_slice(b"nonsense")), None);
    }
}
