//! Where clients enter, as the file says it.

use std::path::Path;

use polypath_netsetup::InterceptBy;
use polypath_proxy::proxy_protocol::ProxyProtocolVersion;
use schemars::JsonSchema;
use serde::Deserialize;

use super::entrances::{EntrancePlan, Protocol, parse_listen, parse_port};
use super::tls::TlsText;
use super::transparent::Transparent;
use super::wrong::{Wrong, each};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct EntranceText {
    /// What is spoken.
    protocol: ProtocolName,
    /// Where to listen: `ADDRESS:PORT`, or a port at 127.0.0.1. Of a `transparent` one, the port alone.
    listen: String,
    /// Where a `forward` leads: `HOST:PORT`.
    to: Option<String>,
    /// Clients come by TLS: of `http`, `socks` and `forward`.
    tls: Option<TlsText>,
    /// Networks whose connections begin with a header of the PROXY protocol.
    #[serde(default)]
    proxy_protocol_from: Vec<String>,
    /// The version of such a header that servers get.
    proxy_protocol_to_servers: Option<HeaderVersion>,
    /// Whether each client of `convert` has to show a cookie, which it gets where it comes without one.
    cookies: Option<bool>,
    /// How connections come to a `transparent` one: by `tproxy`, or as a `redirect`.
    intercept: Option<InterceptName>,
    /// Ports of servers to which connections are intercepted: `443`, `8000-8080`; all, if it names none.
    #[serde(default)]
    ports: Vec<String>,
    /// Interfaces by which the clients come that are intercepted. If it names neither these nor clients: those without a default route.
    #[serde(default)]
    interfaces: Vec<String>,
    /// Networks of the clients that are intercepted.
    #[serde(default)]
    clients: Vec<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum ProtocolName {
    Socks,
    Http,
    Forward,
    Convert,
    Transparent,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum InterceptName {
    #[default]
    Tproxy,
    Redirect,
}

impl From<InterceptName> for InterceptBy {
    fn from(name: InterceptName) -> Self {
        match name {
            InterceptName::Tproxy => Self::Tproxy,
            InterceptName::Redirect => Self::Redirect,
        }
    }
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum HeaderVersion {
    V1,
    V2,
}

impl EntranceText {
    /// What it means. Files with relative names are in this folder.
    pub(super) fn plan(&self, beside: &Path) -> Result<EntrancePlan, Wrong> {
        let intercepts = matches!(self.protocol, ProtocolName::Transparent);
        let of_intercepted = [
            ("intercept", self.intercept.is_none()),
            ("ports", self.ports.is_empty()),
            ("interfaces", self.interfaces.is_empty()),
            ("clients", self.clients.is_empty()),
        ];
        if !intercepts
            && let Some((field, _)) = of_intercepted.into_iter().find(|(_, is_left_out)| !is_left_out)
        {
            return Err((field, "only the protocol transparent intercepts: expected none".into()));
        }
        if self.cookies.is_some() && !matches!(self.protocol, ProtocolName::Convert) {
            return Err(("cookies", "only the protocol convert has them: expected none".into()));
        }
        let listen =
            parse_listen(&self.listen).map_err(|error| ("listen", format!("{}: {error}", self.listen)))?;
        let protocol = match (self.protocol, &self.to) {
            (ProtocolName::Forward, Some(to)) => {
                let target = to.parse().map_err(|error| ("to", format!("{to}: {error}")))?;
                Protocol::Forward(target)
            }
            (ProtocolName::Forward, None) => {
                return Err(("to", "expected where it leads, such as example.org:443".into()));
            }
            (_, Some(_)) => return Err(("to", "clients of this protocol say it: expected none".into())),
            (ProtocolName::Socks, None) => Protocol::Socks,
            (ProtocolName::Http, None) => Protocol::Http,
            (ProtocolName::Convert, None) => Protocol::Convert,
            (ProtocolName::Transparent, None) => return self.transparent(),
        };
        let from = self.proxy_protocol_from.iter().map(|text| text.parse());
        let from = from.collect::<Result<_, _>>();
        let mut plan = EntrancePlan::new(listen, protocol);
        plan.proxy_protocol_from = from.map_err(|error: polypath_proxy::access::NetworkError| {
            ("proxy-protocol-from", error.to_string())
        })?;
        plan.proxy_protocol_to_servers = self.proxy_protocol_to_servers.map(|version| match version {
            HeaderVersion::V1 => ProxyProtocolVersion::V1,
            HeaderVersion::V2 => ProxyProtocolVersion::V2,
        });
        if let Some(tls) = &self.tls {
            if !plan.protocol.has_tls() {
                return Err((
                    "tls",
                    "only the protocols http, socks and forward have it: expected none".into(),
                ));
            }
            plan.tls = Some(tls.read(beside).map_err(|error| ("tls", error))?);
        }
        plan.wants_cookies = self.cookies.unwrap_or(false);
        Ok(plan)
    }

    fn transparent(&self) -> Result<EntrancePlan, Wrong> {
        let listen = parse_port(&self.listen).map_err(|error| {
            ("listen", format!("where it listens follows from how it intercepts: {error}"))
        })?;
        let is_told = [
            ("tls", self.tls.is_none()),
            ("proxy-protocol-from", self.proxy_protocol_from.is_empty()),
            ("proxy-protocol-to-servers", self.proxy_protocol_to_servers.is_none()),
        ];
        if let Some((field, _)) = is_told.into_iter().find(|(_, is_left_out)| !is_left_out) {
            return Err((field, "neither clients nor servers know of this proxy: expected none".into()));
        }
        let transparent = Transparent {
            by: self.intercept.unwrap_or_default().into(),
            ports: each("ports", &self.ports)?,
            interfaces: self.interfaces.clone(),
            clients: each("clients", &self.clients)?,
        };
        Ok(EntrancePlan::new(listen, Protocol::Transparent(transparent)))
    }
}
