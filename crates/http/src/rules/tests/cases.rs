//! The cases of `http-cache-tests` that depend on these rules alone, and some of our own: whether a
//! stored response answers a request a moment later.

use std::time::Duration;

use http::StatusCode;

use super::super::{Defaults, Storing, storing};
use super::samples::{at_once, headers, read};

/// How long the tests of that suite pause.
const PAUSE: Duration = Duration::from_secs(3);

/// Responses that answer a second request after the pause.
const REUSED: &[&str] = &[
    "cache-control: max-age=3600",
    "cache-control: max-age=2147483647",
    "cache-control: max-age=2147483649",
    "cache-control: max-age=99999999999",
    "cache-control: max-age=99999999999999999999999999999",
    "cache-control: foobar, max-age=3600",
    "cache-control: MaX-aGe=3600",
    "cache-control: max-age=003600",
    "cache-control: max-age=\"3600\"",
    "cache-control: s-maxage=3600",
    "cache-control: max-age=1, s-maxage=3600",
    "cache-control: max-age=10000, must-revalidate\netag: \"abcd\"",
    "cache-control: no-cache=\"a\"\na: 1\ncache-control: max-age=3600",
    "cache-control: max-age=3600\nexpires: {-7200}\ndate: {0}",
    "cache-control: max-age=3600\nexpires: 0\ndate: {0}",
    "expires: {-10}\ncache-control: max-age=0, s-maxage=3600",
    "expires: {2592000}\ndate: {0}",
    "date: foo\nexpires: {10}",
    "expires: Thursday, 18-Aug-50 02:01:18 GMT\ndate: {0}",
    "expires: Thu Aug 18 02:01:18 2050\ndate: {0}",
    // The weekday is wrong, and the date is valid.
    "expires: Thu Aug  8 02:01:18 2050\ndate: {0}",
    "expires: thu, 18 aug 2050 02:01:18 gmt\ndate: {0}",
    "cache-control: max-age=3600\nage: 1800\ndate: {0}",
    "cache-control: max-age=3600\nage: 0, 0\ndate: {0}",
    "cache-control: max-age=3600\nage: 0\nage: 0\ndate: {0}",
    "cache-control: max-age=3600\nage: 0,7200\ndate: {0}",
    "cache-control: max-age=3600\nage: 0\nage: 7200\ndate: {0}",
    "cache-control: max-age=10000\nage: 3600, 3600\ndate: {0}",
    // An age that is not a number of seconds is ignored.
    "cache-control: max-age=3600\nage: abc\ndate: {0}",
    "cache-control: max-age=3600\nage: -7200\ndate: {0}",
    "cache-control: max-age=3600\nage: +1\ndate: {0}",
    "cache-control: max-age=3600\nage: 7200.0\ndate: {0}",
    "cache-control: max-age=3600\nage: 7200;foo=111\ndate: {0}",
    "cache-control: max-age=3600\nage: abc, 7200\ndate: {0}",
    "cache-control: max-age=3600\npragma: no-cache",
    "last-modified: {-86400}\ndate: {0}",
    "cache-control: max-age=3600\nset-cookie2: a=b",
    "cache-control: max-age=3600\ncontent-range: nonsense",
    // RFC 9213: only the targeted field counts, except that a prohibition in either field holds.
    "cdn-cache-control: max-age=3600",
    "cdn-cache-control: max-age=3600;foo=bar\ncache-control: no-cache",
    "cdn-cache-control: max-age=3600\nexpires: {-10}\ndate: {0}",
    "cdn-cache-control: max-age=3600, no-store=?0",
    "cdn-cache-control: foo, max-age=3600\ncache-control: max-age=0",
    "cdn-cache-control: MaX-aGe=0\ncache-control: max-age=3600",
    "cdn-cache-control: max-age =0\ncache-control: max-age=3600",
    "cdn-cache-control:\ncache-control: max-age=3600",
];

