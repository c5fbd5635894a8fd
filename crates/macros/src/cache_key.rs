//! `#[derive(CacheKey)]`: a struct as its fields, a variant of an enum as its name and its fields.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Fields, Ident, Result, parse_quote};

/// Implements the trait, for generic types if their parameters have it too.
pub(crate) fn expand(mut input: DeriveInput) -> Result<TokenStream> {
    let name = &input.ident;
    let add = match &input.data {
        Data::Struct(data) => {
            let (pattern, add) = each_field(&data.fields);
            quote!(let Self #pattern = self; #add)
        }
        Data::Enum(data) if data.variants.is_empty() => quote!(match *self {}),
        Data::Enum(data) => {
            let arms = data.variants.iter().map(|variant| {
                let (pattern, add) = each_field(&variant.fields);
                let name = &variant.ident;
                let said = name.to_string();
                quote!(Self::#name #pattern => { ::bellwether::CacheKey::add_to(#said, key); #add })
            });
            quote!(match self { #(#arms)* })
        }
        Data::Union(data) => {
            let message = "a union is no key: nothing says which of its fields counts";
            return Err(Error::new(data.union_token.span, message));
        }
    };
    for parameter in input.generics.type_params_mut() {
        parameter.bounds.push(parse_quote!(::bellwether::CacheKey));
    }
    let (generics, of, bounds) = input.generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #generics ::bellwether::CacheKey for #name #of #bounds {
            fn add_to(&self, key: &mut ::bellwether::Key) {
                #add
            }
        }
    })
}

/// A pattern that names the fields, and what adds them to the key. The compiler says at its field which
/// type cannot be a part.
fn each_field(fields: &Fields) -> (TokenStream, TokenStream) {
    let names: Vec<Ident> = (0..fields.len()).map(|number| format_ident!("__{number}")).collect();
    let adds = fields.iter().zip(&names).map(
        |(field, name)| quote_spanned!(field.ty.span()=> ::bellwether::CacheKey::add_to(#name, key);),
    );
    let pattern = match fields {
        Fields::Named(fields) => {
            let fields = fields.named.iter().map(|field| &field.ident);
            quote!({ #(#fields: #names),* })
        }
        Fields::Unnamed(_) => quote!((#(#names),*)),
        Fields::Unit => TokenStream::new(),
    };
    (pattern, quote!(#(#adds)*))
}
