//! No circles: the files of a crate use each other in one direction only.
//!
//! An edge goes from a file to the one that defines an item that it names. To declare a module, or
//! to re-export what it defines, is to use neither.

use std::collections::{BTreeMap, BTreeSet};

use super::sources::{crates, declared, is_of_name, programs};

/// What a name of a file stands for: a path from the root of its crate.
type Aliases = BTreeMap<String, Vec<String>>;

/// A file as a module of its crate.
struct Module {
    /// From the root of the repository.
    file: String,
    path: Vec<String>,
    /// Without comments and tests.
    code: String,
    items: BTreeSet<String>,
    children: BTreeSet<String>,
    aliases: Aliases,
    /// Those of the aliases that others may use too, and this file perhaps not at all.
    re_exports: BTreeSet<String>,
}

impl Module {
    fn new(file: &str, path: Vec<String>, code: String) -> Self {
        let mut items = BTreeSet::new();
        let mut children = BTreeSet::new();
        for line in code.lines() {
            match declared(line) {
                Some(("mod", name)) if line.ends_with(';') => _ = children.insert(name),
                Some(("mod", _)) | None => {}
                Some((_, name)) if line.starts_with(|first: char| !first.is_whitespace()) => {
                    items.insert(name);
                }
                Some(_) => {}
            }
        }
        let mut aliases = Aliases::new();
        let mut re_exports = BTreeSet::new();
        let mut rest = String::new();
        for statement in code.split_inclusive(';') {
            let Some((before, is_public, tree)) = used(statement) else {
                rest += statement;
                continue;
            };
            rest += before;
            for mut names in leaves(tree) {
                let name = names.pop().unwrap_or_default();
                let target = absolute(&path, &children, &names);
                if is_public {
                    re_exports.insert(name.clone());
                }
                aliases.insert(name, target);
            }
        }
        Self { file: file.to_owned(), path, code: rest, items, children, aliases, re_exports }
    }
}

/// The tree of a `use`, whether it is one for others, and what stands before it.
fn used(statement: &str) -> Option<(&str, bool, &str)> {
    let at = statement.rfind("use ")?;
    let (before, tree) = statement.split_at(at);
    let line = before.rsplit('\n').next().unwrap_or_default().trim();
    let is_use = line.is_empty() || line.starts_with("pub");
    let tree = tree.strip_prefix("use ")?.strip_suffix(';')?;
    is_use.then_some((before, !line.is_empty(), tree))
}

/// The paths of a tree, each followed by the name that it gets.
fn leaves(tree: &str) -> Vec<Vec<String>> {
    let tree: String = tree.split_whitespace().collect::<Vec<_>>().join(" ");
    let (stem, group) = match tree.split_once('{') {
        Some((stem, group)) => (stem, group.rsplit_once('}').map_or(group, |(group, _)| group)),
        None => {
            let (path, name) = tree.split_once(" as ").unwrap_or((&tree, ""));
            let mut names: Vec<_> = path.split("::").map(|name| name.trim().to_owned()).collect();
            if names.len() > 1 && names.last().is_some_and(|name| name == "self") {
                names.pop();
            }
            let own = names.last().cloned().unwrap_or_default();
            names.push(if name.is_empty() { own } else { name.trim().to_owned() });
            return vec![names];
        }
    };
    let mut depth = 0;
    let mut parts = vec![String::new()];
    for letter in group.chars() {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        match letter {
            ',' if depth == 0 => parts.push(String::new()),
            _ => parts.last_mut().expect("a part").push(letter),
        }
    }
    let parts = parts.into_iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(|part| leaves(&format!("{stem}{}", part.trim()))).collect()
}

/// A path that a module names, from the root of the crate. One of another crate goes nowhere.
fn absolute(module: &[String], children: &BTreeSet<String>, names: &[String]) -> Vec<String> {
    let mut at: Vec<String> = match names.first().map(String::as_str) {
        Some("crate" | "$crate") => Vec::new(),
        Some("self") => module.to_vec(),
        Some("super") => module[..module.len().saturating_sub(1)].to_vec(),
        Some(first) if children.contains(first) => [module, &names[..1]].concat(),
        _ => return vec!["::".to_owned()],
    };
    for name in &names[1..] {
        match name.as_str() {
            "super" => _ = at.pop(),
            _ => at.push(name.clone()),
        }
    }
    at
}

/// All paths of some code: names with `::` between them, and single names.
fn paths(code: &str) -> BTreeSet<Vec<String>> {
    let is_of_path = |letter: char| is_of_name(letter) || letter == ':';
    let words = code.split(|letter| !is_of_path(letter)).filter(|word| !word.is_empty());
    let names = words.map(|word| word.split("::").map(|name| name.trim_matches(':').to_owned()));
    names.map(|names| names.filter(|name| !name.is_empty()).collect()).collect()
}

/// The file that defines what a path names, re-exports seen through.
fn file_of(modules: &BTreeMap<Vec<String>, Module>, path: &[String], steps: u8) -> Option<String> {
    let depth = (0..=path.len()).rev().find(|depth| modules.contains_key(&path[..*depth]))?;
    let module = &modules[&path[..depth]];
    // A module alone is not used: what is named in it is.
    let item = path.get(depth)?;
    if module.items.contains(item) {
        return Some(module.file.clone());
    }
    let target = module.aliases.get(item).filter(|_| steps > 0)?;
    let target = [target, &path[depth + 1..]].concat();
    file_of(modules, &target, steps - 1)
}

