//! Which file of a crate uses which, by its imports and the paths in its code.

use std::collections::{BTreeMap, BTreeSet};

/// Names from the crate's root on, which has none itself.
pub(crate) type Module = Vec<String>;

/// The files of a crate, as far as it matters who uses whom.
#[derive(Default)]
pub(crate) struct Files {
    /// Imports, and the code with the rest of the paths.
    modules: BTreeMap<Module, (Vec<String>, String)>,
    /// What a module publishes under a name of its own, and where that is from.
    published: BTreeMap<(Module, String), Module>,
}

impl Files {
    /// Of the texts of modules, without their tests.
    pub(crate) fn new(texts: &[(Module, String)]) -> Self {
        let mut files = Self::default();
        let mut public = Vec::new();
        for (module, text) in texts {
            let (imports, code) = files.modules.entry(module.clone()).or_default();
            let mut lines = text.lines();
            while let Some(line) = lines.next() {
                let (is_public, item) = without_visibility(line.trim());
                let Some(tree) = item.strip_prefix("use ") else {
                    // Who may see an item says nothing of whom it uses.
                    *code += &line.replace("(in crate::", "(").replace("(in super::", "(");
                    code.push('\n');
                    continue;
                };
                let mut tree = tree.to_string();
                while !tree.contains(';') {
                    tree += lines.next().unwrap_or(";").trim();
                }
                let paths = expand(tree.trim_end_matches(';'));
                if is_public {
                    public.extend(paths.into_iter().map(|path| (module.clone(), path)));
                } else {
                    imports.extend(paths);
                }
            }
        }
        for (module, path) in public {
            let (path, name) = path.split_once(" as ").unwrap_or((&path, &path));
            if let (Some(target), Some(name)) = (files.absolute(&module, path), name.rsplit("::").next()) {
                files.published.insert((module, name.into()), target);
            }
        }
        files
    }

    /// A path as it is written in a module, from the crate's root on; none if it leads to another crate.
    fn absolute(&self, module: &[String], path: &str) -> Option<Module> {
        let (first, rest) = path.split_once("::").unwrap_or((path, ""));
        let rest = rest.split("::").filter(|name| !name.is_empty()).map(str::to_string);
        let mut absolute = module.to_vec();
        match first {
            "crate" => absolute.clear(),
            "self" => {}
            "super" => drop(absolute.pop()),
            child => absolute.push(child.into()),
        }
        if !matches!(first, "crate" | "self" | "super") && !self.modules.contains_key(&absolute) {
            return None;
        }
        for name in rest {
            if name == "super" { drop(absolute.pop()) } else { absolute.push(name) }
        }
        Some(absolute)
    }

    /// The file that a path leads to, through what others publish.
    fn file_of(&self, path: &[String], detours: u32) -> Option<Module> {
        let split = (0..=path.len()).rev().find(|split| self.modules.contains_key(&path[..*split]))?;
        let (module, rest) = path.split_at(split);
        let name = rest.first().cloned().unwrap_or_default();
        match self.published.get(&(module.to_vec(), name)) {
            Some(target) if detours < 5 => {
                self.file_of(&[target.as_slice(), &rest[1..]].concat(), detours + 1)
            }
            _ => Some(module.to_vec()),
        }
    }

    /// Each file with those that it uses.
    pub(crate) fn uses(&self) -> BTreeMap<Module, BTreeSet<Module>> {
        let used = |module: &Module, (imports, code): &(Vec<String>, String)| {
            let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
            let words = code.split(|c| !is_part(c)).map(|word| word.trim_end_matches(':'));
            let inline = words.filter(|word| word.starts_with("crate::") || word.starts_with("super::"));
            let paths = imports.iter().map(String::as_str).chain(inline);
            let paths = paths.filter_map(|path| self.absolute(module, path));
            paths.filter_map(|path| self.file_of(&path, 0)).filter(|file| file != module).collect()
        };
        self.modules.iter().map(|(module, content)| (module.clone(), used(module, content))).collect()
    }
}

/// An item after its `pub` or `pub(…)`, and whether it had one.
fn without_visibility(item: &str) -> (bool, &str) {
    match item.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => (true, rest.split_once(") ").map_or("", |(_, item)| item)),
        Some(rest) if rest.starts_with(' ') => (true, rest.trim_start()),
        _ => (false, item),
    }
}

/// The paths of `a::{b, c::{d, e}}`.
fn expand(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((prefix, inner)) = tree.split_once('{') else { return vec![tree.into()] };
    let mut depth = 0;
    let parts = inner.strip_suffix('}').unwrap_or(inner).split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    let parts = parts.filter(|part| !part.trim().is_empty());
    parts.flat_map(expand).map(|path| format!("{prefix}{path}")).collect()
}

/// The text without comments and without what only tests see.
pub(crate) fn without_tests(text: &str) -> String {
    let mut lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let mut code = String::new();
    while let Some(mut line) = lines.next() {
        if ["#[cfg(test)]", "#[cfg(any(test"].iter().any(|start| line.trim().starts_with(start)) {
            line = lines.by_ref().find(|line| !line.trim().starts_with("#[")).unwrap_or_default();
            let (_, item) = without_visibility(line.trim());
            if item.starts_with("mod ") && item.ends_with('{') {
                // Tests end a file.
                break;
            }
            if item.starts_with("mod ") || item.starts_with("use ") {
                while !line.ends_with(';') {
                    line = lines.next().unwrap_or(";");
                }
                continue;
            }
        }
        code += line;
        code.push('\n');
    }
    code
}
