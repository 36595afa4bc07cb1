//! A limit as people write it: in the file, and after `polypath proxy set`.

use clap::{Args, ValueEnum};
use polypath_config::quantity::{Size, parse_rate, parse_span, read};
use polypath_proxy::throttle::{Budget, Direction, Limit};
use polypath_units::{BitRate, Duration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::wrong::{Wrong, each};

mod change;

pub(super) use self::change::Change;

/// The time of a budget that has none.
const DAY: Duration = Duration::from_secs(86_400);
/// A budget of a shorter period would never hold anybody back.
const SHORTEST_PERIOD: Duration = Duration::from_secs(1);

#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ThrottleText {
    /// What the limit is called
    #[arg(value_name = "LIMIT")]
    pub(super) name: String,
    /// How fast all that it is of may be together, or of each client, such as 5mbit
    #[arg(long, value_name = "RATE")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rate: Option<String>,
    /// What may pass at once after a while of less, such as 100KB [default: what comes in 50 ms]
    #[arg(long, value_name = "SIZE")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    burst: Option<String>,
    /// Each client has it for itself, an address or a /56 network of IPv6; else all share it
    #[arg(long)]
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    per_client: bool,
    /// Clients that it is for, by network or address; all, if it names none. Repeatable, as the next five
    #[arg(long = "client", value_name = "NETWORK")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    clients: Vec<String>,
    /// Users that it is for
    #[arg(long = "user", value_name = "NAME")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    users: Vec<String>,
    /// Servers that it is for: names, *.DOMAIN, addresses and networks
    #[arg(long = "host", value_name = "HOST")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    hosts: Vec<String>,
    /// Ports of servers that it is for: 443, 8000-8080
    #[arg(long = "port", value_name = "PORT")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ports: Vec<String>,
    /// Paths that it is for: an interface, or a local address or network. Their packets are limited, so that Multipath TCP moves what goes
    /// over them to other paths; with the engine tun or udp, or tcp, where each connection has one path
    #[arg(long = "path", value_name = "PATH")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    paths: Vec<String>,
    /// Other ends of paths that it is for, by network or address: servers, and clients that are met with the engine (`--accept engine`)
    #[arg(long = "peer", value_name = "NETWORK")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    peers: Vec<String>,
    /// Which way: up to servers or down to clients; both together, if neither, and of paths of the engine tun or udp each for itself
    #[arg(long, value_enum, value_name = "DIRECTION")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    direction: Option<DirectionName>,
    /// When it holds, such as 22:00-06:00
    #[arg(long, value_name = "HH:MM-HH:MM")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hours: Option<String>,
    /// How much may pass in a time, such as 2GB
    #[arg(long, value_name = "SIZE")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    budget: Option<String>,
    /// The time of the budget, from the first that passes [default: 24h]
    #[arg(long, value_name = "TIME")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    period: Option<String>,
    /// How fast what comes after the budget may be [default: nothing passes]
    #[arg(long, value_name = "RATE")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    then: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum DirectionName {
    Up,
    Down,
}

impl DirectionName {
    fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

impl ThrottleText {
    /// Whether it names neither clients nor servers nor paths.
    fn is_for_everybody(&self) -> bool {
        let Self { clients, users, hosts, ports, paths, peers, .. } = self;
        [clients, users, hosts, ports, paths, peers].iter().all(|named| named.is_empty())
    }

