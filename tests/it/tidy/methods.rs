//! One idea, one file. What a type can do is written where the type is.
//!
//! Methods in other files are a module that is cut in two, whose halves call each other unseen.

use std::collections::{BTreeMap, BTreeSet};

use super::sources::{crates, declared, first_name};

/// The types of some code.
fn types(code: &str) -> impl Iterator<Item = String> {
    code.lines().filter_map(|line| match declared(line)? {
        ("struct" | "enum" | "union", name) => Some(name),
        _ => None,
    })
}

/// The types that some code gives methods of their own, which are those of no trait.
fn extended(code: &str) -> impl Iterator<Item = String> {
    let begins = code.lines().filter_map(|line| line.strip_prefix("impl"));
    let heads = begins.filter(|head| !head.contains(" for ")).map(without_parameters);
    heads.map(|head| first_name(head.rsplit("::").next().unwrap_or_default()).to_owned())
}

/// What follows the parameters after `impl`, up to those of the type.
fn without_parameters(head: &str) -> &str {
    let mut depth = 0;
    let mut before = ' ';
    let end = head.find(|letter| {
        depth += i32::from(letter == '<') - i32::from(letter == '>' && before != '-');
        before = letter;
        depth == 0
    });
    let rest = head[end.unwrap_or_default()..].trim_start_matches('>').trim_start();
    rest.split(['<', '{']).next().unwrap_or_default().trim_end()
}

/// Each type whose methods are in another file of its crate, and in which.
fn scattered<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a str)> + Clone,
) -> BTreeMap<String, BTreeSet<&'a str>> {
    let mut homes: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for (file, code) in files.clone() {
        types(code).for_each(|name| _ = homes.entry(name).or_default().insert(file));
    }
    let mut found: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for (file, code) in files {
        for name in extended(code) {
            if homes.get(&name).is_some_and(|homes| !homes.contains(file)) {
                found.entry(name).or_default().insert(file);
            }
        }
    }
    found
}

#[test]
fn the_methods_of_a_type_are_in_its_file() {
    let crates = crates();
    let mut found = BTreeMap::new();
    for (folder, files) in crates.iter().filter(|(folder, _)| folder != "crates/testkit/src") {
        let files: Vec<_> = files.iter().map(|(file, _, code)| (&**file, &**code)).collect();
        found.extend(scattered(files).into_iter().map(|(name, files)| (name, (folder, files))));
    }
    assert!(found.is_empty(), "{} types: {found:#?}", found.len());
}

#[test]
fn methods_in_another_file_are_found() {
    let one =
        ("one.rs", "pub struct Planted<'a, T>(&'a T);\nimpl<T: Fn() -> u8> Planted<'_, T> {\n}\n");
    let other =
        "impl<'a, T: Into<Vec<T>>> super::Planted<'a, T> {\n}\nimpl Clone for Planted {\n}\n";
    let found = scattered([one, ("other.rs", other)]);
    assert_eq!(found, BTreeMap::from([("Planted".to_owned(), BTreeSet::from(["other.rs"]))]));
    assert!(scattered([one]).is_empty());
}
