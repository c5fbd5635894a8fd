//! URLs in messages.

/// A URL without what may be secret: the user, the password and the options.
pub(crate) fn shown(url: &str) -> String {
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), url),
    };
    // A password may contain a `?`, so this comes first.
    let place = rest.rsplit('@').next().unwrap_or_default();
    let place = place.split(['?', '#']).next().unwrap_or_default();
    format!("{scheme}{place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_url_has_its_address_and_no_secret() {
        for (url, expected) in [
            ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
            ("redis://me:p?a@ss@cache.example", "redis://cache.example"),
            ("redis-cluster://me:pass@a:1,b:2", "redis-cluster://a:1,b:2"),
            ("mysql://db:3306/shop?password=pass", "mysql://db:3306/shop"),
            ("me:pass@127.0.0.1:6379", "127.0.0.1:6379"),
            ("127.0.0.1:6379", "127.0.0.1:6379"),
        ] {
            assert_eq!(shown(url), expected);
        }
    }
}
