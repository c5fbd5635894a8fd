//! What the manifests say to those that read the documentation.

use std::collections::BTreeSet;
use std::fs;

use super::sources::root;

/// The published crates that have features.
const WITH_FEATURES: [&str; 7] = [
    ".",
    "crates/http",
    "crates/grpc",
    "crates/lock",
    "crates/opentelemetry",
    "crates/redis",
    "crates/redis-client",
];

/// Features that add nothing to what is documented.
const WITHOUT_DOCS: [&str; 4] = ["default", "full", "servers", "simulated-network"];

/// The lines of a section of a manifest, without comments.
fn section<'a>(manifest: &'a str, name: &str) -> Vec<&'a str> {
    let lines = manifest.lines().skip_while(|line| *line != format!("[{name}]")).skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    lines.filter(|line| !line.starts_with('#') && !line.is_empty()).collect()
}

/// The names in quotes of a line.
fn quoted(line: &str) -> BTreeSet<&str> {
    line.split('"').skip(1).step_by(2).collect()
}

#[test]
fn the_documentation_of_every_crate_has_all_its_features() {
    for folder in WITH_FEATURES {
        let manifest = fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
        let features = section(&manifest, "features");
        let of = |name: &str| features.iter().find(|line| line.starts_with(&format!("{name} = ")));
        let mut shown = BTreeSet::new();
        for line in section(&manifest, "package.metadata.docs.rs") {
            shown.extend(quoted(line));
        }
        if shown.contains("full") {
            shown.extend(of("full").map(|line| quoted(line)).unwrap_or_default());
        }
        let names = features.iter().filter_map(|line| Some(line.split_once(" = ")?.0));
        let hidden: Vec<_> =
            names.filter(|name| !WITHOUT_DOCS.contains(name) && !shown.contains(name)).collect();
        assert!(hidden.is_empty(), "{folder}: docs.rs would not show {hidden:?}");
    }
}

/// Code hosts and registries show them.
#[test]
fn no_readme_has_lines_that_only_rustdoc_hides() {
    for folder in [
        ".",
        "crates/body",
        "crates/cli",
        "crates/http",
        "crates/grpc",
        "crates/lock",
        "crates/macros",
        "crates/opentelemetry",
        "crates/redis",
        "crates/redis-client",
        "crates/sql",
        "crates/test",
    ] {
        let page = fs::read_to_string(root().join(folder).join("README.md")).unwrap();
        let rust = page.split("```rust").skip(1).filter_map(|block| block.split("```").next());
        let hidden: Vec<_> =
            rust.flat_map(str::lines).filter(|line| line.starts_with("# ")).collect();
        assert!(hidden.is_empty(), "{folder}: {hidden:?}");
    }
}
