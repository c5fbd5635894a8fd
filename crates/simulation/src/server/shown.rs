//! Commands and replies as a person reads them.

use std::fmt::Write as _;

/// A command, where `script` is the name of the script that it runs, and its reply.
pub(super) fn shown(words: &[Vec<u8>], script: Option<&str>, reply: &[u8]) -> String {
    let mut line = String::new();
    let words = match script {
        Some(name) => {
            line += name;
            &words[2..]
        }
        None => words,
    };
    for word in words {
        if !line.is_empty() {
            line.push(' ');
        }
        append(&mut line, word);
    }
    line += " -> ";
    append(&mut line, reply);
    line
}

fn append(line: &mut String, word: &[u8]) {
    let text = word.escape_ascii().to_string().replace("bw:sim:", "");
    let text = text.replace("\\r\\n", " ");
    // Digests are told apart by their begin.
    let mut parts = text.split('{');
    let first = parts.next().unwrap_or_default().to_owned();
    let text = parts.fold(first, |text, part| match part.split_at_checked(6) {
        Some((begin, rest)) => {
            text + "{" + begin + rest.trim_start_matches(|it: char| it.is_ascii_hexdigit())
        }
        None => text + "{" + part,
    });
    let begin: String = text.chars().take(MOST_SHOWN).collect();
    let more = if begin.len() < text.len() { "..." } else { "" };
    // It never fails.
    _ = write!(line, "{begin}{more}");
}

macro_rules! scripts {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../../../redis/src/", $name, ".lua")))),*]
    };
}

/// The scripts of the store: their names and texts.
const SCRIPTS: [(&str, &str); 8] = scripts!(
    "abandon" "acquire" "change_tag" "commit" "fail" "invalidate" "renew" "touch_tags"
);

/// The name of a script. The text that a server gets ends with that of the script, without comments.
pub(super) fn script_name(text: &str) -> &'static str {
    let is_it = |(_, script): &(_, &str)| {
        let is_code = |line: &&str| !line.trim_start().starts_with("--");
        let code: Vec<_> = script.lines().filter(is_code).collect();
        text.trim_end().ends_with(code.join("\n").trim())
    };
    SCRIPTS.into_iter().find(is_it).map_or("a script", |(name, _)| name)
}

const MOST_SHOWN: usize = 120;
