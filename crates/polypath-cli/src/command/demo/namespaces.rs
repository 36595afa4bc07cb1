//! `polypath demo --netns`.

use std::time::Duration as SystemDuration;

use indicatif::ProgressBar;

use super::{Arguments, Bars, Shown};
use crate::command::Failure;
use crate::command::network::block_on_interruptibly;
use crate::demo::Demo;
use crate::demo::namespaces::Namespaces;

/// The server's kernel, emulated links, and our stack.
pub(super) fn run(arguments: &Arguments, demo: &Demo) -> Result<Shown, Failure> {
    block_on_interruptibly(async {
        let namespaces = Namespaces::set_up(demo).map_err(Failure::run)?;
        let bars = if arguments.json { None } else { Some(Bars::new(demo)) };
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
        spinner.finish_and_clear();
        let mut settings = namespaces.parameters();
        let checksum = if arguments.checksum { "on" } else { "off" };
        settings.push(("DSS checksum".into(), checksum.into()));
        Ok((outcome, baselines, settings))
    })
}
