//! The subject of a sentence is the thing that acts: docs and comments use no indefinite persons.

use std::fs;
use std::path::{Path, PathBuf};

use super::sources::{is_of_name, root};

/// Words that docs and comments do not use, in lower case.
const FORBIDDEN: [&str; 8] =
    ["who", "whom", "whoever", "nobody", "somebody", "anybody", "everybody", "anew"];

/// The folders whose sources are checked.
const FOLDERS: [&str; 8] =
    ["src", "crates", "docs", "examples", "benches", "observability", "tests", "scripts"];

/// Folders that hold no text of this repository.
const SKIPPED: [&str; 3] = ["target", "node_modules", ".git"];

/// The comment that a line of a source holds. `//` within a URL begins no comment, and neither
/// does the text of a string.
fn comment<'a>(line: &'a str, mark: &str) -> Option<&'a str> {
    let mut starts = line.match_indices(mark).map(|(at, _)| at);
    let at = starts.find(|at| {
        let before = &line[..*at];
        let is_in_string = before.replace("\\\"", "").matches('"').count() % 2 == 1;
        !is_in_string && before.chars().next_back().is_none_or(char::is_whitespace)
    })?;
    Some(&line[at + mark.len()..])
}

/// A text without what stands between two of these marks. An open mark hides the rest.
fn without_quoted(text: &str, mark: char) -> String {
    text.split(mark).step_by(2).collect::<Vec<_>>().join(" ")
}

/// The forbidden words of a text, save those inside `backticks` or double quotes.
fn forbidden(text: &str) -> Vec<String> {
    let text = without_quoted(&without_quoted(text, '`'), '"').to_lowercase();
    let words = text.split(|letter| !is_of_name(letter));
    words.filter(|word| FORBIDDEN.contains(word)).map(str::to_owned).collect()
}

/// How comments begin in a file, and `""` for a page, all of whose lines are text.
fn mark_of(path: &Path) -> Option<&'static str> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("rs") => Some("//"),
        Some("lua") => Some("--"),
        Some("md") => Some(""),
        Some("sh" | "py" | "toml" | "yml") => Some("#"),
        None if path.parent().is_some_and(|folder| folder.ends_with("scripts")) => Some("#"),
        _ => None,
    }
}

/// Each line of a file that has forbidden words in its text: its number, and those words.
fn found_in(text: &str, mark: &str) -> Vec<(usize, Vec<String>)> {
    let lines = text.lines().enumerate();
    let lines = lines.filter_map(|(at, line)| Some((at + 1, forbidden(comment(line, mark)?))));
    lines.filter(|(_, words)| !words.is_empty()).collect()
}

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

/// All files with comments, and all pages but the changelog.
pub(super) fn files() -> Vec<PathBuf> {
    let here = fs::read_dir(root()).expect("a folder").map(|entry| entry.expect("an entry").path());
    let pages = here.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let below = FOLDERS.iter().flat_map(|folder| files_below(&root().join(folder)));
    pages.chain(below).filter(|path| !path.ends_with("CHANGELOG.md")).collect()
}

#[test]
fn docs_and_comments_name_the_thing_that_acts() {
    let mut wrong = Vec::new();
    for path in files() {
        let Some(mark) = mark_of(&path) else { continue };
        let text = fs::read_to_string(&path).expect("a text");
        let path = path.strip_prefix(root()).expect("below").display();
        let found = found_in(&text, mark);
        wrong.extend(found.iter().map(|(line, words)| format!("{path}:{line}: {words:?}")));
    }
    assert!(wrong.is_empty(), "{} lines:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_forbidden_word_in_a_comment_is_found() {
    let planted = "fn who() {} // Nobody calls it.\n/// A caller that waits.\nlet anew = 1;\n";
    assert_eq!(found_in(planted, "//"), [(1, vec!["nobody".to_owned()])]);
    assert_eq!(found_in("local who = 1 -- Whoever asks", "--").len(), 1);
    assert_eq!(found_in("A page that is made anew.", "").len(), 1);
}

#[test]
fn quoted_words_and_strings_are_not_found() {
    let allowed = [
        "// The name `who` and the text \"nobody\".",
        "let url = \"redis://who\";",
        "let text = \" // who\";",
        "// Whole words only: wholesale, renewed.",
    ];
    for line in allowed {
        assert!(found_in(line, "//").is_empty(), "{line}");
    }
}
