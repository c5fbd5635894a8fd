//! The authority by which a client calls.

use http::header::HOST;
use http::request::Parts;
use http::uri::Authority;

/// The authority of a request, if it has one. The outer `None` stands for one that is uncertain:
/// `:authority` and `host` contradict each other, or one has user information.
pub(super) fn authority(parts: &Parts) -> Option<Option<String>> {
    let hosts = parts.headers.get_all(HOST).iter().map(|host| host.to_str().ok());
    let stated = parts.uri.authority().map(|stated| Some(stated.as_str()));
    let mut named = hosts.chain(stated).map(|named| normal_authority(named?));
    let Some(first) = named.next() else { return Some(None) };
    (first.is_some() && named.all(|other| other == first)).then_some(first)
}

/// An authority in lower case and without a usual port, which not all clients write.
pub(super) fn normal_authority(named: &str) -> Option<String> {
    let named: Authority = named.parse().ok().filter(|_| !named.contains('@'))?;
    let lower = named.as_str().to_ascii_lowercase();
    let bare = lower.strip_suffix(":80").or_else(|| lower.strip_suffix(":443"));
    Some(bare.unwrap_or(&lower).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_counts_if_all_that_name_it_agree() {
        let of = |uri: &str, hosts: &[&str]| {
            let mut request = http::Request::post(uri);
            for host in hosts {
                request = request.header(HOST, *host);
            }
            authority(&request.body(()).unwrap().into_parts().0)
        };
        assert_eq!(of("/a/b", &[]), Some(None));
        let agreed = Some(Some("a.example".to_owned()));
        assert_eq!(of("http://A.example:80/a/b", &[]), agreed);
        assert_eq!(of("/a/b", &["a.example:443"]), agreed);
        assert_eq!(of("http://a.example/a/b", &["A.example", "a.example"]), agreed);
        assert_eq!(of("http://[::1]:8080/a/b", &[]), Some(Some("[::1]:8080".to_owned())));
        for (uri, hosts) in [
            ("http://a.example/a/b", &["b.example"][..]),
            ("/a/b", &["a.example", "b.example"]),
            ("http://user@a.example/a/b", &[]),
            ("/a/b", &["a example"]),
        ] {
            assert_eq!(of(uri, hosts), None, "{uri} {hosts:?}");
        }
    }
}
