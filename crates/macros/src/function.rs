//! A function as it is written, and the function of its name that is called instead.

use proc_macro2::TokenStream;
use quote::quote;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{
    Error, FnArg, GenericParam, Ident, ItemFn, Pat, PatIdent, PatType, Result, Signature, Token,
    parse_quote, parse_quote_spanned,
};

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

/// A function with the arguments of this one, and another body and return type.
pub(crate) fn called(function: &ItemFn, output: &TokenStream, does: &TokenStream) -> ItemFn {
    let mut called = function.clone();
    called.sig.inputs.iter_mut().for_each(unmute);
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