/// Which files use which, in one crate.
fn edges(files: &[(String, Vec<String>, String)]) -> BTreeMap<String, BTreeSet<String>> {
    let modules = files
        .iter()
        .map(|(file, path, code)| (path.clone(), Module::new(file, path.clone(), code.clone())));
    let modules: BTreeMap<_, _> = modules.collect();
    let mut edges = BTreeMap::new();
    for module in modules.values() {
        let named = paths(&module.code);
        let is_named = |name: &String| named.iter().any(|path| path.first() == Some(name));
        let imports = module.aliases.iter();
        let imports =
            imports.filter(|(name, _)| !module.re_exports.contains(*name) || is_named(name));
        let inline = named.iter().filter(|path| path.len() > 1).map(|path| {
            match module.aliases.get(&path[0]) {
                Some(target) => [target, &path[1..]].concat(),
                None => absolute(&module.path, &module.children, path),
            }
        });
        let targets = imports.map(|(_, target)| target.clone()).chain(inline);
        let files = targets.filter_map(|target| file_of(&modules, &target, 8));
        let others = files.filter(|file| *file != module.file);
        edges.insert(module.file.clone(), others.collect());
    }
    edges
}

/// Which files of a crate use which. The modules of a program may use what its `main.rs`, and the
/// `mod.rs` of their folder, have for them all; those of a library may not.
fn between_rooms(files: &[(String, Vec<String>, String)]) -> BTreeMap<String, BTreeSet<String>> {
    let mut edges = edges(files);
    if files.iter().any(|(file, ..)| file.ends_with("/main.rs")) {
        let is_room = |file: &String| !file.ends_with("main.rs") && !file.ends_with("mod.rs");
        edges.values_mut().for_each(|used| used.retain(is_room));
    }
    edges
}

/// The files that a file uses, and those that they use.
fn reached<'a>(edges: &'a BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut left = vec![from.to_owned()];
    while let Some(next) = left.pop() {
        let new = edges[&next].iter().filter(|file| seen.insert(file.as_str()));
        left.extend(new.cloned());
    }
    seen
}

/// The circles: the files of each reach each other.
fn circles(edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reached: BTreeMap<_, _> =
        edges.keys().map(|file| (&**file, reached(edges, file))).collect();
    let mut found = BTreeSet::new();
    for (file, others) in reached.iter().filter(|(file, others)| others.contains(*file)) {
        let both = others.iter().filter(|other| reached[*other].contains(file));
        found.insert(both.map(|file| (*file).to_owned()).collect::<Vec<_>>());
    }
    found.into_iter().collect()
}

#[test]
fn no_two_files_use_each_other() {
    let mut found = Vec::new();
    for (_, files) in crates().into_iter().chain(programs()) {
        let edges = between_rooms(&files);
        for circle in circles(&edges) {
            let within = |file: &String| {
                let ends = edges[file].iter().filter(|end| circle.contains(*end));
                format!("{file} -> {}", ends.cloned().collect::<Vec<_>>().join(", "))
            };
            let shown: Vec<_> = circle.iter().map(within).collect();
            found.push(shown.join("\n  "));
        }
    }
    assert!(found.is_empty(), "{} circles:\n  {}", found.len(), found.join("\n\n  "));
}

mod of_the_check {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let file = |(file, code): &(&str, &str)| {
            let path = file.trim_end_matches(".rs").trim_end_matches("mod").trim_end_matches("lib");
            let path = path.split('/').filter(|name| !name.is_empty()).map(str::to_owned);
            ((*file).to_owned(), path.collect(), (*code).to_owned())
        };
        circles(&edges(&files.iter().map(file).collect::<Vec<_>>()))
    }

    const ROOT: (&str, &str) = ("lib.rs", "mod a;\nmod b;\npub use a::A;\n");

    #[test]
    fn a_circle_through_a_re_export_is_found() {
        let a = ("a.rs", "use super::b::{self, C};\npub struct A;\nfn f() { b::g() }\n");
        let b = ("b.rs", "use crate::A;\npub struct C;\npub fn g() {}\n");
        assert_eq!(found(&[ROOT, a, b]), [["a.rs", "b.rs"]]);
    }

    #[test]
    fn a_circle_of_paths_in_the_code_is_found() {
        let a = ("a.rs", "pub struct A;\nfn f() { crate::b::g() }\n");
        let b = ("b.rs", "use super::a;\npub fn g() -> a::A {}\n");
        assert_eq!(found(&[ROOT, a, b]), [["a.rs", "b.rs"]]);
    }

    #[test]
    fn a_folder_that_uses_its_own_files_must_not_be_used_by_them() {
        let root = ("lib.rs", "mod a;\n");
        let child = ("a/c.rs", "use super::Shared;\npub struct C;\n");
        let uses = ("a/mod.rs", "mod c;\nuse self::c::C;\nstruct Shared(C);\n");
        assert_eq!(found(&[root, uses, child]), [["a/c.rs", "a/mod.rs"]]);
        let re_exports = ("a/mod.rs", "mod c;\npub use self::c::C;\nstruct Shared;\n");
        assert_eq!(found(&[root, re_exports, child]), [[""; 0]; 0]);
    }

    #[test]
    fn a_module_that_is_imported_and_not_used_makes_no_circle() {
        let a = ("a.rs", "use super::b;\npub struct A;\n");
        let b = ("b.rs", "use crate::A;\npub struct C;\n");
        assert_eq!(found(&[ROOT, a, b]), [[""; 0]; 0]);
    }
}
