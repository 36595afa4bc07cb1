//! The options, and what they come to with the file.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::sync::Arc;

use clap::{Args, Subcommand, ValueEnum};
use polypath_config::Policies;
use polypath_netsetup::InterceptBy;

use super::super::Failure;
use super::super::engine::EngineArguments;
use super::entrances::{EntrancePlan, Forward, Listen, Protocol, parse_forward, parse_listen, parse_port};
use super::file::{self, File};
use super::room;
use super::successor::Successor;
use super::throttle::Change;
use super::transparent::Transparent;
use super::via::{Via, ViaTls};

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(in crate::command) struct Arguments {
    #[command(subcommand)]
    pub(super) what: Option<What>,
    #[command(flatten)]
    pub(super) run: RunArguments,
}

/// What is done with proxies that run.
#[derive(Debug, Subcommand)]
pub(super) enum What {
    /// Show proxies that run: where clients enter, limits, and connections with what each path has carried
    Status {
        #[command(flatten)]
        of: Named,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Set a limit of a proxy that runs, or change one, of which stays what is not named; connections that live have it at once
    Set {
        #[command(flatten)]
        of: Named,
        #[command(flatten)]
        change: Box<Change>,
    },
    /// Remove a limit of a proxy that runs
    Unset {
        #[command(flatten)]
        of: Named,
        /// What it is called
        #[arg(value_name = "LIMIT")]
        limit: String,
    },
    /// Have a proxy that runs take its file again: where clients enter, users, rules and limits
    Reload {
        #[command(flatten)]
        of: Named,
    },
    /// End a proxy, once those within have finished or had their time
    Down {
        #[command(flatten)]
        of: Named,
    },
}

/// Which one.
#[derive(Args, Debug)]
pub(super) struct Named {
    /// Which proxy, by its name; none is needed where only one runs
    #[arg(long, value_name = "NAME")]
    pub(super) instance: Option<String>,
}

#[derive(Args, Clone, Debug)]
pub(super) struct RunArguments {
    /// The proxy's file: where clients enter, who they may be, and where they may go
    #[arg(value_name = "CONFIG.toml")]
    pub(super) file: Option<PathBuf>,
    /// What it is called for `polypath proxy status` and the like [default: proxy, or proxy-PID where that runs already]
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    pub(super) instance: Option<String>,
    /// Serve clients of SOCKS version 5; a port alone is at 127.0.0.1. Repeatable, as the others
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = parse_listen)]
    socks: Vec<Listen>,
    /// Serve clients of HTTP: CONNECT, and requests with a whole URL
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = parse_listen)]
    http: Vec<Listen>,
    /// Lead each connection to one server
    #[arg(long, value_name = "[ADDRESS:]PORT=HOST:PORT", value_parser = parse_forward)]
    forward: Vec<Forward>,
    /// Serve clients of 0-RTT TCP Convert (RFC 8803)
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = parse_listen)]
    convert: Vec<Listen>,
    /// Intercept the connections that others send through this host, as they are (TPROXY): those that come by interfaces without a default
    /// route. Needs root. A file can say which, and how
    #[arg(long, value_name = "PORT", value_parser = parse_port)]
    transparent: Option<Listen>,
    /// Reach servers through another proxy: convert://HOST:PORT (RFC 8803), or socks5, http, socks5+tls or https with
    /// ://[USER:PASSWORD@]HOST:PORT
    #[arg(long, value_name = "URL", value_parser = Via::from_str)]
    pub(super) via: Option<Via>,
    #[command(flatten)]
    via_tls: ViaTls,
    /// Users of SOCKS and HTTP: a file with a line NAME:PASSWORD for each
    #[arg(long, value_name = "FILE")]
    pub(super) users: Option<PathBuf>,
    /// Serve everybody who reaches it, without users or rules: an open relay
    #[arg(long)]
    pub(super) open: bool,
    /// Become this user once clients can enter, and give up root's rights for good (engines kernel and tcp)
    #[arg(long, value_name = "NAME")]
    pub(super) user: Option<String>,
    /// How many threads serve connections (engines kernel and tcp) [default: 1; with tcp one for each core]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Ask a converter on the way in the first packet (with --engine tcp), and take such packets (with --accept tcp): TCP Fast Open, RFC 7413
    #[arg(long)]
    pub(super) fast_open: bool,
    /// What clients are met with: Multipath TCP of the kernel, which takes TCP, too; TCP alone; or the engine that reaches the servers
    #[arg(long, value_enum, value_name = "TRANSPORT", default_value_t = Accept::Kernel)]
    pub(super) accept: Accept,
    /// Print a line of JSON for each connection
    #[arg(long)]
    pub(super) json: bool,
    /// Print no line for each connection
    #[arg(short, long)]
    pub(super) quiet: bool,
    #[command(flatten)]
    pub(super) engine: EngineArguments,
}

