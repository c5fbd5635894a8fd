//! The options in the brackets of the attribute.

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::token::Bracket;
use syn::{Error, Expr, Ident, LitStr, Result, Token, bracketed, parenthesized};

use crate::each::Each;
use crate::template::Template;
use crate::values::{KEY, each_option, milliseconds, name, text, value};

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

    /// The names of the functions that are requested.
    pub(crate) fn functions(&self) -> impl Iterator<Item = &Ident> {
        let of_tags = self.tags.iter().filter_map(|tag| tag.tag_fn.as_ref());
        self.entry_fn.iter().chain(&self.key_fn).chain(of_tags)
    }

    /// An entry has one key and one list of tags, so a tag depends on nothing but the key.
    fn check_tags(&self) -> Result<()> {
        for (index, TagTemplate { template, .. }) in self.tags.iter().enumerate() {
            if index == MOST_TAGS {
                let message = format!("an answer has at most {MOST_TAGS} tags");
                return Err(Error::new(template.span, message));
            }
            if let Some(name) = template.arguments().find(|name| !self.key.names(name)) {
                let each = self.each.as_ref().filter(|each| each.of == name);
                let message = each.map_or_else(
                    || {
                        format!(
                            "`{name}` is not in the key, so a tag cannot name it: all that is stored \
                             under a key has the same tags"
                        )
                    },
                    |each| format!("`{name}` are many: a tag names one of them, `{{{}}}`", each.item),
                );
                return Err(Error::new(template.span, message));
            }
        }
        Ok(())
    }
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let (mut key, mut layer, mut key_fn, mut entry_fn, mut each) = Default::default();
        let (mut skip, mut windows, mut tags) = (Vec::new(), Vec::new(), Vec::new());
        each_option(input, |option| {
            match option.to_string().as_str() {
                "skip" => skip = names(input)?,
                "key" => key = Some(Template::read(&text(input, "key", KEY)?, "key")?),
                "key_fn" => key_fn = Some(name(input, "key_fn", "item_key")?),
                "entry_fn" => entry_fn = Some(name(input, "entry_fn", "item_entry")?),
                "each" => each = Some(input.parse()?),
                "layer" => layer = Some(value(input)?),
                "tags" => tags = templates(input)?,
                window if WINDOWS.contains(&window) => {
                    windows.push((option.clone(), milliseconds(input, window)?));
                }
                unknown => {
                    let message = format!("no such option: `{unknown}`; there are {KNOWN}");
                    return Err(Error::new(option.span(), message));
                }
            }
            Ok(())
        })?;
        let missing = |what| Error::new(Span::call_site(), what);
        let key = key.ok_or_else(|| missing("what is the key? say `key = \"kind/{argument}\"`"))?;
        let layer = layer.ok_or_else(|| {
            missing("read through what? say `layer = ..`, a `ReadThroughLayer<ByKey>`")
        })?;
        let options = Self { key, layer, key_fn, entry_fn, each, skip, windows, tags };
        options.check_tags()?;
        Ok(options)
    }
}

/// `= ["catalog", "shelf/{warehouse}" as shelf_tag]`
fn templates(input: ParseStream<'_>) -> Result<Vec<TagTemplate>> {
    input.parse::<Token![=]>()?;
    if !input.peek(Bracket) {
        return Err(input.error(NO_LIST_OF_TAGS));
    }
    let inside;
    bracketed!(inside in input);
    let tags = Punctuated::<TagTemplate, Token![,]>::parse_terminated(&inside)?;
    Ok(tags.into_iter().collect())
}

impl Parse for TagTemplate {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if !input.peek(LitStr) {
            return Err(input.error(NO_LIST_OF_TAGS));
        }
        let template = Template::read(&input.parse()?, "tag")?;
        if !input.peek(Token![as]) {
            return Ok(Self { template, tag_fn: None });
        }
        input.parse::<Token![as]>()?;
        if !input.peek(Ident) {
            let message = "`as` takes the name of a function that is made, without quotes, as in \
                           `\"shelf/{warehouse}\" as shelf_tag`";
            return Err(input.error(message));
        }
        let tag_fn = Some(input.parse()?);
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

const NO_LIST_OF_TAGS: &str =
    "tags are a list of templates in quotes, as in `tags = [\"catalog\", \"shelf/{warehouse}\"]`";

const NOT_FOUND_TTL: &str = "not_found_ttl";

/// The options of the layer that take a duration.
const WINDOWS: [&str; 4] = ["ttl", NOT_FOUND_TTL, "stale_while_revalidate", "stale_if_error"];

/// As `Tags::MOST` of the library.
const MOST_TAGS: usize = 32;

const KNOWN: &str = "`key`, `layer`, `skip`, `each`, `ttl`, `not_found_ttl`, \
                     `stale_while_revalidate`, `stale_if_error`, `tags`, `entry_fn` and `key_fn`";
