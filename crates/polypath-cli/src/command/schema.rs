//! `polypath schema`.

use clap::{Args, ValueEnum};
use polypath_config::Policies;
use polypath_lab::experiment;
use polypath_sim::scenario;

use super::{Failure, configuration, print_json, proxy};

#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// Which kind of file
    #[arg(value_enum)]
    kind: FileKind,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FileKind {
    /// What `polypath sim` runs
    Scenario,
    /// What `polypath lab run` runs
    Experiment,
    /// What `polypath emulate` emulates
    Links,
    /// polypath.toml: defaults of the engine's options, and rules for programs
    Config,
    /// What `polypath proxy` runs
    Proxy,
}

pub(super) fn run(arguments: &Arguments, policies: &Policies) -> Result<(), Failure> {
    let schema = match arguments.kind {
        FileKind::Scenario => scenario::schema(policies),
        FileKind::Experiment => experiment::schema(policies),
        FileKind::Config => configuration::schema_of_files(policies),
        FileKind::Links => scenario::interfaces_schema(policies),
        FileKind::Proxy => proxy::schema_of_files(policies),
    };
    print_json(&schema.map_err(Failure::run)?)
}
