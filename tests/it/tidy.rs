//! The house is in order: who imports whom, how long files are, what every script says.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Which modules a module may know. No arrow points up, and there is no cycle.
const ARROWS: [(&str, &[&str]); 18] = [
    ("capture", &["status", "windows"]),
    ("chance", &[]),
    ("duration", &[]),
    ("error", &["key"]),
    ("flight", &["chance", "key"]),
    ("http", &["capture", "error", "key", "quiet", "read_through", "response", "status", "store"]),
    (
        "grpc",
        &["capture", "error", "key", "read_through", "response", "status", "store", "windows"],
    ),
    ("claim", &["key"]),
    ("key", &[]),
    ("lock", &["chance", "claim", "error", "key", "policy", "quiet", "redis", "store"]),
    ("policy", &["windows"]),
    ("quiet", &[]),
    (
        "read_through",
        &["capture", "chance", "error", "flight", "key", "policy", "quiet", "status", "store"],
    ),
    ("redis", &["store"]),
    ("response", &["capture"]),
    ("status", &[]),
    ("store", &["chance", "claim", "duration", "error", "key", "quiet", "windows"]),
    ("windows", &[]),
];

/// Which crate is named where, if it is named in few places only.
const ADAPTERS: [(&str, &str); 14] = [
    ("axum", "http/extract.rs http/nested.rs"),
    ("bb8", "store/redis/"),
    ("bb8_redis", "store/redis/"),
    ("blake3", "key.rs"),
    ("crc32fast", "store/redis/"),
    ("mysql_async", "lock/mysql/"),
    ("postcard", "response/"),
    ("quick_cache", "store/redis/near/"),
    ("redis", "store/redis/"),
    ("serde_json", "capture.rs"),
    ("sfv", "http/rules/directives.rs"),
    ("tokio_postgres", "lock/postgres/"),
    ("tonic", "grpc/"),
    ("zookeeper_client", "lock/zookeeper/"),
];

/// A file below `src`.
struct Source {
    /// From there, with slashes.
    path: String,
    text: String,
}

impl Source {
    /// What ships of it, without comments: tests are at the end.
    fn code(&self) -> String {
        let shipped = self.text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let lines = shipped.lines().filter(|line| !line.trim_start().starts_with("//"));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Where it is in the tree of modules.
    fn module(&self) -> Vec<&str> {
        let path = self.path.trim_end_matches(".rs");
        let path = path.trim_end_matches("/mod").trim_end_matches("lib");
        path.split('/').filter(|name| !name.is_empty()).collect()
    }

    /// The modules at the root of the crate that its code names.
    fn knows(&self) -> BTreeSet<String> {
        let code = self.code();
        let from_root = after(&code, "crate::").map(first_name);
        let depth = self.module().len();
        // So many steps up are the root itself.
        let up = "super::".repeat(depth);
        let from_above = after(&code, &up).filter(|_| depth > 0).map(first_name);
        let names = from_root.chain(from_above).filter(|name| !name.is_empty());
        names.map(str::to_owned).collect()
    }

    fn top(&self) -> Option<String> {
        self.module().first().map(|top| (*top).to_owned())
    }
}

/// What follows each occurrence of a path that does not go on before it.
fn after<'a>(code: &'a str, path: &str) -> impl Iterator<Item = &'a str> {
    code.match_indices(path).filter_map(move |(at, found)| {
        let goes_on = code[..at].ends_with([':', '$']) || code[..at].ends_with(is_of_name);
        (!goes_on).then(|| &code[at + found.len()..])
    })
}

fn first_name(path: &str) -> &str {
    path.split(|letter| !is_of_name(letter)).next().unwrap_or_default()
}

fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files_below(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
    let mut files = Vec::new();
    for path in entries.map(|entry| entry.path()) {
        if path.is_dir() {
            files.extend(files_below(&path, extension));
        } else if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
    files
}

fn sources_below(folder: &str, extension: &str) -> Vec<Source> {
    let folder = root().join(folder);
    let source = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a text");
        let path = path.strip_prefix(&folder).expect("below").to_string_lossy().replace('\\', "/");
        Source { path, text }
    };
    files_below(&folder, extension).into_iter().map(source).collect()
}

