//! `each(sku in skus)`: a function that loads many answers.

use proc_macro2::Ident;
use syn::parse::{Parse, ParseStream};
use syn::token::Paren;
use syn::{Error, FnArg, Pat, PatType, Result, Signature, Token, Type, parenthesized};

use crate::returned::arguments_of;
use crate::template::Template;

/// The argument that has what differs from key to key, and what templates call one of its items.
pub(crate) struct Each {
    pub(crate) item: Ident,
    pub(crate) of: Ident,
}

impl Parse for Each {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if !input.peek(Paren) {
            return Err(input.error(NO_ITEM_IN_ITEMS));
        }
        let inside;
        parenthesized!(inside in input);
        let wrong = |error: Error| Error::new(error.span(), NO_ITEM_IN_ITEMS);
        let item = inside.parse().map_err(wrong)?;
        inside.parse::<Token![in]>().map_err(wrong)?;
        let of = inside.parse().map_err(wrong)?;
        if !inside.is_empty() {
            return Err(inside.error("one argument has the items, as in `each(sku in skus)`"));
        }
        Ok(Self { item, of })
    }
}

impl Each {
    /// The type of one item. Checks that the function has them in a `Vec`, and the key has the item.
    pub(crate) fn item_type(&self, signature: &Signature, key: &Template) -> Result<Type> {
        let Self { item, of } = self;
        if signature.inputs.iter().any(|input| typed(input, item).is_some()) {
            let message = format!("`{item}` is an argument: give an item a name of its own");
            return Err(Error::new(item.span(), message));
        }
        let many = signature.inputs.iter().find_map(|input| typed(input, of));
        let many = many.ok_or_else(|| {
            Error::new(of.span(), format!("`{of}` is no argument of `{}`", signature.ident))
        })?;
        if key.names(&of.to_string()) {
            let message = format!("`{of}` are many: the key names one of them, `{{{item}}}`");
            return Err(Error::new(key.span, message));
        }
        if !key.names(&item.to_string()) {
            let message = format!("`{item}` is not in the key, so all items would have one key");
            return Err(Error::new(item.span(), message));
        }
        match arguments_of(&many.ty, "Vec").as_deref() {
            Some([ty]) => Ok(ty.clone()),
            _ => {
                let message = format!(
                    "`{of}` must be a `Vec`: the function is called with those items that are not \
                     stored"
                );
                Err(Error::new_spanned(&many.ty, message))
            }
        }
    }
}

const NO_ITEM_IN_ITEMS: &str = "`each` takes a name for one item, and the argument that has the \
                                items, as in `each(sku in skus)`";

/// The argument, if it has this name.
fn typed<'a>(input: &'a FnArg, name: &Ident) -> Option<&'a PatType> {
    match input {
        FnArg::Typed(typed) => match &*typed.pat {
            Pat::Ident(pattern) if pattern.ident == *name => Some(typed),
            _ => None,
        },
        FnArg::Receiver(_) => None,
    }
}
