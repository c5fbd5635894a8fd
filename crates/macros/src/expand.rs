//! `#[read_through]`: expands the function.

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Error, Expr, FnArg, Ident, ItemFn, Result, Type};

use crate::arguments::{Argument, borrows};
use crate::function::{body, called, holding, is_of_async_trait, path, unmute, written};
use crate::options::Options;
use crate::returned::{ReturnedResult, expanded_at};

/// Makes two functions: the written one under another name, and one that reads through a cache with
/// it as the loader.
pub(crate) fn expand(options: &Options, function: &ItemFn) -> Result<TokenStream> {
    let signature = &function.sig;
    if signature.asyncness.is_none() {
        let message = match is_of_async_trait(signature) {
            true => IN_ASYNC_TRAIT,
            false => {
                "only an `async fn` can be read through a cache, because a caller may have to wait"
            }
        };
        return Err(Error::new(signature.fn_token.span(), message));
    }
    let returned = ReturnedResult::of(
        &signature.output,
        "what is read through a cache is a `Result<T, E>`: a load can fail",
    )?;
    if borrows(returned.ty.to_token_stream()) {
        let message = "an answer is stored, so it cannot borrow";
        return Err(Error::new_spanned(&returned.ty, message));
    }
    let arguments = Argument::all(signature, options)?;
    let loader = format_ident!("__load_{}", signature.ident);
    let (value, error) = returned.parts();
    let (span, _) = returned.spans();
    let future = quote_spanned!(span=> ::bellwether::AnswerFuture<#value, #error>);
    let reading = ReadingFunction { options, function, returned, arguments };
    let mut called = called(function, &future, &reading.body(&loader));
    called.sig.asyncness = None;
    if signature.receiver().is_none() {
        // The load borrows it again.
        let inputs = called.sig.inputs.iter_mut();
        inputs.filter(|input| is_borrowed(input)).for_each(unmute);
        return Ok(called.into_token_stream());
    }
    called.sig.inputs.iter_mut().for_each(unmute);
    let written = written(function, &loader, &holding(reading.names()));
    Ok(quote!(#called #written))
}

fn is_borrowed(input: &FnArg) -> bool {
    matches!(input, FnArg::Typed(typed) if matches!(*typed.ty, Type::Reference(_)))
}

const IN_ASYNC_TRAIT: &str = "inside `#[async_trait]` there is no `async fn` any more: read a method of the type \
    itself through the cache, and call that from the trait's";

/// The function that reads through the cache.
struct ReadingFunction<'a> {
    options: &'a Options,
    function: &'a ItemFn,
    returned: ReturnedResult,
    arguments: Vec<Argument>,
}

impl ReadingFunction<'_> {
    /// The lookup of the key, with a load that owns its arguments. The key borrows them before.
    fn body(&self, loader: &Ident) -> TokenStream {
        let Options { cache, tags, .. } = self.options;
        // What is wrong with the answer is said where the function returns it.
        let (value, error) = self.returned.spans();
        let borrowed = quote_spanned!(expanded_at(cache)=> &#cache);
        let tags =
            tags.as_ref().map_or_else(|| quote!(::core::iter::empty()), Expr::to_token_stream);
        let parts = self.parts();
        let own = self.arguments.iter().map(Argument::own);
        let loaded = if self.function.sig.receiver().is_some() {
            let pass = self.arguments.iter().map(Argument::pass);
            let loader = path(&self.function.sig, loader);
            quote_spanned!(error=> async move { #loader(#(#pass),*).await })
        } else {
            let held = holding(self.names());
            let borrow = self.arguments.iter().map(Argument::borrow);
            body(self.function, &self.returned.ty, &quote!(#held #(#borrow)*))
        };
        let call = quote_spanned! {
            value=> ::bellwether::attribute::call(#borrowed, (#(#parts,)*), #tags)
        };
        let load = quote_spanned!(error=> move || #loaded);
        quote_spanned! { error=>
            let __call = #call;
            #(#own)*
            ::bellwether::attribute::read(__call, #load)
        }
    }

    fn names(&self) -> impl Iterator<Item = &Ident> {
        self.arguments.iter().map(|argument| &argument.name)
    }

    /// The parts of the key. An argument is borrowed, since the load needs it later.
    fn parts(&self) -> Vec<TokenStream> {
        let is_skipped = |argument: &&Argument| self.options.skip.contains(&argument.name);
        match &self.options.key {
            None => {
                let named = self.arguments.iter().filter(|it| !is_skipped(it));
                named.map(Argument::part).collect()
            }
            Some(Expr::Tuple(parts)) => parts.elems.iter().map(|part| self.part(part)).collect(),
            Some(part) => vec![self.part(part)],
        }
    }

    fn part(&self, part: &Expr) -> TokenStream {
        let is_it = |argument: &&Argument| matches!(part, Expr::Path(it) if it.path.is_ident(&argument.name));
        let argument = self.arguments.iter().find(is_it);
        argument.map_or_else(|| part.to_token_stream(), Argument::part)
    }
}
