use polypath_config::{NoSuchKind, Policies};

use super::file::File;
use super::interfaces::InterfacesFile;

/// The JSON schema of scenario files.
///
/// # Errors
/// That a key's kind of policy is none.
pub fn schema(policies: &Policies) -> Result<serde_json::Value, NoSuchKind> {
    polypath_config::schema::<File>("A scenario of Polypath", policies)
}

/// The JSON schema of files with links between interfaces.
///
/// # Errors
/// That a key's kind of policy is none.
pub fn interfaces_schema(policies: &Policies) -> Result<serde_json::Value, NoSuchKind> {
    polypath_config::schema::<InterfacesFile>("Links that Polypath emulates", policies)
}
