//! Who this server is: a certificate and its key.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError as Invalid, Error, InconsistentKeys, RootCertStore};
use sha2::{Digest as _, Sha256};

/// A certificate, those that lead from it to an authority, and its key.
#[derive(Clone, Debug)]
pub(crate) struct Certificate(Arc<CertifiedKey>);

/// A certificate or a key that can't be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", file.display())]
pub(crate) struct CertificateError {
    file: PathBuf,
    why: String,
}

fn problem(file: &Path, why: impl Into<String>) -> CertificateError {
    CertificateError { file: file.to_owned(), why: why.into() }
}

impl Certificate {
    /// From two files in PEM. They may be one.
    pub(crate) fn of_files(certificates: &Path, key: &Path) -> Result<Self, CertificateError> {
        let chain = chain_of(&read(certificates)?).map_err(|why| problem(certificates, why))?;
        let of_key = key_of(&read(key)?).map_err(|why| problem(key, why))?;
        let made = CertifiedKey::from_der(chain, of_key, &ring::default_provider());
        made.map(|made| Self(Arc::new(made))).map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => problem(
                key,
                format!(
                    "this key does not belong to the certificate in {}; expected the one that it was made with",
                    certificates.display()
                ),
            ),
            Error::InvalidCertificate(error) => {
                problem(certificates, format!("its first certificate can't be used: {error}"))
            }
            error => problem(key, format!("this key can't be used: {error}; expected ECDSA, Ed25519 or RSA")),
        })
    }

    /// From what was just made.
    pub(crate) fn of_der(certificate: Vec<u8>, key: Vec<u8>) -> Result<Self, Error> {
        let key = PrivateKeyDer::Pkcs8(key.into());
        CertifiedKey::from_der(vec![certificate.into()], key, &ring::default_provider())
            .map(|made| Self(Arc::new(made)))
    }

    /// What `openssl x509 -fingerprint -sha256` tells of it.
    pub(crate) fn fingerprint(&self) -> String {
        let sum = self.0.cert.first().map_or_else(Vec::new, |first| Sha256::digest(first).to_vec());
        sum.iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":")
    }

    /// Why clients will not take it now, as far as time is the cause.
    pub(crate) fn untimely(&self, now: SystemTime) -> Option<String> {
        let provider = Arc::new(ring::default_provider());
        let (first, others) = self.0.cert.split_first()?;
        let mut roots = RootCertStore::empty();
        roots.add(first.clone()).ok()?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().ok()?;
        let name = ServerName::try_from("localhost").ok()?;
        let now = UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).ok()?);
        // Times are looked at first. What else a client would say is the client's.
        match verifier.verify_server_cert(first, others, &name, &[], now) {
            Err(Error::InvalidCertificate(Invalid::ExpiredContext { not_after, .. })) => {
                Some(format!("it has expired on {}", date(not_after)))
            }
            Err(Error::InvalidCertificate(Invalid::NotValidYetContext { not_before, .. })) => {
                Some(format!("it begins to be valid on {}", date(not_before)))
            }
            _ => None,
        }
    }

    /// To show it, and to sign with its key.
    pub(crate) fn signing(&self) -> Arc<CertifiedKey> {
        self.0.clone()
    }
}

/// The same certificates: their key is one.
impl PartialEq for Certificate {
    fn eq(&self, other: &Self) -> bool {
        self.0.cert == other.0.cert
    }
}

impl Eq for Certificate {}

/// Certificates of authorities, from a file in PEM.
pub(crate) fn authorities_in(file: &Path) -> Result<RootCertStore, CertificateError> {
    let mut authorities = RootCertStore::empty();
    for certificate in chain_of(&read(file)?).map_err(|why| problem(file, why))? {
        authorities.add(certificate).map_err(|error| {
            problem(file, format!("a certificate in it can't be an authority's: {error}"))
        })?;
    }
    Ok(authorities)
}

fn date(time: UnixTime) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(time.as_secs()))
}

fn read(file: &Path) -> Result<Vec<u8>, CertificateError> {
    std::fs::read(file).map_err(|error| problem(file, format!("can't be read: {error}")))
}

fn chain_of(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let chain = chain.map_err(|error| no_pem(&error))?;
    if chain.is_empty() {
        return Err("there is no certificate in it; expected PEM, with BEGIN CERTIFICATE".into());
    }
    Ok(chain)
}

