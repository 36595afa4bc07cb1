use polypath_config::Policies;

use super::file::File;
use super::interfaces::InterfacesFile;

/// The JSON schema of scenario files.
#[must_use]
pub fn schema(policies: &Policies) -> serde_json::Value {
    polypath_config::schema::<File>("A scenario of Polypath", policies)
}

/// The JSON schema of files with links between interfaces.
#[must_use]
pub fn interfaces_schema(policies: &Policies) -> serde_json::Value {
    polypath_config::schema::<InterfacesFile>("Links that Polypath emulates", policies)
}
