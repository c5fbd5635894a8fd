//! The values of options: durations, names and templates, and what is said if one is wrong.

use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Ident, LitStr, Result, Token};

/// Reads options between commas, each of which is said once. `read` gets the name of each, and reads
/// the rest.
pub(crate) fn each_option(
    input: ParseStream<'_>,
    mut read: impl FnMut(&Ident) -> Result<()>,
) -> Result<()> {
    let mut names: Vec<Ident> = Vec::new();
    while !input.is_empty() {
        let name = input.call(Ident::parse_any)?;
        if names.contains(&name) {
            return Err(Error::new(name.span(), format!("`{name}` is said twice")));
        }
        read(&name)?;
        names.push(name);
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
    }
    Ok(())
}

/// `= value`
pub(crate) fn value<T: Parse>(input: ParseStream<'_>) -> Result<T> {
    input.parse::<Token![=]>()?;
    input.parse()
}

/// `= "text"`. `example` is one, for the error message.
pub(crate) fn text(input: ParseStream<'_>, option: &str, example: &str) -> Result<LitStr> {
    input.parse::<Token![=]>()?;
    if input.peek(LitStr) {
        return input.parse();
    }
    Err(input.error(format!("`{option}` takes a text in quotes, as in `{option} = {example}`")))
}

/// Reads a duration such as `= "500ms"`.
pub(crate) fn milliseconds(input: ParseStream<'_>, option: &str) -> Result<u64> {
    let text = text(input, option, "\"60s\"")?;
    let wrong = |message: &str| Error::new(text.span(), message);
    let value = text.value();
    let unit = value.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let scale = match unit {
        "ms" => 1,
        "s" => SECOND,
        "m" => 60 * SECOND,
        "h" => 60 * 60 * SECOND,
        "d" => DAY,
        _ => return Err(wrong(NO_DURATION)),
    };
    let number =
        value[..value.len() - unit.len()].parse::<u64>().map_err(|_| wrong(NO_DURATION))?;
    match number.checked_mul(scale) {
        Some(0) => Err(wrong("no time at all: leave the option out")),
        Some(milliseconds) if milliseconds <= 366 * DAY => Ok(milliseconds),
        _ => Err(wrong("longer than 366 days, the longest lifetime")),
    }
}

/// An example of a key.
pub(crate) const KEY: &str = "\"item/{sku}\"";

const SECOND: u64 = 1000;
const DAY: u64 = 24 * 60 * 60 * SECOND;

const NO_DURATION: &str =
    "a duration is a whole number and its unit: `500ms`, `60s`, `5m`, `1h` or `7d`";
