//! The house is in order: what imports what, how long files are, which names exist.

mod circles;
mod compatibility;
mod guides;
mod manifests;
mod methods;
mod names;
mod options;
mod scripts;
mod sources;

use std::collections::BTreeSet;
use std::fs;

use self::sources::{Source, after, below_each, root, shipped, sources, sources_below};

/// Which modules of the library a module may know. No arrow points up, and there is no cycle. The
/// other crates know its public API only.
const ARROWS: [(&str, &[&str]); 26] = [
    (
        "adapter",
        &[
            "box_future",
            "config_error",
            // Macros, which live at the root of a crate.
            "delegate_load_options",
            "warn_throttled",
            "duration",
            "jitter",
            "locked",
            "log_throttle",
            "policy",
            "read_through",
        ],
    ),
    ("box_future", &[]),
    (
        "cache",
        &[
            "codec",
            "config_error",
            // Macros, which live at the root of the crate.
            "debug_fields",
            "delegate_load_options",
            "error",
            "key",
            "locked",
            "policy",
            "read_through",
            "stats",
            "stats_source",
            "store",
            "tag",
        ],
    ),
    ("change", &["cache", "error", "key", "read_through", "store", "tag"]),
    ("codec", &["debug_fields", "error", "lifetimes", "status", "tag"]),
    ("config_error", &[]),
    ("debug_fields", &[]),
    ("duration", &[]),
    ("error", &["config_error", "key", "tag"]),
    ("flight", &["jitter", "key", "locked", "tag", "trace"]),
    ("guide", &[]),
    ("jitter", &[]),
    ("key", &[]),
    ("lifetimes", &[]),
    ("loads", &["locked"]),
    ("locked", &[]),
    ("log_throttle", &["locked"]),
    ("metrics", &["locked", "stats"]),
    ("policy", &["lifetimes"]),
    (
        "read_through",
        &[
            "box_future",
            "codec",
            "config_error",
            "debug_fields",
            "error",
            "flight",
            "jitter",
            "key",
            "lifetimes",
            "loads",
            "locked",
            "policy",
            "stats",
            "stats_source",
            "status",
            "store",
            "tag",
            "trace",
        ],
    ),
    ("service", &["read_through"]),
    // The macro lives at the root of the crate.
    (
        "stats",
        &["duration", "error", "key", "locked", "log_throttle", "metric_table", "status", "trace"],
    ),
    ("status", &[]),
    (
        "store",
        &[
            "box_future",
            "debug_fields",
            "duration",
            "error",
            "key",
            "lifetimes",
            "locked",
            "stats",
            "stats_source",
            "tag",
            "trace",
        ],
    ),
    ("tag", &["config_error", "key"]),
    ("trace", &["config_error"]),
];

/// Which foreign crate is named where, if it is named in few places only.
const ADAPTERS: [(&str, &str); 24] = [
    ("axum", "crates/http/src/router.rs"),
    ("bb8", "crates/redis-client/src/pool_manager.rs"),
    ("blake3", "src/key.rs"),
    ("clap", "crates/cli/src/"),
    ("crc32fast", "crates/redis/src/envelope.rs crates/redis/src/tests/at_rest.rs"),
    ("lz4_flex", "src/codec/compressed.rs"),
    ("mysql_async", "crates/lock/src/mysql/"),
    ("opentelemetry", "crates/opentelemetry/src/"),
    ("percent_encoding", "crates/http/src/request_key.rs crates/http/src/router.rs"),
    ("postcard", "crates/body/src/ crates/http/src/vary_index.rs src/codec/serde_values.rs"),
    ("prost", "crates/grpc/src/prost_codec.rs"),
    ("quick_cache", "crates/redis/src/lookups.rs crates/redis/src/near/ crates/redis/src/tags.rs"),
    ("redis", "crates/redis-client/src/"),
    ("rustls", "crates/redis-client/src/tls.rs crates/lock/src/session/tls.rs"),
    ("rustls_native_certs", "crates/redis-client/src/tls.rs crates/lock/src/session/tls.rs"),
    (
        "serde_json",
        "crates/cli/src/ crates/sql/src/batch.rs crates/sql/src/parts.rs crates/sql/src/table.rs src/codec/serde_values.rs",
    ),
    ("sfv", "crates/http/src/rules/lists.rs crates/http/src/rules/invalidation.rs"),
    ("sqlx", "crates/cli/src/changes.rs crates/cli/src/follow.rs crates/sql/src/"),
    ("subtle", "crates/http/src/bearer_token.rs"),
    ("tokio_rustls", "crates/redis-client/src/tls.rs"),
    ("tokio_postgres", "crates/lock/src/postgres/"),
    ("tokio_postgres_rustls", "crates/lock/src/postgres/session.rs"),
    ("tonic", "crates/grpc/src/"),
    ("zookeeper_client", "crates/lock/src/zookeeper/"),
];

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

