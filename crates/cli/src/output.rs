//! What people and programs read.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::Value;

/// What was found: names of fields and their values. Fields that end in `_ms` are times.
pub(crate) type ResultFields = Vec<(&'static str, Value)>;

/// Prints a record: a JSON object, or a line for each field.
pub(crate) fn show(record: ResultFields, json: bool) -> io::Result<()> {
    if json {
        return line(&record.into_iter().collect::<Value>().to_string());
    }
    for (name, value) in record {
        let values = if let Value::Array(values) = value { values } else { vec![value] };
        for value in values.iter().filter(|value| !value.is_null()) {
            let label = name.trim_end_matches("_ms").replace('_', " ");
            line(&format!("{label:<24} {}", text(name, value)))?;
        }
    }
    Ok(())
}

/// A value as people read it.
pub(crate) fn text(name: &str, value: &Value) -> String {
    match value {
        Value::Null => "?".to_owned(),
        Value::String(text) => harmless(text),
        Value::Bool(is_true) => if *is_true { "yes" } else { "no" }.to_owned(),
        value if name.ends_with("_ms") => time(value.as_u64().unwrap_or_default()),
        value => value.to_string(),
    }
}

/// Prints a line. It fails where `println!` would panic, as in `bellwether watch | head`.
pub(crate) fn line(text: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{}", harmless(text))
}

/// Says something beside the results. It is lost where `eprintln!` would panic, as in `bellwether inspect 2>&1 | head`.
pub(crate) fn note(text: &str) {
    _ = writeln!(io::stderr(), "bellwether: {}", harmless(text));
}

/// A text without what a terminal obeys: servers and their replies are not trusted. It stays JSON if it is.
pub(crate) fn harmless(text: &str) -> String {
    let is_obeyed = |letter: char| {
        letter.is_control()
            || matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let show = |letter| match is_obeyed(letter) {
        true => format!("\\u{:04x}", u32::from(letter)),
        false => letter.to_string(),
    };
    text.chars().map(show).collect()
}

/// A time as the value of a field.
pub(crate) fn millis(time: Duration) -> Value {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).into()
}

fn time(millis: u64) -> String {
    let seconds = millis / 1_000;
    match seconds {
        0..120 => format!("{:.1?}", Duration::from_millis(millis)),
        _ => format!("{} h {} min {} s", seconds / 3_600, seconds / 60 % 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        assert_eq!([time(250), time(2_149), time(59_000)], ["250.0ms", "2.1s", "59.0s"]);
        assert_eq!([time(125_000), time(7_500_000)], ["0 h 2 min 5 s", "2 h 5 min 0 s"]);
    }

    #[test]
    fn text_of_others_is_one_line() {
        assert_eq!(text("message", &"a\n\u{1b}[31mb".into()), "a\\u000a\\u001b[31mb");
    }
}
