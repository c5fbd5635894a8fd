//! The catalog as it is asked, in all ways, with what protects it.
//!
//! The cache keeps parts of answers: products one by one, pages of a search as lists of SKUs, and
//! the tree of categories. So a page of a search loads only the products that no other page has
//! loaded, by one query, and a changed price is changed everywhere.

use std::time::{Duration, Instant};

use bellwether::stats::CacheStats;
use bellwether::{Cache, CacheBuilder, CacheStatus, Cacheability, Changed, ConfigError};
use bellwether_opentelemetry::Instruments;
use serde::Serialize;

use crate::Fault;
use crate::catalog::Product;
use crate::plain::PlainCaches;
use crate::source::{Category, QueryError, Search, Source};
use crate::switch::SwitchedStore;
use crate::timings::{Locked, Timings};
use crate::traffic;
use crate::way::Way;

const PRODUCTS: &str = "product";
const PAGES: &str = "search";
const CATEGORIES: &str = "categories";

/// Short, so that the page shows answers that run out.
const TTL: Duration = Duration::from_secs(10);
const CATEGORIES_TTL: Duration = Duration::from_secs(30);
const NOT_FOUND_TTL: Duration = Duration::from_secs(5);
/// How long an answer is served stale while it is loaded again.
const REVALIDATED_FOR: Duration = Duration::from_secs(60);
/// How long an answer is served stale if it cannot be loaded.
const RESCUED_FOR: Duration = Duration::from_secs(60 * 60);
/// The first and the longest cooldown of a failing key: short, so that a page recovers soon while
/// it is watched.
const FAILURES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];

/// The catalog, protected and not.
pub(crate) struct Shop {
    pub(crate) source: Source,
    pub(crate) store: SwitchedStore,
    /// Of each way, in the order of [`Way::ALL`].
    timings: [Locked<Timings>; 3],
    plain: PlainCaches,
    products: Cache<u32, Option<Product>>,
    pages: Cache<Search, Vec<u32>>,
    categories: Cache<(), Vec<Category>>,
}

/// An answer, and how it came about.
pub(crate) struct Found<T> {
    pub(crate) value: T,
    /// In the words of RFC 9211; nothing if no cache was asked.
    pub(crate) status: Option<CacheStatus>,
}

/// A page of a search.
#[derive(Debug, Serialize)]
pub(crate) struct Page {
    pub(crate) page: u32,
    pub(crate) products: Vec<Product>,
}

impl Shop {
    pub(crate) fn open(source: Source, store: SwitchedStore) -> Result<Self, ConfigError> {
        let products = cache(PRODUCTS, &store, TTL)?
            .not_found_ttl(NOT_FOUND_TTL)
            .classify(product_verdict)
            .build();
        let pages = cache(PAGES, &store, TTL)?.build();
        let categories = cache(CATEGORIES, &store, CATEGORIES_TTL)?.build();
        let plain = PlainCaches::new(TTL, CATEGORIES_TTL);
        let timings = Default::default();
        Ok(Self { source, store, timings, plain, products, pages, categories })
    }

    /// Asks for all that the traffic asks for, so that nothing of it is cold.
    pub(crate) async fn warm_up(&self) {
        for way in [Way::Plain, Way::Protected] {
            for sku in traffic::products() {
                let _ = self.product(way, sku).await;
            }
            for search in traffic::searches() {
                let _ = self.search(way, search).await;
            }
            let _ = self.categories(way).await;
        }
    }

