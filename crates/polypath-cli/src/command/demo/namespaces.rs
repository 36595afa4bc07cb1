//! `polypath demo --netns`.

use std::time::Duration as SystemDuration;

use indicatif::ProgressBar;

use super::{Arguments, Bars, Ran};
use crate::command::Failure;
use crate::command::network::block_on_interruptibly;
use crate::demo::Demo;
use crate::demo::namespaces::Namespaces;

/// The server's kernel, emulated links, and our stack.
pub(super) fn run(arguments: &Arguments, demo: &Demo) -> Result<Ran, Failure> {
    block_on_interruptibly(async {
        let namespaces = Namespaces::set_up(demo).map_err(Failure::run)?;
        let bars = if arguments.json { None } else { Some(Bars::new(demo, None)) };
        let outcome = namespaces.run(|sample| {
            if let Some(bars) = &bars {
                bars.show(sample);
            }
        });
        let outcome = outcome.await.map_err(Failure::run)?;
        if let Some(bars) = &bars {
            bars.finish();
        }
        let spinner = if arguments.json { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        spinner.enable_steady_tick(SystemDuration::from_millis(100));
        let baselines =
            namespaces.measure_baselines(|step| spinner.set_message(format!("beside it: {step}")));
        let baselines = baselines.await.map_err(Failure::run)?;
        let (path, _) = baselines.best().ok_or_else(|| Failure::run("there is no path"))?;
        spinner.set_message(format!("beside it: TCP over {}, under the same cut", demo.paths[path].name));
        let beside = namespaces.tcp_beside(path).await.map_err(Failure::run)?;
        spinner.finish_and_clear();
        let mut settings = namespaces.parameters();
        let checksum = if arguments.checksum { "on" } else { "off" };
        settings.push(("DSS checksum".into(), checksum.into()));
        Ok(Ran { outcome, beside, baselines, parameters: settings })
    })
}
