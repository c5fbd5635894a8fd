//! Whether a text is a well-formed XML document, for tests: one element, matching tags, quoted
//! attributes with different names, and no bare `&` or `<` in a text.
//!
//! Comments, processing instructions and CDATA are errors here, since this program writes none.

use combine::easy::{self, Error, Info};
use combine::parser::char::{char, space, spaces, string};
use combine::stream::position::{self, SourcePosition};
use combine::{
    EasyParser, Parser, StdParseResult, attempt, between, choice, eof, many, parser, satisfy,
    skip_many, skip_many1,
};

type Input<'a> = easy::Stream<position::Stream<&'a str, SourcePosition>>;

/// The error says where the text stops being well-formed, and what should be there.
pub(super) fn check(text: &str) -> Result<(), String> {
    let mut document = (parser(element), spaces(), eof()).map(|_| ());
    let parsed = document.easy_parse(position::Stream::new(text));
    parsed.map(|_| ()).map_err(|error| error.to_string())
}

fn element<'a>(input: &mut Input<'a>) -> StdParseResult<(), Input<'a>> {
    // A closing tag begins like an element.
    let open = (attempt(char('<').with(name())), attributes());
    let content = skip_many(choice((parser(element), text("<"))));
    let close = between(string("</"), spaces().with(char('>')), name());
    let full = char('>').with(content).with(close);
    let rest = choice((string("/>").map(|_| None), full.map(Some)));
    let mut element = (open, rest).and_then(|((open, ()), close)| match close {
        Some(close) if close != open => Err(error(format!("<{open}> ends as </{close}>"))),
        _ => Ok(()),
    });
    element.parse_stream(input).into_result()
}

/// With the space before each.
fn attributes<'a>() -> impl Parser<Input<'a>, Output = ()> {
    let value = between(char('"'), char('"'), skip_many(text("<\"")));
    let attribute = attempt(skip_many1(space()).with(name())).skip(char('=')).skip(value);
    let attributes = many(attribute).skip(spaces());
    attributes.and_then(|mut names: Vec<String>| {
        names.sort();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(error(format!("`{}` appears twice", pair[0]))),
            None => Ok(()),
        }
    })
}

fn error<'a>(message: String) -> Error<char, &'a str> {
    Error::Message(Info::Owned(message))
}

fn name<'a>() -> impl Parser<Input<'a>, Output = String> {
    let start = satisfy(|letter: char| letter.is_alphabetic() || letter == '_');
    let rest = many(satisfy(|letter: char| letter.is_alphanumeric() || "_-.:".contains(letter)));
    (start, rest).map(|(start, rest): (char, String)| format!("{start}{rest}"))
}

/// A character that is none of these, or a reference to one.
fn text<'a>(forbidden: &'static str) -> impl Parser<Input<'a>, Output = ()> {
    let name = choice(["amp;", "apos;", "gt;", "lt;", "quot;"].map(|name| attempt(string(name))));
    let reference = char('&').with(name);
    let bare = satisfy(move |letter: char| letter != '&' && !forbidden.contains(letter));
    choice((bare.map(|_| ()), reference.map(|_| ())))
}

#[test]
fn only_well_formed_documents_pass() {
    for good in ["<a/>", "<a b=\"1\" c-d=\"\" />\n", "<a><b>1 &lt; 2</b> &amp;<b/></a >"] {
        assert_eq!(check(good), Ok(()), "{good}");
    }
    for bad in [
        "",
        "a",
        "<a>",
        "<a></b>",
        "<a><b></a></b>",
        "<a/><a/>",
        "<a b=1/>",
        "<a b=\"1\" b=\"1\"/>",
        "<a b=\"<\"/>",
        "<a b=\"1\"c=\"2\"/>",
        "<a>1 & 2</a>",
        "<a>&nbsp;</a>",
        "<a>1 < 2</a>",
    ] {
        assert!(check(bad).is_err(), "{bad}");
    }
}
