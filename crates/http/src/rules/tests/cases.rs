//! Whether a stored response answers a request a moment later, by its status. The rest is in `http-cache-tests`.

use http::StatusCode;

use super::super::{Defaults, Storing, storing};
use super::samples::{at_once, headers, read};

fn is_reused(status: u16, response: &'static str) -> bool {
    let status = StatusCode::from_u16(status).expect("a status");
    let response = read(response);
    let defaults = Defaults { follows_cdn: true, ..Defaults::default() };
    let storing = storing(&headers(&[]), status, &response, at_once(), &defaults);
    matches!(storing, Storing::Keep(terms) if !terms.freshness().is_zero())
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
