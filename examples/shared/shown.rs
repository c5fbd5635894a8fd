//! Addresses in messages.

/// An address without what may be secret in it: user, password and parameters.
pub(crate) fn shown(url: &str) -> String {
    let (address, parameters) = url.split_once(['?', '#']).unwrap_or((url, ""));
    let (scheme, rest) = match address.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), address),
    };
    // What looks like the parameters may have begun within a password.
    if parameters.contains('@') {
        return format!("{scheme}(not shown)");
    }
    let place = rest.rsplit('@').next().unwrap_or_default();
    format!("{scheme}{place}")
}
