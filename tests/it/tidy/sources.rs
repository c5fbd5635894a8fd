//! The sources of this repository, and how they are read.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A file below `src`.
pub(super) struct Source {
    /// From there, with slashes.
    pub(super) path: String,
    pub(super) text: String,
}

impl Source {
    /// What ships of it, without comments: tests are at the end.
    pub(super) fn code(&self) -> String {
        let shipped = self.text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let lines = shipped.lines().filter(|line| !line.trim_start().starts_with("//"));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Where it is in the tree of modules.
    fn module(&self) -> Vec<&str> {
        let path = self.path.trim_end_matches(".rs");
        let path = path.trim_end_matches("/mod").trim_end_matches("lib").trim_end_matches("main");
        path.split('/').filter(|name| !name.is_empty()).collect()
    }

    /// The modules at the root of the crate that its code names.
    pub(super) fn knows(&self) -> BTreeSet<String> {
        let code = self.code();
        let from_root = after(&code, "crate::").map(first_name);
        let depth = self.module().len();
        // So many steps up are the root itself.
        let up = "super::".repeat(depth);
        let from_above = after(&code, &up).filter(|_| depth > 0).map(first_name);
        let names = from_root.chain(from_above).filter(|name| !name.is_empty());
        names.map(str::to_owned).collect()
    }

    /// The modules that it declares for tests only, in files of their own.
    fn modules_of_tests(&self) -> Vec<Vec<&str>> {
        let names = self.text.split("#[cfg(test)]\nmod ").skip(1);
        let names = names.filter_map(|rest| rest.lines().next()?.strip_suffix(';'));
        names.map(|name| [self.module(), vec![name]].concat()).collect()
    }

    pub(super) fn top(&self) -> Option<String> {
        self.module().first().map(|top| (*top).to_owned())
    }
}

/// What follows each occurrence of a path that does not go on before it.
pub(super) fn after<'a>(code: &'a str, path: &str) -> impl Iterator<Item = &'a str> {
    code.match_indices(path).filter_map(move |(at, found)| {
        let goes_on = code[..at].ends_with([':', '$']) || code[..at].ends_with(is_of_name);
        (!goes_on).then(|| &code[at + found.len()..])
    })
}

/// The kind and the name of what a line declares.
pub(super) fn declared(line: &str) -> Option<(&'static str, String)> {
    const KINDS: [&str; 10] = [
        "struct",
        "enum",
        "trait",
        "type",
        "fn",
        "const",
        "static",
        "mod",
        "macro_rules!",
        "union",
    ];
    let line = line.trim_start();
    let line = line.strip_prefix("pub").map_or(line, |rest| match rest.strip_prefix('(') {
        Some(rest) => rest.split_once(')').map_or(rest, |(_, rest)| rest),
        None => rest,
    });
    let mut words = line.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let Some(kind) = KINDS.into_iter().find(|kind| *kind == word) else {
            match word {
                "async" | "unsafe" | "extern" | "default" => continue,
                _ => return None,
            }
        };
        if kind == "const" && words.peek() == Some(&"fn") {
            continue;
        }
        let name: String = words.next()?.chars().take_while(|letter| is_of_name(*letter)).collect();
        return (!name.is_empty()).then_some((kind, name));
    }
    None
}

pub(super) fn first_name(path: &str) -> &str {
    path.split(|letter| !is_of_name(letter)).next().unwrap_or_default()
}

pub(super) fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

pub(super) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Folders that hold no text of this repository.
const SKIPPED: [&str; 3] = ["target", "node_modules", ".git"];

pub(super) fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
    let mut files = Vec::new();
    for path in entries.map(|entry| entry.path()) {
        if !path.is_dir() {
            files.push(path);
        } else if !SKIPPED.iter().any(|name| path.ends_with(name)) {
            files.extend(files_below(&path));
        }
    }
    files
}

pub(super) fn sources_below(folder: &str, extension: &str) -> Vec<Source> {
    let folder = root().join(folder);
    let source = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a text");
        let path = path.strip_prefix(&folder).expect("below").to_string_lossy().replace('\\', "/");
        Source { path, text }
    };
    let files = files_below(&folder).into_iter();
    files.filter(|path| path.extension().is_some_and(|it| it == extension)).map(source).collect()
}

pub(super) fn sources() -> Vec<Source> {
    sources_below("src", "rs")
}

/// The sources of all crates that ship, with paths from the root of the repository.
pub(super) fn shipped() -> Vec<Source> {
    below_each(&SHIPPED, "rs")
}

/// What is below some folders, with paths from the root of the repository.
pub(super) fn below_each(folders: &[&str], extension: &str) -> Vec<Source> {
    let below = |folder: &&str| {
        let folder = (*folder).to_owned();
        let sources = sources_below(&folder, extension).into_iter();
        sources.map(move |Source { path, text }| Source { path: format!("{folder}/{path}"), text })
    };
    folders.iter().flat_map(below).collect()
}

const SHIPPED: [&str; 12] = [
    "src",
    "crates/body/src",
    "crates/cli/src",
    "crates/grpc/src",
    "crates/http/src",
    "crates/lock/src",
    "crates/macros/src",
    "crates/opentelemetry/src",
    "crates/redis/src",
    "crates/redis-client/src",
    "crates/sql/src",
    "crates/test/src",
];

/// The files of a crate that ship: each with its path, its place in the tree of modules, and its code.
pub(super) type Files = Vec<(String, Vec<String>, String)>;

/// All crates of this repository, by the folders of their sources.
pub(super) fn crates() -> Vec<(String, Files)> {
    let members = fs::read_dir(root().join("crates")).into_iter().flatten();
    let members = members.map(|member| member.expect("an entry").path().join("src"));
    let members = members.map(|folder| folder.strip_prefix(root()).expect("below").to_path_buf());
    let folders = members.chain([PathBuf::from("src")]);
    let folders = folders.filter(|folder| root().join(folder).is_dir());
    folders.map(|folder| folder.to_string_lossy().replace('\\', "/")).map(files_of).collect()
}

/// The files of every program, bench and test of this repository, by the folder of its `main.rs`.
pub(super) fn programs() -> Vec<(String, Files)> {
    let mains = files_below(root()).into_iter().filter(|path| path.ends_with("main.rs"));
    let folders =
        mains.filter_map(|path| Some(path.parent()?.strip_prefix(root()).ok()?.to_owned()));
    let folders = folders.filter(|folder| !folder.ends_with("src"));
    folders.map(|folder| folder.to_string_lossy().replace('\\', "/")).map(files_of).collect()
}

fn files_of(folder: String) -> (String, Files) {
    let sources = sources_below(&folder, "rs");
    let tests: Vec<_> = sources.iter().flat_map(Source::modules_of_tests).collect();
    let ships = |source: &&Source| !tests.iter().any(|test| source.module().starts_with(test));
    let files = sources.iter().filter(ships).map(|source| {
        let module = source.module().into_iter().map(str::to_owned).collect();
        (format!("{folder}/{}", source.path), module, source.code())
    });
    let files = files.collect();
    (folder, files)
}
