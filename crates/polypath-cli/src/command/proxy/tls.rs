//! TLS where clients enter, as the file says it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use polypath_proxy::net::{EntranceTls, InvalidTls};
use rustls::RootCertStore;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::web::{Certificate, authorities_in};

/// What `tls` of an entrance says. Relative names are looked for beside the proxy's file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct TlsText {
    /// A file with the certificate that clients are shown (PEM), and those behind it that lead to an authority.
    certificate: PathBuf,
    /// A file with its key (PEM, without a passphrase).
    key: PathBuf,
    /// A file with the certificates of authorities (PEM): each client has to show a certificate that one of them vouches for.
    clients: Option<PathBuf>,
}

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TlsPlan {
    certificate: Certificate,
    clients: Option<Authorities>,
    /// What is wrong with the certificate, and does not keep it from being shown.
    warning: Option<String>,
}

/// Who vouches for clients, and the file that says so.
#[derive(Clone)]
struct Authorities {
    file: String,
    known: RootCertStore,
}

impl PartialEq for Authorities {
    fn eq(&self, other: &Self) -> bool {
        (&self.file, &self.known.roots) == (&other.file, &other.known.roots)
    }
}

impl Eq for Authorities {}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorities").field("file", &self.file).finish_non_exhaustive()
    }
}

impl TlsText {
    /// Reads the files; those with relative names in this folder.
    pub(super) fn read(&self, beside: &Path) -> Result<TlsPlan, String> {
        let [certificate, key] = [&self.certificate, &self.key].map(|file| beside.join(file));
        let shown = Certificate::of_files(&certificate, &key).map_err(|error| error.to_string())?;
        let clients = match &self.clients {
            Some(file) => {
                let file = beside.join(file);
                let known = authorities_in(&file).map_err(|error| error.to_string())?;
                Some(Authorities { file: file.display().to_string(), known })
            }
            None => None,
        };
        let warning = shown
            .untimely(SystemTime::now())
            .map(|why| format!("{}: {why}; clients will refuse it", certificate.display()));
        let plan = TlsPlan { certificate: shown, clients, warning };
        plan.entrance(None).map_err(|error| match (&error, &plan.clients) {
            (InvalidTls::Clients(_), Some(clients)) => format!("{}: {error}", clients.file),
            _ => format!("{}: {error}", certificate.display()),
        })?;
        Ok(plan)
    }
}

impl TlsPlan {
    /// What it comes to, where this protocol is spoken, if that has a name.
    pub(super) fn entrance(&self, protocol: Option<&[u8]>) -> Result<EntranceTls, InvalidTls> {
        let clients = self.clients.as_ref().map(|clients| clients.known.clone());
        EntranceTls::new((*self.certificate.signing()).clone(), clients, protocol)
    }

    /// Whether each client has to show who it is.
    pub(super) fn wants_certificates(&self) -> bool {
        self.clients.is_some()
    }

    /// What has to be said of it.
    pub(super) fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }
}

/// How clients come there.
impl fmt::Display for TlsPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("by TLS")?;
        match &self.clients {
            Some(clients) => write!(f, ", with certificates of {}", clients.file),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn made(until: i32) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(["proxy.example".into()]).expect("a name");
        params.not_after = date_time_ymd(until, 1, 1);
        (params.self_signed(&key).expect("a certificate").pem(), key.serialize_pem())
    }

    #[test]
    fn what_is_wrong_is_told_by_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let (own, other, old) = (made(2090), made(2090), made(2021));
        for (name, text) in [
            ("cert", &own.0),
            ("key", &own.1),
            ("other", &other.1),
            ("old", &old.0),
            ("old-key", &old.1),
            ("empty", &String::new()),
            ("garbage", &"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned()),
        ] {
            fs::write(folder.path().join(name), text).expect("room");
        }
        let read = |certificate: &str, key: &str, clients: Option<&str>| {
            let clients = clients.map(Into::into);
            TlsText { certificate: certificate.into(), key: key.into(), clients }.read(folder.path())
        };
        let plan = read("cert", "key", Some("cert")).expect("both fit");
        assert!(plan.wants_certificates() && plan.warning().is_none());
        assert_eq!(read("cert", "key", Some("cert")), Ok(plan.clone()));
        assert_ne!(read("cert", "key", None), Ok(plan));
        let old = read("old", "old-key", None).expect("both fit");
        assert!(old.warning().is_some_and(|line| line.ends_with("; clients will refuse it")), "{old:?}");
        for (certificate, key, clients, says) in [
            ("none", "key", None, "none: can't be read: No such file"),
            ("cert", "none", None, "none: can't be read: No such file"),
            ("cert", "other", None, "other: this key does not belong to the certificate in "),
            ("cert", "key", Some("none"), "none: can't be read: No such file"),
            ("cert", "key", Some("empty"), "empty: there is no certificate in it; expected PEM"),
            ("cert", "key", Some("key"), "key: there is no certificate in it; expected PEM"),
            ("cert", "key", Some("garbage"), "garbage: a certificate in it can't be an authority's"),
        ] {
            let error = read(certificate, key, clients).expect_err(says);
            assert!(error.contains(says) && error.lines().count() == 1, "{error}");
        }
    }
}
