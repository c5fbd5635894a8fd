//! `#[read_through]`: expands the function.

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote};
use syn::spanned::Spanned;
use syn::{Error, Ident, ItemFn, Result, Type};

use crate::arguments::{Argument, borrows};
use crate::builders::Builders;
use crate::function::{around, called, path, written};
use crate::options::Options;
use crate::returned::ReturnedResult;

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
        return Err(Error::new(returned.ty.span(), message));
    }
    let is_single = options.each.is_none();
    if let Some(option) = options.not_found_ttl().filter(|_| is_single && !returned.is_optional()) {
        let message =
            "this is the lifetime of `None`, and the function returns no `Result<Option<_>, _>`";
        return Err(Error::new(option.span(), message));
    }
    let item = options.each.as_ref().map(|each| each.item_type(signature, &options.key));
    let item = item.transpose()?;
    let arguments = Argument::all(signature, options)?;
    Ok(ReadingFunction { options, function, returned, arguments, item }.expanded())
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
            Some(item) => quote!(<#value as ::bellwether::BatchResponse<#item, #error>>::Answer),
            None => value,
        }
    }

    /// The type of what a call returns.
    fn future(&self, answer: &TokenStream) -> TokenStream {
        let (_, error) = self.returned.parts();
        match &self.item {
            Some(_) => quote!(::bellwether::BatchFuture<#answer, #error>),
            None => quote!(::bellwether::BoxResponseFuture<#answer, #error>),
        }
    }

    /// The lookup of the key or keys, with a load that owns its arguments.
    fn read(&self, answer: &TokenStream) -> TokenStream {
        let attribute = quote!(::bellwether::read_through::attribute);
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
                quote!(#attribute::read_many(#layer, #items, |#item: &#ty| (#key, #tags), #load))
            }
            _ => {
                let layer = self.layer(answer, self.tags_of_layer());
                let load = self.load(&TokenStream::new());
                quote!(#attribute::read(#layer, #key, #load))
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
        quote!({
            #(#own)*
            move |#argument| async move { #loader(#(#pass),*).await }
        })
    }

    /// The layer, with the options of the attribute.
    fn layer(&self, answer: &TokenStream, tags: Option<TokenStream>) -> TokenStream {
        let attribute = quote!(::bellwether::read_through::attribute);
        let Options { layer, windows, .. } = self.options;
        let windows = windows.iter().map(|(option, milliseconds)| {
            quote!(.#option(::core::time::Duration::from_millis(#milliseconds)))
        });
        let layer = quote!(#attribute::layer(&#layer) #(#windows)* #tags);
        match self.options.not_found_ttl() {
            Some(_) => quote!(#attribute::optional::<#answer, _>(#layer)),
            None => layer,
        }
    }

    /// The call that sets the tags of the layer for this call of the function.
    fn tags_of_layer(&self) -> Option<TokenStream> {
        self.tags().map(|tags| {
            quote! {
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
