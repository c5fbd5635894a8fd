//! The page, as a visitor uses it.

use std::fs;
use std::path::PathBuf;

use crate::browser::Browser;
use crate::server::Catalog;

/// With all that is installed, as a newcomer starts it.
#[tokio::test]
async fn the_page_plays_the_story() {
    let catalog = Catalog::start_in(&[], &[]);
    let page = Browser::open(catalog.url()).await;
    page.until("document.getElementById('processes-state').textContent === '3 instances'").await;
    the_buttons_are_to_be_seen_without_scrolling(&page).await;
    plays_the_story(&page).await;
    for (scene, way, least, most) in [
        ("race", "moka", 3.0, 30.0),
        ("race", "protected", 0.0, 0.0),
        ("broken", "unprotected", 100.0, 2_000.0),
        ("broken", "moka", 20.0, 2_000.0),
        ("broken", "protected", 0.0, 0.0),
        ("stopped", "unprotected", 100.0, 2_000.0),
        ("sql", "moka", 3.0, 30.0),
        ("sql", "protected", 0.0, 1.0),
    ] {
        let (value, words) = result(&page, &format!("story-{scene}-{way}")).await;
        assert!((least..=most).contains(&value), "{scene} {way}: {words}");
    }
    let errors = result(&page, "story-stopped-protected").await.1;
    assert!(!errors.contains("error"), "{errors}");
    page.fit(1_180, 900).await;
    let picture = page.picture_of("result").await;
    fs::write(target().join("catalog-story.png"), picture).expect("a place for pictures");
    press(&page, "sql").await;
    assert!(result(&page, "sql-moka").await.0 > 3.0);
    assert_eq!(page.console().await, Vec::<String>::new());
    page.close().await;
}

#[tokio::test]
async fn the_page_shows_what_every_button_does_to_three_processes() {
    let catalog = Catalog::start(&[]);
    let page = Browser::open(catalog.url()).await;
    page.until("document.getElementById('protected-queries').textContent !== '–'").await;
    page.until("document.getElementById('processes-state').textContent === '3 instances'").await;
    page.until("document.getElementById('moka-each').textContent.split(' + ').length === 3").await;
    the_buttons_are_to_be_seen_without_scrolling(&page).await;
    a_burst_is_a_thousand_queries_or_three_or_one(&page).await;
    a_change_during_a_load_is_missed_by_one_cache_only(&page).await;
    a_slow_database_is_felt_on_one_side_only(&page).await;
    without_the_store_answers_go_on(&page).await;
    a_broken_database_is_bridged_by_stale_answers(&page).await;
    a_burst_is_a_thousand_queries_or_three_or_one(&page).await;
    the_totals_agree(&page).await;
    pictures(&page).await;
    assert_eq!(page.console().await, Vec::<String>::new());
    page.close().await;
}

#[tokio::test]
async fn the_page_of_one_process_says_why_there_is_no_other() {
    let catalog = Catalog::start(&["--store", "memory"]);
    let page = Browser::open(catalog.url()).await;
    page.until("!document.getElementById('alone').hidden").await;
    for (button, is_disabled) in [("stopped", true), ("sql", true), ("story", false)] {
        let disabled = page.value(&format!("document.getElementById('{button}').disabled")).await;
        assert_eq!(disabled, is_disabled, "{button}");
    }
    press(&page, "burst").await;
    assert_eq!(result(&page, "burst-protected").await, (1.0, "1 query".to_owned()));
    page.close().await;
}

async fn plays_the_story(page: &Browser) {
    page.click("story").await;
    page.until("document.querySelectorAll('[data-state=\"done\"]').length === 4").await;
    page.until("!document.getElementById('story').disabled").await;
}

async fn the_buttons_are_to_be_seen_without_scrolling(page: &Browser) {
    page.fit(1280, 800).await;
    let bottom = "document.getElementById('burst').getBoundingClientRect().bottom";
    assert!(page.value(bottom).await.as_f64().is_some_and(|bottom| bottom < 800.0));
}

async fn press(page: &Browser, button: &str) {
    page.click(button).await;
    page.until(&format!("document.getElementById('{button}-protected')")).await;
    page.until(&format!("!document.getElementById('{button}').disabled")).await;
}

/// A figure of the last result, and its words.
async fn result(page: &Browser, id: &str) -> (f64, String) {
    let element = format!("document.getElementById('{id}')");
    let value = page.value(&format!("Number({element}.dataset.value)")).await;
    let words = page.value(&format!("{element}.textContent")).await;
    (value.as_f64().expect(id), words.as_str().expect(id).to_owned())
}

async fn a_burst_is_a_thousand_queries_or_three_or_one(page: &Browser) {
    press(page, "burst").await;
    let fleet = result(page, "burst-unprotected").await;
    assert_eq!(fleet, (1_000.0, "1,000 queries (334 + 333 + 333)".to_owned()));
    let fleet = result(page, "burst-moka").await;
    assert_eq!(fleet, (3.0, "3 queries (1 + 1 + 1)".to_owned()));
    let (queries, words) = result(page, "burst-protected").await;
    assert_eq!((queries, words.split(" (").next()), (1.0, Some("1 query")));
    let errors = "document.getElementById('result').textContent.match(/no errors/g).length";
    assert_eq!(page.value(errors).await, 3);
    // Callers during that load waited for it; later callers found its answer.
    page.until("document.getElementById('collapsed-total').textContent.replace(',', '') > 0").await;
}

async fn a_change_during_a_load_is_missed_by_one_cache_only(page: &Browser) {
    press(page, "race").await;
    for side in ["unprotected", "protected"] {
        assert_eq!(result(page, &format!("race-{side}")).await, (0.0, "0 s".to_owned()), "{side}");
    }
    let (seconds, words) = result(page, "race-moka").await;
    assert!(seconds > 3.0, "{words}");
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
    let state = page.value("document.getElementById('store-state').textContent").await;
    assert_eq!(state, "store: Redis, stopped");
    assert!(page.number("protected-answers").await > 30.0);
    assert_eq!(page.number("protected-errors").await, 0.0);
    switch(page, "stopped", false).await;
    page.until("document.getElementById('store-state').textContent === 'store: Redis'").await;
    // What it held is gone. After ten seconds with it, all that visitors ask for is there again.
    page.until("document.getElementById('bypass-rate').textContent === '0'").await;
}

async fn switch(page: &Browser, id: &str, is_on: bool) {
    page.click(id).await;
    page.until(&format!(
        "document.getElementById('{id}').getAttribute('aria-pressed') === '{is_on}'"
    ))
    .await;
}

/// The queries of bellwether's column are those that are listed by what they were for.
async fn the_totals_agree(page: &Browser) {
    assert!(page.number("stale-queries").await > 0.0);
    page.until(
        "document.getElementById('all-queries').textContent \
         === document.getElementById('protected-queries').textContent",
    )
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
