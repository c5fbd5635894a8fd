//! Guides are short, and their links lead somewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::sources::{files_below, root};

/// Where guides are, also a page beside each folder. Each folder has the links for rustdoc.
const FOLDERS: [&str; 6] = [
    "src/guide",
    "crates/redis/src/guide",
    "crates/http/src/guide",
    "crates/grpc/src/guide",
    "crates/lock/src/guide",
    "crates/sql/src/guide",
];

/// `scripts/pictures` draws them.
const PICTURES: &str = "src/guide/pictures";

const MOST_WORDS: usize = 1_200;

/// Of all pages together, but the changelog, and of the docs of crates' roots.
const MOST_WORDS_OF_ALL: usize = 27_500;

/// A first visit takes ten minutes.
const MOST_WORDS_OF_README: usize = 1_300;

const MOST_WORDS_OF_ARCHITECTURE: usize = 1_500;

/// The most words of a promise, and of a row of the table of faults.
const MOST_WORDS_OF_ROW: usize = 25;

struct Page {
    path: PathBuf,
    text: String,
}

impl Page {
    fn read(path: PathBuf) -> Self {
        let text = fs::read_to_string(&path).expect("a page");
        Self { path, text }
    }

    fn name(&self) -> &str {
        self.path.file_stem().and_then(|name| name.to_str()).expect("a name")
    }

    /// Its definitions of links: labels and targets.
    fn definitions(&self) -> Vec<(&str, &str)> {
        let lines = self.text.lines().filter(|line| line.starts_with('['));
        lines.filter_map(|line| line.strip_prefix('[')?.split_once("]: ")).collect()
    }

    /// The rows of its tables, without the lines below their heads.
    fn rows(&self) -> impl Iterator<Item = Vec<&str>> {
        let rows = self.text.lines().filter(|line| line.starts_with("| "));
        rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect())
    }
}

/// The pages of a folder, and the one beside it.
fn pages(folder: &str) -> Vec<Page> {
    let beside = root().join(folder).with_extension("md");
    let beside = beside.exists().then_some(beside);
    let pages = files_below(&root().join(folder)).into_iter().chain(beside);
    let pages = pages.filter(|path| !path.starts_with(root().join(PICTURES))).map(Page::read);
    pages.filter(|page| page.name() != "links").collect()
}

/// The pictures of the guides, and what rustdoc shows for each.
fn pictures() -> (Vec<PathBuf>, Vec<Page>) {
    let is_drawing = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "svg");
    let mut files = files_below(&root().join(PICTURES));
    files.sort();
    let (drawings, pages): (Vec<_>, Vec<_>) = files.into_iter().partition(is_drawing);
    (drawings, pages.into_iter().map(Page::read).collect())
}

fn page(path: &str) -> Page {
    Page::read(root().join(path))
}

/// The names of the headings of a page, as links name them.
fn headings(page: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(page).expect("a page");
    let headings = text.lines().filter_map(|line| line.trim_start_matches('#').strip_prefix(' '));
    let kept = |letter: &char| letter.is_alphanumeric() || [' ', '-', '_'].contains(letter);
    let name = |heading: &str| heading.to_lowercase().chars().filter(kept).collect::<String>();
    headings.map(|heading| name(heading).replace(' ', "-")).collect()
}