    /// How much it lets pass, which way, where, when and of whom, as it was written: `5mbit down over wwan0 for users ann`.
    pub(super) fn words(&self) -> String {
        let mut parts: Vec<String> = self.rate.clone().into_iter().collect();
        if let Some(budget) = &self.budget {
            let period = self.period.as_deref().unwrap_or("24h");
            let then = self.then.as_ref().map(|rate| format!(", then {rate}")).unwrap_or_default();
            parts.push(format!("{budget} in {period}{then}"));
        }
        let amount = parts.join(", ");
        let direction = self.direction.map(|direction| direction.word().to_string());
        let named =
            |word: &str, list: &[String]| (!list.is_empty()).then(|| format!("{word} {}", list.join(", ")));
        let places = [named("over", &self.paths), named("to", &self.peers)];
        let hours = self.hours.as_ref().map(|hours| format!("at {hours}"));
        let whom = [
            named("clients", &self.clients),
            named("users", &self.users),
            named("hosts", &self.hosts),
            named("ports", &self.ports),
        ];
        let everybody = self.is_for_everybody().then(|| "everybody".into());
        let whom: Vec<String> = whom.into_iter().flatten().chain(everybody).collect();
        let whom = (!whom.is_empty()).then(|| format!("for {}", whom.join(", ")));
        let rest = direction.into_iter().chain(places.into_iter().flatten()).chain(hours).chain(whom);
        [amount].into_iter().chain(rest).collect::<Vec<_>>().join(" ")
    }

