//! HTTPS of `polypath serve`: whose certificate it shows, and one of its own making.

use std::collections::BTreeSet;
use std::io::{self, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use polypath_netsetup::abilities::Interfaces;
use polypath_system::Namespace;
use rcgen::{CertificateParams, DnType, KeyPair, SanType, date_time_ymd};
use tokio::signal::unix::{SignalKind, signal};

use super::{Failure, cannot_write, complain, write_file};
use crate::web::{Certificate, CertificateError, Tls};

/// How long a certificate of our own making is valid. The clocks of clients may be behind by as much as a day.
const VALID: Duration = Duration::from_secs(365 * 86_400);
const CLOCKS_DIFFER: Duration = Duration::from_secs(86_400);
const HOST_NAME: &str = "/proc/sys/kernel/hostname";
const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "HTTPS")]
pub(super) struct TlsArguments {
    /// Serve by HTTPS with the certificate in FILE (PEM), and those behind it that lead to an authority
    #[arg(long, value_name = "FILE", requires = "tls_key", conflicts_with = "tls_self_signed")]
    tls_cert: Option<PathBuf>,
    /// The key of the certificate (PEM, without a passphrase)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Serve by HTTPS with a certificate that is made now, for this machine's names and addresses; with =FILE it is written
    /// there, for `--cacert FILE` of clients
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    tls_self_signed: Option<Option<PathBuf>>,
}

impl TlsArguments {
    /// The scheme of URLs that lead here.
    pub(super) fn scheme(&self) -> &'static str {
        if self.tls_cert.is_some() || self.tls_self_signed.is_some() { "https" } else { "http" }
    }

    pub(super) fn is_self_signed(&self) -> bool {
        self.tls_self_signed.is_some()
    }

    /// Finds out before anything begins whether it can be used.
    pub(super) fn start(
        &self,
        names: &[String],
        addresses: impl IntoIterator<Item = IpAddr>,
    ) -> Result<Option<Offer>, Failure> {
        let (certificate, note) = match (self.files(), &self.tls_self_signed) {
            (Some((certificate, key)), _) => (of_files(certificate, key).map_err(Failure::input)?, None),
            (None, Some(place)) => {
                let (certificate, note) = made(names, addresses, place.as_deref())?;
                (certificate, Some(note))
            }
            (None, None) => return Ok(None),
        };
        let tls = Tls::new(certificate).map_err(Failure::run)?;
        Ok(Some(Offer { tls, note }))
    }

    fn files(&self) -> Option<(&Path, &Path)> {
        self.tls_cert.as_deref().zip(self.tls_key.as_deref())
    }

    /// Whether SIGHUP means that the files have changed, as `systemctl reload` says it to services. What hangs up a terminal is the
    /// same signal, and ends the command there.
    pub(super) fn heeds_hangup(&self) -> bool {
        self.files().is_some() && std::fs::File::open("/dev/tty").is_err()
    }

    /// Reads the files again at each SIGHUP.
    pub(super) async fn renew(&self, tls: &Tls) -> Result<(), Failure> {
        let mut hangups = signal(SignalKind::hangup()).map_err(Failure::run)?;
        while let Some((certificate, key)) = self.files()
            && hangups.recv().await.is_some()
        {
            match of_files(certificate, key) {
                Ok(certificate) => tls.renew(certificate),
                Err(error) => complain(&format!("{error}; the certificate stays as it was")),
            }
        }
        std::future::pending().await
    }
}

/// HTTPS that can be served.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) tls: Tls,
    /// What people have to know of the certificate.
    pub(super) note: Option<String>,
}

fn of_files(certificate: &Path, key: &Path) -> Result<Certificate, CertificateError> {
    let found = Certificate::of_files(certificate, key)?;
    if let Some(untimely) = found.untimely(SystemTime::now()) {
        complain(&format!("{}: {untimely}; clients will refuse it", certificate.display()));
    }
    Ok(found)
}

/// A certificate of our own making, and what to say of it.
fn made(
    names: &[String],
    addresses: impl IntoIterator<Item = IpAddr>,
    place: Option<&Path>,
) -> Result<(Certificate, String), Failure> {
    let failed = |error: rcgen::Error| Failure::Run(format!("can't make a certificate: {error}"));
    let key = KeyPair::generate().map_err(failed)?;
    let signed = params(names, addresses, SystemTime::now())?.self_signed(&key).map_err(failed)?;
    let certificate =
        Certificate::of_der(signed.der().to_vec(), key.serialize_der()).map_err(Failure::run)?;
    let sum = certificate.fingerprint();
    let note = match place {
        Some(place) => {
            write(place, &signed.pem())?;
            format!("The certificate is in {} (--cacert); its SHA-256 is {sum}", place.display())
        }
        None => format!("The SHA-256 of the certificate is {sum}"),
    };
    Ok((certificate, note))
}

