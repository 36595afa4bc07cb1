//! `polypath proxy`.

mod entrances;
mod file;
mod running;
mod told;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use polypath_config::Policies;

use self::entrances::{Forward, Listen, parse_forward, parse_listen};
use self::file::File;
use super::Failure;
use super::engine::EngineArguments;
use super::network::block_on_own_signals;

#[derive(Args, Clone, Debug)]
pub(super) struct Arguments {
    /// The proxy's file: where clients enter, who they may be, and where they may go
    #[arg(value_name = "CONFIG.toml")]
    file: Option<PathBuf>,
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
    users: Option<PathBuf>,
    /// Serve everybody who reaches it, without users or rules: an open relay
    #[arg(long)]
    open: bool,
    /// What clients are met with: Multipath TCP of the kernel, which takes TCP, too; TCP alone; or the engine that reaches the servers
    #[arg(long, value_enum, value_name = "TRANSPORT", default_value_t = Accept::Kernel)]
    accept: Accept,
    /// Print a line of JSON for each connection
    #[arg(long)]
    json: bool,
    /// Print no line for each connection
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    engine: EngineArguments,
}

/// What clients are met with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Accept {
    Kernel,
    Tcp,
    Engine,
}

pub(super) fn run(arguments: &Arguments, policies: &Policies) -> Result<(), Failure> {
    let arguments = &Arguments { engine: arguments.engine.configured(None, policies)?, ..arguments.clone() };
    let plan = arguments.plan()?;
    block_on_own_signals(running::run(arguments, policies, plan))
}

impl Arguments {
    /// What the file and the options say.
    fn plan(&self) -> Result<file::Plan, Failure> {
        let mut plan = match &self.file {
            Some(path) => File::read(path)?.plan(path)?,
            None => file::Plan::default(),
        };
        if let Some(path) = &self.users {
            plan.users = Some(file::read_users(path)?);
        }
        plan.is_open |= self.open;
        plan.entrances.extend(entrances::of_options(self));
        plan.check()?;
        Ok(plan)
    }
}
