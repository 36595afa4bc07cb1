//! What requests of files in ranges and of streams have in common, in curl's words.

use std::path::PathBuf;

use clap::Args;
use polypath_fetch::net::{Proxy, Tls, TlsOptions};

use super::Failure;
use super::http_cookies::{CookieArguments, KeptCookies};

#[derive(Args, Clone, Debug, Default)]
pub(super) struct HttpArguments {
    /// Send a field with every request, for example "Accept-Language: de"; repeatable
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    fields: Vec<String>,
    /// Say who asks (HTTP basic authentication)
    #[arg(short, long, value_name = "USER:PASSWORD")]
    user: Option<String>,
    /// Go through a proxy: http://, which may be left out, or socks5h://
    #[arg(short = 'x', long, value_name = "URL")]
    proxy: Option<String>,
    /// Verify servers by the certificates in FILE, in place of the system's
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    cacert: Option<PathBuf>,
    /// Verify no server: whoever is on the way can read and change everything
    #[arg(short = 'k', long)]
    insecure: bool,
    /// Ask by HTTP/1.1, whatever else a server may speak
    #[arg(long = "http1.1", overrides_with = "http2")]
    http1: bool,
    /// Ask by HTTP/2, if the URL is https:// and the server speaks it
    #[arg(long, overrides_with = "http1")]
    http2: bool,
    #[command(flatten)]
    cookies: CookieArguments,
}

impl HttpArguments {
    /// The options, and whether they are given.
    pub(super) fn given(&self) -> [(&'static str, bool); 9] {
        [
            ("--header", !self.fields.is_empty()),
            ("--user", self.user.is_some()),
            ("--proxy", self.proxy.is_some()),
            ("--cacert", self.cacert.is_some()),
            ("--insecure", self.insecure),
            ("--http1.1", self.http1),
            ("--http2", self.http2),
            ("--cookie", self.cookies.are_given()),
            ("--cookie-jar", self.cookies.are_kept()),
        ]
    }

    pub(super) fn wants_http2(&self) -> bool {
        self.http2
    }

    pub(super) fn has_user(&self) -> bool {
        self.user.is_some()
    }

    /// How servers are verified.
    pub(super) fn tls(&self) -> Result<Tls, Failure> {
        let tls = TlsOptions {
            ca_file: self.cacert.clone(),
            is_unverified: self.insecure,
            offers_http2: self.http2,
        };
        Tls::new(&tls).map_err(Failure::input)
    }

    /// Anybody may answer for a server.
    pub(super) const fn is_unverified(&self) -> bool {
        self.insecure
    }

    pub(super) fn proxy(&self) -> Result<Option<Proxy>, Failure> {
        // Read here, as the library of the command line shows what it can't read, with all secrets.
        let proxy = self.proxy.as_deref().map(|text| match text.contains("://") {
            true => text.parse::<Proxy>(),
            false => format!("http://{text}").parse(),
        });
        let proxy = proxy.transpose();
        proxy.map_err(|error| Failure::Input(format!("--proxy: {error}")))
    }

    /// The cookies that are there, and where they go at the end.
    pub(super) fn cookies(&self) -> Result<KeptCookies, Failure> {
        self.cookies.open(self.insecure)
    }

    /// The fields of every request.
    pub(super) fn fields(&self) -> Result<Vec<(String, String)>, Failure> {
        let fields: Result<Vec<_>, _> = self.fields.iter().map(|text| parse_field(text)).collect();
        let mut fields = fields.map_err(|error| Failure::Input(format!("--header: {error}")))?;
        if let Some(user) = &self.user {
            fields.push(("Authorization".into(), basic(user)));
        }
        fields.extend(self.cookies.data()?.map(|data| ("Cookie".into(), data)));
        Ok(fields)
    }
}

/// The value of `Authorization` (RFC 7617).
fn basic(user: &str) -> String {
    use base64::Engine as _;
    let user = if user.contains(':') { user.into() } else { format!("{user}:") };
    format!("Basic {}", base64::prelude::BASE64_STANDARD.encode(user))
}

fn parse_field(text: &str) -> Result<(String, String), String> {
    let expected = "expected NAME: VALUE, such as \"Accept-Language: de\"";
    let (name, value) = text.split_once(':').ok_or_else(|| format!("it has no colon; {expected}"))?;
    let (name, value) = (name.trim(), value.trim());
    if name.is_empty() {
        return Err(format!("it has no name; {expected}"));
    }
    if ["range", "host"].iter().any(|ours| name.eq_ignore_ascii_case(ours)) {
        return Err(format!("{name} follows from what is fetched; expected another field"));
    }
    Ok((name.into(), value.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_a_name_and_a_value() {
        assert_eq!(parse_field("Accept:  a: b"), Ok(("Accept".into(), "a: b".into())));
        for (text, problem) in [("Accept", "no colon"), (": x", "no name"), ("Range: bytes=0-", "follows")] {
            assert!(parse_field(text).unwrap_err().contains(problem), "{text}");
        }
    }

    #[test]
    fn a_user_without_a_password_has_an_empty_one() {
        assert_eq!(basic("a"), basic("a:"));
        assert_eq!(basic("Aladdin:open sesame"), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
    }
}
