//! The choice of engine, as every command that opens connections offers it.

use clap::{Args, ValueEnum};
use polypath_net::Engine;
use polypath_net::engine::KernelEngine;

use super::Failure;

/// What carries the connections.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Engine")]
pub(super) struct EngineArguments {
    /// What carries the connections
    #[arg(long, value_enum, default_value_t = Kind::Kernel)]
    engine: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// The kernel's Multipath TCP
    Kernel,
    /// The kernel's plain TCP, to compare with
    Tcp,
}

impl EngineArguments {
    /// Starts the engine. What it set up is taken down when the last clone of it is dropped.
    pub(super) async fn start(&self) -> Result<Engine, Failure> {
        Ok(match self.engine {
            Kind::Kernel => Engine::Kernel(KernelEngine::new()),
            Kind::Tcp => Engine::Kernel(KernelEngine::plain_tcp()),
        })
    }
}
