//! The options in the brackets of an attribute.

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, Ident, Result, Token, parenthesized};

/// The options of `#[read_through]`.
pub(crate) struct Options {
    pub(crate) cache: Expr,
    /// The key. `None`: all arguments that are not skipped.
    pub(crate) key: Option<Expr>,
    /// The arguments on which the answer does not depend.
    pub(crate) skip: Vec<Ident>,
    /// The tags of the answer.
    pub(crate) tags: Option<Expr>,
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let (mut cache, mut key, mut tags, mut skip) = (None, None, None, Vec::new());
        each_option(input, |option| {
            match option.to_string().as_str() {
                "cache" => cache = Some(value(input)?),
                "key" => key = Some(value(input)?),
                "skip" => skip = names(input)?,
                "tags" => tags = Some(value(input)?),
                unknown => {
                    let message = format!("no such option: `{unknown}`; there are {KNOWN}");
                    return Err(Error::new(option.span(), message));
                }
            }
            Ok(())
        })?;
        let missing = "read through what? say `cache = ..`, a `Cache`";
        let cache = cache.ok_or_else(|| Error::new(Span::call_site(), missing))?;
        Ok(Self { cache, key, skip, tags })
    }
}

/// Reads options between commas, each of which is said once. `read` gets the name of each, and reads
/// the rest.
pub(crate) fn each_option(
    input: ParseStream<'_>,
    mut read: impl FnMut(&Ident) -> Result<()>,
) -> Result<()> {
    let mut names: Vec<Ident> = Vec::new();
    while !input.is_empty() {
        let name = input.call(Ident::parse_any)?;
        if names.contains(&name) {
            return Err(Error::new(name.span(), format!("`{name}` is said twice")));
        }
        read(&name)?;
        names.push(name);
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
    }
    Ok(())
}

/// `= value`
pub(crate) fn value(input: ParseStream<'_>) -> Result<Expr> {
    input.parse::<Token![=]>()?;
    input.parse()
}

/// `(catalog, self)`
fn names(input: ParseStream<'_>) -> Result<Vec<Ident>> {
    let inside;
    parenthesized!(inside in input);
    let names = Punctuated::<Ident, Token![,]>::parse_terminated_with(&inside, Ident::parse_any)?;
    Ok(names.into_iter().collect())
}

const KNOWN: &str = "`cache`, `key`, `skip` and `tags`; how long a value is fresh is said where the \
                     cache is built";
