//! Checks that the top-level modules of a crate do not import each other in a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::exceptions::Exceptions;
use super::files::{Sources, is_test};
use super::tokens;

const KNOWN: Exceptions = Exceptions {
    file: "circles.txt",
    purpose: "Modules of a crate that import each other in circles.",
};

/// Module, the module that it imports, and a file that does so.
type Imports = BTreeMap<String, BTreeMap<String, PathBuf>>;

pub(super) fn check(sources: &Sources, update: bool) -> anyhow::Result<()> {
    let mut found = BTreeMap::new();
    for (name, imports) in crates(sources) {
        for circle in circles(&imports) {
            let key = format!(
                "{}: {}",
                name.display(),
                circle.iter().cloned().collect::<Vec<_>>().join(" ")
            );
            let report =
                format!("{key} import each other in a circle:\n{}", describe(&imports, &circle));
            found.insert(key, report);
        }
    }
    KNOWN.check(&found, update)
}

/// The imports between top-level modules, by crate.
fn crates(sources: &Sources) -> BTreeMap<&Path, Imports> {
    let mut modules: BTreeMap<&Path, Vec<Module>> = BTreeMap::new();
    for source in sources.rust.iter().filter(|source| !is_test(&source.path)) {
        let Some((home, below)) = sources.place(source) else { continue };
        if below.starts_with("bin") {
            continue;
        }
        let path = module_path(below);
        let references = tokens::references(source.tokens.clone(), path.len());
        let root_names =
            if path.is_empty() { tokens::root_names(source.tokens.clone()) } else { Vec::new() };
        let module = Module { file: source.path.clone(), path, references, root_names };
        modules.entry(home).or_default().push(module);
    }
    modules.into_iter().map(|(home, modules)| (home, imports(&modules))).collect()
}

struct Module {
    file: PathBuf,
    /// Empty for the crate's root.
    path: Vec<String>,
    references: tokens::References,
    /// Names that the crate's root imports, and the modules that they come from; empty elsewhere.
    root_names: Vec<(String, String)>,
}

/// `a/b.rs` and `a/b/mod.rs` are the module `a::b`.
fn module_path(below: &Path) -> Vec<String> {
    let mut path: Vec<String> =
        below.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if path.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        path.pop();
    }
    path
}

fn imports(modules: &[Module]) -> Imports {
    let test_modules: BTreeSet<Vec<String>> = modules
        .iter()
        .flat_map(|module| {
            let of = |name: &String| [&module.path[..], std::slice::from_ref(name)].concat();
            module.references.test_modules.iter().map(of).collect::<Vec<_>>()
        })
        .collect();
    let is_for_tests =
        |path: &[String]| (1..=path.len()).any(|end| test_modules.contains(&path[..end]));
    let top: BTreeSet<&String> = modules.iter().filter_map(|module| module.path.first()).collect();
    let root_names: BTreeMap<&String, &String> = modules
        .iter()
        .flat_map(|module| module.root_names.iter().map(|(name, from)| (name, from)))
        .collect();
    let mut imports = Imports::new();
    for module in modules.iter().filter(|module| !is_for_tests(&module.path)) {
        let Some(own) = module.path.first() else { continue };
        for name in &module.references.names {
            let target =
                if top.contains(name) { Some(name) } else { root_names.get(name).copied() };
            if let Some(target) = target.filter(|target| *target != own && top.contains(target)) {
                let files = imports.entry(own.clone()).or_default();
                files.entry(target.clone()).or_insert_with(|| module.file.clone());
            }
        }
    }
    imports
}

/// The sets of modules in which each module imports all others, directly or not.
fn circles(imports: &Imports) -> BTreeSet<BTreeSet<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        imports.keys().map(|module| (module, reach(imports, module))).collect();
    let circle = |module: &String| -> BTreeSet<String> {
        let reaches_back =
            |other: &&&String| reached.get(**other).is_some_and(|its| its.contains(module));
        reached[module].iter().filter(reaches_back).map(|other| (*other).clone()).collect()
    };
    imports.keys().map(circle).filter(|circle| circle.len() > 1).collect()
}

fn reach<'a>(imports: &'a Imports, from: &'a String) -> BTreeSet<&'a String> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(module) = next.pop() {
        let targets = imports.get(module).into_iter().flat_map(BTreeMap::keys);
        next.extend(targets.filter(|target| reached.insert(*target)));
    }
    reached
}

/// The imports within a circle.
fn describe(imports: &Imports, circle: &BTreeSet<String>) -> String {
    let mut lines = Vec::new();
    for (module, targets) in imports.iter().filter(|(module, _)| circle.contains(*module)) {
        for (target, file) in targets.iter().filter(|(target, _)| circle.contains(*target)) {
            lines.push(format!("    {module} -> {target}, as in {}", file.display()));
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(file: &str, text: &str) -> Module {
        let path = module_path(Path::new(file));
        let tokens: proc_macro2::TokenStream = text.parse().unwrap();
        let root_names =
            if path.is_empty() { tokens::root_names(tokens.clone()) } else { Vec::new() };
        let references = tokens::references(tokens, path.len());
        Module { file: file.into(), path, references, root_names }
    }

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let modules: Vec<Module> = files.iter().map(|(file, text)| module(file, text)).collect();
        let join = |circle: BTreeSet<String>| circle.into_iter().collect::<Vec<_>>().join(" ");
        circles(&imports(&modules)).into_iter().map(join).collect()
    }

    #[test]
    fn imports_both_ways_are_a_circle() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a/mod.rs", "mod inner;"),
            ("a/inner.rs", "use crate::b::X;"),
            ("b.rs", "use super::a::Y; use crate::c::Z;"),
            ("c.rs", ""),
        ];
        assert_eq!(found(&files), ["a b"]);
        assert_eq!(found(&files[..3]), Vec::<String>::new());
    }

    #[test]
    fn circle_through_the_root_is_found() {
        let files = [
            ("lib.rs", "mod a; mod b; pub use b::X;"),
            ("a.rs", "use crate::X;"),
            ("b.rs", "fn f() { crate::a::g() }"),
        ];
        assert_eq!(found(&files), ["a b"]);
    }

    #[test]
    fn imports_of_tests_are_no_circle() {
        let files = [
            ("lib.rs", "mod a; mod b; #[cfg(test)] mod samples;"),
            ("a.rs", "#[cfg(test)] mod tests { use crate::b; }"),
            ("b.rs", "use crate::a;"),
            ("samples.rs", "use crate::b; use crate::a;"),
        ];
        assert_eq!(found(&files), Vec::<String>::new());
    }
}
