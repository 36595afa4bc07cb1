use alloc::string::ToString;
use alloc::vec::Vec;

use polypath_congestion::Algorithms;
use polypath_link::impairment::Impairments;
use polypath_link::middlebox::Middleboxes;
use polypath_link::queue::Disciplines;
use polypath_mptcp::path_manager::PathManagers;
use polypath_mptcp::scheduler::Schedulers;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::{Policies, PolicyKind};

/// A key whose value names a policy says of which kind with this; its examples are the names.
const POLICY: &str = "x-policy";

/// The JSON schema (draft 2020-12) of a kind of file. Keys that name policies have their names as examples: names may have parameters
/// after a colon, so that they are no closed list.
#[must_use]
pub fn schema<T: JsonSchema>(title: &str, policies: &Policies) -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    schema["title"] = title.into();
    name_policies(&mut schema, policies);
    schema
}

fn name_policies(schema: &mut Value, policies: &Policies) {
    match schema {
        Value::Object(members) => {
            let names = members.get(POLICY).and_then(Value::as_str).map(|kind| names(kind, policies));
            if let Some(names) = names {
                let place = match members.get_mut("items").and_then(Value::as_object_mut) {
                    Some(items) => items,
                    None => &mut *members,
                };
                place.insert("examples".to_string(), names);
            }
            members.values_mut().for_each(|value| name_policies(value, policies));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| name_policies(value, policies)),
        _ => {}
    }
}

fn names(kind: &str, policies: &Policies) -> Value {
    fn of<K: PolicyKind>(kind: &str, policies: &Policies) -> Option<Value> {
        let names = || policies.all::<K>().map(|policy| policy.name()).collect::<Vec<_>>();
        (kind == K::WHAT).then(|| names().into())
    }
    let kinds = [
        of::<Schedulers>,
        of::<Algorithms>,
        of::<PathManagers>,
        of::<Disciplines>,
        of::<Middleboxes>,
        of::<Impairments>,
    ];
    kinds.into_iter().find_map(|of| of(kind, policies)).unwrap_or_default()
}
