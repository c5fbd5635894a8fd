//! Templates of the keys of `#[locked]`, as its crate reads them: that one is built for the compiler alone.

#[allow(dead_code, reason = "the attribute makes code of what it read")]
#[path = "../../../macros/src/template.rs"]
mod template;

use bellwether_testkit::fuzz::{Choices, fuzz};
use proc_macro2::Span;
use syn::{LitStr, Result};
use template::{Segment, Template};

fn read(text: &str) -> Result<Template> {
    Template::read(&LitStr::new(text, Span::call_site()))
}

/// The text of a template.
fn written(Template { kind, segments, .. }: &Template) -> String {
    let segment = |segment: &Segment| match segment {
        Segment::Text(text) => text.clone(),
        Segment::Argument(name, fields) => {
            let path: Vec<_> = [name].into_iter().chain(fields).map(String::as_str).collect();
            format!("{{{}}}", path.join("."))
        }
    };
    let segments = segments.iter().map(segment);
    [kind.clone()].into_iter().chain(segments).collect::<Vec<_>>().join("/")
}

fn any(choices: &mut Choices) -> String {
    let names = ["sku", "self", "item", "it_2", "r#type", "type", "ä", "_", "_a"];
    let segment = |choices: &mut Choices| match choices.below(4) {
        0 => choices.text(4),
        1 => choices.pick(&["item", "by name", "ä:b"]).to_owned(),
        _ => {
            let names = (0..=choices.below(3)).map(|_| match choices.one_in(4) {
                true => (choices.number() >> 32).to_string(),
                false => choices.pick(&names).to_owned(),
            });
            format!("{{{}}}", names.collect::<Vec<_>>().join("."))
        }
    };
    let segments: Vec<_> = (0..=choices.below(4)).map(|_| segment(choices)).collect();
    segments.join("/")
}

#[test]
fn fuzzed_templates_are_errors_that_say_where_or_are_written_as_they_were_read() {
    fuzz("template", 96, 1, |choices| {
        let [one, other] = [any(choices), any(choices)];
        let text = if choices.one_in(2) { choices.mutated_text(&one, &other) } else { one };
        match read(&text) {
            Ok(template) => {
                assert_eq!(written(&template), text);
                assert!(!template.key().is_empty());
                assert!(template.arguments().all(|name| text.contains(name)));
            }
            Err(error) => {
                let error = error.to_string();
                let mut pieces = text.split('/').filter(|piece| !piece.is_empty());
                let names_piece = pieces.any(|piece| error.contains(piece));
                let is_empty = error.contains("is empty") && format!("/{text}/").contains("//");
                let braces = error.contains("braces are empty") && text.contains("{}");
                assert!(names_piece || is_empty || braces, "{text:?}: {error}");
            }
        }
    });
}

#[test]
fn a_name_with_white_space_a_comment_or_a_raw_name_is_no_argument() {
    for text in ["item/{ sku }", "item/{sku }", "item/{r#type}", "item/{a.r#type}", "item/{a.+5}"] {
        let error = read(text).map(|_| ()).expect_err("no panic");
        assert!(error.to_string().contains("is no argument"), "{text}: {error}");
    }
    assert!(read("item/{a.0.b}").is_ok());
}