fn key_of(text: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    let encrypted = b"BEGIN ENCRYPTED PRIVATE KEY";
    if text.windows(encrypted.len()).any(|part| part == encrypted) {
        return Err(
            "this key has a passphrase; expected one without (openssl pkey -in FILE -out FILE)".into()
        );
    }
    PrivateKeyDer::from_pem_slice(text).map_err(|error| match error {
        pem::Error::NoItemsFound => {
            "there is no private key in it; expected PEM, with BEGIN PRIVATE KEY".into()
        }
        error => no_pem(&error),
    })
}

/// No more than the name of a section is shown: behind it, in one line, may be a key.
fn no_pem(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { end_marker } => {
            let marker = String::from_utf8_lossy(end_marker);
            let name: String =
                marker.chars().take_while(|c| *c == ' ' || c.is_ascii_alphanumeric()).collect();
            format!("this is no whole PEM; expected -----END {name}----- on a line of its own")
        }
        pem::Error::IllegalSectionStart { .. } => {
            "this is no PEM: a line begins with -----BEGIN and does not end with -----".into()
        }
        error => format!("this is no PEM: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn made(from: i32, to: i32) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(["localhost".into()]).expect("a name");
        (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(to, 1, 1));
        (params.self_signed(&key).expect("a certificate").pem(), key.serialize_pem())
    }

    #[test]
    fn what_is_no_pair_is_told_by_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str, content: &str| {
            let place = folder.path().join(name);
            fs::write(&place, content).expect("room");
            place
        };
        let (first, second) = (made(2020, 2090), made(2020, 2090));
        let (cert, key) = (at("cert", &first.0), at("key", &first.1));
        let both = at("both", &(first.0.clone() + &first.1));
        assert!(Certificate::of_files(&cert, &key).is_ok() && Certificate::of_files(&both, &both).is_ok());
        let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        let broken = "-----BEGIN CERTIFICATE-----\n????\n-----END CERTIFICATE-----\n";
        let cut_off = "-----BEGIN CERTIFICATE-----\nAAAA\n";
        let one_line = first.1.replace('\n', "");
        let begun = "-----BEGIN CERTIFICATE---\nAAAA\n";
        let nonsense = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (cert, key, says) in [
            (&cert, &at("other", &second.1), "other: this key does not belong to the certificate in "),
            (&key, &key, "key: there is no certificate in it; expected PEM"),
            (&cert, &cert, "cert: there is no private key in it; expected PEM"),
            (&at("broken", broken), &key, "broken: this is no PEM"),
            (
                &at("cut-off", cut_off),
                &key,
                "cut-off: this is no whole PEM; expected -----END CERTIFICATE----- ",
            ),
            (
                &cert,
                &at("one-line", &one_line),
                "one-line: this is no whole PEM; expected -----END PRIVATE KEY-----",
            ),
            (&at("begun", begun), &key, "begun: this is no PEM: a line begins with -----BEGIN and "),
            (&at("nonsense", nonsense), &key, "nonsense: its first certificate can't be used"),
            (&cert, &at("encrypted", encrypted), "encrypted: this key has a passphrase"),
            (&folder.path().join("none"), &key, "none: can't be read: No such file"),
        ] {
            let error = Certificate::of_files(cert, key).expect_err(says).to_string();
            assert!(error.contains(says) && error.lines().count() == 1, "{error}");
            // No part of a key is shown.
            assert!(error.len() < folder.path().as_os_str().len() * 2 + 200, "{error}");
        }
    }

    #[test]
    fn a_certificate_has_its_time() {
        let (cert, key) = made(2020, 2030);
        let of = |text: &str| pem::PemObject::from_pem_slice(text.as_bytes()).expect("PEM");
        let cert: CertificateDer<'_> = of(&cert);
        let key = key_of(key.as_bytes()).expect("PEM");
        let cert = Certificate::of_der(cert.to_vec(), key.secret_der().to_vec()).expect("a pair");
        let at = |years: u64| UNIX_EPOCH + Duration::from_secs(years * 31_557_600);
        assert_eq!(cert.untimely(at(55)), None);
        let expired = cert.untimely(at(65)).expect("a problem");
        assert_eq!(expired, "it has expired on Tue, 01 Jan 2030 00:00:00 GMT");
        assert!(cert.untimely(at(45)).is_some_and(|early| early.contains("begins to be valid")));
        assert_eq!(cert.fingerprint().len(), 95);
    }
}
