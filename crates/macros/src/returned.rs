//! What a function returns.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::spanned::Spanned;
use syn::{Error, GenericArgument, PathArguments, Result, ReturnType, Type};

/// What the function returns: a `Result`.
pub(crate) struct ReturnedResult {
    pub(crate) ty: Type,
    /// The type of the value, and that of the error if it is written.
    arguments: Vec<Type>,
}

impl ReturnedResult {
    /// Reads the return type. `wrong` is the error message if it is not a `Result`.
    pub(crate) fn of(output: &ReturnType, wrong: &str) -> Result<Self> {
        let ReturnType::Type(_, ty) = output else {
            return Err(Error::new(output.span(), wrong));
        };
        let arguments = arguments_of_result(ty);
        let arguments = arguments.ok_or_else(|| Error::new(ty.span(), wrong))?;
        Ok(Self { ty: Type::clone(ty), arguments })
    }

    /// Where the type of the value is written, and that of the error: as exactly as it is known.
    pub(crate) fn spans(&self) -> (Span, Span) {
        let span_of = |nth: usize| expanded_at(self.arguments.get(nth).unwrap_or(&self.ty));
        (span_of(0), span_of(1))
    }

    /// The types of the value and the error, as far as they are written.
    pub(crate) fn parts(&self) -> (TokenStream, TokenStream) {
        if let [value, error] = &*self.arguments {
            return (value.to_token_stream(), error.to_token_stream());
        }
        let ty = &self.ty;
        let outcome = quote!(<#ty as ::bellwether::attribute::FunctionResult>);
        (quote!(#outcome::Value), quote!(#outcome::Error))
    }
}

/// Where something is written, for code that is made of it. Lints take such code for what it is: a
/// macro's.
pub(crate) fn expanded_at(written: &impl Spanned) -> Span {
    Span::call_site().located_at(written.span())
}

/// The types in the brackets of a path that ends in `Result`.
fn arguments_of_result(ty: &Type) -> Option<Vec<Type>> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == "Result")?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else {
        return Some(Vec::new());
    };
    let types = arguments.args.iter().filter_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty.clone()),
        _ => None,
    });
    Some(types.collect())
}
