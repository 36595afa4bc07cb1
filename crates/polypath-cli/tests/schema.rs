//! The schemas that `polypath schema` prints: they describe every key, and the files of this repository are as they say.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::Value;

fn schema(kind: &str) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_polypath")).args(["schema", kind]).output();
    serde_json::from_slice(&output.expect("the command runs").stdout).expect("JSON")
}

fn compiled(schema: Value) -> (Schemas, SchemaIndex) {
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    compiler.add_resource("schema.json", schema).expect("JSON");
    let index = compiler.compile("schema.json", &mut schemas).expect("a schema");
    (schemas, index)
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The TOML files of a folder.
fn files(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(workspace().join(folder)).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).collect()
}

fn toml(text: &str) -> Value {
    toml::from_str(text).expect("TOML")
}

#[test]
fn our_files_are_as_the_schemas_say() {
    let scenarios =
        files("examples").into_iter().chain([workspace().join("examples/policies/scenario.toml")]);
    let experiments =
        files("experiments").into_iter().chain([workspace().join("examples/policies/experiment.toml")]);
    for (kind, files, least) in
        [("scenario", scenarios.collect::<Vec<_>>(), 2), ("experiment", experiments.collect(), 28)]
    {
        let (schemas, index) = compiled(schema(kind));
        assert!(files.len() >= least, "{files:?}");
        for file in files {
            let text = fs::read_to_string(&file).expect("a file");
            if let Err(error) = schemas.validate(&toml(&text), index) {
                panic!("{}: {error}", file.display());
            }
        }
    }
}

#[test]
fn what_is_not_known_is_no_such_file() {
    let text = fs::read_to_string(workspace().join("examples/wifi-lte.toml")).expect("a file");
    let (schemas, index) = compiled(schema("scenario"));
    let is_one = |text: &str| schemas.validate(&toml(text), index).is_ok();
    assert!(is_one(&text) && is_one(&format!("sample-interval = \"1s\"\n{text}")));
    for wrong in ["sample_interval = \"1s\"", "sample-interval = 1", "sede = 1"] {
        assert!(!is_one(&format!("{wrong}\n{text}")), "{wrong}");
    }
    assert!(!is_one("duration = \"1s\""), "nothing of what must be there");
}

/// Every property below a schema, and whether it says what it is.
fn undescribed(schema: &Value, place: &str, found: &mut Vec<String>) {
    match schema {
        Value::Object(members) => {
            for (name, property) in members.get("properties").and_then(Value::as_object).into_iter().flatten()
            {
                if property["description"].as_str().is_none_or(str::is_empty) {
                    found.push(format!("{place}.{name}"));
                }
                assert!(!name.contains('_') && name.to_lowercase() == *name, "{place}.{name}");
            }
            for (name, member) in members {
                undescribed(member, &format!("{place}.{name}"), found);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| undescribed(value, place, found)),
        _ => {}
    }
}

#[test]
fn every_key_is_described_and_policies_are_named() {
    for kind in ["scenario", "experiment", "links", "proxy"] {
        let schema = schema(kind);
        let mut found = Vec::new();
        undescribed(&schema, kind, &mut found);
        assert!(found.is_empty(), "{found:?}");
        assert!(!schema["description"].as_str().expect("a description").is_empty());
    }
    let connection = &schema("scenario")["$defs"]["ConnectionFile"]["properties"];
    let names = connection["scheduler"]["examples"].as_array().expect("names");
    assert!(names.contains(&"lowest-rtt".into()), "{names:?}");
    let boxes = &schema("links")["$defs"]["LinkFile"]["properties"]["middleboxes"]["items"]["examples"];
    assert!(boxes.as_array().expect("names").contains(&"nat".into()), "{boxes}");
}

#[test]
fn a_configuration_is_as_its_schema_says() {
    let (schemas, index) = compiled(schema("config"));
    let text = r#"
[engine]
engine = "auto"
interfaces = ["wlan0,priority=1", { name = "wwan0", backup = true, budget = "2GB" }]
keepalive = "60s"

[[rules]]
program = "curl"
scheduler = "redundant"
"#;
    assert!(schemas.validate(&toml(text), index).is_ok());
    for (from, to) in [("keepalive", "keep-alive"), ("\"auto\"", "\"quic\""), ("backup = true", "backup = 1")]
    {
        assert!(schemas.validate(&toml(&text.replace(from, to)), index).is_err(), "{to}");
    }
}

#[test]
fn files_of_a_proxy_are_as_their_schema_says() {
    let (schemas, index) = compiled(schema("proxy"));
    let page = fs::read_to_string(workspace().join("docs/guide/src/proxy.md")).expect("the guide");
    let files: Vec<&str> =
        page.split("```toml kind=proxy\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(files.len() >= 3, "{files:?}");
    for file in &files {
        if let Err(error) = schemas.validate(&toml(file), index) {
            panic!("{file}: {error}");
        }
    }
    let packaged = fs::read_to_string(workspace().join("packaging/proxy.toml")).expect("the package's file");
    assert!(schemas.validate(&toml(&packaged), index).is_ok());
    let whole = files.iter().find(|file| file.contains("[[throttle]]")).expect("one with limits");
    for (from, to) in [
        ("\"forward\"", "\"ftp\""),
        ("verdict = \"allow\"", ""),
        ("connections-per-client = 200", "connections-per-client = \"many\""),
        ("rate = ", "speed = "),
        ("default = \"deny\"", "default = \"ask\""),
    ] {
        let wrong = whole.replace(from, to);
        assert!(wrong != *whole && schemas.validate(&toml(&wrong), index).is_err(), "{to}");
    }
}
