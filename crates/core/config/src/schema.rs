use alloc::string::{String, ToString};
use core::fmt;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::Policies;
use crate::policies::KINDS;

/// A key whose value names a policy says of which kind with this; its examples are the names.
const POLICY: &str = "x-policy";

/// A key's `x-policy` that is no kind of policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoSuchKind {
    what: String,
}

impl fmt::Display for NoSuchKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{POLICY}: no kind of policy \"{}\"; expected one of {}", self.what, KINDS.join(", "))
    }
}

impl core::error::Error for NoSuchKind {}

/// The JSON schema (draft 2020-12) of a kind of file. A key that names a policy says of which kind: a field has
/// `#[schemars(extend("x-policy" = Schedulers::WHAT))]`, with [`Kind::WHAT`](polypath_units::named::Kind::WHAT). The names are its
/// examples: they may have parameters after a colon, so that they are no closed list.
///
/// # Errors
/// That a key has an `x-policy` that is no kind of policy; lists the kinds.
pub fn schema<T: JsonSchema>(title: &str, policies: &Policies) -> Result<Value, NoSuchKind> {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    schema["title"] = title.into();
    name_policies(&mut schema, policies)?;
    Ok(schema)
}

fn name_policies(schema: &mut Value, policies: &Policies) -> Result<(), NoSuchKind> {
    match schema {
        Value::Object(members) => {
            if let Some(what) = members.get(POLICY) {
                let names = what.as_str().and_then(|what| policies.names_of(what));
                let names = names.ok_or_else(|| NoSuchKind {
                    what: what.as_str().map_or_else(|| what.to_string(), ToString::to_string),
                })?;
                let place = match members.get_mut("items").and_then(Value::as_object_mut) {
                    Some(items) => items,
                    None => &mut *members,
                };
                place.insert("examples".to_string(), names.into());
            }
            members.values_mut().try_for_each(|value| name_policies(value, policies))
        }
        Value::Array(values) => values.iter_mut().try_for_each(|value| name_policies(value, policies)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use polypath_mptcp::scheduler::Schedulers;
    use polypath_units::named::Kind;

    use super::*;

    #[derive(JsonSchema)]
    #[allow(dead_code, reason = "only its schema is asked for")]
    struct Right {
        #[schemars(extend("x-policy" = Schedulers::WHAT))]
        scheduler: String,
        #[schemars(extend("x-policy" = "impairment"))]
        impairments: alloc::vec::Vec<String>,
    }

    #[derive(JsonSchema)]
    #[allow(dead_code, reason = "only its schema is asked for")]
    struct Misspelt {
        #[schemars(extend("x-policy" = "shceduler"))]
        scheduler: String,
    }

    #[test]
    fn every_kind_has_names() {
        assert_eq!(KINDS.len(), 6);
        for kind in KINDS {
            assert!(Policies::default().names_of(kind).is_some_and(|names| !names.is_empty()), "{kind}");
        }
        let schema = schema::<Right>("Right", &Policies::default()).expect("both kinds are there");
        assert_eq!(schema["properties"]["scheduler"]["examples"][0], "default");
        assert_eq!(schema["properties"]["impairments"]["items"]["examples"][0], "loss");
    }

    #[test]
    fn a_misspelt_kind_is_an_error_that_says_what_was_expected() {
        let error =
            schema::<Misspelt>("Misspelt", &Policies::default()).expect_err("no such kind").to_string();
        let start = "x-policy: no kind of policy \"shceduler\"; expected one of scheduler, congestion control, path manager";
        assert!(error.starts_with(start), "{error}");
    }
}
