//! Functions that load many answers.

use std::collections::HashMap;
use std::time::Duration;

use bellwether::{CacheErrorKind, CacheStatus, Error, Tag, read_through};
use futures_util::future::join;

use crate::catalog::{Catalog, Item, Missing};

/// There are items up to 99.
#[read_through(
    layer = catalog.layer,
    key = "batched/{warehouse}/{sku}",
    each(sku in skus),
    skip(catalog),
    ttl = "60s",
    tags = ["row/{warehouse}/{sku}" as row_tag],
    entry_fn = batched_entry,
    key_fn = batched_key,
)]
async fn batched(
    catalog: &Catalog,
    warehouse: String,
    skus: Vec<u64>,
) -> Result<HashMap<u64, Item>, Missing> {
    catalog.query(&warehouse, skus.len()).await?;
    let found = skus.into_iter().filter(|sku| *sku < 100);
    Ok(found.map(|sku| (sku, Item::named(format!("{warehouse} {sku}")))).collect())
}

/// The same answers, one by one.
#[read_through(
    layer = catalog.layer,
    key = "batched/{warehouse}/{sku}",
    skip(catalog),
    ttl = "60s",
    tags = ["row/{warehouse}/{sku}"],
)]
async fn one(catalog: &Catalog, warehouse: &str, sku: u64) -> Result<Option<Item>, Missing> {
    catalog.query(warehouse, sku).await.map(Some)
}

async fn ask(catalog: &Catalog, skus: impl Into<Vec<u64>>) -> Vec<Option<Item>> {
    let answers = batched(catalog, "berlin".to_owned(), skus.into()).await;
    answers.into_iter().map(Result::unwrap).collect()
}

fn berlin(sku: u64) -> Option<Item> {
    Some(Item::named(format!("berlin {sku}")))
}

#[tokio::test]
async fn one_call_loads_what_is_missing_and_the_answers_are_in_the_order_of_the_items() {
    let catalog = Catalog::new();
    assert_eq!(ask(&catalog, [7, 4]).await, [berlin(7), berlin(4)]);
    assert_eq!(ask(&catalog, [1, 7, 1_000, 2]).await, [berlin(1), berlin(7), None, berlin(2)]);
    assert_eq!(catalog.queries(), 2);
    assert_eq!(ask(&catalog, []).await, []);
}

#[tokio::test]
async fn each_answer_has_a_status_of_its_own() {
    let catalog = Catalog::new();
    ask(&catalog, [1]).await;
    let answers = batched(&catalog, "berlin".to_owned(), vec![1, 2]).with_status().await;
    let [(_, hit), (_, led)] = &answers[..] else { panic!("{answers:?}") };
    assert!(matches!(hit, CacheStatus::Hit { .. }), "{hit}");
    assert_eq!(*led, CacheStatus::Led { stored: true });
}

#[tokio::test]
async fn a_function_of_one_key_shares_answers_and_loads_with_one_of_many() {
    let catalog = Catalog::new();
    let (many, one_of_them) = join(ask(&catalog, [1, 2]), one(&catalog, "berlin", 2)).await;
    assert_eq!((many, one_of_them.unwrap()), (vec![berlin(1), berlin(2)], berlin(2)));
    assert_eq!(one(&catalog, "berlin", 1).await.unwrap(), berlin(1));
    assert_eq!(catalog.queries(), 1);
}

#[tokio::test]
async fn the_error_of_a_call_is_that_of_each_of_its_items() {
    let catalog = Catalog::without("berlin");
    let answers = batched(&catalog, "berlin".to_owned(), vec![1, 2]).await;
    let [Err(Error::Load(one)), Err(Error::Load(other))] = &answers[..] else {
        panic!("{answers:?}")
    };
    assert!(one.ptr_eq(other));
}

#[tokio::test]
async fn functions_for_keys_tags_and_entries_take_one_item() {
    let catalog = Catalog::new();
    ask(&catalog, [1, 2, 3]).await;
    assert!(batched_entry(&catalog, "berlin".to_owned(), 1).invalidate().await.unwrap());
    let handle = catalog.layer.handle();
    assert!(handle.invalidate(&batched_key("berlin".to_owned(), 2)).await.unwrap());
    ask(&catalog, [1, 2, 3]).await;
    assert_eq!(catalog.queries(), 2);
    handle.invalidate_tag(&row_tag("berlin".to_owned(), 3)).await.unwrap();
    ask(&catalog, [1, 2]).await;
    assert_eq!(catalog.queries(), 2);
    ask(&catalog, [3]).await;
    assert_eq!(catalog.queries(), 3);
}

#[read_through(layer = catalog.layer, key = "plain/{sku}", each(sku in skus), skip(catalog), ttl = "1m")]
async fn plain(catalog: &Catalog, skus: Vec<u64>) -> Result<Vec<Result<Item, Missing>>, Missing> {
    catalog.query("plain", skus.len()).await?;
    Ok(skus.into_iter().map(|sku| Ok(Item::named(sku.to_string()))).collect())
}

#[tokio::test]
async fn without_tags_of_its_own_it_has_those_that_the_layer_gives_a_key() {
    let mut catalog = Catalog::new();
    catalog.layer = catalog.layer.clone().tags(|key| [Tag::of("kind").with(key.kind())]);
    let loads = async || {
        plain(&catalog, vec![1]).await.remove(0).unwrap();
        catalog.queries()
    };
    assert_eq!([loads().await, loads().await], [1, 1]);
    catalog.layer.handle().invalidate_tag(&Tag::of("kind").with("plain")).await.unwrap();
    assert_eq!(loads().await, 2);
}

#[tokio::test]
async fn more_tags_from_the_layer_than_an_entry_may_have_are_the_error_of_the_item() {
    let mut catalog = Catalog::new();
    let tags = |_: &_| (0..33_u64).map(|number| Tag::of("tag").with(number)).collect::<Vec<_>>();
    catalog.layer = catalog.layer.clone().tags(tags);
    let answer = plain(&catalog, vec![1]).await.remove(0);
    let Err(Error::Cache(error)) = answer else { panic!("{answer:?}") };
    assert_eq!(error.kind(), CacheErrorKind::TooManyTags);
}

#[read_through(
    layer = catalog.layer,
    key = "sparse/{sku}",
    each(sku in skus),
    skip(catalog),
    ttl = "60s",
    not_found_ttl = "5s"
)]
async fn sparse(catalog: &Catalog, skus: Vec<u64>) -> Result<HashMap<u64, Item>, Missing> {
    catalog.query("sparse", skus.len()).await?;
    Ok(skus.into_iter().filter(|sku| *sku > 10).map(|sku| (sku, Item::named("it"))).collect())
}

#[tokio::test(start_paused = true)]
async fn an_item_that_the_function_does_not_find_is_kept_for_as_long_as_the_attribute_says() {
    let catalog = Catalog::new();
    let answers = sparse(&catalog, vec![10, 11]).await;
    assert_eq!(answers.iter().filter(|it| matches!(it, Ok(None))).count(), 1);
    for (after, queries) in [(4, 1), (2, 2)] {
        tokio::time::advance(Duration::from_secs(after)).await;
        sparse(&catalog, vec![10, 11]).await;
        assert_eq!(catalog.queries(), queries);
    }
}
