//! The proxy's file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use polypath_config::Source;
use polypath_config::quantity::{Size, parse_span, read};
use polypath_proxy::access::{ClientLimits, Rule, Rules, UserList, Verdict};
use polypath_proxy::net::{InvalidUpstream, Settings, Timeouts, Upstream};
use polypath_system::process::descriptor_limit;
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::Failure;
use super::doubts::Named;
use super::entrance_text::EntranceText;
use super::entrances::EntrancePlan;
use super::room;
use super::throttle::ThrottleText;
use super::via::{Via, ViaTls};
use super::wrong::{Wrong, each};

/// How long those within may stay once the proxy is to end.
const DRAIN: Duration = Duration::from_secs(30);

/// What `polypath proxy` runs: where clients enter, who they may be, and where they may go.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct File {
    /// Where clients enter.
    entrances: Vec<EntranceText>,
    /// Who may come in, and where they may go.
    access: Access,
    /// How servers are reached.
    servers: Servers,
    /// Who may go where: the first that fits decides.
    rules: Vec<RuleText>,
    /// How much clients may have.
    limits: Limits,
    /// How long each phase of a connection may take.
    timeouts: TimeoutsText,
    /// How fast connections may be. Those that live have it at once.
    throttle: Vec<ThrottleText>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Access {
    /// A file with a line `NAME:PASSWORD` for each user. A relative name is looked for beside this file.
    users: Option<PathBuf>,
    /// Serve everybody who reaches it: an open relay.
    open: bool,
    /// What holds where no rule fits.
    default: DefaultVerdict,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Servers {
    /// The proxy on the way: `convert://HOST:PORT`, or `socks5`, `http`, `socks5+tls` or `https` with `://[USER:PASSWORD@]HOST:PORT`.
    via: Option<String>,
    /// Certificates for `https` and `socks5+tls`: `ca`, by which the proxy is trusted in place of the system's, and `certificate` and `key`, which
    /// it is shown. Relative names are looked for beside this file.
    tls: ViaTls,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum DefaultVerdict {
    #[default]
    Allow,
    Deny,
}

impl From<DefaultVerdict> for Verdict {
    fn from(verdict: DefaultVerdict) -> Self {
        match verdict {
            DefaultVerdict::Allow => Self::Allow,
            DefaultVerdict::Deny => Self::Deny,
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RuleText {
    /// What it says.
    verdict: DefaultVerdict,
    /// Networks of clients that it is for; all, if it names none.
    #[serde(default)]
    clients: Vec<String>,
    /// Users that it is for.
    #[serde(default)]
    users: Vec<String>,
    /// Names, `*.DOMAIN`, addresses and networks of servers.
    #[serde(default)]
    hosts: Vec<String>,
    /// Ports of servers: `443`, `8000-8080`.
    #[serde(default)]
    ports: Vec<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Limits {
    /// Connections at once; as many as the descriptors allow, if it is left out.
    connections: Option<u32>,
    /// Of one client: an address, or a /56 network of IPv6. Half of them, if it is left out.
    connections_per_client: Option<u32>,
    /// New connections of one client in a second, in the long run.
    new_per_second_per_client: Option<u32>,
    /// Memory of the process, such as `500MB`. While it has more, no further client comes in.
    memory: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct TimeoutsText {
    /// Until a client has said what it wants.
    asking: Option<String>,
    /// Until the server is reached.
    connecting: Option<String>,
    /// Until the server of an HTTP request begins with its answer.
    answering: Option<String>,
    /// Without a byte either way; `never` is possible.
    idle: Option<String>,
    /// For those within once the proxy is to end.
    draining: Option<String>,
}

/// What the file and the options say, understood.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Those of the file first.
    pub(super) entrances: Vec<EntrancePlan>,
    /// The file, and how many entrances it has.
    file: Option<(String, usize)>,
    pub(super) users: Option<Arc<UserList>>,
    pub(super) is_open: bool,
    pub(super) via: Option<Arc<Upstream>>,
    pub(super) drain: Duration,
    /// Limits, each of which can be understood.
    pub(super) throttle: Vec<ThrottleText>,
    default: Verdict,
    rules: Vec<Rule>,
    limits: ClientLimits,
    timeouts: Timeouts,
}

impl Default for Plan {
    fn default() -> Self {
        let timeouts = Timeouts::default();
        Self {
            entrances: Vec::new(),
            file: None,
            users: None,
            is_open: false,
            via: None,
            drain: DRAIN,
            throttle: Vec::new(),
            default: Verdict::Allow,
            rules: Vec::new(),
            limits: room::limits(descriptor_limit(), room::cores()),
            timeouts,
        }
    }
}

impl Plan {
    pub(super) fn settings(&self) -> Settings {
        Settings {
            timeouts: self.timeouts,
            rules: Rules::new(self.rules.clone(), self.default),
            users: self.users.clone().map(|users| users as _),
            limits: self.limits,
            via: self.via.clone(),
            ..Settings::default()
        }
    }

    /// What is wrong, and does not keep it from being done.
    pub(super) fn warnings(&self) -> impl Iterator<Item = &str> {
        self.entrances.iter().filter_map(|entrance| entrance.tls.as_ref()?.warning())
    }

    /// Who can be named by rules and limits, and whom rules name.
    pub(super) fn named(&self) -> Named {
        let has_certificates = self.entrances.iter().any(EntrancePlan::wants_certificates);
        Named { users: self.users.clone(), rules: self.rules.clone(), has_certificates }
    }

    /// What the proxy on the way has said stays known, if it is the same as before.
    pub(super) fn keep_what_is_known(&mut self, before: &Self) {
        if let (Some(via), Some(known)) = (&mut self.via, &before.via)
            && via.is_as(known)
        {
            *via = known.clone();
        }
    }

    /// Whether it leads somewhere, and not everybody everywhere.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.entrances.is_empty() {
            return Err(Failure::Input(
                "nobody could enter: expected --socks, --http, --forward, --convert or --transparent, or a file with [[entrances]]".into(),
            ));
        }
        self.check_places()?;
        let is_bound = |entrance: &&EntrancePlan| {
            let has_users = self.users.is_some() && entrance.protocol.has_users();
            entrance.listen.0.ip().to_canonical().is_loopback()
                || !entrance.protocol.leads_anywhere()
                || has_users
                || entrance.wants_certificates()
                // Rules that deny something leave the rest to everybody.
                || self.default == Verdict::Deny
        };
        match self.entrances.iter().find(|entrance| !is_bound(entrance)) {
            Some(open) if !self.is_open => Err(Failure::Input(format!(
                "everybody who reaches {} could go anywhere through it: expected users, rules with default = \"deny\", tls with clients, or --open",
                open.listen.0
            ))),
            _ => Ok(()),
        }
    }
}

impl Plan {
    /// Whether each entrance can have the place where it is to listen.
    fn check_places(&self) -> Result<(), Failure> {
        for (number, entrance) in self.entrances.iter().enumerate() {
            let mut others = self.entrances[..number].iter();
            if let Some(other) = others.position(|other| other.listen.meets(entrance.listen)) {
                return Err(Failure::Input(format!(
                    "{}: {} can't be listened at beside {}, which {} has: expected another port or address",
                    self.place(number),
                    entrance.listen.0,
                    self.entrances[other].listen.0,
                    self.place(other)
                )));
            }
        }
        Ok(())
    }

    /// Where somebody wrote where it listens.
    fn place(&self, number: usize) -> String {
        match &self.file {
            Some((file, count)) if number < *count => format!("{file}, entrances[{number}].listen"),
            _ => format!("--{}", self.entrances[number].protocol.name()),
        }
    }
}

/// A file of users.
pub(super) fn read_users(path: &Path) -> Result<Arc<UserList>, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::Input(format!("{}: {error}", path.display())))?;
    let users =
        UserList::parse(&text).map_err(|error| Failure::Input(format!("{}, {error}", path.display())))?;
    Ok(Arc::new(users))
}

impl File {
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            // A word alone is seldom a file.
            let is_word = error.kind() == std::io::ErrorKind::NotFound
                && path.to_str().is_some_and(|name| name.bytes().all(|letter| letter.is_ascii_lowercase()));
            let expected =
                if is_word { "; expected a file, or status, set, unset, reload or down" } else { "" };
            Failure::Input(format!("{}: {error}{expected}", path.display()))
        })?;
        Self::parse(&text, path)
    }

    fn parse(text: &str, path: &Path) -> Result<Self, Failure> {
        let name = path.display().to_string();
        polypath_config::read(Source { file: &name, text }).map_err(|error| Failure::Input(error.to_string()))
    }

    /// What it means; the message says what is wrong and where.
    pub(super) fn plan(self, path: &Path) -> Result<Plan, Failure> {
        let at = |place: &str, error: &dyn std::fmt::Display| {
            Failure::Input(format!("{}, {place}: {error}", path.display()))
        };
        let mut plan = Plan::default();
        // Beside the file, wherever the proxy is started.
        let beside = path.parent().unwrap_or(Path::new(""));
        for (number, entrance) in self.entrances.iter().enumerate() {
            let planned = entrance
                .plan(beside)
                .map_err(|(field, error)| at(&format!("entrances[{number}].{field}"), &error))?;
            plan.entrances.push(planned);
        }
        plan.file = Some((path.display().to_string(), plan.entrances.len()));
        for (number, rule) in self.rules.iter().enumerate() {
            let planned =
                rule.plan().map_err(|(field, error)| at(&format!("rules[{number}].{field}"), &error))?;
            plan.rules.push(planned);
        }
        if let Some(users) = &self.access.users {
            let users = read_users(&beside.join(users));
            plan.users = Some(users.map_err(|failure| at("access.users", &failure.message()))?);
        }
        if let Some(via) = &self.servers.via {
            let via: Via = via.parse().map_err(|error: InvalidUpstream| at("servers.via", &error))?;
            let upstream = via.upstream(&self.servers.tls, beside);
            plan.via = Some(Arc::new(upstream.map_err(|error| at("servers.tls", &error))?));
        }
        plan.is_open = self.access.open;
        plan.default = self.access.default.into();
        let changed = self.limits.change(&mut plan.limits);
        changed.map_err(|(field, error)| at(&format!("limits.{field}"), &error))?;
        self.timeouts.change(&mut plan).map_err(|(field, error)| at(&format!("timeouts.{field}"), &error))?;
        for (number, throttle) in self.throttle.iter().enumerate() {
            let place = |field: &str| format!("throttle[{number}].{field}");
            throttle.limit().map_err(|(field, error)| at(&place(field), &error))?;
            if self.throttle[..number].iter().any(|before| before.name == throttle.name) {
                return Err(at(
                    &place("name"),
                    &format!("{} is there twice: expected each once", throttle.name),
                ));
            }
        }
        plan.throttle = self.throttle;
        Ok(plan)
    }
}

