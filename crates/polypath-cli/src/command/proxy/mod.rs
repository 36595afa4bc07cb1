//! `polypath proxy`.

mod answering;
mod arguments;
mod asking;
mod budgets;
mod doors;
mod doubts;
mod entrance_text;
mod entrances;
mod fast_open;
mod figures;
mod file;
mod handed_down;
mod intercepting;
mod keeping;
mod limits;
mod report;
mod room;
mod running;
mod stage;
mod status;
mod successor;
mod surroundings;
mod threads;
mod throttle;
mod tls;
mod told;
mod transparent;
mod via;
mod wrong;

use polypath_config::{NoSuchKind, Policies};
use polypath_system::process::raise_descriptor_limit;

pub(super) use self::arguments::Arguments;
use self::arguments::What;
pub(super) use self::asking::ask_all;
pub(super) use self::figures::Figures;
use self::file::File;
use self::handed_down::HandedDown;
pub(super) use self::report::ProxyReport;
use self::running::Given;
use super::Failure;
use super::network::in_runtime;

pub(super) fn run(arguments: &Arguments, policies: &Policies) -> Result<(), Failure> {
    match &arguments.what {
        Some(What::Status { of, json }) => status::status(of.instance.as_deref(), *json),
        Some(What::Set { of, change }) => status::set(of.instance.as_deref(), change),
        Some(What::Unset { of, limit }) => status::unset(of.instance.as_deref(), limit),
        Some(What::Reload { of }) => status::reload(of.instance.as_deref()),
        Some(What::Down { of }) => status::down(of.instance.as_deref()),
        None => {
            let arguments = &arguments.run.configured(policies)?;
            raise_descriptor_limit();
            let plan = arguments.plan()?;
            let given = Given { handed_down: HandedDown::take(), successor: arguments.successor()? };
            arguments.check_threads()?;
            in_runtime(running::run(arguments, policies, plan, given))
        }
    }
}

/// The schema of the proxy's files.
pub(super) fn schema_of_files(policies: &Policies) -> Result<serde_json::Value, NoSuchKind> {
    polypath_config::schema::<File>("A proxy of Polypath", policies)
}