fn sources() -> Vec<Source> {
    sources_below("src", "rs")
}

fn manifest() -> String {
    fs::read_to_string(root().join("Cargo.toml")).expect("a manifest")
}

#[test]
fn every_import_follows_the_arrows() {
    for source in sources() {
        let Some(top) = source.top() else { continue };
        let arrows = ARROWS.iter().find(|(from, _)| *from == top);
        let (_, allowed) = arrows.unwrap_or_else(|| panic!("`{top}` is not in the table"));
        let known = source.knows();
        let ours = known.iter().filter(|name| **name != top);
        let wrong: Vec<_> = ours.filter(|name| !allowed.contains(&name.as_str())).collect();
        assert!(wrong.is_empty(), "{} names {wrong:?}", source.path);
    }
}

/// Or the table above would allow what nobody needs, and what would hide a new arrow.
#[test]
fn every_arrow_is_there() {
    let sources = sources();
    for (from, allowed) in ARROWS {
        let of_module = sources.iter().filter(|source| source.top().as_deref() == Some(from));
        let known: BTreeSet<_> = of_module.flat_map(Source::knows).collect();
        let missing: Vec<_> = allowed.iter().filter(|name| !known.contains(**name)).collect();
        assert!(missing.is_empty(), "`{from}` does not name {missing:?}");
    }
}

#[test]
fn the_arrows_have_no_cycle() {
    let mut left: Vec<_> = ARROWS.to_vec();
    while !left.is_empty() {
        let names: Vec<_> = left.iter().map(|(from, _)| *from).collect();
        let before = left.len();
        left.retain(|(_, known)| known.iter().any(|name| names.contains(name)));
        assert!(left.len() < before, "a cycle among {names:?}");
    }
}

#[test]
fn foreign_crates_are_named_by_their_adapters_only() {
    for source in sources() {
        let code = source.code();
        let is_at = |places: &str| places.split(' ').any(|at| source.path.starts_with(at));
        for (foreign, place) in ADAPTERS.iter().filter(|(_, places)| !is_at(places)) {
            let named = after(&code, &format!("{foreign}::")).count();
            // In the parent of the adapter, the name means the module.
            let of_module = if source.path == "store/mod.rs" {
                code.matches("pub use redis::").count()
            } else {
                0
            };
            let of_module = if *foreign == "redis" { of_module } else { 0 };
            assert_eq!(named, of_module, "{} names {foreign}, not only {place}", source.path);
        }
    }
}

#[test]
fn the_protocol_imports_nothing() {
    let step = sources().into_iter().find(|source| source.path == "read_through/step.rs");
    let code = step.expect("the protocol").code();
    assert!(!code.contains("use ") && !code.contains("crate::"), "{code}");
}

#[test]
fn no_source_is_over_400_lines() {
    for source in sources() {
        let lines = source.text.lines().count();
        assert!(lines <= 400, "{} has {lines} lines", source.path);
    }
}

#[test]
fn no_file_of_these_tests_is_over_350_lines() {
    for source in sources_below("tests/it", "rs") {
        let lines = source.text.lines().count();
        assert!(lines < 350, "{} has {lines} lines", source.path);
    }
}

#[test]
fn no_function_is_over_50_lines() {
    for source in sources() {
        let lines: Vec<_> = source.text.lines().collect();
        let begins = (0..lines.len()).filter(|at| first_words(lines[*at]).contains(&"fn"));
        for begin in begins {
            let indent = lines[begin].len() - lines[begin].trim_start().len();
            let end = format!("{}}}", " ".repeat(indent));
            let length = lines[begin..].iter().position(|line| *line == end).unwrap_or(0);
            assert!(length <= 50, "{}:{} is {length} lines long", source.path, begin + 1);
        }
    }
}

/// What stands before the name of a function, if it is one. A comment is none, nor is its example.
fn first_words(line: &str) -> Vec<&str> {
    let line = if line.trim_start().starts_with("//") { "" } else { line };
    line.split_whitespace().take_while(|word| !word.contains('(')).take(4).collect()
}

#[test]
fn every_source_begins_by_saying_what_it_is_for() {
    for source in sources() {
        assert!(source.text.starts_with("//! "), "{}", source.path);
    }
}