    pub(super) fn limit(&self) -> Result<Limit, Wrong> {
        let name_fits = |name: &str| {
            (1..=64).contains(&name.len()) && !name.contains(char::is_control) && name.trim() == name
        };
        if !name_fits(&self.name) {
            return Err(("name", "expected 1 to 64 letters, and no blank at either end".into()));
        }
        if self.users.iter().any(String::is_empty) {
            return Err(("users", "a name is empty: expected one of each user".into()));
        }
        let rate = |field, text: &Option<String>| {
            text.as_deref().map(parse_rate).transpose().map_err(|error| (field, error))
        };
        let size = |field, text: &Option<String>| {
            let size = text.as_deref().map(read).transpose().map_err(|error| (field, error))?;
            Ok(size.map(|Size(octets)| octets))
        };
        let mut limit = Limit::new(&self.name);
        limit.rate = rate("rate", &self.rate)?;
        limit.burst = size("burst", &self.burst)?;
        limit.is_of_each_client = self.per_client;
        limit.flows.clients = each("clients", &self.clients)?;
        limit.flows.users = self.users.iter().map(|user| user.as_str().into()).collect();
        limit.flows.hosts = each("hosts", &self.hosts)?;
        limit.flows.ports = each("ports", &self.ports)?;
        limit.flows.paths = each("paths", &self.paths)?;
        limit.flows.peers = each("peers", &self.peers)?;
        limit.flows.direction = self.direction.map(|direction| match direction {
            DirectionName::Up => Direction::Up,
            DirectionName::Down => Direction::Down,
        });
        let hours = self.hours.as_deref().map(str::parse).transpose();
        limit.hours =
            hours.map_err(|error: polypath_proxy::throttle::HoursError| ("hours", error.to_string()))?;
        let period = self.period.as_deref().map(parse_span).transpose().map_err(|error| ("period", error))?;
        if period.is_some_and(|period| period < SHORTEST_PERIOD) {
            return Err(("period", "it is too short for a budget to hold: expected 1s or more".into()));
        }
        let then = rate("then", &self.then)?;
        limit.budget = match size("budget", &self.budget)? {
            Some(octets) => {
                Some(Budget { octets, period: period.unwrap_or(DAY), then: then.unwrap_or(BitRate::ZERO) })
            }
            None if self.period.is_some() || self.then.is_some() => {
                return Err(("budget", "expected one with period and then".into()));
            }
            None => None,
        };
        if limit.rate.is_none() && limit.budget.is_none() {
            return Err((
                "rate",
                "the limit says nothing: expected a rate, such as 5mbit, or a budget".into(),
            ));
        }
        Ok(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Limit, String> {
        let text: ThrottleText = serde_json::from_str(text).map_err(|error| error.to_string())?;
        text.limit().map_err(|(field, error)| format!("{field}: {error}"))
    }

    #[test]
    fn a_limit_is_read() {
        let limit = read_text(
            r#"{"name": "video", "rate": "5mbit", "clients": ["10.0.0.0/8"], "hosts": ["*.example.org"],
                "ports": ["443"], "direction": "down", "hours": "22:00-06:00", "budget": "2GB", "then": "1mbit"}"#,
        );
        let limit = limit.expect("a limit");
        assert_eq!(limit.rate, Some(BitRate::from_mbps(5)));
        assert_eq!(limit.flows.direction, Some(Direction::Down));
        assert!(!limit.is_of_each_client);
        let each = read_text(r#"{"name": "guests", "rate": "2mbit", "per-client": true}"#).expect("a limit");
        assert!(each.is_of_each_client);
        let budget = Budget { octets: 2_000_000_000, period: DAY, then: BitRate::from_mbps(1) };
        assert_eq!(limit.budget, Some(budget));
    }

    #[test]
    fn a_limit_is_told_in_a_few_words() {
        for (text, expected) in [
            (r#"{"name": "a", "rate": "5mbit", "clients": ["10.0.0.0/8"]}"#, "5mbit for clients 10.0.0.0/8"),
            (
                r#"{"name": "a", "rate": "5mbit", "direction": "down", "clients": ["10.0.0.1", "fd00::/8"], "users": ["ann"],
                    "hosts": ["*.example.org"], "ports": ["443"]}"#,
                "5mbit down for clients 10.0.0.1, fd00::/8, users ann, hosts *.example.org, ports 443",
            ),
            (
                r#"{"name": "a", "rate": "5mbit", "direction": "down", "paths": ["wwan0", "10.0.0.1"], "hours": "22:00-06:00"}"#,
                "5mbit down over wwan0, 10.0.0.1 at 22:00-06:00",
            ),
            (r#"{"name": "a", "rate": "5mbit", "peers": ["10.0.0.0/8"]}"#, "5mbit to 10.0.0.0/8"),
            (r#"{"name": "a", "rate": "5mbit", "budget": "2GB"}"#, "5mbit, 2GB in 24h for everybody"),
            (
                r#"{"name": "a", "budget": "2GB", "period": "1h", "then": "1mbit", "direction": "up"}"#,
                "2GB in 1h, then 1mbit up for everybody",
            ),
        ] {
            let text: ThrottleText = serde_json::from_str(text).expect("a limit");
            assert_eq!(text.words(), expected);
        }
    }

    #[test]
    fn a_mistake_names_its_field() {
        for (text, expected) in [
            (r#"{"name": "a"}"#, "rate: the limit says nothing"),
            (r#"{"name": "", "rate": "1mbit"}"#, "name: "),
            (r#"{"name": " a", "rate": "1mbit"}"#, "name: expected 1 to 64 letters, and no blank"),
            (r#"{"name": "a\u00a0", "rate": "1mbit"}"#, "name: expected 1 to 64 letters, and no blank"),
            (r#"{"name": "a", "rate": "1mbit", "users": ["ann", ""]}"#, "users: a name is empty"),
            (r#"{"name": "a", "budget": "1MB", "period": "999ms"}"#, "period: it is too short"),
            (r#"{"name": "a", "rate": "1"}"#, "rate: \"1\" has no unit"),
            (r#"{"name": "a", "rate": "1mbit", "clients": ["x"]}"#, "clients: x: "),
            (r#"{"name": "a", "rate": "1mbit", "paths": ["a/b"]}"#, "paths: a/b: "),
            (r#"{"name": "a", "rate": "1mbit", "peers": ["x"]}"#, "peers: x: "),
            (r#"{"name": "a", "rate": "1mbit", "hours": "1-2"}"#, "hours: no hours"),
            (r#"{"name": "a", "rate": "1mbit", "then": "1mbit"}"#, "budget: "),
            (r#"{"name": "a", "speed": "1mbit"}"#, "unknown field `speed`"),
        ] {
            let error = read_text(text).expect_err(text);
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
