//! `#[locked]`: a function that runs under a lock.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Error, Expr, ItemFn, Result};

use crate::function::{body, called, holding, is_of_async_trait, name_of};
use crate::returned::ReturnedResult;
use crate::template::Template;
use crate::values::{KEY, each_option, milliseconds, text, value};

/// The options of the attribute.
pub(crate) struct Options {
    key: Template,
    locks: Expr,
    /// How long a call waits for the lock, in milliseconds. `None`: as the locks say.
    wait: Option<u64>,
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let (mut key, mut locks, mut wait) = (None, None, None);
        each_option(input, |option| {
            match option.to_string().as_str() {
                "key" => key = Some(Template::read(&text(input, "key", KEY)?)?),
                "locks" => locks = Some(value(input)?),
                "wait" => wait = Some(milliseconds(input, "wait")?),
                unknown => {
                    let message =
                        format!("no such option: `{unknown}`; there are `key`, `locks` and `wait`");
                    return Err(Error::new(option.span(), message));
                }
            }
            Ok(())
        })?;
        let missing = |what| Error::new(Span::call_site(), what);
        let key = key.ok_or_else(|| missing("what is locked? say `key = \"kind/{argument}\"`"))?;
        let locks =
            locks.ok_or_else(|| missing("by which locks? say `locks = ..`, some `Locks`"))?;
        Ok(Self { key, locks, wait })
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
    let mut named = options.key.arguments();
    if let Some(name) = named.find(|name| !arguments.iter().any(|argument| argument == name)) {
        let message = format!("`{name}` is no argument of `{}`", signature.ident);
        return Err(Error::new(options.key.span, message));
    }
    let (value, error) = answer.parts();
    let output = quote!(::core::result::Result<#value, ::bellwether_lock::LockedError<#error>>);
    let body = body(function, &answer.ty, &holding(arguments.iter()));
    Ok(called(function, &output, &run(options, &body)).into_token_stream())
}

/// Takes the lock and runs the body.
fn run(options: &Options, body: &TokenStream) -> TokenStream {
    let Options { locks, wait, .. } = options;
    let key = options.key.key();
    let wait = wait.map(|milliseconds| {
        quote!(.wait(::bellwether_lock::LockWait::at_most(::core::time::Duration::from_millis(#milliseconds))))
    });
    // The key and the locks come first: the body moves the arguments.
    quote! {
        let __key = #key;
        let __locks = ::bellwether_lock::attribute::locks(&#locks) #wait;
        ::bellwether_lock::attribute::run(&__locks, &__key, #body).await
    }
}
