//! What does not compile, and what the compiler says about it.

#[test]
fn what_makes_no_sense_is_refused_where_it_stands() {
    let cases = trybuild::TestCases::new();
    // What the attributes refuse.
    cases.compile_fail("tests/ui/*.rs");
    // What the bounds of the library refuse: values, keys, stores, loaders, requests.
    cases.compile_fail("tests/face/*.rs");
}
