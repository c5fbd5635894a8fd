//! The attribute form: functions that are read through a cache.

mod catalog;
mod entries;
mod keys;
mod places;
mod status;

use std::future::Future;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bellwether::{Cache, CacheErrorKind, CacheKey, Error, Key, MemoryStore, Tag, read_through};
use catalog::{Catalog, Item, Missing, Sku, item};
use futures_util::future::join_all;

#[read_through(
    cache = catalog.items,
    skip(catalog),
    tags = [Tag::of("catalog"), Tag::of("warehouse").with(warehouse)],
)]
async fn tagged(catalog: &Catalog, warehouse: &str, sku: u64) -> Result<Item, Missing> {
    catalog.query(warehouse, sku).await
}

#[tokio::test]
async fn an_answer_has_the_tags_of_its_attribute() {
    let catalog = Catalog::new();
    let ask = async || {
        for (warehouse, sku) in [("berlin", 1), ("berlin", 2), ("paris", 1)] {
            tagged(&catalog, warehouse, sku).await.unwrap();
        }
        catalog.queries()
    };
    assert_eq!([ask().await, ask().await], [3, 3]);
    let handle = catalog.items.handle();
    handle.invalidate_tag(&Tag::of("warehouse").with("berlin")).await.unwrap();
    assert_eq!(ask().await, 5);
    handle.invalidate_tag(&Tag::of("catalog")).await.unwrap();
    assert_eq!(ask().await, 8);
}

#[tokio::test]
async fn without_tags_of_its_own_an_answer_has_those_of_the_cache() {
    let mut catalog = Catalog::new();
    catalog.items = catalog.items.tagged([Tag::of("all")]);
    let loads = async || {
        item(&catalog, "berlin", 1).await.unwrap();
        catalog.queries()
    };
    assert_eq!([loads().await, loads().await], [1, 1]);
    catalog.items.handle().invalidate_tag(&Tag::of("all")).await.unwrap();
    assert_eq!(loads().await, 2);
}

#[read_through(
    cache = catalog.items,
    skip(catalog),
    tags = (0..33_u64).map(|number| Tag::of("tag").with(number)),
)]
async fn much_tagged(catalog: &Catalog, warehouse: &str, sku: u64) -> Result<Item, Missing> {
    catalog.query(warehouse, sku).await
}

#[tokio::test]
async fn more_tags_than_an_entry_may_have_are_the_error_of_the_call() {
    let answer = much_tagged(&Catalog::new(), "berlin", 1).await;
    let Err(Error::Cache(error)) = answer else { panic!("{answer:?}") };
    assert_eq!(error.kind(), CacheErrorKind::TooManyTags);
}

#[read_through(cache = catalog.pairs, skip(catalog))]
async fn pair(catalog: &Catalog, left: &str, right: &str) -> Result<Item, Missing> {
    catalog.query(left, right).await
}

#[tokio::test]
async fn arguments_that_read_alike_when_joined_are_different_keys() {
    let catalog = Catalog::new();
    let one = pair(&catalog, "a", "b/c").await.unwrap();
    let other = pair(&catalog, "a/b", "c").await.unwrap();
    assert_ne!(one, other);
    assert_eq!(catalog.queries(), 2);
}

#[tokio::test]
async fn every_argument_of_the_key_distinguishes_answers() {
    let catalog = Catalog::new();
    let asked = [("berlin", 1), ("berlin", 2), ("paris", 1)];
    for (warehouse, sku) in asked {
        let given = item(&catalog, warehouse, sku).await.unwrap();
        assert_eq!(given, Item::named(format!("{warehouse} {sku}")));
    }
    assert_eq!(catalog.queries(), 3);
}

#[tokio::test]
async fn the_key_is_what_the_cache_makes_of_the_arguments() {
    let catalog = Catalog::new();
    assert_eq!(catalog.items.key(("berlin", 42)), Key::of("item").with("berlin").with(42));
    item(&catalog, "berlin", 42).await.unwrap();
    assert!(catalog.items.invalidate(("berlin", 42)).await.unwrap());
    item(&catalog, "berlin", 42).await.unwrap();
    assert_eq!(catalog.queries(), 2);
}

/// It reads the cache of `item`, on purpose: a cache knows values by their keys. It owns its arguments.
#[read_through(cache = catalog.items, skip(catalog))]
async fn item_by_another_name(
    catalog: Catalog,
    place: String,
    number: u64,
) -> Result<Item, Missing> {
    catalog.query(&place, number).await
}

