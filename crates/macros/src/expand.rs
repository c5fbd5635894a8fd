//! `#[read_through]`: expands the function.

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Error, Ident, ItemFn, Result, Type};

use crate::arguments::{Argument, borrows};
use crate::builders::Builders;
use crate::function::{around, called, path, written};
use crate::options::Options;
use crate::returned::{ReturnedResult, expanded_at};

/// Makes two functions: the written one under another name, and one that reads through a cache with
/// it as the loader. And the functions for keys, tags and entries that are requested.
pub(crate) fn expand(options: &Options, function: &ItemFn) -> Result<TokenStream> {
    let signature = &function.sig;
    if signature.asyncness.is_none() {
        let message =
            "only an `async fn` can be read through a cache, because a caller may have to wait";
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
    let is_single = options.each.is_none();
    if let Some(option) = options.not_found_ttl().filter(|_| is_single && !returned.is_optional()) {
        let message =
            "this is the lifetime of `None`, and the function returns no `Result<Option<_>, _>`";
        return Err(Error::new(option.span(), message));
    }
    different_names(options, &signature.ident)?;
    let item = options.each.as_ref().map(|each| each.item_type(signature, &options.key));
    let item = item.transpose()?;
    let arguments = Argument::all(signature, options)?;
    Ok(ReadingFunction { options, function, returned, arguments, item }.expanded())
}

/// The functions that are made have names of their own.
fn different_names(options: &Options, function: &Ident) -> Result<()> {
    let mut names = vec![function];
    for made in options.functions() {
        let wrong = match names.iter().position(|name| *name == made) {
            Some(0) => "is the function itself",
            Some(_) => "is made twice",
            None => {
                names.push(made);
                continue;
            }
        };
        let message = format!("`{made}` {wrong}: give this one another name");
        return Err(Error::new(made.span(), message));
    }
    Ok(())
}

/// The function that reads through the cache.
struct ReadingFunction<'a> {
    options: &'a Options,
    function: &'a ItemFn,
    returned: ReturnedResult,
    arguments: Vec<Argument>,
    /// The type of one item, if the function loads many answers.
    item: Option<Type>,
}

impl ReadingFunction<'_> {
    fn expanded(&self) -> TokenStream {
        let Self { options, function, item, .. } = self;
        let answer = self.answer();
        let load = written(function, &self.loader());
        let mut called = called(function, &self.future(&answer), &self.read(&answer));
        called.sig.asyncness = None;
        let both = around(called, &load);
        let layer = self.layer(&answer, self.tags_of_layer());
        let builders = Builders { options, function, item: item.as_ref() };
        let built = builders.all(&answer, &layer);
        quote!(#both #built)
    }

    fn loader(&self) -> Ident {
        format_ident!("__load_{}", self.function.sig.ident)
    }

    /// The type of one answer.
    fn answer(&self) -> TokenStream {
        let (value, error) = self.returned.parts();
        match &self.item {
            Some(item) => {
                let (span, _) = self.returned.spans();
                quote_spanned!(span=> <#value as ::bellwether::BatchResponse<#item, #error>>::Answer)
            }
            None => value,
        }
    }

    /// The type of what a call returns.
    fn future(&self, answer: &TokenStream) -> TokenStream {
        let (_, error) = self.returned.parts();
        let (span, _) = self.returned.spans();
        match &self.item {
            Some(_) => quote_spanned!(span=> ::bellwether::BatchFuture<#answer, #error>),
            None => quote_spanned!(span=> ::bellwether::AnswerFuture<#answer, #error>),
        }
    }

    /// The lookup of the key or keys, with a load that owns its arguments.
    fn read(&self, answer: &TokenStream) -> TokenStream {
        // What is wrong with the answer is said where the function returns it.
        let (span, error) = self.returned.spans();
        let key = self.options.key.key();
        match (&self.options.each, &self.item) {
            (Some(each), Some(ty)) => {
                let layer = self.layer(answer, None);
                let item = &each.item;
                let items = &each.of;
                let load = self.load(&quote!(#items: ::std::vec::Vec<#ty>));
                let tags = match self.tags() {
                    Some(tags) => quote!(::core::option::Option::Some(#tags)),
                    None => quote!(::core::option::Option::None::<[::bellwether::Tag; 0]>),
                };
                let read_many =
                    quote_spanned!(span=> ::bellwether::read_through::attribute::read_many);
                quote_spanned!(span=> #read_many(#layer, #items, |#item: &#ty| (#key, #tags), #load))
            }
            _ => {
                let layer = self.layer(answer, self.tags_of_layer());
                let load = self.load(&TokenStream::new());
                let read = quote_spanned!(span=> ::bellwether::read_through::attribute::read);
                quote_spanned!(error=> #read(#layer, #key, #load))
            }
        }
    }

    /// The load, as a closure with this argument.
    fn load(&self, argument: &TokenStream) -> TokenStream {
        let Options { each, key, .. } = self.options;
        // The closure that names an item borrows what else is in its key.
        let is_borrowed = |name: &Ident| each.is_some() && key.names(&name.to_string());
        let is_items = |name: &Ident| each.as_ref().is_some_and(|each| each.of == *name);
        let owned = self.arguments.iter().filter(|argument| !is_items(&argument.name));
        let own = owned.map(|argument| argument.own(is_borrowed(&argument.name)));
        let pass = self.arguments.iter().map(Argument::pass);
        let loader = path(&self.function.sig, &self.loader());
        let (_, span) = self.returned.spans();
        quote_spanned!(span=> {
            #(#own)*
            move |#argument| async move { #loader(#(#pass),*).await }
        })
    }

    /// The layer, with the options of the attribute.
    fn layer(&self, answer: &TokenStream, tags: Option<TokenStream>) -> TokenStream {
        let Options { layer, windows, .. } = self.options;
        let (span, _) = self.returned.spans();
        let windows = windows.iter().map(|(option, milliseconds)| {
            quote_spanned!(span=> .#option(::core::time::Duration::from_millis(#milliseconds)))
        });
        let borrowed = quote_spanned!(expanded_at(layer)=> &#layer);
        let layer = quote_spanned! {
            span=> ::bellwether::read_through::attribute::layer(#borrowed) #(#windows)* #tags
        };
        match self.options.not_found_ttl() {
            Some(option) => {
                let optional = quote_spanned! {
                    expanded_at(option)=> ::bellwether::read_through::attribute::optional
                };
                quote!(#optional::<#answer, _>(#layer))
            }
            None => layer,
        }
    }

    /// The call that sets the tags of the layer for this call of the function.
    fn tags_of_layer(&self) -> Option<TokenStream> {
        self.tags().map(|tags| {
            let (span, _) = self.returned.spans();
            quote_spanned! {span=>
                .tags({
                    let tags = #tags;
                    move |_: &::bellwether::Key| ::core::clone::Clone::clone(&tags)
                })
            }
        })
    }

    /// The tags of an answer, if the attribute has any.
    fn tags(&self) -> Option<TokenStream> {
        let tags = self.options.tags.iter().map(|tag| tag.template.tag());
        (!self.options.tags.is_empty()).then(|| quote!([#(#tags),*]))
    }
}
