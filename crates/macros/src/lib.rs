//! The macros of [bellwether](https://docs.rs/bellwether), which re-exports and documents them.

mod arguments;
mod cache_key;
mod expand;
mod function;
mod locked;
mod options;
mod returned;

use proc_macro::TokenStream;
use quote::quote;
use syn::{DeriveInput, ItemFn, parse_macro_input};

/// Reads an `async fn` through a cache. Documented where bellwether re-exports it.
#[proc_macro_attribute]
pub fn read_through(options: TokenStream, function: TokenStream) -> TokenStream {
    let options = parse_macro_input!(options as options::Options);
    let function = parse_macro_input!(function as ItemFn);
    or_error(expand::expand(&options, &function), &function)
}

/// Runs an `async fn` under a lock. Documented where bellwether re-exports it.
#[proc_macro_attribute]
pub fn locked(options: TokenStream, function: TokenStream) -> TokenStream {
    let options = parse_macro_input!(options as locked::Options);
    let function = parse_macro_input!(function as ItemFn);
    or_error(locked::expand(&options, &function), &function)
}

/// Makes a type a key. Documented where bellwether has the trait.
#[proc_macro_derive(CacheKey)]
pub fn cache_key(input: TokenStream) -> TokenStream {
    let expanded = cache_key::expand(parse_macro_input!(input as DeriveInput));
    expanded.unwrap_or_else(syn::Error::into_compile_error).into()
}

fn or_error(expanded: syn::Result<proc_macro2::TokenStream>, function: &ItemFn) -> TokenStream {
    let expanded = expanded.unwrap_or_else(|error| {
        // The function is emitted too, so that its callers cause no further errors.
        let error = error.into_compile_error();
        quote!(#error #function)
    });
    expanded.into()
}
