//! `#[locked]`: a function that runs under a lock.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Error, Expr, ItemFn, Result};

use crate::function::{body, called, holding, is_of_async_trait, name_of};
use crate::options::{each_option, value};
use crate::returned::ReturnedResult;

/// The options of the attribute.
pub(crate) struct Options {
    key: Expr,
    locks: Expr,
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let (mut key, mut locks) = (None, None);
        each_option(input, |option| {
            match option.to_string().as_str() {
                "key" => key = Some(value(input)?),
                "locks" => locks = Some(value(input)?),
                unknown => {
                    let message =
                        format!("no such option: `{unknown}`; there are `key` and `locks`");
                    return Err(Error::new(option.span(), message));
                }
            }
            Ok(())
        })?;
        let missing = |what| Error::new(Span::call_site(), what);
        let key = key.ok_or_else(|| missing("what is locked? say `key = ..`, a `Key`"))?;
        let locks =
            locks.ok_or_else(|| missing("by which locks? say `locks = ..`, some `Locks`"))?;
        Ok(Self { key, locks })
    }
}

/// Runs the body of a function under the lock.
pub(crate) fn expand(options: &Options, function: &ItemFn) -> Result<TokenStream> {
    let signature = &function.sig;
    if signature.asyncness.is_none() {
        let message = match is_of_async_trait(signature) {
            true => {
                "inside `#[async_trait]` there is no `async fn` any more: lock a method of the type itself, and \
                 call that from the trait's"
            }
            false => "only an `async fn` can be run under a lock: it may have to wait",
        };
        return Err(Error::new(signature.fn_token.span(), message));
    }
    let wrong = "what is run under a lock returns a `Result<T, E>`: the lock can fail";
    let answer = ReturnedResult::of(&signature.output, wrong)?;
    let arguments = signature.inputs.iter().map(name_of).collect::<Result<Vec<_>>>()?;
    let (value, error) = answer.parts();
    let output = quote!(::core::result::Result<#value, ::bellwether_lock::LockedError<#error>>);
    let body = body(function, &answer.ty, &holding(arguments.iter()));
    let Options { key, locks } = options;
    // The key and the locks come first: the body moves the arguments.
    let run = quote! {
        let __key: ::bellwether::Key = #key;
        let __locks = ::bellwether_lock::attribute::locks(&#locks);
        ::bellwether_lock::attribute::run(&__locks, &__key, #body).await
    };
    Ok(called(function, &output, &run).into_token_stream())
}
