//! The proxy on the way, as options and the file say it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use polypath_proxy::net::{InvalidUpstream, Upstream, UpstreamTls};
use rustls::RootCertStore;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::web::{Certificate, authorities_in};

/// A URL that names one. It may have a password, and is not shown.
#[derive(Clone)]
pub(super) struct Via(String);

impl fmt::Debug for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Via")
    }
}

impl FromStr for Via {
    type Err = InvalidUpstream;

    fn from_str(text: &str) -> Result<Self, InvalidUpstream> {
        text.parse::<Upstream>().map(|_| Self(text.into()))
    }
}

/// TLS to the proxy on the way.
#[derive(Args, Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct ViaTls {
    /// Trust a proxy on the way (https, socks5+tls) by the authorities in FILE (PEM), in place of the system's
    #[arg(long = "via-ca", value_name = "FILE", requires = "via")]
    ca: Option<PathBuf>,
    /// Show it the certificate in FILE (PEM)
    #[arg(long = "via-certificate", value_name = "FILE", requires_all = ["via", "key"])]
    certificate: Option<PathBuf>,
    /// The key of the certificate (PEM, without a passphrase)
    #[arg(long = "via-key", value_name = "FILE", requires_all = ["via", "certificate"])]
    key: Option<PathBuf>,
}

impl Via {
    /// The proxy, trusted so. Relative names of files are looked for in this folder.
    pub(super) fn upstream(&self, tls: &ViaTls, beside: &Path) -> Result<Upstream, String> {
        let upstream: Upstream = self.0.parse().map_err(|error: InvalidUpstream| error.to_string())?;
        if !upstream.is_by_tls() {
            return if tls.is_empty() {
                Ok(upstream)
            } else {
                Err("only https:// and socks5+tls:// have certificates: expected none".into())
            };
        }
        let authorities = match &tls.ca {
            Some(file) => authorities_in(&beside.join(file)).map_err(|error| error.to_string())?,
            None => authorities_of_system()?,
        };
        let shown = match (&tls.certificate, &tls.key) {
            (Some(certificate), Some(key)) => {
                let shown = Certificate::of_files(&beside.join(certificate), &beside.join(key));
                Some((*shown.map_err(|error| error.to_string())?.signing()).clone())
            }
            (None, None) => None,
            _ => return Err("expected certificate and key together".into()),
        };
        let tls = UpstreamTls::new(authorities, shown).map_err(|error| error.to_string())?;
        Ok(upstream.with_tls(tls))
    }
}

impl ViaTls {
    fn is_empty(&self) -> bool {
        self.ca.is_none() && self.certificate.is_none() && self.key.is_none()
    }
}

fn authorities_of_system() -> Result<RootCertStore, String> {
    let mut authorities = RootCertStore::empty();
    // One that can't be read is no reason not to use the others.
    authorities.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if authorities.is_empty() {
        return Err("this system trusts no authority: expected ca, a file of those to be trusted".into());
    }
    Ok(authorities)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_wrong_with_certificates_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let made = rcgen::generate_simple_self_signed(["proxy.example".into()]).expect("a pair");
        fs::write(folder.path().join("cert"), made.cert.pem()).expect("room");
        fs::write(folder.path().join("key"), made.signing_key.serialize_pem()).expect("room");
        let of = |url: &str, ca: Option<&str>, certificate: Option<&str>, key: Option<&str>| {
            let [ca, certificate, key] = [ca, certificate, key].map(|file| file.map(PathBuf::from));
            let via: Via = url.parse().expect("a URL");
            via.upstream(&ViaTls { ca, certificate, key }, folder.path()).map(|upstream| upstream.to_string())
        };
        let https = "https://proxy.example:8443";
        assert_eq!(of(https, Some("cert"), Some("cert"), Some("key")), Ok(https.into()));
        assert_eq!(of("http://a.example:1", None, None, None), Ok("http://a.example:1".into()));
        for (said, says) in [
            (of("http://a.example:1", Some("cert"), None, None), "only https:// and socks5+tls://"),
            (of(https, Some("key"), None, None), "key: there is no certificate in it"),
            (of(https, Some("cert"), Some("cert"), None), "expected certificate and key together"),
            (of(https, Some("cert"), Some("cert"), Some("none")), "none: can't be read"),
        ] {
            let error = said.expect_err(says);
            assert!(error.contains(says), "{error}");
        }
    }
}
