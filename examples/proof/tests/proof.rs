//! The program runs, ends, and leaves a report; and it finds a violation that was planted.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// A short session on one server.
fn run(state: &Path, options: &[&str]) -> Output {
    let state = state.to_str().expect("a path of letters");
    Command::new(env!("CARGO_BIN_EXE_proof"))
        .args(["--minutes", "0.08", "--servers", "single", "--workers", "2", "--near-rate", "4000"])
        .args(["--seed", "7", "--commit", "tested", "--state", state])
        .args(options)
        .output()
        .expect("the program starts")
}

/// The number of violations of a promise, and of its checks.
fn verdict(state: &Path, promise: &str) -> (u64, u64) {
    let text = fs::read_to_string(state.join("report.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let promises = report["promises"].as_array().expect("promises");
    let found = promises.iter().find(|row| row["promise"] == promise).expect("this promise");
    let number = |name: &str| found[name].as_u64().expect("a number");
    (number("violated"), number("checked"))
}

/// After how many invalidations a store without near copies gave an old answer, and of how many. None if
/// none was timed.
fn late_in_redis(state: &Path) -> Option<(u64, u64)> {
    let text = fs::read_to_string(state.join("report.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let pairs = &report["tally"]["times"]["last old answer: Redis, no fault"];
    let pairs: Vec<(u64, u64)> = serde_json::from_value(pairs.clone()).ok()?;
    let times = |is_late: bool| {
        pairs.iter().filter(|(micros, _)| is_late == (*micros > 0)).map(|(_, times)| times).sum()
    };
    Some((times(true), times(true) + times(false)))
}

#[test]
fn a_session_checks_all_promises_and_adds_up() {
    let state = tempfile::tempdir().expect("a directory");
    // On a machine that is too busy, a session of seconds times no invalidation.
    let mut is_timed = false;
    for sessions in 1..=6 {
        if sessions > 2 && is_timed {
            break;
        }
        let output = run(state.path(), &["--calm"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let page = fs::read_to_string(state.path().join("report.html")).expect("a page");
        assert_eq!(page.matches("<code>tested</code>").count(), sessions);
        assert!(!page.contains(env!("CARGO_MANIFEST_DIR")), "a path of this machine");
        is_timed = page.contains("near copies, invalidated by another process, no fault")
            && late_in_redis(state.path()).is_some();
    }
    assert!(is_timed, "no invalidation was timed");
    let (late, of) = late_in_redis(state.path()).expect("pairs");
    assert!(late == 0 && of > 0, "{late} of {of}");
    for promise in ["Invalidation", "NearCopy", "Stale", "Value", "Wait", "OneLoad"] {
        let (violated, checked) = verdict(state.path(), promise);
        assert_eq!(violated, 0, "{promise}");
        // A burst on a machine that is too busy is none.
        assert!(checked > 0 || promise == "OneLoad", "{promise} was never checked");
    }
}

#[test]
fn an_invalidation_that_is_left_out_is_found() {
    let state = tempfile::tempdir().expect("a directory");
    let output = run(state.path(), &["--calm", "--plant", "stale"]);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    let (violated, checked) = verdict(state.path(), "Invalidation");
    assert!(0 < violated && violated < checked, "{violated} of {checked}");
    let (late, of) = late_in_redis(state.path()).expect("pairs");
    assert!(0 < late && late <= of, "{late} of {of}");
    let recorded = fs::read_to_string(state.path().join("violations.jsonl")).expect("a record");
    assert!(recorded.lines().next().is_some_and(|line| line.contains("load reads")), "{recorded}");
}
