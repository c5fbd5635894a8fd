//! What the attribute refuses, and what it says.

#[test]
fn what_makes_no_sense_is_refused_where_it_stands() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
}
