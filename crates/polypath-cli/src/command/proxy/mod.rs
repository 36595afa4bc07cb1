//! `polypath proxy`.

mod arguments;
mod entrances;
mod file;
mod running;
mod told;

use polypath_config::Policies;

pub(super) use self::arguments::Arguments;
use super::Failure;
use super::network::block_on_own_signals;

pub(super) fn run(arguments: &Arguments, policies: &Policies) -> Result<(), Failure> {
    let arguments = &arguments.configured(policies)?;
    let plan = arguments.plan()?;
    block_on_own_signals(running::run(arguments, policies, plan))
}
