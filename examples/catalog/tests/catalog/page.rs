//! The page, as a visitor uses it.

use std::fs;
use std::path::PathBuf;

use crate::browser::Browser;
use crate::server::Catalog;

#[tokio::test]
async fn the_page_shows_what_every_button_does() {
    let catalog = Catalog::start(&[]);
    let page = Browser::open(catalog.url()).await;
    page.until("document.getElementById('protected-queries').textContent !== '–'").await;
    the_burst_is_to_be_seen_without_scrolling(&page).await;
    a_burst_is_a_thousand_queries_or_one(&page).await;
    an_invalidation_costs_one_query(&page).await;
    a_slow_database_is_felt_on_one_side_only(&page).await;
    // This one first: what has failed is known for some seconds, with nothing stale to bridge them.
    without_the_store_answers_go_on(&page).await;
    a_broken_database_is_bridged_by_stale_answers(&page).await;
    a_burst_is_a_thousand_queries_or_one(&page).await;
    pictures(&page).await;
    assert_eq!(page.console().await, Vec::<String>::new());
    page.close().await;
}

async fn the_burst_is_to_be_seen_without_scrolling(page: &Browser) {
    page.fit(1280, 800).await;
    let bottom = "document.getElementById('burst').getBoundingClientRect().bottom";
    assert!(page.value(bottom).await.as_f64().is_some_and(|bottom| bottom < 800.0));
}

async fn a_burst_is_a_thousand_queries_or_one(page: &Browser) {
    page.click("burst").await;
    page.until("document.getElementById('burst-protected-queries')").await;
    page.until("!document.getElementById('burst').disabled").await;
    for (side, queries) in [("unprotected", "1000"), ("protected", "1")] {
        let figures = format!("{{...document.getElementById('burst-{side}-queries').dataset}}");
        let figures = page.value(&figures).await;
        assert_eq!(
            (&figures["queries"], &figures["errors"]),
            (&queries.into(), &"0".into()),
            "{side}"
        );
    }
    // Without shared loads, callers that miss together query together.
    let queries = "Number(document.getElementById('burst-plain-queries').dataset.queries)";
    assert!(page.value(queries).await.as_f64().is_some_and(|queries| queries > 1.0));
    // Callers during that load waited for it; later callers found its answer.
    page.until("document.getElementById('collapsed-total').textContent.replace(',', '') > 0").await;
}

async fn an_invalidation_costs_one_query(page: &Browser) {
    page.click("invalidate").await;
    page.until("document.getElementById('invalidate-second')").await;
    let text = async |id| page.value(&format!("document.getElementById('{id}').textContent")).await;
    assert_eq!(text("invalidate-first").await, "1 query");
    assert_eq!(text("invalidate-second").await, "0 queries");
}

async fn a_slow_database_is_felt_on_one_side_only(page: &Browser) {
    switch(page, "slow", true).await;
    page.until("document.getElementById('database-state').textContent === 'database: slow'").await;
    page.until("document.getElementById('unprotected-queued').textContent > 50").await;
    assert!(page.number("protected-answers").await > 30.0);
    assert_eq!(page.number("protected-errors").await, 0.0);
    switch(page, "slow", false).await;
    page.until("document.getElementById('unprotected-queued').textContent < 5").await;
}

async fn a_broken_database_is_bridged_by_stale_answers(page: &Browser) {
    let stale = page.number("stale-total").await;
    switch(page, "broken", true).await;
    page.until("document.getElementById('unprotected-errors').textContent > 100").await;
    let more = stale + 100.0;
    page.until(&format!(
        "document.getElementById('stale-total').textContent.replace(',', '') > {more}"
    ))
    .await;
    assert_eq!(page.number("protected-errors").await, 0.0);
    assert_eq!(page.number("failed-total").await, 0.0);
    assert!(page.number("protected-answers").await > 30.0);
    switch(page, "broken", false).await;
    page.until("document.getElementById('database-state').textContent === 'database: up'").await;
}

async fn without_the_store_answers_go_on(page: &Browser) {
    switch(page, "stopped", true).await;
    page.until("document.getElementById('bypass-total').textContent.replace(',', '') > 50").await;
    assert!(
        page.value("document.getElementById('store').textContent")
            .await
            .to_string()
            .contains("stopped")
    );
    assert!(page.number("protected-answers").await > 30.0);
    assert_eq!(page.number("protected-errors").await, 0.0);
    switch(page, "stopped", false).await;
    page.until("document.getElementById('store-state').textContent.endsWith('up')").await;
}

async fn switch(page: &Browser, id: &str, is_on: bool) {
    page.click(id).await;
    page.until(&format!(
        "document.getElementById('{id}').getAttribute('aria-pressed') === '{is_on}'"
    ))
    .await;
}

/// For people to look at; and nothing sticks out at the side of a phone.
async fn pictures(page: &Browser) {
    let looks = [
        ("catalog.png", 1280, "light"),
        ("catalog-dark.png", 1280, "dark"),
        ("catalog-phone.png", 390, "light"),
        ("catalog-phone-dark.png", 390, "dark"),
    ];
    for (name, width, scheme) in looks {
        page.resize(width, scheme).await;
        let widest = page.value("document.documentElement.scrollWidth").await;
        assert_eq!(widest, width, "{name}");
        let picture = page.picture().await;
        assert_eq!(picture[..8], *b"\x89PNG\r\n\x1a\n", "{name}");
        assert_eq!(picture[16..20], width.to_be_bytes(), "{name}");
        assert!(picture.len() > 40_000, "{name} has only {} bytes", picture.len());
        fs::write(target().join(name), picture).expect("a place for pictures");
    }
}

/// The folder of all that is built.
fn target() -> PathBuf {
    let this = std::env::current_exe().expect("the path of this binary");
    this.ancestors().nth(3).expect("a target folder").to_owned()
}