    /// What each cache has done, by its name.
    pub(crate) fn stats(&self) -> [(&'static str, CacheStats); 3] {
        [
            (PRODUCTS, self.products.stats()),
            (PAGES, self.pages.stats()),
            (CATEGORIES, self.categories.stats()),
        ]
    }

    /// Shows OpenTelemetry what each cache does, by its name.
    pub(crate) fn observe(&self, instruments: &Instruments) {
        let cache = self.products.clone();
        instruments.observe(PRODUCTS, move || cache.stats());
        let cache = self.pages.clone();
        instruments.observe(PAGES, move || cache.stats());
        let cache = self.categories.clone();
        instruments.observe(CATEGORIES, move || cache.stats());
    }

    pub(crate) fn timings(&self, way: Way) -> Timings {
        self.timings[way as usize].lock().clone()
    }

    /// One product, if there is such a one.
    pub(crate) async fn product(
        &self,
        way: Way,
        sku: u32,
    ) -> Result<Found<Option<Product>>, Fault> {
        let database = self.source.of(way).clone();
        self.timed(way, async {
            Ok(match way {
                Way::Unprotected => database.products(vec![sku]).await?.remove(&sku).into(),
                Way::Plain => self.plain.product(&database, sku).await?.into(),
                Way::Protected => {
                    let load = async move || {
                        Ok::<_, QueryError>(database.products(vec![sku]).await?.remove(&sku))
                    };
                    self.ask(self.products.get_or_load(sku, load).with_status()).await?
                }
            })
        })
        .await
    }

    /// A page of a search: the SKUs by one query, and their products by another.
    pub(crate) async fn search(&self, way: Way, search: Search) -> Result<Found<Page>, Fault> {
        let page = search.page;
        let database = self.source.of(way).clone();
        self.timed(way, async {
            let (products, status) = match way {
                Way::Unprotected => {
                    let skus = database.search(&search).await?;
                    let mut found = database.products(skus.clone()).await?;
                    (skus.iter().filter_map(|sku| found.remove(sku)).collect(), None)
                }
                Way::Plain => (self.plain.search(&database, &search).await?, None),
                Way::Protected => {
                    let asked = search.clone();
                    let load = async move || database.search(&asked).await;
                    let answer = self.pages.get_or_load(search, load).with_status();
                    let skus = self.ask(answer).await?;
                    (self.products(skus.value).await?, skus.status)
                }
            };
            Ok(Found { value: Page { page, products }, status })
        })
        .await
    }

    /// All categories.
    pub(crate) async fn categories(&self, way: Way) -> Result<Found<Vec<Category>>, Fault> {
        let database = self.source.of(way).clone();
        self.timed(way, async {
            Ok(match way {
                Way::Unprotected => database.categories().await?.into(),
                Way::Plain => self.plain.categories(&database).await?.into(),
                Way::Protected => {
                    let load = async move || database.categories().await;
                    self.ask(self.categories.get_or_load((), load).with_status()).await?
                }
            })
        })
        .await
    }

    /// Changes a price, and invalidates the product, also if the client leaves meanwhile: a request that starts after this has returned
    /// gets the new price. Says whether there is such a product.
    pub(crate) async fn set_price(&self, sku: u32, price_cents: i64) -> Result<bool, Fault> {
        let database = self.source.of(Way::Protected).clone();
        let write = async move { database.set_price(sku, price_cents).await };
        let changed = self.products.change(sku, write).await?;
        self.plain.invalidate(sku);
        match changed {
            Changed::Invalidated(is_there) => Ok(is_there),
            Changed::Pending(_, error) => Err(error.into()),
        }
    }

    /// Invalidates a product. The plain cache forgets it in this process.
    pub(crate) async fn invalidate(&self, sku: u32) -> Result<(), Fault> {
        self.plain.invalidate(sku);
        self.products.invalidate(sku).await?;
        Ok(())
    }

    /// Products through the cache, in the order of their SKUs. One query loads all that miss.
    async fn products(&self, skus: Vec<u32>) -> Result<Vec<Product>, Fault> {
        let mut products = Vec::with_capacity(skus.len());
        let database = self.source.of(Way::Protected).clone();
        let load = async move |skus| database.products(skus).await;
        for product in self.products.get_or_load_many(skus, load).await {
            products.extend(product?);
        }
        Ok(products)
    }

    async fn ask<T, E: Into<Fault>>(
        &self,
        answer: impl Future<Output = (Result<T, E>, CacheStatus)>,
    ) -> Result<Found<T>, Fault> {
        let (value, status) = answer.await;
        Ok(Found { value: value.map_err(Into::into)?, status: Some(status) })
    }

    async fn timed<T>(
        &self,
        way: Way,
        answer: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let began = Instant::now();
        let answer = answer.await;
        self.timings[way as usize].lock().note(began.elapsed(), answer.is_ok());
        answer
    }
}

/// An answer for which bellwether was not asked.
impl<T> From<T> for Found<T> {
    fn from(value: T) -> Self {
        Self { value, status: None }
    }
}

/// How everything is protected here.
fn cache<K, V>(
    name: &str,
    store: &SwitchedStore,
    ttl: Duration,
) -> Result<CacheBuilder<K, V>, ConfigError> {
    let [first, longest] = FAILURES;
    Cache::builder(name, store.clone())
        .ttl(ttl)
        .stale_while_revalidate(REVALIDATED_FOR)
        .stale_if_error(RESCUED_FOR)
        .failure_windows(first, longest)?
        .refresh_early(1.0)
}

fn product_verdict(product: &Option<Product>) -> Cacheability {
    product.as_ref().map_or(Cacheability::NotFound, |_| Cacheability::Keep)
}
