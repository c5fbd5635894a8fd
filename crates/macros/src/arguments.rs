//! The arguments of a function: which are part of the key, and how a load owns them.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{
    Error, Expr, FnArg, Pat, ReceiverKind, Result, Signature, Token, Type, parse_quote,
    parse_quote_spanned,
};

use crate::function::{has_impl, name_of};
use crate::options::Options;
use crate::returned::expanded_at;

/// One argument.
pub(crate) struct Argument {
    /// `self` for the receiver.
    pub(crate) name: Ident,
    /// What the function borrows, if it does.
    borrowed: Option<Type>,
    mutability: Option<Token![mut]>,
}

impl Argument {
    /// Checks the arguments of a function: each must be part of the key, or be named as ignored.
    pub(crate) fn all(signature: &Signature, options: &Options) -> Result<Vec<Self>> {
        let read = signature.inputs.iter().map(Self::read);
        let arguments = read.collect::<Result<Vec<_>>>()?;
        for skipped in &options.skip {
            if !arguments.iter().any(|argument| argument.name == *skipped) {
                let message = format!("`{skipped}` is no argument of `{}`", signature.ident);
                return Err(Error::new(skipped.span(), message));
            }
            check_skipped(skipped, options)?;
        }
        let forgotten = arguments.iter().filter(|argument| !argument.has_a_place(options));
        match forgotten.map(Self::forgotten).reduce(|mut all, one| {
            all.combine(one);
            all
        }) {
            Some(error) => Err(error),
            None => Ok(arguments),
        }
    }

    fn read(input: &FnArg) -> Result<Self> {
        let name = name_of(input)?;
        match input {
            FnArg::Typed(typed) => {
                let mutability = match &*typed.pat {
                    Pat::Ident(pattern) => pattern.mutability,
                    _ => None,
                };
                Ok(Self { mutability, ..Self::of(name, &typed.ty)? })
            }
            FnArg::Receiver(receiver) => match &receiver.kind {
                ReceiverKind::Reference(and, _, mutability) => {
                    Self::of(name, &parse_quote_spanned!(and.span()=> &#mutability Self))
                }
                ReceiverKind::Typed(_, ty) => Self::of(name, ty),
                _ => Self::of(name, &parse_quote!(Self)),
            },
        }
    }

    fn of(name: Ident, ty: &Type) -> Result<Self> {
        let (borrowed, within) = match ty {
            Type::Reference(reference) if reference.mutability.is_some() => {
                let message = format!(
                    "a load may outlive its caller, so `{name}` cannot be a mutable reference"
                );
                return Err(Error::new_spanned(ty, message));
            }
            Type::Reference(reference) => (Some(Type::clone(&reference.elem)), &*reference.elem),
            _ => (None, ty),
        };
        if borrows(within.to_token_stream()) {
            let message = format!("a load may outlive its caller, so `{name}` must own its data");
            return Err(Error::new_spanned(ty, message));
        }
        Ok(Self { name, borrowed, mutability: None })
    }

    fn has_a_place(&self, options: &Options) -> bool {
        let is_named = |key: &Expr| names(key.to_token_stream(), &self.name);
        options.skip.contains(&self.name) || options.key.as_ref().is_none_or(is_named)
    }

    fn forgotten(&self) -> Error {
        let name = &self.name;
        let message = format!(
            "`{name}` is not in the key: name it there, or say `skip({name})` if the answer is the \
             same whatever it is"
        );
        Error::new(name.span(), message)
    }

    /// The expression by which the key borrows it.
    pub(crate) fn part(&self) -> TokenStream {
        let name = &self.name;
        if self.is_reference() { quote!(#name) } else { quote_spanned!(name.span()=> &#name) }
    }

    /// Its name in the load, which cannot be `self`.
    fn owned(&self) -> Ident {
        if self.name == "self" { format_ident!("__self") } else { self.name.clone() }
    }

    /// The statement that gives the load an owned value, where the load does not move the argument.
    pub(crate) fn own(&self) -> TokenStream {
        let name = &self.name;
        let owned = self.owned();
        if self.is_reference() {
            let copy = quote_spanned!(expanded_at(name)=> ::bellwether::attribute::owned(#name));
            quote!(let #owned = #copy;)
        } else if name == "self" {
            quote!(let #owned = #name;)
        } else {
            TokenStream::new()
        }
    }

    /// The statement by which the load borrows it, as the function does.
    pub(crate) fn borrow(&self) -> TokenStream {
        let Self { name, borrowed: Some(borrowed), mutability } = self else {
            return TokenStream::new();
        };
        let ty = (!has_impl(borrowed.to_token_stream())).then(|| quote!(: &#borrowed));
        quote!(#[allow(unused_variables)] let #mutability #name #ty = &#name;)
    }

    fn is_reference(&self) -> bool {
        self.borrowed.is_some()
    }

    /// The expression by which the load passes it to the function.
    pub(crate) fn pass(&self) -> TokenStream {
        let owned = self.owned();
        if self.is_reference() { quote!(&#owned) } else { quote!(#owned) }
    }
}

fn check_skipped(skipped: &Ident, options: &Options) -> Result<()> {
    let is_in = |written: &Option<Expr>| {
        written.as_ref().is_some_and(|written| names(written.to_token_stream(), skipped))
    };
    let message = if is_in(&options.key) {
        format!("`{skipped}` is part of the key, so it cannot be skipped")
    } else if is_in(&options.tags) {
        format!(
            "`{skipped}` is not in the key, so a tag cannot name it: all that is stored under a key \
             has the same tags"
        )
    } else {
        return Ok(());
    };
    Err(Error::new(skipped.span(), message))
}

/// Whether an expression names an argument. A field or an item of a path with that name is none.
fn names(expression: TokenStream, argument: &Ident) -> bool {
    let mut is_inside = false;
    let mut last = None;
    for token in expression {
        let is_it = match &token {
            TokenTree::Ident(ident) => !is_inside && ident == argument,
            TokenTree::Group(group) => names(group.stream(), argument),
            TokenTree::Punct(_) | TokenTree::Literal(_) => false,
        };
        if is_it {
            return true;
        }
        let punct = if let TokenTree::Punct(punct) = &token { Some(punct.as_char()) } else { None };
        // `::` or a single `.` leads inside; `:` and `..` do not.
        is_inside = match punct {
            Some(':') => last == Some(':'),
            Some('.') => last != Some('.'),
            _ => false,
        };
        last = punct;
    }
    false
}

/// Whether a type has a reference that is not `'static`.
pub(crate) fn borrows(ty: TokenStream) -> bool {
    let mut tokens = ty.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(name) if FUNCTIONS.iter().any(|function| name == *function) => {
                // What a function takes is not held.
                tokens.next_if(|token| matches!(token, TokenTree::Group(_)));
            }
            TokenTree::Group(group) if borrows(group.stream()) => return true,
            TokenTree::Punct(punct) if punct.as_char() == '&' => {
                let is_lifetime = matches!(tokens.peek(), Some(TokenTree::Punct(quote)) if quote.as_char() == '\'');
                if is_lifetime {
                    tokens.next();
                }
                let is_static = matches!(tokens.peek(), Some(TokenTree::Ident(name)) if is_lifetime && name == "static");
                if !is_static {
                    return true;
                }
            }
            _ => {}
        }
    }
    false
}

/// What types of functions begin with.
const FUNCTIONS: [&str; 4] = ["fn", "Fn", "FnMut", "FnOnce"];
