//! One name, one type: a name means the same thing everywhere.

use std::collections::{BTreeMap, BTreeSet};

use super::sources::{crates, declared};

/// Names by convention, of which each module may have one of its own.
const CONVENTIONAL: [&str; 3] = ["Inner", "Options", "State"];

/// Names that are known to be double, and still to be changed.
const OPEN: &[&str] = &[];

/// The types that code defines, private ones too. Associated types are none: they are indented.
fn types(code: &str) -> Vec<String> {
    let declared = code.lines().filter_map(|line| match declared(line)? {
        ("struct" | "enum" | "trait" | "union", name) => Some(name),
        ("type", name) if !line.starts_with(char::is_whitespace) => Some(name),
        _ => None,
    });
    declared.collect()
}

/// The names that are defined more than once, and in which files.
fn doubled<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> BTreeMap<String, Vec<&'a str>> {
    let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (file, code) in files {
        types(code).into_iter().for_each(|name| found.entry(name).or_default().push(file));
    }
    found.retain(|_, files| files.len() > 1);
    found
}

#[test]
fn no_name_is_given_to_two_types() {
    let crates = crates();
    let shipping = crates.iter().filter(|(folder, _)| folder != "crates/testkit/src");
    let files = shipping.flat_map(|(_, files)| files);
    let found = doubled(files.map(|(file, _, code)| (&**file, &**code)));
    let ends: BTreeSet<_> = CONVENTIONAL.iter().chain(OPEN).copied().collect();
    for name in OPEN {
        let files =
            found.get(*name).unwrap_or_else(|| panic!("{name} is one: take it off the list"));
        println!("still open: {name} in {files:?}");
    }
    let wrong: BTreeMap<_, _> =
        found.iter().filter(|(name, _)| !ends.contains(name.as_str())).collect();
    assert!(wrong.is_empty(), "{} names: {wrong:#?}", wrong.len());
}

#[test]
fn few_names_are_conventional_and_each_is_double() {
    let crates = crates();
    let files = crates.iter().flat_map(|(_, files)| files);
    let found = doubled(files.map(|(file, _, code)| (&**file, &**code)));
    assert!(CONVENTIONAL.len() <= 10);
    for name in CONVENTIONAL {
        assert!(found.contains_key(name), "{name} is one: take it off the list");
    }
}

#[test]
fn a_name_that_is_given_twice_is_found() {
    let one = "pub(crate) struct Visit<S> {\n    type Inner;\n}\ntype Way = u8;\n// enum Key\n";
    let other =
        "fn f() {\n    enum Visit {}\n}\npub trait Asked {\n    type Way;\n}\nstruct Key;\n";
    let found = doubled([("a.rs", one), ("b.rs", other)]);
    assert_eq!(found, BTreeMap::from([("Visit".to_owned(), vec!["a.rs", "b.rs"])]));
}