/// Responses that do not answer a second request.
const NOT_REUSED: &[&str] = &[
    "",
    "etag: \"abcd\"",
    "cache-control: max-age=0",
    "cache-control: max-age=-3600",
    "cache-control: max-age='3600'",
    "cache-control: max-age",
    "cache-control: max-age =3600",
    "cache-control: max-age= 3600",
    "cache-control: max-age=a3600",
    "cache-control: max-age=3600.0",
    "cache-control: extension=\"max-age=3600\", max-age=1",
    "cache-control: max-age=1, extension=\"max-age=3600\"",
    "cache-control: extension=\"max-age=3600\", max-age=\"1\"",
    "cache-control: max-age=3600, s-maxage=1",
    "cache-control: s-maxage=1, max-age=3600",
    "cache-control: max-age=3600\ncache-control: s-maxage=1",
    "cache-control: max-age=1, max-age=3600",
    "cache-control: max-age=3600\ncache-control: max-age=1",
    "cache-control: max-age=3600\nage: 7200\ndate: {0}",
    "cache-control: max-age=3600\ndate: {-7200}",
    "expires: {3600}\ncache-control: max-age=0\ndate: {0}",
    "expires: {-2592000}\ndate: {0}",
    "expires: {0}\ndate: {0}",
    "expires: {300}\ndate: {400}",
    "expires: 0\ndate: {0}",
    "expires: {3600}\nexpires: 0\ndate: {0}",
    "date: {-10}\nexpires: {10}\nage: 25",
    "date: {10}\nexpires: {20}\nage: 15",
    "cache-control: private, max-age=3600",
    "cache-control: no-store",
    "cache-control: No-StOrE, max-age=3600",
    "cache-control: max-age=10000, no-store\nexpires: {10000}\ndate: {0}",
    "cache-control: max-age=10000, no-cache\nexpires: {10000}\ndate: {0}",
    "cache-control: max-age=10000, No-CaChE\netag: \"abcd\"",
    "cache-control: max-age=3600, no-cache=\"\"\netag: \"abcd\"",
    "cache-control: max-age=3600, no-cache=\"a b\"\netag: \"abcd\"",
    "cache-control: foo=\"bar, no-store\ncache-control: max-age=3600",
    "cache-control: max-age=3600\nset-cookie: a=b",
    "cache-control: max-age=3600\ncontent-range: Bytes 0-4/10",
    // The first of several ages counts.
    "date: {0}\ncache-control: max-age=3600\nage: 7200,0",
    "date: {0}\ncache-control: max-age=3600\nage: 7200\nage: 0",
    "date: {0}\ncache-control: max-age=3600\nage: 3600, 3600",
    "date: {0}\ncache-control: max-age=3600\nage: 7200, abc",
    "date: {0}\ncache-control: max-age=3600\nage: 99999999999999999999",
    // A two-digit year is at most 50 years ahead.
    "expires: Thursday, 18-Aug-99 02:01:18 GMT\ndate: {0}",
    "expires: Thu Aug 18 02:01:18 1994\ndate: {0}",
    "cdn-cache-control: no-store\ncache-control: max-age=3600",
    "cdn-cache-control: private\ncache-control: max-age=3600",
    "cdn-cache-control: max-age=3600, no-cache\ncache-control: max-age=3600",
    "cdn-cache-control: max-age=1\ncache-control: max-age=3600",
    "cdn-cache-control: max-age=\"3600\"\ncache-control: max-age=3600",
    "cdn-cache-control: max-age=3600.0\ncache-control: max-age=3600",
    "cdn-cache-control: max-age=-1\ncache-control: max-age=3600",
    "cdn-cache-control: max-age=3600\nage: 7200\ndate: {0}",
    "cdn-cache-control: max-age=3600;\ncache-control: max-age=0",
    "cdn-cache-control: max-age=3600\ncache-control: no-store",
    "cdn-cache-control: max-age=3600\ncache-control: private",
    // `must-understand` cancels `no-store` in its own field only.
    "cdn-cache-control: max-age=3600, must-understand\ncache-control: no-store",
    "cdn-cache-control: no-store, max-age=3600\ncache-control: must-understand",
];

fn is_reused(status: u16, response: &'static str) -> bool {
    let status = StatusCode::from_u16(status).expect("a status");
    let response = read(response);
    let defaults = Defaults { follows_cdn: true, ..Defaults::default() };
    let storing = storing(&headers(&[]), status, &response, at_once(), &defaults);
    matches!(storing, Storing::Keep(terms) if terms.freshness() > PAUSE)
}

#[test]
fn what_is_fresh_is_reused() {
    let wrong: Vec<_> = REUSED.iter().filter(|response| !is_reused(200, response)).collect();
    assert!(wrong.is_empty(), "not reused: {wrong:#?}");
}

#[test]
fn what_is_stale_or_forbidden_is_not_reused() {
    let wrong: Vec<_> = NOT_REUSED.iter().filter(|response| is_reused(200, response)).collect();
    assert!(wrong.is_empty(), "reused: {wrong:#?}");
}

#[test]
fn any_final_status_is_reused_if_it_says_for_how_long() {
    let statuses =
        [200, 203, 204, 299, 301, 302, 303, 307, 308, 400, 404, 410, 499, 500, 502, 503, 504, 599];
    for status in statuses {
        assert!(is_reused(status, "expires: {100000}\ndate: {0}"), "{status}");
        assert!(!is_reused(status, "expires: {-5000}\ndate: {0}"), "{status}");
    }
}

#[test]
fn no_part_and_no_answer_to_a_condition_is_reused() {
    for status in [100, 103, 206, 304, 412, 416, 428, 429, 431, 511] {
        assert!(!is_reused(status, "cache-control: max-age=3600"), "{status}");
    }
}

#[test]
fn a_guess_is_made_for_statuses_that_are_cacheable_by_default() {
    const UNCHANGED: &str = "last-modified: {-86400}\ndate: {0}";
    for status in [200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501] {
        assert!(is_reused(status, UNCHANGED), "{status}");
    }
    for status in [201, 202, 302, 403, 500, 502, 503, 504, 599] {
        assert!(!is_reused(status, UNCHANGED), "{status}");
    }
    assert!(is_reused(599, "last-modified: {-86400}\ndate: {0}\ncache-control: public"));
}

#[test]
fn a_must_understand_response_is_stored_if_its_status_is_understood() {
    assert!(!is_reused(599, "cache-control: max-age=3600, must-understand"));
    assert!(!is_reused(206, "cache-control: max-age=3600, must-understand, no-store"));
    assert!(is_reused(200, "cache-control: max-age=3600, must-understand, no-store"));
    assert!(!is_reused(200, "cache-control: max-age=3600, must-understand, private"));
}