impl RuleText {
    fn plan(&self) -> Result<Rule, Wrong> {
        let mut rule = Rule::new(self.verdict.into());
        rule.clients = each("clients", &self.clients)?;
        rule.users = self.users.iter().map(|user| user.as_str().into()).collect();
        rule.hosts = each("hosts", &self.hosts)?;
        rule.ports = each("ports", &self.ports)?;
        Ok(rule)
    }
}

impl Limits {
    fn change(&self, limits: &mut ClientLimits) -> Result<(), Wrong> {
        let ClientLimits { each, all, .. } = limits;
        if let Some(connections) = self.connections {
            all.connections = connections;
            each.connections = each.connections.min(connections.div_ceil(2));
        }
        if let Some(connections) = self.connections_per_client {
            each.connections = connections;
        }
        if let Some(new) = self.new_per_second_per_client {
            each.new_per_second = new;
            each.burst = new.saturating_mul(2);
        }
        let memory = self.memory.as_deref().map(read).transpose().map_err(|error| ("memory", error))?;
        limits.memory = memory.map(|Size(octets)| octets);
        Ok(())
    }
}

impl TimeoutsText {
    fn change(&self, plan: &mut Plan) -> Result<(), Wrong> {
        let span = |field: &'static str, text: &Option<String>| {
            let Some(text) = text else { return Ok(None) };
            let span = parse_span(text).map_err(|error| (field, error))?;
            Ok(Some(Duration::from_nanos(span.as_nanos())))
        };
        let times = &mut plan.timeouts;
        for (field, text, time) in [
            ("asking", &self.asking, &mut times.asking),
            ("connecting", &self.connecting, &mut times.connecting),
            ("answering", &self.answering, &mut times.answering),
            ("draining", &self.draining, &mut plan.drain),
        ] {
            *time = span(field, text)?.unwrap_or(*time);
        }
        match self.idle.as_deref() {
            Some("never") => times.idle = None,
            _ => times.idle = span("idle", &self.idle)?.or(times.idle),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::entrances::Protocol;
    use super::*;

    fn plan(text: &str) -> Result<Plan, String> {
        let path = Path::new("proxy.toml");
        let planned = File::parse(text, path).and_then(|file| file.plan(path)).and_then(|plan| {
            plan.check()?;
            Ok(plan)
        });
        planned.map_err(|failure| match failure {
            Failure::Input(message) | Failure::Run(message) => message,
            other => format!("{other:?}"),
        })
    }

    #[test]
    fn a_file_says_who_may_do_what() {
        let plan = plan(
            r#"
            [access]
            default = "deny"
            [[entrances]]
            protocol = "socks"
            listen = "0.0.0.0:1080"
            [[entrances]]
            protocol = "forward"
            listen = "192.0.2.1:443"
            to = "example.org:443"
            proxy-protocol-to-servers = "v2"
            [[rules]]
            verdict = "allow"
            clients = ["10.0.0.0/8"]
            hosts = ["*.example.org"]
            ports = ["443", "8000-8080"]
            [limits]
            connections-per-client = 10
            memory = "500MB"
            [servers]
            via = "convert://converter.example:5000"
            [timeouts]
            idle = "never"
            draining = "5s"
            [[throttle]]
            name = "video"
            rate = "5mbit"
            clients = ["10.0.0.0/8"]
            "#,
        );
        let plan = plan.expect("a plan");
        assert_eq!(plan.entrances.len(), 2);
        assert_eq!((plan.timeouts.idle, plan.drain), (None, Duration::from_secs(5)));
        assert_eq!((plan.limits.each.connections, plan.limits.memory), (10, Some(500_000_000)));
        assert_eq!(plan.rules[0].ports.len(), 2);
        assert_eq!(plan.throttle.len(), 1);
        let via = plan.via.map(|via| via.to_string());
        assert_eq!(via.as_deref(), Some("convert://converter.example:5000"));
    }

    #[test]
    fn the_proxy_on_the_way_is_kept_with_what_it_said() {
        let planned = |via: &str| {
            let entrance = "[[entrances]]\nprotocol = \"socks\"\nlisten = \"1080\"\n";
            plan(&format!("{entrance}[servers]\nvia = \"{via}\"\n")).expect("a plan")
        };
        let before = planned("convert://192.0.2.1:5000");
        let is_kept = |mut after: Plan| {
            after.keep_what_is_known(&before);
            Arc::ptr_eq(&after.via.expect("one"), before.via.as_ref().expect("one"))
        };
        assert!(is_kept(planned("convert://192.0.2.1:5000")));
        assert!(!is_kept(planned("convert://192.0.2.2:5000")));
    }

    #[test]
    fn what_is_intercepted_is_no_open_relay() {
        let plan = plan(
            r#"
            [[entrances]]
            protocol = "transparent"
            listen = "8877"
            [[entrances]]
            protocol = "transparent"
            listen = "8878"
            intercept = "redirect"
            ports = ["80", "8000-8080"]
            interfaces = ["lan0"]
            clients = ["10.0.0.0/8", "fd00::/8"]
            "#,
        );
        let said = plan.expect("a plan").entrances.into_iter().map(|entrance| match entrance.protocol {
            Protocol::Transparent(of) => of.to_string(),
            other => format!("{other:?}"),
        });
        let said: Vec<String> = said.collect();
        let second = "redirected on the way to ports 80, 8000-8080 from lan0 of clients 10.0.0.0/8, fd00::/8";
        assert_eq!(said, ["intercepted by TPROXY", second]);
    }

    #[test]
    fn nobody_opens_a_relay_by_mistake() {
        let entrance =
            |protocol, listen| format!("[[entrances]]\nprotocol = \"{protocol}\"\nlisten = \"{listen}\"\n");
        for protocol in ["socks", "http", "convert"] {
            let open = entrance(protocol, "0.0.0.0:1080");
            let error = plan(&open).expect_err(protocol);
            assert!(error.starts_with("everybody who reaches 0.0.0.0:1080 could go anywhere"), "{error}");
            // A rule that denies something leaves the rest to everybody.
            let rule = "[[rules]]\nverdict = \"deny\"\nports = [\"25\"]\n";
            assert!(plan(&format!("{open}{rule}")).is_err(), "{protocol}");
            for bound in ["[access]\ndefault = \"deny\"\n", "[access]\nopen = true\n"] {
                assert!(plan(&format!("{open}{bound}")).is_ok(), "{protocol}, {bound}");
            }
            assert!(plan(&entrance(protocol, "[::1]:1080")).is_ok(), "{protocol}");
        }
    }

    #[test]
    fn who_wants_certificates_is_no_open_relay() {
        let folder = tempfile::tempdir().expect("a folder");
        let made = rcgen::generate_simple_self_signed(["proxy.example".into()]).expect("a pair");
        let at = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(at("cert"), made.cert.pem()).expect("room");
        std::fs::write(at("key"), made.signing_key.serialize_pem()).expect("room");
        let with = |protocol: &str, listen: &str, clients: &str| {
            let (cert, key) = (at("cert"), at("key"));
            plan(&format!(
                "[[entrances]]\nprotocol = \"{protocol}\"\nlisten = \"{listen}\"\n\
                 tls = {{ certificate = \"{cert}\", key = \"{key}\"{clients} }}\n"
            ))
        };
        let clients = format!(", clients = \"{}\"", at("cert"));
        for protocol in ["socks", "http"] {
            assert!(with(protocol, "0.0.0.0:1080", &clients).is_ok(), "{protocol}");
            let error =
                with(protocol, "0.0.0.0:1080", "").expect_err("that the proxy is known guards nothing");
            assert!(error.contains("could go anywhere") && error.contains("tls with clients"), "{error}");
        }
        for (protocol, listen) in [("convert", "5000"), ("transparent", "8877")] {
            let error = with(protocol, listen, "").expect_err(protocol);
            assert!(error.contains("proxy.toml, entrances[0].tls: "), "{error}");
        }
    }

    #[test]
    fn a_mistake_is_told_with_its_place() {
        let transparent = "[[entrances]]\nprotocol = \"transparent\"\n";
        let entrance = "[[entrances]]\nprotocol = \"socks\"\nlisten = \"1080\"\n";
        for (text, expected) in [
            ("", "nobody could enter"),
            ("[[entrances]]\nprotocol = \"sock\"\nlisten = \"1080\"\n", "proxy.toml:2"),
            (
                "[[entrances]]\nprotocol = \"socks\"\nlisten = \"x\"\n",
                "entrances[0].listen: x: expected a port",
            ),
            (
                "[[entrances]]\nprotocol = \"socks\"\nlisten = \"80999\"\n",
                "entrances[0].listen: 80999: no port has this number",
            ),
            (
                "[[entrances]]\nprotocol = \"forward\"\nlisten = \"1080\"\n",
                "entrances[0].to: expected where it leads",
            ),
            (
                "[[entrances]]\nprotocol = \"socks\"\nlisten = \"0.0.0.0:1080\"\n",
                "everybody who reaches 0.0.0.0:1080",
            ),
            (
                "[[entrances]]\nprotocol = \"socks\"\nlisten = \"0.0.0.0:1080\"\n\
                 [[rules]]\nverdict = \"deny\"\nclients = [\"192.0.2.5\"]\n",
                "everybody who reaches 0.0.0.0:1080",
            ),
            (
                &format!("{entrance}{entrance}"),
                "proxy.toml, entrances[1].listen: 127.0.0.1:1080 can't be listened at beside 127.0.0.1:1080, which proxy.toml, entrances[0].listen has",
            ),
            (
                &format!("{entrance}{}", entrance.replace("1080", "0.0.0.0:1080")),
                "entrances[1].listen: 0.0.0.0:1080 can't be listened at beside 127.0.0.1:1080",
            ),
            (&format!("{entrance}ports = [\"80\"]\n"), "entrances[0].ports: only the protocol transparent"),
            (&format!("{entrance}cookies = true\n"), "entrances[0].cookies: only the protocol convert"),
            (
                &format!("{transparent}listen = \"0.0.0.0:8877\"\n"),
                "entrances[0].listen: where it listens follows",
            ),
            (
                &format!("{transparent}listen = \"8877\"\nproxy-protocol-to-servers = \"v2\"\n"),
                "entrances[0].proxy-protocol-to-servers: neither clients nor",
            ),
            (
                &format!("{transparent}listen = \"8877\"\nclients = [\"10.0.0.1/8\"]\n"),
                "entrances[0].clients: 10.0.0.1/8: bits are set",
            ),
            (
                &format!("{entrance}[[rules]]\nverdict = \"deny\"\nports = [\"0\"]\n"),
                "rules[0].ports: 0: no ports",
            ),
            (&format!("{entrance}[[throttle]]\nname = \"a\"\n"), "throttle[0].rate: the limit says nothing"),
            (
                &format!("{entrance}{0}{0}", "[[throttle]]\nname = \"a\"\nrate = \"1mbit\"\n"),
                "throttle[1].name: a is there twice",
            ),
            (&format!("{entrance}[servers]\nvia = \"ftp://a:1\"\n"), "servers.via: no proxy on the way"),
            (&format!("{entrance}[timeouts]\nasking = \"5\"\n"), "timeouts.asking"),
            (&format!("{entrance}[limits]\nmemory = \"5\"\n"), "limits.memory: \"5\" has no unit"),
        ] {
            let error = plan(text).expect_err("a mistake");
            assert!(error.contains(expected) && !error.contains('\n'), "{error}");
        }
    }
}
