//! The options in the brackets of the attribute.

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, Ident, Result, Token, parenthesized};

use crate::values::{each_option, value};

/// The options in the brackets of the attribute.
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

/// `(catalog, self)`
fn names(input: ParseStream<'_>) -> Result<Vec<Ident>> {
    let inside;
    parenthesized!(inside in input);
    let names = Punctuated::<Ident, Token![,]>::parse_terminated_with(&inside, Ident::parse_any)?;
    Ok(names.into_iter().collect())
}

const KNOWN: &str = "`cache`, `key`, `skip` and `tags`; how long a value is fresh is said where the \
                     cache is built";