/// Otherwise the table above would allow unneeded imports, which would hide a new arrow.
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

/// The names that are re-exported at the root of the library. A trait and its derive are one.
fn names_at_the_root() -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("src/lib.rs")).expect("the root of the library");
    let text = text.replace("#[doc(hidden)]\npub use", "#[doc(hidden)]\nuse");
    let used = text.split("\npub use ").skip(1).filter_map(|rest| rest.split(';').next());
    let names = used.flat_map(|path| {
        let list = path.rsplit("::").next().unwrap_or_default();
        list.split([',', '{', '}']).map(|name| name.trim().to_owned()).collect::<Vec<_>>()
    });
    names.filter(|name| !name.is_empty()).collect()
}

/// A first-time user reads them all. Further names are in modules, by their idea.
#[test]
fn at_most_30_names_are_at_the_root() {
    let names = names_at_the_root();
    assert!(names.contains("Cache") && names.contains("CacheStatus"), "{names:?}");
    assert!(names.len() <= 30, "{} names: {names:?}", names.len());
}

#[test]
fn foreign_crates_are_named_by_their_adapters_only() {
    for source in shipped() {
        // Paths that begin at our own modules of that name do not count.
        let ours = ["crate::redis::", "bellwether_redis_client::"];
        let code = ours.iter().fold(source.code(), |code, path| code.replace(path, "_::"));
        let code = code.replace("pub use redis::", "");
        let is_at = |places: &str| places.split(' ').any(|at| source.path.starts_with(at));
        for (foreign, place) in ADAPTERS.iter().filter(|(_, places)| !is_at(places)) {
            let named = after(&code, &format!("{foreign}::")).count();
            assert_eq!(named, 0, "{} names {foreign}, not only {place}", source.path);
        }
    }
}

#[test]
fn the_protocol_imports_nothing() {
    let of_protocol = ["read_through/step/mod.rs", "read_through/step/states.rs"];
    let sources = sources().into_iter().filter(|it| of_protocol.contains(&it.path.as_str()));
    let code: Vec<_> = sources.map(|source| source.code()).collect();
    assert_eq!(code.len(), of_protocol.len());
    // But its own states.
    let code = code.join("\n").replace("use self::states::", "");
    assert!(!code.contains("use ") && !code.contains("crate::"), "{code}");
    assert!(!code.contains("super::"), "{code}");
}

#[test]
fn no_source_is_over_600_lines() {
    for source in shipped() {
        let lines = source.text.lines().count();
        assert!(lines <= 600, "{} has {lines} lines", source.path);
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
    for source in shipped() {
        let lines: Vec<_> = source.text.lines().collect();
        let begins = (0..lines.len()).filter(|at| first_words(lines[*at]).contains(&"fn"));
        // A trait may declare one without a body.
        let begins = begins.filter(|at| !lines[*at].ends_with(';'));
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
    let line = line.trim_start();
    let line = if line.starts_with("//") { "" } else { line };
    let is_restricted = line.starts_with("pub(");
    let line = line.split_once(") ").filter(|_| is_restricted).map_or(line, |(_, rest)| rest);
    line.split_whitespace().take_while(|word| !word.contains('(')).take(4).collect()
}

#[test]
fn every_source_begins_by_saying_what_it_is_for() {
    for source in shipped() {
        assert!(source.text.starts_with("//! "), "{}", source.path);
    }
}

#[test]
fn nothing_is_left_to_do() {
    for source in shipped() {
        for mark in ["TODO", "FIXME", "XXX", "todo!", "dbg!", ".unwrap()"] {
            assert!(!source.code().contains(mark), "{} has {mark}", source.path);
        }
    }
}

#[test]
fn unsafe_code_is_forbidden() {
    assert!(manifest().contains("\nunsafe_code = \"forbid\"\n"));
}

/// The tests that a page names beside its promises.
fn promised(page: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let (_, promises) = text.split_once("# What is promised\n").unwrap();
    let (promises, _) = promises.split_once("\n#").unwrap();
    let rows = promises.lines().filter(|line| line.starts_with('|'));
    let rows = rows.filter_map(|row| row.rsplit(" | ").next());
    let names = rows.flat_map(|row| row.split('`')).filter(|name| name.contains('_'));
    names.map(str::to_owned).collect()
}

/// A promise is made by the name of a test.
#[test]
fn every_test_that_a_promise_names_exists() {
    let folders = ["tests", "crates/http/tests", "crates/lock/tests", "crates/redis/tests"];
    let tests = below_each(&folders, "rs");
    let names = promised("src/guide/guarantees.md");
    assert!(names.len() >= 30, "{names:?}");
    for name in names {
        let begin = format!("fn {name}()");
        assert!(tests.iter().any(|test| test.text.contains(&begin)), "there is no test {name}");
    }
}