#[test]
fn nothing_is_left_to_do() {
    for source in sources() {
        for mark in ["TODO", "FIXME", "XXX", "todo!", "dbg!", ".unwrap()"] {
            assert!(!source.code().contains(mark), "{} has {mark}", source.path);
        }
    }
}

/// All but what stands before or behind each of them.
fn scripts() -> Vec<Source> {
    let mut scripts = sources_below("src", "lua");
    scripts.retain(|script| !is_part(script));
    scripts
}

fn is_part(script: &Source) -> bool {
    ["/prelude.lua", "/contested.lua"].iter().any(|name| script.path.ends_with(name))
}

/// The header of a script, and what comes after it, with what stands behind the script.
fn split(script: &Source) -> (String, String) {
    let header = script.text.lines().take_while(|line| line.starts_with("--"));
    let header = header.collect::<Vec<_>>();
    let mut code = script.text.lines().skip(header.len()).collect::<Vec<_>>().join("\n");
    if let Some(folder) = script.path.strip_suffix("take.lua") {
        let behind = root().join("src").join(folder).join("contested.lua");
        code += &fs::read_to_string(behind).expect("the rest of it");
    }
    (header.join("\n"), code)
}

#[test]
fn every_script_says_what_it_takes_and_gives_and_why_it_is_one() {
    let scripts = scripts();
    assert!(scripts.len() >= 6, "there are only {}", scripts.len());
    for script in scripts {
        let (header, _) = split(&script);
        let name = script.path.rsplit('/').next().unwrap_or_default().trim_end_matches(".lua");
        assert!(header.starts_with(&format!("-- {name}: ")), "{}", script.path);
        for part in ["\n-- KEYS   1 ", "\n-- gives  ", "\n-- One script, because "] {
            assert!(header.contains(part), "{} does not say {part:?}", script.path);
        }
    }
}

#[test]
fn every_script_uses_the_keys_and_arguments_it_says() {
    for script in scripts() {
        let (header, code) = split(&script);
        let code = code.replace("ipairs(KEYS)", "KEYS[1]");
        for (named, used) in [("-- KEYS", "KEYS["), ("-- ARGV", "ARGV[")] {
            let highest = after(&code, used).filter_map(|rest| rest[..1].parse::<u8>().ok()).max();
            let said = header.split(named).nth(1).map(|said| said.split("\n-- gives").next());
            let said = said.flatten().unwrap_or_default().split("\n-- ARGV").next();
            let words = said.unwrap_or_default().split_whitespace();
            let numbers = words.filter_map(|word| word.parse::<u8>().ok().filter(|n| *n < 10));
            assert_eq!(numbers.max(), highest, "{}: {named}", script.path);
        }
    }
}

/// The load test counts what clients send by the server's own statistics.
#[test]
fn scripts_run_nothing_that_clients_send() {
    let rust: String = sources().iter().map(Source::code).collect();
    let sent: BTreeSet<_> = rust.split("cmd(\"").skip(1).map(first_name).collect();
    assert!(sent.contains("MGET"), "{sent:?}");
    for script in scripts() {
        let run = ["call('", "read('"].into_iter().flat_map(|by| after(&script.text, by));
        let run = run.map(first_name);
        let both: Vec<_> = run.filter(|command| sent.contains(*command)).collect();
        assert!(both.is_empty(), "{} runs {both:?}", script.path);
    }
}

#[test]
fn unsafe_code_is_forbidden() {
    assert!(manifest().contains("\nunsafe_code = \"forbid\"\n"));
}

/// What the README promises, it promises by the name of a test.
#[test]
fn every_test_that_the_readme_names_exists() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let (_, promises) = readme.split_once("## What is promised").unwrap();
    let (promises, _) = promises.split_once("\n## ").unwrap();
    let rows = promises.lines().filter_map(|line| line.rsplit(" | ").next());
    let names: Vec<_> =
        rows.flat_map(|row| row.split('`')).filter(|name| name.contains('_')).collect();
    assert!(names.len() >= 12, "{names:?}");
    let tests = sources_below("tests", "rs");
    for name in names {
        let begin = format!("fn {name}()");
        assert!(tests.iter().any(|test| test.text.contains(&begin)), "there is no test {name}");
    }
}
