//! The attribute form: functions that are read through a layer.

#[path = "macros/batches.rs"]
mod batches;
#[path = "macros/catalog.rs"]
mod catalog;
#[path = "macros/entries.rs"]
mod entries;
#[path = "macros/keys.rs"]
mod keys;
#[path = "macros/status.rs"]
mod status;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bellwether::{ByKey, Error, Key, MemoryStore, ReadThroughLayer, Tag, read_through};
use catalog::{Catalog, Item, Missing, Sku};
use futures_util::future::join_all;

#[read_through(
    layer = catalog.layer,
    key = "item/{warehouse}/{sku}",
    skip(catalog),
    ttl = "60s",
    key_fn = item_key
)]
async fn item(catalog: &Catalog, warehouse: &str, sku: u64) -> Result<Item, Missing> {
    catalog.query(warehouse, sku).await
}

#[tokio::test]
async fn fifty_callers_that_miss_together_cause_one_call() {
    let catalog = Catalog::new();
    let answers = join_all((0..50).map(|_| item(&catalog, "berlin", 42))).await;
    let given: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
    assert_eq!(given, vec![Item::named("berlin 42"); 50]);
    assert_eq!(catalog.queries(), 1);
}

#[tokio::test]
async fn what_was_loaded_is_kept_for_its_ttl() {
    let catalog = Catalog::new();
    for _ in 0..3 {
        item(&catalog, "berlin", 42).await.unwrap();
    }
    assert_eq!(catalog.queries(), 1);
}

#[read_through(
    layer = catalog.layer,
    key = "tagged/{warehouse}/{sku}",
    skip(catalog),
    ttl = "60s",
    tags = ["catalog", "warehouse/{warehouse}"]
)]
async fn tagged(catalog: &Catalog, warehouse: &str, sku: u64) -> Result<Item, Missing> {
    catalog.query(warehouse, sku).await
}

#[tokio::test]
async fn a_tag_is_the_one_that_its_template_reads_as() {
    let catalog = Catalog::new();
    let ask = async || {
        for (warehouse, sku) in [("berlin", 1), ("berlin", 2), ("paris", 1)] {
            tagged(&catalog, warehouse, sku).await.unwrap();
        }
        catalog.queries()
    };
    assert_eq!([ask().await, ask().await], [3, 3]);
    let handle = catalog.layer.handle();
    handle.invalidate_tag(&Tag::of("warehouse").with("berlin")).await.unwrap();
    assert_eq!(ask().await, 5);
    handle.invalidate_tag(&Tag::of("catalog")).await.unwrap();
    assert_eq!(ask().await, 8);
}

#[read_through(layer = catalog.layer, key = "pair/{left}/{right}", skip(catalog), ttl = "1m")]
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
async fn the_key_is_the_one_that_the_template_reads_as() {
    let key = Key::of("item").with("berlin").with(42);
    assert_eq!(item_key("berlin", 42), key);
    let catalog = Catalog::new();
    item(&catalog, "berlin", 42).await.unwrap();
    catalog.layer.handle().invalidate(&key).await.unwrap();
    item(&catalog, "berlin", 42).await.unwrap();
    assert_eq!(catalog.queries(), 2);
}

#[tokio::test]
async fn callers_that_share_a_failed_load_share_its_error() {
    let catalog = Catalog::without("berlin");
    let answers = join_all((0..50).map(|_| item(&catalog, "berlin", 42))).await;
    let errors: Vec<_> = answers.into_iter().map(Result::unwrap_err).collect();
    // The first failure is that of its own caller. The others share that of a second load.
    let Error::Load(second) = &errors[1] else { panic!("{:?}", errors[1]) };
    let same = |error: &Error<_>| matches!(error, Error::Load(other) if second.ptr_eq(other));
    assert!(errors[1..].iter().all(same), "{errors:?}");
    assert_eq!(catalog.queries(), 2);
}

/// It reads as `item`, on purpose: a layer knows answers by their keys.
#[read_through(layer = catalog.layer, key = "item/{place}/{number}", skip(catalog), ttl = "60s")]
async fn item_by_another_name(
    catalog: Catalog,
    place: String,
    number: u64,
) -> Result<Item, Missing> {
    catalog.query(&place, number).await
}

#[tokio::test]
async fn two_functions_with_one_key_have_one_answer() {
    let catalog = Catalog::new();
    item(&catalog, "berlin", 42).await.unwrap();
    let given = item_by_another_name(catalog.clone(), "berlin".to_owned(), 42).await;
    assert_eq!(given.unwrap(), Item::named("berlin 42"));
    assert_eq!(catalog.queries(), 1);
}

