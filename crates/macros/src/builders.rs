//! The functions beside the function: for the keys, tags and entries of its answers.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::{FnArg, ItemFn, Signature, Type, parse_quote};

use crate::function::{name_of, unmute};
use crate::options::Options;
use crate::returned::expanded_at;
use crate::template::Template;

/// What functions are made of: each has those arguments of the written one that it needs.
pub(crate) struct Builders<'a> {
    pub(crate) options: &'a Options,
    pub(crate) function: &'a ItemFn,
    /// The type of one item, if the function loads many answers.
    pub(crate) item: Option<&'a Type>,
}

impl Builders<'_> {
    /// The functions that the attribute asks for. `answer` is the type of one answer, and `layer`
    /// its layer.
    pub(crate) fn all(&self, answer: &TokenStream, layer: &TokenStream) -> TokenStream {
        let key_fn = self.options.key_fn.as_ref().map(|name| self.key_fn(name));
        let entry_fn = self.options.entry_fn.as_ref();
        let entry_fn = entry_fn.map(|name| self.entry_fn(name, answer, layer));
        let tags = self.options.tags.iter();
        let tag_fns =
            tags.filter_map(|tag| tag.tag_fn.as_ref().map(|name| self.tag_fn(name, &tag.template)));
        quote!(#key_fn #entry_fn #(#tag_fns)*)
    }

    fn key_fn(&self, name: &Ident) -> TokenStream {
        let template = &self.options.key;
        let signature = self.signature(name, &quote!(::bellwether::Key), |it| template.names(it));
        self.function("The key", &signature, &template.key())
    }

    fn tag_fn(&self, name: &Ident, template: &Template) -> TokenStream {
        let signature = self.signature(name, &quote!(::bellwether::Tag), |it| template.names(it));
        self.function("A tag", &signature, &template.tag())
    }

    fn entry_fn(&self, name: &Ident, answer: &TokenStream, layer: &TokenStream) -> TokenStream {
        let Options { key: template, layer: written, .. } = self.options;
        let written = written.to_token_stream();
        let is_needed = |it: &str| template.names(it) || names(written.clone(), it);
        let output = quote!(::bellwether::EntryHandle<#answer>);
        let key = template.key();
        let entry = quote_spanned!(expanded_at(name)=> ::bellwether::read_through::attribute::entry(#layer, #key));
        self.function("The stored answer", &self.signature(name, &output, is_needed), &entry)
    }

    fn function(&self, what: &str, signature: &Signature, does: &TokenStream) -> TokenStream {
        let visibility = &self.function.vis;
        let doc = format!("{what} of a call of `{}`.", self.function.sig.ident);
        quote! {
            #[doc = #doc]
            #visibility #signature { #does }
        }
    }

    /// A signature with those arguments of the function that are needed, and an item instead of the
    /// items.
    fn signature(
        &self,
        name: &Ident,
        output: &TokenStream,
        is_needed: impl Fn(&str) -> bool,
    ) -> Signature {
        let written = &self.function.sig;
        let mut signature = Signature { ident: name.clone(), asyncness: None, ..written.clone() };
        signature.output = parse_quote!(-> #output);
        let inputs = written.inputs.iter().map(|input| self.one(input));
        signature.inputs = inputs.filter(|input| is_named(input, &is_needed)).collect();
        signature.inputs.iter_mut().for_each(unmute);
        signature
    }

    /// The argument, or one item of it.
    fn one(&self, input: &FnArg) -> FnArg {
        match (&self.options.each, self.item) {
            (Some(each), Some(ty)) if is_named(input, |name| each.of == name) => {
                let item = &each.item;
                parse_quote!(#item: #ty)
            }
            _ => input.clone(),
        }
    }
}

/// Whether this is the name of an argument.
fn is_named(input: &FnArg, is_it: impl Fn(&str) -> bool) -> bool {
    name_of(input).is_ok_and(|name| is_it(&name.to_string()))
}

/// Whether an expression names an argument. A field or an item of a path with that name is none.
fn names(expression: TokenStream, argument: &str) -> bool {
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