/// What clients are met with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Accept {
    Kernel,
    Tcp,
    Engine,
}

/// What can be part of the name of a file.
fn parse_name(text: &str) -> Result<String, String> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    let is_name = (1..=32).contains(&text.len()) && text.chars().all(fits);
    is_name
        .then(|| text.into())
        .ok_or_else(|| "expected 1 to 32 letters, digits, hyphens, dots and underscores".into())
}

impl RunArguments {
    /// With what the configuration has for what the command line leaves open.
    pub(super) fn configured(&self, policies: &Policies) -> Result<Self, Failure> {
        Ok(Self { engine: self.engine.configured(None, policies)?, ..self.clone() })
    }

    /// Whether that many threads can serve connections.
    pub(super) fn check_threads(&self) -> Result<(), Failure> {
        if self.threads.is_some_and(|threads| threads > NonZeroUsize::MIN) && !self.engine.is_of_kernel() {
            return Err(Failure::Input(
                "--threads: expected --engine kernel or tcp with it; our own stack has one thread".into(),
            ));
        }
        if self.threads.is_some_and(|threads| threads > room::MOST_THREADS) {
            return Err(Failure::Input(format!("--threads: expected at most {}", room::MOST_THREADS)));
        }
        Ok(())
    }

    /// How many threads serve connections beside the first. Multipath TCP of the kernel stands still for 200 ms more often where several do (seen in
    /// Linux 6.18, which does so without a proxy, too).
    pub(super) fn further_threads(&self) -> usize {
        let usual = if self.engine.is_tcp() { room::cores() } else { NonZeroUsize::MIN };
        self.threads.unwrap_or(usual).get() - 1
    }

    /// Whether somebody said how many.
    pub(super) fn has_chosen_threads(&self) -> bool {
        self.threads.is_some()
    }

    /// Whom it becomes, if anybody.
    pub(super) fn successor(&self) -> Result<Option<Successor>, Failure> {
        let Some(name) = &self.user else { return Ok(None) };
        if !self.engine.is_of_kernel() {
            return Err(Failure::Input(
                "--user: expected --engine kernel or tcp with it; others need rights as long as they run"
                    .into(),
            ));
        }
        Successor::find(name).map(Some)
    }

    /// What the file and the options say.
    pub(super) fn plan(&self) -> Result<file::Plan, Failure> {
        let mut plan = match &self.file {
            Some(path) => File::read(path)?.plan(path)?,
            None => file::Plan::default(),
        };
        if let Some(path) = &self.users {
            plan.users = Some(file::read_users(path)?);
        }
        if let Some(via) = &self.via {
            let upstream = via.upstream(&self.via_tls, Path::new(""));
            plan.via = Some(Arc::new(upstream.map_err(|error| Failure::Input(format!("--via: {error}")))?));
        }
        plan.is_open |= self.open;
        plan.entrances.extend(self.entrances());
        plan.check()?;
        let intercepts = |entrance: &EntrancePlan| matches!(entrance.protocol, Protocol::Transparent(_));
        if self.accept == Accept::Engine && plan.entrances.iter().any(intercepts) {
            return Err(Failure::Input(
                "--accept engine: only connections of the kernel can be intercepted: expected kernel or tcp"
                    .into(),
            ));
        }
        if self.user.is_some() && plan.entrances.iter().any(intercepts) {
            return Err(Failure::Input(
                "--user: expected no entrance that intercepts, which needs rights as long as it is there"
                    .into(),
            ));
        }
        Ok(plan)
    }

    /// Where clients enter, as options say it.
    fn entrances(&self) -> Vec<EntrancePlan> {
        let socks = self.socks.iter().map(|listen| EntrancePlan::new(*listen, Protocol::Socks));
        let http = self.http.iter().map(|listen| EntrancePlan::new(*listen, Protocol::Http));
        let convert = self.convert.iter().map(|listen| EntrancePlan::new(*listen, Protocol::Convert));
        let forward = self.forward.iter();
        let forward = forward
            .map(|Forward(listen, target)| EntrancePlan::new(*listen, Protocol::Forward(target.clone())));
        let transparent = self.transparent.iter().map(|listen| {
            EntrancePlan::new(*listen, Protocol::Transparent(Transparent::new(InterceptBy::Tproxy)))
        });
        socks.chain(http).chain(forward).chain(convert).chain(transparent).collect()
    }
}
