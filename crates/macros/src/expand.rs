//! `#[read_through]`: expands the function.

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{
    Error, FnArg, GenericArgument, GenericParam, Ident, ItemFn, Member, Pat, Path, PathArguments,
    Result, ReturnType, Signature, Token, Type, parse_quote,
};

use crate::arguments::{Argument, borrows};
use crate::options::Options;
use crate::template::{Segment, Template};

/// Makes two functions: the written one under another name, and one that reads through a cache with
/// it as the loader.
pub(crate) fn expand(options: &Options, function: &ItemFn) -> Result<TokenStream> {
    let signature = &function.sig;
    if signature.asyncness.is_none() {
        let message =
            "only an `async fn` can be read through a cache, because a caller may have to wait";
        return Err(Error::new(signature.fn_token.span(), message));
    }
    let answer = ReturnedResult::of(
        &signature.output,
        "what is read through a cache is a `Result<T, E>`: a load can fail",
    )?;
    if borrows(answer.ty.to_token_stream()) {
        let message = "an answer is stored, so it cannot borrow";
        return Err(Error::new(answer.ty.span(), message));
    }
    if let Some(option) = options.not_found_ttl().filter(|_| !answer.is_optional()) {
        let message =
            "this is the lifetime of `None`, and the function returns no `Result<Option<_>, _>`";
        return Err(Error::new(option.span(), message));
    }
    let arguments = Argument::all(signature, options)?;
    let load = written(function, &loader_name(&signature.ident));
    let read = reader(function, &answer, &read(options, function, &arguments));
    let key_fn = options.key_fn.as_ref().map(|name| key_fn(name, options, function));
    let both = around(read, &load);
    Ok(quote!(#both #key_fn))
}

/// The function to call, with the written one hidden inside or beside it.
pub(crate) fn around(called: ItemFn, written: &TokenStream) -> TokenStream {
    // A function inside a method cannot name `Self`, so the written method is put beside it.
    if called.sig.receiver().is_some() {
        return quote!(#called #written);
    }
    let ItemFn { attrs, vis, sig, block, .. } = called;
    quote! {
        #(#attrs)* #vis #sig {
            #written
            #block
        }
    }
}

/// The written function under another name.
pub(crate) fn written(function: &ItemFn, name: &Ident) -> TokenStream {
    let signature = Signature { ident: name.clone(), ..function.sig.clone() };
    let block = &function.block;
    quote! {
        #[doc(hidden)]
        #[allow(clippy::too_many_arguments)]
        #signature #block
    }
}

fn loader_name(function: &Ident) -> Ident {
    format_ident!("__load_{function}")
}

/// The function to call, which reads through the cache.
fn reader(function: &ItemFn, answer: &ReturnedResult, read: &TokenStream) -> ItemFn {
    let (value, error) = answer.parts();
    let output = quote!(::core::result::Result<#value, ::bellwether::Error<#error>>);
    called(function, &output, read)
}

/// A function with the arguments of this one, and another body and return type.
pub(crate) fn called(function: &ItemFn, output: &TokenStream, does: &TokenStream) -> ItemFn {
    let mut called = function.clone();
    called.sig.inputs.iter_mut().for_each(unmute);
    called.sig.output = parse_quote!(-> #output);
    called.block = parse_quote!({ #does });
    called
}

/// Removes `mut` from the arguments, since only the load changes them.
fn unmute(input: &mut FnArg) {
    match input {
        FnArg::Receiver(receiver) => receiver.mutability = None,
        FnArg::Typed(typed) => {
            if let Pat::Ident(pattern) = &mut *typed.pat {
                pattern.mutability = None;
            }
        }
    }
}

/// The lookup of the key, with a load that owns its arguments.
fn read(options: &Options, function: &ItemFn, arguments: &[Argument]) -> TokenStream {
    let layer = &options.layer;
    let option_calls = options.windows.iter().map(
        |(option, milliseconds)| quote!(.#option(::core::time::Duration::from_millis(#milliseconds))),
    );
    let read = match options.not_found_ttl() {
        Some(_) => quote!(read_optional),
        None => quote!(read),
    };
    let key = key(&options.key);
    let tags = tags(&options.tags);
    let own = arguments.iter().map(Argument::own);
    let pass = arguments.iter().map(Argument::pass);
    let loader = path(&function.sig, &loader_name(&function.sig.ident));
    quote! {
        ::bellwether::read_through::attribute::#read(
            ::bellwether::read_through::attribute::layer(&#layer) #(#option_calls)* #tags,
            #key,
            {
                #(#own)*
                move || async move { #loader(#(#pass),*).await }
            },
        )
        .await
    }
}

/// The path of a function beside this one, with the generic arguments that cannot be inferred from
/// its arguments.
pub(crate) fn path(signature: &Signature, name: &Ident) -> TokenStream {
    let generics = signature.generics.params.iter().filter_map(|param| match param {
        GenericParam::Type(param) => Some(&param.ident),
        GenericParam::Const(param) => Some(&param.ident),
        GenericParam::Lifetime(_) => None,
    });
    let generics: Punctuated<&Ident, Token![,]> = generics.collect();
    let generics = (!generics.is_empty()).then(|| quote!(::<#generics>));
    let of_self = signature.receiver().map(|_| quote!(Self::));
    quote!(#of_self #name #generics)
}

/// The call that sets the tags of the layer for this call of the function.
fn tags(templates: &[Template]) -> Option<TokenStream> {
    let made = templates.iter().map(|template| named(&quote!(Tag), template));
    let call = quote! {
        .tags({
            let tags = [#(#made),*];
            move |_: &::bellwether::Key| ::core::clone::Clone::clone(&tags)
        })
    };
    (!templates.is_empty()).then_some(call)
}

pub(crate) fn key(template: &Template) -> TokenStream {
    named(&quote!(Key), template)
}

/// A key or a tag by its template.
fn named(of: &TokenStream, template: &Template) -> TokenStream {
    let kind = &template.kind;
    let parts = template.segments.iter().map(|segment| match segment {
        Segment::Text(text) => quote_spanned!(template.span=> #text),
        Segment::Argument(name, fields) => {
            let name = Ident::new(name, template.span);
            let fields = fields.iter().map(|field| member(field, template));
            quote_spanned!(template.span=> &#name #(.#fields)*)
        }
    });
    // The key borrows the argument, which the load needs later.
    quote_spanned!(template.span=> {
        #[allow(clippy::needless_borrows_for_generic_args)]
        { ::bellwether::#of::of(#kind) #(.with(#parts))* }
    })
}

fn member(field: &str, template: &Template) -> Member {
    match field.parse::<u32>() {
        Ok(index) => Member::Unnamed(syn::Index { index, span: template.span }),
        Err(_) => Member::Named(Ident::new(field, template.span)),
    }
}

/// The function that makes the key, for invalidations.
fn key_fn(name: &Ident, options: &Options, function: &ItemFn) -> TokenStream {
    let mut signature = Signature { ident: name.clone(), asyncness: None, ..function.sig.clone() };
    signature.output = parse_quote!(-> ::bellwether::Key);
    let keyed = |input: &FnArg| match input {
        FnArg::Receiver(_) => options.key.arguments().any(|name| name == "self"),
        FnArg::Typed(typed) => match &*typed.pat {
            Pat::Ident(pattern) => options.key.arguments().any(|name| pattern.ident == name),
            _ => false,
        },
    };
    signature.inputs = function.sig.inputs.iter().filter(|input| keyed(input)).cloned().collect();
    signature.inputs.iter_mut().for_each(unmute);
    let visibility = &function.vis;
    let key = key(&options.key);
    let doc = format!("The key of [`{}`]({0}).", function.sig.ident);
    quote! {
        #[doc = #doc]
        #visibility #signature { #key }
    }
}

/// What the function returns: a `Result`.
pub(crate) struct ReturnedResult {
    ty: Type,
    /// The type of the value, and that of the error if it is written.
    arguments: Vec<Type>,
}

impl ReturnedResult {
    /// Reads the return type. `wrong` is the error message if it is not a `Result`.
    pub(crate) fn of(output: &ReturnType, wrong: &str) -> Result<Self> {
        let ReturnType::Type(_, ty) = output else {
            return Err(Error::new(output.span(), wrong));
        };
        let arguments = match &**ty {
            Type::Path(path) => arguments_of(&path.path, "Result"),
            _ => None,
        };
        let arguments = arguments.ok_or_else(|| Error::new(ty.span(), wrong))?;
        Ok(Self { ty: Type::clone(ty), arguments })
    }

    fn is_optional(&self) -> bool {
        let value = self.arguments.first();
        value.is_some_and(|value| match value {
            Type::Path(path) => arguments_of(&path.path, "Option").is_some(),
            _ => false,
        })
    }

    /// The types of the value and the error, as far as they are written.
    pub(crate) fn parts(&self) -> (TokenStream, TokenStream) {
        if let [value, error] = &*self.arguments {
            return (value.to_token_stream(), error.to_token_stream());
        }
        let ty = &self.ty;
        let outcome = quote!(<#ty as ::bellwether::read_through::attribute::FunctionResult>);
        (quote!(#outcome::Value), quote!(#outcome::Error))
    }
}

/// The types in the brackets of a path that ends in this name.
fn arguments_of(path: &Path, name: &str) -> Option<Vec<Type>> {
    let last = path.segments.last().filter(|last| last.ident == name)?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else {
        return Some(Vec::new());
    };
    let types = arguments.args.iter().filter_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty.clone()),
        _ => None,
    });
    Some(types.collect())
}
