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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_address_has_no_secret() {
        for (url, expected) in [
            ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
            ("redis://me:secret@cache:6379/3", "redis://cache:6379/3"),
            ("redis-cluster://me:secret@a:1,b:2", "redis-cluster://a:1,b:2"),
            ("mysql://me:sec/r@et@db/test", "mysql://db/test"),
            ("postgres://db/test?password=secret", "postgres://db/test"),
            ("postgres://me:sec?ret@db/test", "postgres://(not shown)"),
            ("postgres://db/test?password=sec@ret", "postgres://(not shown)"),
            ("sqlite:shop.db?mode=rwc", "sqlite:shop.db"),
            ("127.0.0.1:6379", "127.0.0.1:6379"),
            ("me:secret@127.0.0.1", "127.0.0.1"),
        ] {
            assert_eq!(shown(url), expected);
        }
    }
}