/// The same key again, of an answer that is no item.
#[read_through(layer = catalog.layer, key = "item/{place}/{number}", skip(catalog), ttl = "60s")]
async fn count(catalog: &Catalog, place: &str, number: u64) -> Result<u64, Missing> {
    catalog.query(place, number).await.map(|_| number)
}

#[tokio::test]
async fn an_answer_of_another_type_is_never_served() {
    let catalog = Catalog::new();
    let (item, count) = tokio::join!(item(&catalog, "berlin", 42), count(&catalog, "berlin", 42));
    assert_eq!(item.unwrap(), Item::named("berlin 42"));
    assert_eq!(count.unwrap(), 42);
    assert_eq!(crate::count(&catalog, "berlin", 42).await.unwrap(), 42);
}

#[tokio::test]
async fn functions_of_two_layers_share_nothing() {
    let one = Catalog::new();
    let other = Catalog::new();
    item(&one, "berlin", 42).await.unwrap();
    item(&other, "berlin", 42).await.unwrap();
    assert_eq!((one.queries(), other.queries()), (1, 1));
}

#[tokio::test]
async fn a_load_outlives_the_call_that_began_it() {
    let catalog = Catalog::new();
    let mut caller = tokio_test::task::spawn(item(&catalog, "berlin", 42));
    assert!(caller.poll().is_pending());
    drop(caller);
    item(&catalog, "berlin", 42).await.unwrap();
    assert_eq!(catalog.queries(), 1);
}

impl Catalog {
    /// A method may read through a field of its own.
    #[read_through(layer = self.layer, key = "stock/{sku.0}/{strict}", skip(self), ttl = "5m")]
    async fn stock(&self, sku: Sku, mut strict: bool) -> Result<Item, Missing> {
        strict = !strict;
        self.query(sku.0, strict).await
    }

    #[read_through(layer = self.layer, key = "name/of/{self.without}", ttl = "1h")]
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
}

#[tokio::test]
async fn self_may_be_shared_and_may_be_in_the_key() {
    let catalog = Arc::new(Catalog::new());
    for _ in 0..2 {
        Arc::clone(&catalog).absent().await.unwrap();
    }
    assert_eq!(catalog.queries(), 1);
}

#[read_through(
    layer = catalog.layer,
    key = "maybe/{sku}",
    skip(catalog),
    ttl = "60s",
    not_found_ttl = "5s",
    stale_while_revalidate = "500ms",
    stale_if_error = "1d",
)]
async fn maybe(catalog: &Catalog, sku: u64) -> Result<Option<Item>, Missing> {
    catalog.query("maybe", sku).await.map(|item| Some(item).filter(|_| sku > 10))
}

#[tokio::test(start_paused = true)]
async fn none_is_kept_for_as_long_as_the_attribute_says_of_it() {
    let catalog = Catalog::new();
    for sku in [10, 11] {
        assert_eq!(maybe(&catalog, sku).await.unwrap().is_some(), sku == 11);
    }
    tokio::time::advance(Duration::from_secs(4)).await;
    maybe(&catalog, 10).await.unwrap();
    assert_eq!(catalog.queries(), 2);
    tokio::time::advance(Duration::from_secs(2)).await;
    maybe(&catalog, 10).await.unwrap();
    maybe(&catalog, 11).await.unwrap();
    assert_eq!(catalog.queries(), 3);
}

/// Types of `Result` by other names say their error elsewhere.
#[read_through(layer = catalog.layer, key = "generic/{part}", skip(catalog), ttl = "60s")]
async fn generic<P>(catalog: &Catalog, part: &P) -> std::io::Result<Item>
where
    P: bellwether::CacheKey + ToString + Clone + Send + Sync + 'static,
{
    catalog.query("generic", part.to_string()).await.map_err(|_| std::io::Error::other("missing"))
}

#[tokio::test]
async fn the_type_of_an_argument_is_part_of_the_key() {
    let catalog = Catalog::new();
    generic(&catalog, &1).await.unwrap();
    generic(&catalog, &"1".to_owned()).await.unwrap();
    assert_eq!(catalog.queries(), 2);
}

#[test]
fn the_future_can_be_spawned() {
    fn can_be_spawned<F: Future + Send>(_: F) {}
    can_be_spawned(item(&Catalog::new(), "berlin", 42));
}

#[tokio::test]
async fn a_layer_can_be_static() {
    static LAYER: std::sync::LazyLock<ReadThroughLayer<ByKey>> =
        std::sync::LazyLock::new(|| ReadThroughLayer::by_key(MemoryStore::new(10)));

    #[read_through(layer = LAYER, key = "answer", ttl = "1s")]
    async fn answer() -> Result<u64, Missing> {
        Ok(42)
    }
    assert_eq!(answer().await.unwrap(), 42);
}
