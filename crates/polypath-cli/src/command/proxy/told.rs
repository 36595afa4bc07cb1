//! A line for each connection.

use std::time::SystemTime;

use polypath_proxy::net::{Ending, SessionEnd};
use serde::Serialize;

use super::super::harmless;

/// What of a connection went over.
const fn transport(is_multipath: bool) -> &'static str {
    if is_multipath { "mptcp" } else { "tcp" }
}

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    protocol: &'a str,
    client: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    transport_of_client: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    transport_of_server: Option<&'static str>,
    to_server_bytes: u64,
    to_client_bytes: u64,
    seconds: f64,
    is_complete: bool,
    ending: String,
}

pub(super) fn json(end: &SessionEnd<'_>, now: SystemTime) -> String {
    let transports = end.is_multipath.map(|(client, server)| (transport(client), transport(server)));
    let line = Line {
        time: httpdate::fmt_http_date(now),
        protocol: end.protocol,
        client: end.client.to_string(),
        user: end.user,
        target: end.target.map(ToString::to_string),
        server: end.server.map(|server| server.to_string()),
        transport_of_client: transports.map(|(client, _)| client),
        transport_of_server: transports.map(|(_, server)| server),
        to_server_bytes: end.flow.to_server_bytes(),
        to_client_bytes: end.flow.to_client_bytes(),
        seconds: end.flow.begun().elapsed().as_secs_f64(),
        is_complete: matches!(end.ending, Ending::Finished),
        ending: end.ending.to_string(),
    };
    // Of strings and numbers, which can always be written.
    serde_json::to_string(&line).unwrap_or_default()
}

pub(super) fn text(end: &SessionEnd<'_>, now: SystemTime) -> String {
    let mut line = format!("[{}] {} {}", httpdate::fmt_http_date(now), end.protocol, end.client);
    if let Some(user) = end.user {
        line += &format!(" {}", harmless(user));
    }
    if let Some(target) = end.target {
        line += &format!(" to {target}");
        let named = end.server.filter(|_| target.address().is_none());
        line += &named.map_or(String::new(), |server| format!(" ({})", server.ip()));
    }
    if let Some((client, server)) = end.is_multipath {
        line += &format!(", {} to {}", transport(client), transport(server));
    }
    let (up, down) = (end.flow.to_server_bytes(), end.flow.to_client_bytes());
    let seconds = end.flow.begun().elapsed().as_secs_f64();
    format!("{line}, {up} bytes up, {down} down, {seconds:.3} s: {}", harmless(&end.ending.to_string()))
}
