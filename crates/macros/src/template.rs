//! Templates of the keys of `#[locked]`: `catalog/{warehouse}/{item.sku}`.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote_spanned;
use syn::{Error, LitStr, Member, Result};

/// A template of keys. Like a path, it has segments between slashes; each is text or an argument.
pub(crate) struct Template {
    /// The kind of the key: the first segment.
    pub(crate) kind: String,
    pub(crate) segments: Vec<Segment>,
    pub(crate) span: Span,
}

/// One part of a key.
#[derive(Debug, PartialEq)]
pub(crate) enum Segment {
    /// The argument, and the path of fields into it.
    Argument(String, Vec<String>),
    Text(String),
}

impl Template {
    /// Reads a template.
    pub(crate) fn read(literal: &LitStr) -> Result<Self> {
        let (kind, segments) =
            read(&literal.value()).map_err(|message| Error::new(literal.span(), message))?;
        Ok(Self { kind, segments, span: literal.span() })
    }

    /// The arguments that it names.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Argument(name, _) => Some(name.as_str()),
            Segment::Text(_) => None,
        })
    }

    /// The key of which it is the template.
    pub(crate) fn key(&self) -> TokenStream {
        let kind = &self.kind;
        let parts = self.segments.iter().map(|segment| match segment {
            Segment::Text(text) => quote_spanned!(self.span=> #text),
            Segment::Argument(name, fields) => {
                let name = Ident::new(name, self.span);
                let fields = fields.iter().map(|field| self.member(field));
                quote_spanned!(self.span=> &#name #(.#fields)*)
            }
        });
        // It borrows the argument, which the function needs later.
        quote_spanned!(self.span=> {
            #[allow(clippy::needless_borrows_for_generic_args)]
            { ::bellwether::Key::of(#kind) #(.with(#parts))* }
        })
    }

    fn member(&self, field: &str) -> Member {
        match field.parse::<u32>() {
            Ok(index) => Member::Unnamed(syn::Index { index, span: self.span }),
            Err(_) => Member::Named(Ident::new(field, self.span)),
        }
    }
}

fn read(text: &str) -> std::result::Result<(String, Vec<Segment>), String> {
    let mut segments: Vec<Segment> = Vec::new();
    for piece in text.split('/') {
        let segment = segment(piece)?;
        if matches!(segment, Segment::Argument(..)) && segments.contains(&segment) {
            return Err(format!("`{piece}` occurs twice: once is enough to distinguish keys"));
        }
        segments.push(segment);
    }
    match segments.remove(0) {
        Segment::Text(kind) => Ok((kind, segments)),
        Segment::Argument(..) => Err(format!(
            "a key begins with the kind of thing, as in `item/{text}`: or it would be the key of other \
             things as well"
        )),
    }
}

fn segment(piece: &str) -> std::result::Result<Segment, String> {
    if piece.is_empty() {
        return Err("a segment between slashes is empty".to_owned());
    }
    let Some(inside) = piece.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) else {
        return text(piece);
    };
    if inside.is_empty() {
        return Err("which argument? the braces are empty".to_owned());
    }
    let mut names = inside.split('.').map(str::to_owned);
    let name = names.next().unwrap_or_default();
    let fields: Vec<_> = names.collect();
    let is_index = |name: &str| name.parse::<u32>().is_ok_and(|index| index.to_string() == name);
    let is_field = |name: &String| is_name(name) || is_index(name);
    if !is_name(&name) || !fields.iter().all(is_field) {
        return Err(format!("`{piece}` is no argument, nor a field of one"));
    }
    Ok(Segment::Argument(name, fields))
}

fn text(piece: &str) -> std::result::Result<Segment, String> {
    let count = |brace| piece.matches(brace).count();
    if count('{') != count('}') {
        return Err(format!("a brace in `{piece}` is not closed, or not opened"));
    }
    if count('{') > 0 {
        return Err(format!(
            "`{piece}`: an argument is a segment of its own, between slashes, so that no two keys \
             can run together"
        ));
    }
    Ok(Segment::Text(piece.to_owned()))
}

/// The parser also takes white space, comments and raw names, of which no identifier can be made.
fn is_name(name: &str) -> bool {
    let is_all = |ident: Ident| ident == name && !name.starts_with("r#");
    name == "self" || syn::parse_str(name).is_ok_and(is_all)
}
