//! The choice of engine, as every command that opens connections offers it.

use std::sync::Arc;

use clap::{Args, ValueEnum};
use polypath_net::Engine;
use polypath_net::control::{directory, offer};
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
        let engine = match self.engine {
            Kind::Kernel => Engine::Kernel(KernelEngine::new()),
            Kind::Tcp => Engine::Kernel(KernelEngine::plain_tcp()),
        };
        offer_control(&engine);
        Ok(engine)
    }
}

/// Lets `polypath ss` and `polypath monitor` see a stack of ours. The kernel has its own tools.
fn offer_control(engine: &Engine) {
    let Engine::Stack(stack) = engine else { return };
    let offered = directory().and_then(|directory| offer(Arc::new(stack.downgrade()), &directory));
    if let Err(error) = offered {
        // What carries data need not be seen.
        eprintln!("polypath: `polypath ss` won't show this process: {error}");
    }
}
