//! `BearerToken`: a secret by which requests prove their right.

use bellwether::adapter::within;
use bellwether::store::Digest;
use bellwether::{ConfigError, Key};
use http::{HeaderMap, header};
use subtle::ConstantTimeEq;

use super::rules;

/// The hash of a secret that requests prove to know (RFC 6750, section 2.1).
///
/// Hashes have one length and say nothing about the secret, so neither the time of a comparison nor
/// the memory of this process does.
pub(super) struct BearerToken(Digest);

impl BearerToken {
    /// # Errors
    /// If the token is too short or too long, or cannot be sent as it is.
    pub(super) fn new(token: &str) -> Result<Self, ConfigError> {
        within("bytes of the purge token", token.len(), SHORTEST, LONGEST)?;
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            let reason = "it has other characters than visible ASCII";
            return Err(ConfigError::Key { given: "purge token".to_owned(), reason });
        }
        Ok(Self(hash(token.as_bytes())))
    }

    /// Whether a request has this token.
    pub(super) fn is_in(&self, request: &HeaderMap) -> bool {
        let Some(value) = rules::only(request, &header::AUTHORIZATION) else { return false };
        let value = value.as_bytes();
        let scheme_end = value.iter().position(|byte| *byte == b' ').unwrap_or(value.len());
        let (scheme, token) = value.split_at(scheme_end);
        let given = hash(token.trim_ascii());
        let is_same = given.as_bytes()[..].ct_eq(&self.0.as_bytes()[..]);
        scheme.eq_ignore_ascii_case(b"bearer") && bool::from(is_same)
    }
}

fn hash(token: &[u8]) -> Digest {
    Key::of("purge-token").with(token).digest()
}

/// The shortest token, in bytes: 16 random hexadecimal digits are 64 bits.
const SHORTEST: usize = 16;

const LONGEST: usize = 1024;

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const SECRET: &str = "0123456789abcdef-secret";

    fn takes(values: &[&str]) -> bool {
        let mut request = HeaderMap::new();
        for value in values {
            request.append(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        BearerToken::new(SECRET).unwrap().is_in(&request)
    }

    #[test]
    fn only_the_very_token_is_taken() {
        let good = format!("Bearer {SECRET}");
        assert!(takes(&[&good]) && takes(&[&format!("bearer  {SECRET}")]));
        for wrong in ["", "Bearer", "Bearer ", SECRET, &format!("Basic {SECRET}")] {
            assert!(!takes(&[wrong]), "{wrong:?}");
        }
        assert!(!takes(&[&format!("{good}x")]) && !takes(&[&good[..good.len() - 1]]));
        assert!(!takes(&[]) && !takes(&[&good, &good]) && !takes(&[&good, "Bearer x"]));
    }

    #[test]
    fn a_token_that_is_too_short_or_cannot_be_sent_is_refused() {
        for wrong in ["", "short", &"x".repeat(2_000), "0123456789abcdef\n", "0123456789 abcdef"] {
            let error = BearerToken::new(wrong).err().unwrap().to_string();
            assert!(error.contains("purge token"), "{error}");
            assert!(wrong.is_empty() || !error.contains(wrong), "{error}");
        }
    }
}