/// For all names and addresses by which clients may call this machine.
fn params(
    names: &[String],
    addresses: impl IntoIterator<Item = IpAddr>,
    now: SystemTime,
) -> Result<CertificateParams, Failure> {
    let host = std::fs::read_to_string(HOST_NAME).unwrap_or_default();
    // A name that this system has by chance may be none that a certificate can have.
    let host = Some(host.trim()).filter(|host| host.is_ascii() && !host.is_empty());
    let dns: BTreeSet<&str> =
        ["localhost"].into_iter().chain(host).chain(names.iter().map(String::as_str)).collect();
    // Names may be addresses.
    let mut params = CertificateParams::new(dns.into_iter().map(str::to_string).collect::<Vec<_>>())
        .map_err(|error| Failure::Input(format!("--name: {error}; expected names of hosts")))?;
    let found = Namespace::current().and_then(|namespace| Interfaces::look(&namespace)).unwrap_or_default();
    let own = found.all.into_iter().flat_map(|link| link.addresses);
    let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
    let addresses: BTreeSet<IpAddr> = loopback
        .into_iter()
        .chain(own)
        .chain(addresses)
        .map(|address| address.to_canonical())
        .filter(|address| !address.is_unspecified())
        .collect();
    for address in addresses.into_iter().map(SanType::IpAddress) {
        if !params.subject_alt_names.contains(&address) {
            params.subject_alt_names.push(address);
        }
    }
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "polypath serve");
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let at = |since: Duration| date_time_ymd(1970, 1, 1) + Duration::from_secs(since.as_secs());
    params.not_before = at(since.saturating_sub(CLOCKS_DIFFER));
    params.not_after = at(since + VALID);
    Ok(params)
}

/// In place of an earlier certificate, but of nothing else.
fn write(place: &Path, pem: &str) -> Result<(), Failure> {
    let mut begin = Vec::new();
    match std::fs::File::open(place) {
        Ok(file) => {
            file.take(BEGIN.len() as u64)
                .read_to_end(&mut begin)
                .map_err(|error| cannot_write(place, &error))?;
            if !begin.is_empty() && begin != BEGIN {
                let place = place.display();
                return Err(Failure::Input(format!(
                    "{place}: there is something else than a certificate; expected another place for it"
                )));
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(cannot_write(place, &error)),
    }
    write_file(place, pem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_for_the_names_and_addresses_of_this_machine() {
        let names = ["nas.example".to_string(), "192.0.2.9".into()];
        let addresses = ["::ffff:192.0.2.7".parse().expect("one"), IpAddr::from([0, 0, 0, 0])];
        let params = params(&names, addresses, UNIX_EPOCH + VALID).expect("names");
        let found: Vec<String> =
            params.subject_alt_names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>();
        for expected in ["localhost", "nas.example", "127.0.0.1", "::1", "192.0.2.7", "192.0.2.9"] {
            let count = found
                .iter()
                .filter(|name| {
                    name.contains(&format!("({expected})")) || name.contains(&format!("\"{expected}\""))
                })
                .count();
            assert_eq!(count, 1, "{expected} in {found:?}");
        }
        assert!(!found.iter().any(|name| name.contains("0.0.0.0")), "{found:?}");
        assert_eq!(params.not_after - params.not_before, VALID + CLOCKS_DIFFER);
        assert!(super::params(&["no name é".into()], [], UNIX_EPOCH).is_err());
    }

    #[test]
    fn nothing_but_a_certificate_is_overwritten() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("cert.pem");
        let pem = |letter: &str| format!("-----BEGIN CERTIFICATE-----\n{letter}\n");
        for letter in ["a", "b"] {
            write(&place, &pem(letter)).expect("a new one, or an earlier one");
        }
        assert_eq!(std::fs::read_to_string(&place).expect("a file"), pem("b"));
        std::fs::write(&place, "-----BEGIN PRIVATE KEY-----\n").expect("room");
        assert!(write(&place, "c").is_err());
        assert!(std::fs::read_to_string(&place).expect("a file").contains("PRIVATE"));
    }
}
