//! The options in the brackets of the attribute.

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, Ident, LitStr, Result, Token, bracketed, parenthesized};

use crate::each::Each;
use crate::template::Template;

/// The options in the brackets of the attribute.
pub(crate) struct Options {
    pub(crate) key: Template,
    pub(crate) layer: Expr,
    /// The name for a function that makes the key, if one is requested.
    pub(crate) key_fn: Option<Ident>,
    /// The name for a function that makes the handle to an entry, if one is requested.
    pub(crate) entry_fn: Option<Ident>,
    /// If the function loads many answers: the items of the keys.
    pub(crate) each: Option<Each>,
    /// The arguments on which the answer does not depend.
    pub(crate) skip: Vec<Ident>,
    /// Options of the layer, and how many milliseconds each is set to.
    pub(crate) windows: Vec<(Ident, u64)>,
    /// The tags of the answer.
    pub(crate) tags: Vec<TagTemplate>,
}

/// A tag: `"shelf/{warehouse}" as shelf_tag`.
pub(crate) struct TagTemplate {
    pub(crate) template: Template,
    /// The name for a function that makes the tag, if one is requested.
    pub(crate) tag_fn: Option<Ident>,
}

impl Options {
    /// The option for answers that say "there is none" (negative caching).
    pub(crate) fn not_found_ttl(&self) -> Option<&Ident> {
        self.windows.iter().map(|(option, _)| option).find(|option| *option == NOT_FOUND_TTL)
    }

    /// An entry has one key and one list of tags, so a tag depends on nothing but the key.
    fn check_tags(&self) -> Result<()> {
        for (index, TagTemplate { template, .. }) in self.tags.iter().enumerate() {
            if index == MOST_TAGS {
                let message = format!("an answer has at most {MOST_TAGS} tags");
                return Err(Error::new(template.span, message));
            }
            if let Some(name) = template.arguments().find(|name| !self.key.names(name)) {
                let message =
                    format!("`{name}` is not in the key: a tag depends on what the key depends on");
                return Err(Error::new(template.span, message));
            }
        }
        Ok(())
    }
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut given = Given::default();
        while !input.is_empty() {
            given.read_one(input)?;
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        let missing = |what| Error::new(Span::call_site(), what);
        let options = Self {
            key: given
                .key
                .ok_or_else(|| missing("what is the key? say `key = \"kind/{argument}\"`"))?,
            layer: given.layer.ok_or_else(|| {
                missing("read through what? say `layer = ..`, a `ReadThroughLayer<ByKey>`")
            })?,
            key_fn: given.key_fn,
            entry_fn: given.entry_fn,
            each: given.each,
            skip: given.skip,
            windows: given.windows,
            tags: given.tags,
        };
        options.check_tags()?;
        Ok(options)
    }
}

/// What has been read so far.
#[derive(Default)]
struct Given {
    names: Vec<Ident>,
    key: Option<Template>,
    layer: Option<Expr>,
    key_fn: Option<Ident>,
    entry_fn: Option<Ident>,
    each: Option<Each>,
    skip: Vec<Ident>,
    windows: Vec<(Ident, u64)>,
    tags: Vec<TagTemplate>,
}

impl Given {
    fn read_one(&mut self, input: ParseStream<'_>) -> Result<()> {
        let name = input.call(Ident::parse_any)?;
        if self.names.contains(&name) {
            return Err(Error::new(name.span(), format!("`{name}` is said twice")));
        }
        match name.to_string().as_str() {
            "skip" => self.skip = names(input)?,
            "key" => self.key = Some(Template::read(&value(input)?)?),
            "key_fn" => self.key_fn = Some(value(input)?),
            "entry_fn" => self.entry_fn = Some(value(input)?),
            "each" => self.each = Some(input.parse()?),
            "layer" => self.layer = Some(value(input)?),
            "tags" => self.tags = templates(input)?,
            window if WINDOWS.contains(&window) => {
                self.windows.push((name.clone(), milliseconds(&value(input)?)?));
            }
            unknown => {
                let message = format!("no such option: `{unknown}`; there are {KNOWN}");
                return Err(Error::new(name.span(), message));
            }
        }
        self.names.push(name);
        Ok(())
    }
}

pub(crate) fn value<T: Parse>(input: ParseStream<'_>) -> Result<T> {
    input.parse::<Token![=]>()?;
    input.parse()
}

/// `= ["catalog", "shelf/{warehouse}" as shelf_tag]`
fn templates(input: ParseStream<'_>) -> Result<Vec<TagTemplate>> {
    input.parse::<Token![=]>()?;
    let inside;
    bracketed!(inside in input);
    let tags = Punctuated::<TagTemplate, Token![,]>::parse_terminated(&inside)?;
    Ok(tags.into_iter().collect())
}

impl Parse for TagTemplate {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let template = Template::read(&input.parse()?)?;
        let is_named = input.parse::<Option<Token![as]>>()?.is_some();
        let tag_fn = if is_named { Some(input.parse()?) } else { None };
        Ok(Self { template, tag_fn })
    }
}

/// `(catalog, self)`
fn names(input: ParseStream<'_>) -> Result<Vec<Ident>> {
    let inside;
    parenthesized!(inside in input);
    let names = Punctuated::<Ident, Token![,]>::parse_terminated_with(&inside, Ident::parse_any)?;
    Ok(names.into_iter().collect())
}

/// Reads a duration such as `"500ms"`.
pub(crate) fn milliseconds(text: &LitStr) -> Result<u64> {
    let wrong = |message: &str| Error::new(text.span(), message);
    let value = text.value();
    let unit = value.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let scale = match unit {
        "ms" => 1,
        "s" => SECOND,
        "m" => 60 * SECOND,
        "h" => 60 * 60 * SECOND,
        "d" => DAY,
        _ => return Err(wrong(NO_DURATION)),
    };
    let number =
        value[..value.len() - unit.len()].parse::<u64>().map_err(|_| wrong(NO_DURATION))?;
    match number.checked_mul(scale) {
        Some(0) => Err(wrong("no time at all: leave the option out")),
        Some(milliseconds) if milliseconds <= 366 * DAY => Ok(milliseconds),
        _ => Err(wrong("longer than 366 days, the longest lifetime")),
    }
}

const SECOND: u64 = 1000;
const DAY: u64 = 24 * 60 * 60 * SECOND;

const NO_DURATION: &str =
    "a duration is a whole number and its unit: `500ms`, `60s`, `5m`, `1h` or `7d`";

const NOT_FOUND_TTL: &str = "not_found_ttl";

/// The options of the layer that take a duration.
const WINDOWS: [&str; 4] = ["ttl", NOT_FOUND_TTL, "stale_while_revalidate", "stale_if_error"];

/// As `Tags::MOST` of the library.
const MOST_TAGS: usize = 32;

const KNOWN: &str = "`key`, `layer`, `skip`, `each`, `ttl`, `not_found_ttl`, \
                     `stale_while_revalidate`, `stale_if_error`, `tags`, `entry_fn` and `key_fn`";
