//! The functions for keys, tags and entries.

use std::time::Duration;

use bellwether::{CacheStatus, EntryHandle, Key, Tag, read_through};

use crate::catalog::{Catalog, Item, Missing, Sku};

#[read_through(
    layer = catalog.layer,
    key = "part/{warehouse}/{sku}",
    skip(catalog, hint),
    ttl = "60s",
    stale_while_revalidate = "1h",
    tags = ["parts", "hall/{warehouse}" as hall_tag],
    entry_fn = part_entry,
    key_fn = part_key,
)]
async fn part(
    catalog: &Catalog,
    hint: &str,
    warehouse: &str,
    mut sku: u64,
) -> Result<Item, Missing> {
    sku += u64::try_from(hint.len()).unwrap_or_default();
    catalog.query(warehouse, sku).await
}

#[tokio::test]
async fn an_entry_is_that_of_the_call_with_the_same_arguments() {
    let catalog = Catalog::new();
    let entry: EntryHandle<Item> = part_entry(&catalog, "berlin", 42);
    assert_eq!(entry.get().await.unwrap(), None);
    part(&catalog, "", "berlin", 42).await.unwrap();
    assert_eq!(entry.get().await.unwrap(), Some(Item::named("berlin 42")));
    assert_eq!(part_entry(&catalog, "berlin", 43).get().await.unwrap(), None);
    assert_eq!(*entry.key(), Key::of("part").with("berlin").with(42));
    assert_eq!(*entry.key(), part_key("berlin", 42));
}

#[tokio::test]
async fn an_entry_that_is_invalidated_is_loaded_again() {
    let catalog = Catalog::new();
    let entry = part_entry(&catalog, "berlin", 42);
    assert!(!entry.invalidate().await.unwrap());
    part(&catalog, "", "berlin", 42).await.unwrap();
    assert!(entry.invalidate().await.unwrap());
    part(&catalog, "", "berlin", 42).await.unwrap();
    assert_eq!(catalog.queries(), 2);
}

#[tokio::test]
async fn an_entry_that_is_expired_is_served_while_it_is_loaded_again() {
    let catalog = Catalog::new();
    part(&catalog, "", "berlin", 42).await.unwrap();
    assert!(part_entry(&catalog, "berlin", 42).expire().await.unwrap());
    let (answer, status) = part(&catalog, "", "berlin", 42).with_status().await;
    assert_eq!(answer.unwrap(), Item::named("berlin 42"));
    assert!(matches!(status, CacheStatus::Stale { .. }), "{status}");
}

/// Entries of calls with these arguments.
fn part_keys(catalog: &Catalog, calls: &[(&str, u64)]) -> Vec<Key> {
    let key = |(warehouse, sku): &(&str, u64)| part_entry(catalog, warehouse, *sku).key().clone();
    calls.iter().map(key).collect()
}

#[tokio::test]
async fn entries_of_many_calls_are_invalidated_and_counted() {
    let catalog = Catalog::new();
    for (warehouse, sku) in [("berlin", 1), ("bonn", 2), ("berlin", 3)] {
        part(&catalog, "", warehouse, sku).await.unwrap();
    }
    let keys = part_keys(&catalog, &[("berlin", 1), ("bonn", 2), ("bonn", 3)]);
    assert_eq!(catalog.layer.handle().invalidate_many(keys).await.unwrap(), 2);
    assert_eq!(part_entry(&catalog, "berlin", 1).get().await.unwrap(), None);
    assert_eq!(part_entry(&catalog, "bonn", 2).get().await.unwrap(), None);
    assert!(part_entry(&catalog, "berlin", 3).get().await.unwrap().is_some());
}

#[tokio::test]
async fn entries_of_many_calls_are_expired_and_served_while_they_are_loaded_again() {
    let catalog = Catalog::new();
    for sku in 1..=2 {
        part(&catalog, "", "berlin", sku).await.unwrap();
    }
    let keys = part_keys(&catalog, &[("berlin", 1), ("berlin", 2), ("berlin", 3)]);
    assert_eq!(catalog.layer.handle().expire_many(keys).await.unwrap(), 2);
    for sku in 1..=2 {
        let (answer, status) = part(&catalog, "", "berlin", sku).with_status().await;
        assert_eq!(answer.unwrap(), Item::named(format!("berlin {sku}")));
        assert!(matches!(status, CacheStatus::Stale { .. }), "{status}");
    }
}

#[tokio::test]
async fn an_entry_that_is_given_twice_counts_once() {
    let catalog = Catalog::new();
    part(&catalog, "", "berlin", 1).await.unwrap();
    let twice = || part_keys(&catalog, &[("berlin", 1), ("berlin", 1)]);
    assert_eq!(catalog.layer.handle().expire_many(twice()).await.unwrap(), 1);
    assert_eq!(catalog.layer.handle().invalidate_many(twice()).await.unwrap(), 1);
}

#[tokio::test]
async fn what_is_put_is_served_without_a_load_and_has_the_tags_of_a_loaded_answer() {
    let catalog = Catalog::new();
    let entry = part_entry(&catalog, "berlin", 42);
    assert!(entry.put(Item::named("written")).await.unwrap());
    let given = part(&catalog, "", "berlin", 42).await.unwrap();
    assert_eq!((given, catalog.queries()), (Item::named("written"), 0));
    catalog.layer.handle().invalidate_tag(&hall_tag("berlin")).await.unwrap();
    assert_eq!(entry.get().await.unwrap(), None);
}

#[test]
fn a_tag_function_makes_the_tag_that_its_template_reads_as() {
    assert_eq!(hall_tag("berlin"), Tag::of("hall").with("berlin"));
}

#[read_through(
    layer = catalog.layer,
    key = "perhaps/{sku}",
    skip(catalog),
    ttl = "60s",
    not_found_ttl = "5s",
    entry_fn = perhaps_entry
)]
async fn perhaps(catalog: &Catalog, sku: u64) -> Result<Option<Item>, Missing> {
    catalog.query("perhaps", sku).await.map(Some)
}

#[tokio::test(start_paused = true)]
async fn none_that_is_put_stays_for_as_long_as_none_that_is_loaded() {
    let catalog = Catalog::new();
    perhaps_entry(&catalog, 1).put(None).await.unwrap();
    tokio::time::advance(Duration::from_secs(4)).await;
    assert_eq!(perhaps(&catalog, 1).await.unwrap(), None);
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(perhaps(&catalog, 1).await.unwrap(), Some(Item::named("perhaps 1")));
}

impl Catalog {
    #[read_through(
        layer = self.layer,
        key = "shelf/{sku.0}",
        skip(self),
        ttl = "5m",
        tags = ["sku/{sku.0}" as sku_tag],
        entry_fn = shelf_entry,
        key_fn = shelf_key,
    )]
    async fn shelf(&self, sku: Sku) -> Result<Item, Missing> {
        self.query("shelf", sku.0).await
    }
}

#[tokio::test]
async fn the_functions_of_a_method_belong_to_its_type() {
    let catalog = Catalog::new();
    catalog.shelf(Sku(7)).await.unwrap();
    assert!(catalog.shelf_entry(Sku(7)).invalidate().await.unwrap());
    assert_eq!(Catalog::shelf_key(Sku(7)), *catalog.shelf_entry(Sku(7)).key());
    assert_eq!(Catalog::sku_tag(Sku(7)), Tag::of("sku").with(7));
}