/// Whether a target is there: a page below this folder with that heading, or any address.
fn leads_somewhere(folder: &Path, target: &str) -> bool {
    if target.starts_with("https://") {
        return true;
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let file = folder.join(file);
    file.exists() && (heading.is_empty() || headings(&file).contains(heading))
}

/// A row is read at one glance.
fn words(cells: &[&str]) -> usize {
    cells.iter().flat_map(|cell| cell.split_whitespace()).count()
}

#[test]
fn a_guide_is_read_in_six_minutes() {
    for page in FOLDERS.into_iter().flat_map(pages) {
        let words = page.text.split_whitespace().count();
        assert!(words <= MOST_WORDS, "{}: {words} words", page.path.display());
    }
}

#[test]
fn the_readme_is_read_in_six_minutes_and_the_architecture_in_seven() {
    for (name, most) in
        [("README.md", MOST_WORDS_OF_README), ("ARCHITECTURE.md", MOST_WORDS_OF_ARCHITECTURE)]
    {
        let words = page(name).text.split_whitespace().count();
        assert!(words <= most, "{name}: {words} words");
    }
}

/// The words of a text, or of the `//!` lines of a crate's root.
fn words_of_docs(path: &Path) -> usize {
    let text = fs::read_to_string(path).expect("a text");
    let is_page = path.extension().is_some_and(|extension| extension == "md");
    let line = |line| if is_page { Some(line) } else { str::strip_prefix(line, "//!") };
    text.lines().filter_map(line).flat_map(str::split_whitespace).count()
}

#[test]
fn all_pages_together_are_read_in_two_hours() {
    let is_read = |path: &PathBuf| {
        let is_page = path.extension().is_some_and(|extension| extension == "md");
        path.ends_with("src/lib.rs") || (is_page && !path.ends_with("CHANGELOG.md"))
    };
    let words: usize =
        files_below(root()).into_iter().filter(is_read).map(|path| words_of_docs(&path)).sum();
    assert!(words <= MOST_WORDS_OF_ALL, "{words} words");
}

#[test]
fn every_link_of_the_readme_leads_somewhere() {
    let page = page("README.md");
    let targets = page.text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let broken: Vec<_> = targets.filter(|target| !leads_somewhere(root(), target)).collect();
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_link_of_a_guide_leads_somewhere() {
    let mut wrong = Vec::new();
    for folder in FOLDERS {
        for page in pages(folder) {
            let below = page.path.parent().expect("a folder");
            let definitions = page.definitions().into_iter();
            let broken = definitions.filter(|(_, target)| !leads_somewhere(below, target));
            wrong.extend(broken.map(|(_, target)| format!("{}: {target}", page.path.display())));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Rustdoc checks the links in `links.md`, and code hosts see those of the page.
#[test]
fn every_link_of_a_guide_is_one_of_rustdoc_too() {
    let mut wrong = Vec::new();
    let (_, pictures) = pictures();
    for folder in FOLDERS {
        let links = page(&format!("{folder}/links.md"));
        let definitions = links.definitions().into_iter();
        let definitions = definitions.chain(pictures.iter().flat_map(Page::definitions));
        let of_rustdoc: BTreeSet<_> = definitions.map(|(label, _)| label).collect();
        for page in pages(folder) {
            let labels = page.definitions().into_iter().map(|(label, _)| label);
            let missing = labels.filter(|label| !of_rustdoc.contains(label));
            wrong.extend(missing.map(|label| format!("{}: {label}", page.path.display())));
            let is_for_rustdoc = |target: &str| {
                let target = target.split(')').next().unwrap_or_default();
                target.contains("::") || target.starts_with("macro@")
            };
            if page.text.split("](").skip(1).any(is_for_rustdoc) {
                wrong.push(format!("{}: a link for rustdoc alone", page.path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Code hosts show the drawing, and rustdoc the same one, which is in the page's source.
#[test]
fn rustdoc_shows_the_pictures_that_code_hosts_show() {
    let (drawings, pages) = pictures();
    assert!(drawings.len() == pages.len() && !pages.is_empty(), "{drawings:?}");
    for (drawing, page) in drawings.iter().zip(&pages) {
        let drawing = fs::read_to_string(drawing).expect("a drawing");
        let escaped =
            ['%', ' ', '#', '<', '>', '(', ')', '\n'].into_iter().fold(drawing, |text, letter| {
                text.replace(letter, &format!("%{:02X}", u32::from(letter)))
            });
        let shown = format!("[{}-picture]: <data:image/svg+xml,{escaped}>\n", page.name());
        assert!(page.text == shown, "{}: run scripts/pictures", page.path.display());
    }
}

/// Without its head, a row is shown as text.
#[test]
fn every_row_is_of_a_table() {
    for page in FOLDERS.into_iter().flat_map(pages) {
        let (mut is_code, mut before) = (false, "");
        let mut lines = page.text.lines().peekable();
        while let Some(line) = lines.next() {
            is_code ^= line.starts_with("```");
            let is_row = line.starts_with('|') || line.ends_with('|');
            if is_row && !is_code && !before.starts_with('|') {
                let is_head = lines.peek().is_some_and(|next| next.starts_with("|--"));
                assert!(is_head && line.starts_with("| "), "{}: {line}", page.path.display());
            }
            before = line;
        }
    }
}

/// Exceptions have their own section.
#[test]
fn every_promise_is_short() {
    for row in page("src/guide/guarantees.md").rows() {
        assert!(words(&row[..1]) <= MOST_WORDS_OF_ROW, "{row:?}");
    }
}

#[test]
fn every_row_of_the_table_of_faults_is_short() {
    for row in page("src/guide/fault_table.md").rows() {
        assert!(words(&row) <= MOST_WORDS_OF_ROW, "{row:?}");
    }
}