#[tokio::test]
async fn two_functions_with_one_cache_have_one_answer() {
    let catalog = Catalog::new();
    item(&catalog, "berlin", 42).await.unwrap();
    let given = item_by_another_name(catalog.clone(), "berlin".to_owned(), 42).await;
    assert_eq!(given.unwrap(), Item::named("berlin 42"));
    assert_eq!(catalog.queries(), 1);
}

impl Catalog {
    /// A method may read through a field of its own.
    #[read_through(cache = self.stock, skip(self))]
    async fn stock(&self, sku: Sku, mut strict: bool) -> Result<Item, Missing> {
        strict = !strict;
        self.query(sku.0, strict).await
    }

    #[read_through(cache = self.names, key = self.without)]
    async fn absent(self: Arc<Self>) -> Result<Item, Missing> {
        self.query("absent", "").await
    }
}

#[tokio::test]
async fn a_method_is_read_through_what_it_belongs_to() {
    let catalog = Catalog::new();
    let answers = join_all((0..50).map(|_| catalog.stock(Sku(7), true))).await;
    assert!(answers.into_iter().all(|given| given.unwrap() == Item::named("7 false")));
    assert_eq!(catalog.queries(), 1);
    catalog.stock(Sku(7), false).await.unwrap();
    assert_eq!(catalog.queries(), 2);
    assert!(catalog.stock.invalidate((Sku(7), false)).await.unwrap());
}

#[tokio::test]
async fn self_may_be_shared_and_may_be_in_the_key() {
    let catalog = Arc::new(Catalog::new());
    for _ in 0..2 {
        Arc::clone(&catalog).absent().await.unwrap();
    }
    assert_eq!(catalog.queries(), 1);
    assert!(catalog.names.invalidate("atlantis").await.unwrap());
}

/// A field of an argument, and a call.
#[read_through(cache = catalog.pairs, key = (&place.hall, place.shelf()), skip(catalog))]
async fn at(catalog: &Catalog, place: Place) -> Result<Item, Missing> {
    catalog.query(place.hall, "").await
}

#[derive(Clone)]
struct Place {
    hall: String,
    shelf: &'static str,
}

impl Place {
    fn shelf(&self) -> &str {
        self.shelf
    }
}

#[tokio::test]
async fn a_key_may_be_made_of_parts_of_an_argument() {
    let catalog = Catalog::new();
    let place = |shelf| Place { hall: "east".to_owned(), shelf };
    for shelf in ["a", "b", "a"] {
        at(&catalog, place(shelf)).await.unwrap();
    }
    assert_eq!(catalog.queries(), 2);
    assert!(catalog.pairs.get(("east".to_owned(), "b")).await.unwrap().is_some());
}

/// Types of `Result` by other names say their error elsewhere.
#[read_through(cache = _items, skip(catalog, _items))]
async fn generic<P>(catalog: &Catalog, _items: &Cache<P, Item>, part: &P) -> std::io::Result<Item>
where
    P: CacheKey + ToString + Clone + Send + Sync + 'static,
{
    catalog.query("generic", part.to_string()).await.map_err(|_| std::io::Error::other("missing"))
}

#[tokio::test]
async fn a_function_may_be_generic_over_the_type_of_its_key() {
    let catalog = Catalog::new();
    generic(&catalog, &catalog.names, &"1".to_owned()).await.unwrap();
    let numbers = Cache::builder("number", MemoryStore::new(10)).coalesce_only().build().unwrap();
    generic(&catalog, &numbers, &1).await.unwrap();
    assert_eq!(catalog.queries(), 2);
}

#[test]
fn the_future_can_be_spawned() {
    fn can_be_spawned<F: Future + Send>(_: F) {}
    can_be_spawned(item(&Catalog::new(), "berlin", 42));
}

#[tokio::test]
async fn a_cache_can_be_static_and_have_one_value() {
    static ANSWER: LazyLock<Cache<(), u64>> = LazyLock::new(|| {
        let builder = Cache::builder("answer", MemoryStore::new(10));
        builder.ttl(Duration::from_secs(1)).build().unwrap()
    });

    #[read_through(cache = ANSWER)]
    async fn answer() -> Result<u64, Missing> {
        Ok(42)
    }
    assert_eq!(answer().await.unwrap(), 42);
    assert_eq!(ANSWER.get(()).await.unwrap(), Some(42));
}
