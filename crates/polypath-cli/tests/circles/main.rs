//! Files stand above and below each other: inside a crate, what a file uses does not use that file, not by detours either.
//! So each can be read with what is below it in mind, and no more. Tests are left out.

mod files;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use files::{Files, Module, without_tests};

/// The files that one uses, directly or by detours.
fn reached<'a>(uses: &'a BTreeMap<Module, BTreeSet<Module>>, from: &'a Module) -> BTreeSet<&'a Module> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(file) = next.pop() {
        next.extend(uses[file].iter().filter(|file| reached.insert(*file)));
    }
    reached
}

/// Sets of files each of which reaches all others of its set.
fn circles(uses: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<BTreeSet<&Module>> {
    let reached: BTreeMap<&Module, _> = uses.keys().map(|file| (file, reached(uses, file))).collect();
    let in_circle = uses.keys().filter(|file| reached[file].contains(file));
    in_circle
        .map(|file| reached[file].iter().copied().filter(|other| reached[other].contains(file)).collect())
        .collect()
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The folders of all crates.
fn crates() -> Vec<String> {
    let floors = ["core", "io", "apps", "lab"].map(|floor| (workspace().join(floor), format!("{floor}/")));
    let folders = floors.into_iter().chain([(workspace(), String::new())]);
    let names = folders.flat_map(|(folder, floor)| {
        let entries = fs::read_dir(folder).expect("a floor").map(|entry| entry.expect("an entry"));
        let names = entries.filter(|entry| entry.path().join("src").is_dir()).map(|entry| entry.file_name());
        names.map(move |name| format!("{floor}{}", name.to_string_lossy())).collect::<Vec<_>>()
    });
    names.collect()
}

/// A circle, line by line: who uses whom.
fn describe(name: &str, circle: &BTreeSet<&Module>, uses: &BTreeMap<Module, BTreeSet<Module>>) -> String {
    let path = |file: &Module| if file.is_empty() { "the root".into() } else { file.join("::") };
    let lines = circle.iter().map(|file| {
        let used: Vec<String> = uses[*file].iter().filter(|file| circle.contains(file)).map(path).collect();
        format!("    {} uses {}\n", path(file), used.join(", "))
    });
    format!("{name}:\n{}", lines.collect::<String>())
}

fn read(folder: &Path, module: &Module, texts: &mut Vec<(Module, String)>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        if name == "tests" || name.ends_with("_tests") {
            continue;
        }
        let is_root = ["mod", "lib", "main"].contains(&name.as_str());
        let inner = if is_root { module.clone() } else { [module.as_slice(), &[name]].concat() };
        if path.is_dir() {
            read(&path, &inner, texts);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            texts.push((inner, without_tests(&fs::read_to_string(path).expect("a source file"))));
        }
    }
}

#[test]
fn no_files_need_each_other() {
    let mut found = String::new();
    for name in crates() {
        let mut texts = Vec::new();
        read(&workspace().join(&name).join("src"), &Vec::new(), &mut texts);
        let uses = Files::new(&texts).uses();
        for circle in circles(&uses) {
            found += &describe(&name, &circle, &uses);
        }
    }
    assert!(found.is_empty(), "what these files share wants a place below them:\n{found}");
}

#[test]
fn circles_are_found() {
    let module = |name: &str| name.split("::").filter(|part| !part.is_empty()).map(str::to_string).collect();
    let texts = [
        ("", "mod a;\nmod b;\nmod c;\npub use a::{inner::Deep, Shallow};"),
        ("a", "use b::B;\nuse super::{\n    b::{B, b},\n};"),
        ("a::inner", "fn f(x: super::super::c::C) {}"),
        ("b", "fn f() { g(crate::Deep::new()) }\n#[cfg(test)]\nmod tests {\n    use crate::a;\n}"),
        ("c", "pub(in crate::a) struct C; // crate::a\n#[cfg(test)]\nuse super::a;\nfn f(x: crate::b::B) {}"),
    ];
    let texts = texts.map(|(name, text)| (module(name), without_tests(text)));
    let uses = Files::new(&texts).uses();
    let expected = ["a::inner", "b", "c"].map(module);
    assert_eq!(circles(&uses), BTreeSet::from([expected.iter().collect()]));
}
