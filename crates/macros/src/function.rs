//! A function as it is written, and the function of its name that is called instead.
//!
//! The body stays inside that, where it can name what surrounds it, such as `Self` and the parameters of
//! an `impl`. Only the load of a method is a method of its own, since it owns its `self`.

use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{
    Error, FnArg, GenericParam, Ident, ItemFn, Pat, PatIdent, PatType, Result, Signature, Token,
    Type, parse_quote, parse_quote_spanned,
};

/// The written method under another name. It holds its arguments, though some may be used by the
/// attribute only.
pub(crate) fn written(function: &ItemFn, name: &Ident, arguments: &TokenStream) -> TokenStream {
    let signature = Signature { ident: name.clone(), ..function.sig.clone() };
    let block = &function.block;
    quote! {
        #[doc(hidden)]
        #[allow(clippy::too_many_arguments)]
        #signature {
            #arguments
            #block
        }
    }
}

/// The body of a function as a future. It holds its arguments, though some may be used by the attribute
/// only.
pub(crate) fn body(function: &ItemFn, returned: &Type, arguments: &TokenStream) -> TokenStream {
    let block = &function.block;
    // Says what `?` and `return` give.
    let hint = (!has_impl(returned.to_token_stream())).then(|| {
        quote! {
            if let ::core::option::Option::Some(__answer) = ::core::option::Option::None::<#returned> {
                return __answer;
            }
        }
    });
    quote!(async move { #arguments #hint #block })
}

/// The statement that uses these arguments, and so holds them.
pub(crate) fn holding<'a>(arguments: impl Iterator<Item = &'a Ident>) -> TokenStream {
    let arguments = arguments.filter(|name| *name != "self");
    quote!(let _ = (#(&#arguments,)*);)
}

/// Whether a type has an `impl Trait`, which only a signature can name.
pub(crate) fn has_impl(ty: TokenStream) -> bool {
    ty.into_iter().any(|token| match token {
        TokenTree::Ident(name) => name == "impl",
        TokenTree::Group(group) => has_impl(group.stream()),
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}

/// Whether a signature is what `#[async_trait]` makes of an `async fn`.
pub(crate) fn is_of_async_trait(signature: &Signature) -> bool {
    signature.generics.lifetimes().any(|lifetime| lifetime.lifetime.ident == "async_trait")
}

/// A function with the arguments of this one, and another body and return type.
pub(crate) fn called(function: &ItemFn, output: &TokenStream, does: &TokenStream) -> ItemFn {
    let mut called = function.clone();
    called.sig.output = parse_quote!(-> #output);
    called.block = parse_quote_spanned!(output.span()=> { #does });
    called
}

/// The name of an argument.
pub(crate) fn name_of(input: &FnArg) -> Result<Ident> {
    match input {
        FnArg::Receiver(receiver) => Ok(Ident::new("self", receiver.self_token.span())),
        FnArg::Typed(PatType { pat, .. }) => match &**pat {
            Pat::Ident(PatIdent { ident, by_ref: None, subpat: None, .. }) => Ok(ident.clone()),
            _ => Err(Error::new(pat.span(), "give this argument a name of its own")),
        },
    }
}

/// Removes `mut` from an argument, since only the load changes it.
pub(crate) fn unmute(input: &mut FnArg) {
    match input {
        FnArg::Receiver(receiver) => receiver.mutability = None,
        FnArg::Typed(typed) => {
            if let Pat::Ident(pattern) = &mut *typed.pat {
                pattern.mutability = None;
            }
        }
    }
}

/// The path of a method beside this one, with the generic arguments that cannot be inferred from
/// its arguments.
pub(crate) fn path(signature: &Signature, name: &Ident) -> TokenStream {
    let generics = signature.generics.params.iter().filter_map(|param| match param {
        GenericParam::Type(param) => Some(&param.ident),
        GenericParam::Const(param) => Some(&param.ident),
        GenericParam::Lifetime(_) => None,
    });
    let generics: Punctuated<&Ident, Token![,]> = generics.collect();
    let generics = (!generics.is_empty()).then(|| quote!(::<#generics>));
    quote!(Self::#name #generics)
}
