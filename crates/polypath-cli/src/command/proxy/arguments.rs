//! The options, and what they come to with the file.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use polypath_config::Policies;

use super::super::Failure;
use super::super::engine::EngineArguments;
use super::entrances::{EntrancePlan, Forward, Listen, Protocol, parse_forward, parse_listen};
use super::file::{self, File};

#[derive(Args, Clone, Debug)]
pub(in crate::command) struct Arguments {
    /// The proxy's file: where clients enter, who they may be, and where they may go
    #[arg(value_name = "CONFIG.toml")]
    pub(super) file: Option<PathBuf>,
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
    /// Users of SOCKS and HTTP: a file with a line NAME:PASSWORD for each
    #[arg(long, value_name = "FILE")]
    pub(super) users: Option<PathBuf>,
    /// Serve everybody who reaches it, without users or rules: an open relay
    #[arg(long)]
    pub(super) open: bool,
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

impl Arguments {
    /// With what the configuration has for what the command line leaves open.
    pub(super) fn configured(&self, policies: &Policies) -> Result<Self, Failure> {
        Ok(Self { engine: self.engine.configured(None, policies)?, ..self.clone() })
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
        plan.is_open |= self.open;
        plan.entrances.extend(self.entrances());
        plan.check()?;
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
        socks.chain(http).chain(forward).chain(convert).collect()
    }
}
