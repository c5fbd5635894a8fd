//! Whether an answer is stored, by its status and its `cache-control`.

use std::time::Duration;

use bellwether::{Cacheability, Lifetimes};
use http::HeaderMap;
use http::header::{CACHE_CONTROL, SET_COOKIE};
use tonic::Code;

use super::method::{CachedMethod, lasting};

/// The status of an answer: in its trailers, or in its head for a trailers-only response. An answer
/// without a status is `UNKNOWN`, as gRPC demands.
pub(super) fn status(head: &HeaderMap, trailers: Option<&HeaderMap>) -> Code {
    let said = trailers.and_then(|trailers| trailers.get(GRPC_STATUS));
    said.or_else(|| head.get(GRPC_STATUS))
        .map_or(Code::Unknown, |status| Code::from_bytes(status.as_bytes()))
}

/// The cacheability of a complete answer.
pub(super) fn classify(method: &CachedMethod, code: Code, head: &HeaderMap) -> Cacheability {
    let Some(lifetimes) = method.lifetimes_of(code) else {
        return classify_unnamed(code);
    };
    match ServerDirectives::of(head) {
        _ if head.contains_key(SET_COOKIE) => Cacheability::PrivateKey,
        ServerDirectives { is_private: true, .. } => Cacheability::PrivateKey,
        ServerDirectives { ttl: Some(ttl), .. } => Cacheability::KeepFor(lasting(ttl, &lifetimes)),
        ServerDirectives { ttl: None, .. } => Cacheability::KeepFor(lifetimes),
    }
}

/// The cacheability of an answer with a status that the method does not name.
fn classify_unnamed(code: Code) -> Cacheability {
    match code {
        Code::Unavailable
        | Code::DeadlineExceeded
        | Code::Internal
        | Code::Unknown
        | Code::ResourceExhausted
        | Code::DataLoss
        | Code::Aborted => Cacheability::Failure,
        Code::Unauthenticated | Code::PermissionDenied => Cacheability::PrivateKey,
        // Metadata that is not part of the key may have caused it, so other callers may get another
        // answer.
        Code::Cancelled
        | Code::InvalidArgument
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented => Cacheability::Unconfirmed,
        Code::Ok | Code::NotFound => Cacheability::KeepFor(Lifetimes::fresh_for(Duration::ZERO)),
    }
}

/// The directives of a server for its answer, in `cache-control`.
struct ServerDirectives {
    is_private: bool,
    /// The freshness lifetime: the shortest, if there are several.
    ttl: Option<Duration>,
}

impl ServerDirectives {
    fn of(head: &HeaderMap) -> Self {
        let mut said = Self { is_private: false, ttl: None };
        for value in head.get_all(CACHE_CONTROL) {
            // A value that cannot be read may forbid sharing.
            let Ok(value) = value.to_str() else {
                return Self { is_private: true, ttl: None };
            };
            value.split(',').for_each(|directive| said.read(directive.trim()));
        }
        said
    }

    fn read(&mut self, directive: &str) {
        let (name, argument) = directive.split_once('=').unwrap_or((directive, ""));
        match name.trim().to_ascii_lowercase().as_str() {
            "no-store" | "private" => self.is_private = true,
            "no-cache" => self.ttl = Some(Duration::ZERO),
            "max-age" => {
                // A time that cannot be read is zero (RFC 9111, section 4.2.1).
                let seconds = argument.trim().trim_matches('"').parse::<u32>().unwrap_or(0);
                let ttl = Duration::from_secs(seconds.into());
                self.ttl = Some(self.ttl.map_or(ttl, |other| other.min(ttl)));
            }
            _ => {}
        }
    }
}

const GRPC_STATUS: &str = "grpc-status";

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn head(name: &'static str, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name.parse().unwrap(), HeaderValue::from_static(value))])
    }

    fn kept_for(cacheability: Cacheability) -> Option<u64> {
        match cacheability {
            Cacheability::KeepFor(lifetimes) => Some(lifetimes.ttl().as_secs()),
            _ => None,
        }
    }

    fn of(code: Code, head: &HeaderMap) -> Cacheability {
        let method = CachedMethod::fresh_for(MINUTE).status(Code::NotFound, MINUTE * 2);
        classify(&method, code, head)
    }

    #[test]
    fn only_named_statuses_are_stored() {
        let none = HeaderMap::new();
        assert_eq!(kept_for(of(Code::Ok, &none)), Some(60));
        assert_eq!(kept_for(of(Code::NotFound, &none)), Some(120));
        for number in 1..=16 {
            let code = Code::from_i32(number);
            let cacheability = of(code, &none);
            let expected = match number {
                5 => continue,
                2 | 4 | 8 | 10 | 13 | 14 | 15 => Cacheability::Failure,
                7 | 16 => Cacheability::PrivateKey,
                _ => Cacheability::Unconfirmed,
            };
            assert_eq!(cacheability, expected, "{code:?}");
        }
    }

    #[test]
    fn the_status_is_that_of_the_trailers_or_else_of_the_head() {
        let five = head("grpc-status", "5");
        let none = HeaderMap::new();
        assert_eq!(status(&none, Some(&five)), Code::NotFound);
        assert_eq!(status(&five, None), Code::NotFound);
        assert_eq!(status(&five, Some(&none)), Code::NotFound);
        assert_eq!(status(&five, Some(&head("grpc-status", "0"))), Code::Ok);
        assert_eq!(status(&none, None), Code::Unknown);
        assert_eq!(status(&head("grpc-status", "seven"), None), Code::Unknown);
    }

    #[test]
    fn the_server_can_forbid_storing_and_set_the_lifetime() {
        for private in ["no-store", "PRIVATE", "max-age=5, no-store", "private=\"x\""] {
            assert_eq!(
                of(Code::Ok, &head("cache-control", private)),
                Cacheability::PrivateKey,
                "{private}"
            );
        }
        assert_eq!(of(Code::Ok, &head("set-cookie", "a=b")), Cacheability::PrivateKey);
        let times = [("max-age=5", 5), ("public, Max-Age = 7", 7), ("max-age=9, max-age=3", 3)];
        let none = [("no-cache", 0), ("max-age=x", 0), ("max-age=5, no-cache", 0), ("public", 60)];
        for (said, ttl) in times.into_iter().chain(none) {
            assert_eq!(kept_for(of(Code::Ok, &head("cache-control", said))), Some(ttl), "{said}");
        }
        assert_eq!(of(Code::Internal, &head("cache-control", "no-store")), Cacheability::Failure);
    }
}
