//! The guide on options names every option, and no other.

use std::collections::BTreeSet;
use std::fs;

use super::sources::root;

const FILES: [&str; 5] = [
    "src/read_through/layer.rs",
    "src/cache.rs",
    "src/store/memory/options.rs",
    "crates/redis/src/options.rs",
    "crates/redis-client/src/options.rs",
];

/// What a method of a builder gives back.
const BUILT: [&str; 4] =
    ["-> Self", "-> ReadThroughLayerBuilder<", "-> CacheBuilder<", "-> Result<RedisStore"];

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect("a file")
}

/// The methods of a file that take a builder and give it back.
fn options_of(text: &str) -> Vec<&str> {
    let is_hidden = |before: &&str| before.trim_end().ends_with("#[doc(hidden)]");
    let parts: Vec<_> = text.split("pub fn ").collect();
    let shown = parts.windows(2).filter(|pair| !is_hidden(&pair[0]));
    let methods = shown.map(|pair| pair[1]);
    let heads = methods.filter_map(|method| method.split_once(" {").map(|(head, _)| head));
    let is_option = |head: &&str| {
        let takes_self = head.split('(').nth(1).is_some_and(|arguments| {
            let arguments = arguments.trim_start();
            arguments.starts_with("self") || arguments.starts_with("mut self")
        });
        takes_self && BUILT.iter().any(|built| head.contains(built))
    };
    let name = |head: &str| head.len() - head.trim_start_matches(is_of_name).len();
    heads.filter(is_option).map(|head| &head[..name(head)]).collect()
}

fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// The names in code of a text.
fn named(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn the_guide_has_every_option_and_no_other() {
    let texts = FILES.map(read);
    let options: BTreeSet<_> = texts.iter().flat_map(|text| options_of(text)).collect();
    assert!(options.len() > 40, "{options:?}");
    let page = read("src/guide/options.md");
    let told: BTreeSet<_> = named(&page).collect();
    let untold: Vec<_> = options.difference(&told).collect();
    assert!(untold.is_empty(), "options that the guide lacks: {untold:?}");
    let tables = page.split("| option |").skip(1).filter_map(|rest| rest.split("\n\n").next());
    let rows = tables.flat_map(str::lines).filter(|row| row.starts_with("| `"));
    let of_rows: BTreeSet<_> =
        rows.filter_map(|row| row.split(" | ").next()).flat_map(named).collect();
    let unknown: Vec<_> = of_rows.difference(&options).collect();
    assert!(unknown.is_empty(), "there are no such options: {unknown:?}");
}
