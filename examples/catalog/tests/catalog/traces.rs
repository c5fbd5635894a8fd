//! `--trace`: the way of a request, from the server through the cache to the database.

use crate::server::Catalog;

#[tokio::test]
async fn a_query_is_traced_to_the_request_that_it_answers() {
    let catalog = Catalog::start(&["--trace"]);
    catalog.get("/api/product/4343").await;
    let line = catalog.said(|line| {
        let of_request = line.contains("request{") && line.contains("path=\"/api/product/4343\"");
        (of_request && line.contains("query{")).then(|| line.to_owned())
    });
    // The outer spans are printed first.
    let request = line.find("request{");
    let query = line.find("query{of=\"products\"");
    assert!(request.is_some() && request < query, "{line}");
}
